"""Operation codes, tuple layouts and bytes of everything that travels through the log.

One entry of the Raft log is a header (time, flags) and sections. A section is either a batch of an
origin (the node that holds the clients' connections) or the leader's own commands. A command is a
flat tuple whose first item is its operation code; tube names and bodies are bytes.

Nothing here decides anything: what a command does is in `core`.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Any, Final

import msgpack

from beanpole.errors import UnknownVersion

# The byte layout of entries; 1 was before release 0.2.0. A node that meets another version stops.
ENTRY_VERSION: Final = 2
# What `apply` does, and how an image is written. Every machine begins at the first of these, in
# every program, and only RAISE in the log takes it further: a newer program that replays an older
# log must do what the older one did.
BASE_VERSION: Final = 2
# The newest machine version that this program knows. Each change of what `apply` does, a mended bug
# or a changed constant included, needs one more and a condition on the active version.
MACHINE_VERSION: Final = 2
# Versions travel in one byte of the handshake and in 60 bits of the running chain.
VERSION_MAX: Final = 255

# Header flag: the leader, or a majority, is below its disk reserve; puts are refused.
FLAG_PUTS_REFUSED: Final = 1

# The section's origin when the commands are the leader's own.
LEADER: Final = 255
# Origins are positions in the sorted member list.
ORIGINS_MAX: Final = 64

# --- commands of a batch: (operation, session number, ...) --------------------------------------
OPEN: Final = 1  # (OPEN, session)
CLOSE: Final = 2  # (CLOSE, session, lost): lost is 1 when the client did not ask for it
PUT: Final = 3  # (PUT, session, tube, priority, delay_s, ttr_s, body)
USE: Final = 4  # (USE, session, tube)
WATCH: Final = 5  # (WATCH, session, tube)
IGNORE: Final = 6  # (IGNORE, session, tube)
DELETE: Final = 7  # (DELETE, session, job)
RELEASE: Final = 8  # (RELEASE, session, job, priority, delay_s)
BURY: Final = 9  # (BURY, session, job, priority)
TOUCH: Final = 10  # (TOUCH, session, job)
KICK: Final = 11  # (KICK, session, tube, bound, state of the jobs; 0: see `operations`)
KICK_JOB: Final = 12  # (KICK_JOB, session, job)
RESERVE_JOB: Final = 13  # (RESERVE_JOB, session, job)
PAUSE_TUBE: Final = 14  # (PAUSE_TUBE, session, tube, delay_s)
RETURN: Final = 15  # (RETURN, session, job): a granted job that no client is waiting for any more
KEEP: Final = 16  # (KEEP, session, secret, grace_us): the session may be resumed after a loss
RESUME: Final = 17  # (RESUME, session, secret): this attachment takes over the session kept so
PUT_KEYED: Final = 18  # (PUT_KEYED, as PUT, key): gives (job, whether the key was remembered)
SPEAK: Final = 19  # (SPEAK, session, protocol): what its client speaks, if it is not beanstalk

# --- reads of a batch: answered in place, only at their origin; they never touch state ----------
PEEK: Final = 32  # (PEEK, session, job)
PEEK_READY: Final = 33  # (PEEK_READY, session, tube)
PEEK_DELAYED: Final = 34  # (PEEK_DELAYED, session, tube)
PEEK_BURIED: Final = 35  # (PEEK_BURIED, session, tube)
STATS: Final = 36  # (STATS, session)
STATS_JOB: Final = 37  # (STATS_JOB, session, job)
STATS_TUBE: Final = 38  # (STATS_TUBE, session, tube)
LIST_TUBES: Final = 39  # (LIST_TUBES, session)

# --- the leader's own commands -------------------------------------------------------------------
EPOCH: Final = 64  # (EPOCH, term, floor_us, jobs, tubes, sessions, bytes): maxima
TICK: Final = 65  # (TICK,)
NODE_DOWN: Final = 66  # (NODE_DOWN, origin, incarnation)
GRANT: Final = 67  # (GRANT, origin, incarnation, session, request, behind)
DIGEST: Final = 68  # (DIGEST,): every node takes the canonical digest at this index
RAISE: Final = 69  # (RAISE, machine version): from here on; a node that does not know it stops

# --- results -------------------------------------------------------------------------------------
OK: Final = 1
NOT_FOUND: Final = 0
OUT_OF_MEMORY: Final = -1  # a limit of the cluster is reached
BAD_COMMAND: Final = -2  # wrong layout, unknown operation, or a session that does not exist

# The types of every command's items, in order: what `apply` checks before it believes a command.
SHAPES: Final[dict[int, tuple[type, ...]]] = {
    OPEN: (int, int),
    CLOSE: (int, int, int),
    PUT: (int, int, bytes, int, int, int, bytes),
    USE: (int, int, bytes),
    WATCH: (int, int, bytes),
    IGNORE: (int, int, bytes),
    DELETE: (int, int, int),
    RELEASE: (int, int, int, int, int),
    BURY: (int, int, int, int),
    TOUCH: (int, int, int),
    KICK: (int, int, bytes, int, int),
    KICK_JOB: (int, int, int),
    RESERVE_JOB: (int, int, int),
    PAUSE_TUBE: (int, int, bytes, int),
    RETURN: (int, int, int),
    KEEP: (int, int, bytes, int),
    RESUME: (int, int, bytes),
    PUT_KEYED: (int, int, bytes, int, int, int, bytes, bytes),
    SPEAK: (int, int, int),
    PEEK: (int, int, int),
    PEEK_READY: (int, int, bytes),
    PEEK_DELAYED: (int, int, bytes),
    PEEK_BURIED: (int, int, bytes),
    STATS: (int, int),
    STATS_JOB: (int, int, int),
    STATS_TUBE: (int, int, bytes),
    LIST_TUBES: (int, int),
    EPOCH: (int, int, int, int, int, int, int),
    TICK: (int,),
    NODE_DOWN: (int, int, int),
    GRANT: (int, int, int, int, int, int),
    DIGEST: (int,),
    RAISE: (int, int),
}

# The machine version that brought an operation, for those that BASE_VERSION lacks. Below it the
# operation is BAD_COMMAND on every node, as it is where the program does not know it at all.
SINCE: Final[dict[int, int]] = {}
# In place of a command that the active version lacks: BAD_COMMAND in every version.
NO_COMMAND: Final = (0,)

Command = tuple[Any, ...]
# (origin, incarnation, number, commands): what the log has for commands may be anything.
Section = tuple[int, int, int, tuple[Any, ...]]

_HEADER: Final = Struct("<BBqq")  # version, flags, cluster time us, leader's wall time us
_SECTION: Final = Struct("<BIQI")  # origin, incarnation, number, payload bytes
ENTRY_HEADER_BYTES: Final[int] = _HEADER.size
SECTION_HEADER_BYTES: Final[int] = _SECTION.size

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def is_command(value: Any) -> bool:
    """Whether a value has exactly the types of its operation: what a log holds may be anything."""
    if type(value) is not tuple or not value or type(value[0]) is not int:
        return False
    shape = SHAPES.get(value[0])
    if shape is None or len(value) != len(shape):
        return False
    for place in range(len(shape)):  # noqa: SIM110 - compiled, four times as fast as all()
        if type(value[place]) is not shape[place]:
            return False
    return True


def pack_commands(commands: Iterable[Command]) -> bytes:
    """Encode the commands of one section."""
    packed: bytes = _pack(tuple(commands))
    return packed


def count_of(payload: bytes) -> int:
    """How many commands a packed section says it has; 0 if it is no list."""
    first = payload[0] if payload else 0
    if first & 0xF0 == 0x90:
        return first & 0x0F
    width = {0xDC: 2, 0xDD: 4}.get(first, 0)
    return int.from_bytes(payload[1 : 1 + width], "big")


def unpack_commands(payload: bytes | memoryview) -> tuple[Any, ...]:
    """Decode the commands of one section; bytes that are no list give none.

    Whether each is a command is for the machine to see. All nodes decode the same bytes, so even
    garbage has the same (empty) effect everywhere.
    """
    try:
        commands = msgpack.unpackb(payload, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException):
        return ()
    if type(commands) is not tuple:
        return ()
    return commands


def encode_entry(
    flags: int, time_us: int, wall_us: int, sections: Iterable[tuple[int, int, int, bytes]]
) -> bytes:
    """Join sections (origin, incarnation, number, packed commands) into the bytes of one entry."""
    parts = [_HEADER.pack(ENTRY_VERSION, flags, time_us, wall_us)]
    for origin, incarnation, number, payload in sections:
        parts.append(_SECTION.pack(origin, incarnation, number, len(payload)))
        parts.append(payload)
    return b"".join(parts)


def decode_entry(entry: bytes) -> tuple[int, int, int, list[Section]]:
    """Split an entry into (flags, cluster time us, wall time us, sections).

    Raises:
        UnknownVersion: the entry was written by a program of another version; the caller stops.
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
