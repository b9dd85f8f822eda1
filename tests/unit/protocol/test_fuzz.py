"""Any bytes, cut in any way: the same well-formed requests, and never an exception."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk import replies
from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.client import ReplyParser, encode, encode_put
from beanpole.protocol.beanstalk.parser import Parser
from beanpole.protocol.beanstalk.requests import Request
from tests.unit.protocol.ways import parse_bytewise, parse_whole, take

JOB_SIZE_MAX = 20
U32 = 2**32 - 1

WORDS = st.sampled_from(
    b"put reserve reserve-with-timeout reserve-job delete release bury touch use watch ignore peek "
    b"peek-ready peek-delayed peek-buried kick kick-job stats stats-job stats-tube list-tubes "
    b"list-tube-used list-tubes-watched pause-tube quit".split()
)
GLUE = st.sampled_from([b" ", b"  ", b"\r", b"\n", b"\r\n", b"\0", b"\t", b"-", b"+", b"x", b"_"])
NUMBERS = st.one_of(
    st.integers(0, 30),
    st.sampled_from([2**31 - 1, 2**31, U32, U32 + 1, 2**64 - 1, 2**64]),
).map(lambda number: b"%d" % number)
FILLERS = st.builds(
    lambda byte, count: byte * count, st.sampled_from([b"x", b"0", b"\r"]), st.integers(180, 240)
)
PUTS = st.builds(
    lambda size, body: b"put 1 2 3 %d\r\n%b\r\n" % (size, body),
    st.integers(0, JOB_SIZE_MAX + 5),
    st.binary(max_size=JOB_SIZE_MAX + 5),
)
STREAMS = st.one_of(
    st.binary(max_size=600),
    st.lists(st.one_of(WORDS, GLUE, NUMBERS, FILLERS, PUTS), max_size=60).map(b"".join),
    st.lists(
        st.lists(st.one_of(WORDS, NUMBERS), max_size=6).map(lambda words: b" ".join(words)),
        max_size=20,
    ).map(lambda lines: b"\r\n".join([*lines, b""])),
)


def is_well_formed(request: Request) -> bool:
    kind, *values = request
    if kind == r.BAD:
        reply, counted = values
        assert counted in (0, r.PUT)
        return reply in (
            replies.BAD_FORMAT,
            replies.UNKNOWN_COMMAND,
            replies.EXPECTED_CRLF,
            replies.JOB_TOO_BIG,
        )
    if kind == r.PUT:
        priority, delay_s, ttr_s, body = values
        assert len(body) <= JOB_SIZE_MAX and type(body) is bytes
        return bool(priority <= U32 and delay_s <= U32 and 1 <= ttr_s <= U32)
    if kind in (r.USE, r.WATCH, r.IGNORE, r.STATS_TUBE, r.PAUSE_TUBE):
        name, *values = values
        assert type(name) is bytes and r.is_tube_name(name)
    return all(type(value) is int and 0 <= value <= r.U64_MAX for value in values)


@settings(deadline=None, max_examples=400)
@given(STREAMS, st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5)), max_size=30))
def test_pieces_do_not_matter(stream: bytes, pieces: list[tuple[int, int]]) -> None:
    expected = parse_whole(stream, JOB_SIZE_MAX)
    assert all(is_well_formed(request) for request in expected)
    assert parse_bytewise(stream, JOB_SIZE_MAX) == expected
    parser = Parser(JOB_SIZE_MAX)
    requests = []
    position = 0
    for size, asks in pieces:
        parser.feed(stream[position : position + size])
        position += size
        # Stop before the requests end, as a connection with a blocked reserve does.
        some = [parser.next() for _ in range(asks)]
        requests += [request for request in some if request is not None]
    parser.feed(stream[position:])
    requests += take(parser)
    assert requests == expected
    assert parser.buffered_bytes < r.LINE_MAX_BYTES + JOB_SIZE_MAX


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(PUTS, st.just(b"reserve\r\n"), st.just(b"use a\r\n")), max_size=10))
def test_nothing_but_the_unfinished_request_is_lost(parts: list[bytes]) -> None:
    requests = parse_whole(b"".join(parts) + b"\r\nstats\r\n" * 20, JOB_SIZE_MAX)
    assert requests[-1] == (r.STATS,)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=300), st.integers(0, 300))
def test_the_reply_parser_raises_nothing_but_its_own_error(data: bytes, cut: int) -> None:
    parser = ReplyParser()
    try:
        for piece in (data[:cut], data[cut:]):
            parser.feed(piece)
            while parser.next() is not None:
                pass
    except ProtocolError as error:
        assert str(error)


BODIES = st.one_of(
    st.binary(max_size=40), st.sampled_from([b"", b"\r\n", b"\r", b"DELETED\r\n", b"x\r\n" * 9])
)
U32S = st.one_of(st.integers(0, 30), st.sampled_from([2**31, U32]))
JOBS = st.one_of(st.integers(0, 30), st.sampled_from([U32 + 1, 2**64 - 1]))
NAMES = st.text("abcXYZ019-+/;.$_()", min_size=1, max_size=200).map(str.encode)
NAMES = NAMES.filter(r.is_tube_name)  # a name must not begin with a hyphen
REQUESTS = st.one_of(
    st.tuples(st.just("put"), U32S, U32S, st.integers(1, U32), BODIES),
    st.tuples(st.just("release"), JOBS, U32S, U32S),
    st.tuples(st.just("bury"), JOBS, U32S),
    st.tuples(st.sampled_from(["delete", "touch", "peek", "kick-job", "reserve-job"]), JOBS),
    st.tuples(st.sampled_from(["use", "watch", "ignore", "stats-tube"]), NAMES),
    st.tuples(st.just("pause-tube"), NAMES, U32S),
    st.tuples(st.just("kick"), U32S),
    st.tuples(st.just("reserve-with-timeout"), st.sampled_from([0, 1, 30, 2**31 - 1])),
    st.tuples(st.sampled_from(["reserve", "stats", "peek-ready", "list-tubes"])),
)
KINDS = {
    "put": r.PUT,
    "release": r.RELEASE,
    "bury": r.BURY,
    "delete": r.DELETE,
    "touch": r.TOUCH,
    "peek": r.PEEK,
    "kick-job": r.KICK_JOB,
    "reserve-job": r.RESERVE_JOB,
    "use": r.USE,
    "watch": r.WATCH,
    "ignore": r.IGNORE,
    "stats-tube": r.STATS_TUBE,
    "pause-tube": r.PAUSE_TUBE,
    "kick": r.KICK,
    "reserve-with-timeout": r.RESERVE_TIMEOUT,
    "reserve": r.RESERVE,
    "stats": r.STATS,
    "peek-ready": r.PEEK_READY,
    "list-tubes": r.LIST_TUBES,
}


@settings(deadline=None, max_examples=300)
@given(st.lists(REQUESTS, max_size=8))
def test_what_a_client_writes_is_what_the_server_reads(requests: list[tuple[Any, ...]]) -> None:
    stream = b"".join(
        encode_put(values[-1], *values[:-1]) if word == "put" else encode(word.encode(), *values)
        for word, *values in requests
    )
    expected = [(KINDS[word], *values) for word, *values in requests]
    assert parse_whole(stream, 100) == expected
    assert parse_bytewise(stream, 100) == expected


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(JOBS, BODIES, st.integers(0, 2)), max_size=8), st.integers(0, 400))
def test_what_a_server_writes_is_what_a_client_reads(
    items: list[tuple[int, bytes, int]], cut: int
) -> None:
    ways = (replies.reserved, replies.found, lambda job, body: replies.inserted(job))
    words = (b"RESERVED", b"FOUND", b"INSERTED")
    stream = b"".join(ways[way](job, body) for job, body, way in items)
    expected = [(words[way], (job,), None if way == 2 else body) for job, body, way in items]
    parser = ReplyParser()
    found = []
    for piece in (stream[:cut], stream[cut:]):
        parser.feed(piece)
        while (reply := parser.next()) is not None:
            found.append(reply)
    assert found == expected
