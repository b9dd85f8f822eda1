"""The machine as canonical bytes, and back.

An image is the machine as it was when the image began, made in slices while the machine goes on:
first a head, then the deduplication keys, then the jobs in the order of their ids. A job that is
about to change before its turn is encoded first (copy on write; `Queue` calls `keep`). The bytes
depend on the state alone, not on the layout of heaps or dicts, so two nodes at the same index make
the same bytes: that is the digest that nodes compare, and the snapshot that a node starts from.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappush
from itertools import islice
from typing import Any, Final, cast

import msgpack

from beanpole.constants import DEDUP_KEY_MAX_BYTES, U8_MAX, U32_MAX, URGENT_BELOW
from beanpole.core.job import BURIED, DELAYED, READY, RESERVED, STATE_NAMES, Job
from beanpole.core.keys import shard_of
from beanpole.core.machine import Machine
from beanpole.core.sessions import DEAD, DETACHED, Origin, Session
from beanpole.core.tube import ID_BITS, Tube
from beanpole.errors import Damaged, UnknownVersion

IMAGE_VERSION: Final = 2
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
MACHINE_NUMBERS: Final = ("index", "wall_us", "chain", "term", "version")
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


class Image:
    """A consistent image under way. `next_chunk` until it returns None; always `close` it."""

    def __init__(self, machine: Machine) -> None:
        queue = machine.queue
        self._machine = machine
        self._tubes = {name: place for place, name in enumerate(queue.tubes)}
        self._sessions: dict[int, int] = {}  # id() of the session object -> place, from 1
        self._count = len(queue.jobs)
        self._last_id = queue.jobs.last_id()
        self._ids = queue.jobs.ids_and_gaps()
        self._done_id = 0  # jobs up to this id are encoded already
        self._kept: dict[int, tuple[Any, ...]] = {}
        # Shards of keys only grow, so that the first so many of each are the machine as it was.
        # A slice skips those before it: 10 ms at the end of a shard that has all 500,000.
        keys = machine.keys
        self._slices = [
            (age, place, shard, start, min(start + KEYS_PER_CHUNK, len(shard)))
            for age, generation in enumerate((keys.older, keys.younger))
            for place, shard in enumerate(generation.shards)
            for start in range(0, len(shard), KEYS_PER_CHUNK)
        ]
        self._slices.reverse()
        self._head = self._encode_head()
        self._ended = False
        queue.images = (*queue.images, self)

    def keep(self, job: Job) -> None:
        """Remember a job as it is, because it is about to change."""
        job_id = job.id
        if self._done_id < job_id <= self._last_id and job_id not in self._kept:
            self._kept[job_id] = self._encode_job(job)

    def next_chunk(self) -> bytes | None:
        """The next slice of the image; None when it is complete."""
        if self._head:
            return self._head.pop()
        if self._slices:
            age, place, shard, start, stop = self._slices.pop()
            return pack(["keys", [age, place, list(islice(shard.items(), start, stop))]])
        if self._done_id < self._last_id:
            return pack(["jobs", self._next_jobs()])
        if self._ended:
            return None
        self._ended = True
        return pack(["end", self._count])

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
                record = self._encode_job(job)
            chunk.append(record)
            size += len(record[-1])
            if len(chunk) >= CHUNK_JOBS or size >= CHUNK_BYTES:
                break
        return chunk

    def close(self) -> None:
        """Stop following the machine. Closing twice does no harm."""
        queue = self._machine.queue
        queue.images = tuple(image for image in queue.images if image is not self)
        self._kept.clear()
        self._slices.clear()

    def _encode_job(self, job: Job) -> tuple[Any, ...]:
        holder = 0 if job.holder is None else self._sessions[id(job.holder)]
        return (
            job.id,
            self._tubes[job.tube.name],
            job.priority,
            job.delay_s,
            job.ttr_s,
            job.created_us,
            job.state,
            job.due_us,
            job.order,
            holder,
            job.reserves,
            job.timeouts,
            job.releases,
            job.buries,
            job.kicks,
            job.ready_us,
            job.reserved_us,
            job.body,
        )

    def _encode_session(self, session: Session) -> list[Any]:
        self._sessions[id(session)] = len(self._sessions) + 1
        return [
            session.origin,
            session.incarnation,
            session.number,
            session.epoch,
            session.state,
            session.used.name,
            list(session.watched),
            list(session.reserved),
            session.request_granted,
            session.secret,
            session.grace_us,
            session.detached_until_us,
            session.protocol,
            session.reason,
        ]

    def _encode_head(self) -> list[bytes]:
        """The chunks of the head, the last one first."""
        machine = self._machine
        queue = machine.queue
        origins = sorted(machine.origins.items())
        sessions = [
            self._encode_session(session)
            for _, origin in origins
            for session in origin.sessions.values()
        ]
        detached = [item for item in machine.kept.values() if item.state == DETACHED]
        sessions += [self._encode_session(session) for session in [*detached, *machine.dying]]
        tubes = [
            [
                tube.name,
                tube.number,
                tube.jobs_total,
                tube.deletes,
                tube.pauses,
                tube.pause_s,
                tube.paused_until_us,
            ]
            for tube in queue.tubes.values()
        ]
        head = pack(
            [
                [getattr(machine, name) for name in MACHINE_NUMBERS],
                [getattr(machine, name) for name in MACHINE_LIMITS],
                [getattr(queue, name) for name in QUEUE_NUMBERS],
                [[index, o.incarnation, o.next_number, o.alive] for index, o in origins],
                tubes,
                sessions,
                [self._sessions[id(session)] for session in machine.kept.values()],
                [
                    [generation.began_us, generation.count]
                    for generation in (machine.keys.older, machine.keys.younger)
                ],
                len(self._slices),
            ]
        )
        # Many tubes or sessions with long names are more than a chunk may be.
        starts = range(0, len(head), CHUNK_BYTES)
        parts = [pack(["part", head[start : start + CHUNK_BYTES]]) for start in starts]
        return [*reversed(parts), pack(["head", IMAGE_VERSION, len(parts)])]


def pack(value: Any) -> bytes:
    """Encode plain lists, numbers and bytes."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def load(chunks: Iterable[bytes]) -> Machine:
    """Build a machine from the chunks of an image.

    Raises:
        UnknownVersion: the image is of another version.
        Damaged: the chunks are not those of an image.
    """
    iterator = iter(chunks)
    try:
        kind, version, parts = _unpack(next(iterator, b""))
        if kind != "head":
            raise Damaged("the image does not begin with its head")
        if version != IMAGE_VERSION:
            raise UnknownVersion(f"image version {version}; this program knows {IMAGE_VERSION}")
        head = _join_head([_unpack(next(iterator, b"")) for _ in range(parts)])
        machine, tubes, sessions = _load_head(head)
        _load_keys(machine, head, iterator)
        _load_jobs(machine, tubes, sessions, iterator)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise Damaged(f"the image cannot be read: {error!r}") from error
    return machine


def _unpack(chunk: bytes) -> Any:
    return msgpack.unpackb(chunk, use_list=True, strict_map_key=False)


def _join_head(parts: list[list[Any]]) -> list[Any]:
    """The head that `_encode_head` cut."""
    if any(kind != "part" for kind, _ in parts):
        raise Damaged("the head of the image is not whole")
    head: list[Any] = _unpack(b"".join(part for _, part in parts))
    return head


def _load_head(head: list[Any]) -> tuple[Machine, list[Tube], list[Session]]:
    machine = Machine()
    queue = machine.queue
    fields = (*MACHINE_NUMBERS, *MACHINE_LIMITS)
    for field, value in zip(fields, head[0] + head[1], strict=True):
        setattr(machine, field, value)
    for index, incarnation, next_number, alive in head[3]:
        origin = machine.origins[index] = Origin(index)
        origin.incarnation, origin.next_number, origin.alive = incarnation, next_number, alive
    tubes: list[Tube] = []
    for name, number, total, deletes, pauses, pause_s, until_us in head[4]:
        tube = queue.tube(name)
        tube.number, tube.jobs_total, tube.deletes, tube.pauses = number, total, deletes, pauses
        tube.pause_s, tube.paused_until_us = pause_s, until_us
        if until_us:
            queue.pauses.append((until_us, name))
        tubes.append(tube)
    heapify(queue.pauses)
    queue.tubes_named = [(tube.number, tube.name) for tube in tubes]
    # After the tubes, because those count themselves.
    for field, value in zip(QUEUE_NUMBERS, head[2], strict=True):
        setattr(queue, field, value)
    sessions = [_load_session(machine, values) for values in head[5]]
    for place in head[6]:
        session = sessions[place - 1]
        machine.kept[session.secret] = session
    return machine, tubes, sessions


def _load_session(machine: Machine, values: list[Any]) -> Session:
    queue = machine.queue
    session = Session(values[0], values[1], values[2], queue.tubes[values[5]])
    session.epoch, session.state = values[3], values[4]
    session.used.users += 1
    session.watched = {name: queue.tubes[name] for name in values[6]}
    for tube in session.watched.values():
        tube.watchers += 1
    # The jobs themselves are filled in when they are read; this fixes their order.
    session.reserved = cast(dict[int, Job], dict.fromkeys(values[7]))
    session.request_granted, session.secret = values[8], values[9]
    session.grace_us, session.detached_until_us = values[10], values[11]
    session.protocol, session.reason = values[12], values[13]
    if not (0 <= session.protocol <= U8_MAX and 0 <= session.reason <= U8_MAX):
        raise Damaged(
            f"session {session.number} has the protocol {session.protocol}"
            f" and the reason {session.reason}; a byte is allowed for each"
        )
    if session.state == DEAD:
        machine.dying.append(session)
    else:
        machine.sessions += 1
        if session.state == DETACHED:
            heappush(machine.detached, (session.detached_until_us, session.secret))
        else:
            machine.origins[session.origin].sessions[session.number] = session
    return session


def _load_keys(machine: Machine, head: list[Any], chunks: Iterator[bytes]) -> None:
    """The shards of both generations, in order; a large one in several chunks."""
    keys = machine.keys
    generations = (keys.older, keys.younger)
    last, size = (0, -1), 0
    for _ in range(head[8]):
        kind, (age, place, items) = _unpack(next(chunks, b""))
        # Only a full chunk has more of its shard behind it.
        after = last <= (age, place) if size == KEYS_PER_CHUNK else last < (age, place)
        if kind != "keys" or not after:
            raise Damaged(f"keys {age}, {place} come after {last}")
        size = len(items)
        if not 0 < size <= KEYS_PER_CHUNK:
            raise Damaged(f"{size} keys {age}, {place} in one chunk")
        last = (age, place)
        for key, job_id in items:
            if not 0 < len(key) <= DEDUP_KEY_MAX_BYTES or shard_of(key) != place or keys.find(key):
                raise Damaged(f"the key {key!r} stands in shard {place}")
            if type(job_id) is not int or not 0 < job_id < machine.queue.next_id:
                raise Damaged(f"the key {key!r} has job {job_id}")
            generations[age].add(key, job_id)
    for generation, (began_us, count) in zip(generations, head[7], strict=True):
        generation.began_us = began_us
        if generation.count != count:
            raise Damaged(f"the image holds {generation.count} keys and says {count}")


def _load_jobs(
    machine: Machine, tubes: list[Tube], sessions: list[Session], chunks: Iterator[bytes]
) -> None:
    queue = machine.queue
    buried: list[Job] = []
    last_id = 0
    for chunk in chunks:
        kind, value = _unpack(chunk)
        if kind == "end":
            if value != len(queue.jobs) or next(chunks, None) is not None:
                raise Damaged(f"the image holds {len(queue.jobs)} jobs and says {value}")
            break
        for record in value:
            job = _load_job(tubes, sessions, record)
            if job.state not in STATE_NAMES or (job.state == RESERVED) != (job.holder is not None):
                raise Damaged(f"job {job.id} has the state {job.state}")
            if not last_id < job.id < queue.next_id:
                raise Damaged(f"job {job.id} comes after job {last_id}")
            last_id = job.id
            queue.jobs.add(job)
            queue.body_bytes += len(job.body)
            if job.state == BURIED:
                buried.append(job)
            else:
                _place(machine, job)
    else:
        raise Damaged("the image ends before its end mark")
    if any(None in session.reserved.values() for session in sessions):
        raise Damaged("a session holds a job that the image does not have")
    buried.sort(key=lambda job: job.order)
    queue.buried = len(buried)
    for job in buried:
        job.tube.buried[job.id] = job
    for tube in tubes:
        heapify(tube.ready_heap)
        heapify(tube.delayed_heap)
        queue.ready += tube.ready_count
        queue.urgent += tube.urgent_count
        queue.reserved += tube.reserved_count
        queue.delayed += tube.delayed_count


def _load_job(tubes: list[Tube], sessions: list[Session], record: list[Any]) -> Job:
    (job_id, tube, priority, delay_s, ttr_s, created_us, *rest) = record
    job = Job(job_id, tubes[tube], priority, delay_s, ttr_s, record[-1], created_us)
    job.state, job.due_us, job.order, holder = rest[:4]
    job.reserves, job.timeouts, job.releases, job.buries, job.kicks = rest[4:9]
    job.ready_us, job.reserved_us = rest[9:11]
    # What stands in 32 bits of an event would spill over into its neighbour there.
    narrow = (priority, delay_s, ttr_s, *rest[4:9])
    if min(narrow) < 0 or max(narrow) > U32_MAX:
        raise Damaged(f"job {job_id} has a number beyond 32 bits")
    if holder:
        job.holder = sessions[holder - 1]
        if job_id not in job.holder.reserved:
            raise Damaged(f"job {job_id} is held by a session that does not know it")
        job.holder.reserved[job_id] = job
    return job


def _place(machine: Machine, job: Job) -> None:
    """Put a ready, delayed or reserved job where its state says, without a transition."""
    queue, tube = machine.queue, job.tube
    if job.state == READY:
        tube.ready_heap.append(job.priority << ID_BITS | job.id)
        tube.ready_count += 1
        tube.urgent_count += job.priority < URGENT_BELOW
    elif job.state == DELAYED:
        tube.delayed_heap.append((job.due_us, job.id))
        tube.delayed_count += 1
        queue.timers.add(job.due_us, job.id)
    else:
        assert job.state == RESERVED, job.state
        tube.reserved_count += 1
        queue.timers.add(job.due_us, job.id)
