"""The removal of all of qless's state, for the FLUSHDB of clients' tests, and the test for it."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import limits, statistics
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables

# Tags, items and days count, too: this many take about as long to free as a job, some 8 us. The
# last job of a tag frees the tag's index.
TAGS_A_JOB: Final = 20  # and throttles that jobs have, or wait for
ITEMS_A_JOB: Final = 80  # of a history; dependencies, and tags of a template


def flush(t: Tables, _flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    """FLUSH: remove everything, without publishing messages."""
    if _weight(t) > q.FLUSH_MAX:
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


def _weight(t: Tables) -> int:
    """Return what there is to remove, in jobs; no details of it if that is too much already."""
    weight = len(t.jobs) + len(t.recurring) + len(t.throttles) + len(t.queues)
    if weight > q.FLUSH_MAX:
        return weight
    tags = items = days = 0
    for job in t.jobs.values():
        tags += len(job.tags) + len(job.locked) + len(job.pending)
        items += len(job.history) + len(job.dependencies)
    for template in t.recurring.values():
        items += len(template.tags)
    for queue in t.queues.values():
        days += len(queue.days)
    return weight + tags // TAGS_A_JOB + items // ITEMS_A_JOB + days // statistics.DAYS_A_JOB


def keys(t: Tables, _flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    """KEYS: return whether there is any state at all."""
    tables = (t.jobs, t.queues, t.recurring, t.throttles, t.leases, t.groups, t.tagged, t.config)
    sets = (t.workers, t.tracked)
    there = any(tables) or any(t.patterns) or any(len(one) > 0 for one in sets)
    return q.OK, there
