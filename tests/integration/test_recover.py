"""Two of three disks are lost: the procedure in docs/operating.md, followed with real nodes.

The contents of disks and the refusals of the commands are tested in
tests/unit/beanpoled/test_offline.py.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support.nodes import Cluster, Nodes, http_get, status
from tests.integration.support.program import ran
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

SURVIVOR = 2
REFUSAL_TIMEOUT_S = 60.0


def beanpole(*arguments: str) -> str:
    done = ran(*arguments)
    assert done.status == 0, done
    return done.said


def data_of(nodes: Nodes, number: int) -> Path:
    return nodes.nodes[number].directory / "data"


def inspect(cluster: Cluster, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(beanpole("inspect", str(data_of(cluster, number)), "--json"))
    return found


def lose_two_disks(cluster: Cluster) -> None:
    for number in range(len(cluster.nodes)):
        cluster.kill(number)
        if number != SURVIVOR:
            shutil.rmtree(data_of(cluster, number))


def wait_until_applied_everywhere(cluster: Cluster) -> None:
    """Wait until all nodes have applied the leader's log, so that any disk may be the survivor."""

    def equal() -> bool:
        nodes = status(cluster.nodes[0])["nodes"]
        return len({node.get("applied_index") for node in nodes}) == 1

    wait_until(equal, REFUSAL_TIMEOUT_S, "all nodes have applied the same")


def births(cluster: Cluster) -> set[str]:
    """Return the birth ids that the nodes report, while all nodes are up."""

    def reported() -> set[str]:
        nodes = status(cluster.nodes[0])["nodes"]
        # Nodes that were started together reach each other by gRPC only after a pause.
        return {node["birth"] for node in nodes} if all_reachable(nodes) else set()

    found = wait_until(reported, REFUSAL_TIMEOUT_S, "all nodes report it")
    assert len(found) == 1, found
    return found


def all_reachable(nodes: list[dict[str, Any]]) -> bool:
    return all(node["reachable"] for node in nodes)


def test_every_job_of_the_last_disk_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    with Raw(cluster.nodes[0].beanstalk) as client, Raw(cluster.nodes[1].beanstalk) as worker:
        jobs = {client.put(b"job %d" % number): b"job %d" % number for number in range(200)}
        reserved = worker.command(b"reserve")[0].split()[1]
        worker.ask(b"bury %d 7" % min(set(jobs) - {int(reserved)}), b"NOT_FOUND")
        wait_until_applied_everywhere(cluster)
    before = births(cluster)
    lose_two_disks(cluster)

    survivor = data_of(cluster, SURVIVOR)
    found = inspect(cluster, SURVIVOR)
    assert found["damage"] == []
    assert sum(found["jobs"].values()) == len(jobs)
    out = tmp_path / "recovered"
    assert "Nothing was written" in beanpole("recover", str(survivor), "--to", str(out))
    told = beanpole("recover", str(survivor), "--to", str(out), "--yes")
    assert "without --rejoin" in told
    for number, node in enumerate(cluster.nodes):
        if number == SURVIVOR:
            survivor.rename(survivor.with_name("data.lost"))
        shutil.copytree(out / node.id, data_of(cluster, number))
    cluster.start_all()

    with Raw(cluster.nodes[0].beanstalk) as client:
        assert client.put(b"after") > max(jobs)
        for job, body in jobs.items():
            client.ask(b"reserve-job %d" % job, b"RESERVED %d %d" % (job, len(body)), body)
            client.ask(b"delete %d" % job, b"DELETED")
    assert births(cluster).isdisjoint(before)


def test_a_disk_of_the_old_cluster_stays_outside(cluster: Cluster, tmp_path: Path) -> None:
    """A machine that was considered lost restarts, next to the new cluster."""
    for number in range(len(cluster.nodes)):
        cluster.kill(number)
    out = tmp_path / "recovered"
    beanpole("recover", str(data_of(cluster, SURVIVOR)), "--to", str(out), "--yes")
    for number, node in enumerate(cluster.nodes[:SURVIVOR]):
        shutil.rmtree(data_of(cluster, number))
        shutil.copytree(out / node.id, data_of(cluster, number))
    old = cluster.start(SURVIVOR)  # with the disk of the old cluster
    for number in range(SURVIVOR):
        cluster.start(number)
    for number in range(SURVIVOR):
        cluster.wait_until_serving(number)
    with Raw(cluster.nodes[0].beanstalk) as client:
        client.put(b"the new one works")
    wait_until(lambda: "birth" in old.log.read_text(), REFUSAL_TIMEOUT_S, "the old disk is refused")
    try:
        ready = http_get(cluster.nodes[SURVIVOR].http, "/readyz")[0]
    except ConnectionError:
        ready = 0  # the process has ended
    assert ready != 200


def test_the_lost_token_of_the_administrator_is_replaced(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--addr", ",".join(node.grpc for node in cluster.nodes))
    beanpole("user", "set", "root", "--right", "all=all:*", *asked)
    lost = beanpole("user", "token", "root", *asked).strip()
    monkeypatch.setenv("BEANPOLE_TOKEN", lost)
    beanpole("user", "set", "worker", "--right", "work,put=default", *asked)
    worker = beanpole("user", "token", "worker", *asked).strip()
    beanpole("user", "set", "anonymous", *asked)
    with Raw(cluster.nodes[0].beanstalk) as client:
        client.ask(b"auth " + worker.encode(), b"ACCEPTED")
        job = client.put(b"of the old cluster")
    wait_until_applied_everywhere(cluster)
    for number in range(len(cluster.nodes)):
        cluster.kill(number)

    out = tmp_path / "recovered"
    told = beanpole(
        *("recover", str(data_of(cluster, SURVIVOR)), "--to", str(out)),
        *("--administrator", "root", "--yes"),
    )
    token = told.partition("The new token of root: ")[2].split()[0]
    for number, node in enumerate(cluster.nodes):
        shutil.rmtree(data_of(cluster, number))
        shutil.copytree(out / node.id, data_of(cluster, number))
    cluster.start_all()

    monkeypatch.setenv("BEANPOLE_TOKEN", token)
    beanpole("user", "set", "anonymous", "--right", "put=intake", *asked)
    with Raw(cluster.nodes[1].beanstalk) as client:
        client.ask(b"auth " + worker.encode(), b"ACCEPTED")
        client.ask(b"reserve-job %d" % job, b"RESERVED %d 18" % job, b"of the old cluster")
