"""The YAML payloads of `stats`, `stats-job`, `stats-tube` and the lists, as in beanstalkd 1.13.

Keys, their order and their quotes are part of the protocol: clients compare whole dictionaries. The
source of the values does not belong here.
"""

from collections.abc import Iterable
from typing import Any, Final

from beanpole.protocol.beanstalk.requests import COUNTED_WORDS

# fmt: off
STATS_KEYS: Final = (
    "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried",
    *[f"cmd-{word}" for word in COUNTED_WORDS],
    "job-timeouts", "total-jobs", "max-job-size", "current-tubes",
    "current-connections", "current-producers", "current-workers", "current-waiting",
    "total-connections",
    "pid", "version", "rusage-utime", "rusage-stime", "uptime",
    "binlog-oldest-index", "binlog-current-index", "binlog-records-migrated",
    "binlog-records-written", "binlog-max-size",
    "draining", "id", "hostname", "os", "platform",
)
STATS_JOB_KEYS: Final[tuple[str, ...]] = (
    "id", "tube", "state", "pri", "age", "delay", "ttr", "time-left", "file",
    "reserves", "timeouts", "releases", "buries", "kicks",
)
STATS_TUBE_KEYS: Final = (
    "name", "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved",
    "current-jobs-delayed", "current-jobs-buried", "total-jobs",
    "current-using", "current-watching", "current-waiting",
    "cmd-delete", "cmd-pause-tube", "pause", "pause-time-left",
)
# fmt: on

# Every other value is an integer.
_QUOTED: Final = '"%b"'
_BARE: Final = "%b"
_SECONDS: Final = "%.6f"
_STATS_FORMATS: Final = {
    "version": _QUOTED,
    "rusage-utime": _SECONDS,
    "rusage-stime": _SECONDS,
    "draining": _BARE,
    "id": _BARE,
    "hostname": _QUOTED,
    "os": _QUOTED,
    "platform": _QUOTED,
}
_STATS_JOB_FORMATS: Final = {"tube": _QUOTED, "state": _BARE}
_STATS_TUBE_FORMATS: Final = {"name": _QUOTED}


def _template(keys: tuple[str, ...], formats: dict[str, str]) -> bytes:
    lines = [f"{key}: {formats.get(key, '%d')}\n" for key in keys]
    return ("---\n" + "".join(lines)).encode()


_STATS: Final = _template(STATS_KEYS, _STATS_FORMATS)
_STATS_JOB: Final = _template(STATS_JOB_KEYS, _STATS_JOB_FORMATS)
_STATS_TUBE: Final = _template(STATS_TUBE_KEYS, _STATS_TUBE_FORMATS)
_DRAINING: Final = STATS_KEYS.index("draining")


def format_stats(values: tuple[Any, ...]) -> bytes:
    """Write the payload of `stats`.

    Args:
        values: one per key, in the order of `STATS_KEYS`. All are ints except: bytes for version,
            id (16 hexadecimal digits), hostname, os and platform; seconds as float for rusage-*;
            bool for draining.
    """
    draining = b"true" if values[_DRAINING] else b"false"
    return _STATS % (*values[:_DRAINING], draining, *values[_DRAINING + 1 :])


def format_stats_job(values: tuple[Any, ...]) -> bytes:
    """Write the payload of `stats-job`.

    Args:
        values: one per key, in the order of `STATS_JOB_KEYS`: ints, except tube and state: bytes.
    """
    return _STATS_JOB % values


def format_stats_tube(values: tuple[Any, ...]) -> bytes:
    """Write the payload of `stats-tube`.

    Args:
        values: one per key, in the order of `STATS_TUBE_KEYS`: ints, except name: bytes.
    """
    return _STATS_TUBE % values


def format_list(names: Iterable[bytes]) -> bytes:
    """Write the payload of the `list` requests. Names are never quoted, as in beanstalkd."""
    return b"---\n" + b"".join([b"- %b\n" % name for name in names])
