"""Frames between nodes: their kinds and the layouts of those that are not Raft's.

The link that carries them (hello, length, CRC) is in `link`; Raft's own messages are opaque here.
"""

from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

import msgpack

from beanpole.errors import ProtocolError

RAFT: Final = 1  # opaque, for the replica
BATCH: Final = 2  # origin -> leader
WAITS: Final = 3  # origin -> leader: sessions that wait for a job
UNWAITS: Final = 4  # origin -> leader: waits that should end
NONES: Final = 5  # leader -> origin: these waits ended without a job
BEAT: Final = 6  # everybody to everybody, each heartbeat

# Term, incarnation, number, first of a (re)sending, clients who wait for answers, hint bytes.
_BATCH: Final = Struct("<QIQBII")

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack

Hint = dict[bytes, int]
# (session, request, behind)
WaitItem = tuple[int, int, int]
# (session, request)
EndItem = tuple[int, int]


class Beat(NamedTuple):
    """What every node tells every other at each heartbeat."""

    term: int
    leading: bool
    cluster_us: int  # cluster time, the leader's or as this node has heard it; 0 if it has not
    wall_us: int
    incarnation: int
    applied_index: int
    chain: int
    machine_version: int
    disk_low: bool
    stopping: bool
    digest_index: int
    digest: int


def encode_batch(
    term: int,
    incarnation: int,
    number: int,
    first: bool,
    clients: int,
    hint: bytes,
    payload: bytes,
) -> bytes:
    """Encode a BATCH.

    `clients` is how many of its commands have somebody who waits for the answer. `hint` are the
    packed tubes into which it puts ready jobs, with counts.
    """
    return _BATCH.pack(term, incarnation, number, first, clients, len(hint)) + hint + payload


def decode_batch(frame: bytes) -> tuple[int, int, int, bool, int, bytes, bytes]:
    """Decode a BATCH: (term, incarnation, number, first, clients, hint, payload)."""
    try:
        term, incarnation, number, first, clients, size = _BATCH.unpack_from(frame)
    except StructError as error:
        raise ProtocolError(f"a batch of {len(frame)} bytes") from error
    begin = _BATCH.size + size
    if begin > len(frame):
        raise ProtocolError("a batch ends inside its hint")
    hint = frame[_BATCH.size : begin]
    return term, incarnation, number, bool(first), clients, hint, frame[begin:]


def pack(value: Any) -> bytes:
    """Encode a hint."""
    packed: bytes = _pack(value)
    return packed


def unpack_hint(data: bytes) -> Hint:
    """Decode a hint of a batch."""
    hint = _unpack(data) if data else {}
    if type(hint) is not dict:
        raise ProtocolError("a hint is no mapping")
    return hint


def encode_items(term: int, incarnation: int, items: list[WaitItem] | list[EndItem]) -> bytes:
    """Encode WAITS, UNWAITS or NONES."""
    return pack((term, incarnation, items))


def decode_items(frame: bytes, width: int) -> tuple[int, int, list[tuple[int, ...]]]:
    """Decode WAITS (width 3), UNWAITS or NONES (width 2): (term, incarnation, items)."""
    value = _unpack(frame)
    if type(value) is not tuple or len(value) != 3 or type(value[2]) is not tuple:
        raise ProtocolError("a list of waits has another layout")
    term, incarnation, items = value
    for item in items:
        if type(item) is not tuple or len(item) != width:
            raise ProtocolError("a wait has another layout")
        for number in item:
            if type(number) is not int:
                raise ProtocolError("a wait holds something that is no number")
    return term, incarnation, list(items)


def encode_beat(beat: Beat) -> bytes:
    """Encode a BEAT."""
    return pack(tuple(beat))


def decode_beat(frame: bytes) -> Beat:
    """Decode a BEAT."""
    value = _unpack(frame)
    if type(value) is not tuple or len(value) != len(Beat._fields):
        raise ProtocolError("a beat has another layout")
    if any(type(item) not in (int, bool) for item in value):
        raise ProtocolError("a beat holds something that is no number")
    return Beat(*value)


def _unpack(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a frame that is no msgpack: {error}") from error
