"""The client's half: the server's parser reads its requests, and it reads every reply."""

import pytest

from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk import client, replies
from beanpole.protocol.beanstalk import requests as r
from tests.unit.protocol.ways import parse

REPLIES: list[tuple[bytes, client.Reply]] = [
    (replies.inserted(5), (b"INSERTED", (5,), None)),
    (replies.BURIED, (b"BURIED", (), None)),
    (b"BURIED 7\r\n", (b"BURIED", (7,), None)),
    (replies.EXPECTED_CRLF, (b"EXPECTED_CRLF", (), None)),
    (replies.JOB_TOO_BIG, (b"JOB_TOO_BIG", (), None)),
    (replies.DRAINING, (b"DRAINING", (), None)),
    (replies.using(b"123"), (b"USING", (b"123",), None)),
    (replies.reserved(1, b"\r\n"), (b"RESERVED", (1,), b"\r\n")),
    (replies.reserved(1, b""), (b"RESERVED", (1,), b"")),
    (replies.DEADLINE_SOON, (b"DEADLINE_SOON", (), None)),
    (replies.TIMED_OUT, (b"TIMED_OUT", (), None)),
    (replies.DELETED, (b"DELETED", (), None)),
    (replies.NOT_FOUND, (b"NOT_FOUND", (), None)),
    (replies.RELEASED, (b"RELEASED", (), None)),
    (replies.TOUCHED, (b"TOUCHED", (), None)),
    (replies.watching(2), (b"WATCHING", (2,), None)),
    (replies.NOT_IGNORED, (b"NOT_IGNORED", (), None)),
    (replies.found(9, b"x" * 300), (b"FOUND", (9,), b"x" * 300)),
    (replies.KICKED, (b"KICKED", (), None)),
    (replies.kicked(3), (b"KICKED", (3,), None)),
    (replies.ok(b"---\n"), (b"OK", (), b"---\n")),
    (replies.PAUSED, (b"PAUSED", (), None)),
    (replies.OUT_OF_MEMORY, (b"OUT_OF_MEMORY", (), None)),
    (replies.INTERNAL_ERROR, (b"INTERNAL_ERROR", (), None)),
    (replies.BAD_FORMAT, (b"BAD_FORMAT", (), None)),
    (replies.UNKNOWN_COMMAND, (b"UNKNOWN_COMMAND", (), None)),
    (replies.exists(5), (b"EXISTS", (5,), None)),
    (replies.KEPT, (b"KEPT", (), None)),
    (replies.resumed([5, 7]), (b"RESUMED", (), b"5 7")),
    (replies.ACCEPTED, (b"ACCEPTED", (), None)),
    (replies.DENIED, (b"DENIED", (), None)),
]


def take(parser: client.ReplyParser) -> list[client.Reply]:
    found = []
    while (reply := parser.next()) is not None:
        found.append(reply)
    return found


def test_every_word_has_its_example() -> None:
    assert {reply[0] for _, reply in REPLIES} == client.REPLY_WORDS
    assert len(client.REPLY_WORDS) == 28


@pytest.mark.parametrize(("data", "reply"), REPLIES, ids=[repr(item[0][:20]) for item in REPLIES])
def test_a_reply_in_all_ways(data: bytes, reply: client.Reply) -> None:
    parser = client.ReplyParser()
    parser.feed(data)
    assert take(parser) == [reply]
    bytewise = []
    for position in range(len(data)):
        parser.feed(data[position : position + 1])
        bytewise += take(parser)
    assert bytewise == [reply]
    parser.feed(data + replies.PAUSED + b"USING")
    assert take(parser) == [reply, (b"PAUSED", (), None)]
    parser.feed(b" t\r\n")
    assert take(parser) == [(b"USING", (b"t",), None)]


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"HELLO\r\n",
        b"inserted 1\r\n",
        b"INSERTED\r\n",
        b"INSERTED 1 2\r\n",
        b"INSERTED -1\r\n",
        b"INSERTED  1\r\n",
        b"INSERTED 1_0\r\n",
        b"DELETED \r\n",
        b"RESERVED 1\r\n",
        b"RESERVED 1 x\r\n",
        b"RESERVED 1 1\r\nab\r\n",
        b"OK 99999999999\r\n",
        b"x" * 224,
    ],
)
def test_what_no_server_sends(data: bytes) -> None:
    parser = client.ReplyParser()
    parser.feed(data)
    with pytest.raises(ProtocolError):
        parser.next()


def test_a_long_body_in_small_pieces() -> None:
    body = b"z" * 2_000_000
    data = replies.reserved(1, body)
    parser = client.ReplyParser()
    for position in range(0, len(data), 100):
        assert parser.next() is None
        parser.feed(data[position : position + 100])
    assert take(parser) == [(b"RESERVED", (1,), body)]


def test_requests() -> None:
    assert parse(client.encode(b"release", 7, 1024, 0)) == [(r.RELEASE, 7, 1024, 0)]
    assert parse(client.encode(b"pause-tube", b"t", 5)) == [(r.PAUSE_TUBE, b"t", 5)]
    assert parse(client.encode(b"reserve")) == [(r.RESERVE,)]
    assert parse(client.encode_put(b"a\r\nb", 1, 2, 3)) == [(r.PUT, 1, 2, 3, b"a\r\nb")]


@pytest.mark.parametrize("name", [b"a\r\nquit", b"a\n", b"\r"])
def test_a_tube_name_cannot_smuggle_a_request(name: bytes) -> None:
    with pytest.raises(ValueError, match="line's end"):
        client.encode(b"use", name)
