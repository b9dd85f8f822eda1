"""How the synchronous and the asyncio client perform the steps, on real sockets."""

import asyncio
import select
import signal
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

from beanpole.client import aio_wire, blocking_wire
from beanpole.client.sansio.steps import (
    Close,
    Connect,
    Endpoint,
    IsGone,
    Pause,
    Probe,
    Receive,
    Resolve,
    Steps,
)
from beanpoled.cli.certs import make_ca, make_certificate
from tests.unit.client.scripted import Node, end


def resolving(*asked: Resolve) -> Steps[list[Endpoint]]:
    found: list[Endpoint] = []
    for one in asked:
        found += yield one
    return found


def run(kind: Any, steps: Steps[Any], **settings: Any) -> Any:
    wire = kind(**settings)
    done = wire.run(steps)
    return asyncio.run(done) if kind is aio_wire.Wire else done


def run_uvloop(kind: Any, steps: Steps[Any], **settings: Any) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(kind(**settings).run(steps))


WIRES = pytest.mark.parametrize("kind", [blocking_wire.Wire, aio_wire.Wire])


@WIRES
def test_a_link_local_address_keeps_its_zone(kind: Any) -> None:
    assert run(kind, resolving(Resolve("fe80::1%1", 80))) == [Endpoint("fe80::1%1", 80)]
    assert run(kind, resolving(Resolve("::1", 80))) == [Endpoint("::1", 80)]
    assert run(kind, resolving(Resolve("127.0.0.1", 80))) == [Endpoint("127.0.0.1", 80)]


@WIRES
def test_names_with_one_address_are_told_apart_by_their_ports(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's certificate is checked against the name that is dialled."""
    told: list[tuple[int, str]] = []

    class Tls:
        """A context of TLS that refuses each connection."""

        def wrap_socket(self, connected: socket.socket, server_hostname: str) -> None:
            told.append((connected.getpeername()[1], server_hostname))
            raise ConnectionResetError

    async def opened(_: str, port: int, *, server_hostname: str, **__: Any) -> None:
        told.append((port, server_hostname))
        raise ConnectionResetError

    def connecting() -> Steps[None]:
        for endpoint in (yield from resolving(Resolve("a.test", a), Resolve("b.test", b))):
            with pytest.raises(ConnectionResetError):
                yield Connect(endpoint, 60.0)

    def found(_: str, port: int, *__: int, **___: int) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    monkeypatch.setattr(asyncio, "open_connection", opened)
    place = ("127.0.0.1", 0)
    with socket.create_server(place) as one, socket.create_server(place) as other:
        a, b = one.getsockname()[1], other.getsockname()[1]
        run(kind, connecting(), tls=Tls())
    assert told == [(a, "a.test"), (b, "b.test")]


def test_a_wait_that_the_handler_of_a_signal_ends_leaves_no_connection() -> None:
    """A `reserve` whose caller has gone on would take the next job."""

    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    def waiting(place: tuple[str, int]) -> Steps[bytes]:
        yield Connect(Endpoint(*place), 60.0)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        found: bytes = yield Receive(60.0)
        return found

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            wire = blocking_wire.Wire()
            with pytest.raises(Alarm):
                wire.run(waiting(silent.getsockname()))
            connected, _ = silent.accept()
            with connected:
                connected.settimeout(60)
                assert connected.recv(1) == b"", "it is closed"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@WIRES
def test_a_probe_tells_what_a_node_answers(kind: Any) -> None:
    def probing() -> Steps[list[bytes]]:
        first = yield Probe(Endpoint(*answering.listener.getsockname()), 60.0, b"hi\r\n")
        second = yield Probe(Endpoint(*closing.listener.getsockname()), 60.0, b"hi\r\n")
        with pytest.raises(TimeoutError):
            yield Probe(Endpoint(*silent.getsockname()), 0.05, b"hi\r\n")
        return [first, second]

    answering, closing = Node([(b"hi\r\n", b"USING t\r\n")]), Node([(b"hi\r\n", None)])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert run(kind, probing()) == [b"USING t\r\n", b""]
    answering.finish()
    closing.finish()


def connected_until_it_ends(tls: ssl.SSLContext | None = None) -> Steps[tuple[bool, bool]]:
    """Return whether a connection counts as gone before the node closes it, and thereafter."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:

        def accept() -> socket.socket:
            node, _ = listener.accept()
            if tls is not None:
                node = tls.wrap_socket(node, server_side=True)
            node.sendall(b"x")
            return node

        accepted = pool.submit(accept)
        yield Connect(Endpoint(*listener.getsockname()), 60.0)
        yield Receive(60.0)  # uvloop sends the last bytes of a handshake only where it turns
        with accepted.result() as node:
            before = yield IsGone()
            end(node)
            after = yield IsGone()
        yield Close()
        return before, after


ENDING = pytest.mark.parametrize(
    ("kind", "runs"),
    [(blocking_wire.Wire, run), (aio_wire.Wire, run), (aio_wire.Wire, run_uvloop)],
    ids=["blocking", "asyncio", "uvloop"],
)


@ENDING
@pytest.mark.parametrize("is_linux", [True, False], ids=["Linux", "other"])
def test_a_connection_that_the_node_has_closed_is_gone(
    kind: Any, runs: Callable[..., Any], is_linux: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop does not turn between, as in a program that computes: a put would be lost."""
    if not is_linux:
        monkeypatch.delattr(select, "POLLRDHUP")
    assert runs(kind, connected_until_it_ends()) == (False, True)


@ENDING
def test_a_connection_with_tls_that_the_node_has_closed_is_gone(
    kind: Any, runs: Callable[..., Any], tmp_path: Path
) -> None:
    make_ca(tmp_path, "1")
    make_certificate(tmp_path, "a", ["127.0.0.1"], "1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "a.pem", tmp_path / "a.key")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    assert runs(kind, connected_until_it_ends(tls), tls=trusting) == (False, True)


@pytest.mark.parametrize("is_read", [False, True])
@WIRES
def test_a_node_that_sends_unasked_counts_as_gone(kind: Any, is_read: bool) -> None:
    def steps() -> Steps[bool]:
        yield Connect(Endpoint(*listener.getsockname()), 60)
        connection, _ = listener.accept()
        with connection:
            before: bool = yield IsGone()
            connection.sendall(b"INSERTED 7\r\n")
            until = time.monotonic() + 30
            after = False
            while not after and time.monotonic() < until:
                if is_read:
                    yield Pause(0)  # the loop of asyncio reads what has arrived
                after = yield IsGone()
            yield Close()
            return not before and after

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert run(kind, steps())
