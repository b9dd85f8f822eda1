"""TLS between a socket and a protocol, without either: input, output and their order."""

import _ssl
import asyncio
import contextlib
import ctypes
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from beanpoled.host.tls_stream import (
    RECORD_BYTES_MAX,
    RECORDS_IN_A_ROW_MAX,
    SILENT_BYTES_MAX,
    SLICE_BYTES,
    TURNS_IN_A_STEP,
    TlsStream,
    TurnLine,
)
from beanpoled.trust.certificates import Certificates, Files
from beanpoled.trust.handshakes import EXPIRED, reason_of
from tests.unit.trust.pairs import Above, Below, Pair, turn

BIG = bytes(range(256)) * 4096  # many records


def test_bytes_go_both_ways_whole_and_in_pieces(pair: Pair) -> None:
    pair.shake()
    pair.client.write(BIG)
    pair.deliver()
    assert pair.above.got == BIG
    pair.client.write(b"in single bytes")
    pair.deliver(step=1)
    assert pair.above.got == BIG + b"in single bytes"
    pair.above.transport.write(BIG)
    pair.above.transport.write(b"")
    pair.deliver()
    assert pair.read() == BIG


def test_a_large_reply_leaves_no_large_buffer(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL would keep a buffer of the size of each client's largest reply."""
    pair.shake()
    drain = pair.stream._drain
    sizes: list[int] = []

    def noted() -> bytes:
        sizes.append(pair.stream._outgoing.pending)
        return drain()

    monkeypatch.setattr(pair.stream, "_drain", noted)
    pair.above.transport.write(BIG)
    pair.deliver()
    assert pair.read() == BIG
    assert len(BIG) > 2 * SLICE_BYTES > max(sizes)


def test_what_comes_with_the_end_of_the_handshake_is_not_lost(pair: Pair) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.do_handshake()
    pair.deliver()
    pair.client.do_handshake()
    pair.client.write(b"at once")
    pair.deliver()
    assert pair.above.got == b"at once"


def test_nothing_is_handed_on_while_it_is_paused(pair: Pair) -> None:
    pair.shake()
    pair.above.pauses = True
    pair.client.write(b"one")
    pair.client.write(b"two")
    pair.deliver()
    assert pair.above.got == b"one"
    assert pair.below.paused and not pair.above.transport.is_reading()
    pair.above.transport.resume_reading()
    assert pair.above.transport.is_reading()
    turn(pair.loop)
    assert pair.above.got == b"onetwo"


def test_an_end_is_said_both_ways(pair: Pair) -> None:
    pair.shake()
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.deliver()
    assert pair.above.ends == 1 and pair.below.closing and not pair.below.aborted


def test_replies_follow_the_end_of_the_requests(pair: Pair) -> None:
    pair.shake()
    pair.above.stays = True
    pair.client.write(b"the last request")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.deliver()
    assert pair.stream.eof_received()  # the socket's own end
    assert pair.above.got == b"the last request" and pair.above.ends == 1
    pair.above.transport.write(b"its reply")
    pair.above.transport.close()
    pair.deliver()
    assert pair.read() == b"its reply<end>"
    assert pair.below.closing and not pair.below.aborted
    assert not pair.stream.eof_received()


def renewals(pair: Pair, count: int) -> None:
    """Let the client renew its keys, for which Python has no function."""
    openssl = ctypes.CDLL(_ssl.__file__)
    for name in ("SSL_key_update", "SSL_do_handshake", "SSL_version"):
        getattr(openssl, name).argtypes = [ctypes.c_void_p, ctypes.c_int][: 1 + (name[4] == "k")]
    # A PySSLSocket is an object's head, the socket, and the SSL structure.
    raw = ctypes.c_void_p.from_address(id(vars(pair.client)["_sslobj"]) + 24).value
    assert openssl.SSL_version(raw) == 0x304
    for _ in range(count):
        assert openssl.SSL_key_update(raw, 0) == 1
        openssl.SSL_do_handshake(raw)


def test_new_keys_are_taken_and_a_flood_of_them_is_not(pair: Pair) -> None:
    pair.shake()
    for _ in range(20):
        renewals(pair, 50)
        pair.client.write(b"x")
        pair.deliver()
    assert pair.above.got == b"x" * 20
    renewals(pair, 5_000)
    data = pair.out.read()
    pair.stream.data_received(data)
    assert pair.below.aborted and len(data) > 2 * SILENT_BYTES_MAX


@pytest.fixture
def many(folder: Path) -> Iterator[list[Pair]]:
    """Clients of one listening socket, more than may have a turn in one step of the loop."""
    loop = asyncio.new_event_loop()
    line = TurnLine(loop.call_soon)
    pairs = [Pair(folder, loop, line) for _ in range(TURNS_IN_A_STEP + 2)]
    for pair in pairs:
        pair.shake()
    yield pairs
    loop.close()


def test_many_short_records_are_taken_in_turns(many: list[Pair]) -> None:
    *senders, other = many
    count = 3 * RECORDS_IN_A_ROW_MAX + 1
    for pair in senders:
        for place in range(count):
            pair.client.write(b"%d," % place)
        pair.deliver()
        assert pair.above.pieces == RECORDS_IN_A_ROW_MAX and pair.below.paused
    other.client.write(b"x")
    other.deliver()
    assert other.above.got == b"x", "it has no turn to wait for"
    before = sum(pair.above.pieces for pair in senders)
    while senders[-1].below.paused:
        turn(other.loop)
        now = sum(pair.above.pieces for pair in senders)
        assert 0 < now - before <= TURNS_IN_A_STEP * RECORDS_IN_A_ROW_MAX
        before = now
    for pair in senders:
        assert pair.above.got == b"".join(b"%d," % place for place in range(count))
        assert not pair.below.paused and not pair.below.aborted


def test_new_keys_are_taken_in_turns(many: list[Pair]) -> None:
    pair = many[0]
    for _ in range(3):
        renewals(pair, 1_500)
        pair.client.write(b"x")
    data = pair.out.read()
    assert len(data) > 3 * SLICE_BYTES
    pair.stream.data_received(data)
    turns = 0
    while pair.below.paused:
        turn(pair.loop)
        turns += 1
    assert turns > 1 and pair.above.got == b"xxx" and not pair.below.aborted


def send_three_rows(pair: Pair) -> None:
    """Let a client send so many records that it has to wait for its turn twice."""
    for _ in range(3 * RECORDS_IN_A_ROW_MAX):
        pair.client.write(b"x")
    pair.deliver()


def test_a_client_in_the_line_may_be_paused_and_go_on(many: list[Pair]) -> None:
    pair = many[0]
    send_three_rows(pair)
    pair.above.transport.pause_reading()
    turn(pair.loop)
    assert len(pair.above.got) == RECORDS_IN_A_ROW_MAX and pair.below.paused
    pair.client.write(b"y")
    pair.deliver()  # a read that was on its way
    pair.above.transport.resume_reading()
    for _ in range(4):
        turn(pair.loop)
    assert pair.above.got == b"x" * 3 * RECORDS_IN_A_ROW_MAX + b"y" and not pair.below.paused


def test_a_flood_of_new_keys_waits_while_its_client_is_paused(many: list[Pair]) -> None:
    """All of it would be taken at once when the client may go on: 0.1 s."""
    pair = many[0]
    pair.client.write(b"x")
    renewals(pair, 9_000)
    pair.client.write(b"y")
    pair.above.pauses = True
    pair.deliver()
    assert pair.above.got == b"x" and pair.below.paused
    assert pair.stream._incoming.pending <= SLICE_BYTES
    pair.client.write(b"z")
    pair.deliver()  # a read that was on its way
    pair.above.pauses = False
    pair.above.transport.resume_reading()
    turn(pair.loop)
    assert pair.stream._silent_bytes <= 2 * SLICE_BYTES, "of one turn"
    for _ in range(9):
        turn(pair.loop)
    assert pair.below.aborted and pair.above.got == b"x"


def test_many_records_of_a_paused_client_keep_their_order(many: list[Pair]) -> None:
    pair = many[0]
    pair.above.pauses = True
    sent = b"".join(b"%d," % place for place in range(3 * SLICE_BYTES // 8))
    for place in range(0, len(sent), RECORD_BYTES_MAX):
        pair.client.write(sent[place : place + RECORD_BYTES_MAX])
    pair.deliver()
    pair.client.write(b"the end")
    pair.deliver()
    while not pair.above.got.endswith(b"the end"):
        assert pair.below.paused
        pair.above.transport.resume_reading()
        turn(pair.loop)
    assert pair.above.got == sent + b"the end"


def test_a_client_that_goes_in_the_line_is_forgotten(many: list[Pair]) -> None:
    pair = many[0]
    send_three_rows(pair)
    pair.above.transport.abort()
    pair.stream.connection_lost(None)
    turn(pair.loop)
    assert len(pair.above.got) == RECORDS_IN_A_ROW_MAX


def test_a_close_says_that_nothing_follows(pair: Pair) -> None:
    pair.shake()
    pair.above.transport.write(b"last")
    pair.above.transport.close()
    pair.deliver()
    assert pair.read() == b"last<end>"
    assert pair.below.closing and not pair.below.aborted
    pair.above.transport.write(b"too late")
    pair.stream.connection_lost(None)
    assert pair.above.lost and pair.below.written == b""


def test_a_record_that_was_changed_ends_the_connection(pair: Pair) -> None:
    pair.shake()
    pair.client.write(b"a command")
    data = bytearray(pair.out.read())
    data[-1] ^= 1
    pair.stream.data_received(bytes(data))
    assert pair.below.aborted and pair.above.got == b""


@pytest.mark.parametrize("garbage", [b"put 0 0 60 1\r\nx\r\n", bytes(100), b"\x16\x03\x01" * 99])
def test_garbage_is_a_failed_handshake(pair: Pair, garbage: bytes) -> None:
    pair.stream.data_received(garbage)
    pair.stream.data_received(garbage)
    pair.stream.eof_received()
    pair.stream.connection_lost(None)
    assert isinstance(pair.stream.established.exception(), (ssl.SSLError, ConnectionError))
    assert pair.above.transport is None


def test_a_handshake_that_is_given_up_is_aborted_and_others_go_on(pair: Pair) -> None:
    pair.stream.give_up()
    assert pair.below.aborted
    pair.stream.connection_lost(None)
    assert isinstance(pair.stream.established.exception(), ConnectionResetError)


def test_a_finished_handshake_is_not_given_up(pair: Pair) -> None:
    pair.shake()
    pair.stream.give_up()
    assert not pair.below.closing


def resumed(
    folder: Path, loop: asyncio.AbstractEventLoop, version: ssl.TLSVersion, later_s: float
) -> tuple[TlsStream, ssl.SSLObject]:
    """Shake hands twice, the second time with the session of the first, `later_s` later."""
    pair = (str(folder / "a.pem"), str(folder / "a.key"))
    certificates = Certificates(Files("tls_", *pair, str(folder / "ca.pem"), ""))
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client.load_cert_chain(*pair)
    client.maximum_version = version
    session = None
    for wait_s in (0.0, later_s):
        now_s = time.time() + wait_s
        stream = TlsStream(loop, certificates.server, Above)
        below, into, out = Below(), ssl.MemoryBIO(), ssl.MemoryBIO()
        stream.connection_made(cast(asyncio.Transport, below))
        side = client.wrap_bio(into, out, server_hostname="a", session=session)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda now_s=now_s: now_s)
            for _ in range(4):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                stream.data_received(out.read())
                into.write(below.written)
                below.written = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            side.read(1)  # takes the tickets that follow a handshake
        session = side.session
    return stream, side


def test_a_session_is_resumed_only_while_its_certificate_is_valid(folder: Path, pair: Pair) -> None:
    day_s = 86_400.0
    for later_s in (0.0, 2 * day_s):
        stream, side = resumed(folder, pair.loop, ssl.TLSVersion.TLSv1_3, later_s)
        assert not side.session_reused and stream.established.exception() is None
    stream, side = resumed(folder, pair.loop, ssl.TLSVersion.TLSv1_2, 0.0)
    assert side.session_reused and stream.established.exception() is None
    stream, _ = resumed(folder, pair.loop, ssl.TLSVersion.TLSv1_2, 2 * day_s)
    error = stream.established.exception()
    assert error is not None and reason_of(error) == EXPIRED


@pytest.mark.parametrize(("name", "accepted"), [("a", True), ("b", False)])
def test_a_client_wants_the_name_in_the_certificate(
    folder: Path, pair: Pair, name: str, accepted: bool
) -> None:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    above, below = Above(), Below()
    stream = TlsStream(pair.loop, context, lambda: above, name)
    stream.connection_made(cast(asyncio.Transport, below))
    for _ in range(3):
        sent, below.written = below.written, b""
        if sent:
            pair.stream.data_received(sent)
        sent, pair.below.written = pair.below.written, b""
        if sent and not below.closing:
            stream.data_received(sent)
    if accepted:
        assert stream.established.exception() is None
        above.transport.write(b"hello")
        pair.stream.data_received(below.written)
        assert pair.above.got == b"hello"
        assert above.transport.get_extra_info("peercert")["subjectAltName"] == (("DNS", "a"),)
        assert above.transport.get_extra_info("peername") == ("127.0.0.1", 1)
    else:
        assert isinstance(stream.established.exception(), ssl.SSLCertVerificationError)
        assert above.transport is None and below.closing
