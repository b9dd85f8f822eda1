"""Parse the keys and arguments of a script into the canonical call, or into an error."""

from typing import Any, Final

import beanpole.qless as q
from beanpole.protocol.qless import calls_dotted, calls_seed, calls_unified
from beanpole.protocol.qless.numbers import to_number
from beanpole.protocol.qless.recognition import Script
from beanpole.protocol.qless.requests import NO_INTEGER, Call, Reader, Refusal
from beanpole.protocol.qless.texts import redis_error, script_error

__all__ = ["NAMES", "Call", "Refusal", "read"]

# The names of all calls; a script may declare any others.
NAMES: Final = frozenset((*calls_unified.CALLS, *calls_dotted.CALLS))

# The maximum overhead of an encoded argument, in bytes.
_ITEM_BYTES: Final = 9


def read(script: Script, keys: list[bytes], args: list[bytes]) -> Call | Refusal:
    """Parse the keys and arguments of EVALSHA."""
    if script.flavour == q.SEED:
        reader = Reader(script, 0.0, keys, args)
        call = calls_seed.read(reader)
        return _checked(reader, call)
    if keys:
        return _refusal(script, b"No Keys should be provided")
    if not args:
        return _refusal(script, b"Must provide a command")
    calls = calls_dotted.CALLS if script.flavour == q.DOTTED else calls_unified.CALLS
    name = args[0]
    function = calls.get(name) if name in script.names else None
    if function is None:
        return _refusal(script, b"Unknown command " + name[: q.NAME_MAX_BYTES])
    now = to_number(args[1]) if len(args) > 1 else None
    if now is None:
        return _refusal(script, b'Arg "now" missing or not a number: nil')
    reader = Reader(script, now, keys, args[2:])
    return _checked(reader, function(reader))


def _refusal(script: Script, message: bytes) -> Refusal:
    return Refusal(script_error(script.sha, message))


def _checked(reader: Reader, call: Call) -> Call | Refusal:
    if reader.broken:
        reader.refuse(NO_INTEGER, by_redis=True)
    if not reader.refused and _size(call.args) > q.ARGS_MAX_BYTES:
        reader.refuse(b"the arguments have more than %d bytes" % q.ARGS_MAX_BYTES)
    if not reader.refused:
        return call
    form = redis_error if reader.by_redis else script_error
    return Refusal(form(reader.script.sha, reader.refused))


def _size(args: tuple[Any, ...]) -> int:
    """Return an upper bound of the encoded size of the arguments, in bytes."""
    size = _ITEM_BYTES * (len(args) + 1)
    for item in args:
        if isinstance(item, bytes):
            size += len(item)
        elif isinstance(item, tuple):
            size += _size(item)
    return size
