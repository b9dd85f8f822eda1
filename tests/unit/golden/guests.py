"""Clients of the other protocols in golden scripts: words to bytes, bytes to words.

`leader_world.py` lists the commands of a script that use them. A word of a script is literal,
except
that `\\0`, `\\n` and the like are Python's escapes, so that it may contain any byte.
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

# A node recognises the dialect of qless by this script. `@script` loads it, `@call` calls it.
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
    """Return bytes as a word of a script, with escapes for everything but plain text."""
    text = data.decode("ascii", "backslashreplace")
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def bytes_of(word: str) -> bytes:
    """Return the bytes of a script's word."""
    return word.encode().decode("unicode_escape").encode("latin-1")


def workq(words: list[str]) -> bytes:
    """Encode lines; `|` stands for their ends."""
    return " ".join(words).replace("|", "\r\n").encode() + b"\r\n"


def gearman(words: list[str]) -> bytes:
    """Encode one packet from its name and arguments; `''` is an empty argument."""
    name, *arguments = words
    return request(_PACKETS[name], *[bytes_of(word.replace("''", "")) for word in arguments])


def qless(words: list[str]) -> bytes:
    """Encode a command of Redis, or `call put 1 ...` of the script."""
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
    """Show the replies to a client."""
    if protocol != "gearman":
        return " | ".join(text_of(line) for line in data.splitlines())
    parser, found = Packets(), []
    parser.feed(data)
    while (packet := parser.next()) is not None:
        kind, arguments = packet
        found.append(" ".join([_PACKET_NAMES[kind], *map(text_of, arguments)]))
    return " | ".join(found)


def shown_call(command: c.Command) -> str:
    """Show a call of qless in the log, with its arguments."""
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
