"""Parse the values of Workq arguments as the original server in Go: numbers, ids and times.

Malformed values are None. The error for them depends on the argument, so it is chosen in `lines`.
"""

import re
from typing import Final

from beanpole.constants import SECOND_US

# A number with more digits than this, without leading zeros, is above all limits; int() is slow for
# thousands of digits.
_DIGITS_MAX: Final = 20

_match_unsigned = re.compile(rb"[0-9]+").fullmatch
_match_signed = re.compile(rb"[+-]?[0-9]+").fullmatch
_match_time = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z"
).fullmatch
# 32 digits, or 8-4-4-4-12 of them. The library of the original server also accepts the prefix and
# the braces that `parse_id` strips.
_match_id = re.compile(
    rb"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
).fullmatch
_URN: Final = b"urn:uuid:"

DAY_S: Final = 86_400
# Days before each month of a year that is no leap year.
_DAYS_BEFORE: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)


def _number(digits: bytes) -> int | None:
    significant = digits.lstrip(b"0")
    if len(significant) > _DIGITS_MAX:
        return None
    return int(significant) if significant else 0


def parse_unsigned(text: bytes, most: int) -> int | None:
    """Parse a number from 0 to `most` as Go's ParseUint does: only digits."""
    if _match_unsigned(text) is None:
        return None
    number = _number(text)
    return number if number is not None and number <= most else None


def parse_signed(text: bytes, least: int, most: int) -> int | None:
    """Parse a number from `least` to `most` as Go's Atoi does: digits with an optional sign."""
    if _match_signed(text) is None:
        return None
    number = _number(text.lstrip(b"+-"))
    if number is None:
        return None
    if text.startswith(b"-"):
        number = -number
    return number if least <= number <= most else None


def parse_id(text: bytes) -> bytes | None:
    """Return the 16 bytes of a UUID of any version, in one of its four forms."""
    if text.startswith(b"{") and text.endswith(b"}"):
        text = text[1:-1]
    elif text.startswith(_URN):
        text = text[len(_URN) :]
    if _match_id(text) is None:
        return None
    return bytes.fromhex(text.replace(b"-", b"").decode())


def is_random_id(job: bytes) -> bool:
    """Return whether this is a UUID of version 4; other UUIDs are no job ids."""
    return job[6] >> 4 == 4 and job[8] >> 6 == 2


def format_id(job: bytes) -> bytes:
    """Format an id for a reply."""
    digits = job.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts).encode()


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_before_year(year: int) -> int:
    """Return the days from January 1 of the year 1 to January 1 of this year."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400


_DAYS_BEFORE_1970: Final = _days_before_year(1970)


def _days_of_months(year: int, months: int) -> int:
    """Return the days of the first `months` months of a year."""
    return _DAYS_BEFORE[months] + (1 if months >= 2 and _is_leap(year) else 0)


def parse_time(text: bytes) -> int | None:
    """Return the seconds since 1970 of a time like 2016-12-31T23:59:59Z, the only valid form."""
    found = _match_time(text)
    if found is None:
        return None
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    hour, minute, second = int(found[4]), int(found[5]), int(found[6])
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 59 or year < 1:
        return None
    before = _days_of_months(year, month - 1)
    if not 1 <= day <= _days_of_months(year, month) - before:
        return None
    days = _days_before_year(year) - _DAYS_BEFORE_1970 + before + day - 1
    return days * DAY_S + hour * 3600 + minute * 60 + second


def format_time(time_us: int) -> bytes:
    """Format a time in microseconds since 1970, rounded down to seconds."""
    days, seconds = divmod(time_us // SECOND_US, DAY_S)
    days += _DAYS_BEFORE_1970
    year = days * 400 // 146_097 + 2  # too large by at most two
    while _days_before_year(year) > days:
        year -= 1
    day = days - _days_before_year(year)
    month = 12
    while _days_of_months(year, month - 1) > day:
        month -= 1
    day -= _days_of_months(year, month - 1) - 1
    hour, seconds = divmod(seconds, 3600)
    minute, second = divmod(seconds, 60)
    return b"%04d-%02d-%02dT%02d:%02d:%02dZ" % (year, month, day, hour, minute, second)
