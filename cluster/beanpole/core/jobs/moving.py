"""What an administrator or a policy does to a job beside its workers: move it, change its order.

Belongs here: the steps of these transitions, and their events. Which session may ask for them is
decided in `core.operations.administering`; those that workers and time ask for are in
`core.jobs.queue`.

A job that moves has two events, as one of qless has: by the first it leaves its queue for the state
MOVING, by the second it comes into the other one. What is counted by queue adds up in both.
"""

from beanpole import events as e
from beanpole.core.jobs.job import BURIED, DELAYED, READY, RESERVED, Holder, Job, Tube
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.transitions import TOUCH, TRANSITION_BITS


def move(
    queue: Queue, job: Job, tube: Tube, state: int, session: Holder | None, reason: int
) -> None:
    """Take a job that has not ended into another queue.

    It keeps its id, its body, its rank and its counters: nobody has buried or kicked it. Among the
    ready jobs it stands where its rank and its sequence say, as if it had been put there; one that
    stays delayed is due when it was; among the buried ones it is the last. From now on it counts
    as ready in that queue. A reservation ends.

    Args:
        queue: all jobs.
        job: ready, reserved, delayed or buried.
        tube: another one than the job's.
        state: READY, BURIED, or DELAYED of a job that is delayed.
        session: which asked for it; None if none did.
        reason: why (`events`).
    """
    before = job.state
    assert state in (READY, BURIED) or state == before == DELAYED, (before, state)
    old, buries = job.tube, job.buries
    due_us = -job.order if before == DELAYED and job.order < 0 else job.due_us
    queue.take(job)
    queue.come_into(job, before, tube, session, reason)
    if state == DELAYED:
        queue.make_delayed(job, due_us - queue.now_us)
    elif state == BURIED:
        queue.make_buried(job)
        job.buries = buries
    else:
        queue.make_ready(job)
    if before == RESERVED and job.ext is not None:
        queue.forget_progress(job.ext)
    queue.emit(e.MOVED, e.MOVING, job, session, reason)
    queue.drop_if_idle(old)


def set_rank(queue: Queue, job: Job, rank: int, session: Holder, reason: int) -> None:
    """Give a ready, delayed or buried job another rank; how long it has been ready stays."""
    state = job.state
    if state == READY:
        ready_us = job.ready_us
        queue.take(job)
        job.rank = rank
        queue.make_ready(job)
        job.ready_us = ready_us
    else:
        for image in queue.images:
            image.keep(job)
        job.rank = rank
        queue.transitions.append(job.id << TRANSITION_BITS | TOUCH)
    queue.emit(e.MOVED, state, job, session, reason)


def set_delay(queue: Queue, job: Job, delay_us: int, session: Holder, reason: int) -> None:
    """Let a ready or delayed job be delayed from now on; 0 makes it ready."""
    ready_us = job.ready_us
    before = queue.take(job)
    job.delay_us = delay_us
    if delay_us:
        queue.make_delayed(job, delay_us)
    else:
        queue.make_ready(job)
        if before == READY:
            job.ready_us = ready_us
    queue.emit(e.MOVED, before, job, session, reason)
