"""The values that a RESP server sends, and their encoding in RESP2 and RESP3.

A connection begins with RESP2, and HELLO may change it to RESP3. Types that RESP2 lacks are encoded
as arrays or bulk strings, as in Redis. The meaning of values belongs into the frontends.
"""

from collections.abc import Sequence
from typing import Any, Final

RESP2: Final = 2
RESP3: Final = 3


class _Line:
    """One line of text; CR and LF in it are sent as spaces."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Line) and type(self) is type(other) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class Simple(_Line):
    """A simple string, such as OK."""

    __slots__ = ()


class Error(_Line):
    """An error: the whole text, which begins with a word in capitals (`ERR ...`)."""

    __slots__ = ()


class Double:
    """A floating point number; in RESP2 a bulk string with its digits."""

    __slots__ = ("number",)

    def __init__(self, number: float) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Double) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"Double({self.number!r})"


class Map:
    """Pairs of values; in RESP2 an array of alternating keys and values."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        self.pairs = pairs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Map) and list(self.pairs) == list(other.pairs)

    def __hash__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"Map({self.pairs!r})"


class Push:
    """Data sent without a request, such as a message of a channel; in RESP2 an array."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Push) and list(self.items) == list(other.items)

    def __hash__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Push({self.items!r})"


# bytes are a bulk string, None is null, and a list is an array of values.
Value = bytes | int | list[Any] | Simple | Error | Double | Map | Push | None

OK: Final = Simple(b"OK")


def encode(value: Value, version: int = RESP2) -> bytes:
    """Encode a value in this version of the protocol."""
    parts: list[bytes] = []
    _encode(value, version, parts)
    return b"".join(parts)


def format_double(number: float) -> bytes:
    """Format a number as Redis does: the shortest digits that identify it, without `.0`."""
    if number != number:
        return b"nan"
    if number in (float("inf"), float("-inf")):
        return b"inf" if number > 0 else b"-inf"
    return repr(number).removesuffix(".0").encode()


def _encode(value: Value, version: int, parts: list[bytes]) -> None:
    if isinstance(value, bytes):
        parts.append(b"$%d\r\n%b\r\n" % (len(value), value))
    elif value is None:
        parts.append(b"$-1\r\n" if version == RESP2 else b"_\r\n")
    elif isinstance(value, int):
        parts.append(b":%d\r\n" % value)
    elif isinstance(value, list):
        _encode_items(b"*", value, version, parts)
    elif isinstance(value, Simple):
        parts.append(b"+%b\r\n" % _one_line(value.text))
    elif isinstance(value, Error):
        parts.append(b"-%b\r\n" % _one_line(value.text))
    elif isinstance(value, Double):
        text = format_double(value.number)
        parts.append(
            b",%b\r\n" % text if version != RESP2 else b"$%d\r\n%b\r\n" % (len(text), text)
        )
    elif isinstance(value, Map):
        count = len(value.pairs)
        parts.append(b"*%d\r\n" % (2 * count) if version == RESP2 else b"%%%d\r\n" % count)
        for key, item in value.pairs:
            _encode(key, version, parts)
            _encode(item, version, parts)
    else:
        _encode_items(b"*" if version == RESP2 else b">", value.items, version, parts)


def _encode_items(kind: bytes, items: Sequence[Any], version: int, parts: list[bytes]) -> None:
    parts.append(b"%b%d\r\n" % (kind, len(items)))
    for item in items:
        _encode(item, version, parts)


def _one_line(text: bytes) -> bytes:
    return text.replace(b"\r", b" ").replace(b"\n", b" ")
