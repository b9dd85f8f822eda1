"""The period of a report and the one before it: parsing of user input, and defaults.

This module reads no events; times are microseconds since 1970 in UTC, like `wall_time`.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from beanpole.errors import ConfigurationError
from pyspark_beanpole.statistics.keys import DAY_US, MINUTE_US, SECOND_US

# The length of a report without a given range, which ends with the log: most readers ask what
# happened since yesterday.
LENGTH_US: Final = DAY_US
_UNITS_US: Final = {
    "s": SECOND_US, "m": MINUTE_US, "h": 60 * MINUTE_US, "d": DAY_US, "w": 7 * DAY_US,
}  # fmt: skip
_AGO: Final = re.compile(r"([0-9]{1,6})([smhdw])")
_ALLOWED: Final = (
    "a time like 2026-11-21T12:00 (UTC if it names no zone) or how long ago, like 90m, 2h, 3d"
)
# So that the period before, which is as long, begins in a year that has a date, too.
_YEARS: Final = range(1970, 3000)


class Period(NamedTuple):
    """A span of wall time, `since_us` <= time < `until_us`."""

    since_us: int
    until_us: int

    @property
    def length_us(self) -> int:
        """The length of the span; positive."""
        return self.until_us - self.since_us

    @property
    def before(self) -> "Period":
        """The span of the same length that ends where this one begins."""
        return Period(self.since_us - self.length_us, self.since_us)


class Asked(NamedTuple):
    """The range that a user requested; None for an end that was not given."""

    since_us: int | None = None
    until_us: int | None = None


# No range: the last day of the log.
ANY: Final = Asked()


def moment(option: str, text: str | None, now_us: int) -> int | None:
    """Parse a time: ISO, or an age relative to `now_us`.

    Raises:
        ConfigurationError: it is neither.
    """
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        found_us = now_us - int(ago[1]) * _UNITS_US[ago[2]]
    else:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigurationError(
                f"{option} {text!r} is not allowed: it must be {_ALLOWED}"
            ) from None
        if found.year not in _YEARS:
            raise ConfigurationError(
                f"{option} {text!r} is not allowed: its year must be {_YEARS[0]} to {_YEARS[-1]}"
            )
        found_us = _micros(found if found.tzinfo is not None else found.replace(tzinfo=UTC))
    if found_us < 0:
        raise ConfigurationError(f"{option} {text!r} is not allowed: that is before 1970")
    return found_us


def asked(since: str | None, until: str | None, now_us: int) -> Asked:
    """Parse `--since` and `--until`.

    Raises:
        ConfigurationError: one of them is not a time, or they are in the wrong order.
    """
    found = Asked(moment("--since", since, now_us), moment("--until", until, now_us))
    if (
        found.since_us is not None
        and found.until_us is not None
        and found.since_us >= found.until_us
    ):
        raise ConfigurationError(f"--since {since!r} must be earlier than --until {until!r}")
    return found


def chosen(wanted: Asked, begin_us: int, last_us: int) -> Period:
    """Return the period to report on.

    Without a range, it is the last day of the log, or the whole of a shorter log. Ends that are
    not given are full minutes.

    Args:
        wanted: the range that the user requested.
        begin_us: wall time of the first event of the log.
        last_us: wall time of its last event.
    """
    until_us = wanted.until_us
    if until_us is None:
        until_us = (last_us // MINUTE_US + 1) * MINUTE_US
        if wanted.since_us is not None:
            # The log may end before the requested time.
            until_us = max(until_us, (wanted.since_us // MINUTE_US + 1) * MINUTE_US)
    since_us = wanted.since_us
    if since_us is None:
        since_us = until_us - LENGTH_US
        if wanted.until_us is None:
            since_us = max(since_us, begin_us // MINUTE_US * MINUTE_US)
    return Period(since_us, until_us)


def _micros(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
