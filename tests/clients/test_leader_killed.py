"""Kill the leader while each real client waits for a job and each real worker has one.

The server is always Beanpole: gearmand has no leader.
"""

import threading
from contextlib import ExitStack
from pathlib import Path

from tests.clients.harness import Place, Program, Reply
from tests.clients.libraries import ALL
from tests.clients.matrix import TIMEOUT_S
from tests.clients.places import place_of
from tests.integration.conftest import cluster
from tests.integration.support.gearmand import Packets
from tests.integration.support.nodes import Cluster
from tests.integration.support.waiting import wait_until

__all__ = ["cluster"]


def test_leader_killed(cluster: Cluster, tmp_path: Path) -> None:
    place, gate = place_of(cluster), tmp_path / "gate"
    replies: dict[Program, Reply] = {}

    def submit(program: Program) -> None:
        replies[program] = program.submit(place, f"{program}-wait", str(gate))

    threads = [threading.Thread(target=submit, args=(program,)) for program in ALL]
    with ExitStack() as running:
        for program in ALL:
            running.enter_context(program.working(place, program.name, tmp_path))
        for thread in threads:
            thread.start()
        wait_until(lambda: running_jobs(place) == len(ALL), TIMEOUT_S, "a job of each runs")
        cluster.kill(cluster.leader())
        gate.touch()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert {str(program): reply.one("complete") for program, reply in replies.items()} == {
            str(program): "opened" for program in ALL
        }
        # All submitters and workers still work.
        for program in ALL:
            reply = program.submit(place, f"{program}-reverse", "abc")
            assert reply.one("complete") == "cba"


def running_jobs(place: Place) -> int:
    """Return the number of running jobs in the cluster."""
    client = Packets(place.submitter)
    try:
        return sum(int(line.split("\t")[2]) for line in client.admin("status"))
    finally:
        client.close()
