"""The packets of the Gearman protocol: numbers, directions, arguments, and the layout of a packet.

A packet has a magic, a type and a length of four bytes each, and arguments separated by NUL; the
last argument takes the rest. The code that reads and writes packets is in `parser`, `replies` and
`client`.
"""

from struct import Struct
from typing import Final

from beanpole.constants import JOB_SIZE_MAX_BYTES, QUEUE_NAME_MAX_BYTES

REQUEST_MAGIC: Final = b"\0REQ"
REPLY_MAGIC: Final = b"\0RES"
HEADER: Final[Struct] = Struct(">4sII")
HEADER_BYTES: Final[int] = HEADER.size

CAN_DO: Final = 1
CANT_DO: Final = 2
RESET_ABILITIES: Final = 3
PRE_SLEEP: Final = 4
NOOP: Final = 6
SUBMIT_JOB: Final = 7
JOB_CREATED: Final = 8
GRAB_JOB: Final = 9
NO_JOB: Final = 10
JOB_ASSIGN: Final = 11
WORK_STATUS: Final = 12
WORK_COMPLETE: Final = 13
WORK_FAIL: Final = 14
GET_STATUS: Final = 15
ECHO_REQ: Final = 16
ECHO_RES: Final = 17
SUBMIT_JOB_BG: Final = 18
ERROR: Final = 19
STATUS_RES: Final = 20
SUBMIT_JOB_HIGH: Final = 21
SET_CLIENT_ID: Final = 22
CAN_DO_TIMEOUT: Final = 23
WORK_EXCEPTION: Final = 25
OPTION_REQ: Final = 26
OPTION_RES: Final = 27
WORK_DATA: Final = 28
WORK_WARNING: Final = 29
GRAB_JOB_UNIQ: Final = 30
JOB_ASSIGN_UNIQ: Final = 31
SUBMIT_JOB_HIGH_BG: Final = 32
SUBMIT_JOB_LOW: Final = 33
SUBMIT_JOB_LOW_BG: Final = 34
SUBMIT_JOB_EPOCH: Final = 36
SUBMIT_REDUCE_JOB: Final = 37
SUBMIT_REDUCE_JOB_BACKGROUND: Final = 38
GRAB_JOB_ALL: Final = 39
JOB_ASSIGN_ALL: Final = 40
GET_STATUS_UNIQUE: Final = 41
STATUS_RES_UNIQUE: Final = 42
# A larger type, or 0, is no packet of this protocol.
TYPE_MAX: Final = 42

# The number of arguments of each request. The missing types are sent by servers, or no server
# answers them: 5 is unused, 24 is ALL_YOURS, 35 is SUBMIT_JOB_SCHED.
REQUEST_ARGUMENTS: Final[dict[int, int]] = {
    CAN_DO: 1,  # function
    CANT_DO: 1,  # function
    RESET_ABILITIES: 0,
    PRE_SLEEP: 0,
    SUBMIT_JOB: 3,  # function, unique, data; also of the variants below
    GRAB_JOB: 0,
    WORK_STATUS: 3,  # handle, numerator, denominator
    WORK_COMPLETE: 2,  # handle, data
    WORK_FAIL: 1,  # handle
    GET_STATUS: 1,  # handle
    ECHO_REQ: 1,  # anything
    SUBMIT_JOB_BG: 3,
    SUBMIT_JOB_HIGH: 3,
    SET_CLIENT_ID: 1,  # name
    CAN_DO_TIMEOUT: 2,  # function, milliseconds
    WORK_EXCEPTION: 2,  # handle, data
    OPTION_REQ: 1,  # name
    WORK_DATA: 2,  # handle, data
    WORK_WARNING: 2,  # handle, data
    GRAB_JOB_UNIQ: 0,
    SUBMIT_JOB_HIGH_BG: 3,
    SUBMIT_JOB_LOW: 3,
    SUBMIT_JOB_LOW_BG: 3,
    SUBMIT_JOB_EPOCH: 4,  # function, unique, seconds since 1970, data
    SUBMIT_REDUCE_JOB: 5,  # function, unique, reducer, an unused one, data
    SUBMIT_REDUCE_JOB_BACKGROUND: 5,
    GRAB_JOB_ALL: 0,
    GET_STATUS_UNIQUE: 1,  # unique
}
SUBMITS: Final = frozenset(
    {
        SUBMIT_JOB,
        SUBMIT_JOB_BG,
        SUBMIT_JOB_HIGH,
        SUBMIT_JOB_HIGH_BG,
        SUBMIT_JOB_LOW,
        SUBMIT_JOB_LOW_BG,
        SUBMIT_JOB_EPOCH,
        SUBMIT_REDUCE_JOB,
        SUBMIT_REDUCE_JOB_BACKGROUND,
    }
)
REPLY_ARGUMENTS: Final[dict[int, int]] = {
    NOOP: 0,
    JOB_CREATED: 1,  # handle
    NO_JOB: 0,
    JOB_ASSIGN: 3,  # handle, function, data
    WORK_STATUS: 3,
    WORK_COMPLETE: 2,
    WORK_FAIL: 1,
    ECHO_RES: 1,
    ERROR: 2,  # code, text
    STATUS_RES: 5,  # handle, whether it is known, whether it runs, numerator, denominator
    WORK_EXCEPTION: 2,
    OPTION_RES: 1,
    WORK_DATA: 2,
    WORK_WARNING: 2,
    JOB_ASSIGN_UNIQ: 4,  # handle, function, unique, data
    JOB_ASSIGN_ALL: 5,  # handle, function, unique, reducer, data
    STATUS_RES_UNIQUE: 6,  # unique, known, runs, numerator, denominator, how many clients wait
}

# The names of requests for metrics and for errors about malformed packets.
NAMES: Final[dict[int, str]] = {
    CAN_DO: "CAN_DO",
    CANT_DO: "CANT_DO",
    RESET_ABILITIES: "RESET_ABILITIES",
    PRE_SLEEP: "PRE_SLEEP",
    SUBMIT_JOB: "SUBMIT_JOB",
    GRAB_JOB: "GRAB_JOB",
    WORK_STATUS: "WORK_STATUS",
    WORK_COMPLETE: "WORK_COMPLETE",
    WORK_FAIL: "WORK_FAIL",
    GET_STATUS: "GET_STATUS",
    ECHO_REQ: "ECHO_REQ",
    SUBMIT_JOB_BG: "SUBMIT_JOB_BG",
    SUBMIT_JOB_HIGH: "SUBMIT_JOB_HIGH",
    SET_CLIENT_ID: "SET_CLIENT_ID",
    CAN_DO_TIMEOUT: "CAN_DO_TIMEOUT",
    WORK_EXCEPTION: "WORK_EXCEPTION",
    OPTION_REQ: "OPTION_REQ",
    WORK_DATA: "WORK_DATA",
    WORK_WARNING: "WORK_WARNING",
    GRAB_JOB_UNIQ: "GRAB_JOB_UNIQ",
    SUBMIT_JOB_HIGH_BG: "SUBMIT_JOB_HIGH_BG",
    SUBMIT_JOB_LOW: "SUBMIT_JOB_LOW",
    SUBMIT_JOB_LOW_BG: "SUBMIT_JOB_LOW_BG",
    SUBMIT_JOB_EPOCH: "SUBMIT_JOB_EPOCH",
    SUBMIT_REDUCE_JOB: "SUBMIT_REDUCE_JOB",
    SUBMIT_REDUCE_JOB_BACKGROUND: "SUBMIT_REDUCE_JOB_BACKGROUND",
    GRAB_JOB_ALL: "GRAB_JOB_ALL",
    GET_STATUS_UNIQUE: "GET_STATUS_UNIQUE",
}

# The limit of libgearman.
FUNCTION_MAX_BYTES: Final[int] = QUEUE_NAME_MAX_BYTES - 1
# gearmand's GEARMAN_MAX_UNIQUE_SIZE.
UNIQUE_MAX_BYTES: Final = 64
# The reducer of a job is a function.
REDUCER_MAX_BYTES: Final[int] = FUNCTION_MAX_BYTES
# The limit of gearmand; client ids are shown in lists.
CLIENT_ID_MAX_BYTES: Final = 128
# The largest packet that is buffered: the largest body, and the other arguments of any request.
PACKET_MAX_BYTES: Final[int] = JOB_SIZE_MAX_BYTES + 4096
# A packet above that limit is read and discarded, so that its client gets an error and the
# connection stays usable. Above this limit the error would be too late: the connection ends.
PACKET_SKIPPED_MAX_BYTES: Final = 64 * 1024 * 1024
# The longest line of text: a command, a function and numbers, many times over.
LINE_MAX_BYTES: Final = 8 * 1024
