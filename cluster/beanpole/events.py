"""Events: what happened to every job, one fixed record for each transition.

The machine appends records in the order of the log, so they are the same on every node, and every
one has a number of its own: its offset, counted from 0 without a gap since the cluster began. Here
are the record's layout and the numbers in it; what they are called in columns is in
`beanpoled.eventlog`. Nothing here decides anything.
"""

from struct import Struct
from typing import Final

# --- kinds: what happened to the job ------------------------------------------------------------
PUT: Final = 1  # it was created, ready or delayed
DUE: Final = 2  # its delay ended: delayed to ready
RESERVED: Final = 3  # a session got it
TOUCHED: Final = 4  # its TTR began anew
RELEASED: Final = 5  # its worker gave it back, ready or delayed
RETURNED: Final = 6  # it came back because nobody holds it any more: `reason` says why
TIMED_OUT: Final = 7  # its TTR ended: reserved to ready
BURIED: Final = 8
KICKED: Final = 9  # buried or delayed to ready
DELETED: Final = 10  # from whatever state
DONE: Final = 11  # it ended well; it is gone, or kept with its result until its TTL ends
FAILED: Final = 12  # an attempt failed: it ended the job (gone or kept, as above) or is repeated
EXPIRED: Final = 13  # its TTL ended: gone from whatever state
MOVED: Final = 14  # a client put it again, or it came into another queue
BLOCKED: Final = 15  # it waits for something: `state` says for what
UNBLOCKED: Final = 16  # it waits for that no longer: ready or delayed

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

# The machine version that brought a kind, for those that the base version lacks: an older machine
# emits none, whatever its program knows. The code that emits it has the condition.
KIND_SINCE: Final[dict[int, int]] = {
    DONE: 3,
    FAILED: 3,
    EXPIRED: 3,
    MOVED: 4,
    BLOCKED: 4,
    UNBLOCKED: 4,
}

# --- states that only some protocols have; all others are those of `core.jobs.job` ---------------
DEPENDS: Final = 16  # it waits for other jobs to be done
THROTTLED: Final = 17  # it waits for what it shares with others
# Between the event by which it leaves a queue and the one by which it comes into the next: what is
# counted by queue adds up in both.
MOVING: Final = 18
MORE_STATES: Final = {DEPENDS: "depends", THROTTLED: "throttled", MOVING: "moving"}

# --- protocols ----------------------------------------------------------------------------------
NO_PROTOCOL: Final = 0  # no client did it: a delay ended
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
# The same of protocols: below that version no session can be of them.
PROTOCOL_SINCE: Final[dict[int, int]] = {WORKQ: 4, GEARMAN: 4, QLESS: 4}

# --- reasons: why, where the kind does not say it ------------------------------------------------
NO_REASON: Final = 0
CONNECTION_LOST: Final = 1  # RETURNED: the session that held it ended
NODE_DOWN: Final = 2  # RETURNED: the node of that session died or was declared down
NOBODY_WAITING: Final = 3  # RETURNED: it was granted to a client that had gone
TTR: Final = 4  # TIMED_OUT, FAILED
ABANDONED: Final = 5  # DELETED: the last client that wanted its result has gone
ADVANCED: Final = 6  # RELEASED: its worker has done its part, and it goes on in another queue
ADMIN: Final = 7  # MOVED, DELETED: an administrator did it, and no worker or producer
ATTEMPTS: Final = 8  # MOVED, BURIED: it came back too often, and a policy took it out
QUEUE_FULL: Final = 9  # DELETED: a policy made room for a job that was put
RETENTION: Final = 10  # DELETED: it was buried or delayed for as long as a policy allows
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
}

# Where a time does not apply: a job that is put has waited for nothing.
NO_TIME: Final = -1
# The origin of what no client asked for.
NO_ORIGIN: Final = 255

# The fields of a record, in its order; 4 bytes behind them are unused.
FIELDS: Final = (
    "kind",
    "protocol",
    "state_before",
    "state",  # after it; 0 is gone: see above, and `core.jobs.job`
    "reason",
    "origin",
    "host",  # its number; 0 if it is not known
    "tube",  # its number
    "job",
    "priority",  # its rank
    "delay_s",  # rounded up, as the TTR: those of beanstalk are whole seconds
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
# The same bytes, with neighbours joined to one number (the first in its low bits): the machine
# makes a record of every transition, and each number that it hands over has its price.
JOINED: Final = Struct("<QIQQQIQQQIqqq4x")
assert JOINED.size == RECORD.size
