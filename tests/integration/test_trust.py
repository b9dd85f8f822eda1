"""The shared secret of real nodes: read from a file, replaced at run time; invalid proofs."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from beanpole.client.rpc import detail_of
from beanpole.pb import peer_pb2, peer_pb2_grpc
from beanpoled.links import link
from beanpoled.rpc.proofs import OLD_PROOF_KEY, Metadata, old_proof
from tests.integration.support.nodes import Cluster, Node, http_get
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

FIRST = "the first secret of a cluster"
SECOND = "the second secret of a cluster"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secret") / "file"
    path.touch(0o600)
    path.write_text(FIRST + "\n")
    return path


@pytest.fixture(scope="module")
def cluster(secret: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(directory, settings={"peer_secret_file": str(secret)})
    with cluster.running():
        cluster.wait_until_all_serve()
        yield cluster


def refused(node: Node) -> dict[str, int]:
    """Return how often the node refused a proof, by reason."""
    name = 'beanpole_peer_refused_total{reason="'
    lines = [line for line in http_get(node.http, "/metrics")[1].splitlines() if name in line]
    return {line.split('"')[1]: int(line.split()[-1]) for line in lines}


def dial(node: Node) -> socket.socket:
    host, _, port = node.peer.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def read_frame(raw: socket.socket, reader: link.FrameReader) -> link.Frame:
    while (frame := reader.next()) is None:
        data = raw.recv(65536)
        if not data:
            raise EOFError
        reader.feed(data)
    return frame


def ends(raw: socket.socket) -> bool:
    """Read until the node closes the connection."""
    with suppress(ConnectionResetError):
        while raw.recv(65536):
            pass
    return True


def test_replayed_and_reflected_proofs_of_links_are_refused(cluster: Cluster) -> None:
    node = cluster.nodes[2]
    before = refused(node)
    with dial(node) as raw:
        reader = link.FrameReader()
        its = read_frame(raw, reader)
        values = list(link._decode_fields(its[1]))
        values[3:6] = ["n1", values[4], os.urandom(16)]
        mine = link.Handshake(link._decode_hello(tuple(values)), FIRST.encode(), "n2")
        hello = mine.start()
        proof = mine.receive(its)
        raw.sendall(hello + proof)
        assert read_frame(raw, reader)[0] == link.AUTH
        assert read_frame(raw, reader)[0] == link.REFUSE, "authentic, with the disk of another"
    with dial(node) as raw:
        raw.sendall(hello + proof)
        assert ends(raw)
    assert refused(node).get("wrong_proof", 0) == before.get("wrong_proof", 0) + 1
    with dial(node) as raw:
        its = read_frame(raw, link.FrameReader())
        raw.sendall(link.encode_frame(*its))
        assert ends(raw)
    assert refused(node).get("reflected", 0) == before.get("reflected", 0) + 1
    with Raw(cluster.nodes[0].beanstalk) as client:
        client.ask(b"delete %d" % client.put(b"service goes on"), b"DELETED")


def test_the_constant_proof_of_older_releases_is_refused_after_the_upgrade(
    cluster: Cluster,
) -> None:
    with grpc.insecure_channel(cluster.nodes[0].grpc) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        metadata: Metadata = ((OLD_PROOF_KEY, old_proof(FIRST.encode(), "test")),)

        def reason() -> str:
            try:
                stub.NodeInfo(peer_pb2.NodeInfoRequest(), timeout=TIMEOUT_S, metadata=metadata)
            except grpc.RpcError as error:
                return detail_of(error).reason
            return "taken"

        wait_until(lambda: reason() == "PROOF_OLD", TIMEOUT_S)
        metadata = ()
        assert reason() == "PROOF_REQUIRED"


def test_a_secret_is_replaced_while_the_nodes_serve(cluster: Cluster, secret: Path) -> None:
    secret.write_text(SECOND)
    logs = [node.directory / "output.log" for node in cluster.nodes]
    for number in range(3):
        os.kill(cluster.pid(number), signal.SIGHUP)
    wait_until(
        lambda: all("peer_secret is another one" in log.read_text() for log in logs), TIMEOUT_S
    )
    with Raw(cluster.nodes[0].beanstalk) as client:
        client.ask(b"delete %d" % client.put(b"links stay"), b"DELETED")
    cluster.kill(2)
    cluster.start(2)
    cluster.wait_until_serving(2)
    for log in logs:
        text = log.read_text()
        assert FIRST not in text and SECOND not in text
