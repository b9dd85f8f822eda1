"""The encoding of the Raft messages: msgpack arrays of integers, validated when they are decoded.

Nothing is ever unpickled (H1). This module defines the messages; it does not decide which member
may send one, or when.
"""

from typing import Any, Final

import msgpack

from beanpole.errors import ProtocolError
from beanpole.replication.consensus import ENTRY_MAX_BYTES

# (APPEND, term, round, commit, previous index, previous term, answer wanted,
#  (term, command, term, command, ...))
APPEND: Final = 1
# (ACK, term, round, next index, kind, rejoin nonce)
ACK: Final = 2
# (VOTE, term, last index, last term, 1 for a transfer)
VOTE: Final = 3
# (VOTE_GRANTED, term)
VOTE_GRANTED: Final = 4
# (TIMEOUT_NOW, term): the leader transfers its leadership
TIMEOUT_NOW: Final = 5
# (HIGHER_TERM, term): the receiver's term is stale
HIGHER_TERM: Final = 6
# (PRE_VOTE, term of the campaign, last index, last term)
PRE_VOTE: Final = 7
# (PRE_VOTE_GRANTED, term of the campaign)
PRE_VOTE_GRANTED: Final = 8
# (OFFER, term, round, snapshot index, snapshot term)
OFFER: Final = 9
# (REJOINED_AT, term, rejoin nonce, index): the member counts again when it has this index
REJOINED_AT: Final = 10

# Kinds of ACK. MATCHED: all entries below `next index` match and are durable. REWIND: resend from
# `next index` on. ALIVE: only a sign of life.
MATCHED: Final = 0
REWIND: Final = 1
ALIVE: Final = 2

Message = tuple[Any, ...]

# The first byte of a log entry: the library's own first entry of a term, or an entry of the node.
# 77 is not a command number of the library, so that the library would ignore such an entry.
NO_OP: Final = b"\x01"
OURS: Final = b"\x4d"
OURS_NUMBER: Final = 0x4D  # OURS as an item of bytes

# The journal stores integers in unsigned 64 bits; legitimate ones are far below.
_NUMBER_MAX: Final = 2**62
# A message may join several entries (see the journal's slices) or hold a single large one.
_COMMAND_MAX_BYTES: Final = ENTRY_MAX_BYTES + 1

# The number of integers after the kind.
_NUMBERS: Final[dict[int, int]] = {
    APPEND: 6,
    ACK: 5,
    VOTE: 4,
    VOTE_GRANTED: 1,
    TIMEOUT_NOW: 1,
    HIGHER_TERM: 1,
    PRE_VOTE: 3,
    PRE_VOTE_GRANTED: 1,
    OFFER: 4,
    REJOINED_AT: 3,
}

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    return _pack(message)


def decode(data: bytes) -> Message:
    """Return the message in the bytes.

    Raises:
        ProtocolError: no correct member sends such bytes.
    """
    try:
        message = msgpack.unpackb(data, use_list=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a raft message of {len(data)} bytes is not msgpack") from error
    if type(message) is not tuple or not message or type(message[0]) is not int:
        raise ProtocolError("a raft message is not an array that begins with its kind")
    kind = message[0]
    numbers = _NUMBERS.get(kind)
    if numbers is None:
        raise ProtocolError(f"unknown raft message kind {kind}")
    if len(message) != 1 + numbers + (kind == APPEND):
        raise ProtocolError(f"raft message of kind {kind} with {len(message)} items")
    for number in message[1 : 1 + numbers]:
        if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
            raise ProtocolError(f"raft message of kind {kind} with a bad number")
    if kind == APPEND:
        _check_entries(message)
    elif kind == ACK and message[4] > ALIVE:
        raise ProtocolError(f"unknown kind of acknowledgement {message[4]}")
    return message


def _check_entries(message: Message) -> None:
    entries = message[7]
    if type(entries) is not tuple or len(entries) % 2:
        raise ProtocolError("entries that are not pairs")
    term, previous_term = message[1], message[5]
    for position in range(0, len(entries), 2):
        entry_term, command = entries[position], entries[position + 1]
        # Terms never decrease along a log, and no entry has a later term than its sender.
        if type(entry_term) is not int or not previous_term <= entry_term <= term:
            raise ProtocolError("an entry whose term is out of order")
        previous_term = entry_term
        if type(command) is not bytes or not command or len(command) > _COMMAND_MAX_BYTES:
            raise ProtocolError("an entry that is no command")
        # The library would unpickle any other command, or change the members (H2, G1, I3).
        if command[0] != OURS_NUMBER and command != NO_OP:
            raise ProtocolError(f"an entry of kind {command[0]}, which is not ours")
