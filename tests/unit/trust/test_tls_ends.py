"""TLS at rare moments: the end while input waits, an unreadable certificate, errors of accept."""

import asyncio
import errno
import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import uvloop

from beanpoled.host import tls
from beanpoled.host.dials import why
from beanpoled.host.tls_stream import RECORD_BYTES_MAX, SLICE_BYTES, TlsStream
from beanpoled.trust.certificates import Certificates, Files
from beanpoled.trust.handshakes import DISPLACED, UNREADABLE, Handshakes, reason_of
from tests.unit.beanpoled.fakes import until
from tests.unit.trust.pairs import Above, Below, Pair, turn

# Errors of accept(2) beside those of a caller: of a connection that is gone, of the network, of a
# firewall, and of a system that is short of something.
ACCEPT_ERRORS = (
    *("ECONNABORTED", "EPROTO", "ENETDOWN", "EHOSTUNREACH", "ETIMEDOUT", "EPERM"),
    *("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"),
)


@pytest.mark.parametrize("size", [3 * RECORD_BYTES_MAX // 2, 3 * SLICE_BYTES])
def test_the_end_of_the_socket_waits_for_input_that_was_paused(pair: Pair, size: int) -> None:
    """The loop may tell the end before the call that `resume` has asked for: this ended a node."""
    pair.shake()
    pair.above.pauses = pair.above.stays = True
    pair.client.write(bytes(size))
    pair.deliver()
    assert pair.below.paused and len(pair.above.got) < size
    pair.above.transport.resume_reading()
    assert pair.stream.eof_received()
    while len(pair.above.got) < size:
        assert not pair.above.ends, "its last requests are not taken yet"
        pair.above.transport.resume_reading()
        turn(pair.loop)
    assert pair.above.got == bytes(size) and pair.above.ends == 1
    assert pair.stream.eof_received(), "the loop tells it again, if it has read again"
    assert pair.above.ends == 1


def test_nothing_is_kept_behind_the_end(pair: Pair) -> None:
    pair.shake()
    pair.above.stays = True
    pair.client.write(b"the last request")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.stream.data_received(pair.out.read() + bytes(2 * SLICE_BYTES))
    before = pair.stream._incoming.pending
    assert pair.above.got == b"the last request" and not pair.stream._rest
    for _ in range(3):
        pair.stream.data_received(bytes(SLICE_BYTES))
        pair.stream.data_received(bytes(2 * SLICE_BYTES))
    assert pair.stream._incoming.pending == before <= SLICE_BYTES and not pair.stream._rest


def test_a_handshake_may_be_given_up_before_it_has_its_socket(pair: Pair) -> None:
    stream = TlsStream(pair.loop, pair.stream._tls.context, lambda: pair.above)
    below = Below()
    assert stream.give_up()
    stream.connection_made(cast(asyncio.Transport, below))
    assert below.aborted and pair.above.transport is None
    pair.shake()
    assert not pair.stream.give_up() and not pair.below.closing


def make_odd(place: Path, name: str) -> None:
    """Make a certificate whose DNS name is no text, as a CA that copies requests signs it."""
    request, extensions = place / f"{name}.csr", place / f"{name}.ext"
    extensions.write_text("subjectAltName=DER:30:03:82:01:FF\n")
    line = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    line += ["-nodes", "-keyout", str(place / f"{name}.key"), "-out", str(request)]
    subprocess.run([*line, "-subj", f"/CN={name}"], check=True, capture_output=True)
    line = ["openssl", "x509", "-req", "-in", str(request), "-out", str(place / f"{name}.pem")]
    line += ["-CA", str(place / "ca.pem"), "-CAkey", str(place / "ca.key"), "-CAcreateserial"]
    line += ["-days", "1", "-extfile", str(extensions)]
    subprocess.run(line, check=True, capture_output=True)


def test_a_certificate_that_cannot_be_read_is_refused(folder: Path, pair: Pair) -> None:
    """The names were read after the handshake, where an exception ended the node."""
    make_odd(folder, "odd")
    other = Pair(folder, pair.loop, shown="odd")
    other.shake()
    error = other.stream.established.exception()
    assert isinstance(error, OSError) and reason_of(error) == UNREADABLE
    assert why(error) == "shows a certificate that is refused: certificate cannot be read"
    assert other.below.closing and other.above.transport is None


def accepting(folder: Path, listening: socket.socket, handshakes: Handshakes) -> tls.TlsAcceptor:
    """Accept clients with TLS."""
    loop = asyncio.get_running_loop()
    files = Files("tls_", str(folder / "a.pem"), str(folder / "a.key"), "", "")
    room = handshakes.of_clients
    made = (loop, listening, Certificates(files), handshakes, room, Above)
    return tls.TlsAcceptor(*made, "a client")


def listening_socket() -> socket.socket:
    """Return a listening socket."""
    listening = socket.socket()
    listening.setblocking(False)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


class Failing(socket.socket):
    """A listening socket whose first calls of `accept` fail, each with another error."""

    left: ClassVar = list(ACCEPT_ERRORS)

    def accept(self) -> tuple[socket.socket, Any]:
        """See `socket.socket`."""
        if self.left:
            number = getattr(errno, self.left.pop(0))
            raise OSError(number, os.strerror(number))
        return super().accept()


def test_no_error_of_accept_ends_a_node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "ACCEPT_PAUSE_S", 0)
    wrong: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: wrong.append(context))
        handshakes = Handshakes(1, 1, 0, lambda *_: None)
        files = Files("tls_", str(folder / "a.pem"), str(folder / "a.key"), "", "")
        with Failing() as listening:
            listening.setblocking(False)
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            made = (loop, listening, Certificates(files), handshakes, handshakes.of_clients, Above)
            acceptor = tls.TlsAcceptor(*made, "a client")
            client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
            place = listening.getsockname()
            async with asyncio.timeout(60):
                _, writer = await asyncio.open_connection(*place, ssl=client, server_hostname="a")
            writer.transport.abort()
            acceptor.close()

    uvloop.run(run())
    assert not wrong and not Failing.left


def test_an_error_of_the_task_that_accepts_is_seen(folder: Path) -> None:
    """The port stayed open, but no connection to it was accepted."""
    wrong: list[dict[str, Any]] = []

    class Broken(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            raise MemoryError

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        with listening_socket() as given, Broken(fileno=given.detach()) as listening:
            acceptor = accepting(folder, listening, Handshakes(1, 1, 0, lambda *_: None))
            _, writer = await asyncio.open_connection(*listening.getsockname())
            await until(lambda: wrong)
            writer.transport.abort()
            acceptor.close()

    uvloop.run(asyncio.wait_for(run(), 10))
    assert [type(one["exception"]) for one in wrong] == [MemoryError]


@pytest.mark.constants
def test_idle_connections_do_not_keep_others_out_of_a_full_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were left until their time was over, and newcomers were closed."""
    monkeypatch.setattr("beanpoled.trust.handshakes.DISPLACED_AFTER_S", 0.0)
    lines: list[str] = []

    async def run() -> None:
        handshakes = Handshakes(3, 9, 0, lambda line, _level=0: lines.append(line))
        with listening_socket() as listening:
            place = listening.getsockname()
            # The first ones are displaced before, or while, their tasks begin.
            idle = [await asyncio.open_connection(*place) for _ in range(9)]
            acceptor = accepting(folder, listening, handshakes)
            client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
            for count in (2, 1):
                _, writer = await asyncio.open_connection(
                    *place, ssl=client, server_hostname="a", local_addr=("127.0.0.2", 0)
                )
                await until(lambda: len(acceptor._tasks) == count)  # noqa: B023
                assert handshakes.in_progress == count
                writer.transport.abort()
                if count == 2:
                    idle.append(await asyncio.open_connection(*place))
                    await until(lambda: handshakes.in_progress == 3)
                    handshakes.of_clients.handshakes_max = 2
            for reader, _ in idle[:8]:
                assert await reader.read() == b"", "its socket is closed"
            assert not idle[9][0].at_eof()
            assert handshakes.refusals == {DISPLACED: 9}
            acceptor.close()
            await until(lambda: not acceptor._tasks)
            for reader, _ in idle[8:]:
                assert await reader.read() == b""
            for _, writer in idle:
                writer.close()
            assert handshakes.in_progress == 0
            assert handshakes.refusals == {DISPLACED: 9}, "the end of a node is no refusal"

    uvloop.run(asyncio.wait_for(run(), 60))
    (line,) = lines
    assert "refused a TLS handshake of a client at 127.0.0.1: handshakes_max, or" in line
