"""The glob patterns of Redis: `*`, `?`, `[a-z]`, `[^a-z]`, and backslashes to escape these.

A pattern is compiled to a regular expression that never backtracks over a star, so the time of a
match is at most proportional to the product of the two lengths.
"""

import re
from collections.abc import Callable
from typing import Final

# Longer patterns are refused: with a channel name of four kilobytes a match takes 1 ms.
PATTERN_MAX_BYTES: Final = 1024

_STAR: Final = b"*"


def matcher(pattern: bytes) -> Callable[[bytes], bool]:
    """Return a function that returns whether a pattern matches all of a text."""
    match = re.compile(_expression(pattern), re.DOTALL).fullmatch
    return lambda text: match(text) is not None


def _expression(pattern: bytes) -> bytes:
    """Return the expression of a pattern.

    The piece after a star may always match at the first possible place, except the last piece.
    """
    pieces = _pieces(pattern)
    if len(pieces) == 1:
        return pieces[0]
    middle = b"".join([b"(?>.*?%b)" % piece for piece in pieces[1:-1] if piece])
    return b"%b%b.*%b" % (pieces[0], middle, pieces[-1])


def _pieces(pattern: bytes) -> list[bytes]:
    """Return the expressions of the pieces between stars; each matches texts of one length."""
    pieces = [b""]
    place = 0
    while place < len(pattern):
        byte = pattern[place : place + 1]
        place += 1
        if byte == _STAR:
            pieces.append(b"")
        elif byte == b"?":
            pieces[-1] += b"."
        elif byte == b"[":
            allowed, place = _set(pattern, place)
            pieces[-1] += allowed
        else:
            if byte == b"\\" and place < len(pattern):
                byte = pattern[place : place + 1]
                place += 1
            pieces[-1] += re.escape(byte)
    return pieces


def _set(pattern: bytes, place: int) -> tuple[bytes, int]:
    """Return the expression of a set of bytes, and the place after it; `]` may be missing."""
    negated = pattern[place : place + 1] == b"^"
    place += negated
    found = set[int]()
    while place < len(pattern) and pattern[place : place + 1] != b"]":
        if pattern[place : place + 1] == b"\\" and place + 1 < len(pattern):
            found.add(pattern[place + 1])
            place += 2
        elif pattern[place + 1 : place + 2] == b"-" and place + 2 < len(pattern):
            first, last = sorted((pattern[place], pattern[place + 2]))
            found.update(range(first, last + 1))
            place += 3
        else:
            found.add(pattern[place])
            place += 1
    if not found:
        return (b"." if negated else b"(?!)."), place + 1
    members = b"".join([b"\\x%02x" % byte for byte in sorted(found)])
    return b"[%b%b]" % (b"^" if negated else b"", members), place + 1
