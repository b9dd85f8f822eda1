"""Each request of the Workq protocol, each error, and where the stream resumes after it."""

import pytest

from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpole.protocol.workq.parser import Parser
from tests.unit.protocol.workq.ways import (
    JOB,
    JOB_ID,
    OF_VERSION_1,
    parse,
    parse_whole,
    replies_to,
    take,
)

UNKNOWN = replies.UNKNOWN_COMMAND


@pytest.mark.parametrize(
    ("stream", "request_"),
    [
        (b"add %b q 9 70 2\r\nab\r\n", (r.ADD, JOB_ID, b"q", 9, 70, 0, 0, 0, b"ab")),
        (
            b"add %b q 9 70 2 -priority=-7 -max-fails=3 -max-attempts=255\r\nab\r\n",
            (r.ADD, JOB_ID, b"q", 9, 70, -7, 255, 3, b"ab"),
        ),
        (b"add -priority=5 %b  q 9 70 0\r\n\r\n", (r.ADD, JOB_ID, b"q", 9, 70, 5, 0, 0, b"")),
        (b"add %b q 9 70 +2 -priority=1=2\r\nab\r\n", (r.ADD, JOB_ID, b"q", 9, 70, 1, 0, 0, b"ab")),
        (b"add %b q 9 70 0001 -x=1 -y=2\r\n\n\r\n", (r.ADD, JOB_ID, b"q", 9, 70, 0, 0, 0, b"\n")),
        (
            b"schedule %b q 9 70 2016-12-31T23:59:59Z 1 -priority=+3\r\nx\r\n",
            (r.SCHEDULE, JOB_ID, b"q", 9, 70, 1483228799, 3, 0, 0, b"x"),
        ),
        (b"run %b q 9 0 1 -priority=3\r\nx\r\n", (r.RUN, JOB_ID, b"q", 9, 0, 3, b"x")),
        (b"run %b q 9 8 1 -max-fails=3\r\nx\r\n", (r.RUN, JOB_ID, b"q", 9, 8, 0, b"x")),
        (b"result %b 86400000\r\n", (r.RESULT, JOB_ID, 86_400_000)),
        (b"complete %b 4\r\n\r\n\r\n\r\n", (r.COMPLETE, JOB_ID, b"\r\n\r\n")),
        (b"fail %b 0\r\n\r\n", (r.FAIL, JOB_ID, b"")),
        (b"delete %b\r\n", (r.DELETE, JOB_ID)),
        (b"inspect job %b\r\n", (r.INSPECT_JOB, JOB_ID)),
    ],
)
def test_requests_about_a_job(stream: bytes, request_: r.Request) -> None:
    assert parse(stream % JOB) == [request_]


@pytest.mark.parametrize(
    ("stream", "request_"),
    [
        (b"lease a 0\r\n", (r.LEASE, (b"a",), 0)),
        (b"lease a b.c_D-9 a  1000 \r\n", (r.LEASE, (b"a", b"b.c_D-9"), 1000)),
        (b"inspect server\r\n", (r.INSPECT_SERVER,)),
        (b"inspect queues 0 100\r\n", (r.INSPECT_QUEUES, 0, 100)),
        (b"inspect queue q\r\n", (r.INSPECT_QUEUE, b"q")),
        (b"inspect jobs q 5 1\r\n", (r.INSPECT_JOBS, b"q", 5, 1)),
        (b"inspect scheduled-jobs q 0 9\r\n", (r.INSPECT_SCHEDULED, b"q", 0, 9)),
    ],
)
def test_other_requests(stream: bytes, request_: r.Request) -> None:
    assert parse(stream) == [request_]


@pytest.mark.parametrize(
    "form",
    [
        JOB,
        JOB.upper(),
        JOB.replace(b"-", b""),
        b"{%b}" % JOB,
        b"{%b}" % JOB.replace(b"-", b""),
        b"urn:uuid:%b" % JOB,
    ],
)
def test_forms_of_an_id(form: bytes) -> None:
    assert parse(b"delete %b\r\n" % form) == [(r.DELETE, JOB_ID)]


@pytest.mark.parametrize(
    "form", [b"zz", JOB[:-1], JOB + b"0", b"{%b" % JOB, JOB[:8] + JOB[9:], b"URN:UUID:%b" % JOB]
)
def test_what_is_no_id(form: bytes) -> None:
    assert replies_to(b"delete %b\r\n" % form) == replies.INVALID_ID


def test_an_id_of_another_version_is_no_job() -> None:
    for line in (b"add %b q 9 9 0\r\n\r\n", b"result %b 1\r\n", b"fail %b 0\r\n\r\n"):
        assert replies_to(line % OF_VERSION_1) == replies.INVALID_ID
    assert replies_to(b"delete %b\r\n" % OF_VERSION_1) == replies.OK
    assert parse(b"inspect job %b\r\n" % OF_VERSION_1)[0][0] == r.INSPECT_JOB


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (b"%b q 9 9 1 2", replies.INVALID_ARGS + UNKNOWN),
        (b"%b q 9 9", replies.INVALID_ARGS + UNKNOWN),
        (b"%b q 9 9 x", replies.INVALID_PAYLOAD_SIZE + UNKNOWN),
        (b"%b q 9 9 -1", replies.INVALID_PAYLOAD_SIZE + UNKNOWN),
        (b"%b q 9 9 1048577", replies.INVALID_PAYLOAD_SIZE + UNKNOWN),
        (b"%b q 9 9 " + b"9" * 5000, replies.INVALID_PAYLOAD_SIZE + UNKNOWN),
        (b"%b q 9 9 1 -a=1 -b=1 -c=1 -d=1", replies.INVALID_ARGS),
        (b"%b q 9 9 1 -priority=1 -priority=1", replies.INVALID_FLAGS + UNKNOWN),
        (b"%b q 9 9 1 -priority=", replies.INVALID_FLAGS + UNKNOWN),
        (b"%b q 9 9 1 -=1", replies.INVALID_FLAGS + UNKNOWN),
        (b"%b q 0 9 1", replies.INVALID_TTR),
        (b"%b q -5 9 1", replies.INVALID_TTR),
        (b"%b q 86400001 9 1", replies.INVALID_TTR),
        (b"%b q 4294967296 9 1", replies.INVALID_TTR),
        (b"%b q 9 0 1", replies.INVALID_TTL),
        (b"%b q 9 2592000001 1", replies.INVALID_TTL),
        (b"%b q 9 9 1 -max-attempts=256", replies.INVALID_MAX_ATTEMPTS),
        (b"%b q 9 9 1 -max-fails=256", replies.INVALID_MAX_FAILS),
        (b"%b q 9 9 1 -max-fails=x", replies.INVALID_MAX_FAILS),
        (b"%b q 9 9 1 -priority=2147483648", replies.INVALID_PRIORITY),
        (b"%b q 9 9 1 -priority=-2147483649", replies.INVALID_PRIORITY),
        (b"%b q*q 9 9 1", replies.INVALID_NAME),
        (b"%b " + b"q" * 256 + b" 9 9 1", replies.INVALID_NAME),
    ],
)
def test_errors_of_an_add(arguments: bytes, error: bytes) -> None:
    assert replies_to(b"add " + arguments % JOB + b"\r\nx\r\n") == error


def test_errors_have_their_order() -> None:
    """Values that cannot be parsed are reported first, from the left; then disallowed values."""
    wrong = [
        (b"x", JOB, replies.INVALID_ID),
        (b"x", b"0", replies.INVALID_TTR),
        (b"x", b"0", replies.INVALID_TTL),
        (b"256", b"0", replies.INVALID_MAX_ATTEMPTS),
        (b"256", b"0", replies.INVALID_MAX_FAILS),
        (b"x", b"0", replies.INVALID_PRIORITY),
    ]
    line = b"add %b q! %b %b 1 -max-attempts=%b -max-fails=%b -priority=%b\r\nx\r\n"
    for first in range(len(wrong)):
        values = tuple([good if at < first else bad for at, (bad, good, _) in enumerate(wrong)])
        assert replies_to(line % values) == wrong[first][2]
    assert replies_to(b"add %b q! 0 0 1\r\nx\r\n" % OF_VERSION_1) == replies.INVALID_ID
    assert replies_to(b"add %b q! 0 0 1\r\nx\r\n" % JOB) == replies.INVALID_NAME
    assert replies_to(b"add %b q 0 0 1\r\nx\r\n" % JOB) == replies.INVALID_TTR
    assert replies_to(b"add zz q 9 9 1 -a=1 -b=1 -c=1 -d=1\r\nx\r\n") == replies.INVALID_ARGS
    assert replies_to(b"add zz q 9 9 1\r\nxy\r\n") == replies.INVALID_PAYLOAD_SIZE + b"close"


@pytest.mark.parametrize(
    "time",
    [
        b"tomorrow",
        b"2016-12-31T23:59:59",
        b"2016-12-31T23:59:59+00:00",
        b"2016-12-31T23:59:59.5Z",
        b"2016-13-01T00:00:00Z",
        b"2015-02-29T00:00:00Z",
        b"2016-01-00T00:00:00Z",
        b"2016-01-01T24:00:00Z",
        b"2016-01-01T00:60:00Z",
        b"2016-12-31T23:59:60Z",
        b"0000-01-01T00:00:00Z",
    ],
)
def test_what_is_no_time(time: bytes) -> None:
    assert replies_to(b"schedule %b q 9 9 %b 1\r\nx\r\n" % (JOB, time)) == replies.INVALID_TIME


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"run %b q 9 x 1\r\nx\r\n" % JOB, replies.INVALID_WAIT),
        (b"run %b q 9 86400001 1\r\nx\r\n" % JOB, replies.INVALID_WAIT),
        (b"run %b q x 0 1\r\nx\r\n" % JOB, replies.INVALID_TTR),
        (b"run %b q 9 0 1 -priority=1 -max-fails=1\r\nx\r\n" % JOB, replies.INVALID_ARGS),
        (b"result %b\r\n" % JOB, replies.INVALID_ARGS),
        (b"result %b 1 -a=1\r\n" % JOB, replies.INVALID_ARGS),
        (b"result zz x\r\n", replies.INVALID_ID),
        (b"result %b x\r\n" % JOB, replies.INVALID_WAIT),
        (b"result %b +1\r\n" % JOB, replies.INVALID_WAIT),
        (b"result %b 86400001\r\n" % JOB, replies.INVALID_WAIT),
        (b"lease 10\r\n", replies.INVALID_ARGS),
        (b"lease a 10 -x=1\r\n", replies.INVALID_ARGS),
        (b"lease a*b 10\r\n", replies.INVALID_NAME),
        (b"lease a x\r\n", replies.INVALID_WAIT),
        (b"complete %b x\r\nok\r\n" % JOB, replies.INVALID_PAYLOAD_SIZE + UNKNOWN),
        (b"complete zz 2 -a=1\r\nok\r\n", replies.INVALID_ARGS),
        (b"fail %b x\r\n" % JOB, replies.INVALID_RESULT_SIZE),
        (b"fail %b 1\r\nok\r\n" % JOB, replies.INVALID_RESULT_SIZE + b"close"),
        (b"fail\r\n", replies.INVALID_ARGS),
        (b"delete\r\n", replies.INVALID_ARGS),
        (b"inspect\r\n", replies.INVALID_ARGS),
        (b"inspect foo 1 2\r\n", UNKNOWN),
        (b"inspect server x\r\n", replies.INVALID_ARGS),
        (b"inspect server -a=1\r\n", replies.INVALID_ARGS),
        (b"inspect job\r\n", replies.INVALID_ARGS),
        (b"inspect job zz\r\n", replies.INVALID_ID),
        (b"inspect queue\r\n", replies.INVALID_ARGS),
        (b"inspect queue a*b\r\n", replies.INVALID_NAME),
        (b"inspect queues 0\r\n", replies.INVALID_ARGS),
        (b"inspect queues -1 0\r\n", replies.INVALID_OFFSET),
        (b"inspect queues 0 0\r\n", replies.INVALID_LIMIT),
        (b"inspect queues 0 101\r\n", replies.INVALID_LIMIT),
        (b"inspect jobs q 0\r\n", replies.INVALID_ARGS),
        (b"inspect jobs a*b 0 1\r\n", replies.INVALID_NAME),
        (b"inspect scheduled-jobs q x 1\r\n", replies.INVALID_OFFSET),
    ],
)
def test_errors_of_other_requests(stream: bytes, error: bytes) -> None:
    assert replies_to(stream) == error


@pytest.mark.parametrize("line", [b"foo bar", b"ADD", b" inspect server", b"", b"add\t", b"x\ry"])
def test_what_is_no_command(line: bytes) -> None:
    assert replies_to(line + b"\r\n") == UNKNOWN


def test_a_lease_of_more_queues_than_a_session_watches() -> None:
    names = [b"n%d" % number for number in range(r.NAMES_MAX)]
    line = b"lease %b 1\r\n" % b" ".join(names)
    assert parse(line) == [(r.LEASE, tuple(names), 1)]
    assert replies_to(b"lease %b x 1\r\n" % b" ".join(names)) == replies.INVALID_ARGS


def test_a_line_of_very_many_words() -> None:
    """The words are not examined, so that no line takes long."""
    few = b"lease" + b" " * (r.SPACES_MAX - 1) + b"a 1\r\n"
    assert parse_whole(few) == [(r.LEASE, (b"a",), 1)]
    words = b" a" * (r.SPACES_MAX + 1) + b"\r\n"
    assert parse_whole(b"lease" + words) == [(r.BAD, replies.INVALID_ARGS, 0)]
    assert parse_whole(b"x" + words) == [(r.BAD, UNKNOWN, 0)]


def test_a_payload_that_is_longer_than_its_line_says() -> None:
    """The server reads the announced bytes and two more; the bytes after them are a new line."""
    assert (
        replies_to(b"add %b q 9 9 3\r\npong\r\n" % JOB) == replies.INVALID_PAYLOAD_SIZE + b"close"
    )
    first = replies_to(b"add %b q 9 9 10\r\npong\r\nabcdef\r\n" % JOB)
    assert first == replies.INVALID_PAYLOAD_SIZE + UNKNOWN


def test_a_line_that_ends_in_lf_alone_is_the_last_one() -> None:
    behind = b"inspect server\r\n"
    for line in (b"inspect server\n", b"\n", b"foo\n"):
        assert parse(behind + line + behind) == [(r.INSPECT_SERVER,), (r.CLOSE,)]


def test_a_line_may_be_long_and_not_too_long() -> None:
    longest = b"x" * (r.COMMAND_MAX_BYTES - 2) + b"\r\n"
    assert parse_whole(longest + longest) == [(r.BAD, UNKNOWN, 0)] * 2
    assert parse_whole(b"x" + longest) == [(r.CLOSE,)]
    parser = Parser()
    for _ in range(r.COMMAND_MAX_BYTES // 1000):
        parser.feed(b"x" * 1000)
        assert parser.next() is None
    parser.feed(b"x" * 1000)
    assert take(parser) == [(r.CLOSE,)]
    parser.feed(longest)
    assert take(parser) == []
    assert parser.buffered_bytes == 0


def test_a_payload_of_the_largest_size_beside_a_line() -> None:
    payload = b"\r\n" * (r.PAYLOAD_MAX_BYTES // 2)
    head = b"complete %b %d" % (JOB, len(payload))
    stream = b"%b\r\n%b\r\n" % (head, payload)
    assert parse_whole(stream * 2) == [(r.COMPLETE, JOB_ID, payload)] * 2
    room = r.COMMAND_MAX_BYTES - len(stream)
    spaces = b" " * room
    assert parse_whole(b"%b%b\r\n%b\r\n" % (head, spaces, payload))[0][0] == r.COMPLETE
    assert parse_whole(b"%b%b \r\n%b\r\n" % (head, spaces, payload)) == [(r.CLOSE,)]


def test_only_what_stands_behind_a_whole_command_counts_as_buffered() -> None:
    parser = Parser()
    parser.feed(b"delete %b\r\n" % JOB + b"add %b q 9 9 9\r\nxx" % JOB)
    assert parser.next() == (r.DELETE, JOB_ID)
    assert parser.buffered_bytes > 0
    assert parser.next() is None
    assert parser.buffered_bytes == 0
