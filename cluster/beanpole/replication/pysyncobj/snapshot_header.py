"""The first chunk of a snapshot, which belongs to the replica: index, term, birth id."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgpack

from beanpole.errors import Damaged, ProtocolError, UnknownVersion, WrongIdentity
from beanpole.storage.snapshots import SnapshotInfo

HEADER_VERSION: Final = 2


class SnapshotHeader(NamedTuple):
    """The first chunk of every snapshot. `birth` is the birth id of its cluster."""

    last: int
    term: int
    previous_term: int
    birth: bytes = b""

    def encode(self) -> bytes:
        """Return the bytes of the chunk."""
        return msgpack.packb((HEADER_VERSION, *self))

    @classmethod
    def decode(cls, chunk: bytes) -> "SnapshotHeader":
        """Read the chunk.

        Raises:
            ProtocolError: it is not a header.
            UnknownVersion: it is a header of another version.
        """
        try:
            items = msgpack.unpackb(chunk, use_list=False)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ProtocolError("the first chunk of a snapshot is no header") from error
        if type(items) is not tuple or not items or type(items[0]) is not int:
            raise ProtocolError("the first chunk of a snapshot is no header")
        if items[0] != HEADER_VERSION:
            raise UnknownVersion(
                f"a snapshot with a header of version {items[0]}, this program reads "
                f"{HEADER_VERSION}: install the release that wrote it on this node"
            )
        if tuple(map(type, items)) != (int, int, int, int, bytes):
            raise ProtocolError("the first chunk of a snapshot is no header")
        if items[1] < 2 or not 0 <= items[3] <= items[2]:
            raise ProtocolError("the header of a snapshot makes no sense")
        return cls(*items[1:])


def read_header(info: SnapshotInfo, chunks: Iterator[bytes], birth: bytes) -> SnapshotHeader:
    """Consume the first chunk of a snapshot, and check that it belongs to this snapshot.

    Raises:
        Damaged: it is not the header of this snapshot.
        WrongIdentity: it has another birth id.
    """
    try:
        header = SnapshotHeader.decode(next(chunks))
    except (ProtocolError, StopIteration) as error:
        raise Damaged(f"{info.path}: this is no snapshot of the machine") from error
    if (header.last, header.term) != (info.index, info.term):
        raise Damaged(f"{info.path}: the header is of another snapshot")
    if header.birth != birth:
        raise WrongIdentity(
            f"{info.path} is of another life of the cluster (birth id "
            f"{header.birth.hex()[:8]}) than this disk ({birth.hex()[:8]}): restore the "
            "whole data directory, or start on an empty one with --rejoin"
        )
    return header
