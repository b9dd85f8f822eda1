"""Frames between nodes: their kinds, and the layouts of all but Raft's messages.

The link that carries them (hello, length, CRC) is in `link`; Raft's own messages are opaque here.

Between nodes of different releases: a HEARTBEAT may grow (see `Heartbeat`); the kinds and layouts
of all other frames, and Raft's messages, belong to the link version that both sides agreed on in
the hello. A frame that a version does not know is never sent on a link of that version; receiving
one is a ProtocolError, which ends the link.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

import msgpack

from beanpole.constants import BATCH_MAX_BYTES
from beanpole.errors import ProtocolError
from beanpole.weights import HINT_MAX_BYTES

RAFT: Final = 1  # opaque, for the replica
BATCH: Final = 2  # origin -> leader
WAITS: Final = 3  # origin -> leader: sessions that wait for a job
UNWAITS: Final = 4  # origin -> leader: waits that should end
NONES: Final = 5  # leader -> origin: these waits ended without a job
HEARTBEAT: Final = 6  # each member to each other

# Term, incarnation, number, first of a (re)transmission, clients that wait for answers, hint bytes.
_BATCH: Final = Struct("<QIQBII")

# Sessions, requests and batches are counted from 1; no node reaches this limit.
_NUMBER_MAX: Final = 2**63 - 1

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack

# The limit of batches of an origin in flight to the leader. Few, so that batches grow by themselves
# under load; enough to cover the time of a commit.
BATCHES_IN_FLIGHT_MAX: Final = 16
# The limit of items in one frame: 2 MB of waits. A node may have a million clients that wait.
ITEMS_MAX: Final = 65_536

Hint = dict[bytes, int]
# (session, request, behind)
WaitItem = tuple[int, int, int]
# (session, request)
EndItem = tuple[int, int]


class Heartbeat(NamedTuple):
    """A heartbeat, sent by each node to every other.

    Nodes of different releases exchange it, so fields are only ever added, at the end and with a
    default: a receiver ignores fields behind those that it knows, and uses the default for fields
    that an older sender lacks. A field never changes its position, type or meaning.
    """

    term: int
    leading: bool
    cluster_us: int  # cluster time, as the leader or as this node received it; 0 if unknown
    wall_us: int
    incarnation: int
    applied_index: int
    state_hash: int
    machine_version: int  # the newest that its program knows
    disk_low: bool
    stopping: bool
    digest_index: int
    digest: int
    digest_version: int  # of the machine at `digest_index`, and so of its image
    active_version: int  # of the machine now
    kept_index: int  # committed and on this disk, so it never decreases; 0 if not synced
    # No client of the node hears of other clients' commands, so it may learn of commits later.
    patient: bool = False
    # The sender's monotonic time at this heartbeat; 0 from a release that does not tell it.
    sent_us: int = 0
    # The last `sent_us` of the receiver on this link, which it ages by itself; 0 for none. A node
    # that hears its own `sent_us` again knows how long ago the sender heard it, at most.
    echo_us: int = 0


# The positions of the flags: compiled code fails on a number where a bool is declared.
_FLAGS: Final = frozenset(
    Heartbeat._fields.index(name) for name in ("leading", "disk_low", "stopping", "patient")
)
# The fields without a default, which release 0.2.0 sends.
HEARTBEAT_FIELDS_MIN: Final = len(Heartbeat._fields) - len(Heartbeat._field_defaults)


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

    `clients` is the number of its commands whose clients wait for the answer. `hint` is the packed
    mapping of tubes into which it puts ready jobs to their number.
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
    if len(frame) - begin > BATCH_MAX_BYTES or size > HINT_MAX_BYTES:
        raise ProtocolError(
            f"a batch of {len(frame) - begin} bytes with a hint of {size}; "
            f"at most {BATCH_MAX_BYTES} and {HINT_MAX_BYTES} are allowed"
        )
    hint = frame[_BATCH.size : begin]
    return term, incarnation, number, bool(first), clients, hint, frame[begin:]


def pack(value: Any) -> bytes:
    """Encode a hint."""
    packed: bytes = _pack(value)
    return packed


def unpack_hint(data: bytes) -> Hint:
    """Decode a hint of a batch."""
    if not data:
        return {}
    hint = _unpack(data)
    if type(hint) is not dict:
        raise ProtocolError("a hint is no mapping")
    for tube, count in hint.items():
        if type(tube) is not bytes or type(count) is not int:
            raise ProtocolError("a hint holds something else than tubes and counts")
    return hint


def encode_all(term: int, incarnation: int, items: list[WaitItem] | list[EndItem]) -> list[bytes]:
    """Encode WAITS or UNWAITS in as many frames as necessary."""
    starts = range(0, len(items), ITEMS_MAX)
    return [encode_items(term, incarnation, items[at : at + ITEMS_MAX]) for at in starts]


def encode_items(term: int, incarnation: int, items: Sequence[tuple[int, ...]]) -> bytes:
    """Encode WAITS, UNWAITS or NONES.

    An item of NONES: (session, request, cluster time until which there was certainly no job).
    """
    return pack((term, incarnation, items))


def decode_items(frame: bytes, width: int) -> tuple[int, int, list[tuple[int, ...]]]:
    """Decode WAITS, NONES (width 3) or UNWAITS (width 2): (term, incarnation, items)."""
    value = _unpack(frame)
    if type(value) is not tuple or len(value) != 3 or type(value[2]) is not tuple:
        raise ProtocolError("a list of waits has another layout")
    term, incarnation, items = value
    for number in (term, incarnation):
        if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
            raise ProtocolError("a list of waits has another layout")
    for item in items:
        if type(item) is not tuple or len(item) != width:
            raise ProtocolError("a wait has another layout")
        for number in item:
            if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
                raise ProtocolError("a wait holds something that is no number")
    return term, incarnation, list(items)


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Encode a HEARTBEAT."""
    return pack(tuple(heartbeat))


def decode_heartbeat(frame: bytes) -> Heartbeat:
    """Decode a HEARTBEAT; fields that a newer release has added are ignored."""
    value = _unpack(frame)
    if type(value) is not tuple or len(value) < HEARTBEAT_FIELDS_MIN:
        raise ProtocolError("a heartbeat has another layout")
    known = value[: len(Heartbeat._fields)]
    for place, item in enumerate(known):
        if type(item) is not (bool if place in _FLAGS else int):
            raise ProtocolError(
                f"{Heartbeat._fields[place]} of a heartbeat is not what it should be"
            )
    return Heartbeat(*known)


def _unpack(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a frame that is no msgpack: {error}") from error
