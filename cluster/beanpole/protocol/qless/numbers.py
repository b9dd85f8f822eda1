"""Numbers as the scripts of qless read and write them: Lua's, which are those of C.

There is no NaN and no infinity here, and nothing above NUMBER_MAX: what the state machine adds and
compares is finite, and one number has one form.
"""

import re
from typing import Final

from beanpole.qless import NUMBER_MAX

# More digits than a number of any client has.
_TEXT_MAX_BYTES: Final = 512

# What strtod takes of the C locale, with spaces around it; what stands behind a NUL is not seen.
_NUMBER: Final = re.compile(
    rb"[ \t\n\v\f\r]*(?:"
    rb"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    rb"|([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    rb")[ \t\n\v\f\r]*(?:\0.*)?",
    re.DOTALL,
)


def to_number(text: bytes) -> float | None:
    """Read a number as Lua's `tonumber` does; None if it is none, or beyond NUMBER_MAX."""
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
    # Comparisons refuse infinity, too. Adding 0.0 makes -0.0 the other zero.
    return value + 0.0 if -NUMBER_MAX <= value <= NUMBER_MAX else None


def format_number(value: float) -> bytes:
    """Write a number as Lua and its JSON do, with 14 digits; whole ones have no fraction."""
    return b"%.14g" % value


def truncate(value: float) -> int:
    """What an integer reply of Redis makes of a number of a script."""
    return int(value)
