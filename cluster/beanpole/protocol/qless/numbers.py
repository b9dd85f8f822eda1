"""Parse and format numbers as the scripts of qless do: as in Lua, and so as in C.

NaN, infinity and numbers beyond NUMBER_MAX are refused: all numbers that the state machine adds and
compares are finite, and each number has a single representation.
"""

import re
from typing import Final

from beanpole.qless import NUMBER_MAX

# More digits than a number of any client has.
_TEXT_MAX_BYTES: Final = 512

# The syntax of strtod in the C locale, with spaces around it; bytes after a NUL are ignored.
_NUMBER: Final = re.compile(
    rb"[ \t\n\v\f\r]*(?:"
    rb"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    rb"|([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    rb")[ \t\n\v\f\r]*(?:\0.*)?",
    re.DOTALL,
)


def to_number(text: bytes) -> float | None:
    """Parse a number as Lua's `tonumber` does; None if it is malformed or beyond NUMBER_MAX."""
    if len(text) > _TEXT_MAX_BYTES:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    decimal: bytes | None = found.group(1)
    if decimal is not None:
        value = float(decimal)
    else:
        try:
            value = float.fromhex(found.group(2).decode())
        except OverflowError:
            return None
    # The comparisons also refuse infinity. Adding 0.0 turns -0.0 into 0.0.
    return value + 0.0 if -NUMBER_MAX <= value <= NUMBER_MAX else None


def format_number(value: float) -> bytes:
    """Format a number as Lua and cjson do, with 14 digits; integers have no fraction."""
    return b"%.14g" % value


def truncate(value: float) -> int:
    """Truncate a number of a script as an integer reply of Redis does."""
    return int(value)
