"""qless's part of an image: its records, and their copy while the machine goes on.

This module writes the part. It is loaded in `core.image.qless_loading`; the other chunks of an
image are in `core.image.image`. The value of a chunk is a word and records of its kind, in the
order of `_chunks`. The fields of a job that is too large for a chunk continue in chunks with the
name of the field. Data that can be derived from jobs is omitted: sets, leases, groups, tags, locks
of throttles, sizes.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from beanpole.core.qless.job import QlessJob, Recurring
from beanpole.core.qless.store import shard_of
from beanpole.core.qless.tables import Day, Keeper, QlessQueue, Tables, Throttle, Times

# Records of one chunk: a slice takes half a millisecond.
CHUNK_RECORDS: Final = 128
# Small records of one chunk: options, workers, tracked jids.
CHUNK_SMALL: Final = 1024
# Shards of numbers of one chunk, in case of few jobs among many numbers.
CHUNK_SHARDS: Final = 256
# A chunk also ends after this size. Its last record is smaller than 4 MiB, because the long fields
# of a job are split into pieces.
CHUNK_BYTES: Final = 256 * 1024

# The words of chunks.
TOTALS: Final = "totals"
OPTIONS: Final = "options"
PATTERNS: Final = "patterns"
WORKERS: Final = "workers"
TRACKED: Final = "tracked"
QUEUES: Final = "queues"
THROTTLES: Final = "throttles"
RECURRING: Final = "recurring"
JOBS: Final = "jobs"
# The fields of a job that may be long: the last ones of its record, in this order.
TAGS: Final = "tags"
DEPENDENCIES: Final = "dependencies"
DEPENDENTS: Final = "dependents"
HISTORY: Final = "history"
# The last chunk: the number of jobs.
COUNT: Final = "count"
LONG_FIELDS: Final = (TAGS, DEPENDENCIES, DEPENDENTS, HISTORY)

WORDS: Final = (
    *(TOTALS, OPTIONS, PATTERNS, WORKERS, TRACKED, QUEUES, THROTTLES, RECURRING, JOBS, COUNT),
    *LONG_FIELDS,
)

Record = tuple[Any, ...]


def of_job(job: QlessJob) -> Record:
    """Return the record of a job; it has a user's name only if the job counts for that user."""
    return (
        job.id,
        job.jid,
        job.klass,
        job.data,
        job.state,
        job.queue,
        job.worker,
        job.priority,
        job.retries,
        job.remaining,
        job.expires,
        job.lease,
        job.time,
        job.place,
        job.score,
        job.grace,
        job.due,
        job.failure,
        job.failed_order,
        job.throttles,
        job.spawned_from,
        job.locked,
        job.pending,
        job.completed_in,
        *(() if job.usage is None else (job.usage.name,)),
        list(job.tags.items()),
        list(job.dependencies),
        list(job.dependents),
        list(job.history),
    )


def _fields_of(queue: QlessQueue, days: dict[int, Day]) -> Record:
    """Return the fields of a queue without its jobs, with these days, for `_of_queue`."""
    return queue.name, queue.number, queue.known_at, queue.paused, days


def _of_queue(fields: Record) -> Record:
    """Return the record of a queue without its jobs."""
    days: dict[int, Day] = fields[-1]
    return *fields[:-1], [_of_day(begin, day) for begin, day in sorted(days.items())]


def _of_day(begin: int, day: Day) -> Record:
    return begin, day.retries, day.failed, day.failures, _of_times(day.wait), _of_times(day.run)


def _of_times(times: Times) -> Record:
    return times.count, times.mean, times.vk, sorted(times.bins.items())


def of_throttle(throttle: Throttle) -> Record:
    """Return the record of a throttle without its jobs."""
    return throttle.name, throttle.is_set, throttle.maximum, throttle.expires_us


def of_recurring(template: Recurring) -> Record:
    """Return the record of a template; it has a user's name if it counts for that user."""
    return (
        template.jid,
        template.klass,
        template.data,
        template.queue,
        template.priority,
        template.interval,
        template.retries,
        template.backlog,
        template.count,
        template.next_at,
        template.tags,
        template.throttles,
        *(() if template.usage is None else (template.usage.name,)),
    )


class QlessCopy(Keeper):
    """A consistent copy in progress: an iterator over the values of chunks.

    Queues, templates and throttles that existed when the copy began are recognized by their serial
    numbers, jobs by their numbers.
    """

    def __init__(self, t: Tables) -> None:
        self._t = t
        self._options = list(t.config.items())
        self._patterns = [
            (kind, name, text)
            for kind, patterns in enumerate(t.patterns)
            for name, text in patterns.items()
        ]
        self._workers = t.workers.copied()
        self._tracked = t.tracked.copied()
        self._totals = [t.failures_total, t.jobs_total, t.locks_lost_total]
        # The next item is at the end of these lists, which are consumed on the way.
        self._queues = list(reversed(t.queues.values()))
        self._throttles = list(reversed(t.throttles.values()))
        self._recurring = list(reversed(t.recurring.values()))
        self._last_serial = t.serials
        self._kept: dict[int, Record] = {}  # by serial numbers; of queues, the fields
        self._kept_sizes: dict[int, int] = {}  # of the kept templates, by serial numbers
        self._done: dict[int, None] = {}
        self._shards = t.by_id.shards()
        self._last_id = t.by_id.last()
        self._count = len(t.by_id)
        self._done_id = 0
        self._kept_jobs: dict[int, dict[int, tuple[Record, int]]] = {}  # by shard, by number
        self._values = self._chunks()
        t.images = (*t.images, self)
        t.images_total += 1

    # --- copy on write --------------------------------------------------------------------------

    def keep_job(self, job: QlessJob) -> None:
        """Record a job as it is."""
        number = job.id
        if self._done_id < number <= self._last_id:
            kept = self._kept_jobs.setdefault(shard_of(number), {})
            if number not in kept:
                kept[number] = (of_job(job), job.size)

    def keep_queue(self, queue: QlessQueue) -> None:
        """Record a queue as it is, without its jobs.

        Only its list of days is copied: the record of 30 days takes 0.4 ms, and a call may change
        10,000 queues. A day that changes meanwhile is replaced by a copy (`core.qless.statistics`).
        """
        if self._is_due(queue.serial):
            self._kept[queue.serial] = _fields_of(queue, queue.days.copy())

    def keep_recurring(self, template: Recurring) -> None:
        """Record a template as it is."""
        if self._is_due(template.serial):
            self._kept[template.serial] = of_recurring(template)
            self._kept_sizes[template.serial] = template.size

    def keep_throttle(self, throttle: Throttle) -> None:
        """Record the bound of a throttle as it is."""
        if self._is_due(throttle.serial):
            self._kept[throttle.serial] = of_throttle(throttle)

    def _is_due(self, serial: int) -> bool:
        return serial <= self._last_serial and serial not in self._kept and serial not in self._done

    # --- chunks ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return self._values

    def close(self) -> None:
        """Stop following the tables. Idempotent."""
        self._t.images = tuple([image for image in self._t.images if image is not self])
        self._kept.clear()
        self._kept_sizes.clear()
        self._kept_jobs.clear()
        self._done.clear()
        for some in (self._queues, self._throttles, self._recurring, self._shards):
            some.clear()
        self._values = iter(())  # the generator refers to this copy

    def _chunks(self) -> Iterator[Any]:
        yield [TOTALS, self._totals]
        yield from _cut(OPTIONS, self._options)
        yield from _cut(PATTERNS, self._patterns)
        # The lists of an order depend on its past. The bytes of an image must not: a node that was
        # started from one would differ from the others.
        yield from _cut(WORKERS, chain.from_iterable(self._workers))
        yield from _cut(TRACKED, chain.from_iterable(self._tracked))
        yield from self._queue_chunks()
        yield from self._throttle_chunks()
        yield from self._recurring_chunks()
        yield from self._job_chunks()
        yield [COUNT, [self._count]]

    def _queue_chunks(self) -> Iterator[Any]:
        queues = self._queues
        while queues:
            chunk: list[Record] = []
            work = 0
            while queues and work < CHUNK_RECORDS:
                queue = queues.pop()
                kept = self._take(queue.serial)
                chunk.append(_of_queue(_fields_of(queue, queue.days) if kept is None else kept))
                work += 1 + CHUNK_RECORDS // 4 * len(chunk[-1][-1])  # a day is as long as 32 names
            yield [QUEUES, chunk]

    def _throttle_chunks(self) -> Iterator[Any]:
        throttles = self._throttles
        while throttles:
            chunk: list[Record] = []
            while throttles and len(chunk) < CHUNK_RECORDS:
                throttle = throttles.pop()
                record = self._take(throttle.serial)
                chunk.append(of_throttle(throttle) if record is None else record)
            yield [THROTTLES, chunk]

    def _recurring_chunks(self) -> Iterator[Any]:
        templates = self._recurring
        while templates:
            chunk: list[Record] = []
            size = 0
            while templates and len(chunk) < CHUNK_RECORDS and size < CHUNK_BYTES:
                template = templates.pop()
                # The size is that of the record: the template may be smaller, or gone, by now.
                size += self._kept_sizes.pop(template.serial, template.size)
                record = self._take(template.serial)
                chunk.append(of_recurring(template) if record is None else record)
            yield [RECURRING, chunk]

    def _take(self, serial: int) -> Record | None:
        """Return the record kept under a serial number, and keep none for it from now on."""
        self._done[serial] = None
        return self._kept.pop(serial, None)

    def _job_chunks(self) -> Iterator[Any]:
        chunk: list[Record] = []
        size = shards = 0
        for record, weight in self._jobs():
            if record is None:
                shards += 1
                if shards >= CHUNK_SHARDS:
                    shards = 0
                    yield [JOBS, chunk]
                    chunk, size = [], 0
                continue
            if weight > CHUNK_BYTES:
                yield from _in_pieces(record, chunk)
                chunk, size = [], 0
                continue
            chunk.append(record)
            size += weight
            if len(chunk) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                yield [JOBS, chunk]
                chunk, size = [], 0
        if chunk:
            yield [JOBS, chunk]

    def _jobs(self) -> Iterator[tuple[Record | None, int]]:
        """Yield records of all jobs and their sizes, in the order of numbers; None ends a shard."""
        by_id = self._t.by_id
        shards = self._shards
        while shards:
            shard = shards.pop()
            numbers = by_id.numbers(shard)
            if shard in self._kept_jobs:  # some of these may have been removed from the tables
                numbers = sorted({*numbers, *self._kept_jobs[shard]})
            for number in numbers:
                if number > self._last_id:
                    break
                self._done_id = number
                kept = self._kept_jobs.get(shard)
                found = None if kept is None else kept.get(number)
                if found is not None:
                    yield found
                    continue
                job = by_id.get(number)
                assert job is not None, number
                yield of_job(job), job.size
            self._kept_jobs.pop(shard, None)
            yield None, 0


def _cut(word: str, records: Iterable[Any]) -> Iterator[Any]:
    """Yield chunks of small records, which do not change any more."""
    chunk: list[Any] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += sum([len(one) for one in record if type(one) is bytes])
        if size >= CHUNK_BYTES or len(chunk) >= CHUNK_SMALL:
            yield [word, chunk]
            chunk, size = [], 0
    if chunk:
        yield [word, chunk]


def _in_pieces(record: Record, before: list[Record]) -> Iterator[Any]:
    """Yield the collected jobs, then a job that is too large for one chunk, in pieces."""
    fields = record[-len(LONG_FIELDS) :]
    short = record[: -len(LONG_FIELDS)]
    yield [JOBS, [*before, (*short, *[[] for _ in fields])]]
    for word, items in zip(LONG_FIELDS, fields, strict=True):
        start = size = 0
        for place, item in enumerate(items):
            size += len(item) if type(item) is bytes else _size_of(item)
            if size >= CHUNK_BYTES:
                yield [word, items[start : place + 1]]
                start, size = place + 1, 0
        if start < len(items):
            yield [word, items[start:]]


def _size_of(item: tuple[Any, ...]) -> int:
    return sum([len(one) if type(one) is bytes else 9 for one in item])
