"""Views of jobs for clients: immutable copies of their present state."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless import limits, tracking
from beanpole.core.qless.job import QlessJob, answer_bytes
from beanpole.core.qless.tables import Tables


def job_view(t: Tables, job: QlessJob) -> q.JobView:
    """Return a view of a job."""
    return q.JobView(
        job.jid,
        job.klass,
        job.data,
        job.state,
        job.queue,
        job.worker,
        tracking.is_tracked(t, job.jid),
        job.priority,
        job.expires,
        job.retries,
        job.remaining,
        tuple(job.tags),
        tuple(job.history),
        job.failure,
        job.throttles,
        job.spawned_from,
        tuple(job.dependents),
        tuple(job.dependencies),
    )


def fit_into_an_answer(jobs: list[QlessJob], flavour: int) -> bool:
    """Whether jobs fit into one answer; a single job always does."""
    if len(jobs) < 2:
        return True
    size = 0
    for job in jobs:
        size += answer_bytes(job, flavour)
    return size <= q.ANSWER_MAX_BYTES


def get(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """GET: return one job."""
    job = t.jobs.get(args[0])
    return q.OK, None if job is None else job_view(t, job)


def multiget(t: Tables, flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """MULTIGET: return several jobs."""
    jids: tuple[bytes, ...] = args[0]
    if len(jids) > q.CALL_JOBS_MAX:
        return limits.JOBS
    jobs = [job for jid in jids if (job := t.jobs.get(jid)) is not None]
    if not fit_into_an_answer(jobs, flavour):
        return limits.ANSWER
    return q.OK, tuple([job_view(t, job) for job in jobs])


def tracked(t: Tables, flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    """TRACKED: return the tracked jobs, and the tracked jids of jobs that no longer exist."""
    jids = list(t.tracked)
    jobs = [job for jid in jids if (job := t.jobs.get(jid)) is not None]
    if not fit_into_an_answer(jobs, flavour):
        return limits.ANSWER
    views = tuple([job_view(t, job) for job in jobs])
    return q.OK, (views, tuple([jid for jid in jids if jid not in t.jobs]))
