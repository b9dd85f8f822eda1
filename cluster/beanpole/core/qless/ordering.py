"""The priority of jobs: the highest is popped first."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless.job import WORK
from beanpole.core.qless.tables import Tables


def priority(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """PRIORITY: change a job's priority; a waiting job goes in front of others of that priority."""
    jid, wanted = args
    job = t.jobs.get(jid)
    if job is None:
        return q.NO_JOB, (jid,)
    t.keep(job)
    job.priority = wanted
    if job.place == WORK:
        t.place(job, WORK, wanted)
    return q.OK, wanted
