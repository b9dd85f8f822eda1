"""The machine with policies against the naive model, command by command."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from beanpole import commands as c
from beanpole.core.jobs.policies import Policy
from beanpole.core.jobs.prefixes import ANY
from tests.unit.core.cluster import DEFAULT
from tests.unit.core.model_policies import PoliciesModel
from tests.unit.core.test_model import ANYONE, LOOKING, SECONDS, TUBES, Comparison

SECOND = 1_000_000
TIMES_US = st.sampled_from([0, 0, SECOND - 1, SECOND, 3 * SECOND])
FEW = st.sampled_from([0, 0, 1, 2, 3])
POLICIES = st.builds(
    lambda **rules: Policy(**rules),
    jobs_max=FEW,
    bytes_max=st.sampled_from([0, 0, 0, 5, 9]),
    when_full=st.integers(0, 1),
    ttr_s=FEW,
    priority=FEW,
    retain_buried_us=TIMES_US,
    retain_delayed_us=TIMES_US,
    unique_window_us=TIMES_US,
)
RATES = st.builds(
    lambda **rules: Policy(**rules),
    retain_delayed_us=TIMES_US,
    rate=st.integers(1, 3),
    rate_period_us=st.sampled_from([SECOND // 3, SECOND, 2 * SECOND + 1]),
)


class Ruled(Comparison):
    """Commands of all kinds, some of which set and drop policies."""

    def __init__(self) -> None:
        super().__init__()
        self.model: PoliciesModel = PoliciesModel()

    @initialize(jobs=st.integers(2, 6), ttr_s=st.integers(1, 4), policy=st.one_of(POLICIES, RATES))
    def two_nodes_and_some_jobs(
        self,
        jobs: int,
        ttr_s: int,
        version: int = c.MACHINE_VERSION,
        policy: Policy = Policy(),  # noqa: B008 - it is a tuple
    ) -> None:
        super().two_nodes_and_some_jobs(jobs, ttr_s, version)
        self.set_policy(DEFAULT, policy)

    @rule(who=ANYONE, times=st.integers(2, 4))
    def take_some(self, who: tuple[int, int], times: int) -> None:
        for _ in range(times):
            self.do(who[0], c.TAKE, who[1])

    @rule(pattern=st.one_of(TUBES, st.just(ANY)), policy=st.one_of(POLICIES, RATES))
    def set_policy(self, pattern: bytes, policy: Policy) -> None:
        self.do(LOOKING[0], c.SET_POLICY, LOOKING[1], pattern, *policy)

    @rule(pattern=st.one_of(TUBES, st.just(ANY)))
    def drop_policy(self, pattern: bytes) -> None:
        self.do(LOOKING[0], c.DROP_POLICY, LOOKING[1], pattern)

    @rule(
        who=ANYONE,
        tube=TUBES,
        priority=st.sampled_from([-1, 0, 7]),
        delay_s=SECONDS,
        ttr_s=st.sampled_from([-2, -1, 1]),
        body=st.sampled_from([b"", b"one", b"three"]),
    )
    def put_what(
        self,
        who: tuple[int, int],
        tube: bytes,
        priority: int,
        delay_s: int,
        ttr_s: int,
        body: bytes,
    ) -> None:
        self.do(who[0], c.PUT, who[1], tube, priority, delay_s, ttr_s, body)


TestRuled = Ruled.TestCase
TestRuled.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
