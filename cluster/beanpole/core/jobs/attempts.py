"""What becomes of a job of beanstalk that has come back too often: it is buried, or moves.

Belongs here: the step that a policy takes in place of the one that makes the job ready again. The
policies are in `core.jobs.policies`; jobs of other protocols have bounds of their own.
"""

from beanpole import events as e
from beanpole.core.jobs.job import RESERVED, Holder, Job, Tube
from beanpole.core.jobs.policies import Note
from beanpole.core.jobs.states import States
from beanpole.core.jobs.transitions import TRANSITION_BITS
from beanpole.core.jobs.transitions import TUBE as TUBE_CHANGED


class Attempts(States):
    """All jobs, and what policies do to them. `Queue` is the only subclass."""

    def ends_attempts(self, job: Job, holder: Holder | None, reason: int) -> bool:
        """Take a job that was reserved, and is in no order, out of its queue if it has to go.

        Args:
            job: its counters have this attempt already.
            holder: who held it; None if nobody did.
            reason: how the reservation ended (`events`).

        Returns:
            Whether a policy has done so; if not, the job comes back as ever.
        """
        policies = self.policies
        tube = job.tube
        policy = policies.of(tube.name) if tube.space is self.beanstalk else None
        if (
            policy is None
            or not policy.attempts_max
            or policies.spent(job.id, job.reserves) < policy.attempts_max
        ):
            return False
        policies.note(job.id, Note(reason, tube.name, job.reserves))
        job.delay_us = 0
        dead = policy.dead
        # A name that became an alias is one of another protocol's queue, where the job cannot go.
        if not dead or dead == tube.name or dead in self.aliases.queues:
            buries = job.buries
            self.make_buried(job)
            job.buries = buries  # no worker has buried it
            self.emit(e.BURIED, RESERVED, job, holder, e.ATTEMPTS)
            return True
        # There are at most as many of these queues as policies, so `tubes_max` is not asked.
        self.come_into(job, RESERVED, self.tube(dead), holder, e.ATTEMPTS)
        self.make_ready(job)
        self.emit(e.MOVED, e.MOVING, job, holder, e.ATTEMPTS)
        self.drop_if_idle(tube)
        return True

    def come_into(
        self, job: Job, before: int, tube: Tube, holder: Holder | None, reason: int
    ) -> None:
        """Let a job that is in no order leave its queue, and be of another one; `before` it was."""
        job.state = e.MOVING
        self.emit(e.MOVED, before, job, holder, reason)
        size = len(job.body)
        job.tube.body_bytes -= size
        tube.body_bytes += size
        job.tube = tube
        self.transitions.append(tube.number << TRANSITION_BITS | TUBE_CHANGED)
