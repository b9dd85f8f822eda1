"""The link between two nodes, without I/O: hello, authentication, frames with length and CRC.

Peers are identified by their hello, never by their address, so proxies may be used between them.
`FrameReader` splits the received bytes into frames; the first ones go to `Handshake.receive`, whose
answers are sent. The layouts of the frames behind them are in `frames`.

    frame  = length u32 | crc32c u32 | kind u8 | payload      (length of the payload; CRC over both
                                                               kind and payload; little endian)
    HELLO  = msgpack list of `Hello`, first in each direction; a receiver ignores fields behind
             those that it knows
    AUTH   = `trust.proofs.link_proof` over the side that dialed or answered, its HELLO and the
             other's; both hold a fresh nonce. Up to version 3 (release 0.3.0): HMAC-SHA256(secret,
             own HELLO | other's HELLO), which does not say which side it is from
    REFUSE = cause u8 | text: why the link ends

Each side announces the frame versions it knows; the highest common version is used.
"""

import hashlib
import hmac
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

import msgpack
from crc32c import crc32c

from beanpole.constants import BATCH_MAX_BYTES
from beanpole.errors import ProtocolError
from beanpole.weights import ENTRY_MAX_BYTES, HINT_MAX_BYTES
from beanpoled.trust.proofs import ANSWERER, DIALER, NONCE_BYTES, link_proof

# The versions of frames that this program reads and writes. The highest is raised with every change
# that an older node cannot read; the lowest is raised when no running release needs it any more.
VERSION_MIN: Final = 3
VERSION_MAX: Final = 4
# From this version on a proof names its side; older proofs could be reflected.
DIRECTED_SINCE: Final = 4

HELLO: Final = 128
AUTH: Final = 129
REFUSE: Final = 130

# Causes of a refusal: no common version, another configuration, a wrong disk, or a disk that has
# lost data of its node.
VERSIONS: Final = 0
MEMBERS: Final = 1
DISK: Final = 2
OLDER: Final = 3

# The largest message is an append with one batch of the largest size, or several smaller entries
# up to 8 MiB.
FRAME_MAX_BYTES: Final = 2 * 8 * 1024 * 1024
assert FRAME_MAX_BYTES > 8 * 1024 * 1024 + ENTRY_MAX_BYTES
assert FRAME_MAX_BYTES > BATCH_MAX_BYTES + HINT_MAX_BYTES + 1024
# The limit of a frame from a peer that is not identified yet.
HELLO_MAX_BYTES: Final = 4096
# More than the length of every reason that a node sends; the text goes into the other node's log.
REASON_MAX: Final = 500

_HEAD: Final = Struct("<IIB")  # payload bytes, CRC-32C of kind and payload, kind
_HEAD_BYTES: Final = _HEAD.size
_pack_head: Final = _HEAD.pack
_unpack_head: Final = _HEAD.unpack_from
_CRC_OF_KIND: Final = tuple(crc32c(bytes((kind,))) for kind in range(256))
# Nodes of other versions send other fields behind these two, and not always the same ones.
_VERSION_FIELDS: Final = 2
_FOUNDERS_MAX: Final = 64


class Hello(NamedTuple):
    """The introduction of a node. Fields are added at the end and never change their meaning.

    Attributes:
        version_min: the lowest version of frames that it knows.
        version_max: the highest version of frames that it knows.
        cluster: name of the cluster.
        node: its name.
        config_hash: of the settings that must be the same at all members.
        nonce: fresh bytes for the proof.
        disk_id: of its disk; like the following fields, from the field of its `identity` of the
            same name.
        last_index: the last index of its log.
    """

    version_min: int
    version_max: int
    cluster: str
    node: str
    config_hash: str
    nonce: bytes
    disk_id: bytes
    birth: bytes
    standing: str
    replacement: bool
    incarnation: int
    last_index: int
    founders: tuple[tuple[str, bytes], ...]


_HELLO_SHAPE: Final = (
    int, int, str, str, str, bytes, bytes, bytes, str, bool, int, int, tuple,
)  # fmt: skip
assert len(_HELLO_SHAPE) == len(Hello._fields)


# A complete frame: its kind and its payload. Not a class, because there are several in a turn.
Frame = tuple[int, bytes]


def encode_frame(kind: int, payload: bytes) -> bytes:
    """Prepend the header to a payload."""
    return _pack_head(len(payload), crc32c(payload, _CRC_OF_KIND[kind]), kind) + payload


class FrameReader:
    """Split a stream of bytes into frames. Call `feed`, then `next` until it returns None.

    Frames are returned one at a time: the first frame identifies the peer, and so decides the size
    limit (`size_max`) of the frames that follow in the same bytes.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0  # bytes before it were returned
        self.size_max = HELLO_MAX_BYTES

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next(self) -> Frame | None:
        """Return the next complete frame; None if there is none yet.

        Raises:
            ProtocolError: the frame is too long, or its CRC does not match. The link must end.
        """
        buffer = self._buffer
        position = self._position
        begin = position + _HEAD_BYTES
        if begin <= len(buffer):
            size, crc, kind = _unpack_head(buffer, position)
            if size > self.size_max:
                raise ProtocolError(f"a frame of {size} bytes; {self.size_max} are allowed")
            end = begin + size
            if end <= len(buffer):
                payload = bytes(buffer[begin:end])
                if crc32c(payload, _CRC_OF_KIND[kind]) != crc:
                    raise ProtocolError(f"a frame of kind {kind} with a wrong checksum")
                self._position = end
                return kind, payload
        del buffer[:position]
        self._position = 0
        return None


class LinkRefused(ProtocolError):
    """An authentic peer that does not match: another program, member list, disk or cluster."""

    def __init__(self, cause: int, reason: str, node: str) -> None:
        super().__init__(reason)
        self.cause = cause
        self.node = node


class Handshake:
    """One side of the introduction. `done` is the peer's hello once it has proved itself.

    Attributes:
        own: this side's hello.
        version: of the frames that follow, once `done`.
        refusal_name: why the peer's proof was refused, as an identifier for programs; empty if it
            was not.
    """

    def __init__(
        self,
        own: Hello,
        secret: bytes,
        expected: str | None,
        takes_old: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begin.

        Args:
            own: this side's hello.
            secret: the shared secret; empty for none.
            expected: the member that was dialed; None at the side that answers.
            takes_old: whether the proof of versions before DIRECTED_SINCE is accepted.
        """
        self.own = own
        self.version = 0
        self.refusal_name = ""
        self._takes_old = takes_old
        self._secret = secret
        self._expected = expected  # the member that was dialed, if any
        self._own_bytes: bytes = msgpack.packb(tuple(own))
        self._other_bytes = b""
        self.done: Hello | None = None

    def start(self) -> bytes:
        """Return the bytes to send first."""
        return encode_frame(HELLO, self._own_bytes)

    def receive(self, frame: Frame) -> bytes:
        """Process one frame, and return the bytes to send now. Check `done` afterwards.

        Raises:
            LinkRefused: the peer is authentic, but does not belong to this cluster.
            ProtocolError: the peer is no node that this one talks to.
        """
        kind, payload = frame
        if not self._other_bytes:
            if kind != HELLO:
                raise ProtocolError("the first frame is no hello")
            self._other_bytes = payload
            values = _decode_fields(payload)
            if _name_in(values) == self.own.node and payload == self._own_bytes:
                self.refusal_name = "reflected"
                raise ProtocolError("the peer sends this node's own hello back: it is reflected")
            version = min(self.own.version_max, values[1])
            return encode_frame(AUTH, self._proof(version, self._own_bytes, payload, True))
        if kind != AUTH:
            raise ProtocolError("the second frame is no authentication")
        values = _decode_fields(self._other_bytes)
        self._authenticate(values, payload)
        self.version = self._common_version(values)
        other = _decode_hello(values)
        self._compare(other)
        self.done = other
        return b""

    @property
    def is_old(self) -> bool:
        """Whether the peer proved itself as releases up to 0.3.0 do."""
        return self.done is not None and self.version < DIRECTED_SINCE

    def _authenticate(self, values: tuple[Any, ...], given: bytes) -> None:
        """Verify the peer's proof; raise ProtocolError if it is wrong or no longer accepted."""
        version = min(self.own.version_max, values[1])
        own, other = self._own_bytes, self._other_bytes
        if not hmac.compare_digest(given, self._proof(version, other, own, False)):
            if hmac.compare_digest(given, self._proof(version, own, other, True)):
                self.refusal_name = "reflected"
                raise ProtocolError("the peer sends this node's own proof back: it is reflected")
            self.refusal_name = "wrong_proof"
            raise ProtocolError(
                f"{_name_in(values)} has another peer_secret, or its proof is of another link"
            )
        if version < DIRECTED_SINCE and self._secret and not self._takes_old():
            self.refusal_name = "old_proof"
            node = _name_in(values)
            # The older program logs the reason only if it is sent to it.
            raise LinkRefused(
                VERSIONS,
                f"{node} proves its peer_secret as releases up to 0.3.0 do, which {self.own.node} "
                "does not take (peer_old_proofs): install the newer program there",
                node,
            )

    def refusal(self, frame: Frame) -> tuple[int, str]:
        """Decode the peer's refusal: the cause, and a text that is fit for one line of the log.

        Raises:
            ProtocolError: the peer has not proved its identity; a stranger's refusal means nothing.
        """
        payload = frame[1]
        if self.done is None or not payload:
            raise ProtocolError("a refusal of one that has not proved who it is")
        text = payload[1 : 1 + REASON_MAX].decode(errors="replace")
        return payload[0], "".join(letter if letter.isprintable() else "?" for letter in text)

    def _proof(self, version: int, prover: bytes, other: bytes, is_own: bool) -> bytes:
        """The proof of one of the two sides."""
        if version < DIRECTED_SINCE:
            return hmac.new(self._secret, prover + other, hashlib.sha256).digest()
        has_dialed = (self._expected is not None) == is_own
        return link_proof(self._secret, DIALER if has_dialed else ANSWERER, prover, other)

    def _common_version(self, values: tuple[Any, ...]) -> int:
        own, low, high = self.own, values[0], values[1]
        version: int = min(own.version_max, high)
        if version < max(own.version_min, low):
            node = _name_in(values)
            raise LinkRefused(
                VERSIONS,
                f"{own.node} knows the link versions {own.version_min} to {own.version_max}, "
                f"{node} knows {low} to {high}: install the newer program on the older node",
                node,
            )
        return version

    def _compare(self, other: Hello) -> None:
        own = self.own
        for field, mine, its in (
            ("cluster", own.cluster, other.cluster),
            ("member list or durability (config hash)", own.config_hash, other.config_hash),
        ):
            if mine != its:
                raise LinkRefused(
                    MEMBERS,
                    f"the {field} differs: {mine} at {own.node}, {its} at {other.node}; give all "
                    "nodes the same cluster, members and durability",
                    other.node,
                )
        if other.node == own.node:
            words = f"two nodes call themselves {own.node}; each needs its own node_id"
            raise LinkRefused(MEMBERS, words, self._expected or other.node)
        if self._expected is not None and other.node != self._expected:
            words = f"dialed {self._expected}, but {other.node} answers there"
            raise LinkRefused(MEMBERS, words, self._expected)


def encode_refusal(cause: int, reason: str) -> bytes:
    """Encode a REFUSE."""
    return encode_frame(REFUSE, bytes((cause,)) + reason.encode())


def _decode_fields(payload: bytes) -> tuple[Any, ...]:
    """Decode a hello of any version: at least the versions of its node."""
    try:
        values = msgpack.unpackb(payload, use_list=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError("the hello cannot be read") from error
    if type(values) is not tuple or tuple(map(type, values[:_VERSION_FIELDS])) != (int, int):
        raise ProtocolError("the hello has another layout")
    return values


def _decode_hello(values: tuple[Any, ...]) -> Hello:
    """Decode the fields of a hello that are known here."""
    values = values[: len(_HELLO_SHAPE)]
    if tuple(map(type, values)) != _HELLO_SHAPE:
        raise ProtocolError("the hello has another layout")
    # The types are checked before a Hello is built, because compiled code enforces its field types.
    founders: tuple[Any, ...] = values[Hello._fields.index("founders")]
    if len(founders) > _FOUNDERS_MAX:
        raise ProtocolError("the hello has another layout")
    for founder in founders:
        if type(founder) is not tuple or tuple(map(type, founder)) != (str, bytes):
            raise ProtocolError("the hello has another layout")
    hello = Hello(*values)
    if len(hello.nonce) != NONCE_BYTES:
        raise ProtocolError("the hello has another layout")
    return hello


def _name_in(values: tuple[Any, ...]) -> str:
    """Return the name in a hello of any version; its position has never changed."""
    name = values[3] if len(values) > 3 else ""
    return name if type(name) is str and name.isprintable() and name else "an unknown node"
