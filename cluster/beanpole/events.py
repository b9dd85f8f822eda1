"""Events: a fixed-size record of each transition of a job.

The machine appends records in the order of the log, so they are identical on every node. A record
is identified by its offset, counted from 0 without a gap since the cluster began. This module
defines the layout of a record and the codes in it; `beanpoled.eventlog` defines the names of the
columns. It holds no logic.
"""

from struct import Struct
from typing import Final

# --- kinds of transitions ------------------------------------------------------------------------
PUT: Final = 1  # it was created, ready or delayed
DUE: Final = 2  # its delay ended: delayed to ready
RESERVED: Final = 3  # a session reserved it
TOUCHED: Final = 4  # its TTR was restarted
RELEASED: Final = 5  # its worker gave it back, ready or delayed
RETURNED: Final = 6  # it became ready because no session holds it any more, for `reason`
TIMED_OUT: Final = 7  # its TTR ended: reserved to ready
BURIED: Final = 8
KICKED: Final = 9  # buried or delayed to ready
DELETED: Final = 10  # from any state
DONE: Final = 11  # it succeeded; it is gone, or kept with its result until its TTL ends
FAILED: Final = 12  # an attempt failed, and the job ended (gone or kept, as above) or is retried
EXPIRED: Final = 13  # its TTL ended: gone from any state
MOVED: Final = 14  # a client put it again, or it was moved to another queue
BLOCKED: Final = 15  # it waits for a condition, which `state` names
UNBLOCKED: Final = 16  # that condition is met: ready or delayed

KIND_NAMES: Final = {
    PUT: "put",
    DUE: "due",
    RESERVED: "reserved",
    TOUCHED: "touched",
    RELEASED: "released",
    RETURNED: "returned",
    TIMED_OUT: "timed_out",
    BURIED: "buried",
    KICKED: "kicked",
    DELETED: "deleted",
    DONE: "done",
    FAILED: "failed",
    EXPIRED: "expired",
    MOVED: "moved",
    BLOCKED: "blocked",
    UNBLOCKED: "unblocked",
}

# The machine version that introduced a kind, for the kinds that the base version lacks. An older
# machine emits none of these, even if its program knows them. The emitting code checks the version.
KIND_SINCE: Final[dict[int, int]] = {
    DONE: 3,
    FAILED: 3,
    EXPIRED: 3,
    MOVED: 4,
    BLOCKED: 4,
    UNBLOCKED: 4,
}

# --- states of some protocols only; all others are in `core.jobs.job` ----------------------------
DEPENDS: Final = 16  # it waits for other jobs to be done
THROTTLED: Final = 17  # it waits for a shared resource
# The state between the event that takes a job out of a queue and the event that adds it to the
# next, so that the counts of both queues add up.
MOVING: Final = 18
MORE_STATES: Final = {DEPENDS: "depends", THROTTLED: "throttled", MOVING: "moving"}

# --- protocols ----------------------------------------------------------------------------------
NO_PROTOCOL: Final = 0  # no client caused it: a delay ended
BEANSTALK: Final = 1
GRPC: Final = 2
WORKQ: Final = 3
GEARMAN: Final = 4
QLESS: Final = 5
PROTOCOL_NAMES: Final = {
    BEANSTALK: "beanstalk",
    GRPC: "grpc",
    WORKQ: "workq",
    GEARMAN: "gearman",
    QLESS: "qless",
}
PROTOCOL_NUMBERS: Final = {name: number for number, name in PROTOCOL_NAMES.items()}
# The machine version that introduced a protocol: below it no session can use the protocol.
PROTOCOL_SINCE: Final[dict[int, int]] = {WORKQ: 4, GEARMAN: 4, QLESS: 4}

# --- reasons, for the kinds that do not imply one ------------------------------------------------
NO_REASON: Final = 0
CONNECTION_LOST: Final = 1  # RETURNED: the session that held it ended
NODE_DOWN: Final = 2  # RETURNED: the node of that session died or was declared down
NOBODY_WAITING: Final = 3  # RETURNED: it was granted to a client that had disconnected
TTR: Final = 4  # TIMED_OUT, FAILED
ABANDONED: Final = 5  # DELETED: the last client that wanted its result has disconnected
ADVANCED: Final = 6  # RELEASED: its worker completed a stage, and it continues in another queue
ADMIN: Final = 7  # MOVED, DELETED: by an administrator, not by a worker or producer
ATTEMPTS: Final = 8  # MOVED, BURIED: a policy removed it when its last attempt was released
QUEUE_FULL: Final = 9  # DELETED: a policy made room for a job that was put
RETENTION: Final = 10  # DELETED: it was buried or delayed for as long as a policy allows
# MOVED, BURIED: a policy removed it when its last attempt ended for the reason in the name, which
# has no event of its own.
ATTEMPTS_CONNECTION_LOST: Final = 11
ATTEMPTS_NODE_DOWN: Final = 12
ATTEMPTS_NOBODY_WAITING: Final = 13
ATTEMPTS_TTR: Final = 14
REASON_NAMES: Final = {
    CONNECTION_LOST: "connection_lost",
    NODE_DOWN: "node_down",
    NOBODY_WAITING: "nobody_waiting",
    TTR: "ttr",
    ABANDONED: "abandoned",
    ADVANCED: "advanced",
    ADMIN: "admin",
    ATTEMPTS: "attempts",
    QUEUE_FULL: "queue_full",
    RETENTION: "retention",
    ATTEMPTS_CONNECTION_LOST: "attempts_connection_lost",
    ATTEMPTS_NODE_DOWN: "attempts_node_down",
    ATTEMPTS_NOBODY_WAITING: "attempts_nobody_waiting",
    ATTEMPTS_TTR: "attempts_ttr",
}
# The reason of a policy's event, by the reason for which the job's last attempt ended.
USED_UP_BY: Final[dict[int, int]] = {
    NO_REASON: ATTEMPTS,
    CONNECTION_LOST: ATTEMPTS_CONNECTION_LOST,
    NODE_DOWN: ATTEMPTS_NODE_DOWN,
    NOBODY_WAITING: ATTEMPTS_NOBODY_WAITING,
    TTR: ATTEMPTS_TTR,
}

# The value of a time that does not apply: a job that is put has not waited.
NO_TIME: Final = -1
# The origin of an event that no client caused.
NO_ORIGIN: Final = 255

# The fields of a record, in order; the 4 bytes after them are unused.
FIELDS: Final = (
    "kind",
    "protocol",
    "state_before",
    "state",  # after the transition; 0 means gone: see above, and `core.jobs.job`
    "reason",
    "origin",
    "host",  # its number; 0 if it is not known
    "tube",  # its number
    "job",
    "priority",  # its rank
    "delay_s",  # rounded up, like the TTR: beanstalk's are whole seconds
    "ttr_s",
    "body_bytes",
    "incarnation",
    "session",
    "reserves",
    "timeouts",
    "releases",
    "buries",
    "kicks",
    "wait_us",  # from ready to reserved
    "run_us",  # from reserved to the end of the reservation
    "ready_at_us",  # by cluster time
)
RECORD: Final = Struct("<BBBBBBHIQIIIIIQIIIIIqqq4x")
assert RECORD.size == 96
# The same bytes with adjacent fields joined into one number (the first in its low bits). The
# machine packs a record for every transition, and each argument to `pack` has a cost.
JOINED: Final = Struct("<QIQQQIQQQIqqq4x")
assert JOINED.size == RECORD.size
