"""Snapshots: one file each, complete or absent, made of opaque chunks.

Belongs here: writing a snapshot in the background, finding the newest, reading it back with
verification. Only the owner interprets the chunks.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from beanpole.errors import Damaged
from beanpole.storage.files import LANE_BULK, TEMPORARY, Done, Files, Handle
from beanpole.storage.format import (
    FILE_HEADER_BYTES,
    MAGIC_SNAPSHOT,
    Identity,
    check_identity,
    decode_file_header,
    encode_file_header,
)

SUFFIX: Final = ".snapshot"

# The largest write to the disk, which a reader holds in memory at once.
CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024
# Dirty pages are synced continuously: the log shares the disk, and each of its syncs would wait for
# all of them.
SYNC_STEP_BYTES: Final = 1024 * 1024

# length of the chunk, checksum over all chunks up to and including this one
_CHUNK: Final = Struct("<II")
# END_MARK, number of chunks, bytes of all chunks, checksum over all chunks, checksum of the footer
_FOOTER_BODY: Final = Struct("<IQQI")
_CHECK: Final = Struct("<I")
_END_MARK: Final = 0xFFFFFFFF
_FOOTER_BYTES: Final = _FOOTER_BODY.size + _CHECK.size


class SnapshotInfo(NamedTuple):
    """A finished snapshot of all entries up to `index` (of `term`). `bytes` is the file's size."""

    # The field hides the method `index` of tuples, which is not needed here.
    index: int  # type: ignore[assignment]
    term: int
    bytes: int
    path: str


class SnapshotStore:
    """The snapshots of one directory. Only the newest one counts."""

    def __init__(self, files: Files, directory: str, identity: Identity) -> None:
        """Remove the unfinished files of a dead process, and check the owner of the snapshots.

        Raises:
            Damaged: a file is not a snapshot.
            WrongIdentity: a snapshot of another cluster or node.
            UnknownVersion: a snapshot of another version.
            OSError: the disk refuses.
        """
        self._files = files
        self._directory = directory
        self._identity = identity
        self._newest: SnapshotInfo | None = None
        self._writing = 0
        self._readers: Counter[str] = Counter()  # by the path of the file
        files.make_directory(directory)
        for name in files.list(directory):
            path = os.path.join(directory, name)
            if name.endswith(TEMPORARY):
                files.remove(path)
            elif name.endswith(SUFFIX):
                self._newest = _inspect(files, path, identity)
        # The rename of the newest may not have reached the disk before the process died.
        files.sync_directory(directory)

    def latest(self) -> SnapshotInfo | None:
        """Return the newest finished snapshot. Its chunks are verified when they are read."""
        return self._newest

    def read(self, info: SnapshotInfo) -> Iterator[bytes]:
        """Yield the chunks as they were written, each only after its checksum was verified.

        The snapshot may be replaced during this: an iterator that has begun continues with its own
        file.

        Raises:
            Damaged: a checksum is wrong, or the end is missing.
            OSError: the disk refuses.
        """
        # The reader is counted before it opens the file: see `_remove`. Readers may end in other
        # threads, but begin in the loop's thread; the interpreter's lock keeps the count correct.
        self._readers[info.path] += 1
        try:
            yield from self._read(info.path)
        finally:
            self._readers[info.path] -= 1

    def _read(self, path: str) -> Iterator[bytes]:
        handle = self._files.open(path)
        try:
            header = decode_file_header(handle.read(0, FILE_HEADER_BYTES), MAGIC_SNAPSHOT, path)
            check_identity(header.identity, self._identity, path)
            yield from _chunks(handle, path)
        finally:
            handle.close()

    def create(self, index: int, term: int) -> "SnapshotWriter":
        """Begin a snapshot; it counts only after `finish`."""
        self._writing += 1
        path = os.path.join(self._directory, f"{index:020d}-{term:020d}{SUFFIX}")
        # The name is numbered, because an aborted writer of the same index may still be closing its
        # file.
        temporary = f"{path}.{self._writing}{TEMPORARY}"
        header = encode_file_header(MAGIC_SNAPSHOT, self._identity, index, term)
        return SnapshotWriter(self._files, temporary, path, header, self._publish)

    def _publish(self, path: str, size: int, index: int, term: int) -> None:
        """Register a durable snapshot, and remove all snapshots but the newest.

        This snapshot itself is removed if a newer one has overtaken it.
        """
        if self._newest is None or (self._newest.index, self._newest.term) <= (index, term):
            self._newest = SnapshotInfo(index, term, size, path)
        # A snapshot that was overtaken may be gone already: publishing the newer one removes every
        # older one that exists at that time.
        keep = os.path.basename(self._newest.path)

        def remove_older() -> None:
            for name in self._files.list(self._directory):
                path = os.path.join(self._directory, name)
                if name.endswith(SUFFIX + TEMPORARY):
                    self._files.remove_slowly(path)  # an earlier removal failed
                elif name.endswith(SUFFIX) and name < keep:
                    self._remove(path)

        # A leftover file only takes space, and the next snapshot tries to remove it again.
        self._files.submit(remove_older, lambda _: None, LANE_BULK)

    def _remove(self, path: str) -> None:
        """Remove a snapshot that was replaced. Readers may be in other threads, and may begin now.

        If a reader was counted before the rename, the file is only unlinked and the reader
        continues. A later reader does not find the file.
        """
        doomed = f"{path}{TEMPORARY}"
        try:
            self._files.rename(path, doomed)
        except OSError:  # a full disk may have no room for a longer name
            self._files.remove(path)
            return
        if self._readers[path]:
            self._files.remove(doomed)
            return
        # After a power failure a start must not find a truncated file under the old name.
        self._files.sync_directory(self._directory)
        self._files.remove_slowly(doomed)


class SnapshotWriter:
    """A snapshot in progress, written outside the loop.

    Attributes:
        backlog_bytes: the bytes given to `write` that are not on the disk yet; the producer waits
            while this is large.
        error: the first failure; later chunks are dropped, and `finish` reports it.
    """

    def __init__(
        self,
        files: Files,
        temporary: str,
        path: str,
        header: bytes,
        publish: Callable[[str, int, int, int], None],
    ) -> None:
        """Write nothing yet; use `SnapshotStore.create`."""
        self.backlog_bytes = 0
        self.error: OSError | None = None
        self._files = files
        self._temporary = temporary
        self._path = path
        self._header = header
        self._publish = publish
        self._ended = False
        # Only submitted work uses the fields below, one unit after the other.
        self._handle: Handle | None = None
        self._broken = False
        self._offset = 0
        self._synced = 0
        self._count = 0
        self._check = 0
        self._bytes = 0

    def write(self, chunk: bytes) -> None:
        """Add a chunk of 1 byte to CHUNK_BYTES_MAX."""
        assert not self._ended, "write() after finish() or abort()"
        size = len(chunk)
        assert 0 < size <= CHUNK_BYTES_MAX, f"a chunk of {size} bytes"
        self.backlog_bytes += size

        def done(error: OSError | None) -> None:
            self.backlog_bytes -= size
            self._note(error)

        self._files.submit(lambda: self._guarded(lambda: self._add(chunk)), done, LANE_BULK)

    def _note(self, error: OSError | None) -> None:
        if error is not None and self.error is None:
            self.error = error.with_traceback(None)  # its frames refer to this writer

    def finish(self, done: Done) -> None:
        """Make the snapshot durable and publish it, then call `done(None)`, or `done(error)`."""
        assert not self._ended, "finish() after finish() or abort()"
        self._ended = True

        def finished(error: OSError | None) -> None:
            self._note(error)
            if self.error is None:
                header = decode_file_header(self._header, MAGIC_SNAPSHOT, self._path)
                self._publish(self._path, self._offset, header.first, header.second)
            else:
                self._files.submit(self._discard, lambda _: None, LANE_BULK)
            done(self.error)

        self._files.submit(lambda: self._guarded(self._end), finished, LANE_BULK)

    def abort(self) -> None:
        """Abort the snapshot and remove its file. Allowed at any time, and idempotent."""
        if not self._ended:
            self._ended = True
            self._files.submit(self._discard, lambda _: None, LANE_BULK)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do `work`, but nothing after the first failure, which makes the file useless."""
        if self._broken:
            return
        try:
            work()
        except OSError:
            self._broken = True
            raise

    def _opened(self) -> Handle:
        if self._handle is None:
            self._handle = self._files.open(self._temporary, create=True)
            self._handle.write(0, self._header)
            self._offset = len(self._header)
        return self._handle

    def _add(self, chunk: bytes) -> None:
        handle = self._opened()
        self._check = crc32c(chunk, self._check)
        handle.write(self._offset, _CHUNK.pack(len(chunk), self._check) + chunk)
        self._offset += _CHUNK.size + len(chunk)
        self._count += 1
        self._bytes += len(chunk)
        if self._offset - self._synced >= SYNC_STEP_BYTES:
            handle.sync()
            self._synced = self._offset

    def _end(self) -> None:
        handle = self._opened()
        body = _FOOTER_BODY.pack(_END_MARK, self._count, self._bytes, self._check)
        handle.write(self._offset, body + _CHECK.pack(crc32c(body)))
        self._offset += _FOOTER_BYTES
        handle.sync()
        handle.close()
        self._files.rename(self._temporary, self._path)
        self._files.sync_directory(os.path.dirname(self._path))

    def _discard(self) -> None:
        if self._handle is not None:
            self._handle.close()
        if self._files.exists(self._temporary):
            self._files.remove_slowly(self._temporary)


def _inspect(files: Files, path: str, identity: Identity) -> SnapshotInfo:
    """Read the header of a finished snapshot."""
    handle = files.open(path)
    try:
        header = decode_file_header(handle.read(0, FILE_HEADER_BYTES), MAGIC_SNAPSHOT, path)
        check_identity(header.identity, identity, path)
        return SnapshotInfo(header.first, header.second, handle.size(), path)
    finally:
        handle.close()


def _chunks(handle: Handle, path: str) -> Iterator[bytes]:
    """Yield the verified chunks after the header, up to a valid footer."""
    offset, count, total, check = FILE_HEADER_BYTES, 0, 0, 0
    while True:
        head = handle.read(offset, _CHUNK.size)
        if len(head) < _CHUNK.size:
            raise Damaged(f"{path}: offset {offset}: the snapshot has no end")
        size, expected = _CHUNK.unpack(head)
        if size == _END_MARK:
            break
        chunk = handle.read(offset + _CHUNK.size, size) if size <= CHUNK_BYTES_MAX else b""
        check = crc32c(chunk, check)
        if not size or len(chunk) != size or check != expected:
            raise Damaged(f"{path}: offset {offset}: the checksum of a chunk is wrong")
        yield chunk
        offset += _CHUNK.size + size
        count += 1
        total += size
    footer = handle.read(offset, _FOOTER_BYTES)
    body = _FOOTER_BODY.pack(_END_MARK, count, total, check)
    if footer != body + _CHECK.pack(crc32c(body)):
        raise Damaged(f"{path}: offset {offset}: the end of the snapshot does not fit its chunks")
