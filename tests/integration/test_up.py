"""`beanpole up`: its output and files, the jobs it keeps, and its stop."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support.nodes import LocalCluster, status
from tests.integration.support.processes import answers, is_running
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

TIMEOUT_S = 60.0
PORT_OFFSETS = {"beanstalk": 0, "peer": 10, "grpc": 20, "http": 30}


@pytest.fixture(params=[1, 3], ids=["1-node", "3-nodes"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "beanpole", request.param)
    try:
        yield cluster
    finally:
        cluster.close()


def test_up_writes_what_others_rely_on(local: LocalCluster) -> None:
    local.start_all()
    found = json.loads((local.directory / "cluster.json").read_text())
    assert list(found) == ["cluster", "nodes"]
    assert [node["id"] for node in found["nodes"]] == [f"n{at}" for at in range(local.count)]
    for number, node in enumerate(found["nodes"]):
        assert is_running(node["pid"])
        assert Path(node["dir"]) == local.directory / node["id"]
        for key, offset in PORT_OFFSETS.items():
            assert node[key] == f"127.0.0.1:{local.base + offset + number}"
            assert answers(node[key]), f"{key} of {node['id']}"
    seen = wait_until(lambda: whole_status(local), TIMEOUT_S, "all reach all, and one leads")
    assert [node["id"] for node in seen["nodes"]] == [node["id"] for node in found["nodes"]]


def whole_status(local: LocalCluster) -> dict[str, Any]:
    """Return the status by the first node, if it names the leader and has reached all nodes."""
    seen = status(local.nodes[0])
    leads = seen["leader"] == local.nodes[local.leader()].id
    return seen if leads and all(node["reachable"] for node in seen["nodes"]) else {}


def test_up_keeps_jobs(local: LocalCluster) -> None:
    local.start_all()
    with Raw(local.nodes[-1].beanstalk) as client:
        job = client.put(b"kept")
    assert local.terminate_all() == 0
    pids = [local.pid(number) for number in range(local.count)]
    assert not any(is_running(pid) for pid in pids)
    local.start_all()
    with Raw(local.nodes[0].beanstalk) as client:
        client.ask(b"reserve", b"RESERVED %d 4" % job, b"kept")
        client.ask(b"delete %d" % job, b"DELETED")


def test_a_killed_node_starts_by_its_command_line(local: LocalCluster) -> None:
    local.start_all()
    last = local.count - 1
    with Raw(local.nodes[last].beanstalk) as client:
        job = client.put(b"kept")
    local.kill(last)
    wait_until(lambda: not answers(local.nodes[last].beanstalk), TIMEOUT_S)
    local.start(last)
    local.wait_until_serving(last)
    with Raw(local.nodes[last].beanstalk) as client:
        client.ask(b"peek %d" % job, b"FOUND %d 4" % job, b"kept")
