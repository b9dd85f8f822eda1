"""A waiting node names the missing members and the reasons: in logs, status and health page.

Its peers log that it has made no link to them.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.nodes import QUICK, Cluster, http_get, status
from tests.integration.support.raw import Address
from tests.integration.support.waiting import wait_until


@pytest.fixture
def silent() -> Iterator[Address]:
    """An address that never answers: its queue of connections is full."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        host, port = server.getsockname()
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex((host, port))
        yield f"{host}:{port}"


def says(cluster: Cluster, number: int, words: str) -> bool:
    """Whether a node has logged these words."""
    return words in (cluster.nodes[number].directory / "output.log").read_text()


def test_a_node_that_is_alone_says_why_each_of_the_others_is_away(
    tmp_path: Path, silent: Address
) -> None:
    cluster = Cluster(tmp_path / "cluster", dial={0: {"n2": silent}})
    node, refusing = cluster.nodes[0], cluster.nodes[1]
    words = (
        "waiting for all members to found the cluster: "
        f"n1 {refusing.peer} refused, n2 {silent} timed out"
    )
    try:
        cluster.start(0)
        cluster.start(2)  # it dials neither of the others
        wait_until(lambda: says(cluster, 0, f"warning: starting: {words}"), 60)
        found = status(node)["nodes"][0]
        assert (found["state"], found["waits"]) == ("starting", words)
        code, page = http_get(node.http, "/readyz")
        assert code == 503 and f"[-]state: starting, {words}\n" in page
        wait_until(lambda: says(cluster, 2, "n0 has made no link to this node"), 60)
    finally:
        cluster.close()


def test_a_member_with_another_secret_is_named(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", count=2)
    path = cluster.nodes[1].directory / "node.toml"
    path.write_text(f'peer_secret = "not what the others have"\n{path.read_text()}')
    words = f"n1 {cluster.nodes[1].peer} answers, but n1 has another peer_secret"
    try:
        cluster.start_all(wait=False)
        wait_until(lambda: says(cluster, 0, f"to found the cluster: {words}"), 60)
        wait_until(lambda: says(cluster, 1, "n0 has made no link to this node"), 60)
    finally:
        cluster.close()


def test_a_node_that_is_cut_off_says_so_and_goes_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", settings=QUICK)
    node = cluster.nodes[0]
    try:
        cluster.start_all()
        assert "[+]state: serving\n" in http_get(node.http, "/readyz")[1]
        assert status(node)["nodes"][0]["state"] == "serving"
        for number in (1, 2):
            cluster.kill(number)
        wait_until(lambda: says(cluster, 0, "state: cut off, was serving"), 60)
        refused = ", ".join(f"{one.id} {one.peer} refused" for one in cluster.nodes[1:])
        words = f"cut off: waiting for a majority: {refused}"
        wait_until(lambda: says(cluster, 0, words), 60)
        assert status(node)["nodes"][0]["state"] == "cut off"
        assert "[-]state: cut off, waiting for a majority: " in http_get(node.http, "/readyz")[1]
        cluster.start(1)
        wait_until(lambda: http_get(node.http, "/readyz")[0] == 200, 60)
        wait_until(lambda: says(cluster, 0, "state: serving, was "), 60)
        assert not says(cluster, 0, "Traceback")
    finally:
        cluster.close()
