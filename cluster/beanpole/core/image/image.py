"""Canonical serialization of the machine.

An image is the state of the machine at the time when the image began. It is written in slices while
the machine goes on: first a head, then tubes, sessions, deduplication keys, the parts of later
versions (`parts`), and the jobs in the order of their ids. An object that is about to change before
its slice is written is encoded first (copy on write, on notice by `Queue`).
The bytes depend on the state alone, not on the layout of dicts, so two nodes at the same index
produce the same bytes. Nodes compare their digest, and start from them as a snapshot. Loading is in
`core.image.restore`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgpack

from beanpole.core.image import parts, records
from beanpole.core.image.qless import QlessCopy
from beanpole.core.image.records import (
    MACHINE_LIMITS,
    MACHINE_NUMBERS,
    JobRecord,
    SessionRecord,
)
from beanpole.core.jobs.copy_on_write import CopyOnWrite
from beanpole.core.jobs.job import Holder, Job, Tube
from beanpole.core.jobs.spaces import SPACES_SINCE
from beanpole.core.sessions import Session
from beanpole.core.state import MachineState

# Tubes and sessions of one chunk. A chunk of sessions also ends after CHUNK_IDS watched tubes and
# held jobs.
CHUNK_TUBES: Final = 1024
CHUNK_SESSIONS: Final = 1024
# Jobs of one chunk: a slice takes about a millisecond of the event loop.
CHUNK_JOBS: Final = 512
# A chunk also ends after this many ids, in case of few jobs among many ids: half a millisecond.
CHUNK_IDS: Final = 8192
# Keys of one chunk: 600 KB of the longest keys. A shard usually has fewer, but a client can choose
# keys that all fall into one shard, and no chunk may be larger than the limit of snapshots.
KEYS_PER_CHUNK: Final = 8192
# A chunk also ends after this size, so that large bodies do not make one of hundreds of megabytes.
CHUNK_BYTES: Final = 1024 * 1024
# Since version 3, in which the last job of a chunk may have a result beside its body: the chunk
# stays below the 4 MiB limit of snapshots.
CHUNK_BYTES_SINCE_3: Final = 512 * 1024


class Image(CopyOnWrite):
    """A consistent image in progress. Call `next_chunk` until it returns None; always `close` it.

    Objects that existed when the image began and change before their turn are recorded as they
    were. Newer objects are recognized by their numbers, which only grow.
    """

    def __init__(self, machine: MachineState) -> None:
        queue = machine.queue
        self.version = machine.version
        self._machine = machine
        self._count = len(queue.jobs)
        self._last_id = queue.jobs.last_id()
        self._ids = queue.jobs.ids_and_gaps()
        self._done_id = 0  # jobs up to this id are encoded already
        self._kept: dict[int, JobRecord] = {}
        self._tubes = list(queue.tubes.values())
        self._last_tube = queue.tubes_total
        self._done_tube = 0  # tubes up to this serial number are encoded already
        self._kept_tubes: dict[int, tuple[Any, ...]] = {}
        self._sessions = _sessions_of(machine)
        self._last_session = machine.sessions_total
        self._done_sessions: set[int] = set()
        self._kept_sessions: dict[int, SessionRecord] = {}
        # A slice iterates over the keys of its shard before it: 10 ms at the end of a shard that
        # has all 500,000.
        self._slices = machine.keys.slices(KEYS_PER_CHUNK)
        self._parts: list[tuple[str, Iterable[Any]]] = [
            (kind, part.write(machine)) for kind, part in parts.of_version(self.version)
        ]
        self._chunk_bytes = CHUNK_BYTES if self.version < SPACES_SINCE else CHUNK_BYTES_SINCE_3
        self._head = self._encode_head()
        self._chunks = self._make_chunks()
        queue.images = (*queue.images, self)

    # --- copy on write --------------------------------------------------------------------------

    def keep(self, job: Job) -> None:
        """Record a job as it is, because the job and its holder are about to change."""
        job_id = job.id
        if self._done_id < job_id <= self._last_id and job_id not in self._kept:
            self._kept[job_id] = self._record(job)
        if job.holder is not None:
            self.keep_holder(job.holder)

    def keep_tube(self, tube: Tube) -> None:
        """Record a tube as it is."""
        serial = tube.serial
        if self._done_tube < serial <= self._last_tube and serial not in self._kept_tubes:
            self._kept_tubes[serial] = records.of_tube(tube, self.version)

    def keep_holder(self, holder: Holder) -> None:
        """Record a session as it is."""
        assert isinstance(holder, Session), "only sessions hold jobs"
        serial = holder.serial
        if (
            serial <= self._last_session
            and serial not in self._kept_sessions
            and serial not in self._done_sessions
        ):
            self._kept_sessions[serial] = records.of_session(holder)

    # --- chunks ---------------------------------------------------------------------------------

    def next_chunk(self) -> bytes | None:
        """Return the next chunk of the image; None when it is complete."""
        return next(self._chunks, None)

    def close(self) -> None:
        """Stop following the machine. Idempotent."""
        queue = self._machine.queue
        queue.images = tuple(image for image in queue.images if image is not self)
        self._kept.clear()
        self._kept_tubes.clear()
        self._kept_sessions.clear()
        self._done_sessions.clear()
        self._tubes.clear()
        self._sessions.clear()
        self._slices.clear()
        for _, values in self._parts:
            if isinstance(values, QlessCopy):
                values.close()
        self._parts.clear()
        self._chunks = iter(())  # the generator refers to this image, and so to the whole machine

    def _make_chunks(self) -> Iterator[bytes]:
        yield self._head
        for start in range(0, len(self._tubes), CHUNK_TUBES):
            yield pack(["tubes", self._next_tubes(start)])
        while self._sessions:
            sessions, held = self._next_sessions()
            yield pack(["sessions", sessions])
            for start in range(0, len(held), CHUNK_IDS):
                yield pack(["held", held[start : start + CHUNK_IDS]])
        for age, place, shard, start, stop in self._slices:
            yield pack(["keys", [age, place, list(islice(shard.items(), start, stop))]])
        for kind, values in self._parts:
            for value in values:
                yield pack([kind, value])
            yield pack([kind, None])
        while self._done_id < self._last_id:
            yield pack(["jobs", self._next_jobs()])
        yield pack(["end", self._count])

    def _next_tubes(self, start: int) -> list[tuple[Any, ...]]:
        chunk: list[tuple[Any, ...]] = []
        for tube in self._tubes[start : start + CHUNK_TUBES]:
            self._done_tube = tube.serial
            kept = self._kept_tubes.pop(tube.serial, None)
            chunk.append(records.of_tube(tube, self.version) if kept is None else kept)
        return chunk

    def _next_sessions(self) -> tuple[list[tuple[Any, ...]], list[int]]:
        """Return the next sessions, and the ids held by the last one if they exceed a chunk."""
        sessions = self._sessions
        chunk: list[tuple[Any, ...]] = []
        size = 0
        while sessions and len(chunk) < CHUNK_SESSIONS and size < CHUNK_IDS:
            session = sessions.pop()
            self._done_sessions.add(session.serial)
            record = self._kept_sessions.pop(session.serial, None)
            if record is None:
                record = records.of_session(session)
            held: list[int] = record.held
            if len(held) > CHUNK_IDS:
                record = record._replace(held=len(held))
                chunk.append(records.written(record, self.version))
                return chunk, held
            chunk.append(records.written(record, self.version))
            size += len(held) + records.watched_ids(record)
        return chunk, []

    def _next_jobs(self) -> list[JobRecord]:
        """Return the records of the next jobs."""
        jobs = self._machine.queue.jobs
        kept = self._kept
        chunk: list[JobRecord] = []
        size = 0
        for job_id in islice(self._ids, CHUNK_IDS):
            self._done_id = job_id
            record = kept.pop(job_id, None)
            if record is None:
                job = jobs.get(job_id)
                if job is None:
                    continue
                record = self._record(job)
            chunk.append(record)
            size += records.size_of(record, self.version)
            if len(chunk) >= CHUNK_JOBS or size >= self._chunk_bytes:
                break
        return chunk

    def _record(self, job: Job) -> JobRecord:
        quotas = self._machine.queue.quotas
        user = quotas.of_job(job.id) if quotas.counted else b""
        return records.of_job(job, self.version, user)

    def _encode_head(self) -> bytes:
        machine = self._machine
        queue = machine.queue
        keys = machine.keys
        head = records.Head(
            numbers=[getattr(machine, name) for name in MACHINE_NUMBERS],
            limits=[getattr(machine, name) for name in MACHINE_LIMITS],
            queue_numbers=records.of_queue(queue),
            origins=[records.of_origin(origin) for _, origin in sorted(machine.origins.items())],
            generations=[records.of_generation(one) for one in (keys.older, keys.younger)],
            tubes=len(self._tubes),
            sessions=len(self._sessions),
            key_chunks=len(self._slices),
        )
        return pack(["head", self.version, head])


def _sessions_of(machine: MachineState) -> list[Session]:
    """Return all sessions in reverse order of the image: attached, lost, detached, ending."""
    sessions: list[Session] = []
    for _, origin in sorted(machine.origins.items()):
        sessions += origin.sessions.values()
    for lost in machine.lost:
        sessions += lost.values()
    sessions += machine.detached.values()
    sessions += machine.ending
    sessions.reverse()
    return sessions


def pack(value: Any) -> bytes:
    """Encode plain lists, numbers and bytes."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed
