"""A node ends the connection of an idle client, as at a restart: the next request is not lost."""

import socket
import ssl
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from beanpole.client import beanstalk, workq
from tests.unit.client.encrypted import certificates
from tests.unit.client.scripted import end

TIMEOUT_S = 60
JOB = uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c4")
ID = str(JOB).encode()
Exchange = tuple[Callable[[Any], object], bytes, bytes]

LEASE: Exchange = (lambda client: client.lease([b"q"], 0), b"lease q 0\r\n", b"-TIMEOUT\r\n")
FAIL: Exchange = (lambda client: client.fail(JOB), b"fail %b 0\r\n\r\n" % ID, b"+OK\r\n")
RUN: Exchange = (
    lambda client: client.run(b"q", b"x", wait_ms=1, job=JOB, ttr_ms=2),
    b"run %b q 2 1 1\r\nx\r\n" % ID,
    b"-TIMEOUT\r\n",
)
KICK: Exchange = (lambda client: client.kick(3), b"kick 3\r\n", b"KICKED 1\r\n")
PUT: Exchange = (
    lambda client: client.put(b"x", 1, 2, 3),
    b"put 1 2 3 1\r\nx\r\n",
    b"INSERTED 7\r\n",
)


def converse(
    listener: socket.socket, tls: ssl.SSLContext | None, wanted: bytes, reply: bytes
) -> bytes:
    """Answer one request on a connection, and end it; return the request."""
    node, _ = listener.accept()
    if tls is not None:
        node = tls.wrap_socket(node, server_side=True)
    node.settimeout(TIMEOUT_S)
    with node:
        got = b""
        while len(got) < len(wanted) and (data := node.recv(len(wanted) - len(got))):
            got += data
        node.sendall(reply)
        end(node)
    return got


def check(make: Any, exchanges: tuple[Exchange, ...], tls: ssl.SSLContext | None = None) -> None:
    """Let a client send each request on a connection that the node ends behind its reply."""
    with ThreadPoolExecutor() as pool, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        with make([f"127.0.0.1:{listener.getsockname()[1]}"], patience_s=0) as client:
            for ask, wanted, reply in exchanges:
                got = pool.submit(converse, listener, tls, wanted, reply)
                ask(client)
                assert got.result(TIMEOUT_S) == wanted


@pytest.mark.parametrize(
    ("make", "exchanges"),
    [
        (workq.Client, (LEASE, FAIL, RUN)),
        (beanstalk.Client, (KICK, PUT, KICK)),
    ],
    ids=["workq", "beanstalk"],
)
def test_an_idle_client_connects_again(make: Any, exchanges: tuple[Exchange, ...]) -> None:
    """The outcome of a request that no node had got was unknown."""
    check(make, exchanges)


def test_an_idle_client_of_tls_connects_again(tmp_path: Path) -> None:
    certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "node.pem", tmp_path / "node.key")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    def make(addresses: list[str], patience_s: float) -> workq.Client:
        return workq.Client(addresses, patience_s=patience_s, tls=trusting)

    check(make, (LEASE, FAIL, RUN), tls)
