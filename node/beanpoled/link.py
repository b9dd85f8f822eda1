"""The link between two nodes, without I/O: hello, authentication, frames with length and CRC.

Peers are identified by their hello, never by their address, so proxies may stand between them.
Feed received bytes to `receive`; send what it and the other methods return.

    frame  = length u32 | crc32c u32 | kind u8 | payload      (length of the payload; CRC over both
                                                               kind and payload; little endian)
    HELLO  = msgpack of `Hello`, first in each direction
    AUTH   = HMAC-SHA256(secret, own HELLO | other's HELLO); both hold a fresh nonce
    REFUSE = text: why the link ends
"""

import hashlib
import hmac
from struct import Struct
from typing import Final, NamedTuple

import msgpack
from crc32c import crc32c

from beanpole.constants import BATCH_MAX_BYTES
from beanpole.errors import ProtocolError

# Raised with every change of frames that an older node cannot read.
LINK_VERSION: Final = 2

HELLO: Final = 128
AUTH: Final = 129
REFUSE: Final = 130

# The largest message is an append with one batch of the largest size, or several smaller entries
# up to 8 MiB.
FRAME_MAX_BYTES: Final = 2 * 8 * 1024 * 1024
assert FRAME_MAX_BYTES > 2 * BATCH_MAX_BYTES
# Before a peer is known it may send only this much.
HELLO_MAX_BYTES: Final = 4096
NONCE_BYTES: Final = 16
# Longer than every reason that a node gives; the text goes into the other's log.
REASON_MAX: Final = 500

_HEAD: Final = Struct("<IIB")  # payload bytes, CRC-32C of kind and payload, kind
_HEAD_BYTES: Final = _HEAD.size
_pack_head: Final = _HEAD.pack
_unpack_head: Final = _HEAD.unpack_from
_CRC_OF_KIND: Final = tuple(crc32c(bytes((kind,))) for kind in range(256))
_HELLO_SHAPE: Final = (int, str, str, str, bytes, bool, bytes)


class Hello(NamedTuple):
    """How a node introduces itself."""

    version: int
    cluster: str
    node: str
    config_hash: str
    disk_id: bytes
    rejoining: bool  # its disk was begun with --rejoin, lately or long ago
    nonce: bytes


# A frame that was received whole: its kind and its payload. No class: there are several in a turn.
Frame = tuple[int, bytes]


def encode_frame(kind: int, payload: bytes) -> bytes:
    """Give a payload its head."""
    return _pack_head(len(payload), crc32c(payload, _CRC_OF_KIND[kind]), kind) + payload


class FrameReader:
    """Cuts a stream of bytes into frames. `feed` it, then call `next` until there is none.

    One at a time: the frame that introduces a peer is followed by others at once, and it decides
    how long those may be (`size_max`).
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0  # what lies before it was returned
        self.size_max = HELLO_MAX_BYTES

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self._buffer += data

    def next(self) -> Frame | None:
        """Return the next frame that is complete; None if there is none yet.

        Raises:
            ProtocolError: too long, or the CRC does not match. The link must end.
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


class Refused(ProtocolError):
    """An authentic member of another mind: another member list, another disk, another cluster."""


class Handshake:
    """One side of the introduction. `done` is the peer's hello once it has proved itself."""

    def __init__(self, own: Hello, secret: bytes, expected: str | None) -> None:
        self._own = own
        self._secret = secret
        self._expected = expected  # whom we dialed
        self._own_bytes: bytes = msgpack.packb(tuple(own))
        self._other_bytes = b""
        self.done: Hello | None = None

    def start(self) -> bytes:
        """What to send first."""
        return encode_frame(HELLO, self._own_bytes)

    def receive(self, frame: Frame) -> bytes:
        """Take one frame; returns what to send now. Afterwards look at `done`.

        Raises:
            Refused: the peer is authentic, but we do not belong together.
            ProtocolError: the peer is nobody that we talk to.
        """
        kind, payload = frame
        if not self._other_bytes:
            if kind != HELLO:
                raise ProtocolError("the first frame is no hello")
            self._other_bytes = payload
            return encode_frame(AUTH, self._proof(self._own_bytes, payload))
        if kind != AUTH:
            raise ProtocolError("the second frame is no authentication")
        other = _decode_hello(self._other_bytes)
        if not hmac.compare_digest(payload, self._proof(self._other_bytes, self._own_bytes)):
            raise ProtocolError(f"{other.node} has another peer_secret")
        self._compare(other)
        self.done = other
        return b""

    def refusal(self, frame: Frame) -> str:
        """Why the peer ends the link, fit for a line of the log.

        Raises:
            ProtocolError: the peer has not proved who it is; a stranger's refusal means nothing.
        """
        if self.done is None:
            raise ProtocolError("a refusal of one that has not proved who it is")
        text = frame[1][:REASON_MAX].decode(errors="replace")
        return "".join(letter if letter.isprintable() else "?" for letter in text)

    def _proof(self, prover: bytes, other: bytes) -> bytes:
        return hmac.new(self._secret, prover + other, hashlib.sha256).digest()

    def _compare(self, other: Hello) -> None:
        own = self._own
        for field, mine, its in (
            ("link version", own.version, other.version),
            ("cluster", own.cluster, other.cluster),
            ("member list or durability (config hash)", own.config_hash, other.config_hash),
        ):
            if mine != its:
                raise Refused(
                    f"the {field} differs: {mine} at {own.node}, {its} at {other.node}; give all "
                    "nodes the same cluster, members and durability"
                )
        if other.node == own.node:
            raise Refused(f"two nodes call themselves {own.node}; each needs its own node_id")
        if self._expected is not None and other.node != self._expected:
            raise Refused(f"dialed {self._expected}, but {other.node} answers there")


def _decode_hello(payload: bytes) -> Hello:
    try:
        values = msgpack.unpackb(payload, use_list=False)
        hello = Hello(*values)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError("the hello cannot be read") from error
    if tuple(map(type, hello)) != _HELLO_SHAPE or len(hello.nonce) != NONCE_BYTES:
        raise ProtocolError("the hello has another layout")
    return hello
