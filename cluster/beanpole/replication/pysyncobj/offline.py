"""Read the disk of a stopped replica, and create the disk of a new one from an image.

For tools (`beanpole inspect`, `beanpole recover`), never for a running node. The files are opened
with the code of a node's start, so they are validated in the same way.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from beanpole.replication.consensus import ReplicaConfig
from beanpole.replication.pysyncobj.journal import LogJournal
from beanpole.replication.pysyncobj.messages import OURS
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader, read_header
from beanpole.storage.files import Files
from beanpole.storage.format import Identity
from beanpole.storage.segment import NO_LOG
from beanpole.storage.snapshots import SnapshotInfo, SnapshotStore

# The number of entries that are read back at once.
SLICE_ENTRIES: Final = 256


class Entry(NamedTuple):
    """An entry of the node (not of the library): its index in the log, its term and its bytes."""

    position: int
    term: int
    payload: bytes


class StoppedReplica:
    """The replicated log on one disk.

    Attributes:
        term: the newest term that this member has seen.
        voted_for: the member that it voted for in that term, if any.
        snapshot: the newest snapshot, if any.
        first: the index of the first entry that is kept; 0 if there is none.
        last: the index of the last entry, or of the snapshot if the log does not continue it.
        last_term: the term of that entry.
        log_bytes: the size of the log.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        identity: Identity,
        birth: bytes,
        log_base: int = NO_LOG,
    ) -> None:
        """Read the whole log, and the header of the newest snapshot.

        Args:
            files: a disk that drops all writes (`ReadOnlyFiles`).
            directory: the data directory.
            identity: the cluster and node that own the files.
            birth: the birth id of the cluster, which the snapshot must have.
            log_base: the base of the newest segment that was ever recorded.

        Raises:
            StorageError: a start would refuse these files.
            UnknownVersion: they have another version.
            OSError: the disk refuses.
        """
        config = ReplicaConfig(
            identity.node, (identity.node,), directory, identity, log_base=log_base
        )
        self._birth = birth
        self._store = SnapshotStore(files, f"{directory}/snapshots", identity)
        self.snapshot: SnapshotInfo | None = self._store.latest()
        self._journal = journal = LogJournal(config, files, ALL_REPAIRS)
        self.term = journal.getCurrentTerm()
        self.voted_for = journal.getVotedForNodeId()
        self.first = journal.first if len(journal) else 0
        self.last, self.last_term = journal.last, journal.last_term
        self.log_bytes = journal.wal.bytes_kept
        # At startup, `LogJournal.align` resets a log that does not continue the snapshot.
        self._joins = True
        if self.snapshot is None:
            journal.check_begin()
        elif not journal.joins(self.snapshot.index, self.snapshot.term):
            self._joins = False
            self.last, self.last_term = self.snapshot.index, self.snapshot.term

    def image(self) -> Iterator[bytes] | None:
        """Return the chunks of the machine's image in the newest snapshot; None without one.

        Raises:
            Damaged: the snapshot is corrupt (also raised while the chunks are read).
            WrongIdentity: it has another birth id.
        """
        info = self.snapshot
        if info is None:
            return None
        chunks = self._store.read(info)
        read_header(info, chunks, self._birth)
        return chunks

    def entries(self) -> Iterator[Entry]:
        """Yield the entries after the snapshot in order, without those of the library."""
        if not self._joins:
            return
        covered = 0 if self.snapshot is None else self.snapshot.index
        journal = self._journal
        place = max(0, covered + 1 - journal.first)
        while place < len(journal):
            for command, index, term in journal[place : place + SLICE_ENTRIES]:
                place += 1
                if command.startswith(OURS):
                    yield Entry(index, term, command[len(OURS) :])

    def close(self) -> None:
        """Close the files."""
        self._journal.wal.close()


def begin_replica(
    files: Files, directory: str, identity: Identity, header: SnapshotHeader, image: Iterable[bytes]
) -> int:
    """Create the files of a replica whose log begins after an image; return the log's base.

    Args:
        files: the disk, which must run submitted work at once (`InlineFiles`).
        directory: an empty directory.
        identity: the cluster and node that will own the files.
        header: index and term of the image; the new replica starts in that term.
        image: the chunks of the machine.

    Raises:
        OSError: the disk refuses; the files that were written so far are unusable.
    """
    store = SnapshotStore(files, f"{directory}/snapshots", identity)
    writer = store.create(header.last, header.term)
    errors: list[OSError | None] = []
    writer.write(header.encode())
    for chunk in image:
        writer.write(chunk)
    writer.finish(errors.append)
    if errors[0] is not None:
        raise errors[0]
    config = ReplicaConfig(identity.node, (identity.node,), directory, identity)
    journal = LogJournal(config, files, ALL_REPAIRS)
    journal.setCurrentTerm(header.term, None)
    journal.restart(header.last, header.term, header.previous_term)
    journal.wal.close()
    return journal.wal.start
