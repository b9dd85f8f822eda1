"""The records of an image: their fields, the order of these, and their conversion.

An image holds every record as an array, so the order of the fields below is the layout. Those of
machine version 2 are fixed. Version 3 adds the space of a tube, and microseconds and an extension
of jobs; version 4 adds the host of a session, the limits of a tube, and the clients of an extension
(later additions with records of their own are in `core.image.parts`). Records are put into chunks
in `core.image.image`, and loaded into a machine in `core.image.restore`.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from beanpole.constants import SECOND_US
from beanpole.core.hosts import HOSTS_SINCE
from beanpole.core.jobs.aliases import ALIASES_SINCE
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.job import NO_LIMITS, Job, Tube
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.spaces import SPACES_SINCE, Space
from beanpole.core.keys import Generation
from beanpole.core.sessions import Origin, Session
from beanpole.core.users import USERS_SINCE, may_be_name
from beanpole.events import BEANSTALK

# The machine version from which tubes have limits, and extensions the fields that Gearman needs.
EXTENDED_SINCE: Final = 4
# The machine version from which sessions have their last fields: the host, and the user and token.
SESSION_FIELDS_SINCE: Final = HOSTS_SINCE
# A record is cut in one place: these came together, as did the last field of an extension, the home
# that a job behind an alias needs, and those before it.
assert SESSION_FIELDS_SINCE == USERS_SINCE
assert EXTENDED_SINCE == ALIASES_SINCE

# The attributes of the machine and of the queue in the head of an image, in this order. The totals
# are those of beanstalk's space; the totals of other spaces are in a part of their own.
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
    """The beginning of an image.

    Attributes:
        numbers: of the machine (MACHINE_NUMBERS).
        limits: of the machine (MACHINE_LIMITS).
        queue_numbers: of the queue (QUEUE_NUMBERS).
        origins: an OriginRecord each.
        generations: a GenerationRecord each, the older one first.
        tubes: the number of tubes that follow.
        sessions: the number of sessions that follow.
        key_chunks: the number of chunks of keys that follow.
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
    space: int = BEANSTALK  # its number; since version 3
    limits: Sequence[int] = NO_LIMITS  # since version 4


class SessionRecord(NamedTuple):
    """A session.

    Attributes:
        used: the serial number of the tube that it uses; 0 for none.
        watched: the serial numbers of the tubes that it watches.
        held: the ids of the jobs that it holds, in the order of reservation; or their number, if
            they are in chunks of their own.
    """

    serial: int
    origin: int
    incarnation: int
    number: int
    epoch: int
    state: int
    used: int
    watched: list[Any]  # serial numbers; for tubes of other spaces, pairs with the alias
    held: Any
    request_granted: int
    secret: bytes
    grace_us: int
    detached_until_us: int
    protocol: int
    reason: int
    # Since version 4: the number of the host, the name of the user, and the digest of the token.
    host: int = 0
    user: bytes = b""
    token: bytes = b""


_SESSION_FIELDS_LATER: Final = 3  # host, user, token
# The longest alias takes as much room as this many ids.
_ALIAS_IDS: Final = 64
# A plain tuple, because there may be millions of jobs: named tuples take longer to make and read.
JobRecord = tuple[Any, ...]
JOB_BODY: Final = -1  # the index of the body
_JOB_EXTENSION: Final = -2  # since version 3
_JOB_USER: Final = -3  # since version 4, only in the longer records of jobs that count for a user
_JOB_FIELDS: Final = 19
_CLIENTS: Final = -2  # of an extension, since version 4
# The serial number of a client in an extension: a job may have 16,384 clients.
CLIENT_BYTES: Final = 9


def of_origin(origin: Origin) -> OriginRecord:
    """Return the record of an origin."""
    return OriginRecord(origin.index, origin.incarnation, origin.next_number, origin.alive)


def of_generation(generation: Generation) -> GenerationRecord:
    """Return the record of a generation of keys."""
    return GenerationRecord(generation.began_us, generation.count)


def of_queue(queue: Queue) -> list[int]:
    """Return the queue's numbers for the head."""
    return [getattr(_owner(queue, name), name) for name in QUEUE_NUMBERS]


def set_queue(queue: Queue, numbers: list[Any]) -> None:
    """Set the numbers of a queue that `of_queue` returned."""
    for name, value in zip(QUEUE_NUMBERS, numbers, strict=True):
        setattr(_owner(queue, name), name, value)


def _owner(queue: Queue, name: str) -> Queue | Space:
    return queue.beanstalk if name in ("jobs_total", "timeouts") else queue


def of_tube(tube: Tube, version: int) -> tuple[Any, ...]:
    """Return the record of a tube in an image of a version."""
    record = TubeRecord(
        tube.name,
        tube.serial,
        tube.jobs_total,
        tube.deletes,
        tube.pauses,
        tube.pause_s,
        tube.paused_until_us,
        tube.space.number,
        tube.limits,
    )
    return record[: tube_fields(version)]


def tube_fields(version: int) -> int:
    """Return the number of fields of a tube's record in an image of a version."""
    fields = len(TubeRecord._fields)
    if version >= EXTENDED_SINCE:
        return fields
    return fields - 1 if version >= SPACES_SINCE else fields - 2


def of_session(session: Session) -> SessionRecord:
    """Return the record of a session, with the ids of all jobs that it holds."""
    return SessionRecord(
        session.serial,
        session.origin,
        session.incarnation,
        session.number,
        session.epoch,
        session.state,
        0 if session.used is None else session.used.serial,
        [_watched(session, name, tube) for name, tube in session.watched.items()],
        list(session.reserved),
        session.request_granted,
        session.secret,
        session.grace_us,
        session.detached_until_us,
        session.protocol,
        session.reason,
        session.host,
        session.user,
        session.token,
    )


def _watched(session: Session, name: bytes, tube: Tube) -> Any:
    """Return a watched tube's serial; with the alias, which IGNORE may name, if it has one."""
    return tube.serial if tube.space is session.space else [tube.serial, name]


def watched_ids(record: SessionRecord) -> int:
    """Return the size of a session's watched tubes, counted in ids."""
    ids = len(record.watched)
    for one in record.watched:
        if type(one) is not int:
            ids += _ALIAS_IDS
    return ids


def written(record: SessionRecord, version: int) -> tuple[Any, ...]:
    """Return the fields of a session's record that an image of a version has."""
    return record if version >= SESSION_FIELDS_SINCE else record[:-_SESSION_FIELDS_LATER]


def of_job(job: Job, version: int, user: bytes = b"") -> JobRecord:
    """Return the record of a job in an image of a version; `job_of` is the inverse.

    Args:
        job: a job in any state.
        version: the version of the image.
        user: the user for whom the job counts (`core.jobs.quotas`), empty for none.
    """
    ext = job.ext
    record = (
        job.id,
        job.tube.serial,
        job.rank,
        job.delay_us,
        job.ttr_us,
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
        None if ext is None else of_extension(ext, version, job.tube.space),
        job.body,
    )
    if user:
        return (*record[: _JOB_USER + 1], user, *record[_JOB_USER + 1 :])
    if version >= SPACES_SINCE:
        return record
    delay_s, ttr_s = job.delay_us // SECOND_US, job.ttr_us // SECOND_US
    return (*record[:3], delay_s, ttr_s, *record[5:-2], job.body)


def size_of(record: JobRecord, version: int) -> int:
    """Return the total size in bytes of the strings and clients of a job's record."""
    size = len(record[JOB_BODY])
    if version >= SPACES_SINCE and record[_JOB_EXTENSION] is not None:
        size += sum(len(field) for field in record[_JOB_EXTENSION] if isinstance(field, bytes))
        if version >= EXTENDED_SINCE:
            size += CLIENT_BYTES * len(record[_JOB_EXTENSION][_CLIENTS])
    return size


def user_of(record: list[Any], version: int) -> bytes:
    """Remove and return the user for whom a job counts from its record; empty for none.

    Raises:
        ValueError: the user is invalid.
    """
    if version < USERS_SINCE or len(record) != _JOB_FIELDS + 1:
        return b""
    user = record.pop(_JOB_USER)
    if type(user) is not bytes or not may_be_name(user):
        raise ValueError(f"a job counts for {user!r}")
    return user


def job_of(
    record: list[Any],
    version: int,
    tubes: dict[int, Tube],
    sessions: dict[int, Session],
    spaces: dict[int, Space],
) -> Job:
    """Return the job of a record that `of_job` made, in no order yet.

    Args:
        record: the fields, not yet validated.
        version: the version of the image.
        tubes: tubes by serial number.
        sessions: sessions by serial number.
        spaces: spaces by number.
    """
    unit_us = 1
    if version < SPACES_SINCE:
        unit_us = SECOND_US
        record.insert(_JOB_EXTENSION + 1, None)
    (
        job_id,
        tube,
        rank,
        delay,
        ttr,
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
        ext,
        body,
    ) = record
    job = Job(job_id, tubes[tube], rank, delay * unit_us, ttr * unit_us, body, created_us)
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
    if ext is not None:
        job.ext = extension_of(job, ext, version, sessions, spaces)
    return job


def of_extension(ext: Extension, version: int, space: Space) -> tuple[Any, ...]:
    """Return the record of an extension of a job in a queue of a space.

    `extension_of` is the inverse.
    """
    record = (
        ext.sequence,
        ext.external_id,
        ext.expires_us,
        ext.attempts_max,
        ext.failures_max,
        ext.failures,
        ext.progress,
        ext.result,
        ext.extra,
        ext.background,
        list(ext.clients),
        0 if ext.home is space else ext.home.number,
    )
    return record if version >= EXTENDED_SINCE else record[:-4]


def extension_of(
    job: Job,
    record: list[Any],
    version: int,
    sessions: dict[int, Session],
    spaces: dict[int, Space],
) -> Extension:
    """Return the extension of a record that `of_extension` made; its fields are not yet validated.

    The job is added to the sessions that are attached to it.
    """
    if version < EXTENDED_SINCE:
        record += [b"", True, [], 0]
    sequence, external_id, expires_us, attempts_max, failures_max, failures, *later = record
    progress, result, extra, background, clients, home = later
    space = spaces[home] if home else job.tube.space
    if home and (space is job.tube.space or space.number != home):
        raise ValueError(f"job {job.id} has the home {home}")
    ext = Extension(sequence, external_id, expires_us, attempts_max, failures_max, space)
    ext.failures = failures
    ext.progress = progress
    ext.result = result
    ext.extra = extra
    ext.background = background
    for serial in clients:
        attached = sessions[serial].attached
        if job.id in attached:
            raise ValueError(f"session {serial} is attached twice")
        attached.add(job.id)
        ext.attach(serial, attached)
    return ext
