"""What a Workq client returns and raises, and how it is read from replies; requests are `workq`'s.

Times are in UTC, and in text to the second.
"""

import uuid
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, NamedTuple

from beanpole.errors import ClientError, ProtocolError
from beanpole.protocol.workq.client import Block, Reply

_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


class JobNotFound(ClientError):
    """There is no job with this id: it never existed, it was deleted, or its TTL has ended."""


class DuplicateJob(ClientError):
    """A job with this id exists already."""


class DuplicateResult(ClientError):
    """The job has a result already; the new one is discarded."""


class Job(NamedTuple):
    """A leased job."""

    id: uuid.UUID
    name: bytes
    ttr_ms: int
    payload: bytes


class Result(NamedTuple):
    """The result of a job: `success` after `complete`, otherwise it has failed."""

    success: bool
    data: bytes


class State(IntEnum):
    """The state of a job."""

    NEW = 0  # ready or scheduled, and never leased
    COMPLETED = 1
    FAILED = 2
    PENDING = 3  # ready again after a lease
    LEASED = 4


class JobInfo(NamedTuple):
    """All that `inspect` shows of a job. Times are in UTC; `time` is when the job becomes ready."""

    id: uuid.UUID
    name: bytes
    ttr_ms: int
    ttl_ms: int
    payload: bytes
    max_attempts: int
    attempts: int
    max_fails: int
    fails: int
    priority: int
    state: State
    created: datetime
    time: datetime | None


class QueueInfo(NamedTuple):
    """The numbers of ready and scheduled jobs of a queue."""

    name: bytes
    ready: int
    scheduled: int


class ServerInfo(NamedTuple):
    """The state of a node; `evicted_jobs` counts the jobs of the cluster whose TTL has ended."""

    active_clients: int
    evicted_jobs: int
    started: datetime


def time_text(at: datetime) -> bytes:
    """Return a time as a request has it.

    Raises:
        ValueError: it has no zone, so that it is another time at each machine.
    """
    if at.tzinfo is None:
        raise ValueError(f"{at} is a time without a zone, such as `datetime.UTC`")
    return at.astimezone(UTC).strftime(_TIME_FORMAT).encode()


def time_of(text: bytes) -> datetime:
    """Return a time of a reply."""
    return datetime.strptime(text.decode(), _TIME_FORMAT).replace(tzinfo=UTC)


def check(reply: Reply) -> None:
    """Raise the exception for an error of the node."""
    if reply.word == b"OK":
        return
    words = b" ".join((reply.word, reply.text)).strip().decode()
    if reply.word == b"NOT-FOUND":
        raise JobNotFound(words)
    if reply.text == b"Duplicate job":
        raise DuplicateJob(words)
    if reply.text == b"Duplicate result":
        raise DuplicateResult(words)
    raise ClientError(words)


def result_of(reply: Reply) -> Result | None:
    """Return the result of a job, or None if there was none in time."""
    if reply.word == b"TIMEOUT":
        return None
    check(reply)
    if len(reply.line) != 2:
        raise ProtocolError(f"no reply with a result: {reply.line!r}")
    return Result(reply.line[1] == b"1", reply.body)


def queue_of(block: Block) -> QueueInfo:
    """Return what a block of `inspect` tells of a queue."""
    keys = block.keys
    return QueueInfo(block.title, int(keys[b"ready-len"]), int(keys[b"scheduled-len"]))


def job_of(block: Block) -> JobInfo:
    """Return what a block of `inspect` tells of a job."""
    keys = block.keys
    return JobInfo(
        id=uuid.UUID(block.title.decode()),
        name=keys[b"name"],
        ttr_ms=int(keys[b"ttr"]),
        ttl_ms=int(keys[b"ttl"]),
        payload=keys[b"payload"],
        max_attempts=int(keys[b"max-attempts"]),
        attempts=int(keys[b"attempts"]),
        max_fails=int(keys[b"max-fails"]),
        fails=int(keys[b"fails"]),
        priority=int(keys[b"priority"]),
        state=State(int(keys[b"state"])),
        created=time_of(keys[b"created"]),
        time=time_of(keys[b"time"]) if b"time" in keys else None,
    )
