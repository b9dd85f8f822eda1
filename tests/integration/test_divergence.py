"""A node whose state diverges stops in time with a message; the others continue and lose nothing.

These tests use real time and real digests; tests/sim/test_divergence.py checks the times.
"""

import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanpoled.disk.identity import VOTER
from tests.integration.support import differing
from tests.integration.support.differing import MARK
from tests.integration.support.disks import standing
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

# The period of the comparison of images; the default is a minute. Heartbeats contain the running
# digest: no image is compared where that has to decide, or a loaded machine would do so first.
DIGEST_PERIOD_S = {"transitions": 3600.0, "image": 2.0}
# A comparison of images is due within 2 s and a heartbeat within less. On a loaded machine they
# take longer, and so does the end of a process.
DIFFERS_MAX_S = 62.0
REJOIN_TIMEOUT_S = 60.0
ATTEMPTS = 5


def tell_how(cluster: Cluster, number: int, how: str, period_s: float) -> None:
    """Make the next start of a node run through `differing`."""
    node = cluster.nodes[number]
    options = ["--config", str(node.directory / "node.toml")]
    script = [sys.executable, differing.__file__, how, str(period_s)]
    (node.directory / "cmdline").write_text(shlex.join([*script, *options]) + "\n")


@pytest.fixture
def watched(tmp_path: Path, how: str) -> Iterator[Cluster]:
    """Three correct nodes that compare what shows this way to differ."""
    cluster = Cluster(tmp_path / "cluster")
    try:
        for number in range(len(cluster.nodes)):
            tell_how(cluster, number, "honest", DIGEST_PERIOD_S[how])
        cluster.start_all()
        yield cluster
    finally:
        cluster.close()


def make_differ(cluster: Cluster, number: int, how: str) -> None:
    """Restart a node as one that will diverge."""
    cluster.terminate(number)
    tell_how(cluster, number, how, DIGEST_PERIOD_S[how])
    cluster.start(number)
    cluster.wait_until_serving(number)


@pytest.mark.parametrize("how", ["transitions", "image"])
def test_the_one_that_differs_stops_and_comes_back_empty(watched: Cluster, how: str) -> None:
    _, (victim, other) = watched.roles()
    make_differ(watched, victim, how)
    process = watched.process(victim)
    with Raw(watched.nodes[other].beanstalk, timeout_s=30) as client:
        jobs = [client.put(b"before") for _ in range(20)]
        marked = client.put(MARK)
        began = time.monotonic()
        while process.status() is None:
            jobs.append(client.put(b"meanwhile"))
            assert time.monotonic() - began < DIFFERS_MAX_S, process.story()
        # A non-zero exit status, and one line that names the difference and the remedy.
        assert process.wait() == 1
        reason = process.log.read_text().splitlines()[-1]
        assert "this replica differs from 2 of 3 members at index" in reason
        assert ("state hash" if how == "transitions" else "image") in reason
        assert "--rejoin" in reason
        jobs += [client.put(b"after") for _ in range(20)]
        client.ask(b"peek %d" % marked, b"FOUND %d %d" % (marked, len(MARK)), MARK)
        others = [number for number in range(3) if number != victim]
        assert [watched.process(number).status() for number in others] == [None, None]

        # As the message and docs/operating.md say: move the data away and start with an empty disk.
        data = watched.nodes[victim].directory / "data"
        shutil.move(data, data.with_name("inspect"))
        tell_how(watched, victim, "honest", DIGEST_PERIOD_S[how])
        watched.start(victim, ["--rejoin"])
        watched.wait_until_serving(victim)
        wait_until(lambda: standing(data) == VOTER, REJOIN_TIMEOUT_S, "it votes again")
        with Raw(watched.nodes[victim].beanstalk) as again:
            line, body = again.command(b"peek %d" % marked)
            assert (line, body) == (b"FOUND %d %d" % (marked, len(MARK)), MARK)
            for job in [*jobs, marked]:
                again.ask(b"delete %d" % job, b"DELETED")


def lead(cluster: Cluster, number: int) -> None:
    """Restart leaders until this node leads: among equal successors the last by name wins."""
    for _ in range(ATTEMPTS):
        leader = cluster.leader()
        if leader == number:
            return
        cluster.terminate(leader)
        cluster.start(leader)
        cluster.wait_until_serving(leader)
    assert cluster.leader() == number


@pytest.mark.parametrize("how", ["image"])
def test_a_leader_that_differs_stops_and_another_one_leads(watched: Cluster, how: str) -> None:
    victim = len(watched.nodes) - 1
    make_differ(watched, victim, how)
    lead(watched, victim)
    process = watched.process(victim)
    with Raw(watched.nodes[0].beanstalk, timeout_s=30) as client:
        marked = client.put(MARK)
        assert process.wait(DIFFERS_MAX_S) == 1
        reason = process.log.read_text().splitlines()[-1]
        assert "this replica differs from 2 of 3 members at index" in reason
        # A put that is sent on before the link's end is read has an unknown outcome.
        assert watched.leader() != victim
        assert client.put(b"after") > marked
        client.ask(b"peek %d" % marked, b"FOUND %d %d" % (marked, len(MARK)), MARK)
