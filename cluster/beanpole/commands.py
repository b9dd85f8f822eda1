"""Operation codes, and the encoding of everything that travels through the log.

One entry of the Raft log is a header (time, flags) and sections. A section is either a batch of an
origin (the node that holds the clients' connections) or the leader's own commands. A command is a
flat tuple whose first item is its operation code; tube names and bodies are bytes.

This module holds no logic: the fields and effects of each command are in `core.operations`.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Any, Final

import msgpack

from beanpole.errors import UnknownVersion

# The byte layout of entries; 1 was used before release 0.2.0. A node that reads another version
# stops.
ENTRY_VERSION: Final = 2
# The first version of `apply` and of images. Every machine starts at this version, whatever the
# release of the program, and only a RAISE in the log increases it: a newer program that replays an
# older log must do exactly what the older program did.
BASE_VERSION: Final = 2
# The newest machine version that this program implements. Each change of the behavior of `apply`,
# including a bug fix or a changed constant, needs a new version and a condition on the active one.
MACHINE_VERSION: Final = 4
# Versions are encoded in one byte of the handshake and in 60 bits of the state hash.
VERSION_MAX: Final = 255

# Header flag: the leader, or a majority, is below its disk reserve; puts are refused.
FLAG_PUTS_REFUSED: Final = 1

# The section's origin when the commands are the leader's own. Other origins are indexes in the
# sorted list of members, which is far shorter.
LEADER: Final = 255

# --- operations of a batch -----------------------------------------------------------------------
# The fields and the effect of each operation are in `core.operations.table`.
OPEN: Final = 1
CLOSE: Final = 2
PUT: Final = 3
USE: Final = 4
WATCH: Final = 5
IGNORE: Final = 6
DELETE: Final = 7
RELEASE: Final = 8
BURY: Final = 9
TOUCH: Final = 10
KICK: Final = 11
KICK_JOB: Final = 12
RESERVE_JOB: Final = 13
PAUSE_TUBE: Final = 14
RETURN: Final = 15  # gives back a granted job for which no client is waiting any more
KEEP: Final = 16  # the session may be resumed after its connection is lost
RESUME: Final = 17  # this attachment takes over the session that was kept with its secret
PUT_KEYED: Final = 18  # returns (job, whether the key was remembered)
SET_PROTOCOL: Final = 19  # the protocol of the session's client, if it is not beanstalk
TAKE: Final = 20  # reserves at once, or not at all
NOTIFY: Final = 21  # a message to the listeners of a job; it changes no state
ADD: Final = 22  # a put with the fields of some protocols; returns (job, whether it existed)
FINISH: Final = 23  # a job is done, or has failed
PROGRESS: Final = 24  # the progress of a job
OPEN_FROM: Final = 25  # OPEN, with the host of the client
SUBMIT: Final = 26  # an ADD whose client may attach itself to the job; returns the same
FINISH_NAMED: Final = 27  # FINISH of the job with an external id
DELETE_NAMED: Final = 28  # DELETE of the job with an external id, in any state
SET_TTR: Final = 29  # a new TTR for a reservation, from now on
CREATE_QUEUE: Final = 30
DROP_QUEUE: Final = 31

# --- read-only operations of a batch: answered in place, at their origin -------------------------
PEEK: Final = 32
PEEK_READY: Final = 33
PEEK_DELAYED: Final = 34
PEEK_BURIED: Final = 35
STATS: Final = 36
STATS_JOB: Final = 37
STATS_TUBE: Final = 38
LIST_TUBES: Final = 39
FIND: Final = 40  # the job with an external id
RESULT: Final = 41

# --- more operations of a batch ------------------------------------------------------------------
LIMIT_QUEUE: Final = 48  # the maximum number of jobs in a queue
SET_ALIAS: Final = 49  # a name for a queue in another space
QLESS: Final = 50  # a call of qless (`beanpole.qless`) that may change state
QLESS_READ: Final = 51  # a read-only call of qless
CHANGE_JOB: Final = 52  # an administrator's change of a job (`core.operations.administering`)
PAUSE_QUEUE: Final = 53  # PAUSE_TUBE of a queue of any space
SET_POLICY: Final = 54  # rules for the jobs of some queues
DROP_POLICY: Final = 55
AS_USER: Final = 56  # sets the session's user from here on: by a token, or by a rule of its node
SET_USER: Final = 57  # a user, with its rights and limits
DROP_USER: Final = 58
SET_TOKEN: Final = 59  # adds or removes a token of a user
SET_RULES: Final = 60  # the rules that assign new sessions to users

# --- the leader's own commands -------------------------------------------------------------------
EPOCH: Final = 64  # begins a term: in the first entry that its leader proposes
# 65 was TICK, a no-op that an empty entry replaces. Logs of older releases may contain it.
NODE_DOWN: Final = 66
GRANT: Final = 67
DIGEST: Final = 68  # every node takes the canonical digest at this index
RAISE: Final = 69  # the machine's version from here on; a node that does not implement it stops

# --- results -------------------------------------------------------------------------------------
OK: Final = 1
NOT_FOUND: Final = 0
OUT_OF_MEMORY: Final = -1  # a limit of the cluster is reached
AGAIN: Final = -3  # the entry's work limit is reached; nothing was done, so it may be repeated
BAD_COMMAND: Final = -2  # wrong layout, unknown operation, or a session that does not exist
EXISTS: Final = -4  # the external id is taken, or the job already has its result
FULL: Final = -5  # the queue, or the user, has the maximum number of jobs
BUSY: Final = -6  # the queue is watched, or a job of it is reserved; a rule names the user
DENIED: Final = -7  # the session's user lacks the required right; or an unknown token
LOCKED_OUT: Final = -8  # after this change perhaps no caller could manage users any more

# Replaces a command that the active version lacks: it is BAD_COMMAND in every version.
NO_COMMAND: Final = (0,)

Command = tuple[Any, ...]
# (origin, incarnation, number, commands). The commands are decoded but not validated.
Section = tuple[int, int, int, tuple[Any, ...]]

_HEADER: Final = Struct("<BBqq")  # version, flags, cluster time us, leader's wall time us
_SECTION: Final = Struct("<BIQI")  # origin, incarnation, number, payload bytes
ENTRY_HEADER_BYTES: Final[int] = _HEADER.size
SECTION_HEADER_BYTES: Final[int] = _SECTION.size

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def pack_commands(commands: Iterable[Command]) -> bytes:
    """Encode the commands of one section."""
    packed: bytes = _pack(tuple(commands))
    return packed


def count_of(payload: bytes) -> int:
    """Return the number of commands that a packed section declares; 0 if it is not a list."""
    first = payload[0] if payload else 0
    if first & 0xF0 == 0x90:
        return first & 0x0F
    width = {0xDC: 2, 0xDD: 4}.get(first, 0)
    return int.from_bytes(payload[1 : 1 + width], "big")


def unpack_tuple(packed: bytes | memoryview) -> tuple[Any, ...] | None:
    """Decode a list, with its items not validated; None if the bytes are not a list."""
    try:
        items = msgpack.unpackb(packed, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException):
        return None
    if type(items) is not tuple:
        return None
    return items


def unpack_commands(payload: bytes | memoryview) -> tuple[Any, ...]:
    """Decode the commands of one section; bytes that are not a list yield an empty tuple.

    The machine validates each command. All nodes decode the same bytes, so even garbage has the
    same (empty) effect on every node.
    """
    return unpack_tuple(payload) or ()


def encode_entry(
    flags: int, time_us: int, wall_us: int, sections: Iterable[tuple[int, int, int, bytes]]
) -> bytes:
    """Join sections (origin, incarnation, number, packed commands) into the bytes of one entry."""
    parts = [_HEADER.pack(ENTRY_VERSION, flags, time_us, wall_us)]
    for origin, incarnation, number, payload in sections:
        parts.append(_SECTION.pack(origin, incarnation, number, len(payload)))
        parts.append(payload)
    return b"".join(parts)


def entry_times_us(entry: bytes) -> tuple[int, int]:
    """Return the cluster time of an entry and its leader's wall clock.

    Both are 0 for an entry of another version or without a header.
    """
    if len(entry) < ENTRY_HEADER_BYTES or entry[0] != ENTRY_VERSION:
        return 0, 0
    time_us: int
    wall_us: int
    _, _, time_us, wall_us = _HEADER.unpack_from(entry)
    return time_us, wall_us


def decode_entry(entry: bytes) -> tuple[int, int, int, list[Section]]:
    """Split an entry into (flags, cluster time us, wall time us, sections).

    Raises:
        UnknownVersion: a program of another version wrote the entry; the caller must stop.
    """
    try:
        version, flags, time_us, wall_us = _HEADER.unpack_from(entry)
    except StructError as error:
        raise UnknownVersion(f"an entry of {len(entry)} bytes has no header") from error
    if version != ENTRY_VERSION:
        words = "upgrade beanpoled on this node to the release that the other nodes run"
        if version < ENTRY_VERSION:
            words = "it was written before release 0.2.0"
        raise UnknownVersion(
            f"entry version {version}, this program knows {ENTRY_VERSION}: {words}"
        )
    sections: list[Section] = []
    view = memoryview(entry)
    position = ENTRY_HEADER_BYTES
    end = len(entry)
    while position < end:
        if end - position < SECTION_HEADER_BYTES:
            raise UnknownVersion(f"an entry of {end} bytes ends inside a section's header")
        origin, incarnation, number, size = _SECTION.unpack_from(entry, position)
        position += SECTION_HEADER_BYTES
        if end - position < size:
            raise UnknownVersion(f"an entry of {end} bytes ends inside a section")
        commands = unpack_commands(view[position : position + size])
        sections.append((origin, incarnation, number, commands))
        position += size
    return flags, time_us, wall_us, sections
