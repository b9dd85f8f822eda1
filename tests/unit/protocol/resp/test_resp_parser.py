"""Bytes become requests; errors and the limits of a request are those of Redis."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.protocol.resp import parser as resp
from beanpole.protocol.resp.parser import Parser, Request, split_line


def take(parser: Parser) -> list[Request]:
    """Return all requests that the parser has now."""
    requests = []
    while (request := parser.next()) is not None:
        if request:
            requests.append(request)
    return requests


def parse_whole(stream: bytes) -> list[Request]:
    """Feed all at once."""
    parser = Parser()
    parser.feed(stream)
    return take(parser)


def parse_cut(stream: bytes, sizes: list[int]) -> list[Request]:
    """Feed pieces of these sizes in turn, and take requests after each."""
    parser = Parser()
    requests = []
    place = turn = 0
    while place < len(stream):
        size = sizes[turn % len(sizes)]
        parser.feed(stream[place : place + size])
        requests += take(parser)
        place += size
        turn += 1
    return requests


def parse(stream: bytes) -> list[Request]:
    """Parse whole and byte by byte; both must agree."""
    requests = parse_whole(stream)
    assert parse_cut(stream, [1]) == requests
    return requests


def array(*arguments: bytes) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(one), one) for one in arguments]
    return b"*%d\r\n%b" % (len(arguments), b"".join(parts))


def error(text: bytes) -> bytes:
    return b"-ERR Protocol error: %b\r\n" % text


PING = [[b"PING"]]
ANY_BYTES = bytes(range(256)) + b"\r\n*1\r\n$4\r\nQUIT\r\n"


def test_arrays_of_any_bytes() -> None:
    assert parse(array(b"EVALSHA", b"", ANY_BYTES) + array(b"PING")) == [
        [b"EVALSHA", b"", ANY_BYTES],
        [b"PING"],
    ]


@pytest.mark.parametrize(
    ("stream", "requests"),
    [
        (b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n", PING),
        (b"\r\n\n  \r\nPING\n", PING),
        (b"PING\r\nPING\n", PING * 2),
        (b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n", PING * 2),  # Redis skips a bulk's end
        (b"*1\rx$4\rxPING\r\n", PING),
        (b" PING  a\tb \r\n", [[b"PING", b"a", b"b"]]),
        (b'PING "a b" \'c d\' ""\r\n', [[b"PING", b"a b", b"c d", b""]]),
        (b'PING "\\x41\\n\\r\\t\\b\\a\\z\\"\\x4"\r\n', [[b"PING", b'A\n\r\t\b\az"x4']]),
        (b"PING 'a\\'b\\n'\r\n", [[b"PING", b"a'b\\n"]]),
        (b'PING a"b c"\r\n', [[b"PING", b"ab c"]]),
        (b'"PING" x\r\n', [[b"PING", b"x"]]),
        (b"a$b *3 c\r\n", [[b"a$b", b"*3", b"c"]]),
    ],
)
def test_requests(stream: bytes, requests: list[Request]) -> None:
    assert parse(stream) == requests


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (b"*x\r\n", b"invalid multibulk length"),
        (b"*01\r\n", b"invalid multibulk length"),
        (b"*+1\r\n", b"invalid multibulk length"),
        (b"*\r\n", b"invalid multibulk length"),
        (b"*1 \r\n", b"invalid multibulk length"),
        (b"*99999999999999999999\r\n", b"invalid multibulk length"),
        (b"*1\r\nfoo\r\n", b"expected '$', got 'f'"),
        (b"*1\r\n\r\n\r\n", b"expected '$', got ' '"),
        (b"*1\r\n$-1\r\n", b"invalid bulk length"),
        (b"*1\r\n$x\r\n", b"invalid bulk length"),
        (b"*1\r\n$\r\n", b"invalid bulk length"),
        (b"PING 'a\r\n", b"unbalanced quotes in request"),
        (b'PING "a"b\r\n', b"unbalanced quotes in request"),
        (b'PING "a\\\r\n', b"unbalanced quotes in request"),
        (b"*" + b"1" * resp.COUNT_MAX_BYTES + b"\r\n", b"too big mbulk count string"),
        (b"*1\r\n$" + b"1" * resp.COUNT_MAX_BYTES + b"\r\n", b"too big bulk count string"),
        (b"P" * (resp.LINE_MAX_BYTES + 1) + b"\r\n", b"too big inline request"),
    ],
)
def test_what_is_no_request_is_the_end(stream: bytes, text: bytes) -> None:
    requests = parse(b"PING\r\n" + stream + b"PING\r\n" * 3)
    assert requests == [[b"PING"], error(text)]


def test_the_limits() -> None:
    count, size = resp.ARGUMENTS_MAX, resp.BULK_MAX_BYTES
    assert parse_whole(array(*[b"x"] * count)) == [[b"x"] * count]
    assert parse(b"*%d\r\n" % (count + 1)) == [error(b"invalid multibulk length")]
    assert parse_whole(array(b"x" * size)) == [[b"x" * size]]
    assert parse(b"*1\r\n$%d\r\n" % (size + 1)) == [error(b"invalid bulk length")]
    rest = resp.REQUEST_MAX_BYTES - size
    assert parse_whole(array(b"x" * size, b"y" * rest))[0][1] == b"y" * rest
    more = b"*2\r\n$%d\r\n%b\r\n$%d\r\n" % (size, b"x" * size, rest + 1)
    assert parse_whole(more) == [error(b"too big request")]
    line = b"P" * (resp.LINE_MAX_BYTES - 1) + b"\r\n"
    assert parse_whole(line) == [[line[:-2]]]


def test_a_line_above_the_limit_is_refused_before_its_end() -> None:
    assert parse_whole(b"P" * (resp.LINE_MAX_BYTES + 1)) == [error(b"too big inline request")]
    assert parse_whole(b"P" * resp.LINE_MAX_BYTES) == []


def test_nothing_is_kept_behind_an_error() -> None:
    parser = Parser()
    parser.feed(b"*x\r\n" + bytes(1000))
    assert parser.next() == error(b"invalid multibulk length")
    assert parser.buffered_bytes == 0
    assert parser.next() is None


def test_what_is_unfinished_is_not_counted() -> None:
    """A client whose reading is paused could never finish its request."""
    parser = Parser()
    parser.feed(b"*2\r\n$1000000\r\n" + bytes(500_000))
    assert parser.next() is None
    assert parser.buffered_bytes == 0
    parser.feed(bytes(500_000) + b"\r\n$1\r\nx\r\n" + b"PING\r\n")
    assert parser.next() == [bytes(1_000_000), b"x"]
    assert parser.buffered_bytes == 6


@pytest.mark.slow
def test_a_large_argument_in_small_pieces() -> None:
    # Copying the buffer at each piece would move a terabyte: the test would not end.
    argument = b"0123456789abcdef" * (resp.BULK_MAX_BYTES // 16)
    stream = array(b"ECHO", argument)
    parser = Parser()
    tracemalloc.start()
    try:
        for place in range(0, len(stream) - 1, 7):
            parser.feed(stream[place : place + 7])
            assert parser.next() is None or place + 7 >= len(stream)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * len(argument)


NUMBERS = st.one_of(st.integers(-2, 8), st.sampled_from([10_000, 2**21 + 1, 2**63, 10**80]))
PIECES = st.one_of(
    st.sampled_from([b"*", b"$", b"\r\n", b"\r", b"\n", b" ", b"'", b'"', b"\\", b"\\x4", b"\0"]),
    NUMBERS.map(lambda number: b"%d" % number),
    NUMBERS.map(lambda number: b"*%d\r\n" % number),
    st.binary(max_size=9).map(lambda one: b"$%d\r\n%b\r\n" % (len(one), one)),
    st.lists(st.binary(max_size=5), max_size=4).map(lambda items: array(*items)),
    st.binary(max_size=5),
)
STREAMS = st.lists(PIECES, max_size=25).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(STREAMS, st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_pieces_change_nothing(stream: bytes, sizes: list[int]) -> None:
    requests = parse_whole(stream)
    assert parse_cut(stream, sizes) == requests
    for number, request in enumerate(requests):
        if isinstance(request, bytes):
            assert request.startswith(b"-ERR Protocol error: ") and request.endswith(b"\r\n")
            assert request.count(b"\r") == request.count(b"\n") == 1
            assert number == len(requests) - 1, "nothing follows an error"
        else:
            assert request


@given(st.lists(st.binary(), min_size=1, max_size=6), st.lists(st.integers(1, 9), min_size=1))
def test_every_array_is_read(arguments: list[bytes], sizes: list[int]) -> None:
    assert parse_cut(array(*arguments) + array(b"PING"), sizes) == [arguments, [b"PING"]]


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_every_word_can_be_quoted(words: list[bytes]) -> None:
    quoted = [b'"%b"' % b"".join(b"\\x%02x" % byte for byte in word) for word in words]
    assert split_line(b" ".join(quoted)) == words
