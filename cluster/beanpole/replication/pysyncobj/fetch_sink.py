"""Where the chunks of a peer's snapshot go: checked as they come, and written to the disk."""

from beanpole.errors import ProtocolError, UnknownVersion
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from beanpole.storage.snapshots import CHUNK_BYTES_MAX, SnapshotStore, SnapshotWriter


class FetchSink:
    """The sink of a fetch. The header that is received determines index and term."""

    def __init__(self, store: SnapshotStore, index: int, birth: bytes) -> None:
        self.header: SnapshotHeader | None = None
        self.writer: SnapshotWriter | None = None
        self.failure: str | None = None
        self.received = 0  # chunks
        self.complete = False  # whether the last chunk was received
        self._store = store
        self._index = index
        self._birth = birth

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that are not on the disk yet."""
        return 0 if self.writer is None else self.writer.backlog_bytes

    @property
    def error(self) -> OSError | None:
        """The error of a write to the disk, if any."""
        return None if self.writer is None else self.writer.error

    def write(self, chunk: bytes) -> None:
        """Write a chunk; after a failure, chunks are dropped."""
        if self.failure is not None:
            return
        if not 0 < len(chunk) <= CHUNK_BYTES_MAX:
            self.failure = f"a chunk of {len(chunk)} bytes"
            return
        if self.writer is None:
            try:
                header = SnapshotHeader.decode(chunk)
            except (ProtocolError, UnknownVersion) as error:
                self.failure = str(error)
                return
            if header.last < self._index:
                self.failure = f"asked for {self._index}, got {header.last}"
                return
            if header.birth != self._birth:
                self.failure = "it is of another life of the cluster (birth id)"
                return
            self.header = header
            self.writer = self._store.create(header.last, header.term)
        self.writer.write(chunk)
        self.received += 1

    def abort(self) -> None:
        """Accept no more chunks and remove the written ones."""
        self.failure = self.failure or "given up"
        if self.writer is not None:
            self.writer.abort()
