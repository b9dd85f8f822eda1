"""Events of qless's jobs: a record of each transition, for the audit.

This module derives the events of a change from the states before and after a call, and fills their
records. States are mapped to those of the kernel; waits and runs are measured by the client's
clock. Fields for which a record has no room are kept beside it (`Emitter.details`): the worker's
name, the failure's group, the time of that clock.
"""

from math import ceil, floor
from typing import Final

from beanpole import events as e
from beanpole import qless as q
from beanpole.constants import SECOND_US, U32_MAX
from beanpole.core.jobs.job import DELAYED, DONE, FAILED, GONE, READY, RESERVED
from beanpole.core.jobs.spaces import RANK_NORMAL, SPACES
from beanpole.core.qless.job import QlessJob
from beanpole.core.qless.tables import Before, Tables

PREFIX: Final = SPACES[e.QLESS].prefix
# qless's states mapped to those of events; 0 means that there is no such job.
_STATES: Final = {
    0: GONE,
    q.WAITING: READY,
    q.RUNNING: RESERVED,
    q.SCHEDULED: DELAYED,
    q.DEPENDS: e.DEPENDS,
    q.STALLED: READY,
    q.THROTTLED: e.THROTTLED,
    q.FAILED: FAILED,
    q.COMPLETE_: DONE,
}
_BLOCKED: Final = (e.DEPENDS, e.THROTTLED)
_TIME_MAX_US: Final = 2**62


def emit(t: Tables, call: int, now: float, before: Before, state: int, is_put: bool) -> None:
    """Append the events of a call's changes of a job; `state` is qless's new one, 0 if it is gone.

    A PUT may touch other jobs than the one that is put: `is_put` is True for the latter only. A job
    has two events if a call made it ready and then reserved it, or moved it to another queue.
    """
    job = before.job
    was, state = _STATES[before.state], _STATES[state]
    if state == RESERVED:
        if was == RESERVED:
            if before.spent is None:  # this call did not pop it
                if call == q.HEARTBEAT:
                    _append(t, e.TOUCHED, was, state, before, job.queue, now)
                return
            _append(t, e.TIMED_OUT, was, READY, before, job.queue, now)
        elif was == GONE:
            _append(t, e.PUT, was, READY, before, job.queue, now)
        elif was != READY:
            _append(t, e.DUE if was == DELAYED else e.UNBLOCKED, was, READY, before, job.queue, now)
        _append(t, e.RESERVED, READY, state, before, job.queue, now)
        return
    queue = job.queue or job.completed_in
    if was == GONE and state in (DONE, FAILED):  # an imported job
        _append(t, e.PUT, was, READY, before, queue, now)
        was = READY
    stays = GONE in (was, state) or before.state == 0 or queue == before.queue
    if was == state and not is_put and stays:
        return
    kind = _kind(call, was, state, is_put)
    advances = call == q.COMPLETE and was == RESERVED and state not in (DONE, GONE)
    reason = e.ADVANCED if advances else e.NO_REASON
    if stays:
        _append(t, kind, was, state, before, before.queue if before.state else queue, now, reason)
    else:
        _append(t, kind, was, e.MOVING, before, before.queue, now, reason)
        _append(t, e.MOVED, e.MOVING, state, before, queue, now)


def _kind(call: int, was: int, state: int, is_put: bool) -> int:
    """Return the kind of the event of a transition that does not end in a reservation."""
    if GONE in (was, state):
        return _kind_of_end(call, was) if was else e.PUT
    if state == DONE:
        return e.DONE
    if state == FAILED:
        return e.FAILED
    if is_put:
        return e.MOVED
    if was == RESERVED:
        return e.TIMED_OUT if call in (q.TIMEOUT, q.POP) else e.RELEASED
    if was == FAILED:
        return e.KICKED
    if state in _BLOCKED:
        return e.BLOCKED
    if was in _BLOCKED:
        return e.UNBLOCKED
    return e.DUE if was == DELAYED else e.MOVED


def _kind_of_end(call: int, was: int) -> int:
    if call != q.COMPLETE:
        return e.DELETED
    return e.DONE if was == RESERVED else e.EXPIRED  # purged at once, or as an old complete job


def _append(
    t: Tables,
    kind: int,
    was: int,
    state: int,
    before: Before,
    queue: bytes,
    now: float,
    reason: int = e.NO_REASON,
) -> None:
    kernel = t.kernel
    kernel.events_total += 1
    tube = _queue_number(t, queue)
    if not kernel.events_kept:
        return
    job = before.job
    wait_us = run_us = e.NO_TIME
    worker: bytes | None = None
    if was == RESERVED:
        worker = before.worker
        if kind != e.TOUCHED:
            ends = kind == e.DONE or reason == e.ADVANCED
            run_us = _microseconds(_spent(before, now) if ends else now - before.time)
    elif kind == e.RESERVED:
        worker = job.worker
        wait_us = _microseconds(_spent(before, now))
    protocol, place, incarnation, session = e.QLESS, e.NO_ORIGIN, 0, 0
    holder = t.holder
    if holder is not None:
        place, incarnation, session = holder.place, holder.incarnation, holder.number
    if kind == e.TIMED_OUT:
        reason = e.TTR
    delay_s = _seconds(job.score - now) if state == DELAYED else 0
    ttr_s = _seconds(job.expires - now) if state == RESERVED else 0
    kernel.events += e.JOINED.pack(
        kind | protocol << 8 | was << 16 | state << 24 | reason << 32 | place << 40,
        tube & U32_MAX,
        job.id,
        _rank(job) | delay_s << 32,
        ttr_s | len(job.data) << 32,
        incarnation,
        session,
        _attempt(before, was, state),
        0,
        0,
        wait_us,
        run_us,
        kernel.now_us if state == READY else e.NO_TIME,
    )
    offset = kernel.events_total - 1
    kernel.externals.append((offset, e.QLESS, job.jid))
    failure = job.failure
    group = failure.group if kind == e.FAILED and failure is not None else None
    kernel.details.append((offset, worker, group, _clock_us(now)))


def _spent(before: Before, now: float) -> float:
    """Return the time that the job waited or ran, as counted in the statistics of its queue."""
    spent = before.spent
    return now - before.time if spent is None else spent


def queue_names(t: Tables) -> dict[int, bytes]:
    """Return the names of the queues in events by their numbers there."""
    return {queue.number: PREFIX + name for name, queue in t.queues.items() if queue.number}


def _queue_number(t: Tables, name: bytes) -> int:
    """Return the number of a queue in events, from the counter of all tubes.

    A queue that has been removed, because it was not known and had only complete or failed jobs, is
    created for this call with a new number. So any node can name it, whenever it was started.
    """
    queue = t.queues.get(name)
    if queue is None or not queue.number:
        queue = t.queue(name)
        kernel = t.kernel
        kernel.tubes_total += 1
        queue.number = kernel.tubes_total
        if kernel.events_kept:
            kernel.tubes_named.append((queue.number & U32_MAX, PREFIX + name))
    return queue.number


def _rank(job: QlessJob) -> int:
    """Return the rank of a priority on the common scale: a higher priority is a lower rank."""
    return min(max(RANK_NORMAL - floor(job.priority), 0), U32_MAX)


def _attempt(before: Before, was: int, state: int) -> int:
    """Return the number of reservations since the put, as far as the retries show it."""
    if was == RESERVED:
        number = before.attempt
    else:
        number = before.job.retries - before.job.remaining + (state == RESERVED)
    return min(max(number, 0), U32_MAX)


def _seconds(seconds: float) -> int:
    return ceil(seconds) if 0.0 < seconds < U32_MAX else 0


def _microseconds(seconds: float) -> int:
    """Return a duration in microseconds; below 0 if clients' clocks differ, but never NO_TIME."""
    time_us = _clock_us(seconds)
    return 0 if time_us == e.NO_TIME else time_us


def _clock_us(now: float) -> int:
    return min(max(floor(now * SECOND_US), -_TIME_MAX_US), _TIME_MAX_US)
