"""Tags of jobs: the tags of a job, the jobs of a tag, and their number."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import limits, ranges
from beanpole.core.qless.job import QlessJob
from beanpole.core.qless.scores import INFINITY, Scores
from beanpole.core.qless.tables import Tables

# The flavours in which the count of TAGGED is the last rank.
COUNT_IS_END: Final = (q.SEED, q.UNIFIED)
SHOWN_FROM: Final = 2.0  # jobs that a tag needs to be among the top tags


def replace(t: Tables, job: QlessJob, now: float, tags: tuple[bytes, ...]) -> None:
    """Replace the tags of a job; the caller has called `keep`."""
    drop(t, job)
    for tag in tags:
        give(t, job, now, tag)


def drop(t: Tables, job: QlessJob) -> None:
    """Remove all tags of a job; the caller has called `keep`."""
    for tag in list(job.tags):
        _take(t, job, tag)


def tag_add(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """TAG_ADD: add tags to a job."""
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
    """TAG_REMOVE: remove tags from a job."""
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
    """TAGGED: return the jobs of a tag."""
    tag, offset, count = args
    found = t.tagged.get(tag)
    if found is None:
        return q.OK, (0, ())
    if flavour in COUNT_IS_END:
        count += 1 - offset
    jids = ranges.page(found, offset, count)
    return limits.LISTED if jids is None else (q.OK, (len(found), tuple(jids)))


def top_tags(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """TOP_TAGS: return the tags with most jobs."""
    offset, count = args
    found = ranges.between_from_top(t.tags, SHOWN_FROM, INFINITY, offset, count)
    return limits.LISTED if found is None else (q.OK, tuple(found))


def give(t: Tables, job: QlessJob, now: float, tag: bytes) -> None:
    """Add a tag to a job; the caller has called `keep`."""
    jobs = t.tagged.get(tag)
    if jobs is None:
        jobs = t.tagged[tag] = Scores()
    if tag not in job.tags:
        job.texts += len(tag)
    job.tags[tag] = now
    jobs.add(job.jid, now)
    t.tags.add(tag, float(len(jobs)))


def _take(t: Tables, job: QlessJob, tag: bytes) -> None:
    del job.tags[tag]
    job.texts -= len(tag)
    jobs = t.tagged[tag]
    jobs.remove(job.jid)
    if len(jobs):
        t.tags.add(tag, float(len(jobs)))
    else:
        del t.tagged[tag]
        t.tags.remove(tag)
