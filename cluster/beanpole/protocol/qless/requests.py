"""Read the arguments of a script one after the other, and keep the first error.

The arguments are read in the order in which the scripts check them, so that a client gets the same
error. After an error, the methods return placeholders: the caller checks `refused` once, at the
end. The arguments of each call of a dialect are in `calls_*`.
"""

from typing import Any, Final, NamedTuple

import beanpole.qless as q
from beanpole.protocol.qless import cjson
from beanpole.protocol.qless.numbers import format_number, to_number
from beanpole.protocol.qless.recognition import Script


class Call(NamedTuple):
    """A call, to be submitted to the log.

    Attributes:
        code: one of the calls of `beanpole.qless`.
        flavour: the dialect.
        now: the client's time in seconds.
        args: the arguments of the call.
        answer: the form of the answer, one of `forms`.
    """

    code: int
    flavour: int
    now: float
    args: tuple[Any, ...]
    answer: int


class Refusal(NamedTuple):
    """The error for invalid arguments, without the word `ERR` before it."""

    text: bytes


NO_INTEGER: Final = b"value is not an integer or out of range"
NO_ARGUMENTS: Final = b"Wrong number of args calling Redis command from script"
NO_STRING: Final = b"Lua redis lib command arguments must be strings or integers"
# Lua's text of a table, with a fixed address.
A_TABLE: Final = b"table: 0x000000000000"


class Reader:
    """The arguments of one call.

    Attributes:
        args: the arguments after the call's name and its time.
        keys: the keys, which only the seed form has.
        refused: the first error; b"" if there was none.
        by_redis: whether the first error is one of Redis, not of the script.
        broken: whether an integer argument has a fraction. Redis raises that error, after the
            script has checked all arguments.
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
        """Keep an error if it is the first."""
        if not self.refused:
            self.refused = message
            self.by_redis = by_redis

    def call(self, code: int, args: tuple[Any, ...], answer: int) -> Call:
        """Return the call; it is valid only if nothing was refused."""
        return Call(code, self.script.flavour, self.now, args, answer)

    # --- strings --------------------------------------------------------------------------------

    def at(self, index: int) -> bytes | None:
        """Return an argument unchanged, or None if it is missing."""
        return self.args[index] if index < len(self.args) else None

    def name(self, index: int, missing: bytes) -> bytes:
        """Return a required name."""
        return self.a_name(self.at(index), missing)

    def name_if(self, index: int) -> bytes | None:
        """Return an optional name, or None."""
        value = self.at(index)
        return None if value is None else self.a_name(value, b"")

    def a_name(self, value: bytes | None, missing: bytes) -> bytes:
        """Check a name that was read before; None is refused as `missing`."""
        return self._bounded(value, missing, b"a name", q.NAME_MAX_BYTES)

    def names(self, start: int, limit: int, what: bytes) -> tuple[bytes, ...]:
        """Return all names from `start` on, at most `limit`."""
        values = self.args[start:]
        if len(values) > limit:
            self.refuse(b"more than %d %b" % (limit, what))
            return ()
        return tuple([self.a_name(value, b"") for value in values])

    def text(self, index: int, missing: bytes) -> bytes:
        """Return a required text, such as a message."""
        return self.a_text(self.at(index), missing)

    def a_text(self, value: bytes | None, missing: bytes) -> bytes:
        """Check a text that was read before; None is refused as `missing`."""
        return self._bounded(value, missing, b"data", q.DATA_MAX_BYTES)

    def _bounded(self, value: bytes | None, missing: bytes, what: bytes, bytes_max: int) -> bytes:
        if value is None:
            self.refuse(missing)
            return b""
        if len(value) > bytes_max:
            self.refuse(b"%b has more than %d bytes" % (what, bytes_max))
            return b""
        return value

    def options(self, start: int) -> dict[bytes, bytes]:
        """Return the pairs of names and values from `start` on, without a last unpaired name."""
        args = self.args
        return {args[at]: args[at + 1] for at in range(start, len(args) - 1, 2)}

    # --- numbers --------------------------------------------------------------------------------

    def number(self, value: bytes | None, default: float | None, wrong: bytes) -> float:
        """Parse a number; the error is `wrong` followed by the value."""
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
        """Parse a number without a fraction."""
        number = self.number(value, None if default is None else float(default), wrong)
        if number % 1.0 != 0.0:
            self.broken = True
            return 0
        return int(number)

    # --- JSON -----------------------------------------------------------------------------------

    def json(self, value: bytes | None, wrong: bytes) -> cjson.Json:
        """Decode a value that the script asserts, so that `false` is refused, too."""
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
        """Return the data of a job: as it was received, or decoded and encoded `again`."""
        decoded = self.json(value, wrong)
        if value is None or self.refused:
            return b""
        return self.a_text(cjson.encode(decoded), b"") if again else value

    def data_if(self, index: int) -> bytes | None:
        """Return optional data, decoded and encoded again; `false` counts as missing."""
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
        """Parse a JSON array of names; a JSON object counts as an empty one, as in Lua."""
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
