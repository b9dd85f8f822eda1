"""All that qless knows: jobs, and what leads to them. No call is here, only what keeps it together.

A job stands in one ordered set at a time, of its queue or of completed jobs: `place` and `unplace`
see to that. Whoever changes a job calls `keep` before, so that an image of the present state can be
made while the machine goes on.
"""

from typing import Final

from beanpole.core.jobs.queue import Queue
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
from beanpole.core.qless.keeping import Keeper
from beanpole.core.qless.scores import Scores
from beanpole.qless import HISTOGRAM_BINS, Message


class Times:
    """Waits or runs of a day (Welford's method). `bins` has only the places that are not 0."""

    __slots__ = ("bins", "count", "mean", "vk")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.vk = 0.0
        self.bins: dict[int, int] = {}


class Day:
    """The statistics of a queue on one day."""

    __slots__ = ("failed", "failures", "retries", "run", "wait")

    def __init__(self) -> None:
        self.retries = 0
        self.failed = 0
        self.failures = 0
        self.wait = Times()
        self.run = Times()


class QlessQueue:
    """A queue: its jobs by their states, its templates, its days.

    `known_at` is when it was first seen, None if it is forgotten; it goes on to work.
    """

    __slots__ = (
        "days",
        "depends",
        "known_at",
        "locks",
        "name",
        "paused",
        "recurring",
        "scheduled",
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


class Throttle:
    """A resource that jobs share: at most `maximum` of them at a time, or any number if that is 0.

    `expires_us` is cluster time, 0 for never. One that nobody has set has locks and pending jobs,
    too.
    """

    __slots__ = ("expires_us", "is_set", "locks", "maximum", "name", "pending")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.is_set = False
        self.maximum = 0
        self.expires_us = 0
        self.locks: dict[bytes, None] = {}
        self.pending = Scores()


class Tables:
    """The state. Dicts keep the order in which things came: it is the same on every node.

    Attributes:
        kernel: what it shares with the other protocols: ids, events, the transitions of an entry.
        jobs, by_id: all jobs, by jid, and by id in the order of the ids.
        workers: when each was last seen.
        leases: the jobs of each worker, by the end of their locks.
        groups: the failed jobs of each group, by `failed_order`.
        tagged: the jobs of each tag, by the time at which it was given.
        tags: the tags, by how many jobs have them.
        heard: whether somebody at this node listens to messages. No part of the state.
        messages: what the present entry published, if it is heard.
        images: images in progress, which must know of a job before it changes.
        bytes: what all of it takes in memory, as accounts count it.
    """

    def __init__(self, kernel: Queue) -> None:
        self.kernel = kernel
        self.jobs: dict[bytes, QlessJob] = {}
        self.by_id: dict[int, QlessJob] = {}
        self.queues: dict[bytes, QlessQueue] = {}
        self.workers = Scores()
        self.leases: dict[bytes, Scores] = {}
        self.groups: dict[bytes, Scores] = {}
        self.failures_total = 0
        self.tagged: dict[bytes, Scores] = {}
        self.tags = Scores()
        self.tracked = Scores()
        self.completed = Scores()
        self.recurring: dict[bytes, Recurring] = {}
        self.throttles: dict[bytes, Throttle] = {}
        self.config: dict[bytes, bytes] = {}
        self.patterns: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        self.heard = False
        self.messages: list[Message] = []
        self.images: tuple[Keeper, ...] = ()
        self.bytes = 0

    def keep(self, job: QlessJob) -> None:
        """A job is about to change."""
        for image in self.images:
            image.keep_job(job)

    # --- what others look for -------------------------------------------------------------------

    def queue(self, name: bytes) -> QlessQueue:
        """A queue, made if it was not there; it is not known by that."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QlessQueue(name)
        return queue

    def throttle(self, name: bytes) -> Throttle:
        """A throttle, made if it was not there; it has no bound by that."""
        throttle = self.throttles.get(name)
        if throttle is None:
            throttle = self.throttles[name] = Throttle(name)
        return throttle

    def leases_of(self, worker: bytes) -> Scores:
        """The jobs of a worker."""
        found = self.leases.get(worker)
        if found is None:
            found = self.leases[worker] = Scores()
        return found

    # --- where jobs stand -----------------------------------------------------------------------

    def place(self, job: QlessJob, place: int, score: float) -> None:
        """Let a job stand in one set, and in no other, of its queue (`job.queue`)."""
        if job.place != NOWHERE:
            self.unplace(job)
        job.place = place
        job.score = score
        if place != NOWHERE:
            self._set_of(job).add(job.jid, score)

    def unplace(self, job: QlessJob) -> None:
        """Let a job stand nowhere; call it before its queue changes."""
        if job.place != NOWHERE:
            self._set_of(job).remove(job.jid)
            job.place = NOWHERE
            job.score = 0.0

    def _set_of(self, job: QlessJob) -> Scores:
        place = job.place
        if place == COMPLETED:
            return self.completed
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

    def say(self, channel: bytes, what: "bytes | tuple[tuple[bytes, bytes], ...]") -> None:
        """Publish something, if anybody at this node listens."""
        if self.heard:
            self.messages.append((channel, what))


# Bins of seconds, minutes, hours and days begin here in a histogram of all.
FIRST_MINUTE: Final = 60
FIRST_HOUR: Final = 119
FIRST_DAY: Final = 142
assert HISTOGRAM_BINS == FIRST_DAY + 6
