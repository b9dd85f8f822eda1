"""Parse whole numbers in options, settings and parts of longer texts."""

from typing import Final

# More than 64 bits hold: no limit allows it.
TOO_LARGE: Final = 10**20
_DIGITS_MAX: Final = len(str(TOO_LARGE)) - 1


def whole_number(text: str) -> int | None:
    """Return the number that ASCII digits stand for; None if the text is anything else.

    `str.isdecimal` and `int` alone accept the digits of all scripts. Instead of a larger number
    this returns TOO_LARGE: Python refuses to parse thousands of digits.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0")
    return int(digits or "0") if len(digits) <= _DIGITS_MAX else TOO_LARGE


def whole_within(text: str, least: int, most: int) -> int | None:
    """Return the number that ASCII digits stand for; None if it is not in this range."""
    found = whole_number(text)
    return None if found is None or not least <= found <= most else found
