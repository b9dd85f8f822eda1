"""Tracked jobs: their changes are published. The call that lists them is in `views`."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless import limits
from beanpole.core.qless.tables import Tables


def is_tracked(t: Tables, jid: bytes) -> bool:
    """Whether a job is tracked."""
    return jid in t.tracked


def track(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """TRACK: publish the changes of a job from now on."""
    jid: bytes = args[0]
    if not _may_be_named(t, flavour, jid):
        return q.NO_JOB, (jid,)
    if jid not in t.tracked and len(t.tracked) >= q.TRACKED_MAX:
        gone = _first_that_is_gone(t)
        if gone is None:
            return limits.TRACKED
        t.tracked.remove(gone)
    t.publish(b"track", jid)
    return q.OK, t.tracked.add(jid, now)


def untrack(t: Tables, flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """UNTRACK: stop publishing the changes of a job."""
    jid: bytes = args[0]
    if not _may_be_named(t, flavour, jid):
        return q.NO_JOB, (jid,)
    t.publish(b"untrack", jid)
    return q.OK, t.tracked.remove(jid)


def _may_be_named(t: Tables, flavour: int, jid: bytes) -> bool:
    return jid in t.jobs or flavour == q.SEED


def _first_that_is_gone(t: Tables) -> bytes | None:
    """Return a tracked jid without a job, to make room: most flavours cannot untrack it."""
    for jid in t.tracked:
        if jid not in t.jobs:
            return jid
    return None
