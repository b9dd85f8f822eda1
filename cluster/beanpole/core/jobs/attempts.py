"""The bounds of a policy on attempts: a job of beanstalk that has used them up is buried or moved.

This module holds the step that a policy takes instead of making such a job ready again, and the
bound for jobs of Gearman, which fail (`Queue`), as with gearmand's --job-retries. The policies are
in `core.jobs.policies`. In a tube to which an alias has brought them, jobs of other protocols have
only bounds of their own: their clients wait for an end that a buried job does not have.
"""

from beanpole import events as e
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.job import RESERVED, Holder, Job, Tube
from beanpole.core.jobs.policies import Note
from beanpole.core.jobs.states import States
from beanpole.core.jobs.transitions import TRANSITION_BITS
from beanpole.core.jobs.transitions import TUBE as TUBE_CHANGED


class Attempts(States):
    """All jobs, with the bounds that policies set on attempts. `Queue` is the only subclass."""

    def attempts_max(self, job: Job, ext: Extension) -> int:
        """Return the most reservations of a job of another protocol; 0 for no bound.

        It is the job's own, else, for a job of Gearman in a queue of Gearman, that of the policy.
        """
        space = job.tube.space
        if ext.attempts_max or not self.policies.rows or not space.to_end or ext.home is not space:
            return ext.attempts_max
        policy = self.policies.of(job.tube.name)
        return 0 if policy is None else policy.attempts_max

    def ends_attempts(self, job: Job, holder: Holder | None, reason: int) -> bool:
        """Bury or move a job that was reserved, and is in no order, if its attempts are used up.

        Args:
            job: its counters include this attempt.
            holder: the session that held it; None if none did.
            reason: how the reservation ended (`events`).

        Returns:
            Whether a policy has done so; if not, the caller makes the job ready as usual.
        """
        policies = self.policies
        tube = job.tube
        is_ours = job.ext is None or job.ext.home is self.beanstalk
        policy = policies.of(tube.name) if is_ours and tube.space is self.beanstalk else None
        if (
            policy is None
            or not policy.attempts_max
            or policies.spent(job.id, job.reserves) < policy.attempts_max
        ):
            return False
        policies.note(job.id, Note(reason, tube.name, job.reserves))
        # An image may have any byte as the reason of a session.
        used_up = e.USED_UP_BY.get(reason, e.ATTEMPTS)
        job.delay_us = 0
        dead = policy.dead
        # If the name has become an alias, its queue is of another protocol, where the job cannot
        # go.
        if not dead or dead == tube.name or dead in self.aliases.queues:
            buries = job.buries
            self.make_buried(job)
            job.buries = buries  # this counts only burials by workers
            self.emit(e.BURIED, RESERVED, job, holder, used_up)
            return True
        # There are at most as many of these queues as policies, so `tubes_max` is not checked.
        self.come_into(job, RESERVED, self.tube(dead), holder, used_up)
        self.make_ready(job)
        self.emit(e.MOVED, e.MOVING, job, holder, used_up)
        self.drop_if_idle(tube)
        return True

    def come_into(
        self, job: Job, before: int, tube: Tube, holder: Holder | None, reason: int
    ) -> None:
        """Transfer a job that is in no order to another queue; `before` is its previous state."""
        job.state = e.MOVING
        self.emit(e.MOVED, before, job, holder, reason)
        size = len(job.body)
        job.tube.body_bytes -= size
        tube.body_bytes += size
        job.tube = tube
        self.transitions.append(tube.number << TRANSITION_BITS | TUBE_CHANGED)
