"""Events of qless's jobs: a record of each transition, for the audit.

Belongs here: which event a change is, by the states before and after a call, and what its record
holds. States are told in the kernel's words; the worker's name and the failure's group have no room
in a record, and times are the client's.
"""

from math import ceil, floor
from typing import Final

from beanpole import events as e
from beanpole import qless as q
from beanpole.constants import U32_MAX
from beanpole.core.jobs.job import DELAYED, DONE, FAILED, GONE, READY, RESERVED
from beanpole.core.jobs.spaces import RANK_NORMAL, SPACES
from beanpole.core.qless.job import QlessJob
from beanpole.core.qless.tables import Before, Tables

PREFIX: Final = SPACES[e.QLESS].prefix
# qless's states in the words of events; 0 is that there is no such job.
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
_MICROSECONDS: Final = 1_000_000.0
_TIME_MAX_US: Final = 2**62


def emit(t: Tables, call: int, now: float, before: Before, state: int, is_put: bool) -> None:
    """Append the events of what a call did to a job; `state` is qless's after it, 0 if it is gone.

    A PUT of one job may touch others, which are not put: `is_put` tells them apart. A job that is
    reserved by a call that made it ready before has two.
    """
    job = before.job
    was, state = _STATES[before.state], _STATES[state]
    if state == RESERVED:
        if was == RESERVED:
            if job.worker == before.worker and job.time == before.time:
                if call == q.HEARTBEAT:
                    _append(t, e.TOUCHED, was, state, before, now)
                return
            _append(t, e.TIMED_OUT, was, READY, before, now)
        elif was == GONE:
            _append(t, e.PUT, was, READY, before, now)
        elif was != READY:
            _append(t, _made_ready(was), was, READY, before, now)
        _append(t, e.RESERVED, READY, state, before, now)
        return
    if was == GONE and state in (DONE, FAILED):  # of an import
        _append(t, e.PUT, was, READY, before, now)
        was = READY
    if was == state and not is_put and job.queue == before.queue:
        return
    kind = _kind(call, was, state, is_put)
    if kind:
        _append(t, kind, was, state, before, now)


def _made_ready(was: int) -> int:
    return e.DUE if was == DELAYED else e.KICKED


def _kind(call: int, was: int, state: int, is_put: bool) -> int:
    """The event of a transition that ends in no reservation; 0 if it is none."""
    if was == GONE:
        return e.PUT if state != GONE else 0
    if state == GONE:
        return e.EXPIRED if was == DONE and call == q.COMPLETE else e.DELETED
    if state == DONE:
        return e.DONE
    if state == FAILED:
        return e.FAILED
    if was == RESERVED:
        return e.TIMED_OUT if call in (q.TIMEOUT, q.POP) else e.RELEASED
    if is_put and was not in (DONE, FAILED):
        return e.RELEASED
    if state == READY:
        return e.RELEASED if was == READY else _made_ready(was)
    return e.BURIED if state in _BLOCKED else e.RELEASED


def _append(t: Tables, kind: int, was: int, state: int, before: Before, now: float) -> None:
    kernel = t.kernel
    kernel.events_total += 1
    job = before.job
    # What a reservation took is told of the queue that it was in, and the end of a job of its last.
    # One that was imported complete has a number by its last queue.
    if was != RESERVED and state != GONE and job.state != q.COMPLETE_:
        job.tube = queue_number(t, job.queue)
    if not kernel.events_kept:
        return
    wait_us = run_us = e.NO_TIME
    if was == RESERVED and kind != e.TOUCHED:
        run_us = _microseconds(now - before.time)
    elif kind == e.RESERVED:
        wait_us = _microseconds(now - before.time)
    protocol, place, incarnation, session = e.QLESS, e.NO_ORIGIN, 0, 0
    holder = t.holder
    if holder is not None:
        place, incarnation, session = holder.place, holder.incarnation, holder.number
    reason = e.TTR if kind == e.TIMED_OUT else e.NO_REASON
    delay_s = _seconds(job.score - now) if state == DELAYED else 0
    ttr_s = _seconds(job.expires - now) if state == RESERVED else 0
    kernel.events += e.JOINED.pack(
        kind | protocol << 8 | was << 16 | state << 24 | reason << 32 | place << 40,
        job.tube & U32_MAX,
        job.id,
        _rank(job) | delay_s << 32,
        ttr_s | len(job.data) << 32,
        incarnation,
        session,
        _attempts(job, state),
        0,
        0,
        wait_us,
        run_us,
        kernel.now_us if state == READY else e.NO_TIME,
    )
    kernel.externals.append((kernel.events_total - 1, e.QLESS, job.jid))


def queue_names(t: Tables) -> dict[int, bytes]:
    """The names of the queues, as events know them, by their numbers there."""
    return {queue.number: PREFIX + name for name, queue in t.queues.items() if queue.number}


def queue_number(t: Tables, name: bytes) -> int:
    """The number by which events know a queue; it is of the counter of all tubes."""
    queue = t.queue(name)
    if not queue.number:
        kernel = t.kernel
        kernel.tubes_total += 1
        queue.number = kernel.tubes_total
        if kernel.events_kept:
            kernel.tubes_named.append((queue.number & U32_MAX, PREFIX + name))
    return queue.number


def _rank(job: QlessJob) -> int:
    """A priority on the scale that all protocols share: a higher one is a lower rank."""
    return min(max(RANK_NORMAL - floor(job.priority), 0), U32_MAX)


def _attempts(job: QlessJob, state: int) -> int:
    """How often it was reserved since it was put, as far as its retries tell."""
    return min(max(job.retries - job.remaining + (state == RESERVED), 0), U32_MAX)


def _seconds(seconds: float) -> int:
    return ceil(seconds) if 0.0 < seconds < U32_MAX else 0


def _microseconds(seconds: float) -> int:
    return min(int(seconds * _MICROSECONDS), _TIME_MAX_US) if seconds > 0.0 else 0
