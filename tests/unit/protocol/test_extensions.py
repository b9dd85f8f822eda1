"""Commands that only Beanpole has: their lines, bodies and replies."""

import pytest

from beanpole.protocol.beanstalk import replies
from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.client import ReplyParser, encode_put, encode_put_unique
from beanpole.protocol.beanstalk.parser import Parser

BAD_FORMAT = (r.BAD, replies.BAD_FORMAT, 0)
TOKEN = b"0123456789abcdefghijkl"


def parse(data: bytes, piece_bytes: int) -> list[r.Request]:
    parser = Parser(10)
    found = []
    for start in range(0, len(data), piece_bytes):
        parser.feed(data[start : start + piece_bytes])
        while (request := parser.next()) is not None:
            found.append(request)
    return found


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_a_key_belongs_to_one_put(piece_bytes: int) -> None:
    data = (
        encode_put_unique(b"k:1/a", b"body", 1, 2, 3)
        + encode_put(b"plain", 1, 0, 3)
        + b"put-unique k 1 2 3 11\r\n"
        + b"x" * 11
        + b"\r\n"
        + encode_put(b"plain", 1, 0, 3)
        + b"put-unique k 1 2 3 4\r\nbodyxx"
        + encode_put(b"plain", 1, 0, 3)
        + encode_put_unique(b"k", b"", 1, 2, 0)
    )
    plain = (r.PUT, 1, 0, 3, b"plain")
    assert parse(data, piece_bytes) == [
        (r.PUT_UNIQUE, 1, 2, 3, b"body", b"k:1/a"),
        plain,
        (r.BAD, replies.JOB_TOO_BIG, r.PUT),
        plain,
        (r.BAD, replies.EXPECTED_CRLF, r.PUT),
        plain,
        (r.PUT_UNIQUE, 1, 2, 0, b"", b"k"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"put-unique k 1 2 3",
        b"put-unique 1 2 3 4",
        b"put-unique " + b"k" * 65 + b" 1 2 3 4",
        b"put-unique k\x7f 1 2 3 4",
        b"put-unique k\t1 2 3 4",
        b"keep " + TOKEN,
        b"keep " + TOKEN + b" 0",
        b"keep " + TOKEN + b" 301",
        b"keep " + TOKEN[1:] + b" 5",
        b"keep " + TOKEN * 3 + b" 5",
        b"resume " + TOKEN[1:],
        b"resume " + TOKEN + b" 5",
        b"resume ",
    ],
)
def test_malformed_lines(line: bytes) -> None:
    assert parse(line + b"\r\n", 1000) == [BAD_FORMAT]


def test_sessions() -> None:
    data = b"keep %b 0060\r\nresume %b\r\nextensions\r\n" % (TOKEN, TOKEN)
    assert parse(data, 1000) == [(r.KEEP, TOKEN, 60), (r.RESUME, TOKEN), (r.EXTENSIONS,)]


def test_replies() -> None:
    parser = ReplyParser()
    parser.feed(replies.exists(7) + replies.KEPT + replies.resumed([]) + replies.resumed([4, 77]))
    found = [parser.next() for _ in range(4)]
    assert found == [
        (b"EXISTS", (7,), None),
        (b"KEPT", (), None),
        (b"RESUMED", (), b""),
        (b"RESUMED", (), b"4 77"),
    ]


@pytest.mark.parametrize("key", [b"", b"a b", b"k" * 65, b"k\r\n"])
def test_a_wrong_key_is_never_sent(key: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 64 printable bytes"):
        encode_put_unique(key, b"", 1, 0, 60)
