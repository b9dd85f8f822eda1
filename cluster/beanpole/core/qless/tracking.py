"""Tracked jobs: what happens to them is published. The list of them is in `views`."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless import limits
from beanpole.core.qless.tables import Tables


def is_tracked(t: Tables, jid: bytes) -> bool:
    """Whether somebody asked for messages about a job."""
    return jid in t.tracked


def track(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Publish from now on what happens to a job."""
    jid: bytes = args[0]
    if not _may_be_named(t, flavour, jid):
        return q.NO_JOB, (jid,)
    if jid not in t.tracked and len(t.tracked) >= q.TRACKED_MAX:
        gone = _first_that_is_gone(t)
        if gone is None:
            return limits.TRACKED
        t.tracked.remove(gone)
    t.say(b"track", jid)
    return q.OK, t.tracked.add(jid, now)


def untrack(t: Tables, flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """Publish no more what happens to a job."""
    jid: bytes = args[0]
    if not _may_be_named(t, flavour, jid):
        return q.NO_JOB, (jid,)
    t.say(b"untrack", jid)
    return q.OK, t.tracked.remove(jid)


def _may_be_named(t: Tables, flavour: int, jid: bytes) -> bool:
    return jid in t.jobs or flavour == q.SEED


def _first_that_is_gone(t: Tables) -> bytes | None:
    """A tracked jid without a job: most dialects cannot untrack it, so it makes room for others."""
    for jid in t.tracked:
        if jid not in t.jobs:
            return jid
    return None
