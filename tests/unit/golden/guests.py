"""Clients of the other protocols in golden scripts: words to bytes, bytes to words.

Which commands of a script use them is in `leader_world.py`. A word of a script is as it stands, but
`\\0`, `\\n` and the like are what Python says they are, so that it may have any byte.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import msgpack

from beanpole import commands as c
from beanpole import qless as q
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import ReplyParser as Packets
from beanpole.protocol.gearman.client import request
from beanpole.protocol.resp.client import encode

# By which a node knows a dialect of qless. It is loaded by `@script`, and called by `@call`.
SCRIPT: Final = b"""
QlessAPI.put = function(now, me, queue, jid, klass, data, delay, ...)
QlessAPI.requeue = function(now, me, queue, jid, ...)
QlessAPI.pop = function(now, queue, worker, count)
QlessAPI.peek = function(now, queue, count)
QlessAPI.fail = function(now, jid, worker, group, message, data)
QlessAPI.heartbeat = function(now, jid, worker, data)
"""
_FLOAT: Final = Struct("<d")
_BITS: Final = Struct("<Q")
_PACKETS: Final = {
    name: code
    for name, code in vars(p).items()
    if type(code) is int and not name.endswith(("_MAX", "_BYTES"))
}
_PACKET_NAMES: Final = {code: name for name, code in _PACKETS.items()}


def text_of(data: bytes) -> str:
    """Bytes in a script: what is no plain text is escaped."""
    text = data.decode("ascii", "backslashreplace")
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def bytes_of(word: str) -> bytes:
    """A word of a script."""
    return word.encode().decode("unicode_escape").encode("latin-1")


def workq(words: list[str]) -> bytes:
    """Lines, with `|` for their ends."""
    return " ".join(words).replace("|", "\r\n").encode() + b"\r\n"


def gearman(words: list[str]) -> bytes:
    """One packet by its name and arguments; one that is empty is `''`."""
    name, *arguments = words
    return request(_PACKETS[name], *[bytes_of(word.replace("''", "")) for word in arguments])


def qless(words: list[str]) -> bytes:
    """A command of Redis, or `call put 1 ...` of the script."""
    arguments = [bytes_of(word) for word in words]
    if words[0] == "call":
        arguments = [b"EVAL", SCRIPT, b"0", *arguments[1:]]
    return encode(arguments)


REQUESTS: Final[dict[str, Callable[[list[str]], bytes]]] = {
    "workq": workq,
    "gearman": gearman,
    "qless": qless,
}


def shown(protocol: str, data: bytes) -> str:
    """What a client is told."""
    if protocol != "gearman":
        return " | ".join(text_of(line) for line in data.splitlines())
    parser, found = Packets(), []
    parser.feed(data)
    while (packet := parser.next()) is not None:
        kind, arguments = packet
        found.append(" ".join([_PACKET_NAMES[kind], *map(text_of, arguments)]))
    return " | ".join(found)


def shown_call(command: c.Command) -> str:
    """A call of qless in the log, with its arguments."""
    _, session, call, _flavour, bits, packed = command
    assert isinstance(packed, bytes)
    assert isinstance(call, int)
    (now,) = _FLOAT.unpack(_BITS.pack(bits))
    arguments: Any = msgpack.unpackb(packed, use_list=False)
    return f"QLESS session={session} at {now:g}: {q.CALL_NAMES[call]}{_shown_tuple(arguments)}"


def _shown_tuple(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown_tuple, value))})"
    return text_of(value) if isinstance(value, bytes) else str(value)
