"""The bytes of values in RESP2 and RESP3 are those of Redis."""

import pytest

from beanpole.protocol.resp.values import (
    OK,
    RESP2,
    RESP3,
    Double,
    Error,
    Map,
    Push,
    Simple,
    Value,
    encode,
)

INFINITY = float("inf")


@pytest.mark.parametrize(
    ("value", "resp2", "resp3"),
    [
        (b"a\r\nb", b"$4\r\na\r\nb\r\n", b"$4\r\na\r\nb\r\n"),
        (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
        (None, b"$-1\r\n", b"_\r\n"),
        (-7, b":-7\r\n", b":-7\r\n"),
        (True, b":1\r\n", b":1\r\n"),
        ([b"a", [1, None]], b"*2\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n", None),
        ([None], b"*1\r\n$-1\r\n", b"*1\r\n_\r\n"),
        (OK, b"+OK\r\n", b"+OK\r\n"),
        (Error(b"ERR no\r\nmore"), b"-ERR no  more\r\n", b"-ERR no  more\r\n"),
        (Double(1.0), b"$1\r\n1\r\n", b",1\r\n"),
        (Double(0.25), b"$4\r\n0.25\r\n", b",0.25\r\n"),
        (Double(-INFINITY), b"$4\r\n-inf\r\n", b",-inf\r\n"),
        (Double(INFINITY - INFINITY), b"$3\r\nnan\r\n", b",nan\r\n"),
        (Map([(b"proto", 3)]), b"*2\r\n$5\r\nproto\r\n:3\r\n", b"%1\r\n$5\r\nproto\r\n:3\r\n"),
        (Push([b"a", 1]), b"*2\r\n$1\r\na\r\n:1\r\n", b">2\r\n$1\r\na\r\n:1\r\n"),
    ],
)
def test_bytes(value: Value, resp2: bytes, resp3: bytes | None) -> None:
    assert encode(value, RESP2) == resp2
    if resp3 is not None:
        assert encode(value, RESP3) == resp3


def test_values_are_equal_if_type_and_content_are() -> None:
    assert Simple(b"a") == Simple(b"a") != Error(b"a")
    assert Double(1.0) == Double(1.0) != Double(2.0)
    assert Map([(b"a", 1)]) == Map([(b"a", 1)]) != Map([(b"a", 2)])
    assert Push([b"a"]) == Push([b"a"]) != Push([b"b"])
    assert {OK, Simple(b"OK")} == {OK}
