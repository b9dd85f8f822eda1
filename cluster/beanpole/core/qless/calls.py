"""The table of qless's calls, and how one of them is applied.

Belongs here: which function makes a call, what its arguments are, whether it needs room; and what
every call brings about, whatever it does (`_settle`). What a call does is in its own file.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import emitting, shapes, sizes
from beanpole.core.qless.shapes import Kind, Row
from beanpole.core.qless.tables import Tables

# What makes a call: its tables, flavour, the time of the client's clock, arguments of its shape.
Handler = Callable[[Tables, int, float, tuple[Any, ...]], q.Result]

# What the running hash sees of each job that a call touched: its number, and its state.
_JOB: Final = Struct("<QI")


class Call:
    """One entry of the table.

    Attributes:
        shape: of its arguments.
        handler: what makes it.
        grows: whether it makes or enlarges something, so that it is refused without room.
    """

    __slots__ = ("grows", "handler", "shape")

    def __init__(self, handler: Handler, *kinds: Kind, grows: bool = False) -> None:
        self.handler = handler
        self.shape = Row(*kinds)
        self.grows = grows


# By their codes; the arguments are explained beside these.
CALLS: Final[dict[int, Call]] = {}


def apply(t: Tables, call: int, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Make a call that may change something; its arguments may be anything."""
    t.trace = b""
    entry = CALLS.get(call)
    if entry is None or call >= q.FIRST_READ:
        return shapes.BAD
    refused = _refusal(entry, flavour, now, args)
    if refused is not None:
        return refused
    if entry.grows and t.room <= 0 and not _has_room(t, call, args):
        return q.NO_ROOM, ()
    result = entry.handler(t, flavour, now, args)
    _settle(t, call, now)
    return result


def read(t: Tables, call: int, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Make a call that changes nothing; its arguments may be anything."""
    entry = CALLS.get(call)
    if entry is None or call < q.FIRST_READ:
        return shapes.BAD
    refused = _refusal(entry, flavour, now, args)
    return entry.handler(t, flavour, now, args) if refused is None else refused


def _refusal(entry: Call, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result | None:
    if flavour not in q.FLAVOURS or not shapes.is_number(now):
        return shapes.BAD
    return entry.shape.refusal(args)


def _has_room(t: Tables, call: int, args: tuple[Any, ...]) -> bool:
    """Whether a call fits that makes or enlarges something, when no more jobs may be made."""
    if t.room < 0:
        return False
    if call == q.PUT:
        return args[1] in t.jobs
    return call != q.RECUR or args[1] in t.recurring


def _settle(t: Tables, call: int, now: float) -> None:
    """What follows from the changes of a call: events, memory, the trace for the running hash.

    What is nobody's any more goes: a queue without jobs that is not known, a throttle that nobody
    has set and no job needs. A machine that is made of an image does not have these, either.
    """
    trace: list[bytes] = []
    for number, before in t.touched.items():
        job = before.job
        is_there = t.by_id.get(number) is job
        state = job.state if is_there else 0
        emitting.emit(t, call, now, before, state)
        size = sizes.of_job(job) if is_there else 0
        t.bytes += size - job.size
        job.size = size
        trace.append(_JOB.pack(number, state))
    for before in t.touched.values():
        _tidy_queue(t, before.queue)
        if before.job.queue != before.queue:
            _tidy_queue(t, before.job.queue)
    t.touched.clear()
    for name, queue in t.touched_queues.items():
        _tidy_queue(t, name)
        size = sizes.of_queue(queue) if t.queues.get(name) is queue else 0
        t.bytes += size - queue.size
        queue.size = size
    t.touched_queues.clear()
    for jid, template in t.touched_recurring.items():
        size = sizes.of_recurring(template) if t.recurring.get(jid) is template else 0
        t.bytes += size - template.size
        template.size = size
    t.touched_recurring.clear()
    for name, throttle in t.touched_throttles.items():
        if not (throttle.is_set or throttle.locks or throttle.pending):
            t.throttles.pop(name, None)
    t.touched_throttles.clear()
    t.trace = b"".join(trace)


def _tidy_queue(t: Tables, name: bytes) -> None:
    queue = t.queues.get(name)
    if queue is None or queue.known_at is not None or queue.paused or queue.has_jobs():
        return
    t.keep_queue(queue)
    del t.queues[name]
