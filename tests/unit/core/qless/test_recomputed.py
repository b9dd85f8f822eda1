"""Statistics of qless against a naive recomputation from the items added to histories.

The recomputation sees calls, their times, and jobs as clients see them before and after each call;
it keeps every wait and run in a list.
"""

from collections import Counter, defaultdict
from math import floor, fsum, isclose, sqrt
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from beanpole import qless as q
from beanpole.core.image import restore
from beanpole.core.operations import qless
from tests.unit.core.cluster import Cluster, image_of
from tests.unit.core.qless.test_images import opened

QUEUES = (b"q", b"r")
JIDS = (b"a", b"b", b"c", b"d")
WORKERS = (b"w", b"v")
GROUP = b"g"
DAY = 86_400
# The dialects that count a job without attempts left among the failures.
COUNTING = (q.CORE, q.THROTTLES, q.DOTTED)
# Explaining a failure takes longer than a test may.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
# Calls of a worker that has the job.
HELD = (q.COMPLETE, q.FAIL, q.RETRY, q.HEARTBEAT)
# Elapsed time, dialect, call, arguments, a number that chooses a job.
Step = tuple[float, int, int, tuple[Any, ...], int]
Jobs = dict[bytes, q.JobView]
Key = tuple[bytes, int]  # a queue, and the number of a day

queues, jids, workers = map(st.sampled_from, (QUEUES, JIDS, WORKERS))
delays = st.sampled_from((0.0, 0.0, 2.5, 70.0))
nothing = st.none()


def made(code: int, *kinds: Any) -> st.SearchStrategy[tuple[int, tuple[Any, ...]]]:
    return st.tuples(st.just(code), st.tuples(*kinds))


puts = made(
    q.PUT, queues, jids, st.just(b"K"), st.just(b"{}"), delays, workers, nothing, nothing,
    st.sampled_from((None, 0, 1)), st.sampled_from(((), (), (), (b"a",), (b"b",))),
    st.sampled_from((None, (b"t",))), st.just(False),
)  # fmt: skip
pops = made(q.POP, queues, workers, st.integers(0, 3))
ends = made(
    q.COMPLETE, jids, workers, queues, st.just(b"{}"), st.one_of(nothing, queues), delays,
    st.just(()),
)  # fmt: skip
# `one_of` would take each strategy once; repetition in this tuple makes it more frequent.
CALLS = (
    *(puts, puts, puts, puts, pops, pops, pops, pops, pops, ends, ends, ends, ends),
    made(q.FAIL, jids, workers, st.just(GROUP), st.just(b"why"), nothing),
    made(q.RETRY, jids, queues, workers, delays, nothing, nothing),
    made(q.HEARTBEAT, jids, workers, nothing),
    made(q.TIMEOUT, st.tuples(jids)),
    made(q.CANCEL, st.tuples(jids)),
    made(q.UNFAIL, queues, st.just(GROUP), st.integers(1, 2)),
    made(q.CONFIG_SET, st.just(b"grace-period"), st.sampled_from((b"0", b"10"))),
    made(q.CONFIG_SET, st.just(b"jobs-history-count"), st.sampled_from((b"0", b"9"))),
    made(
        q.RECUR, queues, st.just(b"often"), st.just(b"K"), st.just(b"{}"), st.just(30.0),
        st.just(0.0), st.just(0.0), st.just(()), st.just(1), st.just(2.0), nothing,
    ),
)  # fmt: skip
calls = st.sampled_from(CALLS).flatmap(lambda call: call)
steps = st.tuples(
    st.sampled_from((0.0, 0.25, 3.5, 61.0, 61.0, 12.0, -5.0, 4000.0, 90_000.0)),
    st.sampled_from(q.FLAVOURS),
    calls,
    st.integers(0, 7),
).map(lambda one: (one[0], one[1], *one[2], one[3]))


def aimed(code: int, args: tuple[Any, ...], pick: int, jobs: Jobs) -> tuple[Any, ...]:
    """Aim most calls at jobs in a state in which the call has an effect."""
    wanted = q.RUNNING if code in HELD else q.FAILED
    some = [job for _, job in sorted(jobs.items()) if job.state == wanted]
    if not some or pick == 0:
        return args
    job = some[pick % len(some)]
    if code == q.COMPLETE:
        return job.jid, job.worker, job.queue, *args[3:]
    if code == q.RETRY:
        return job.jid, args[1], job.worker, *args[3:]
    if code in HELD:
        return job.jid, job.worker, *args[2:]
    if code == q.PUT and pick > 4:
        return args[0], job.jid, *args[2:]
    return ((job.jid,),) if code == q.CANCEL else args


class Naive:
    """The statistics of each queue and day."""

    def __init__(self) -> None:
        self.waits: defaultdict[Key, list[float]] = defaultdict(list)
        self.runs: defaultdict[Key, list[float]] = defaultdict(list)
        self.retries: Counter[Key] = Counter()
        self.failed: Counter[Key] = Counter()
        self.failures: Counter[Key] = Counter()
        self._since: dict[bytes, float] = {}
        self._put: dict[bytes, float] = {}

    def happened(self, now: float, step: Step, before: Jobs, after: Jobs) -> None:
        _, flavour, code, args, _ = step
        for jid, job in after.items():
            old = before.get(jid)
            items = job.history[len(old.history) if old else 0 :]
            if code == q.PUT and jid == args[1]:
                if old is not None and old.state == q.FAILED and old.failure is not None:
                    self.failed[args[0], floor(old.failure.when / DAY)] -= 1
                self._since[jid] = now
            elif old is None:  # made by a template; its times are whole seconds
                self._since[jid] = items[0][0]
            for when, what, *_ in items:
                if what == q.HAS_PUT:
                    self._put[jid] = when
                self._item(now, what, step, jid, old)
        for jid, old in before.items():
            if jid not in after and code == q.CANCEL and flavour != q.SEED and old.failure:
                if old.state == q.FAILED:
                    self.failed[old.queue, floor(old.failure.when / DAY)] -= 1
            elif jid not in after and code == q.COMPLETE and old.state == q.RUNNING:
                self._item(now, q.HAS_DONE, step, jid, old)  # done, and not kept

    def _item(self, now: float, what: int, step: Step, jid: bytes, old: q.JobView | None) -> None:
        _, flavour, code, args, _ = step
        day = floor(now / DAY)
        if what == q.HAS_POPPED:
            passed = self._passed(jid, now, flavour)
            if flavour == q.SEED:  # since the put, even if it was popped before
                passed = floor(now) - self._put[jid]
            self.waits[args[0], day].append(passed)
            if flavour == q.SEED and old is not None and old.state == q.RUNNING:
                self.retries[args[0], day] += 1
        elif what == q.HAS_TIMED_OUT and code == q.POP:
            self.retries[args[0], day] += 1
        elif what == q.HAS_DONE:
            assert old is not None
            self.runs[old.queue, day].append(self._passed(jid, now, flavour))
        elif what == q.HAS_FAILED and (code == q.FAIL or flavour in COUNTING):
            assert old is not None
            queue = {q.FAIL: old.queue, q.POP: args[0], q.RETRY: args[1]}[code]
            self.failed[queue, day] += 1
            self.failures[queue, day] += 1

    def _passed(self, jid: bytes, now: float, flavour: int) -> float:
        since, self._since[jid] = self._since[jid], now
        return float(floor(now) - floor(since)) if flavour == q.SEED else now - since

    def keys(self) -> set[Key]:
        tables = (self.waits, self.runs, self.retries, self.failed, self.failures)
        return {key for table in tables for key in table}


def bars(lengths: list[float]) -> Counter[int]:
    """Return the non-empty bins of qless's histogram."""
    found: Counter[int] = Counter()
    for length in lengths:
        for unit, first, end, low in ((1, 0, 60, 0), (60, 60, 3600, 59), (3600, 3600, DAY, 118)):
            if first <= length < end:
                found[floor(length / unit) + low] += 1
        if DAY <= length < 7 * DAY:
            found[floor(length / DAY) + 141] += 1
    return found


def check(view: q.TimesView, lengths: list[float]) -> None:
    assert view.count == len(lengths)
    mean = fsum(lengths) / len(lengths) if lengths else 0.0
    squares = fsum([(length - mean) ** 2 for length in lengths])
    assert isclose(view.mean, mean, rel_tol=1e-9, abs_tol=1e-6)
    count = max(len(lengths) - 1, 1)
    assert isclose(sqrt(max(view.vk, 0.0) / count), sqrt(squares / count), abs_tol=1e-3)
    assert {at: one for at, one in enumerate(view.histogram) if one} == bars(lengths)


def jobs_of(cluster: Cluster) -> Jobs:
    jids = tuple(cluster.machine.qless.jobs)
    result = cluster.do(*qless.command(1, q.MULTIGET, q.CORE, 0.0, (jids,)))
    assert result[0] == q.OK
    return {view.jid: view for view in result[1]}


@given(st.lists(steps, min_size=20, max_size=50), st.integers(0, 50))
@settings(max_examples=250, deadline=None, phases=PHASES)
def test_statistics_are_those_of_a_naive_recomputation(taken: list[Step], loaded_at: int) -> None:
    """The statistics also hold after the machine is reloaded from an image."""
    cluster, naive = opened(), Naive()
    now = 5 * DAY - 200.0
    for queue in QUEUES:  # unknown queues lose their statistics with their last job
        cluster.machine.qless.queue(queue).known_at = now
    begin = [
        (q.CONFIG_SET, (b"stats-history", b"60")),
        (q.THROTTLE_SET, (b"t", 1, 0)),
        (q.CONFIG_SET, (b"heartbeat", b"60")),
    ]
    for code, args in begin:
        assert cluster.do(*qless.command(1, code, q.CORE, now, args))[0] == q.OK
    before = jobs_of(cluster)
    for place, step in enumerate(taken):
        passed, flavour, code, args, pick = step
        now += passed
        step = passed, flavour, code, aimed(code, args, pick, before), pick
        args = step[3]
        result = cluster.do(*qless.command(1, code, flavour, now, args))
        after = jobs_of(cluster)
        if result[0] == q.OK:
            naive.happened(now, step, before, after)
        else:
            assert after == before  # no call has a partial effect
        before = after
        if place == loaded_at:
            cluster.machine = restore.load(image_of(cluster.machine))
    for queue, day in naive.keys() | {(queue, 5) for queue in QUEUES}:
        asked = (queue, day * DAY + 77.0)
        view = cluster.do(*qless.command(1, q.STATS, q.CORE, 0.0, asked))[1]
        check(view.wait, naive.waits[queue, day])
        check(view.run, naive.runs[queue, day])
        found = (view.retries, view.failed, view.failures)
        table = (naive.retries, naive.failed, naive.failures)
        assert found == tuple(one[queue, day] for one in table), (queue, day)
