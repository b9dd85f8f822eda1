"""Strangers that hold all connections of the ports of gRPC, and come again in a loop.

Operators with a token and nodes that fetch a snapshot must find a place all the same. Which
connections are closed for them is tested in tests/unit/beanpoled/test_crowding.py.
"""

import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from beanpoled.disk.identity import VOTER
from beanpoled.rpc.door import CALLERS_MAX
from tests.integration.support.commands import Commands
from tests.integration.support.disks import standing
from tests.integration.support.nodes import QUICK, Cluster, Node, http_get
from tests.integration.support.raw import Raw
from tests.integration.support.strangers import Strangers
from tests.integration.support.waiting import wait_until

VICTIM = 2
# Logs are cut so early that an empty node needs a snapshot.
SHORT = {"wal_segment_bytes": 65536, "log_retain_bytes": 65536, "log_memory_bytes": 65536}
BODY = bytes(50_000)
JOBS = 10
# On a loaded machine; a snapshot that could not be fetched is asked for again after a pause.
LONG_S = 60.0


def token() -> bytes:
    return Path(os.environ["BEANPOLE_TOKEN_FILE"]).read_bytes().strip()


def is_cut(node: Node) -> bool:
    """Whether the first entries are no more in a node's log."""
    found = re.search(r"^beanpole_first_index (\d+)$", http_get(node.http, "/metrics")[1], re.M)
    assert found is not None
    return int(found[1]) > 1


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three nodes with a secret, and an administrator whose token the commands have."""
    secret, token = tmp_path / "secret", tmp_path / "token"
    secret.touch(0o600)
    secret.write_text("the secret of a cluster")
    settings = {**QUICK, **SHORT, "peer_secret_file": str(secret)}
    with Cluster(tmp_path / "cluster", settings=settings).running() as cluster:
        run = Commands(*[node.grpc for node in cluster.nodes])
        run("user set root --right all=all:*")
        token.write_text(run("user token root"))
        monkeypatch.setenv("BEANPOLE_TOKEN_FILE", str(token))
        run("user set anonymous")
        yield cluster


@pytest.mark.parametrize("speaks", [True, False], ids=["of HTTP/2", "that say nothing"])
def test_operators_and_nodes_find_a_place_among_strangers(guarded: Cluster, speaks: bool) -> None:
    cluster = guarded
    data = cluster.nodes[VICTIM].directory / "data"
    with Raw(cluster.nodes[0].beanstalk) as client:
        client.ask(b"auth " + token(), b"ACCEPTED")
        jobs = [client.put(BODY) for _ in range(JOBS)]
    ports = [node.grpc for node in cluster.nodes]
    with Strangers(ports, CALLERS_MAX + 50, speaks).running() as strangers:
        wait_until(lambda: strangers.have_filled(2 * CALLERS_MAX), LONG_S, "the ports are full")
        for node in cluster.nodes:
            run = Commands(node.grpc)
            assert "n2" in run("status")
            assert "root" in run("user list")
            run("snapshot")
            wait_until(partial(is_cut, node), LONG_S, "its log is cut")
        cluster.kill(VICTIM)
        shutil.rmtree(data)
        cluster.start(VICTIM, ["--rejoin"])
        cluster.wait_until_serving(VICTIM)
        wait_until(lambda: standing(data) == VOTER, LONG_S, "the node has the full state")
        assert strangers.have_filled(2 * CALLERS_MAX)
    with Raw(cluster.nodes[VICTIM].beanstalk) as client:
        client.ask(b"auth " + token(), b"ACCEPTED")
        for job in jobs:
            client.ask(b"delete %d" % job, b"DELETED")
