"""The format of an audit log line: one call of an administrator. Files are in `log`."""

import json
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

Value = str | int | bool | list[str] | list[int]

# A name of a queue fits completely; longer values are truncated.
TEXT_MAX_CHARS: Final = 256
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


def line(entry: Entry, number: int, node: str) -> bytes:
    """Return the line of a file.

    Args:
        entry: the call.
        number: grows from line to line; it comes first, so that readers find their position.
        node: the node that was called.
    """
    told: dict[str, object] = {
        "id": number,
        "time": _utc(entry.wall_us),
        "node": node,
        "caller": entry.caller,
        "certificate": entry.certificate,
        "user": entry.user,
        "method": entry.method,
        "arguments": {name: _cut(value) for name, value in entry.arguments.items()},
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


def _cut(value: Value) -> Value:
    if isinstance(value, str) and len(value) > TEXT_MAX_CHARS:
        return value[:TEXT_MAX_CHARS] + "..."
    return value


def _utc(wall_us: int) -> str:
    seconds, us = divmod(wall_us, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{us // 1000:03d}Z"
