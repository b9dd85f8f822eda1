"""What commands weigh: the bytes that they take in a batch, and the largest batch and entry.

Belongs here: arithmetic on the limits of `constants` and the layouts of `commands`, so that the
size of an entry follows from them. Who is refused, and when a batch is closed, is the node's.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import (
    BATCH_COMMANDS_MAX,
    BATCH_MAX_BYTES,
    DEDUP_KEY_MAX_BYTES,
    ENTRY_JOIN_BYTES,
    JOB_SIZE_MAX_BYTES,
    TUBE_NAME_MAX_BYTES,
)

# What msgpack makes of a number of 64 bits and of one of 32, and what it adds to a string: the
# head of a body has 5 bytes; names and keys have at most 255 bytes and a head of 2.
_NUMBER: Final = 9
_NUMBER_32: Final = 5
_BODY_HEAD: Final = 5
_NAME_HEAD: Final = 2
# The head of a command's array and its operation code.
_HEAD: Final = 2
# The head of a section's array, whatever it holds.
SECTION_ARRAY_BYTES: Final = 5

# A command without its strings. The longest is RELEASE: a session, a job, a priority and a delay.
COMMAND_BYTES: Final = _HEAD + 2 * _NUMBER + 2 * _NUMBER_32
# A put without its strings: a session, a tube, a priority, a delay, a TTR, a body, a key.
PUT_BYTES: Final = _HEAD + _NUMBER + 2 * _NAME_HEAD + 3 * _NUMBER_32 + _BODY_HEAD
# The largest command of all.
COMMAND_MAX_BYTES: Final = (
    PUT_BYTES + TUBE_NAME_MAX_BYTES + JOB_SIZE_MAX_BYTES + DEDUP_KEY_MAX_BYTES
)
# What the commands of one batch may weigh together.
BATCH_ROOM_BYTES: Final = BATCH_MAX_BYTES - SECTION_ARRAY_BYTES
assert COMMAND_MAX_BYTES <= BATCH_ROOM_BYTES, "every legal command fits into a batch"

# A batch says into which tubes it puts ready jobs: a name and a count for each put.
HINT_MAX_BYTES: Final = SECTION_ARRAY_BYTES + BATCH_COMMANDS_MAX * (
    _NAME_HEAD + TUBE_NAME_MAX_BYTES + _NUMBER_32
)

# The leader's own commands of one entry: an EPOCH, what it wants to say, and GRANTs for the puts.
# All of them are numbers.
LEADER_COMMAND_BYTES: Final = _HEAD + _NUMBER * max(
    len(shape) - 1 for operation, shape in c.SHAPES.items() if operation >= c.EPOCH
)
LEADER_COMMANDS_MAX: Final = BATCH_COMMANDS_MAX
GRANTS_FOR_PUTS_MAX: Final = BATCH_COMMANDS_MAX
_LEADER_BYTES: Final = (
    2 * (c.SECTION_HEADER_BYTES + SECTION_ARRAY_BYTES)
    + (1 + LEADER_COMMANDS_MAX + GRANTS_FOR_PUTS_MAX) * LEADER_COMMAND_BYTES
)
# Batches are joined up to ENTRY_JOIN_BYTES; a larger one travels alone.
assert ENTRY_JOIN_BYTES <= BATCH_MAX_BYTES
ENTRY_MAX_BYTES: Final = (
    c.ENTRY_HEADER_BYTES + c.SECTION_HEADER_BYTES + BATCH_MAX_BYTES + _LEADER_BYTES
)

# Commands whose third item is a string: a tube, or a session's secret, which is shorter.
_NAMED: Final = frozenset(
    operation
    for operation, shape in c.SHAPES.items()
    if len(shape) > 2 and shape[2] is bytes and operation not in (c.PUT, c.PUT_KEYED)
)


def packed_bytes(command: c.Command) -> int:
    """What a client's command takes in its batch at most, if its numbers are legal."""
    operation = command[0]
    if operation == c.PUT:
        return PUT_BYTES + len(command[2]) + len(command[6])
    if operation in _NAMED:
        return COMMAND_BYTES + len(command[2])
    if operation == c.PUT_KEYED:
        return PUT_BYTES + len(command[2]) + len(command[6]) + len(command[7])
    return COMMAND_BYTES
