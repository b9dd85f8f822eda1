"""The machine as canonical bytes.

An image is the machine as it was when the image began, made in slices while the machine goes on:
first a head, then tubes, sessions, deduplication keys, what came after the base version (`parts`),
and the jobs in the order of their ids. What is about to change before its turn is encoded first
(copy on write: `Queue` says so).
The bytes depend on the state alone, not on the layout of dicts, so two nodes at the same index make
the same bytes: that is the digest that nodes compare, and the snapshot that a node starts from. How
a machine is made of them is in `core.image.restore`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgpack

from beanpole.core.image import parts
from beanpole.core.jobs.copy_on_write import CopyOnWrite
from beanpole.core.jobs.job import Holder, Job, Tube
from beanpole.core.sessions import Session
from beanpole.core.state import MachineState

# Tubes and sessions of one chunk. A chunk of sessions also ends after CHUNK_IDS tubes that are
# watched and jobs that are held.
CHUNK_TUBES: Final = 1024
CHUNK_SESSIONS: Final = 1024
# Jobs of one chunk: a slice of about a millisecond of the loop's time.
CHUNK_JOBS: Final = 512
# A chunk also ends after so many ids, for queues with few jobs among many ids: half a millisecond.
CHUNK_IDS: Final = 8192
# Keys of one chunk, which is more than a shard has, as a rule: 600 KB of the longest keys. But who
# chooses keys can make them all fall into one shard, and no chunk may be larger than a snapshot's.
KEYS_PER_CHUNK: Final = 8192
# A chunk also ends here, so that large bodies do not make a chunk of hundreds of megabytes.
CHUNK_BYTES: Final = 1024 * 1024
# What the head has of the machine and of the queue, in this order.
MACHINE_NUMBERS: Final = ("index", "wall_us", "chain", "term", "sessions_total")
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
    "floor_us",
    "next_id",
    "next_order",
    "jobs_total",
    "timeouts",
    "events_total",
    "tubes_total",
)
# Where the record of a session has the tubes that it watches and the jobs that it holds: their ids,
# or how many there are if they stand in chunks of their own.
SESSION_WATCHED: Final = 7
SESSION_HELD: Final = 8


class Image(CopyOnWrite):
    """A consistent image in progress. `next_chunk` until it returns None; always `close` it.

    What changes before its turn is kept as it was: jobs, and of tubes and sessions, those that
    were there when the image began. They are told apart by numbers that only grow.
    """

    def __init__(self, machine: MachineState) -> None:
        queue = machine.queue
        self.version = machine.version
        self._machine = machine
        self._count = len(queue.jobs)
        self._last_id = queue.jobs.last_id()
        self._ids = queue.jobs.ids_and_gaps()
        self._done_id = 0  # jobs up to this id are encoded already
        self._kept: dict[int, tuple[Any, ...]] = {}
        self._tubes = list(queue.tubes.values())
        self._last_tube = queue.tubes_total
        self._done_tube = 0  # tubes up to this serial number are encoded already
        self._kept_tubes: dict[int, list[Any]] = {}
        self._sessions = _sessions_of(machine)
        self._last_session = machine.sessions_total
        self._done_sessions: set[int] = set()
        self._kept_sessions: dict[int, list[Any]] = {}
        # Shards of keys only grow, so that the first so many of each are the machine as it was.
        # A slice skips those before it: 10 ms at the end of a shard that has all 500,000.
        keys = machine.keys
        self._slices = [
            (age, place, shard, start, min(start + KEYS_PER_CHUNK, len(shard)))
            for age, generation in enumerate((keys.older, keys.younger))
            for place, shard in enumerate(generation.shards)
            for start in range(0, len(shard), KEYS_PER_CHUNK)
        ]
        self._parts: list[tuple[str, Iterable[Any]]] = [
            (kind, part.write(machine)) for kind, part in parts.of_version(self.version)
        ]
        self._head = self._encode_head()
        self._chunks = self._make_chunks()
        queue.images = (*queue.images, self)

    # --- what the machine is about to change ----------------------------------------------------

    def keep(self, job: Job) -> None:
        """Remember a job as it is, because it is about to change, and so is who holds it."""
        job_id = job.id
        if self._done_id < job_id <= self._last_id and job_id not in self._kept:
            self._kept[job_id] = _encode_job(job)
        if job.holder is not None:
            self.keep_holder(job.holder)

    def keep_tube(self, tube: Tube) -> None:
        """Remember a tube as it is."""
        serial = tube.serial
        if self._done_tube < serial <= self._last_tube and serial not in self._kept_tubes:
            self._kept_tubes[serial] = _encode_tube(tube)

    def keep_holder(self, holder: Holder) -> None:
        """Remember a session as it is."""
        assert isinstance(holder, Session), "only sessions hold jobs"
        serial = holder.serial
        if (
            serial <= self._last_session
            and serial not in self._kept_sessions
            and serial not in self._done_sessions
        ):
            self._kept_sessions[serial] = _encode_session(holder)

    # --- chunks ---------------------------------------------------------------------------------

    def next_chunk(self) -> bytes | None:
        """The next slice of the image; None when it is complete."""
        return next(self._chunks, None)

    def close(self) -> None:
        """Stop following the machine. Closing twice does no harm."""
        queue = self._machine.queue
        queue.images = tuple(image for image in queue.images if image is not self)
        self._kept.clear()
        self._kept_tubes.clear()
        self._kept_sessions.clear()
        self._done_sessions.clear()
        self._tubes.clear()
        self._sessions.clear()
        self._slices.clear()
        self._parts.clear()

    def _make_chunks(self) -> Iterator[bytes]:
        yield self._head
        for start in range(0, len(self._tubes), CHUNK_TUBES):
            yield pack(["tubes", self._next_tubes(start)])
        while self._sessions:
            records, held = self._next_sessions()
            yield pack(["sessions", records])
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

    def _next_tubes(self, start: int) -> list[list[Any]]:
        records = []
        for tube in self._tubes[start : start + CHUNK_TUBES]:
            self._done_tube = tube.serial
            kept = self._kept_tubes.pop(tube.serial, None)
            records.append(_encode_tube(tube) if kept is None else kept)
        return records

    def _next_sessions(self) -> tuple[list[list[Any]], list[int]]:
        """The next sessions, and what the last one holds if that is more than a chunk takes."""
        sessions = self._sessions
        records: list[list[Any]] = []
        size = 0
        while sessions and len(records) < CHUNK_SESSIONS and size < CHUNK_IDS:
            session = sessions.pop()
            self._done_sessions.add(session.serial)
            record = self._kept_sessions.pop(session.serial, None)
            if record is None:
                record = _encode_session(session)
            records.append(record)
            held = record[SESSION_HELD]
            if len(held) > CHUNK_IDS:
                record[SESSION_HELD] = len(held)
                return records, held
            size += len(held) + len(record[SESSION_WATCHED])
        return records, []

    def _next_jobs(self) -> list[tuple[Any, ...]]:
        """The next jobs."""
        jobs = self._machine.queue.jobs
        kept = self._kept
        chunk: list[tuple[Any, ...]] = []
        size = 0
        for job_id in islice(self._ids, CHUNK_IDS):
            self._done_id = job_id
            record = kept.pop(job_id, None)
            if record is None:
                job = jobs.get(job_id)
                if job is None:
                    continue
                record = _encode_job(job)
            chunk.append(record)
            size += len(record[-1])
            if len(chunk) >= CHUNK_JOBS or size >= CHUNK_BYTES:
                break
        return chunk

    def _encode_head(self) -> bytes:
        machine = self._machine
        queue = machine.queue
        origins = sorted(machine.origins.items())
        return pack(
            [
                "head",
                self.version,
                [
                    [getattr(machine, name) for name in MACHINE_NUMBERS],
                    [getattr(machine, name) for name in MACHINE_LIMITS],
                    [getattr(queue, name) for name in QUEUE_NUMBERS],
                    [[index, o.incarnation, o.next_number, o.alive] for index, o in origins],
                    [
                        [generation.began_us, generation.count]
                        for generation in (machine.keys.older, machine.keys.younger)
                    ],
                    len(self._tubes),
                    len(self._sessions),
                    len(self._slices),
                ],
            ]
        )


def _sessions_of(machine: MachineState) -> list[Session]:
    """All sessions, the first of the image at the end: attached, lost, detached, dying ones."""
    sessions: list[Session] = []
    for _, origin in sorted(machine.origins.items()):
        sessions += origin.sessions.values()
    for lost in machine.lost:
        sessions += lost.values()
    sessions += machine.detached.values()
    sessions += machine.dying
    sessions.reverse()
    return sessions


def _encode_job(job: Job) -> tuple[Any, ...]:
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


def _encode_tube(tube: Tube) -> list[Any]:
    return [
        tube.name,
        tube.serial,
        tube.jobs_total,
        tube.deletes,
        tube.pauses,
        tube.pause_s,
        tube.paused_until_us,
    ]


def _encode_session(session: Session) -> list[Any]:
    return [
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
    ]


def pack(value: Any) -> bytes:
    """Encode plain lists, numbers and bytes."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed
