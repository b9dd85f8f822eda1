"""One segment of the log: its file, the scan of its records, and the verdict on its end.

Belongs here: everything about a single segment. The buffer is in `wal.py`.
"""

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from beanpole.errors import Damaged
from beanpole.storage.files import TEMPORARY, Files, Handle
from beanpole.storage.format import (
    FILE_HEADER_BYTES,
    HEAD,
    MAGIC_SEGMENT,
    PAYLOAD_BYTES_MAX,
    POSITION_MASK,
    PREFIX,
    RECORD_HEADER_BYTES,
    SECTOR_BYTES,
    Identity,
    encode_file_header,
    record_size,
    segment_seed,
)

SUFFIX: Final = ".wal"

# The base that the owner of a log has on record before the first segment exists.
NO_LOG: Final = -1

# at, kind, index, term, payload
Replay = Callable[[int, int, int, int, bytes], None]
# Records, durably at return, that a segment with this base exists.
Note = Callable[[int], None]

# Verdicts on the bytes after the last valid record.
CLEAN: Final = "clean"
TORN: Final = "torn"
DAMAGED: Final = "damaged"


def forget_base(base: int) -> None:
    """Do nothing; the default of `note`, for an owner that does not record its segments."""


class Ending(NamedTuple):
    """The verdict on the bytes after the last valid record of a segment, with its reason."""

    verdict: str
    reason: str


class Segment:
    """One file of the log.

    Attributes:
        base: the position of its first record in the log.
        seed: the initial value of its checksums, and the mark of its records.
        handle: the open file, or None if it was not created yet or not needed since the start.
        filled: the size of the file; the bytes after the records are zeros.
    """

    __slots__ = ("base", "filled", "handle", "header", "path", "seed")

    def __init__(self, directory: str, base: int, identity: Identity) -> None:
        self.base = base
        self.path = os.path.join(directory, segment_name(base))
        self.header = encode_file_header(MAGIC_SEGMENT, identity, base)
        self.seed = segment_seed(self.header)
        self.handle: Handle | None = None
        self.filled = 0

    def offset(self, at: int) -> int:
        """Return the offset in the file of the position `at` of the log."""
        return at - self.base + FILE_HEADER_BYTES

    def create(self, files: Files) -> Handle:
        """Create the file. It gets its final name only when its header is durable."""
        handle = self.handle = files.open(self.path + TEMPORARY, create=True)
        handle.write(0, self.header)
        handle.sync()
        files.rename(self.path + TEMPORARY, self.path)
        files.sync_directory(os.path.dirname(self.path))
        self.filled = FILE_HEADER_BYTES
        return handle

    def opened(self, files: Files) -> Handle:
        """Return the open file."""
        if self.handle is None:
            self.handle = files.open(self.path)
        return self.handle

    def close(self) -> None:
        """Close the file if it is open."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None


def segment_name(base: int) -> str:
    """Return the name of the file; names sort by base position."""
    return f"{base:020d}{SUFFIX}"


def segment_names(files: Files, directory: str) -> list[str]:
    """Return the names of the segments in the order of the log."""
    return [name for name in files.list(directory) if name.endswith(SUFFIX)]


def dump_hint(directory: str) -> str:
    """Return the part of a message that tells an operator how to dump a log."""
    return f"; `beanpoled --dump-wal {directory}` shows it"


class Scan(NamedTuple):
    """The valid records of a segment.

    Attributes:
        offset: the offset of the first byte after them.
        front: the offset up to which all bytes were durable before the last of them was written.
    """

    offset: int
    front: int


def scan_segment(data: bytes, base: int, seed: int, replay: Replay) -> Scan:
    """Call `replay` for each record from the beginning up to the first invalid bytes."""
    offset = front = FILE_HEADER_BYTES
    shift = base - FILE_HEADER_BYTES
    size_max = len(data)
    unpack_prefix, unpack_head = PREFIX.unpack_from, HEAD.unpack_from
    while (body := offset + RECORD_HEADER_BYTES) <= size_max:
        mark, head_check, check = unpack_prefix(data, offset)
        head = data[offset + PREFIX.size : body]
        at = offset + shift
        if mark != seed or crc32c(head, seed ^ (at & POSITION_MASK)) != head_check:
            break
        length, back, kind, index, term = unpack_head(head)
        payload = data[body : body + length]
        if len(payload) != length or crc32c(payload, head_check) != check:
            break
        replay(at, kind, index, term, payload)
        front = offset - back
        offset = body + length
    return Scan(offset, front)


def judge_ending(data: bytes, offset: int, base: int, seed: int) -> Ending:
    """Distinguish a clean end, a torn tail and damage; `offset` is after the last valid record.

    Each record carries the distance back to the start of its batch, and a batch is written only
    when all bytes before it are durable. So a valid record whose batch began after these bytes
    proves that they were durable once. Without such a proof, the bytes may belong to a batch torn
    by a power failure: then sectors of it are missing, and a missing sector is all zeros (or lies
    beyond the end of the file).
    """
    used = len(data.rstrip(b"\0"))
    if used <= offset:
        return Ending(CLEAN, "nothing but zeros")
    later = find_proof(data, offset, base, seed)
    if later:
        return Ending(DAMAGED, f"the record at offset {later} was written after it was synced")
    head_end = offset + RECORD_HEADER_BYTES
    if sector_missing(data, offset, head_end):
        return Ending(TORN, "the head of a record is missing")
    mark, head_check, _ = PREFIX.unpack_from(data, offset)
    head = data[offset + PREFIX.size : head_end]
    at = offset - FILE_HEADER_BYTES + base
    if mark != seed or crc32c(head, seed ^ (at & POSITION_MASK)) != head_check:
        return Ending(DAMAGED, "the head of the record is wrong, and no sector of it is missing")
    length = HEAD.unpack(head)[0]
    if length > PAYLOAD_BYTES_MAX:
        return Ending(DAMAGED, f"a record of {length} bytes")
    if sector_missing(data, offset, head_end + length):
        return Ending(TORN, "a part of a record is missing")
    return Ending(DAMAGED, "the checksum of the record is wrong, and no sector of it is missing")


def find_proof(data: bytes, offset: int, base: int, seed: int) -> int:
    """Return the offset of a valid record written after the bytes at `offset` were durable, or 0.

    Records are found by the segment's mark, so that they are also found after a broken length.
    """
    mark = seed.to_bytes(4, "little")
    found = data.find(mark, offset + 1)
    while found >= 0:
        size = record_size(data, found, found - FILE_HEADER_BYTES + base, seed)
        if size and found - HEAD.unpack_from(data, found + PREFIX.size)[1] > offset:
            return found
        found = data.find(mark, found + (size or 1))
    return 0


def sector_missing(data: bytes, start: int, end: int) -> bool:
    """Return whether a sector of the range was never written: zeros, or beyond the end of the file.

    Of the first sector only the part from `start` on counts: older records are before it.
    """
    if end > len(data):
        return True
    while start < end:
        sector_end = start - start % SECTOR_BYTES + SECTOR_BYTES
        piece = data[start:sector_end]
        if piece.count(0) == len(piece):
            return True
        start = sector_end
    return False


def damaged(path: str, offset: int, reason: str) -> Damaged:
    """Build the error that names the file, the offset and the command that dumps the log."""
    return Damaged(f"{path}: offset {offset}: {reason}{dump_hint(os.path.dirname(path))}")
