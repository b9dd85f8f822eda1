"""The disk of a stopped replica: what it holds, and how a new one is begun from a picture.

For tools (`beanpole inspect`, `beanpole recover`), never for a running node. The files are opened
with the code that a start uses, so they are judged as a start judges them.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from beanpole.replication.consensus import ReplicaConfig
from beanpole.replication.pysyncobj.journal import PLACEHOLDER, LogJournal
from beanpole.replication.pysyncobj.messages import OURS
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpole.replication.pysyncobj.snapshots import SnapshotHeader, read_header
from beanpole.storage.files import Files
from beanpole.storage.segment import NO_LOG
from beanpole.storage.snapshots import SnapshotInfo, SnapshotStore
from beanpole.storage.wal import Identity

# Entries of the log that are read back at once.
SLICE_ENTRIES: Final = 256


class Entry(NamedTuple):
    """One entry of the node's own: its place in the log, and its bytes."""

    position: int
    term: int
    payload: bytes


class StoppedReplica:
    """The replicated log as one disk has it.

    Attributes:
        term: the newest term that this member has seen.
        voted_for: the member that has its vote in that term, if any.
        snapshot: the newest snapshot, if any.
        first: index of the first entry that is kept; 0 if there is none.
        last: index of the last entry, or what the snapshot covers if that is more.
        last_term: the term of that entry.
        log_bytes: what the log takes.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        identity: Identity,
        birth: bytes,
        log_base: int = NO_LOG,
    ) -> None:
        """Read all of the log, and the head of the newest snapshot.

        Args:
            files: behind which nothing is written (`ReadOnlyFiles`).
            directory: the data directory.
            identity: whose files these are.
            birth: names the life of the cluster, which a snapshot must be of.
            log_base: base of the newest segment that was there once.

        Raises:
            StorageError: a start would refuse these files.
            UnknownVersion: they are of another version.
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
        # At a start, `LogJournal.align` begins a log anew that does not join the snapshot.
        self._joins = True
        if self.snapshot is None:
            journal.check_begin()
        elif not journal.joins(self.snapshot.index, self.snapshot.term):
            self._joins = False
            self.last, self.last_term = self.snapshot.index, self.snapshot.term

    def image(self) -> Iterator[bytes] | None:
        """Return the chunks of the machine's image in the newest snapshot; None without one.

        Raises:
            Damaged: the snapshot is not as it was written (also while it is read).
            WrongIdentity: it is of another life of the cluster.
        """
        info = self.snapshot
        if info is None:
            return None
        chunks = self._store.read(info)
        read_header(info, chunks, self._birth)
        return chunks

    def entries(self) -> Iterator[Entry]:
        """Yield the entries behind the snapshot in order, those of the library left out."""
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
    """Make the files of a replica whose log begins behind an image; returns the log's base.

    `files` runs what is submitted at once (`InlineFiles`).

    Args:
        files: where to write.
        directory: an empty directory.
        identity: whose files these are.
        header: index and term that the image stands for; the new replica is in that term.
        image: the chunks of the machine.

    Raises:
        OSError: the disk refuses; what was written is of no use.
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
    journal.clear()
    journal.add(PLACEHOLDER, header.last - 1, header.previous_term)
    journal.add(PLACEHOLDER, header.last, header.term)
    journal.wal.close()
    return journal.wal.start
