"""Random calls of qless that share jobs, queues, workers and throttles."""

import random
from typing import Any

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.operations import qless
from beanpole.core.qless.job import QlessJob
from beanpole.core.qless.tables import Tables

QUEUES = (b"q", b"r", b"s")
JIDS = tuple(b"j%d" % number for number in range(14))
WORKERS = (b"w", b"v", b"u")
TAGS = (b"red", b"green", b"blue")
GROUPS = (b"g", b"h")
THROTTLES = (b"t", b"k")
TEMPLATES = (b"a", b"b")


class Calls:
    """A source of calls; the client's clock advances, and sometimes goes back.

    With tables, most calls of workers name jobs that exist.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 100.0
        self.tables: Tables | None = None

    def some(self, of: tuple[bytes, ...], most: int = 3) -> tuple[bytes, ...]:
        return tuple(self.dice.choice(of) for _ in range(self.dice.randint(0, most)))

    def maybe(self, value: Any) -> Any:
        return value if self.dice.random() < 0.5 else None

    def command(self, session: int = 1) -> c.Command:
        """Return the next command to send."""
        dice = self.dice
        self.now += dice.choice((0.0, 0.25, 1.0, 30.0, 61.0, 11.0, -5.0))
        code, args = self.call()
        flavour = dice.choice((q.CORE, q.CORE, q.THROTTLES, q.THROTTLES, q.DOTTED, *q.FLAVOURS))
        if dice.random() < 0.02:
            self.now += 90_000.0
        return qless.command(session, code, flavour, self.now, args)

    def call(self) -> tuple[int, tuple[Any, ...]]:
        """Return a code and its arguments."""
        weights = (9, 9, 4, 3, 2, 2, 2)
        kinds = (
            self.put,
            self.work,
            self.change,
            self.beside,
            self.recur,
            self.throttle,
            self.read,
        )
        return self.dice.choices(kinds, weights)[0]()

    def put(self) -> tuple[int, tuple[Any, ...]]:
        dice = self.dice
        depends = self.some(JIDS, 2) if dice.random() < 0.3 else ()
        return q.PUT, (
            dice.choice(QUEUES),
            dice.choice(JIDS),
            b"Klass",
            dice.choice((b"{}", b'{"a":1}')),
            dice.choice((0.0, 0.0, 0.0, 5.0, 100.0)),
            self.maybe(dice.choice(WORKERS)),
            self.maybe(float(dice.randint(-3, 3))),
            self.maybe(self.some(TAGS)),
            self.maybe(dice.randint(0, 3)),
            depends,
            self.maybe(self.some(THROTTLES)),
            dice.random() < 0.1,
        )

    def work(self) -> tuple[int, tuple[Any, ...]]:
        dice = self.dice
        jid, worker, queue = dice.choice(JIDS), dice.choice(WORKERS), dice.choice(QUEUES)
        running = [] if self.tables is None else self.running(self.tables)
        if running and dice.random() < 0.8:
            job = dice.choice(running)
            jid, worker, queue = job.jid, job.worker, job.queue
        delay = dice.choice((0.0, 0.0, 3.0))
        following = self.maybe(dice.choice(QUEUES))
        return dice.choice(
            (
                (q.POP, (queue, worker, dice.randint(0, 4))),
                (q.POP, (queue, worker, dice.randint(1, 4))),
                (q.PEEK, (queue, dice.randint(0, 2), dice.randint(0, 4))),
                (q.COMPLETE, (jid, worker, queue, b"{}", None, 0.0, ())),
                (q.COMPLETE, (jid, worker, queue, b"{}", following, delay, self.some(JIDS, 2))),
                (q.FAIL, (jid, worker, dice.choice(GROUPS), b"message", self.maybe(b"{}"))),
                (q.RETRY, (jid, queue, worker, delay, self.maybe(b"g"), self.maybe(b"why"))),
                (q.HEARTBEAT, (jid, worker, self.maybe(b"[]"))),
            )
        )

    def running(self, t: Tables) -> list[QlessJob]:
        return [job for job in t.jobs.values() if job.state == q.RUNNING]

    def change(self) -> tuple[int, tuple[Any, ...]]:
        dice = self.dice
        jid, queue = dice.choice(JIDS), dice.choice(QUEUES)
        return dice.choice(
            (
                (q.TIMEOUT, (self.some(JIDS, 2),)),
                (q.CANCEL, (self.some(JIDS, 5),)),
                (q.DEPENDS_ON, (jid, self.some(JIDS))),
                (q.DEPENDS_OFF, (jid, self.maybe(self.some(JIDS)))),
                (q.PRIORITY, (jid, float(dice.randint(-9, 9)))),
                (q.UNFAIL, (queue, dice.choice(GROUPS), dice.randint(-1, 3))),
                (q.TAG_ADD, (jid, self.some(TAGS))),
                (q.TAG_REMOVE, (jid, self.some(TAGS))),
                (q.LOG, (jid, b"said", dice.choice((b"", b"{}")))),
                (q.TRACK, (jid,)),
                (q.UNTRACK, (jid,)),
            )
        )

    def beside(self) -> tuple[int, tuple[Any, ...]]:
        dice = self.dice
        options = (b"heartbeat", b"grace-period", b"jobs-history-count", b"max-job-history", b"x")
        values = (b"10", b"0", b"-1", b"3", b"nan", b"1e300", b"no", b"")
        if dice.random() < 0.03:
            return q.FLUSH, ()
        kind = dice.choice((q.PATTERNS_OF_QUEUES, q.PATTERNS_OF_PRIORITIES))
        patterns = tuple((name, b"[]") for name in self.some(TAGS))
        return dice.choice(
            (
                (q.PAUSE, (self.some(QUEUES, 1),)),
                (q.UNPAUSE, (self.some(QUEUES, 2),)),
                (q.FORGET_QUEUES, (self.some(QUEUES),)),
                (q.CONFIG_SET, (dice.choice(options), dice.choice(values))),
                (q.CONFIG_UNSET, (dice.choice(options),)),
                (q.FORGET_WORKERS, (self.some(WORKERS, 1),)),
                (q.QUEUE_COUNTS, (self.maybe(dice.choice(QUEUES)),)),
                (q.WORKER_COUNTS, ()),
                (q.WORKER_JOBS, (dice.choice(WORKERS),)),
                (q.JOBS, (dice.randint(1, 9), dice.choice(QUEUES), 0, dice.randint(0, 9))),
                (q.SET_PATTERNS, (kind, patterns)),
                (q.EDIT_PATTERNS, (kind, dice.random() < 0.5, patterns)),
                (q.IMPORT_QUEUE, (dice.choice(QUEUES), dice.random() < 0.2)),
                self.imported(),
                self.imported(),
            )
        )

    def imported(self) -> tuple[int, tuple[Any, ...]]:
        """Return an import of a job or a template."""
        dice = self.dice
        queue, throttles = dice.choice(QUEUES), self.some(THROTTLES)
        tags = self.some(TAGS)
        if dice.random() < 0.2:
            more = (tags, 2, 0.0, self.maybe(throttles), dice.randint(0, 9))
            jid = dice.choice(TEMPLATES)
            return q.IMPORT_RECURRING, (queue, jid, b"K", b"{}", 10.0, self.now, 1.0, *more)
        state = dice.choice((q.WAITING, q.STALLED, q.SCHEDULED, q.DEPENDS, q.FAILED, q.COMPLETE_))
        failure = (dice.choice(GROUPS), b"message", 3.0, b"w")
        return q.IMPORT_JOB, (
            *(queue, dice.choice(JIDS), b"Klass", b"{}", state, 1.0, 5, dice.randint(-1, 5)),
            *(self.now - 0.5, self.now, self.maybe(self.now + 5.0)),
            tuple((tag, self.now) for tag in tags),
            ((1.5, q.HAS_PUT, queue, b""), (2.0, q.HAS_LOGGED, b"said", b"{}")),
            failure if state == q.FAILED else self.maybe(failure),
            *(self.some(JIDS, 2) if state == q.DEPENDS else (), throttles, self.maybe(b"t") or b""),
        )

    def recur(self) -> tuple[int, tuple[Any, ...]]:
        dice = self.dice
        jid, queue = dice.choice(TEMPLATES), dice.choice(QUEUES)
        interval = dice.choice((0.5, 10.0, 60.0))
        given = (self.some(TAGS), dice.randint(0, 2), float(dice.randint(0, 3)))
        pairs = (
            (b"priority", 2.0),
            (b"interval", interval),
            (b"retries", 1),
            (b"backlog", 1.0),
            (b"data", b"[1]"),
            (b"klass", b"Other"),
            (b"queue", queue),
            (b"throttles", self.some(THROTTLES)),
        )
        throttles = self.maybe(self.some(THROTTLES))
        return dice.choice(
            (
                (q.RECUR, (queue, jid, b"K", b"{}", interval, 5.0, 1.0, *given, throttles)),
                (q.RECUR, (queue, jid, b"K", b"{}", interval, 0.0, 1.0, *given, throttles)),
                (q.RECUR_UPDATE, (jid, tuple(dice.sample(pairs, dice.randint(0, 3))))),
                (q.RECUR_TAG, (jid, self.some(TAGS))),
                (q.RECUR_UNTAG, (jid, self.some(TAGS))),
                (q.UNRECUR, (jid,)),
            )
        )

    def throttle(self) -> tuple[int, tuple[Any, ...]]:
        dice = self.dice
        name = dice.choice((*THROTTLES, *(q.QUEUE_THROTTLE + queue for queue in QUEUES)))
        return dice.choice(
            (
                (q.THROTTLE_SET, (name, dice.randint(0, 2), dice.choice((0, 0, 5)))),
                (q.THROTTLE_DELETE, (name,)),
                (q.THROTTLE_RELEASE, (name, self.some(JIDS))),
            )
        )

    def read(self) -> tuple[int, tuple[Any, ...]]:
        dice = self.dice
        jid, queue, throttle = dice.choice(JIDS), dice.choice(QUEUES), dice.choice(THROTTLES)
        return dice.choice(
            (
                (q.GET, (jid,)),
                (q.MULTIGET, (self.some(JIDS),)),
                (q.TRACKED, ()),
                (q.TAGGED, (dice.choice(TAGS), 0, dice.randint(-1, 5))),
                (q.TOP_TAGS, (0, 5)),
                (q.FAILED_GROUPS, ()),
                (q.FAILED_JOBS, (dice.choice(GROUPS), 0, 5)),
                (q.LENGTH, (queue,)),
                (q.STATS, (queue, self.now)),
                (q.CONFIG_GET, (b"x",)),
                (q.CONFIG_ALL, ()),
                (q.RECUR_GET, (dice.choice(TEMPLATES),)),
                (q.RECUR_SCORE, (queue, dice.choice(TEMPLATES))),
                (q.THROTTLE_GET, (throttle,)),
                (q.THROTTLE_LOCKS, (throttle,)),
                (q.THROTTLE_PENDING, (throttle,)),
                (q.KEYS, ()),
                (q.PATTERNS, (0,)),
                (q.QUEUE_NAMES, ()),
                (q.LENGTH, (b"nobody",)),
                (q.STATS, (b"nobody", self.now)),
                (q.THROTTLE_GET, (b"nobody",)),
            )
        )
