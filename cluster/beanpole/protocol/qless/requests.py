"""Reads the arguments of a script, one after the other, and remembers what was wrong first.

The order in which they are read is the order of the checks in the scripts, so that a client sees
the same error. Reading goes on after an error, with values that mean nothing: whoever reads asks
`refused` once, at the end. What each call of a dialect has for arguments is in `calls_*`.
"""

from typing import Any, Final, NamedTuple

import beanpole.qless as q
from beanpole.protocol.qless import cjson
from beanpole.protocol.qless.numbers import format_number, to_number
from beanpole.protocol.qless.recognition import Script


class Call(NamedTuple):
    """A call as it goes to the log.

    Attributes:
        code: one of the calls of `beanpole.qless`, its arguments are `args`.
        now: the client's time in seconds.
        answer: the form of the answer, one of `forms`.
    """

    code: int
    flavour: int
    now: float
    args: tuple[Any, ...]
    answer: int


class Refusal(NamedTuple):
    """The error for arguments that are no call; without the word `ERR` before it."""

    text: bytes


NO_INTEGER: Final = b"value is not an integer or out of range"
NO_ARGUMENTS: Final = b"Wrong number of args calling Redis command from script"
NO_STRING: Final = b"Lua redis lib command arguments must be strings or integers"
# What Lua says of a table; its address is of no use to anybody.
A_TABLE: Final = b"table: 0x000000000000"


class Reader:
    """The arguments of one call.

    Attributes:
        args: those that stand behind the call's name and its time.
        keys: the keys, which only the seed form has.
        refused: the first error, b"" if there was none.
        by_redis: whether that error is one of Redis, not of the script.
        broken: whether a number has a fraction that may not have one. Redis notices that, after
            the script has looked at everything.
    """

    def __init__(self, script: Script, now: float, keys: list[bytes], args: list[bytes]) -> None:
        self.script = script
        self.now = now
        self.keys = keys
        self.args = args
        self.refused = b""
        self.by_redis = False
        self.broken = False

    def refuse(self, message: bytes, by_redis: bool = False) -> None:
        """Remember an error, if it is the first."""
        if not self.refused:
            self.refused = message
            self.by_redis = by_redis

    def call(self, code: int, args: tuple[Any, ...], answer: int) -> Call:
        """The call that the arguments are, unless something was refused."""
        return Call(code, self.script.flavour, self.now, args, answer)

    # --- strings --------------------------------------------------------------------------------

    def at(self, index: int) -> bytes | None:
        """An argument as it is, or None."""
        return self.args[index] if index < len(self.args) else None

    def name(self, index: int, missing: bytes) -> bytes:
        """A name that must be there."""
        return self.a_name(self.at(index), missing)

    def name_if(self, index: int) -> bytes | None:
        """A name that may be there."""
        value = self.at(index)
        return None if value is None else self.a_name(value, b"")

    def a_name(self, value: bytes | None, missing: bytes) -> bytes:
        """A name that is in hand."""
        if value is None:
            self.refuse(missing)
            return b""
        if len(value) > q.NAME_MAX_BYTES:
            self.refuse(b"a name has more than %d bytes" % q.NAME_MAX_BYTES)
            return b""
        return value

    def names(self, start: int, limit: int, what: bytes) -> tuple[bytes, ...]:
        """All names from here on."""
        values = self.args[start:]
        if len(values) > limit:
            self.refuse(b"more than %d %b" % (limit, what))
            return ()
        return tuple([self.a_name(value, b"") for value in values])

    def text(self, index: int, missing: bytes) -> bytes:
        """A text that must be there, such as a message."""
        return self.a_text(self.at(index), missing)

    def a_text(self, value: bytes | None, missing: bytes) -> bytes:
        """A text that is in hand."""
        if value is None:
            self.refuse(missing)
            return b""
        if len(value) > q.DATA_MAX_BYTES:
            self.refuse(b"data has more than %d bytes" % q.DATA_MAX_BYTES)
            return b""
        return value

    def options(self, start: int) -> dict[bytes, bytes]:
        """Pairs of names and values from here on; a name without a value is left out."""
        args = self.args
        return {args[at]: args[at + 1] for at in range(start, len(args) - 1, 2)}

    # --- numbers --------------------------------------------------------------------------------

    def number(self, value: bytes | None, default: float | None, wrong: bytes) -> float:
        """A number; the error ends with what stands there instead."""
        if value is None:
            if default is not None:
                return default
            self.refuse(wrong + b"nil")
            return 0.0
        number = to_number(value)
        if number is None:
            self.refuse(wrong + value[: q.NAME_MAX_BYTES])
            return 0.0
        return number

    def whole(self, value: bytes | None, default: int | None, wrong: bytes) -> int:
        """A number without a fraction."""
        number = self.number(value, None if default is None else float(default), wrong)
        if number % 1.0 != 0.0:
            self.broken = True
            return 0
        return int(number)

    # --- JSON -----------------------------------------------------------------------------------

    def json(self, value: bytes | None, wrong: bytes) -> cjson.Json:
        """Decode a value that is asserted: `false` fails, too."""
        decoded = self._decoded(value)
        if decoded is False:
            self.refuse(wrong + b"false")
        return decoded

    def _decoded(self, value: bytes | None) -> cjson.Json:
        if value is None:
            self.refuse(b"bad argument #1 to 'decode' (string expected, got nil)")
            return None
        if len(value) > q.DATA_MAX_BYTES:
            self.refuse(b"data has more than %d bytes" % q.DATA_MAX_BYTES)
            return None
        decoded = cjson.decode(value)
        if isinstance(decoded, cjson.Bad):
            self.refuse(decoded.text)
            return None
        return decoded

    def data(self, value: bytes | None, wrong: bytes, again: bool) -> bytes:
        """The data of a job: as it came, or as it is when it is encoded again."""
        decoded = self.json(value, wrong)
        if value is None or self.refused:
            return b""
        return self.a_text(cjson.encode(decoded), b"") if again else value

    def data_if(self, index: int) -> bytes | None:
        """Data that may be there, decoded and encoded again; `false` counts as absent."""
        value = self.at(index)
        if value is None:
            return None
        decoded = self._decoded(value)
        if decoded is False or self.refused:
            return None
        return self.a_text(cjson.encode(decoded), b"")

    def strings(
        self, value: bytes | None, wrong: bytes, limit: int, what: bytes
    ) -> tuple[bytes, ...]:
        """A JSON array of names; a JSON object is an empty one, as it is in Lua."""
        if value is None or value == b"[]":
            return ()
        decoded = self.json(value, wrong)
        if self.refused or isinstance(decoded, dict):
            return ()
        if not isinstance(decoded, list):
            self.refuse(wrong + value[: q.NAME_MAX_BYTES])
            return ()
        if len(decoded) > limit:
            self.refuse(b"more than %d %b" % (limit, what))
            return ()
        names: list[bytes] = []
        for item in decoded:
            if isinstance(item, str):
                names.append(self.a_name(item.encode(errors="surrogateescape"), b""))
            elif isinstance(item, float):
                names.append(format_number(item))
            else:
                self.refuse(wrong + value[: q.NAME_MAX_BYTES])
                return ()
        return tuple(names)
