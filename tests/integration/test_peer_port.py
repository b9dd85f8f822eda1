"""Invalid data on a node's peer port ends its own connection and nothing else.

The tests also run on compiled nodes, where a wrong frame once stopped the node.
"""

import socket
from contextlib import suppress

import pytest

from beanpoled.links import link
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw

# Below the 5 s after which a node closes connections without an introduction.
TIMEOUT_S = 3.0
STRANGE = {
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "a long frame": link.encode_frame(link.HELLO, bytes(link.HELLO_MAX_BYTES + 1)),
    "a wrong checksum": link.encode_frame(link.HELLO, b"hello")[:-1] + b"!",
    "no hello": link.encode_frame(link.HELLO, b"hello") + link.encode_frame(link.AUTH, bytes(32)),
    "an unknown kind": link.encode_frame(1, b"append"),
    "a refusal": link.encode_frame(link.REFUSE, b"go away"),
}


def send_and_wait_for_end(address: tuple[str, int], data: bytes) -> None:
    with socket.create_connection(address, TIMEOUT_S) as stranger, suppress(ConnectionResetError):
        stranger.sendall(data)
        while stranger.recv(65536):
            pass


@pytest.mark.parametrize("data", STRANGE.values(), ids=STRANGE.keys())
def test_a_stranger_is_sent_away_and_the_node_goes_on(shared: Cluster, data: bytes) -> None:
    for node in shared.nodes:
        host, _, port = str(node.peer).rpartition(":")
        send_and_wait_for_end((host, int(port)), data)
        with Raw(node.beanstalk) as client:
            client.ask(b"delete %d" % client.put(b"still here"), b"DELETED")
