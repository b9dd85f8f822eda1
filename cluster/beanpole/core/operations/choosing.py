"""The choice of a job for a session that asks for any: the best ready job of its watched queues.

Watched queues in which the session's user may not work are skipped.

GRANT and TAKE choose alike, and share an entry's budget of looks. Their results are in `leading`
and `changes`.
"""

from beanpole.core.jobs.job import Job
from beanpole.core.sessions import Session
from beanpole.core.state import MachineState
from beanpole.core.users import WORK


def may_look(machine: MachineState, session: Session) -> bool:
    """Whether this entry's budget allows a look at all watched queues; deducts them from it."""
    machine.looks_left -= len(session.watched)
    return machine.looks_left >= 0


def reserve_best(machine: MachineState, session: Session) -> Job | None:
    """Reserve the best ready job of the session's watched queues that are not closed."""
    best = 0
    user = machine.users.of(session.user, session.token) if machine.users.rows else None
    for tube in session.watched.values():
        if tube.ready_count and not tube.closed:
            key = tube.first_ready()
            # Last, because it costs more than the other tests together.
            if key and (not best or key < best) and (user is None or user.on(tube.name) & WORK):
                best = key
    if not best:
        return None
    queue = machine.queue
    job = queue.reserve_first(best, session)
    if queue.policies.rows:
        queue.count_delivery(job.tube)
    return job
