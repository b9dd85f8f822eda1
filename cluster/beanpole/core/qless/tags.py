"""Tags of jobs: which a job has, which jobs have a tag, and how many."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import limits, ranges
from beanpole.core.qless.job import QlessJob
from beanpole.core.qless.scores import INFINITY, Scores
from beanpole.core.qless.tables import Tables

# The dialects that take the count of TAGGED for the last rank.
COUNT_IS_END: Final = (q.SEED, q.UNIFIED)
SHOWN_FROM: Final = 2.0  # jobs that must have a tag before it is among the top ones


def replace(t: Tables, job: QlessJob, now: float, tags: tuple[bytes, ...]) -> None:
    """Give a job these tags, and no others; the caller has called `keep`."""
    drop(t, job)
    for tag in tags:
        give(t, job, now, tag)


def drop(t: Tables, job: QlessJob) -> None:
    """Take all tags of a job; the caller has called `keep`."""
    for tag in list(job.tags):
        _take(t, job, tag)


def tag_add(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Give a job more tags."""
    jid, tags = args
    job = t.jobs.get(jid)
    if job is None:
        return q.NO_JOB, (jid,)
    given = dict.fromkeys(tags)
    if len(job.tags) + len([tag for tag in given if tag not in job.tags]) > q.TAGS_MAX:
        return limits.TAGS
    t.keep(job)
    for tag in given:
        give(t, job, now, tag)
    return q.OK, tuple(job.tags)


def tag_remove(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """Take some tags of a job."""
    jid, tags = args
    job = t.jobs.get(jid)
    if job is None:
        return q.NO_JOB, (jid,)
    t.keep(job)
    for tag in tags:
        if tag in job.tags:
            _take(t, job, tag)
    return q.OK, tuple(job.tags)


def tagged(t: Tables, flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """The jobs that have a tag."""
    tag, offset, count = args
    found = t.tagged.get(tag)
    if found is None:
        return q.OK, (0, ())
    if flavour in COUNT_IS_END:
        count += 1 - offset
    jids = ranges.page(found, offset, count)
    return limits.LISTED if jids is None else (q.OK, (len(found), tuple(jids)))


def top_tags(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """The tags that most jobs have."""
    offset, count = args
    found = ranges.between_from_top(t.tags, SHOWN_FROM, INFINITY, offset, count)
    return limits.LISTED if found is None else (q.OK, tuple(found))


def give(t: Tables, job: QlessJob, now: float, tag: bytes) -> None:
    """Give a job one more tag; the caller has called `keep`."""
    jobs = t.tagged.get(tag)
    if jobs is None:
        jobs = t.tagged[tag] = Scores()
    job.tags[tag] = now
    jobs.add(job.jid, now)
    t.tags.add(tag, float(len(jobs)))


def _take(t: Tables, job: QlessJob, tag: bytes) -> None:
    del job.tags[tag]
    jobs = t.tagged[tag]
    jobs.remove(job.jid)
    if len(jobs):
        t.tags.add(tag, float(len(jobs)))
    else:
        del t.tagged[tag]
        t.tags.remove(tag)
