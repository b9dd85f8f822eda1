"""Three real nodes are upgraded one after the other, and an operator ends it.

The next release is this one, in processes that know one machine version more (`next_release`). What
such a version may change, and upgrades among faults, are in tests/sim/test_upgrades.py.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beanpole.commands import BASE_VERSION
from tests.integration.support import next_release
from tests.integration.support.next_release import KNOWS
from tests.integration.support.nodes import BEANPOLE, BEANPOLED, Cluster, status
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

OLD = list(BEANPOLED)
NEW = [sys.executable, next_release.__file__]
# More than the second in which members may still say what they know.
CALL_TIMEOUT_S = 30.0
RAISED_S = 10.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes of this release; each has a job."""
    # Without events: a stop soon after a start waits for the process that makes columns of them.
    settings = {"upgrade_finalize": "manual", "events": "off"}
    cluster = Cluster(tmp_path / "cluster", settings=settings)
    try:
        cluster.start_all()
        for node in cluster.nodes:
            with Raw(node.beanstalk) as client:
                client.put(node.id.encode())
        yield cluster
    finally:
        cluster.close()


def install(cluster: Cluster, number: int, program: list[str]) -> None:
    """Let the next start of a node run this program."""
    node = cluster.nodes[number]
    words = [*program, "--config", str(node.directory / "node.toml")]
    (node.directory / "cmdline").write_text(shlex.join(words) + "\n")


def upgrade(cluster: Cluster, number: int, program: list[str]) -> None:
    """Stop a node, install a program, start it, and wait until it serves."""
    cluster.terminate(number)
    install(cluster, number, program)
    cluster.start(number)
    cluster.wait_until_serving(number)


def finalize(cluster: Cluster, number: int, *line: str) -> tuple[int, str]:
    """Run `beanpole cluster finalize` at a node: its exit status, and what it says."""
    done = subprocess.run(
        [*BEANPOLE, "cluster", "finalize", "--addr", cluster.nodes[number].grpc, *line],
        capture_output=True,
        text=True,
        timeout=CALL_TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def versions(cluster: Cluster) -> list[tuple[Any, Any]]:
    """The active version of each node, and the one that its program knows."""
    nodes = status(cluster.nodes[cluster.leader()])["nodes"]
    return [(node.get("machine_version"), node.get("machine_version_known")) for node in nodes]


@pytest.mark.timeout(400)
def test_an_operator_ends_an_upgrade(cluster: Cluster) -> None:
    leader, follower = cluster.leader(), cluster.followers()[0]
    for number in cluster.followers():
        upgrade(cluster, number, NEW)
    assert sorted(versions(cluster)) == [(BASE_VERSION, BASE_VERSION), *[(BASE_VERSION, KNOWS)] * 2]
    failed, words = finalize(cluster, follower)
    assert failed == 3
    old = f"n{leader} knows up to {BASE_VERSION} and must be upgraded"
    assert f"nothing is raised to machine version {KNOWS}: {old}" in words

    upgrade(cluster, leader, NEW)
    assert versions(cluster) == [(BASE_VERSION, KNOWS)] * 3, "nobody has asked"
    upgrade(cluster, leader, OLD)  # and back, and forward
    upgrade(cluster, leader, NEW)

    away = cluster.followers()[0]
    cluster.terminate(away)
    failed, words = finalize(cluster, cluster.leader())
    assert failed == 3
    assert f"n{away} is away, and may come back with an older release" in words
    cluster.start(away)
    cluster.wait_until_serving(away)

    for _ in range(2):
        assert finalize(cluster, away) == (0, f"the cluster works at machine version {KNOWS}\n")
    wait_until(
        lambda: versions(cluster) == [(KNOWS, KNOWS)] * 3, RAISED_S, "all nodes have applied it"
    )
    refused(cluster, away)


def refused(cluster: Cluster, number: int) -> None:
    """The older program does not start any more; the others, and then the newer one, have all."""
    cluster.terminate(number)
    install(cluster, number, OLD)
    process = cluster.start(number)
    assert process.wait(CALL_TIMEOUT_S) == 1
    last = process.log.read_text().splitlines()[-1]
    assert f"need machine version {KNOWS}, this program knows up to {BASE_VERSION}" in last
    install(cluster, number, NEW)
    cluster.start(number)
    cluster.wait_until_serving(number)
    with Raw(cluster.nodes[number].beanstalk) as client:
        for job, node in enumerate(cluster.nodes, 1):
            client.ask(b"peek %d" % job, b"FOUND %d %d" % (job, len(node.id)), node.id.encode())
            client.ask(b"delete %d" % job, b"DELETED")
