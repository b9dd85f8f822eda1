"""The file formats: the header that all files share, and the records of the log.

Pure functions over bytes, without I/O. docs/storage.md has the byte diagrams and the rationale.
"""

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from beanpole.errors import Damaged, UnknownVersion, WrongIdentity

# The version of every file; 1 was used before release 0.2.0. A release that changes a file writes
# the older version until the whole cluster supports the newer one (docs/adr/0018).
VERSION: Final = 2
MAGIC_SEGMENT: Final = b"BeanWAL\n"
MAGIC_SNAPSHOT: Final = b"BeanSNP\n"
MAGIC_RECORD: Final = b"BeanREC\n"
MAGIC_EVENTS: Final = b"BeanEVT\n"

# The unit that a disk writes atomically. Larger units (4 KiB) are multiples of it.
SECTOR_BYTES: Final = 512
# One sector, so that a header is never torn, and so that records begin at a sector boundary.
FILE_HEADER_BYTES: Final = SECTOR_BYTES
# Two names of this size fit into the header beside the numbers.
IDENTITY_BYTES_MAX: Final = 200

# mark, checksum of the head, checksum of head and payload
PREFIX: Final = Struct("<III")
# length of the payload, bytes back to the batch's start, kind, index, term
HEAD: Final = Struct("<IIBQQ")
RECORD_HEADER_BYTES: Final = PREFIX.size + HEAD.size
# Far above the largest entry, far below the length that a flipped bit could produce.
PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
POSITION_MASK: Final = 0xFFFFFFFF

_FIXED: Final = Struct("<8sBQQBB")
_CHECK: Final = Struct("<I")


class Identity(NamedTuple):
    """The owner of a file: no file of another cluster or node is ever read or written."""

    cluster: str
    node: str


class FileHeader(NamedTuple):
    """The first sector of every file; the kind of file defines `first` and `second`."""

    identity: Identity
    first: int
    second: int


def encode_file_header(magic: bytes, identity: Identity, first: int, second: int = 0) -> bytes:
    """Build the first sector of a file."""
    cluster, node = identity.cluster.encode(), identity.node.encode()
    assert 0 < len(cluster) <= IDENTITY_BYTES_MAX and 0 < len(node) <= IDENTITY_BYTES_MAX
    fixed = _FIXED.pack(magic, VERSION, first, second, len(cluster), len(node))
    body = (fixed + cluster + node).ljust(FILE_HEADER_BYTES - _CHECK.size, b"\0")
    return body + _CHECK.pack(crc32c(body))


def decode_file_header(data: bytes, magic: bytes, path: str, hint: str = "") -> FileHeader:
    """Read the first sector of a file.

    Args:
        data: the beginning of the file, or all of it.
        magic: the expected kind of file.
        path: the name of the file, for the message.
        hint: the remedy, for the message.

    Raises:
        Damaged: not a header of this kind of file, or its checksum is wrong.
        UnknownVersion: a newer or older program wrote the file.
    """
    if len(data) < FILE_HEADER_BYTES or data[: len(magic)] != magic:
        raise Damaged(f"{path}: offset 0: this is not the beginning of such a file{hint}")
    # The version is at the same offset in every version, so it is checked before the checksum.
    if data[len(magic)] != VERSION:
        raise UnknownVersion(_version_words(path, data[len(magic)]))
    body = data[: FILE_HEADER_BYTES - _CHECK.size]
    (check,) = _CHECK.unpack_from(data, len(body))
    if crc32c(body) != check:
        raise Damaged(f"{path}: offset 0: the checksum of the header is wrong{hint}")
    _, _, first, second, cluster_size, node_size = _FIXED.unpack_from(data)
    names = data[_FIXED.size : _FIXED.size + cluster_size + node_size]
    try:
        cluster, node = names[:cluster_size].decode(), names[cluster_size:].decode()
    except UnicodeDecodeError as error:
        raise Damaged(f"{path}: offset 0: the names in the header are no text{hint}") from error
    if not (0 < cluster_size <= IDENTITY_BYTES_MAX and 0 < node_size <= IDENTITY_BYTES_MAX):
        raise Damaged(f"{path}: offset 0: the names in the header are too long or empty{hint}")
    return FileHeader(Identity(cluster, node), first, second)


def _version_words(path: str, version: int) -> str:
    if version < VERSION:
        return (
            f"{path} was written by a program before release 0.2.0 (file version {version}, this "
            f"program reads {VERSION}): finish its jobs with that program, or move the whole data "
            "directory away and begin with an empty one"
        )
    return (
        f"{path} has file version {version}, this program reads {VERSION}: upgrade beanpoled on "
        "this node to the release that wrote it"
    )


def check_identity(owner: Identity, identity: Identity, path: str) -> None:
    """Reject a file of another cluster or node.

    Raises:
        WrongIdentity: the owner is another one.
    """
    if owner != identity:
        raise WrongIdentity(
            f"{path} belongs to node {owner.node} of cluster {owner.cluster}, "
            f"this is node {identity.node} of cluster {identity.cluster}"
        )


def segment_seed(header: bytes) -> int:
    """Return the initial value of every checksum of a segment, which also marks its records.

    It is never 0. Segments differ in their base position, so a record of one segment is never
    accepted in another.
    """
    return crc32c(header[:FILE_HEADER_BYTES], 1) or 1


def record_size(data: bytes, offset: int, at: int, seed: int) -> int:
    """Return the size of the valid record at `offset`, or 0 if there is none.

    Args:
        data: the segment from its first byte.
        offset: the offset at which the record should begin.
        at: the position in the log of this offset.
        seed: the seed of the segment.
    """
    body = offset + RECORD_HEADER_BYTES
    if body > len(data):
        return 0
    mark, head_check, check = PREFIX.unpack_from(data, offset)
    if mark != seed:
        return 0
    head = data[offset + PREFIX.size : body]
    if crc32c(head, seed ^ (at & POSITION_MASK)) != head_check:
        return 0
    end = body + HEAD.unpack(head)[0]
    if end > len(data) or crc32c(memoryview(data)[body:end], head_check) != check:
        return 0
    return int(end - offset)
