"""The removal of all of qless's state, for the FLUSHDB of clients' tests, and the test for it."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless import limits
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables


def flush(t: Tables, _flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    """FLUSH: remove everything, without publishing messages."""
    if len(t.jobs) + len(t.recurring) + len(t.throttles) + len(t.queues) > q.FLUSH_MAX:
        return limits.FLUSHED
    for job in list(t.jobs.values()):
        t.forget(job)
    for queue in t.queues.values():
        t.keep_queue(queue)
    for template in t.recurring.values():
        t.keep_recurring(template)
    for throttle in t.throttles.values():
        t.keep_throttle(throttle)
    for table in (t.queues, t.recurring, t.throttles, t.leases, t.groups, t.tagged, t.config):
        table.clear()
    for kind in t.patterns:
        kind.clear()
    t.names_bytes = 0
    t.workers = Scores()
    t.tags = Scores()
    t.tracked = Scores()
    t.completed = Scores()
    t.throttle_ends = Scores()
    return q.OK, None


def keys(t: Tables, _flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    """KEYS: return whether there is any state at all."""
    tables = (t.jobs, t.queues, t.recurring, t.throttles, t.leases, t.groups, t.tagged, t.config)
    sets = (t.workers, t.tracked)
    there = any(tables) or any(t.patterns) or any(len(one) > 0 for one in sets)
    return q.OK, there
