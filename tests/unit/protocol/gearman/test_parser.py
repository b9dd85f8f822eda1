"""The server's side of the Gearman protocol: packets and lines, valid and invalid."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.constants import JOB_SIZE_MAX_BYTES, RESULT_MAX_BYTES
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.client import request
from beanpole.protocol.gearman.parser import BAD, CLOSE, TEXT, Parser, Request

SLEEP = request(p.PRE_SLEEP)
SLEPT: Request = (p.PRE_SLEEP, ())
# Packets of which gearmand reads the argument up to a NUL.
C_STRINGS = (p.WORK_FAIL, p.GET_STATUS, p.GET_STATUS_UNIQUE, p.SET_CLIENT_ID)


def packet(kind: int, body: bytes = b"", magic: bytes = p.REQUEST_MAGIC) -> bytes:
    """Return one packet, valid or not."""
    return p.HEADER.pack(magic, kind, len(body)) + body


def parse(*pieces: bytes) -> list[Request]:
    """Return all requests of a stream, up to the first unintelligible one."""
    parser = Parser()
    found = []
    for piece in pieces:
        parser.feed(piece)
        while (one := parser.next()) is not None:
            found.append(one)
            if one[0] == CLOSE:
                return found
    return found


def bytewise(stream: bytes) -> Iterable[bytes]:
    return (stream[place : place + 1] for place in range(len(stream)))


def error_of(found: Request) -> tuple[bytes, bytes]:
    """Return code and text of the ERROR that answers a wrong packet."""
    kind, (reply,) = found
    assert kind in (BAD, CLOSE)
    assert p.HEADER.unpack_from(reply)[:2] == (p.REPLY_MAGIC, p.ERROR)
    code, _, text = reply[p.HEADER_BYTES :].partition(b"\0")
    return code, text


def test_packets_and_lines_follow_each_other() -> None:
    stream = b"version\r\n" + packet(p.ECHO_REQ, b"a\0b") + b"status\n\n" + SLEEP
    expected = [
        (TEXT, (b"version",)),
        (p.ECHO_REQ, (b"a\0b",)),
        (TEXT, (b"status",)),
        (TEXT, (b"",)),
        SLEPT,
    ]
    assert parse(stream) == expected
    assert parse(*bytewise(stream)) == expected


@pytest.mark.parametrize("kind", sorted(p.REQUEST_ARGUMENTS))
def test_every_request(kind: int) -> None:
    """Parse exact arguments; the last one takes the rest, and a missing one is an error."""
    count = p.REQUEST_ARGUMENTS[kind]
    arguments = tuple(b"a%d" % place for place in range(count))
    assert parse(request(kind, *arguments) + SLEEP) == [(kind, arguments), SLEPT]
    if count:
        rest = (*arguments[:-1], b"x\0\0y")
        told = (b"x",) if kind in C_STRINGS else rest
        assert parse(request(kind, *rest)) == [(kind, told)]
        empty = (b"",) * count
        assert parse(request(kind, *empty)) == [(kind, empty)]
    else:
        assert parse(request(kind, b"ignored") + SLEEP) == [(kind, ()), SLEPT]
    if count > 1:
        for few in (arguments[:-1], ()):
            wrong, behind = parse(request(kind, *few) + SLEEP)
            name = p.NAMES[kind].encode()
            text = b"%b has %d arguments, %d came" % (name, count, len(few))
            assert error_of(wrong) == (b"INVALID_ARGUMENTS", text)
            assert behind == SLEPT, "the length is known, so the next packet is found"


@pytest.mark.parametrize("kind", C_STRINGS)
def test_a_nul_ends_the_argument(kind: int) -> None:
    for sent, read in ((b"a b\0", b"a b"), (b"a b\0\0c", b"a b"), (b"\0c", b"")):
        stream = request(kind, sent) + SLEEP
        assert parse(stream) == parse(*bytewise(stream)) == [(kind, (read,)), SLEPT]


def test_the_names_of_requests_are_those_of_the_table() -> None:
    assert set(p.NAMES) == set(p.REQUEST_ARGUMENTS)
    assert all(getattr(p, name) == number for number, name in p.NAMES.items())


@pytest.mark.parametrize(
    "stream",
    [
        b"\0REX" + bytes(8),
        b"\0XY",
        b"\0\0",
        packet(0),
        packet(43),
        packet(2**32 - 1),
        packet(99, b"", p.REPLY_MAGIC),
        packet(0, b"", p.REPLY_MAGIC),
    ],
)
def test_what_is_no_packet_closes_without_a_reply(stream: bytes) -> None:
    assert parse(SLEEP + stream + SLEEP)[:2] == [SLEPT, (CLOSE, (b"",))]


def test_packets_of_a_server_are_refused_and_passed_over() -> None:
    stream = packet(p.WORK_COMPLETE, b"h\0" + bytes(300), p.REPLY_MAGIC) + SLEEP
    assert parse(stream) == [(BAD, (replies.INVALID_MAGIC,)), SLEPT]
    for kind in {*range(1, p.TYPE_MAX + 1)} - {*p.REQUEST_ARGUMENTS}:
        stream = packet(kind, b"anything") + SLEEP
        assert parse(*bytewise(stream)) == [(BAD, (replies.INVALID_COMMAND,)), SLEPT]


LONGEST = (b"f" * p.FUNCTION_MAX_BYTES, b"u" * p.UNIQUE_MAX_BYTES)


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (p.SUBMIT_JOB, (b"f" * 513, b"", b""), b"A function name has 512 bytes at most"),
        (p.SUBMIT_JOB_BG, (b"f", b"u" * 65, b""), b"Unique value too large"),
        (p.SUBMIT_JOB_EPOCH, (b"f", b"u" * 65, b"1", b""), b"Unique value too large"),
        (p.SUBMIT_REDUCE_JOB, (b"f", b"", b"r" * 513, b"", b""), b"A reducer has 512 bytes at"),
        (p.CAN_DO, (b"f" * 513,), b"A function name has 512 bytes at most"),
        (p.CANT_DO, (b"f" * 513,), b"A function name has 512 bytes at most"),
        (p.CAN_DO_TIMEOUT, (b"f" * 513, b"1"), b"A function name has 512 bytes at most"),
        (p.SET_CLIENT_ID, (b"i" * 129,), b"A client id has 128 bytes at most"),
        (p.SUBMIT_JOB, (b"f", b"", bytes(JOB_SIZE_MAX_BYTES + 1)), b"The data of a job has 2097"),
    ],
)
def test_arguments_that_are_too_large(kind: int, arguments: tuple[bytes, ...], text: bytes) -> None:
    wrong, behind = parse(request(kind, *arguments) + SLEEP)
    code, told = error_of(wrong)
    assert (code, told[: len(text)], behind) == (b"ARGUMENT_TOO_LARGE", text, SLEPT)


def test_the_largest_arguments() -> None:
    whole = (*LONGEST, bytes(JOB_SIZE_MAX_BYTES))
    assert parse(request(p.SUBMIT_JOB, *whole)) == [(p.SUBMIT_JOB, whole)]
    reduce = (*LONGEST, b"r" * p.REDUCER_MAX_BYTES, LONGEST[0], bytes(JOB_SIZE_MAX_BYTES))
    assert parse(request(p.SUBMIT_REDUCE_JOB, *reduce)) == [(p.SUBMIT_REDUCE_JOB, reduce)]


def test_a_large_packet_is_passed_over_without_being_kept() -> None:
    parser = Parser()
    size = 3 * p.PACKET_MAX_BYTES
    parser.feed(p.HEADER.pack(p.REQUEST_MAGIC, p.SUBMIT_JOB, size))
    piece = bytes(64 * 1024)
    for _ in range(size // len(piece)):
        assert parser.next() is None
        parser.feed(piece)
        assert parser.next() is None
        assert parser.buffered_bytes == 0
    parser.feed(bytes(size % len(piece)) + SLEEP)
    wrong = parser.next()
    assert wrong is not None
    assert error_of(wrong)[1] == b"A packet has %d bytes at most" % p.PACKET_MAX_BYTES
    assert parser.next() == SLEPT


def test_a_packet_that_is_larger_than_sense_ends_the_connection() -> None:
    size = p.PACKET_SKIPPED_MAX_BYTES + 1
    (wrong,) = parse(p.HEADER.pack(p.REQUEST_MAGIC, p.ECHO_REQ, size))
    assert wrong[0] == CLOSE
    assert error_of(wrong)[0] == b"ARGUMENT_TOO_LARGE"


def test_a_long_line_is_one_error() -> None:
    line = b"x" * p.LINE_MAX_BYTES
    for stream in (line + b"\nversion\n", line * 3 + b"\r\nversion\n"):
        for pieces in ((stream,), bytewise(stream)):
            wrong, behind = parse(*pieces)
            assert wrong == (BAD, (b"ERR INVALID_ARGUMENTS A+line+has+8192+bytes+at+most\r\n",))
            assert behind == (TEXT, (b"version",))
    longest = b"x" * (p.LINE_MAX_BYTES - 1)
    assert parse(longest + b"\n") == [(TEXT, (longest,))]


def test_an_unfinished_packet_does_not_count_as_buffered() -> None:
    """Otherwise a client with a body above the node's limit would be paused in the middle of it."""
    parser = Parser()
    parser.feed(request(p.ECHO_REQ, bytes(300_000))[:200_000])
    assert parser.next() is None
    assert parser.buffered_bytes == 0
    parser.feed(bytes(300_000 + p.HEADER_BYTES - 200_000) + b"more")
    assert parser.buffered_bytes == 100_000 + p.HEADER_BYTES + 4
    assert parser.next() == (p.ECHO_REQ, (bytes(300_000),))
    assert parser.buffered_bytes == 4


WORDS = st.sampled_from(
    [b"\0", b"\0R", b"\0REQ", b"\0RES", b"\n", b"status\n", b"version\r\n", b"x"]
)
PACKETS = st.builds(
    packet,
    st.integers(0, 45),
    st.one_of(st.binary(max_size=40), st.lists(st.binary(max_size=3)).map(b"\0".join)),
    st.sampled_from([p.REQUEST_MAGIC, p.REQUEST_MAGIC, p.REQUEST_MAGIC, p.REPLY_MAGIC]),
)
LONG = st.integers(8180, 8200).map(lambda size: b"l" * size)
STREAMS = st.one_of(
    st.binary(max_size=200), st.lists(st.one_of(WORDS, PACKETS, LONG), max_size=12).map(b"".join)
)


@settings(deadline=None, max_examples=300)
@given(STREAMS, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4)), max_size=20))
def test_pieces_do_not_matter(stream: bytes, pieces: list[tuple[int, int]]) -> None:
    expected = parse(stream)
    for kind, arguments in expected:
        assert 0 < kind <= CLOSE
        assert all(type(argument) is bytes for argument in arguments)
        if kind in p.REQUEST_ARGUMENTS:
            assert len(arguments) == p.REQUEST_ARGUMENTS[kind]
    assert parse(*bytewise(stream)) == expected
    parser = Parser()
    found: list[Request] = []
    position = 0
    for size, asks in [*pieces, (len(stream), 1 << 30)]:
        parser.feed(stream[position : position + size])
        position += size
        # Stop before the requests end, as a node with a blocked request does.
        for _ in range(asks):
            if found and found[-1][0] == CLOSE:
                break
            if (one := parser.next()) is None:
                break
            found.append(one)
    assert found == expected


@pytest.mark.parametrize("kind", [p.WORK_COMPLETE, p.WORK_EXCEPTION])
@pytest.mark.parametrize("step", [1000, 77_777, 4 * p.PACKET_MAX_BYTES])
def test_of_a_result_that_is_too_large_the_handle_is_kept(kind: int, step: int) -> None:
    sent = request(kind, b"H:x:1", bytes(p.PACKET_MAX_BYTES)) + SLEEP
    found = parse(*[sent[place : place + step] for place in range(0, len(sent), step)])
    (ended, (handle, result)), behind = found
    assert (ended, handle, behind) == (kind, b"H:x:1", SLEPT)
    assert len(result) > RESULT_MAX_BYTES, "so that the job fails"


def test_a_result_that_is_too_large_and_has_no_handle() -> None:
    for handle in (b"x" * 65, b"x" * 200):
        wrong, behind = parse(request(p.WORK_COMPLETE, handle, bytes(p.PACKET_MAX_BYTES)) + SLEEP)
        assert (wrong[0], behind) == (BAD, SLEPT)
