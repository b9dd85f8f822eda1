"""Any bytes, cut in any way: the same well-formed Workq requests, and never an exception."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.errors import ProtocolError
from beanpole.protocol.workq import client, replies, values
from beanpole.protocol.workq import requests as r
from beanpole.protocol.workq.client import Block, Reply, ReplyParser
from beanpole.protocol.workq.parser import Parser
from tests.unit.protocol.workq.ways import JOB, JOB_ID, parse_bytewise, parse_whole, take

U32 = 2**32 - 1

WORDS = st.sampled_from(
    b"add schedule run result lease complete fail delete inspect server queues queue job jobs "
    b"scheduled-jobs ping -priority=5 -max-fails=1 -a=b=c -a= -=b 2016-12-31T23:59:59Z".split()
)
IDS = st.sampled_from([JOB, JOB.upper(), b"{%b}" % JOB, JOB[:-1], JOB.replace(b"-", b"")])
GLUE = st.sampled_from([b" ", b"  ", b"\r", b"\n", b"\r\n", b"\0", b"\t", b"-", b"+", b"x", b"="])
NUMBERS = st.one_of(
    st.integers(-1, 30), st.sampled_from([2**31, U32, U32 + 1, 2**64, 10**400])
).map(lambda number: b"%d" % number)
COMPLETES = st.builds(
    lambda size, result: b"complete %b %d\r\n%b\r\n" % (JOB, size, result),
    st.integers(0, 20),
    st.binary(max_size=20),
)
PIECES = st.one_of(WORDS, IDS, GLUE, NUMBERS, COMPLETES)
STREAMS = st.one_of(
    st.binary(max_size=600),
    st.lists(PIECES, max_size=60).map(b"".join),
    st.lists(st.lists(st.one_of(WORDS, IDS, NUMBERS), max_size=8).map(b" ".join), max_size=20).map(
        lambda lines: b"\r\n".join([*lines, b""])
    ),
)
ERRORS = {
    value
    for name, value in vars(replies).items()
    if name.isupper() and isinstance(value, bytes) and value.startswith(b"-CLIENT-ERROR")
}


def is_well_formed(request: r.Request) -> bool:
    """Whether a request has the fields of its layout."""
    kind, *items = request
    if kind == r.BAD:
        reply, counted = items
        return (reply in ERRORS or reply == replies.OK) and counted in range(r.COUNTERS)
    if kind == r.LEASE:
        names, wait_ms = items
        return bool(names) and all(map(r.is_name, names)) and 0 <= wait_ms <= r.WAIT_MAX_MS
    if kind <= r.DELETE or kind == r.INSPECT_JOB:
        job = items.pop(0)
        assert type(job) is bytes and len(job) == r.ID_BYTES
    if kind in (r.ADD, r.SCHEDULE, r.RUN, r.COMPLETE, r.FAIL):
        payload = items.pop()
        assert type(payload) is bytes and len(payload) <= r.PAYLOAD_MAX_BYTES
    if kind in (r.ADD, r.SCHEDULE, r.RUN, r.INSPECT_QUEUE, r.INSPECT_JOBS, r.INSPECT_SCHEDULED):
        assert r.is_name(items.pop(0))
    return all(type(item) is int for item in items)


@settings(deadline=None, max_examples=400)
@given(STREAMS, st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5)), max_size=30))
def test_pieces_do_not_matter(stream: bytes, pieces: list[tuple[int, int]]) -> None:
    expected = parse_whole(stream)
    assert all(is_well_formed(request) for request in expected)
    assert parse_bytewise(stream) == expected
    parser = Parser()
    requests = []
    position = 0
    for size, asks in pieces:
        parser.feed(stream[position : position + size])
        position += size
        # Stop before the requests end, as a connection with a blocked request does.
        some = [parser.next() for _ in range(asks)]
        requests += [request for request in some if request is not None]
    parser.feed(stream[position:])
    requests += take(parser)
    assert requests == expected


NAMES = st.text("abcXYZ019_.-", min_size=1, max_size=255).map(str.encode)
PAYLOADS = st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n", b"\r", b"+OK\r\n"]))
MS = st.integers(1, r.TTR_MAX_MS)
FLAGS = st.fixed_dictionaries(
    {b"priority": st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]), b"max-fails": st.just(3)}
)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just(b"add"), NAMES, MS, MS, FLAGS, PAYLOADS),
            st.tuples(st.just(b"complete"), PAYLOADS),
            st.tuples(st.just(b"delete")),
        ),
        max_size=8,
    )
)
def test_what_a_client_writes_is_what_the_server_reads(asked: list[tuple[Any, ...]]) -> None:
    stream = b""
    expected: list[r.Request] = []
    for word, *rest in asked:
        if word == b"add":
            name, ttr_ms, ttl_ms, flags, payload = rest
            words = (word, JOB, name, ttr_ms, ttl_ms)
            stream += client.encode_with(payload, *words, flags=flags)
            expected.append((r.ADD, JOB_ID, *words[2:], flags[b"priority"], 0, 3, payload))
        elif word == b"complete":
            stream += client.encode_with(rest[0], word, JOB)
            expected.append((r.COMPLETE, JOB_ID, rest[0]))
        else:
            stream += client.encode(word, JOB)
            expected.append((r.DELETE, JOB_ID))
    assert parse_whole(stream) == expected
    assert parse_bytewise(stream) == expected


SHAPES = st.sampled_from([client.PLAIN, client.SIZED, client.BLOCKS])
PARTS = st.one_of(
    st.binary(max_size=50),
    st.sampled_from([b"+OK", b"+OK 1\r\n", b"-TIMEOUT\r\n", b"a 1 2\r\nxx\r\n", b"payload", b" 9"]),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PARTS, max_size=9).map(b"".join), st.integers(0, 300), SHAPES)
def test_the_reply_parser_raises_nothing_but_its_own_error(
    data: bytes, cut: int, shape: int
) -> None:
    parser = ReplyParser()
    try:
        for piece in (data[:cut], data[cut:]):
            parser.feed(piece)
            while parser.next(shape) is not None:
                pass
    except ProtocolError as error:
        assert str(error)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(NAMES, PAYLOADS), max_size=4), st.integers(0, 500))
def test_the_client_reads_what_the_server_writes(jobs: list[tuple[bytes, bytes]], cut: int) -> None:
    blocks = [
        (name, {b"payload-size": b"%d" % len(payload), b"payload": payload, b"state": b"0"})
        for name, payload in jobs
    ]
    stream = replies.inspected(replies.block(name, keys.items()) for name, keys in blocks)
    stream += b"".join(replies.leased(JOB_ID, name, 9, payload) for name, payload in jobs)
    stream += replies.NOT_FOUND + replies.DUPLICATE_JOB + replies.OK
    expected = [
        Reply(b"OK", blocks=tuple([Block(*block) for block in blocks])),
        *[Reply(b"OK", b"", (JOB, name, b"9"), payload) for name, payload in jobs],
        Reply(b"NOT-FOUND"),
        Reply(b"CLIENT-ERROR", b"Duplicate job"),
        Reply(b"OK"),
    ]
    shapes = [client.BLOCKS, *[client.SIZED] * (len(jobs) + 1), client.PLAIN, client.PLAIN]
    parser = ReplyParser()
    read: list[Reply] = []
    for piece in (stream[:cut], stream[cut:]):
        parser.feed(piece)
        while len(read) < len(shapes) and (reply := parser.next(shapes[len(read)])):
            read.append(reply)
    assert read == expected


@settings(deadline=None)
@given(st.integers(-62135596800, 253402300799))
def test_times_are_read_as_they_are_written(time_s: int) -> None:
    text = values.format_time(time_s * 1_000_000 + 999_999)
    assert values.parse_time(text) == time_s


def test_known_times() -> None:
    assert values.format_time(0) == b"1970-01-01T00:00:00Z"
    assert values.format_time(951_782_400_000_000) == b"2000-02-29T00:00:00Z"
    assert values.parse_time(b"2016-12-31T23:59:59Z") == 1_483_228_799
    assert values.parse_time(b"2100-02-29T00:00:00Z") is None
