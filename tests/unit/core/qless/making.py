"""Tables with jobs, for tests that are not about the life cycle of jobs."""

from beanpole import qless as q
from beanpole.core.jobs.queue import Queue
from beanpole.core.qless.job import LOCKS, SCHEDULED_AT, WORK, QlessJob
from beanpole.core.qless.queues import work_score
from beanpole.core.qless.tables import Tables


def empty_tables() -> Tables:
    """Return tables of a node with a subscriber; calls may make a thousand jobs."""
    t = Tables(Queue())
    t.heard = True
    t.room = 1000
    return t


def fill_queues(t: Tables) -> None:
    """Make queues, called 0, 1 and so on, until there is no room for another."""
    number = 0
    while len(t.queues) < q.QUEUES_MAX:
        t.queue(b"%d" % number)
        number += 1


def waiting_job(t: Tables, jid: bytes, queue: bytes = b"q", now: float = 0.0) -> QlessJob:
    """Make a waiting job in a queue."""
    job = QlessJob(t.new_id(), jid)
    job.klass = b"Klass"
    job.data = b"{}"
    job.queue = queue
    job.state = q.WAITING
    job.retries = job.remaining = 5
    job.time = now
    t.add(job)
    t.queue(queue)
    t.place(job, WORK, work_score(now, 0.0))
    return job


def scheduled_job(t: Tables, jid: bytes, at: float, queue: bytes = b"q") -> QlessJob:
    """Make a scheduled job."""
    job = waiting_job(t, jid, queue)
    job.state = q.SCHEDULED
    t.place(job, SCHEDULED_AT, at)
    return job


def running_job(
    t: Tables, jid: bytes, worker: bytes, until: float, queue: bytes = b"q"
) -> QlessJob:
    """Make a job that a worker has."""
    job = waiting_job(t, jid, queue)
    job.state = q.RUNNING
    job.worker = worker
    job.expires = until
    t.place(job, LOCKS, until)
    t.hold(job, until)
    return job
