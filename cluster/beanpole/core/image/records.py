"""The records of an image: which fields each has, in which order, and how it is made.

An image holds every record as an array, so the order of the fields below is the layout, and fixed
for all versions (what came later is in `core.image.parts`). How records are cut into chunks is in
`core.image.image`, and what a machine is made of them in `core.image.restore`.
"""

from typing import Any, Final, NamedTuple

from beanpole.core.jobs.job import Job, Tube
from beanpole.core.keys import Generation
from beanpole.core.sessions import Origin, Session

# The attributes of the machine and of the queue that stand in the head, in this order.
MACHINE_NUMBERS: Final = ("index", "wall_us", "state_hash", "term", "sessions_total")
MACHINE_LIMITS: Final = (
    "jobs_max",
    "tubes_max",
    "sessions_max",
    "queue_bytes_max",
    "puts_refused",
)
QUEUE_NUMBERS: Final = (
    "now_us",
    "epoch_us",
    "expiry_floor_us",
    "next_id",
    "next_order",
    "jobs_total",
    "timeouts",
    "events_total",
    "tubes_total",
)


class Head(NamedTuple):
    """What the image begins with.

    Attributes:
        numbers: of the machine (MACHINE_NUMBERS).
        limits: of the machine (MACHINE_LIMITS).
        queue_numbers: of the queue (QUEUE_NUMBERS).
        origins: an OriginRecord each.
        generations: a GenerationRecord each, the older one first.
        tubes: how many follow.
        sessions: how many follow.
        key_chunks: how many follow.
    """

    numbers: list[Any]
    limits: list[Any]
    queue_numbers: list[Any]
    origins: list[Any]
    generations: list[Any]
    tubes: int
    sessions: int
    key_chunks: int


class OriginRecord(NamedTuple):
    """An origin without its sessions."""

    origin: int
    incarnation: int
    next_number: int
    alive: bool


class GenerationRecord(NamedTuple):
    """A generation of deduplication keys without its keys."""

    began_us: int
    keys: int


class TubeRecord(NamedTuple):
    """A tube without its jobs."""

    name: bytes
    serial: int
    jobs_total: int
    deletes: int
    pauses: int
    pause_s: int
    paused_until_us: int


class SessionRecord(NamedTuple):
    """A session.

    Attributes:
        used: the serial number of the tube that it uses.
        watched: the serial numbers of the tubes that it watches.
        held: the ids of the jobs that it holds, in the order in which they were reserved; or how
            many they are, if they stand in chunks of their own.
    """

    serial: int
    origin: int
    incarnation: int
    number: int
    epoch: int
    state: int
    used: int
    watched: list[int]
    held: Any
    request_granted: int
    secret: bytes
    grace_us: int
    detached_until_us: int
    protocol: int
    reason: int


# A plain tuple, because there may be millions: making and reading a named one takes longer.
JobRecord = tuple[Any, ...]
JOB_BODY: Final = -1  # where its body stands


def of_origin(origin: Origin) -> OriginRecord:
    """Return the record of an origin."""
    return OriginRecord(origin.index, origin.incarnation, origin.next_number, origin.alive)


def of_generation(generation: Generation) -> GenerationRecord:
    """Return the record of a generation of keys."""
    return GenerationRecord(generation.began_us, generation.count)


def of_tube(tube: Tube) -> TubeRecord:
    """Return the record of a tube."""
    return TubeRecord(
        tube.name,
        tube.serial,
        tube.jobs_total,
        tube.deletes,
        tube.pauses,
        tube.pause_s,
        tube.paused_until_us,
    )


def of_session(session: Session) -> SessionRecord:
    """Return the record of a session, with all that it holds."""
    return SessionRecord(
        session.serial,
        session.origin,
        session.incarnation,
        session.number,
        session.epoch,
        session.state,
        session.used.serial,
        [tube.serial for tube in session.watched.values()],
        list(session.reserved),
        session.request_granted,
        session.secret,
        session.grace_us,
        session.detached_until_us,
        session.protocol,
        session.reason,
    )


def of_job(job: Job) -> JobRecord:
    """Return the record of a job; `job_of` takes it apart."""
    return (
        job.id,
        job.tube.serial,
        job.priority,
        job.delay_s,
        job.ttr_s,
        job.created_us,
        job.state,
        job.due_us,
        job.order,
        0 if job.holder is None else job.holder.serial,
        job.reserves,
        job.timeouts,
        job.releases,
        job.buries,
        job.kicks,
        job.ready_us,
        job.reserved_us,
        job.body,
    )


def job_of(record: list[Any], tubes: dict[int, Tube], sessions: dict[int, Session]) -> Job:
    """Return the job of a record that `of_job` made, in no order yet.

    Args:
        record: the fields, which may be anything.
        tubes: by their serial numbers.
        sessions: by their serial numbers.
    """
    (
        job_id,
        tube,
        priority,
        delay_s,
        ttr_s,
        created_us,
        state,
        due_us,
        order,
        holder,
        reserves,
        timeouts,
        releases,
        buries,
        kicks,
        ready_us,
        reserved_us,
        body,
    ) = record
    job = Job(job_id, tubes[tube], priority, delay_s, ttr_s, body, created_us)
    job.state = state
    job.due_us = due_us
    job.order = order
    job.reserves = reserves
    job.timeouts = timeouts
    job.releases = releases
    job.buries = buries
    job.kicks = kicks
    job.ready_us = ready_us
    job.reserved_us = reserved_us
    if holder:
        job.holder = sessions[holder]
    return job
