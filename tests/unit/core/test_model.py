"""The machine against the naive model, command by command."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from beanpole import commands as c
from beanpole.core.applied import GRANTED
from beanpole.core.jobs.job import BURIED, DELAYED
from tests.unit.core.cluster import DEFAULT, Cluster, copy_of
from tests.unit.core.ledger import Ledger
from tests.unit.core.model import Model

SECOND = 1_000_000
ORIGINS = st.integers(0, 1)
# A node that never restarts, and a client of it that only reads and never disconnects.
LOOKING = (2, 9)
# Any session.
ANYONE = st.sampled_from([(0, 1), (1, 1), LOOKING])
SESSIONS = st.sampled_from([1, 1, 1, 2, 3])
TUBES = st.sampled_from([DEFAULT, DEFAULT, b"a", b"b"])
JOBS = st.integers(1, 8)
PRIORITIES = st.sampled_from([0, 1, 1023, 1024, 2**32 - 1])
SECONDS = st.sampled_from([0, 0, 1, 2, 3])
KEYS = st.sampled_from([b"one", b"two", b"three", b"four"])
SECRETS = st.sampled_from([b"first secret....", b"second secret..."])


class Comparison(RuleBasedStateMachine):
    """Each rule is one entry; results must be equal, and afterwards all visible state.

    The events alone must lead to the same jobs, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.model = Model()
        self.ledger = Ledger()

    @initialize(
        jobs=st.integers(0, 6),
        ttr_s=st.integers(1, 4),
        version=st.integers(c.BASE_VERSION, c.MACHINE_VERSION),
    )
    def two_nodes_and_some_jobs(self, jobs: int, ttr_s: int, version: int = c.BASE_VERSION) -> None:
        self.lead((c.RAISE, version))
        self.model.version = version
        for origin in (0, 1):
            self.do(origin, c.OPEN, 1)
        self.do(LOOKING[0], c.OPEN, LOOKING[1])
        for priority in range(jobs):
            self.do(0, c.PUT, 1, DEFAULT, priority % 2, 0, ttr_s, b"body")

    def do(self, origin: int, *command: Any) -> None:
        self.model.begin_entry(self.cluster.time_us)
        expected = self.model.do(origin, command)
        self.model.end_entry()
        assert self.cluster.do(*command, origin=origin) == expected, command

    def lead(self, command: c.Command) -> Any:
        return self.cluster.lead(command)

    # --- clients ----------------------------------------------------------------------------------

    @rule(who=ANYONE, tube=TUBES, priority=PRIORITIES, delay_s=SECONDS, ttr_s=SECONDS)
    def put(
        self, who: tuple[int, int], tube: bytes, priority: int, delay_s: int, ttr_s: int
    ) -> None:
        self.do(who[0], c.PUT, who[1], tube, priority, delay_s, ttr_s + 1, b"body")

    @rule(who=ANYONE, tube=TUBES, delay_s=SECONDS, key=KEYS)
    def put_keyed(self, who: tuple[int, int], tube: bytes, delay_s: int, key: bytes) -> None:
        self.do(who[0], c.PUT_KEYED, who[1], tube, 0, delay_s, 60, b"body", key)

    @rule(origin=ORIGINS, session=SESSIONS)
    def open(self, origin: int, session: int) -> None:
        self.do(origin, c.OPEN, session)

    @rule(origin=ORIGINS, session=SESSIONS, lost=st.integers(0, 1))
    def close(self, origin: int, session: int, lost: int) -> None:
        self.do(origin, c.CLOSE, session, lost)

    @rule(
        origin=ORIGINS,
        session=SESSIONS,
        operation=st.sampled_from([c.USE, c.WATCH, c.WATCH, c.IGNORE]),
        tube=TUBES,
    )
    def choose_tube(self, origin: int, session: int, operation: int, tube: bytes) -> None:
        self.do(origin, operation, session, tube)

    @rule(
        origin=ORIGINS,
        session=SESSIONS,
        operation=st.sampled_from([c.DELETE, c.TOUCH, c.RETURN, c.KICK_JOB, c.RESERVE_JOB]),
        job=JOBS,
    )
    def one_job(self, origin: int, session: int, operation: int, job: int) -> None:
        self.do(origin, operation, session, job)

    @rule(origin=ORIGINS, session=SESSIONS)
    def take(self, origin: int, session: int) -> None:
        if self.cluster.machine.version >= 3:
            self.do(origin, c.TAKE, session)

    @rule(origin=ORIGINS, session=SESSIONS, job=JOBS, priority=PRIORITIES, delay_s=SECONDS)
    def release(self, origin: int, session: int, job: int, priority: int, delay_s: int) -> None:
        self.do(origin, c.RELEASE, session, job, priority, delay_s)

    @rule(origin=ORIGINS, session=SESSIONS, job=JOBS, priority=PRIORITIES)
    def bury(self, origin: int, session: int, job: int, priority: int) -> None:
        self.do(origin, c.BURY, session, job, priority)

    @rule(
        who=ANYONE,
        tube=TUBES,
        bound=st.integers(0, 3),
        state=st.sampled_from([0, 0, BURIED, DELAYED]),
    )
    def kick(self, who: tuple[int, int], tube: bytes, bound: int, state: int) -> None:
        self.do(who[0], c.KICK, who[1], tube, bound, state)

    @rule(who=ANYONE, tube=TUBES, pause_s=SECONDS)
    def pause(self, who: tuple[int, int], tube: bytes, pause_s: int) -> None:
        self.do(who[0], c.PAUSE_TUBE, who[1], tube, pause_s)

    @rule(origin=ORIGINS, session=SESSIONS, secret=SECRETS, grace_s=st.integers(1, 3))
    def keep(self, origin: int, session: int, secret: bytes, grace_s: int) -> None:
        self.do(origin, c.KEEP, session, secret, grace_s * SECOND)

    @rule(origin=ORIGINS, session=SESSIONS, secret=SECRETS)
    def resume(self, origin: int, session: int, secret: bytes) -> None:
        fresh = self.model.session(origin, session)
        if fresh is None or fresh.secret != secret:
            self.do(origin, c.RESUME, session, secret)

    # --- the leader -------------------------------------------------------------------------------

    @rule(origin=ORIGINS, session=SESSIONS, back=st.sampled_from([0, 0, 0, 1]))
    def grant(self, origin: int, session: int, back: int) -> None:
        self.cluster.requests += 1
        request = self.cluster.requests - back
        self.model.begin_entry(self.cluster.time_us)
        expected = self.model.grant(origin, session, request)
        self.model.end_entry()
        outcome, job = self.cluster.grant(session, origin, request)
        assert job == (expected.id if expected else 0)
        assert (outcome == GRANTED) == (expected is not None)

    @rule(us=st.sampled_from([-SECOND, 1, SECOND - 1, SECOND, SECOND, 2 * SECOND]))
    def pass_time(self, us: int) -> None:
        self.cluster.pass_s(us / SECOND)
        self.model.begin_entry(self.cluster.time_us)
        self.model.end_entry()

    @rule(grace_us=st.sampled_from([1, SECOND, 3 * SECOND]), leaderless_s=SECONDS)
    def epoch(self, grace_us: int, leaderless_s: int) -> None:
        self.cluster.time_us += leaderless_s * SECOND
        expiry_floor_us = self.cluster.time_us + grace_us
        self.lead((c.EPOCH, 1, expiry_floor_us, 100, 100, 100, 10_000_000))
        # A leader that is behind the log spares current reservations for the whole grace.
        behind_us = max(0, self.model.now_us - self.cluster.time_us)
        epoch_us = self.cluster.time_us + behind_us + (behind_us > 0)
        self.model.epoch_us = max(self.model.epoch_us, epoch_us)
        self.model.expiry_floor_us = max(self.model.expiry_floor_us, expiry_floor_us + behind_us)
        self.model.begin_entry(self.cluster.time_us)
        self.model.end_entry()

    @rule(origin=ORIGINS, how=st.sampled_from(["up", "down and up"]))
    def node_restarts(self, origin: int, how: str) -> None:
        incarnation = self.cluster.incarnations[origin]
        if how == "down and up":
            self.lead((c.NODE_DOWN, origin, incarnation))
        self.cluster.incarnations[origin] = incarnation + 1
        self.cluster.batch(origin=origin)
        self.model.begin_entry(self.cluster.time_us)
        self.model.lose_origin(origin)
        self.model.end_entry()

    @rule()
    def node_starts_from_an_image(self) -> None:
        self.cluster.machine = copy_of(self.cluster.machine)

    # --- the visible state ------------------------------------------------------------------------

    @invariant()
    def everything_is_equal(self) -> None:
        if not self.cluster.incarnations:
            return
        model = self.model
        origin, session = LOOKING
        queries: list[c.Command] = [(c.STATS, session), (c.LIST_TUBES, session)]
        expected: list[Any] = [model.stats(), tuple(tube.name for tube in model.tubes)]
        for job in model.jobs:
            queries += [(c.STATS_JOB, session, job.id), (c.PEEK, session, job.id)]
            expected += [model.stats_job(job), (job.id, job.body)]
        for tube in model.tubes:
            queries.append((c.STATS_TUBE, session, tube.name))
            expected.append(model.stats_tube(tube))
            for operation, state in [
                (c.PEEK_READY, "ready"),
                (c.PEEK_DELAYED, "delayed"),
                (c.PEEK_BURIED, "buried"),
            ]:
                jobs = model.jobs_in(state, tube.name)
                queries.append((operation, session, tube.name))
                expected.append((jobs[0].id, jobs[0].body) if jobs else c.NOT_FOUND)
        self.ledger.follow(self.cluster.machine)
        model.begin_entry(self.cluster.time_us)
        assert self.cluster.batch(*queries, origin=origin) == expected
        assert len(self.cluster.machine.queue.jobs) == len(model.jobs)
        assert self.cluster.machine.sessions == len(model.sessions)


TestComparison = Comparison.TestCase
TestComparison.settings = settings(
    max_examples=400,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_a_second_epoch_at_the_time_of_the_first_takes_nothing_back() -> None:
    """Found by random tests: the first leader was behind the log, the second one was not."""
    state = Comparison()
    state.two_nodes_and_some_jobs(jobs=1, ttr_s=1)
    state.pass_time(us=-SECOND)
    state.epoch(grace_us=1, leaderless_s=0)
    state.grant(back=0, origin=0, session=1)
    state.pass_time(us=SECOND)
    state.epoch(grace_us=3 * SECOND, leaderless_s=0)
    state.everything_is_equal()
    state.teardown()
