"""Administrative transitions of jobs: move a job to another queue, change its rank or delay.

This module holds the steps of these transitions, and their events. Permission is decided in
`core.operations.administering`; the transitions that workers and timers cause are in
`core.jobs.queue`.

A move emits two events, as in qless: with the first, the job leaves its queue for the state MOVING;
with the second, it enters the other queue. So counts by queue are right for both queues.
"""

from beanpole import events as e
from beanpole.core.jobs.job import BURIED, DELAYED, READY, RESERVED, Holder, Job, Tube
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.transitions import TOUCH, TRANSITION_BITS


def move(
    queue: Queue, job: Job, tube: Tube, state: int, session: Holder | None, reason: int
) -> None:
    """Move a job that has not ended to another queue.

    The job keeps its id, body, rank and counters, those of burials and kicks included. Among the
    ready jobs it is ordered by its rank and its sequence, as if it had been put there; a job that
    stays delayed keeps its due time; among the buried jobs it is the last. Its time in the ready
    state begins anew. A reservation ends.

    Args:
        queue: all jobs.
        job: ready, reserved, delayed or buried.
        tube: the target, not the job's present tube.
        state: READY, BURIED, or DELAYED for a delayed job.
        session: the session that requested the move; None if none did.
        reason: the reason for the event (`events`).
    """
    before = job.state
    assert state in (READY, BURIED) or state == before == DELAYED, (before, state)
    old, buries = job.tube, job.buries
    due_us = -job.order if before == DELAYED and job.order < 0 else job.due_us
    queue.take(job)
    queue.come_into(job, before, tube, session, reason)
    queue.policies.begin_anew(job.id, job.reserves)
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
    """Change the rank of a ready, delayed or buried job; its time in the ready state goes on."""
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
    """Delay a ready or delayed job from now on; a delay of 0 makes it ready."""
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
