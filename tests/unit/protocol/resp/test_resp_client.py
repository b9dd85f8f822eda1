"""Replies of a RESP server: decoded for any cuts of their bytes, and invalid ones rejected."""

import pytest

from beanpole.errors import ProtocolError
from beanpole.protocol.resp.client import (
    BULK_MAX_BYTES,
    DEPTH_MAX,
    ITEMS_MAX,
    LINE_MAX_BYTES,
    Reply,
    ReplyParser,
    encode,
)
from beanpole.protocol.resp.parser import Parser
from beanpole.protocol.resp.values import Error

STREAM = (
    b"+OK\r\n-ERR no\r\n:-5\r\n$5\r\na\r\nbc\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n"
    b"*3\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n$-1\r\n:7\r\n"
)
NESTED: Reply = [b"a", [1, []], None]
REPLIES: list[Reply] = [
    *(b"OK", Error(b"ERR no"), -5, b"a\r\nbc"),
    *(b"", None, None, []),
    NESTED,
    7,
]


def replies_of(parser: ReplyParser) -> list[Reply]:
    found: list[Reply] = []
    while (one := parser.next()) is not None:
        found.append(one[0])
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 7, len(STREAM)])
def test_replies_are_the_same_however_they_are_cut(step: int) -> None:
    parser = ReplyParser()
    found: list[Reply] = []
    for start in range(0, len(STREAM), step):
        parser.feed(STREAM[start : start + step])
        found += replies_of(parser)
    assert found == REPLIES


@pytest.mark.parametrize(
    "data",
    [
        b"?5\r\n",
        b":five\r\n",
        b":\r\n",
        b"$1\r\nab\r\n",
        b":" + b"1" * 21 + b"\r\n",
        b"$%d\r\n" % (BULK_MAX_BYTES + 1),
        b"*%d\r\n" % (ITEMS_MAX + 1),
        b"*1\r\n" * (DEPTH_MAX + 1),
        b"+" + b"x" * LINE_MAX_BYTES,
    ],
)
def test_what_is_no_reply_is_told(data: bytes) -> None:
    parser = ReplyParser()
    parser.feed(data)
    with pytest.raises(ProtocolError):
        replies_of(parser)


def test_requests_are_read_by_the_server() -> None:
    words = [b"EVAL", b"", b"a\r\nb", b"\xff"]
    server = Parser()
    server.feed(encode(words))
    assert server.next() == words
