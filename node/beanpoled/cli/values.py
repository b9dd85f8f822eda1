"""The values of options: whole numbers, times, sizes, and texts that must not be empty.

Each function parses one value for argparse. Values that only one command has are parsed there.
"""

import argparse
from collections.abc import Callable
from typing import Final

from beanpole.constants import U32_MAX
from beanpole.numbers import whole_number
from beanpole.protocol.beanstalk.requests import U64_MAX

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# Numbers of 18 digits fit in the 64 bits that calls have for them.
NUMBER_MAX: Final = 10**18 - 1
# Of a size, without its unit.
_SIZE_DIGITS_MAX: Final = 15


def duration_s(text: str) -> int:
    """Parse a time such as 90, 90s, 15m, 2h or 7d; return seconds."""
    digits, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    count = whole_number(digits)
    if count is None:
        words = f"{text!r} is no time: a whole number of seconds, or with s, m, h or d behind it"
        raise argparse.ArgumentTypeError(words)
    seconds = count * _UNITS[unit]
    if seconds > U32_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is too long: at most {U32_MAX} s, 136 years")
    return seconds


def number(least: int, most: int, absent: str = "") -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`.

    Where 0 is below `least`, a node would take it for the option left out; `absent` is what is the
    case then, for the refusal of 0.
    """

    def parsed(text: str) -> int:
        found = whole_number(text)
        if found is not None and least <= found <= most:
            return found
        words = f"{text!r} is not a whole number from {least} to {most}"
        if absent and found == 0:
            words = f"{words}; without this option {absent}"
        raise argparse.ArgumentTypeError(words)

    return parsed


# An id of a job, or a number of jobs to list or change: calls have 64 bits for both.
whole: Final = number(0, U64_MAX)
positive: Final = number(1, U64_MAX)
NO_LIMIT: Final = "there is no limit"
# Of jobs, and of commands in a second.
limit: Final = number(1, U32_MAX, NO_LIMIT)


def not_zero(parse: Callable[[str], int], absent: str = NO_LIMIT) -> Callable[[str], int]:
    """Return a parser that refuses 0, which a node takes for the option left out.

    Args:
        parse: the parser of all numbers.
        absent: what is the case without the option, for the refusal.
    """

    def parsed(text: str) -> int:
        value = parse(text)
        if not value:
            words = f"{text!r} is not above 0; without this option {absent}"
            raise argparse.ArgumentTypeError(words)
        return value

    return parsed


def queue_name(text: str) -> str:
    """Return the name of a queue; an empty one would stand for all queues."""
    if not text:
        words = "'' is no queue: NAME, gearman:NAME or workq:NAME, with one character at least"
        raise argparse.ArgumentTypeError(words)
    return text


def protocol(text: str) -> str:
    """Return the name of a protocol; an empty one would stand for all protocols."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no protocol: beanstalk, workq or gearman")
    return text


def body_text(text: str) -> str:
    """Return a part of a body; an empty one would be in all bodies."""
    if not text:
        raise argparse.ArgumentTypeError("'' is in every body; omit the option to select all")
    return text


def size_bytes(text: str) -> int:
    """Parse a size such as 5000, 10KiB, 64MiB or 1GiB; return bytes."""
    for unit, its_bytes in (("KiB", 1024), ("MiB", 1024**2), ("GiB", 1024**3), ("", 1)):
        if text.endswith(unit):
            count = whole_number(text.removesuffix(unit))
            if count is None or count >= 10**_SIZE_DIGITS_MAX:
                break
            size = count * its_bytes
            if size > NUMBER_MAX:
                raise argparse.ArgumentTypeError(f"{text!r} is above {NUMBER_MAX} bytes")
            return size
    words = f"{text!r} is no size: a whole number of bytes, or with KiB, MiB or GiB behind it"
    raise argparse.ArgumentTypeError(words)


def member(text: str) -> str:
    """Parse the id of a member. A variable that is not set must not mean any member."""
    if not text:
        raise argparse.ArgumentTypeError("NODE is empty")
    return text
