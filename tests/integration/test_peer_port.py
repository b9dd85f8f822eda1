"""Invalid data on a node's peer port ends its own connection and nothing else.

The tests also run on compiled nodes, where a wrong frame once stopped the node.
"""

import socket
from contextlib import suppress

import pytest

from beanpoled.links import link
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw

TIMEOUT_S = 60.0
# The bytes sent, and the reason in the log: a node also closes a connection without an
# introduction, but after a while, and without a reason.
STRANGE = {
    "no frame": (b"GET / HTTP/1.1\r\n\r\n", "a frame of 542393671 bytes; 4096 are allowed"),
    "a long frame": (
        link.encode_frame(link.HELLO, bytes(link.HELLO_MAX_BYTES + 1)),
        "a frame of 4097 bytes; 4096 are allowed",
    ),
    "a wrong checksum": (
        link.encode_frame(link.HELLO, b"hello")[:-1] + b"!",
        "a frame of kind 128 with a wrong checksum",
    ),
    "no hello": (
        link.encode_frame(link.HELLO, b"hello") + link.encode_frame(link.AUTH, bytes(32)),
        "the hello cannot be read",
    ),
    "an unknown kind": (link.encode_frame(1, b"append"), "the first frame is no hello"),
    "a refusal": (
        link.encode_frame(link.REFUSE, b"go away"),
        "a refusal of one that has not proved who it is",
    ),
}


def send_and_wait_for_end(address: tuple[str, int], data: bytes) -> None:
    with socket.create_connection(address, TIMEOUT_S) as stranger, suppress(ConnectionResetError):
        stranger.sendall(data)
        while stranger.recv(65536):
            pass


@pytest.mark.parametrize(("data", "reason"), STRANGE.values(), ids=STRANGE.keys())
def test_a_stranger_is_sent_away_and_the_node_goes_on(
    shared: Cluster, data: bytes, reason: str
) -> None:
    for number, node in enumerate(shared.nodes):
        host, _, port = str(node.peer).rpartition(":")
        send_and_wait_for_end((host, int(port)), data)
        shared.process(number).wait_for_words(f"link to an unknown node closed: {reason}\n")
        with Raw(node.beanstalk) as client:
            client.ask(b"delete %d" % client.put(b"still here"), b"DELETED")
