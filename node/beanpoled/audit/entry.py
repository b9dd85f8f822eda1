"""The format of an audit log line: one call of an administrator. Files are in `log`."""

import json
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

Value = str | int | bool | list[str] | list[int]

# A name of a queue fits completely; longer values are truncated.
TEXT_MAX_CHARS: Final = 256
# A line with longer arguments gives only their size. JSON makes up to twelve bytes of a character.
# 64 rights or rules fit: an administrator must not hide one by the length of the others.
ARGUMENTS_BYTES_MAX: Final = 64 * 1024
# The same for a call that was refused, whose caller may be anybody: a line has less than 2 KiB.
REFUSED_BYTES_MAX: Final = 1024
_BEGIN: Final = b'{"id": '


class Entry(NamedTuple):
    """A call that has ended.

    Attributes:
        wall_us: the time at which it began.
        caller: the address without a port; empty if unknown.
        certificate: the name in the caller's certificate; empty for none.
        user: the caller's user; empty for none.
        method: "Service/Method" of gRPC, or the protocol and the command.
        arguments: never a job's body, a token or a secret.
        outcome: a status code of gRPC, or the protocol's own word.
        duration_us: its duration.
        alike: the number of similar calls that were left out since the last logged one.
        reads: whether the call only reads; not part of the line.
        refused: whether its caller had not the right, so that it did nothing; not part of the line.
    """

    wall_us: int
    caller: str
    certificate: str
    user: str
    method: str
    arguments: Mapping[str, Value]
    outcome: str
    duration_us: int
    alike: int = 0
    reads: bool = False
    refused: bool = False


def line(entry: Entry, number: int, node: str) -> bytes:
    """Return the line of a file.

    Args:
        entry: the call.
        number: grows from line to line; it comes first, so that readers find their position.
        node: the node that was called.
    """
    room = REFUSED_BYTES_MAX if entry.refused else ARGUMENTS_BYTES_MAX
    told: dict[str, object] = {
        "id": number,
        "time": _utc(entry.wall_us),
        "node": node,
        "caller": _cut(entry.caller),
        "certificate": _cut(entry.certificate),
        "user": _cut(entry.user),
        "method": _cut(entry.method),
        "arguments": _bounded({name: _cut(value) for name, value in entry.arguments.items()}, room),
        "outcome": _cut(entry.outcome),
        "duration_ms": round(entry.duration_us / 1000, 3),
    }
    if entry.alike:
        told["alike_before"] = entry.alike
    return json.dumps(told).encode() + b"\n"


def number_of(raw: bytes) -> int:
    """Return the number of a line; 0 if the line has none."""
    if not raw.startswith(_BEGIN):
        return 0
    digits = raw[len(_BEGIN) :].partition(b",")[0]
    return int(digits) if digits.isdigit() else 0


def cut(text: str) -> str:
    """Return a text as it is recorded."""
    return text[:TEXT_MAX_CHARS] + "..." if len(text) > TEXT_MAX_CHARS else text


def _cut(value: Value) -> object:
    if isinstance(value, list):
        return [cut(item) if isinstance(item, str) else item for item in value]
    return cut(value) if isinstance(value, str) else value


def _bounded(arguments: dict[str, object], bytes_max: int) -> dict[str, object]:
    size = len(json.dumps(arguments))
    return arguments if size <= bytes_max else {"left out": f"{size} bytes"}


def _utc(wall_us: int) -> str:
    seconds, us = divmod(wall_us, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{us // 1000:03d}Z"
