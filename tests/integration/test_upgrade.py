"""Upgrade three real nodes from a release step by step, until an operator finalizes it.

Upgrades under load are in `test_upgrade_from_release`, upgrades with faults in
tests/sim/test_upgrades.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from beanpole.commands import MACHINE_VERSION
from chaos.members import CALL_TIMEOUT_S
from tests.integration.support import releases
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.releases import (
    FIRST,
    LAST,
    Program,
    cluster_of,
    finalize,
    install,
    release,
    this_program,
    upgrade,
    versions,
    wait_until_raised,
)

KNOWS = MACHINE_VERSION
NEW = this_program({"upgrade_finalize": "manual"})


@pytest.fixture(params=[FIRST, LAST])
def old(tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    """The release before the upgrade."""
    return release(request.param, tmp_path)


@pytest.fixture
def cluster(tmp_path: Path, old: Program) -> Iterator[Cluster]:
    """Three nodes of the release, each with a job."""
    cluster = cluster_of(old, tmp_path / "cluster")
    with cluster.running():
        for node in cluster.nodes:
            with Raw(node.beanstalk) as client:
                client.put(node.id.encode())
        wait_until_raised(cluster, releases.KNOWS[old.name])
        yield cluster


@pytest.mark.long
@pytest.mark.timeout(400)
def test_an_operator_ends_an_upgrade(cluster: Cluster, old: Program) -> None:
    (leader, followers), before = cluster.roles(), releases.KNOWS[old.name]
    follower = followers[0]
    for number in followers:
        upgrade(cluster, number, NEW)
    assert sorted(versions(cluster)) == [(before, before), *[(before, KNOWS)] * 2]
    failed, words, leads = finalize(cluster, follower)
    assert failed == 3
    reason = f"n{leader} knows up to {before} and must be upgraded"
    too_old = f"nothing is raised: the program of n{leader}, which leads, is too old"
    refusal = f"nothing is raised to machine version {KNOWS}: {reason}"
    # After an election an upgraded follower may lead, which knows the reason.
    assert (too_old if old.name == FIRST and leads == leader else refusal) in words

    upgrade(cluster, leader, NEW)
    assert versions(cluster) == [(before, KNOWS)] * 3, "raised without a request"
    upgrade(cluster, leader, old)  # back and forth
    failed, words, _ = finalize(cluster, follower)
    assert failed == 3
    assert refusal in words
    upgrade(cluster, leader, NEW)

    away = cluster.followers()[0]
    cluster.terminate(away)
    failed, words, _ = finalize(cluster, cluster.leader())
    assert failed == 3
    assert f"n{away} is away, and may come back with an older release" in words
    cluster.start(away)
    cluster.wait_until_serving(away)

    for _ in range(2):
        done, words, _ = finalize(cluster, away)
        assert (done, words) == (0, f"the cluster works at machine version {KNOWS}\n")
    wait_until_raised(cluster, KNOWS)
    refused(cluster, away, old)


def refused(cluster: Cluster, number: int, old: Program) -> None:
    """The old program no longer starts; the others, and then the new program, have all jobs."""
    cluster.terminate(number)
    install(cluster, number, old)
    process = cluster.start(number)
    assert process.wait(CALL_TIMEOUT_S) == 1
    last = process.log.read_text().splitlines()[-1]
    assert (
        f"need machine version {KNOWS}, this program knows up to {releases.KNOWS[old.name]}" in last
    )
    install(cluster, number, NEW)
    cluster.start(number)
    cluster.wait_until_serving(number)
    with Raw(cluster.nodes[number].beanstalk) as client:
        for job, node in enumerate(cluster.nodes, 1):
            client.ask(b"peek %d" % job, b"FOUND %d %d" % (job, len(node.id)), node.id.encode())
            client.ask(b"delete %d" % job, b"DELETED")
