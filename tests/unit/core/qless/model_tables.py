"""A naive model of qless, written from its documentation: its data, and read-only calls.

Jobs, queues, workers, tags and throttles are plain dicts and lists. The calls that list them belong
here; `model` changes the life of jobs. Nothing is fast or cached: each call computes its lists from
all jobs, and statistics from all recorded durations.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from math import floor, inf
from typing import Any

from beanpole import qless as q

DAY = 86_400
THROTTLED = (q.THROTTLES, q.DOTTED)
WORK, LOCKS, LATER, BEHIND, HELD, DONE = "work", "locks", "later", "behind", "held", "done"


@dataclass
class Job:
    """A job; `place` is the set that holds it, and `score` its order there."""

    jid: bytes
    klass: bytes = b""
    data: bytes = b""
    state: int = q.WAITING
    queue: bytes = b""
    worker: bytes = b""
    priority: float = 0.0
    expires: float = 0.0
    retries: int = 5
    remaining: int = 5
    time: float = 0.0
    place: str = ""
    score: float = 0.0
    warned: bool = False
    due: float | None = None
    lease: float | None = None
    failure: q.FailureView | None = None
    failed_as: int = 0
    spawned_from: bytes = b""
    throttles: tuple[bytes, ...] = ()
    tags: dict[bytes, float] = field(default_factory=dict)
    history: list[q.HistoryItem] = field(default_factory=list)
    depends: set[bytes] = field(default_factory=set)


@dataclass
class Template:
    """A template of recurring jobs."""

    jid: bytes
    queue: bytes
    klass: bytes
    data: bytes
    interval: float
    next: float
    priority: float
    tags: tuple[bytes, ...]
    retries: int
    backlog: float
    throttles: tuple[bytes, ...]
    count: int = 0


@dataclass
class Day:
    """The statistics of a queue on one day."""

    waits: list[float] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)
    retries: int = 0
    failed: int = 0
    failures: int = 0


class Tables:
    """All data."""

    def __init__(self, flavour: int) -> None:
        self.flavour = flavour
        self.jobs: dict[bytes, Job] = {}
        self.templates: dict[bytes, Template] = {}
        self.known: dict[bytes, float] = {}
        self.paused: set[bytes] = set()
        self.days: dict[tuple[bytes, int], Day] = defaultdict(Day)
        self.workers: dict[bytes, float] = {}
        self.tracked: dict[bytes, float] = {}
        self.options: dict[bytes, bytes] = {}
        self.maxima: dict[bytes, int] = {}
        self.locked: dict[bytes, set[bytes]] = defaultdict(set)
        self.pending: dict[bytes, dict[bytes, float]] = defaultdict(dict)
        self.failures = 0
        self.messages: list[tuple[bytes, Any]] = []

    def say(self, channel: bytes, what: Any) -> None:
        """Publish a message."""
        self.messages.append((channel, what))

    def log(self, jid: bytes, event: bytes, **more: bytes | None) -> dict[bytes, bytes | None]:
        """Publish a message on the log channel."""
        pairs: dict[bytes, bytes | None] = {b"jid": jid, b"event": event}
        pairs.update({name.encode(): value for name, value in more.items()})
        self.say(b"log", pairs)
        return pairs

    def if_tracked(self, jid: bytes, channel: bytes) -> None:
        """Publish a message about a tracked job."""
        if jid in self.tracked:
            self.say(channel, jid)

    def option(self, name: bytes, default: float) -> float:
        """Return the value of an option."""
        return float(self.options.get(name, default))

    def at(self, queue: bytes, place: str) -> list[Job]:
        """Return the jobs of a queue in a place, the lowest score first."""
        found = [job for job in self.jobs.values() if (job.queue, job.place) == (queue, place)]
        return sorted(found, key=lambda job: (job.score, job.jid))

    def day(self, queue: bytes, now: float) -> Day:
        """Return the statistics of a queue's day."""
        return self.days[queue, floor(now / DAY) * DAY]

    def lock_of(self, queue: bytes) -> float:
        """Return the duration of a queue's locks."""
        return self.option(queue + b"-heartbeat", self.option(b"heartbeat", 60.0))

    def dependents(self, jid: bytes) -> list[bytes]:
        """Return the jobs that depend on a job."""
        return sorted(one.jid for one in self.jobs.values() if jid in one.depends)

    def move_due(self, queue: bytes, now: float, count: float = inf) -> None:
        """Make scheduled jobs wait when they are due."""
        due = [job for job in self.at(queue, LATER) if job.score <= now]
        for number, job in enumerate(due):
            if number < count:
                self.let_wait(job, now)
                job.state = q.WAITING

    def let_wait(self, job: Job, now: float) -> None:
        """Put a job into the order of its queue."""
        job.place, job.score = WORK, job.priority - now / 1e10

    def view(self, job: Job) -> q.JobView:
        """Return a job as a client sees it; sets are sorted."""
        return q.JobView(
            *(job.jid, job.klass, job.data, job.state, job.queue, job.worker),
            *(job.jid in self.tracked, job.priority, job.expires, job.retries, job.remaining),
            *(tuple(job.tags), tuple(job.history), job.failure, job.throttles),
            *(job.spawned_from, tuple(self.dependents(job.jid)), tuple(sorted(job.depends))),
        )

    # --- calls that list ---------------------------------------------------------------------

    def get(self, _now: float, jid: bytes) -> q.Result:
        job = self.jobs.get(jid)
        return q.OK, None if job is None else self.view(job)

    def multiget(self, _now: float, jids: tuple[bytes, ...]) -> q.Result:
        return q.OK, tuple(self.view(self.jobs[jid]) for jid in jids if jid in self.jobs)

    def tracks(self, _now: float) -> q.Result:
        jids = sorted(self.tracked, key=lambda jid: (self.tracked[jid], jid))
        there = tuple(self.view(self.jobs[jid]) for jid in jids if jid in self.jobs)
        return q.OK, (there, tuple(jid for jid in jids if jid not in self.jobs))

    def tagged(self, _now: float, tag: bytes, offset: int, count: int) -> q.Result:
        found = [job for job in self.jobs.values() if tag in job.tags]
        found.sort(key=lambda job: (job.tags[tag], job.jid))
        return q.OK, (len(found), tuple(job.jid for job in found[offset : offset + count]))

    def top_tags(self, _now: float, offset: int, count: int) -> q.Result:
        counts: dict[bytes, int] = defaultdict(int)
        for job in self.jobs.values():
            for tag in job.tags:
                counts[tag] += 1
        found = sorted(((number, tag) for tag, number in counts.items() if number > 1))
        return q.OK, tuple(tag for _, tag in found[::-1][offset : offset + count])

    def groups(self, _now: float) -> q.Result:
        counts: dict[bytes, int] = defaultdict(int)
        for job in self.jobs.values():
            if job.state == q.FAILED and job.failure is not None:
                counts[job.failure.group] += 1
        return q.OK, tuple(sorted(counts.items()))

    def group(self, name: bytes) -> list[Job]:
        """Return the failed jobs of a group, the earliest first."""
        failed = [job for job in self.jobs.values() if job.state == q.FAILED]
        found = [job for job in failed if job.failure is not None and job.failure.group == name]
        return sorted(found, key=lambda job: job.failed_as)

    def failed(self, _now: float, name: bytes, start: int, limit: int) -> q.Result:
        found = [job.jid for job in self.group(name)[::-1]]
        return q.OK, (len(found), tuple(found[start : start + limit]))

    def listed(self, now: float, state: int, queue: bytes, offset: int, count: int) -> q.Result:
        if state == q.SCHEDULED:
            self.move_due(queue, now)
        locks = self.at(queue, LOCKS)
        found = {
            q.RUNNING: [job.jid for job in locks if job.score >= now],
            q.STALLED: [job.jid for job in locks if job.score <= now],
            q.SCHEDULED: [job.jid for job in self.at(queue, LATER)],
            q.DEPENDS: [job.jid for job in self.at(queue, BEHIND)],
            q.THROTTLED: [job.jid for job in self.at(queue, HELD)],
            q.COMPLETE_: [job.jid for job in self.at(b"", DONE)[::-1]],
            q.RECURRING: [one.jid for one in self.of_queue(queue)],
        }[state]
        return q.OK, tuple(found[offset : offset + count])

    def of_queue(self, queue: bytes) -> list[Template]:
        """Return the templates of a queue, the next due first."""
        found = [one for one in self.templates.values() if one.queue == queue]
        return sorted(found, key=lambda one: (one.next, one.jid))

    def counts(self, now: float, name: bytes | None) -> q.Result:
        names = [one for _, one in sorted((at, one) for one, at in self.known.items())]
        return q.OK, tuple(self._count(now, one) for one in ([name] if name else names))

    def _count(self, now: float, name: bytes) -> q.QueueView:
        self.move_due(name, now)
        places = (WORK, LOCKS, LATER, BEHIND, HELD)
        work, locks, later, behind, held = (self.at(name, place) for place in places)
        stalled = sum(job.score <= now for job in locks)
        counts = (len(work), len(locks) - stalled, stalled, len(later), len(behind))
        recurring = len(self.of_queue(name))
        return q.QueueView(name, *counts, recurring, len(held), name in self.paused)

    def length(self, _now: float, queue: bytes) -> q.Result:
        return q.OK, sum(len(self.at(queue, place)) for place in (WORK, LOCKS, LATER))

    def worker_counts(self, now: float) -> q.Result:
        self._forget_old(now)
        names = sorted(self.workers, key=lambda name: (self.workers[name], name))
        found = [(name, *self._leases(now, name)) for name in names[::-1]]
        return q.OK, tuple(q.WorkerView(name, len(a), len(b)) for name, a, b in found)

    def worker_jobs(self, now: float, worker: bytes) -> q.Result:
        self._forget_old(now)
        return q.OK, self._leases(now, worker)

    def _leases(self, now: float, worker: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        found = [job for job in self.jobs.values() if job.worker == worker]
        leases = sorted([(job.lease, job.jid) for job in found if job.lease is not None])[::-1]
        ahead = tuple(jid for at, jid in leases if now <= at <= now + 8_640_000)
        return ahead, tuple(jid for at, jid in leases if 0 <= at <= now)

    def _forget_old(self, now: float) -> None:
        for name, seen in list(self.workers.items()):
            if 0 <= seen <= now - DAY:
                del self.workers[name]
                for job in self.jobs.values():
                    job.lease = None if job.worker == name else job.lease

    def stats(self, _now: float, queue: bytes, date: float) -> q.Result:
        day = self.days.get((queue, floor(date / DAY) * DAY), Day())
        views = _times(day.waits), _times(day.runs)
        return q.OK, q.StatsView(day.retries, day.failed, day.failures, *views)

    def template(self, _now: float, jid: bytes) -> q.Result:
        one = self.templates.get(jid)
        if one is None:
            return q.OK, None
        first = (one.jid, one.klass, one.data, one.queue, one.priority, one.interval)
        rest = (one.retries, one.count, one.tags, one.backlog, one.throttles)
        return q.OK, q.RecurringView(*first, *rest)

    def next_of(self, _now: float, queue: bytes, jid: bytes) -> q.Result:
        one = self.templates.get(jid)
        return q.OK, one.next if one is not None and one.queue == queue else None

    def throttle(self, _now: float, name: bytes) -> q.Result:
        return q.OK, (self.maxima[name], -1) if name in self.maxima else (0, -2)

    def lock_holders(self, _now: float, name: bytes) -> q.Result:
        return q.OK, tuple(sorted(self.locked[name]))

    def waiting_for(self, _now: float, name: bytes) -> q.Result:
        found = self.pending[name]
        return q.OK, tuple(sorted(found, key=lambda jid: (found[jid], jid)))


def _times(seconds: list[float]) -> q.TimesView:
    mean = sum(seconds) / max(1, len(seconds))
    bins = [0] * q.HISTOGRAM_BINS
    for one in seconds:
        # 60 seconds, then 59 minutes, 23 hours and 6 days; longer durations have no bin.
        whole = floor(one)
        if 0 <= whole < 60:
            bins[whole] += 1
        elif 0 <= whole < 3600:
            bins[59 + whole // 60] += 1
        elif 0 <= whole < DAY:
            bins[118 + whole // 3600] += 1
        elif 0 <= whole < 7 * DAY:
            bins[141 + whole // DAY] += 1
    squares = sum((one - mean) ** 2 for one in seconds)
    return q.TimesView(len(seconds), mean, squares, tuple(bins))
