"""Spaces: the queues and jobs of one protocol, apart from those of all others.

This module holds the table of spaces, and the totals of a space. A queue is identified by its space
and its name: in the machine, and in commands, a name begins with its space's prefix, a byte below
0x20. Names of the beanstalk protocol have no prefix. `core.operations` confines the commands of a
session to its space.
"""

from typing import Final, NamedTuple

from beanpole.constants import DEFAULT_TUBE, TUBE_NAME_MAX_BYTES
from beanpole.events import BEANSTALK, GEARMAN, GRPC, QLESS, WORKQ

# The machine version from which a session belongs to the space of its protocol.
SPACES_SINCE: Final = 3
# The prefixes of spaces are below this byte; no name of the beanstalk protocol begins with one.
PREFIX_END: Final = 0x20

# The longest name of a space that has no tubes.
NO_NAMES: Final = -1

# The rules for an ADD with the external id of an existing job of the space.
NO_EXTERNAL_IDS: Final = 0  # there is no ADD in this space
REFUSE: Final = 1  # the ADD is refused
ATTACH: Final = 2  # the ADD returns the id of that job, and creates none

# All protocols share one scale of ranks, lower first, so that one queue can hold the jobs of two
# protocols. This is its middle: Workq's priority 0 and Gearman's normal. A higher priority of Workq
# is a lower rank; Gearman's high and low are the ends of the scale.
RANK_NORMAL: Final = 2**31 - 1


class Rules(NamedTuple):
    """One row of the table.

    Attributes:
        protocols: the protocols whose sessions belong to the space (`events`).
        prefix: the prefix of its names: one byte below 0x20, empty for beanstalk.
        name_max_bytes: of a name, without the prefix.
        default: the queue, with the prefix, that a new session uses and watches; empty if there is
            none, so that a session may also use and watch nothing.
        leased: whether a reserved job is held by its session. If not, it has no holder: any
            session of the space may end the reservation, and the end of a session does not.
        conflict: the rule for an ADD or a SUBMIT whose external id is taken.
        sticky: whether a queue that was named once stays until it is dropped.
        to_end: whether a job that comes back goes behind all others of its rank, loses its
            progress, and fails after its last attempt however that ended.
    """

    protocols: tuple[int, ...]
    prefix: bytes
    name_max_bytes: int
    default: bytes
    leased: bool
    conflict: int
    sticky: bool = False
    to_end: bool = False


# By the numbers of spaces: the number of a space is that of its first protocol. A machine reads the
# rows when it is created.
SPACES: Final[dict[int, Rules]] = {
    BEANSTALK: Rules(
        (BEANSTALK, GRPC),
        b"",
        TUBE_NAME_MAX_BYTES,
        DEFAULT_TUBE,
        leased=True,
        conflict=NO_EXTERNAL_IDS,
    ),
    # The longest name that the Workq server accepts.
    WORKQ: Rules((WORKQ,), b"\x01", 255, b"", leased=False, conflict=REFUSE, sticky=True),
    # The longest name that libgearman sends.
    GEARMAN: Rules(
        (GEARMAN,), b"\x02", 512, b"", leased=True, conflict=ATTACH, sticky=True, to_end=True
    ),
    # The queues of qless are kept separately (`core.qless`) and may have longer names. Only events
    # use names of this space for them; the space has no tubes.
    QLESS: Rules((QLESS,), b"\x03", NO_NAMES, b"", leased=True, conflict=NO_EXTERNAL_IDS),
}


def prefix_of(name: bytes) -> bytes:
    """Return the prefix of a queue's name; empty for a name of the beanstalk protocol."""
    return name[:1] if name and name[0] < PREFIX_END else b""


def bare(name: bytes) -> bytes:
    """Return the name of a queue without the prefix of its space."""
    return name[len(prefix_of(name)) :]


class Space:
    """The state of a space: totals of its jobs, and the index of its external ids.

    `external_ids` maps external ids to the ids of jobs, as long as these exist.
    `evicted` counts the jobs whose TTL ended before they were done or failed.
    """

    __slots__ = (
        "buried",
        "conflict",
        "default",
        "delayed",
        "done",
        "evicted",
        "external_ids",
        "failed",
        "jobs_total",
        "leased",
        "name_max_bytes",
        "number",
        "prefix",
        "ready",
        "reserved",
        "sticky",
        "timeouts",
        "to_end",
        "tubes",
        "urgent",
    )

    def __init__(self, number: int, rules: Rules) -> None:
        self.number = number
        self.prefix = rules.prefix
        self.name_max_bytes = rules.name_max_bytes
        self.default = rules.default
        self.leased = rules.leased
        self.conflict = rules.conflict
        self.sticky = rules.sticky
        self.to_end = rules.to_end
        self.external_ids: dict[bytes, int] = {}
        self.ready = 0
        self.urgent = 0
        self.reserved = 0
        self.delayed = 0
        self.buried = 0
        self.done = 0
        self.failed = 0
        self.jobs_total = 0
        self.timeouts = 0
        self.evicted = 0
        self.tubes = 0

    def may_name(self, name: bytes) -> bool:
        """Whether a queue of this space may have this name."""
        if not self.prefix:
            return 0 < len(name) <= self.name_max_bytes and name[0] >= PREFIX_END
        return name[:1] == self.prefix and len(name) <= 1 + self.name_max_bytes
