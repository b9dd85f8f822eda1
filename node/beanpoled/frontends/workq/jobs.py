"""Conversion between Workq's fields of jobs and queues and those of the machine.

Only the conversion is here; `connection` and `inspection` use it.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import NOBODYS_TTR_US
from beanpole.core.jobs import display_names
from beanpole.core.jobs.job import DONE, GONE, RESERVED, Job, Tube, outcome
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.spaces import RANK_NORMAL, SPACES
from beanpole.events import WORKQ
from beanpole.protocol.workq import replies

PREFIX: Final = SPACES[WORKQ].prefix
MS_US: Final = 1000

# --- states, by the numbers that clients see -----------------------------------------------------
STATE_NEW: Final = 0  # never leased; also a scheduled or buried job
STATE_COMPLETED: Final = 1
STATE_FAILED: Final = 2
STATE_PENDING: Final = 3  # to be leased again, if it is buried, once it is kicked
STATE_LEASED: Final = 4


def add_command(
    session: int,
    job: bytes,
    name: bytes,
    delay_us: int,
    ttr_ms: int,
    ttl_us: int,
    priority: int,
    attempts_max: int,
    fails_max: int,
    payload: bytes,
) -> c.Command:
    """Return the command that makes a job. A higher priority is a lower rank."""
    queue, rank = PREFIX + name, RANK_NORMAL - priority
    limits = (attempts_max, fails_max)
    return (c.ADD, session, queue, rank, delay_us, ttr_ms * MS_US, ttl_us, job, *limits, payload)


def external_id(job: Job) -> bytes:
    """Return the id that the client gave a job; a derived one for a job of another protocol."""
    ext = job.ext
    if ext is None or ext.home.number != WORKQ:
        return display_names.derived(job.id)
    return ext.external_id


def name_of(queue: Queue, tube: Tube) -> bytes:
    """Return the name by which clients of this protocol know a queue."""
    return queue.bare_name(queue.spaces[WORKQ], tube)


def leased(queue: Queue, job: Job) -> bytes:
    """Return the reply that leases a job."""
    ttr_us = job.ttr_us or NOBODYS_TTR_US
    return replies.leased(external_id(job), name_of(queue, job.tube), ttr_us // MS_US, job.body)


def priority(job: Job) -> int:
    """Return the priority that the client gave a job."""
    return RANK_NORMAL - job.rank


def state(job: Job) -> int:
    """Return the state of a job as a number that clients see.

    A job of Workq that an administrator has buried has the state that it would have if it was
    scheduled: it has no result, can still get one, and is not leased before it is kicked.
    """
    ended = outcome(job)
    if ended != GONE:
        return STATE_COMPLETED if ended == DONE else STATE_FAILED
    if job.state == RESERVED:
        return STATE_LEASED
    again = job.reserves > 0 or (job.ext is not None and job.ext.failures > 0)
    return STATE_PENDING if again else STATE_NEW
