"""Refusals of calls that would exceed a limit; they are returned before anything is changed."""

from typing import Final

from beanpole import qless as q
from beanpole.core.jobs.quotas import Usage
from beanpole.core.qless.job import QlessJob, Recurring

JOBS: Final[q.Result] = (q.TOO_MUCH, (b"jobs of one call", q.CALL_JOBS_MAX))
DEPENDENCIES: Final[q.Result] = (q.TOO_MUCH, (b"dependencies of a job", q.DEPENDENCIES_MAX))
TAGS: Final[q.Result] = (q.TOO_MUCH, (b"tags of a job", q.TAGS_MAX))
THROTTLES: Final[q.Result] = (q.TOO_MUCH, (b"throttles of a job", q.THROTTLES_MAX))
NAME: Final[q.Result] = (q.TOO_MUCH, (b"bytes of a name", q.NAME_MAX_BYTES))
DATA: Final[q.Result] = (q.TOO_MUCH, (b"bytes of data", q.DATA_MAX_BYTES))
THROTTLES_ALL: Final[q.Result] = (q.TOO_MUCH, (b"throttles", q.THROTTLES_ALL_MAX))
QUEUES: Final[q.Result] = (q.TOO_MUCH, (b"queues", q.QUEUES_MAX))
OPTIONS: Final[q.Result] = (q.TOO_MUCH, (b"options", q.OPTIONS_MAX))
CHANGES: Final[q.Result] = (q.TOO_MUCH, (b"changes of a recurring job", q.CHANGES_MAX))
ITEMS: Final[q.Result] = (q.TOO_MUCH, (b"items of a list", q.ITEMS_MAX))
LISTED: Final[q.Result] = (q.TOO_MUCH, (b"jids of one list", q.LISTED_MAX))
TRACKED: Final[q.Result] = (q.TOO_MUCH, (b"tracked jobs", q.TRACKED_MAX))
RECURRING_TAGS: Final[q.Result] = (
    q.TOO_MUCH,
    (b"bytes of tags of a recurring job", q.RECURRING_TAGS_MAX_BYTES),
)
RECURRING: Final[q.Result] = (q.TOO_MUCH, (b"recurring jobs", q.RECURRING_MAX))
ANSWER: Final[q.Result] = (q.TOO_MUCH, (b"bytes of one answer", q.ANSWER_MAX_BYTES))
HISTORY: Final[q.Result] = (q.TOO_MUCH, (b"bytes of a history", q.HISTORY_MAX_BYTES))
FLUSHED: Final[q.Result] = (
    q.TOO_MUCH,
    (b"jobs, templates, throttles, queues, with their tags and histories", q.FLUSH_MAX),
)


def fits_quota(usage: Usage | None, thing: QlessJob | Recurring | None, data: bytes) -> bool:
    """Whether the quota of its user allows this data for a job or a template.

    Args:
        usage: the user for whom it will count, if it does not count yet; None for none.
        thing: the existing job or template; None for a new one.
        data: its new data.
    """
    if thing is not None and thing.usage is not None:
        return thing.usage.admits_growth(len(data) - len(thing.data))
    return usage is None or usage.admits(len(data))
