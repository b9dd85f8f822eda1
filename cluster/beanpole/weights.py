"""The weight of commands: their bytes in a batch, and the largest batch and entry.

Belongs here: arithmetic on the limits of `constants` and on the overhead of msgpack, from which the
size of an entry follows. The weight of each command is in `core.operations.table`; the node decides
which commands are refused, and when a batch is closed.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import (
    BATCH_COMMANDS_MAX,
    BATCH_MAX_BYTES,
    ENTRY_JOIN_BYTES,
    EXTERNAL_ID_MAX_BYTES,
    EXTRA_MAX_BYTES,
    JOB_SIZE_MAX_BYTES,
    QUEUE_NAME_MAX_BYTES,
)
from beanpole.qless import ARGS_MAX_BYTES

# The size in msgpack of a 64-bit and a 32-bit number, and of the headers of strings: 5 bytes for a
# body, 2 for names and keys, which have at most 255 bytes.
NUMBER_BYTES: Final = 9
NUMBER_32_BYTES: Final = 5
BODY_HEAD_BYTES: Final = 5
NAME_HEAD_BYTES: Final = 2
# Queue names of other protocols than beanstalk, and external ids, may be longer.
LONG_NAME_HEAD_BYTES: Final = 3
# The header of a command's array and its operation code.
HEAD_BYTES: Final = 2
# The largest header of a section's array.
SECTION_ARRAY_BYTES: Final = 5

# A command without its strings. The longest is RELEASE: a session, a job, a priority and a delay.
COMMAND_BYTES: Final = HEAD_BYTES + 2 * NUMBER_BYTES + 2 * NUMBER_32_BYTES
# A put without its strings: a session, a tube, a priority, a delay, a TTR, a body, a key.
PUT_BYTES: Final = (
    HEAD_BYTES + NUMBER_BYTES + 2 * NAME_HEAD_BYTES + 3 * NUMBER_32_BYTES + BODY_HEAD_BYTES
)
# An ADD without its strings: a session, a queue, a rank, a delay, a TTR, a TTL, an external id, the
# limits of attempts and of failures, a body.
ADD_BYTES: Final = (
    HEAD_BYTES + 4 * NUMBER_BYTES + 2 * LONG_NAME_HEAD_BYTES + 3 * NUMBER_32_BYTES + BODY_HEAD_BYTES
)
# A SUBMIT without its strings: a session, a queue, a rank, a delay, an external id, the limit of
# attempts, whether its client is attached, its protocol's extra data, a body.
SUBMIT_BYTES: Final = (
    HEAD_BYTES + 2 * NUMBER_BYTES + 3 * LONG_NAME_HEAD_BYTES + 3 * NUMBER_32_BYTES + BODY_HEAD_BYTES
)
# A call of qless without its arguments: a session, a call, a flavour, a time.
QLESS_BYTES: Final = HEAD_BYTES + 2 * NUMBER_BYTES + 2 * NUMBER_32_BYTES + BODY_HEAD_BYTES
# A CHANGE_JOB without its strings: a session, a job, an action, states, two queues, a value.
CHANGE_BYTES: Final = HEAD_BYTES + 3 * NUMBER_BYTES + 2 * LONG_NAME_HEAD_BYTES + 2 * NUMBER_32_BYTES
# A SET_POLICY without its strings: a session, two queues, the limit of attempts, two limits of a
# queue and the way to enforce them, a TTR, a priority, three times, a rate and its time.
POLICY_BYTES: Final = HEAD_BYTES + 7 * NUMBER_BYTES + 2 * LONG_NAME_HEAD_BYTES + 5 * NUMBER_32_BYTES
# A SET_USER without its strings: a session, a name, rights, two limits of its jobs, a rate.
USER_BYTES: Final = (
    HEAD_BYTES + 3 * NUMBER_BYTES + NAME_HEAD_BYTES + BODY_HEAD_BYTES + NUMBER_32_BYTES
)
# The largest command of all: a SUBMIT.
COMMAND_MAX_BYTES: Final = (
    SUBMIT_BYTES
    + QUEUE_NAME_MAX_BYTES
    + EXTERNAL_ID_MAX_BYTES
    + EXTRA_MAX_BYTES
    + JOB_SIZE_MAX_BYTES
)
# The largest weight of the commands of one batch.
BATCH_ROOM_BYTES: Final = BATCH_MAX_BYTES - SECTION_ARRAY_BYTES
assert COMMAND_MAX_BYTES <= BATCH_ROOM_BYTES, "every legal command fits into a batch"
assert QLESS_BYTES + ARGS_MAX_BYTES <= COMMAND_MAX_BYTES, "and so does every call of qless"

# A batch names the tubes into which it puts ready jobs: a name and a count for each put.
HINT_MAX_BYTES: Final = SECTION_ARRAY_BYTES + BATCH_COMMANDS_MAX * (
    LONG_NAME_HEAD_BYTES + QUEUE_NAME_MAX_BYTES + NUMBER_32_BYTES
)

# The leader's own commands of one entry: an EPOCH, its pending commands, and GRANTs for the puts.
# All their fields are numbers; an EPOCH has the most (`core.operations.table` checks this).
LEADER_NUMBERS_MAX: Final = 6
LEADER_COMMAND_BYTES: Final = HEAD_BYTES + NUMBER_BYTES * LEADER_NUMBERS_MAX
LEADER_COMMANDS_MAX: Final = BATCH_COMMANDS_MAX
GRANTS_FOR_PUTS_MAX: Final = BATCH_COMMANDS_MAX
_LEADER_BYTES: Final = (
    2 * (c.SECTION_HEADER_BYTES + SECTION_ARRAY_BYTES)
    + (1 + LEADER_COMMANDS_MAX + GRANTS_FOR_PUTS_MAX) * LEADER_COMMAND_BYTES
)
# Batches are joined up to ENTRY_JOIN_BYTES; a larger batch travels alone.
assert ENTRY_JOIN_BYTES <= BATCH_MAX_BYTES
ENTRY_MAX_BYTES: Final = (
    c.ENTRY_HEADER_BYTES + c.SECTION_HEADER_BYTES + BATCH_MAX_BYTES + _LEADER_BYTES
)
