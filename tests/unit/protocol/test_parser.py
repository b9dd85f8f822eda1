"""Every command's line: accepted forms, rejected forms, and the error word of each."""

import pytest

from beanpole.protocol.beanstalk import replies
from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.parser import Parser
from beanpole.protocol.beanstalk.requests import Request
from tests.unit.protocol.ways import parse

BAD_FORMAT = (r.BAD, replies.BAD_FORMAT, 0)
BAD_PUT = (r.BAD, replies.BAD_FORMAT, r.PUT)
UNKNOWN = (r.BAD, replies.UNKNOWN_COMMAND, 0)
U32 = 2**32 - 1
U64 = 2**64 - 1
LONGEST_NAME = b"n" * 200
ALPHABET = b"ABCxyz019-+/;.$_()"

GOOD: list[tuple[bytes, Request]] = [
    (b"use default", (r.USE, b"default")),
    (b"use " + ALPHABET, (r.USE, ALPHABET)),
    (b"use a-", (r.USE, b"a-")),
    (b"use " + LONGEST_NAME, (r.USE, LONGEST_NAME)),
    (b"watch x_y", (r.WATCH, b"x_y")),
    (b"ignore 0", (r.IGNORE, b"0")),
    (b"reserve", (r.RESERVE,)),
    (b"reserve-with-timeout 0", (r.RESERVE_TIMEOUT, 0)),
    (b"reserve-with-timeout   007", (r.RESERVE_TIMEOUT, 7)),
    (b"reserve-with-timeout 2147483647", (r.RESERVE_TIMEOUT, 2147483647)),
    (b"reserve-with-timeout 0 junk", (r.RESERVE_TIMEOUT, 0)),
    (b"reserve-with-timeout 0x1", (r.RESERVE_TIMEOUT, 0)),
    (b"reserve-with-timeout 5 ", (r.RESERVE_TIMEOUT, 5)),
    (b"reserve-job 3", (r.RESERVE_JOB, 3)),
    (b"delete 1", (r.DELETE, 1)),
    (b"delete 0", (r.DELETE, 0)),
    (b"delete   0000000000000000000000000000000012", (r.DELETE, 12)),
    (b"delete %d" % U64, (r.DELETE, U64)),
    (b"release 1 2 3", (r.RELEASE, 1, 2, 3)),
    (b"release %d %d %d" % (U64, U32, U32), (r.RELEASE, U64, U32, U32)),
    (b"release  1   02    3", (r.RELEASE, 1, 2, 3)),
    (b"bury 1 2", (r.BURY, 1, 2)),
    (b"bury  %d   %d" % (U64, U32), (r.BURY, U64, U32)),
    (b"touch 9", (r.TOUCH, 9)),
    (b"peek 9", (r.PEEK, 9)),
    (b"peek-ready", (r.PEEK_READY,)),
    (b"peek-delayed", (r.PEEK_DELAYED,)),
    (b"peek-buried", (r.PEEK_BURIED,)),
    (b"kick 10", (r.KICK, 10)),
    (b"kick  0010", (r.KICK, 10)),
    (b"kick 5 junk", (r.KICK, 5)),
    (b"kick 5junk", (r.KICK, 5)),
    (b"kick %d" % U32, (r.KICK, U32)),
    (b"kick 4294967297", (r.KICK, U32)),
    (b"kick %d" % U64, (r.KICK, U32)),
    (b"kick-job 10", (r.KICK_JOB, 10)),
    (b"stats", (r.STATS,)),
    (b"stats-job 10", (r.STATS_JOB, 10)),
    (b"stats-tube default", (r.STATS_TUBE, b"default")),
    (b"list-tubes", (r.LIST_TUBES,)),
    (b"list-tube-used", (r.LIST_TUBE_USED,)),
    (b"list-tubes-watched", (r.LIST_TUBES_WATCHED,)),
    (b"pause-tube t 0", (r.PAUSE_TUBE, b"t", 0)),
    (b"pause-tube   t   05", (r.PAUSE_TUBE, b"t", 5)),
    (b"pause-tube " + LONGEST_NAME + b" 4294967295", (r.PAUSE_TUBE, LONGEST_NAME, U32)),
    (b"quit", (r.QUIT,)),
    (b"quitjunk", (r.QUIT,)),
    (b"quit now", (r.QUIT,)),
]

ONE_JOB = [b"delete", b"touch", b"peek", b"kick-job", b"reserve-job", b"stats-job"]
ONE_TUBE = [b"use", b"watch", b"ignore", b"stats-tube"]
PLAIN = [
    b"reserve",
    b"peek-ready",
    b"peek-delayed",
    b"peek-buried",
    b"stats",
    b"list-tubes",
    b"list-tube-used",
    b"list-tubes-watched",
]
# fmt: off
NO_NUMBERS = [
    b"", b" ", b"-1", b"+1", b"1 ", b"1 2", b"a111", b"111a", b"1_0", b"0x1", b"\t1", b"1\t",
    b"1\n", b"1\r", b"\n1", b"1.5", b"18446744073709551616", b"9" * 200, b"!@#", b"1\0",
    "\u0661".encode(),
]
NO_NAMES = [
    b"", b" ", b" a", b"a ", b"a b", b"-a", b"a:b", b"a@b", b"a#b", b"a\tb", b"a\0", b"a\r", b"\na",
    b"a\n", "\u00e9".encode(), b"n" * 201, b"*", b"a,b", b"a=b", b"a%b", b'a"b', b"[a]",
]
BAD = [
    b"release ", b"release 1", b"release 1 2", b"release 1 2 ", b"release 1 2 3 ",
    b"release 1 2 3 4", b"release -1 2 3", b"release 1 -2 3", b"release 1 2 -3", b"release a 2 3",
    b"release 1 b 3", b"release 1 2 c", b"release 1\t2 3", b"release 18446744073709551616 2 3",
    b"release 1 4294967296 3", b"release 1 2 4294967296", b"release 1 2 +3", b"release 1 2 3\0",
    b"bury ", b"bury 1", b"bury 1 ", b"bury 1 2 ", b"bury 1 2 3", b"bury a 2", b"bury 1 b",
    b"bury 1 -2", b"bury 18446744073709551616 2", b"bury 1 4294967296", b"bury 1 1_0",
    b"kick ", b"kick -1", b"kick +1", b"kick a", b"kick  ", b"kick \t1", b"kick 5 \0",
    b"kick 18446744073709551616",
    b"reserve-with-timeout", b"reserve-with-timeout ", b"reserve-with-timeout -1",
    b"reserve-with-timeout +1", b"reserve-with-timeout x", b"reserve-with-timeout 2147483648",
    b"reserve-with-timeout 4294967296", b"reserve-with-timeout 18446744073709551616",
    b"reserve-with-timeout 0\0", b"reserve-with-timeoutx 1", b"reserve-job", b"reserve-jobx 1",
    b"pause-tube", b"pause-tube ", b"pause-tube t", b"pause-tube t ", b"pause-tube t 0 ",
    b"pause-tube t -1", b"pause-tube t 4294967296", b"pause-tube -t 0", b"pause-tube t: 0",
    b"pause-tube t 0 0", b"pause-tube " + b"n" * 201 + b" 1", b"pause-tube t0", b"pause-tube 0",
    b"pause-tube t\t0", b"pause-tubet 0",
    b"stats-job", b"stats-tube", b"stats-jobs 1", b"list-tubes-w", b"list-tubesx", b"\0", b"abc\0",
    b"quit\0", b"put 0 0 0 0\0", b"put\0", b"\0put 0 0 0 0",
]
UNKNOWN_LINES = [
    b"", b" ", b"nont10knowncommand", b"release", b"bury", b"kick", b"put", b"peek", b"delete",
    b"touch", b"use", b"watch", b"ignore", b"kick-job", b"kick-jobs 1", b"kick\t1", b"list-tube",
    b"list", b"PUT 0 0 0 0", b"Stats", b" stats", b"\tstats", b"reserv", b"peek-r", b"peekx",
    b"pause", b"qui", b"putx 0 0 0 0", b"deletex 1", b"usex a", b"a\nb", b"\n", b"\r", b"\rstats",
    b"\nstats", b"a\rb", b"\xff\xfe", b"GET / HTTP/1.1", b"watch\ta",
]
# fmt: on


@pytest.mark.parametrize(("line", "request_"), GOOD, ids=repr)
def test_a_good_line(line: bytes, request_: Request) -> None:
    assert parse(line + b"\r\n") == [request_]


@pytest.mark.parametrize("word", ONE_JOB)
@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_job_id(word: bytes, text: bytes) -> None:
    assert parse(word + b" " + text + b"\r\n") == [BAD_FORMAT]


@pytest.mark.parametrize("word", ONE_TUBE)
@pytest.mark.parametrize("text", NO_NAMES)
def test_what_is_no_tube_name(word: bytes, text: bytes) -> None:
    assert parse(word + b" " + text + b"\r\n") == [BAD_FORMAT]


@pytest.mark.parametrize("word", PLAIN)
@pytest.mark.parametrize("text", [b" ", b"x", b" x", b" 1", b"\t", b"\0", b"\r", b"\n"])
def test_what_stands_behind_a_command_without_arguments(word: bytes, text: bytes) -> None:
    assert parse(word + text + b"\r\n") == [BAD_FORMAT]


@pytest.mark.parametrize("line", BAD)
def test_a_malformed_line(line: bytes) -> None:
    assert parse(line + b"\r\n") == [BAD_FORMAT]


@pytest.mark.parametrize("line", UNKNOWN_LINES)
def test_an_unknown_command(line: bytes) -> None:
    assert parse(line + b"\r\n") == [UNKNOWN]


def test_every_byte_of_a_tube_name() -> None:
    for value in range(256):
        name = bytes([value])
        assert r.is_tube_name(b"a" + name) == (name in ALPHABET or name.isalnum())
        assert r.is_tube_name(name) == ((name in ALPHABET or name.isalnum()) and name != b"-")
    assert not r.is_tube_name(b"")


def test_counters_are_numbered_as_stats_prints_them() -> None:
    counted = [r.PUT, r.PEEK, r.PEEK_READY, r.PEEK_DELAYED, r.PEEK_BURIED, r.RESERVE]
    counted += [r.RESERVE_TIMEOUT, r.DELETE, r.RELEASE, r.USE, r.WATCH, r.IGNORE, r.BURY, r.KICK]
    counted += [r.TOUCH, r.STATS, r.STATS_JOB, r.STATS_TUBE, r.LIST_TUBES, r.LIST_TUBE_USED]
    counted += [r.LIST_TUBES_WATCHED, r.PAUSE_TUBE]
    assert counted == list(range(1, r.COUNTERS))


def test_pipelined_commands_keep_their_order() -> None:
    stream = b"use a\r\nput 1 0 1 2\r\nhi\r\nwatch b\r\n\r\nreserve\r\nquit\r\n"
    assert parse(stream) == [
        (r.USE, b"a"),
        (r.PUT, 1, 0, 1, b"hi"),
        (r.WATCH, b"b"),
        UNKNOWN,
        (r.RESERVE,),
        (r.QUIT,),
    ]


@pytest.mark.parametrize(
    "header",
    [
        b"put ",
        b"put 0 0 0",
        b"put 0 0 0 ",
        b"put -1 0 1 0",
        b"put 0 -1 1 0",
        b"put 0 0 -1 0",
        b"put 0 0 1 -1",
        b"put 4294967296 0 1 0",
        b"put 0 4294967296 1 0",
        b"put 0 0 4294967296 0",
        b"put 0 0 1 4294967296",
        b"put x 0 1 0",
        b"put 1x 0 1 0",
        b"put 0 0 1 !",
        b"put 0 0 1_0 0",
        b"put 0\t0 1 0",
        b"put 0 0 1 99999 \0",
        b"put 0 0 1 0\0",
    ],
)
def test_a_malformed_put_does_not_swallow_its_body(header: bytes) -> None:
    stream = header + b"\r\ndelete 7\r\n"
    assert parse(stream) == [BAD_FORMAT, (r.DELETE, 7)]


@pytest.mark.parametrize("junk", [b" ", b"x", b" x", b" 5", b"\r", b"\n", b"-"])
def test_junk_behind_a_put_is_malformed_but_counted(junk: bytes) -> None:
    stream = b"put 0 0 1 5" + junk + b"\r\nhello\r\n"
    assert parse(stream) == [BAD_PUT, UNKNOWN]


def test_put_limits() -> None:
    line = b"put  %d   %d  %d  0002\r\nhi\r\n" % (U32, U32, U32)
    assert parse(line) == [(r.PUT, U32, U32, U32, b"hi")]
    assert parse(b"put 0 0 0 0\r\n\r\n") == [(r.PUT, 0, 0, 0, b"")]


def test_the_job_size_limit_has_a_lower_bound() -> None:
    with pytest.raises(AssertionError):
        Parser(0)
