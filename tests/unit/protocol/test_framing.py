"""Lines and bodies at their limits, in pieces, and the bytes that the parser buffers."""

import tracemalloc

import pytest

from beanpole.constants import JOB_SIZE_MAX_BYTES
from beanpole.protocol.beanstalk import replies
from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.parser import Parser
from tests.unit.protocol.ways import parse, parse_whole, take

BAD_FORMAT = (r.BAD, replies.BAD_FORMAT, 0)
UNKNOWN = (r.BAD, replies.UNKNOWN_COMMAND, 0)
EXPECTED_CRLF = (r.BAD, replies.EXPECTED_CRLF, r.PUT)
JOB_TOO_BIG = (r.BAD, replies.JOB_TOO_BIG, r.PUT)


@pytest.mark.parametrize("size", [225, 226, 447, 448, 449, 450, 672, 673, 674, 5000])
@pytest.mark.parametrize("filler", [b"x", b"\r", b"\n", b"\0", b" ", b"\rx"])
def test_a_long_line_is_one_bad_format(size: int, filler: bytes) -> None:
    line = (filler * size)[: size - 2] + b"\r\n"
    assert parse(line + b"stats\r\n") == [BAD_FORMAT, (r.STATS,)]


def test_the_longest_line() -> None:
    assert parse(b"x" * 222 + b"\r\n") == [UNKNOWN]
    assert parse(b"delete " + b"0" * 214 + b"7\r\n") == [(r.DELETE, 7)]
    assert parse(b"delete " + b"0" * 215 + b"7\r\n") == [BAD_FORMAT]


def test_a_long_command_is_not_run() -> None:
    assert parse(b"kick 5 " + b"x" * 300 + b"\r\n") == [BAD_FORMAT]


def test_a_long_line_is_not_kept() -> None:
    parser = Parser(100)
    for _ in range(1000):
        parser.feed(b"x" * 999 + b"\r")
        assert parser.next() is None
        assert parser.buffered_bytes <= 1
    parser.feed(b"\nstats\r\n")
    assert take(parser) == [BAD_FORMAT, (r.STATS,)]


def test_a_stray_cr_belongs_to_its_line() -> None:
    assert parse(b"delete 1\rdelete 2\r\ndelete 3\r\n") == [BAD_FORMAT, (r.DELETE, 3)]
    assert parse(b"abc\rdef\r\ndelete 3\r\n") == [UNKNOWN, (r.DELETE, 3)]
    assert parse(b"delete 1\r\r\ndelete 3\r\n") == [BAD_FORMAT, (r.DELETE, 3)]


def test_a_bare_lf_ends_no_line() -> None:
    assert parse(b"delete 1\ndelete 2\r\n") == [BAD_FORMAT]
    assert parse(b"stats\nstats\r\n") == [BAD_FORMAT]
    assert parse_whole(b"stats\n") == []


def test_a_body_may_be_anything() -> None:
    body = bytes(range(256)) + b"\r\n\r\nquit\r\n"
    stream = b"put 1 2 3 %d\r\n%b\r\n" % (len(body), body)
    assert parse(stream + stream) == [(r.PUT, 1, 2, 3, body)] * 2


@pytest.mark.parametrize("end", [b"\r", b"xx", b"\n\n", b"\n\r", b"x\n"])
def test_a_body_without_its_end_takes_two_bytes_more(end: bytes) -> None:
    stream = b"put 0 0 1 3\r\nabc" + (end + b"x")[:2] + b"delete 1\r\n"
    assert parse(stream) == [EXPECTED_CRLF, (r.DELETE, 1)]


def test_what_stands_behind_a_short_count_is_a_command() -> None:
    assert parse(b"put 0 0 1 1\r\nabcdef\r\n") == [EXPECTED_CRLF, UNKNOWN]
    assert parse(b"put 0 0 1 1\r\nabcdelete 5\r\n") == [EXPECTED_CRLF, (r.DELETE, 5)]


def test_a_body_above_the_limit_is_swallowed() -> None:
    stream = b"put 0 0 1 11\r\ndelete 9999\r\nput 0 0 1 3\r\nabc\r\n"
    assert parse(stream, 10) == [JOB_TOO_BIG, (r.PUT, 0, 0, 1, b"abc")]
    # The end of the body is not checked, and extra words in its line are ignored.
    assert parse(b"put 0 0 1 11 xyz\r\n" + b"y" * 13 + b"stats\r\n", 10) == [
        JOB_TOO_BIG,
        (r.STATS,),
    ]


def test_a_body_of_exactly_the_limit() -> None:
    assert parse(b"put 0 0 1 10\r\n0123456789\r\n", 10) == [(r.PUT, 0, 0, 1, b"0123456789")]


def test_the_answer_to_a_big_body_waits_for_its_last_byte() -> None:
    parser = Parser(10)
    parser.feed(b"put 0 0 1 11\r\n012345678901\r"[:-1])
    assert parser.next() is None
    parser.feed(b"\r")
    assert parser.next() == JOB_TOO_BIG
    assert parser.next() is None


@pytest.mark.parametrize("size", [2**30, 2**30 + 1, 2**32 - 1])
def test_a_huge_body_is_not_kept(size: int) -> None:
    parser = Parser(65_535)
    parser.feed(b"put 0 0 1 %d\r\n" % size)
    assert parser.next() is None
    chunk = bytes(2**20)
    tracemalloc.start()
    try:
        for _ in range((size + 2) // len(chunk)):
            parser.feed(chunk)
            assert parser.next() is None
            assert parser.buffered_bytes == 0
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000
    parser.feed(bytes((size + 2) % len(chunk)) + b"stats\r\n")
    assert take(parser) == [JOB_TOO_BIG, (r.STATS,)]


@pytest.mark.slow
def test_a_large_body_in_small_pieces() -> None:
    # Copying the buffer at each piece would move a terabyte here: the test would not end.
    body = b"0123456789abcdef" * (JOB_SIZE_MAX_BYTES // 16)
    parser = Parser(JOB_SIZE_MAX_BYTES)
    parser.feed(b"put 1 2 3 %d\r\n" % len(body))
    tracemalloc.start()
    try:
        for position in range(0, len(body), 4):
            parser.feed(body[position : position + 4])
            assert parser.next() is None
        assert parser.buffered_bytes == len(body)
        parser.feed(b"\r\n")
        assert parser.next() == (r.PUT, 1, 2, 3, body)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert parser.buffered_bytes == 0
    assert peak_bytes < 3 * len(body)


@pytest.mark.slow
def test_small_pieces_that_nobody_asks_for() -> None:
    parser = Parser(100)
    for _ in range(500_000):
        parser.feed(b"\r\n")
    assert parser.buffered_bytes == 1_000_000
    assert take(parser) == [UNKNOWN] * 500_000
    assert parser.buffered_bytes == 0


def test_what_is_fed_between_two_requests_stays_in_order() -> None:
    parser = Parser(100)
    parser.feed(b"reserve\r\n")
    parser.feed(b"use a\r\n")
    assert parser.next() == (r.RESERVE,)
    parser.feed(b"use b\r\n")
    assert take(parser) == [(r.USE, b"a"), (r.USE, b"b")]


def test_many_commands_in_one_piece() -> None:
    # Copying the rest at each command would move a terabyte here.
    parser = Parser(100)
    count = 500_000
    parser.feed(b"reserve\r\n" * count)
    assert sum(1 for _ in range(count) if parser.next() == (r.RESERVE,)) == count
    assert parser.next() is None


def test_an_idle_parser_keeps_no_old_piece() -> None:
    parser = Parser(100)
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        parser.feed(b"stats\r\n" * 10_000 + b"sta")
        assert len(take(parser)) == 10_000
        assert parser.buffered_bytes == 3
        assert tracemalloc.get_traced_memory()[0] - before_bytes < 2_000
    finally:
        tracemalloc.stop()
    parser.feed(b"ts\r\n")
    assert take(parser) == [(r.STATS,)]


def test_buffered_bytes_counts_what_is_not_parsed() -> None:
    parser = Parser(100)
    assert parser.buffered_bytes == 0
    parser.feed(b"reserve\r\nuse a\r\n")
    parser.feed(b"use b\r\n")
    assert parser.buffered_bytes == 23
    assert parser.next() == (r.RESERVE,)
    assert parser.buffered_bytes == 14
    assert take(parser) == [(r.USE, b"a"), (r.USE, b"b")]
    assert parser.buffered_bytes == 0
