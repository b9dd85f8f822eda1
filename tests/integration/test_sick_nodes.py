"""Real nodes that are sick but not dead: a suspended leader, and nodes whose disk hangs.

The permitted outcomes and their times are checked with virtual time in tests/sim/schedules_sick.py.
"""

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.support import hanging
from tests.integration.support.nodes import STEADY, Cluster, http_get
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

# Longer than every time-out of a node, on a loaded machine.
LONG_S = 30.0
# Far above the time that a stop takes, so that none of it knows that the disk hangs.
RAFT_MAX_MS = 5000
# By then an idle node has begun to save its clock, too, which it does each second.
SAVE_PERIODS_S = 1.5
LAG = r"^beanpole_disk_lag_seconds\S* (\S+)$"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes; the disk of node 0, 1, 2 hangs while the file `hang0`, ... exists."""
    with _able_to_hang(Cluster(tmp_path / "cluster"), tmp_path) as made:
        yield made


@contextmanager
def _able_to_hang(made: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    try:
        for number, node in enumerate(made.nodes):
            script = [sys.executable, hanging.__file__, str(tmp_path / f"hang{number}")]
            options = ["--config", str(node.directory / "node.toml")]
            (node.directory / "cmdline").write_text(shlex.join([*script, *options]) + "\n")
        made.start_all()
        yield made
    finally:
        for number in range(len(made.nodes)):
            flag = tmp_path / f"hang{number}"
            flag.unlink(missing_ok=True)
            hanging.space_flag(flag).unlink(missing_ok=True)
        made.close()


def test_clients_of_a_frozen_leader_see_their_end_when_it_thaws(cluster: Cluster) -> None:
    frozen = cluster.leader()
    other = next(number for number in range(3) if number != frozen)
    pid = cluster.pid(frozen)
    with (
        Raw(cluster.nodes[frozen].beanstalk, LONG_S) as holder,
        Raw(cluster.nodes[frozen].beanstalk, LONG_S) as waiter,
        Raw(cluster.nodes[other].beanstalk, LONG_S) as worker,
    ):
        job = holder.put(b"a", ttr_s=600)
        holder.ask(b"reserve", b"RESERVED %d 1" % job, b"a")
        waiter.ask(b"watch a", b"WATCHING 2")
        waiter.send(b"reserve\r\n")
        os.kill(pid, signal.SIGSTOP)
        try:
            holder.send(b"delete %d\r\n" % job)
            # The others elect a leader and declare the old one down: its jobs become ready again.
            worker.ask(b"reserve", b"RESERVED %d 1" % job, b"a")
            worker.ask(b"delete %d" % job, b"DELETED")
            assert worker.put(b"b") > job
        finally:
            os.kill(pid, signal.SIGCONT)
        assert holder.rest() == b""
        assert waiter.rest() == b""
    cluster.wait_until_serving(frozen)


def test_a_leader_whose_disk_hangs_is_replaced_and_comes_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    sick = cluster.leader()
    other = next(number for number in range(3) if number != sick)
    flag = tmp_path / f"hang{sick}"
    with (
        Raw(cluster.nodes[sick].beanstalk, LONG_S) as lost,
        Raw(cluster.nodes[other].beanstalk, LONG_S) as client,
    ):
        lost.put(b"before")
        flag.touch()
        wait_until(lambda: client.put(b"x") and not cluster.is_leader(sick), LONG_S, "a new leader")
        before = [client.put(b"y" * 60_000) for _ in range(50)]
        assert len(set(before)) == 50
        ready = http_get(cluster.nodes[sick].http, "/readyz")
        assert ready[0] == 503 and "[-]disk: behind for" in ready[1]
        # Its loop still runs: it closes its clients, and the other nodes hear from it.
        assert lost.rest() == b""
        cluster.process(sick).wait_for_words("this node's disk does not")
        story = cluster.process(sick).log.read_text()
        assert "handing over to" in story
        assert "declared down" not in story
        flag.unlink()
        cluster.wait_until_serving(sick)
        with Raw(cluster.nodes[sick].beanstalk, LONG_S) as again:
            again.ask(b"delete %d" % before[-1], b"DELETED")


def test_a_leader_whose_disk_does_not_tell_its_free_space_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    sick = cluster.leader()
    node, process = cluster.nodes[sick], cluster.process(sick)
    flag = hanging.space_flag(tmp_path / f"hang{sick}")
    with Raw(node.beanstalk, LONG_S) as client:
        flag.touch()
        said = "the disk does not tell its free space"
        wait_until(lambda: said in process.log.read_text(), LONG_S, said)
        ready = http_get(node.http, "/readyz")
        assert ready[0] == 503 and "[-]disk: behind for" in ready[1]
        assert http_get(node.http, "/livez")[0] == 200
        client.put(b"x")  # its log is written, so that its clients stay
        flag.unlink()
        wait_until(lambda: http_get(node.http, "/readyz")[0] == 200, LONG_S, "its disk goes on")
        assert "closing all clients" not in process.log.read_text()


def test_a_node_whose_disk_hangs_can_be_stopped(cluster: Cluster, tmp_path: Path) -> None:
    leader, (sick, _) = cluster.roles()
    (tmp_path / f"hang{sick}").touch()
    process = cluster.process(sick)
    with Raw(cluster.nodes[leader].beanstalk, LONG_S) as client:
        wait_until(
            lambda: client.put(b"x") and "the disk is behind" in process.log.read_text(),
            LONG_S,
            "its disk hangs",
        )
        os.kill(cluster.pid(sick), signal.SIGTERM)
        assert process.wait(LONG_S) == 0
        assert "stopped without a last sync" in process.log.read_text()
        client.put(b"x")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["busy follower", "idle follower", "leader"])
def test_a_stop_within_the_first_moments_of_a_hang_ends(tmp_path: Path, victim: str) -> None:
    """The node does not know yet that its disk hangs.

    A busy log is synced by the stop. In an idle cluster the clock is saved each second, by a thread
    that the stop waits for. A leader that hands over syncs its vote.
    """
    made = Cluster(tmp_path / "cluster", settings={**STEADY, "raft_max_ms": RAFT_MAX_MS})
    with _able_to_hang(made, tmp_path) as cluster:
        leader, (other, last) = cluster.roles()
        sick, well = (leader, last) if victim == "leader" else (other, leader)
        process = cluster.process(sick)
        (tmp_path / f"hang{sick}").touch()
        with Raw(cluster.nodes[well].beanstalk, LONG_S) as client:
            if victim == "busy follower":
                client.put(b"x")
            wait_until(lambda: _lag_s(cluster, sick) > SAVE_PERIODS_S, LONG_S, "its disk works")
            process.signal(signal.SIGTERM)
            assert process.wait(LONG_S) == 0
            story = process.log.read_text()
            assert "the disk is behind" not in story
            assert story.endswith("stopped without a last sync, because the disk hangs\n")
            client.put(b"x")


def _lag_s(cluster: Cluster, number: int) -> float:
    found = re.search(LAG, http_get(cluster.nodes[number].http, "/metrics")[1], re.MULTILINE)
    return float(found[1]) if found else 0.0
