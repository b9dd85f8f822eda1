"""Libraries for several servers get the addresses of all nodes, and one node is killed.

The server is always Beanpole. Libraries for a single server are described in docs/migrating.md.
"""

from contextlib import ExitStack
from pathlib import Path

from tests.clients.harness import PYTHON, Place
from tests.clients.libraries import DEBIAN
from tests.clients.matrix import TIMEOUT_S, lines
from tests.clients.places import place_of
from tests.integration.conftest import cluster
from tests.integration.support.gearmand import Packets
from tests.integration.support.nodes import Cluster
from tests.integration.support.waiting import wait_until

__all__ = ["cluster"]

PROGRAMS = (*PYTHON[:2], *DEBIAN[1:])


def test_workers_at_all_nodes(cluster: Cluster, tmp_path: Path, paper: Path) -> None:
    """A job runs once, although its worker is at three nodes; also after one node is killed."""
    place_of(cluster)
    leader = cluster.leader()
    addresses = [node.speaks("gearman") for node in cluster.nodes]
    dying = next(number for number in range(3) if number != leader)
    everywhere = ",".join(addresses)
    all_nodes = Place(everywhere, everywhere)
    left = Place(addresses[leader], addresses[leader])
    with ExitStack() as running:
        for program in PROGRAMS:
            running.enter_context(program.working(all_nodes, program.name, tmp_path))
        for program in PROGRAMS:
            program.submit(left, f"{program}-note", f"{paper} {program}", background=True)
        assert sorted(lines(paper, len(PROGRAMS))) == sorted(map(str, PROGRAMS))
        cluster.kill(dying)
        # Submitters whose first address is the killed node go to the next.
        first_dead = ",".join([addresses[dying], addresses[leader]])
        for program in PROGRAMS:
            reply = program.submit(Place(first_dead, everywhere), f"{program}-reverse", "abc")
            assert reply.one("complete") == "cba"
        assert len(paper.read_text().splitlines()) == len(PROGRAMS)
        wait_until(lambda: nothing_runs(left), TIMEOUT_S, "all is done")


def nothing_runs(place: Place) -> bool:
    """Whether no job is left."""
    client = Packets(place.submitter)
    try:
        return all(line.split("\t")[1] == "0" for line in client.admin("status"))
    finally:
        client.close()
