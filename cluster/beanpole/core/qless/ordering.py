"""The priority of a job: the highest is popped first."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless.job import WORK
from beanpole.core.qless.tables import Tables


def priority(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """Give a job another priority; one that waits goes in front of those that have it."""
    jid, wanted = args
    job = t.jobs.get(jid)
    if job is None:
        return q.NO_JOB, (jid,)
    t.keep(job)
    job.priority = wanted
    if job.place == WORK:
        t.place(job, WORK, wanted)
    return q.OK, wanted
