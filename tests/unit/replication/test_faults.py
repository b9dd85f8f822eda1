"""Random faults on whole clusters, by seed; without the library's repairs such runs fail.

The name of a failing test has its seed; `Run` with that seed repeats every step.
"""

import re
from typing import Any

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from tests.sim.cluster import Cluster, Violation
from tests.sim.faults import Plan, Run, world

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {
    "snapshot_bytes_min": 30_000,
    "log_retain_bytes": 20_000,
    "log_memory_bytes": 20_000,
}


def play(
    seed: int, size: int = 3, plan: Plan | None = None, repairs: Repairs = ALL_REPAIRS
) -> Cluster:
    """Run 15 s of faults, repair everything, and check everything."""
    cluster = Cluster(size, seed, repairs, start=False, **SMALL)
    world(seed, cluster)
    for name in cluster.names:
        cluster.start(name)
    run = Run(cluster, seed, plan or Plan())
    run.play(15.0)
    run.settle()
    assert run.counts["acknowledged"] > 20
    return cluster


@pytest.mark.parametrize("seed", range(1, 31))
def test_three_members_keep_what_they_acknowledged(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", range(101, 107))
def test_five_members_keep_what_they_acknowledged(seed: int) -> None:
    play(seed, size=5)


@pytest.mark.parametrize("seed", range(201, 211))
def test_lost_disks_lose_nothing_while_one_is_lost_at_a_time(seed: int) -> None:
    play(seed, plan=Plan(lose_disk=0.003, crash_all=0.0))


def test_a_run_is_repeated_by_its_seed() -> None:
    traces = {play(7).network.trace.hexdigest() for _ in range(2)}
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("repair", "words"),
    [
        ("keep_matching_entries", r"the commit index fell"),
        ("align_log_with_snapshot", r"another node|confirmed at|replaces entry"),
    ],
)
def test_without_a_repair_the_runs_find_the_defect(repair: str, words: str) -> None:
    """By its own verdict: a node that an error in the code ends is a Violation, too."""
    said = []
    for seed in range(2000, 2030):
        try:
            play(seed, repairs=ALL_REPAIRS.without(repair))
        except Violation as error:
            said.append(str(error))
            if re.search(words, said[-1]):
                return
    pytest.fail(f"30 runs without {repair} did not find it: {said}")
