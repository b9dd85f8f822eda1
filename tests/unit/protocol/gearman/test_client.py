"""The client's side of the Gearman protocol: encoded requests and decoded replies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole.errors import ProtocolError
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.client import Reply, ReplyParser, request


def test_a_request_is_what_the_protocol_says() -> None:
    assert request(p.SUBMIT_JOB, b"f", b"", b"a\0b") == (b"\0REQ\0\0\0\x07\0\0\0\x06f\0\0a\0b")
    with pytest.raises(ValueError, match="NUL"):
        request(p.SUBMIT_JOB, b"f\0", b"", b"")


def test_replies_are_what_the_protocol_says() -> None:
    assert replies.NO_JOB == b"\0RES\0\0\0\x0a\0\0\0\0"
    assert replies.reply(p.JOB_ASSIGN, b"H:x:1", b"f", b"a\0b") == (
        b"\0RES\0\0\0\x0b\0\0\0\x0bH:x:1\0f\0a\0b"
    )
    assert replies.UNIQUE_TOO_LARGE.endswith(b"ARGUMENT_TOO_LARGE\0Unique value too large")


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        (b"", b"0\x000"),
        (b"3\x0010", b"3\x0010"),
        (b"0.5\0x7", b"0\x000"),
        (b"-3\x004294967297", b"4294967293\x001"),
        (b" 7 \0+8", b"7\x008"),
    ],
)
def test_progress_becomes_two_numbers(progress: bytes, told: bytes) -> None:
    expected = replies.reply(p.STATUS_RES, b"H:x:1\x001\x000\0" + told)
    assert replies.status(b"H:x:1", True, False, progress) == expected
    unique = replies.reply(p.STATUS_RES_UNIQUE, b"u\x000\x001\0" + told + b"\x002")
    assert replies.status_unique(b"u", False, True, progress, 2) == unique


@given(
    st.lists(
        st.sampled_from(sorted(p.REPLY_ARGUMENTS)).flatmap(
            lambda kind: st.tuples(
                st.just(kind),
                st.tuples(
                    *[st.binary(max_size=9).map(lambda raw: raw.replace(b"\0", b"_"))]
                    * p.REPLY_ARGUMENTS[kind]
                ),
            )
        )
    ),
    st.lists(st.integers(1, 20)),
)
def test_what_a_server_writes_is_read(sent: list[Reply], pieces: list[int]) -> None:
    stream = b"".join(replies.reply(kind, *arguments) for kind, arguments in sent)
    parser = ReplyParser()
    found = []
    position = 0
    for size in [*pieces, len(stream)]:
        parser.feed(stream[position : position + size])
        position += size
        while (reply := parser.next()) is not None:
            found.append(reply)
    assert found == sent


def test_lines_stand_between_packets() -> None:
    parser = ReplyParser()
    parser.feed(replies.NOOP + b"OK 1.1.20\n.")
    assert parser.next() == (p.NOOP, ())
    assert parser.line() == b"OK 1.1.20\n"
    assert parser.line() is None
    parser.feed(b"\n" + replies.NO_JOB)
    assert parser.line() == b".\n"
    with pytest.raises(ProtocolError, match="no line"):
        parser.line()


@pytest.mark.parametrize(
    "data",
    [
        b"\0REQ\0\0\0\x06\0\0\0\0",
        b"OK this is no packet",
        b"\0RES\0\0\0\x01\0\0\0\0",
        b"\0RES\0\0\0\x0b\xff\0\0\0",
        b"\0RES\0\0\0\x06\0\0\0\x01x",
        b"\0RES\0\0\0\x14\0\0\0\x03h\x001",
    ],
)
def test_what_no_server_sends_raises(data: bytes) -> None:
    parser = ReplyParser()
    parser.feed(data)
    with pytest.raises(ProtocolError):
        parser.next()
