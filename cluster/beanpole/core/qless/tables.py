"""The state of qless: jobs and their indexes, and the operations that keep them consistent.

A job is in one ordered set at a time, of its queue or of completed jobs: `place` and `unplace`
maintain that. The calls, in other modules, call `keep` before they change a job, so that an image
of the present state can be made while the machine goes on; from that, `core.qless.calls` computes
the change of memory, the events and the state hash.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from beanpole.core.jobs.job import Holder
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.quotas import Usage
from beanpole.core.qless.job import (
    COMPLETED,
    DEPENDING,
    LOCKS,
    NOWHERE,
    SCHEDULED_AT,
    THROTTLED_SINCE,
    WORK,
    QlessJob,
    Recurring,
)
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.store import JobsById
from beanpole.qless import HISTOGRAM_BINS, NUMBER_MAX, Message

# All locks of a throttle have this score: they are in the order of their jids.
LOCK_SCORE: Final = 1.0


class Times:
    """Waits or runs of a day (Welford's method). `bins` has only the bins that are not 0."""

    __slots__ = ("bins", "count", "mean", "vk")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.vk = 0.0
        self.bins: dict[int, int] = {}

    def copied(self) -> "Times":
        """Return a copy."""
        times = Times()
        times.count, times.mean, times.vk = self.count, self.mean, self.vk
        times.bins = self.bins.copy()
        return times


class Day:
    """The statistics of a queue on one day.

    `images` is the number of images that had begun when this object was made. Images that began
    later may refer to it until they are written: then a copy of it is changed.
    """

    __slots__ = ("failed", "failures", "images", "retries", "run", "wait")

    def __init__(self, images: int = 0) -> None:
        self.retries = 0
        self.failed = 0
        self.failures = 0
        self.wait = Times()
        self.run = Times()
        self.images = images

    def copied(self, images: int) -> "Day":
        """Return a copy for a later number of images."""
        day = Day(images)
        day.retries, day.failed, day.failures = self.retries, self.failed, self.failures
        day.wait, day.run = self.wait.copied(), self.run.copied()
        return day


class QlessQueue:
    """A queue: its jobs by state, its templates, its daily statistics.

    `known_at` is the time at which it was first seen, None if it is forgotten, in which case it
    still works. `number` identifies it in events, 0 until it has an event.
    """

    __slots__ = (
        "days",
        "depends",
        "known_at",
        "locks",
        "name",
        "number",
        "paused",
        "recurring",
        "scheduled",
        "serial",
        "size",
        "throttled",
        "work",
    )

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.known_at: float | None = None
        self.paused = False
        self.work = Scores()
        self.locks = Scores()
        self.scheduled = Scores()
        self.depends = Scores()
        self.throttled = Scores()
        self.recurring = Scores()
        self.days: dict[int, Day] = {}  # by the first second of the day
        self.number = 0
        self.serial = 0
        self.size = 0

    def has_jobs(self) -> bool:
        """Whether a job or a template is in it."""
        return bool(
            self.work
            or self.locks
            or self.scheduled
            or self.depends
            or self.throttled
            or self.recurring
        )


class Throttle:
    """A resource that jobs share: at most `maximum` of them at a time, or any number if that is 0.

    `expires_us` is cluster time, 0 for never. A throttle that is not set has locks and pending
    jobs, too. The locks are in the order of jids, the pending jobs in that of their scores.
    """

    __slots__ = ("expires_us", "is_set", "locks", "maximum", "name", "pending", "serial")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.is_set = False
        self.maximum = 0
        self.expires_us = 0
        self.locks = Scores()
        self.pending = Scores()
        self.serial = 0


class Keeper(ABC):
    """A copy of the state in progress, notified of every object before it changes."""

    @abstractmethod
    def keep_job(self, job: QlessJob) -> None:
        """Record a job as it is."""

    @abstractmethod
    def keep_queue(self, queue: QlessQueue) -> None:
        """Record a queue as it is, without its jobs."""

    @abstractmethod
    def keep_recurring(self, template: Recurring) -> None:
        """Record a template as it is."""

    @abstractmethod
    def keep_throttle(self, throttle: Throttle) -> None:
        """Record the bound of a throttle as it is."""


class Before:
    """A job as it was before the present call.

    `spent` is the wait or the run of the job that the call has counted in the statistics; None if
    the call has counted none.
    """

    __slots__ = ("attempt", "job", "queue", "spent", "state", "time", "worker")

    def __init__(self, job: QlessJob, state: int) -> None:
        self.job = job
        self.state = state  # 0 if there was none
        self.queue = job.queue or job.completed_in
        self.worker = job.worker
        self.time = job.time
        # The number of its reservation, if it is reserved: a retry or a lost lock uses up one, and
        # another put or `complete` gives them all back.
        self.attempt = job.retries - job.remaining + 1
        self.spent: float | None = None


class Tables:
    """The state of qless.

    The order of `queues`, `recurring`, `throttles`, `config` and `patterns` is state: an image has
    their items in this order. `jobs` is in the order of ids, since every job is added with a new
    id. `leases`, `groups` and `tagged`, the days of a queue and the bins of `Times` are in another
    order on a node that has loaded an image: nothing that all nodes must agree on may depend on it,
    so each list of them is sorted.

    Attributes:
        kernel: the state shared with other protocols: ids, events, the transitions of an entry.
        jobs, by_id: all jobs, by jid, and by id in the order of ids.
        workers: workers by the time at which they were last seen.
        leases: the jobs of each worker, by the end of their locks.
        groups: the failed jobs of each group, by `failed_order`.
        jobs_total, locks_lost_total: the number of jobs ever created, and of locks that ended
            before their workers gave the jobs back; for the metrics.
        tagged: the jobs of each tag, by the time at which it was given.
        tags: the tags, by the number of their jobs.
        bytes: the memory of jobs, templates and queues (`core.qless.sizes`).
        names_bytes: the bytes of options, of patterns, and of the names of throttles.
        heard: whether a client of this node listens to messages. This and all attributes below are
            no part of the state.
        answered: whether the result of the present call is for a client of this node. At other
            nodes a call may leave out a long result, but never its status.
        messages: the messages that the present entry published, if `heard`.
        images: images in progress, which are notified of an object before it changes.
        images_total: the number of images that this node has begun, see `Day`.
        holder: the session of the present call, for its events.
        usage: the usage of the user of the present call; None if the user has no quota.
        may_time: whether the time of the present call moves and ends jobs of a queue, because its
            user may; None for every queue.
        room: the number of jobs and templates that the present call may create; below 0 if nothing
            may grow.
        room_bytes: the memory that the jobs which it makes from templates may take.
        touched, ...: the objects that the present call changes, as they were before, or as they
            are.
        serials: the last serial number of queues, templates and throttles: an image compares serial
            numbers to recognize objects that existed when it began.
        trace: the bytes for the state hash of the changes of the last call.
    """

    def __init__(self, kernel: Queue) -> None:
        self.kernel = kernel
        self.jobs: dict[bytes, QlessJob] = {}
        self.by_id = JobsById()
        self.queues: dict[bytes, QlessQueue] = {}
        self.workers = Scores()
        self.leases: dict[bytes, Scores] = {}
        self.groups: dict[bytes, Scores] = {}
        self.failures_total = 0
        self.jobs_total = 0
        self.locks_lost_total = 0
        self.tagged: dict[bytes, Scores] = {}
        self.tags = Scores()
        self.tracked = Scores()
        self.completed = Scores()
        self.recurring: dict[bytes, Recurring] = {}
        self.throttles: dict[bytes, Throttle] = {}
        self.throttle_ends = Scores()  # in microseconds of cluster time, of those that have an end
        self.config: dict[bytes, bytes] = {}
        self.patterns: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        self.bytes = 0
        self.names_bytes = 0
        self.heard = False
        self.answered = True
        self.messages: list[Message] = []
        self.images: tuple[Keeper, ...] = ()
        self.images_total = 0
        self.holder: Holder | None = None
        self.usage: Usage | None = None
        self.may_time: Callable[[bytes], bool] | None = None
        self.room = NUMBER_MAX
        self.room_bytes = NUMBER_MAX
        self.touched: dict[int, Before] = {}
        self.touched_queues: dict[QlessQueue, None] = {}
        self.touched_recurring: dict[bytes, Recurring] = {}
        self.touched_throttles: dict[bytes, Throttle] = {}
        self.trace = b""
        self.serials = 0

    def is_timed(self, name: bytes) -> bool:
        """Whether the time of the present call makes jobs of a queue due."""
        return self.may_time is None or self.may_time(name)

    # --- copy on write --------------------------------------------------------------------------

    def keep(self, job: QlessJob) -> None:
        """Record a job before it changes."""
        if job.id not in self.touched:
            self.touched[job.id] = Before(job, job.state)
        for image in self.images:
            image.keep_job(job)

    def keep_queue(self, queue: QlessQueue) -> None:
        """Record a queue before its own fields change: known, paused, its days."""
        self.touched_queues[queue] = None
        for image in self.images:
            image.keep_queue(queue)

    def keep_recurring(self, template: Recurring) -> None:
        """Record a template before it changes or is removed, or after it was created."""
        if not template.serial:
            template.serial = self._next_serial()
        self.touched_recurring[template.jid] = template
        for image in self.images:
            image.keep_recurring(template)

    def keep_throttle(self, throttle: Throttle) -> None:
        """Record a throttle before its bound changes."""
        self.touched_throttles[throttle.name] = throttle
        for image in self.images:
            image.keep_throttle(throttle)

    def _next_serial(self) -> int:
        self.serials += 1
        return self.serials

    # --- creation and removal -------------------------------------------------------------------

    def new_id(self) -> int:
        """Return the next number of the counter that all jobs of the cluster share."""
        number = self.kernel.next_id
        self.kernel.next_id = number + 1
        self.jobs_total += 1
        return number

    def add(self, job: QlessJob) -> None:
        """Add a new job to the indexes; it is not yet in a set."""
        self.jobs[job.jid] = job
        self.by_id.add(job)
        self.touched[job.id] = Before(job, 0)

    def forget(self, job: QlessJob) -> None:
        """Remove a job that is in no set from the indexes."""
        self.keep(job)
        del self.jobs[job.jid]
        self.by_id.remove(job.id)

    def count(self, thing: QlessJob | Recurring, usage: Usage | None) -> None:
        """Count a new job or template, which has its data, for a user; for none if None."""
        if usage is not None:
            thing.usage = usage
            thing.counted = len(thing.data)
            self.kernel.quotas.add(usage, 1, thing.counted)

    def recount(self, thing: QlessJob | Recurring, is_there: bool) -> None:
        """Update a user's usage after a job or a template has changed or was removed."""
        usage = thing.usage
        if usage is not None:
            size = len(thing.data) if is_there else 0
            self.kernel.quotas.add(usage, 0 if is_there else -1, size - thing.counted)
            thing.counted = size

    # --- lookup ---------------------------------------------------------------------------------

    def queue(self, name: bytes) -> QlessQueue:
        """Return a queue to be changed, created if needed, which does not make it known."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QlessQueue(name)
            queue.serial = self._next_serial()
        self.keep_queue(queue)
        return queue

    def throttle(self, name: bytes) -> Throttle:
        """Return a throttle to be changed, created if needed, without a bound."""
        throttle = self.throttles.get(name)
        if throttle is None:
            throttle = self.throttles[name] = Throttle(name)
            throttle.serial = self._next_serial()
            self.names_bytes += len(name)
        self.keep_throttle(throttle)
        return throttle

    # --- throttles, options and patterns, with the bytes of their names --------------------------

    def drop_throttle(self, name: bytes) -> None:
        """Remove a throttle, which may be gone already."""
        if self.throttles.pop(name, None) is not None:
            self.names_bytes -= len(name)

    def set_option(self, option: bytes, value: bytes | None) -> None:
        """Set an option, or remove it if the value is None; other options keep their order."""
        before = self.config.get(option)
        if before is not None:
            self.names_bytes -= len(option) + len(before)
        if value is None:
            self.config.pop(option, None)
        else:
            self.config[option] = value
            self.names_bytes += len(option) + len(value)

    def set_pattern(self, kind: int, name: bytes, text: bytes) -> None:
        """Set a pattern."""
        before = self.patterns[kind].get(name)
        if before is not None:
            self.names_bytes -= len(name) + len(before)
        self.patterns[kind][name] = text
        self.names_bytes += len(name) + len(text)

    def clear_patterns(self, kind: int) -> None:
        """Remove all patterns of a kind."""
        for name, text in self.patterns[kind].items():
            self.names_bytes -= len(name) + len(text)
        self.patterns[kind].clear()

    # --- workers and throttles of jobs; the caller has called `keep` ----------------------------

    def hold(self, job: QlessJob, until: float) -> None:
        """Add a job to the leases of its worker until a time of the client's clock."""
        held = self.leases.get(job.worker)
        if held is None:
            held = self.leases[job.worker] = Scores()
        held.add(job.jid, until)
        job.lease = until

    def let_go(self, job: QlessJob) -> None:
        """Remove a job from the leases of its worker; call this before `worker` changes."""
        if job.lease is None:
            return
        job.lease = None
        held = self.leases[job.worker]
        held.remove(job.jid)
        if not held:
            del self.leases[job.worker]

    def lock(self, throttle: Throttle, job: QlessJob) -> None:
        """Give a job a lock of a throttle."""
        if throttle.locks.add(job.jid, LOCK_SCORE):
            job.locked = (*job.locked, throttle.name)

    def unlock(self, throttle: Throttle, job: QlessJob) -> bool:
        """Take a lock from a job; returns whether the job had it."""
        if not throttle.locks.remove(job.jid):
            return False
        name = throttle.name
        job.locked = tuple([one for one in job.locked if one != name])
        return True

    def pend(self, throttle: Throttle, job: QlessJob, score: float) -> None:
        """Make a job wait for a throttle, in the order of scores."""
        self.unpend(throttle, job)
        throttle.pending.add(job.jid, score)
        job.pending = (*job.pending, (throttle.name, score))

    def unpend(self, throttle: Throttle, job: QlessJob) -> bool:
        """Remove a job from those that wait for a throttle; returns whether it was one."""
        if not throttle.pending.remove(job.jid):
            return False
        name = throttle.name
        job.pending = tuple([one for one in job.pending if one[0] != name])
        return True

    # --- the set of a job -----------------------------------------------------------------------

    def place(self, job: QlessJob, place: int, score: float) -> None:
        """Move a job to a set of its queue (`job.queue`), and out of any other set."""
        if job.place != NOWHERE:
            self.unplace(job)
        job.place = place
        job.score = score
        if place != NOWHERE:
            self._set_of(job).add(job.jid, score)

    def unplace(self, job: QlessJob) -> None:
        """Remove a job from its set; call this before its queue changes."""
        if job.place != NOWHERE:
            self._set_of(job).remove(job.jid)
            job.place = NOWHERE
            job.score = 0.0

    def _set_of(self, job: QlessJob) -> Scores:
        place = job.place
        if place == COMPLETED:
            return self.completed
        queue = self.queues.get(job.queue)
        if queue is None:
            queue = self.queue(job.queue)
        if place == WORK:
            return queue.work
        if place == LOCKS:
            return queue.locks
        if place == SCHEDULED_AT:
            return queue.scheduled
        if place == DEPENDING:
            return queue.depends
        assert place == THROTTLED_SINCE, place
        return queue.throttled

    # --- messages -------------------------------------------------------------------------------

    def publish(
        self, channel: bytes, content: "bytes | tuple[tuple[bytes, bytes | None], ...]"
    ) -> None:
        """Publish a message, if a client of this node listens."""
        if self.heard:
            self.messages.append((channel, content))


# The first bins of minutes, hours and days in a histogram, after those of seconds.
FIRST_MINUTE: Final = 60
FIRST_HOUR: Final = 119
FIRST_DAY: Final = 142
assert HISTOGRAM_BINS == FIRST_DAY + 6
