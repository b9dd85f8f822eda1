"""The types of arguments and results of the beanstalk clients, with the names of greenstalk."""

from typing import Final, Generic, Literal, TypedDict, TypeVar

from beanpole.constants import PRIORITY_DEFAULT

DEFAULT_TUBE: Final = "default"
DEFAULT_PRIORITY: Final = PRIORITY_DEFAULT
DEFAULT_DELAY: Final = 0
DEFAULT_TTR: Final = 60

TBody = TypeVar("TBody", str, bytes)


class Job(Generic[TBody]):
    """A job as a node returned it."""

    __slots__ = ("body", "id")

    def __init__(self, id: int, body: TBody) -> None:
        self.id: int = id
        self.body: TBody = body

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, body={self.body!r})"


JobOrID = Job[TBody] | int

# The keys of the statistics in beanstalkd. A node may report more.
Stats = TypedDict(
    "Stats",
    {
        "current-jobs-urgent": int,
        "current-jobs-ready": int,
        "current-jobs-reserved": int,
        "current-jobs-delayed": int,
        "current-jobs-buried": int,
        "cmd-put": int,
        "cmd-peek": int,
        "cmd-peek-ready": int,
        "cmd-peek-delayed": int,
        "cmd-peek-buried": int,
        "cmd-reserve": int,
        "cmd-reserve-with-timeout": int,
        "cmd-delete": int,
        "cmd-release": int,
        "cmd-use": int,
        "cmd-watch": int,
        "cmd-ignore": int,
        "cmd-bury": int,
        "cmd-kick": int,
        "cmd-touch": int,
        "cmd-stats": int,
        "cmd-stats-job": int,
        "cmd-stats-tube": int,
        "cmd-list-tubes": int,
        "cmd-list-tube-used": int,
        "cmd-list-tubes-watched": int,
        "cmd-pause-tube": int,
        "job-timeouts": int,
        "total-jobs": int,
        "max-job-size": int,
        "current-tubes": int,
        "current-connections": int,
        "current-producers": int,
        "current-workers": int,
        "current-waiting": int,
        "total-connections": int,
        "pid": int,
        "version": str,
        "rusage-utime": str,
        "rusage-stime": str,
        "uptime": int,
        "binlog-oldest-index": int,
        "binlog-current-index": int,
        "binlog-max-size": int,
        "binlog-records-written": int,
        "binlog-records-migrated": int,
        "draining": Literal["true", "false"],
        "id": str,
        "hostname": str,
        "os": str,
        "platform": str,
    },
)

StatsJob = TypedDict(
    "StatsJob",
    {
        "id": int,
        "tube": str,
        "state": Literal["ready", "delayed", "reserved", "buried"],
        "pri": int,
        "age": int,
        "delay": int,
        "ttr": int,
        "time-left": int,
        "file": int,
        "reserves": int,
        "timeouts": int,
        "releases": int,
        "buries": int,
        "kicks": int,
    },
)

StatsTube = TypedDict(
    "StatsTube",
    {
        "name": str,
        "current-jobs-urgent": int,
        "current-jobs-ready": int,
        "current-jobs-reserved": int,
        "current-jobs-delayed": int,
        "current-jobs-buried": int,
        "total-jobs": int,
        "current-using": int,
        "current-waiting": int,
        "current-watching": int,
        "pause": int,
        "cmd-delete": int,
        "cmd-pause-tube": int,
        "pause-time-left": int,
    },
)


def parse_stats(payload: bytes) -> dict[str, int | str]:
    """Parse the lines "key: value" of a stats reply; whole numbers become ints."""
    found: dict[str, int | str] = {}
    for line in _lines(payload):
        key, _, value = line.partition(": ")
        digits = value.removeprefix("-")
        quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        text = value[1:-1] if quoted else value
        found[key] = int(value) if digits.isascii() and digits.isdigit() else text
    return found


def parse_list(payload: bytes) -> list[str]:
    """Parse the lines "- name" of a list reply."""
    return [line.removeprefix("- ") for line in _lines(payload)]


def _lines(payload: bytes) -> list[str]:
    """Return the lines of a reply. A value in another encoding than UTF-8 is no reason to fail.

    The bytes are split, because text has more ends of lines, such as U+2028.
    """
    lines = payload.removeprefix(b"---\n").splitlines()
    return [line.decode(errors="replace") for line in lines]
