"""The history of a job: a list that drops items after the first when it grows too long."""

from math import floor
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import config, limits
from beanpole.core.qless.job import QlessJob, history_bytes
from beanpole.core.qless.tables import Tables

ITEMS_DEFAULT: Final = 100.0
ITEMS_MIN: Final = 2  # the first item, which is always kept, and the new one


def append(
    t: Tables, job: QlessJob, now: float, what: int, first: bytes = b"", second: bytes = b""
) -> None:
    """Append an item; the caller has called `keep`."""
    items = job.history
    kept = _items_max(t)
    before = size = job.history_texts
    if len(items) >= kept:
        end = len(items) - (kept - ITEMS_MIN)
        size -= history_bytes(items[1:end])
        del items[1:end]
    size += len(first) + len(second)
    while size > q.HISTORY_MAX_BYTES and len(items) > 1:
        size -= len(items[1][2]) + len(items[1][3])
        del items[1]
    items.append((float(floor(now)), what, first, second))
    job.history_texts = size
    job.texts += size - before


def last_put(job: QlessJob) -> float:
    """Return when a job entered its queue: in SEED, its wait begins then, even after a retry."""
    for place in range(len(job.history) - 1, -1, -1):
        when, what, _, _ = job.history[place]
        if what == q.HAS_PUT:
            return when
    return job.time


def log(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """LOG: append an item for a client."""
    jid, message, data = args
    job = t.jobs.get(jid)
    if job is None:
        return q.NO_JOB, (jid,)
    if len(message) + len(data) > q.HISTORY_MAX_BYTES:
        return limits.HISTORY
    t.keep(job)
    append(t, job, now, q.HAS_LOGGED, message, data)
    return q.OK, None


def _items_max(t: Tables) -> int:
    wanted = config.number(t, b"max-job-history", ITEMS_DEFAULT)
    if wanted <= 0 or wanted > q.HISTORY_MAX:
        return q.HISTORY_MAX
    return max(ITEMS_MIN, int(wanted))
