"""Whether a worker may change the run of a job: it must run, and the worker must have it."""

from beanpole import qless as q
from beanpole.core.qless.tables import Tables


def refusal(t: Tables, jid: bytes, worker: bytes | None) -> q.Result | None:
    """Return why a call cannot change the run of a job; None if it can.

    Args:
        t: the tables, which are not changed.
        jid: of the job.
        worker: that must have it; None if any worker will do.
    """
    job = t.jobs.get(jid)
    if job is None:
        return q.NO_JOB, (jid,)
    if job.state != q.RUNNING:
        return q.NOT_RUNNING, (jid, job.state)
    if worker is not None and job.worker != worker:
        return q.OTHER_WORKER, (jid, job.worker)
    return None
