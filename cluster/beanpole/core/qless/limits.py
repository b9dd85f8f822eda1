"""Refusals of calls that would pass a limit; each is given before anything is changed."""

from typing import Final

from beanpole import qless as q
from beanpole.core.qless.job import QlessJob, Recurring
from beanpole.core.qless.tables import Tables

JOBS: Final[q.Result] = (q.TOO_MUCH, (b"jobs of one call", q.CALL_JOBS_MAX))
DEPENDENCIES: Final[q.Result] = (q.TOO_MUCH, (b"dependencies of a job", q.DEPENDENCIES_MAX))
TAGS: Final[q.Result] = (q.TOO_MUCH, (b"tags of a job", q.TAGS_MAX))
THROTTLES: Final[q.Result] = (q.TOO_MUCH, (b"throttles of a job", q.THROTTLES_MAX))
NAME: Final[q.Result] = (q.TOO_MUCH, (b"bytes of a name", q.NAME_MAX_BYTES))
THROTTLES_ALL: Final[q.Result] = (q.TOO_MUCH, (b"throttles", q.THROTTLES_ALL_MAX))
QUEUES: Final[q.Result] = (q.TOO_MUCH, (b"queues", q.QUEUES_MAX))
WORKERS: Final[q.Result] = (q.TOO_MUCH, (b"workers", q.WORKERS_MAX))
OPTIONS: Final[q.Result] = (q.TOO_MUCH, (b"options", q.OPTIONS_MAX))
LISTED: Final[q.Result] = (q.TOO_MUCH, (b"jids of one list", q.LISTED_MAX))
TRACKED: Final[q.Result] = (q.TOO_MUCH, (b"tracked jobs", q.TRACKED_MAX))
RECURRING: Final[q.Result] = (q.TOO_MUCH, (b"recurring jobs", q.RECURRING_MAX))
ANSWER: Final[q.Result] = (q.TOO_MUCH, (b"bytes of one answer", q.ANSWER_MAX_BYTES))
HISTORY: Final[q.Result] = (q.TOO_MUCH, (b"bytes of a history", q.HISTORY_MAX_BYTES))
FLUSHED: Final[q.Result] = (q.TOO_MUCH, (b"jobs that FLUSH removes", q.FLUSH_JOBS_MAX))


def has_quota(t: Tables, thing: QlessJob | Recurring | None, data: bytes) -> bool:
    """Whether the quota of a user lets a job, or a template, have this data.

    Args:
        t: the tables; their `usage` is that of the call's user, for whom a new one counts.
        thing: the one that is there; None for a new one.
        data: what it is to have.
    """
    if thing is None:
        return t.usage is None or t.usage.admits(len(data))
    return thing.usage is None or thing.usage.admits_growth(len(data) - len(thing.data))
