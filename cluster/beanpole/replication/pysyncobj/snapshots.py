"""Snapshots: made in slices, offered to members that are too far behind, fetched, loaded.

Replaces the library's serializer and its transfer (F1 to F9), which publish half-written files,
swallow errors while loading, fill the link and clear the log of the receiver.
The first chunk of a snapshot is its header, the others are chunks of the machine's image.
"""

import errno
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from pysyncobj.node import Node

from beanpole.errors import BeanpoleError
from beanpole.pace import Pace
from beanpole.replication.consensus import MIB, Image
from beanpole.replication.pysyncobj.fetch_sink import FetchSink
from beanpole.replication.pysyncobj.journal import PLACEHOLDER, Entry
from beanpole.replication.pysyncobj.library import SerializerBase
from beanpole.replication.pysyncobj.room import LOW_RETAIN_BYTES
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader, read_header
from beanpole.storage.ballast import is_full
from beanpole.storage.files import Files
from beanpole.storage.remedies import told
from beanpole.storage.snapshots import SnapshotInfo, SnapshotStore, SnapshotWriter

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.acks import LeaderAcks
    from beanpole.replication.pysyncobj.shared import Shared
    from beanpole.replication.pysyncobj.transport import LibraryTransport

# Bytes waiting for the disk above which the image pauses.
BACKLOG_BYTES_MAX: Final = 16 * MIB
# The log kept before every snapshot, also on followers. Otherwise a member that is a few entries
# behind would need the whole snapshot if leadership moved right after it was made.
RETAIN_BYTES_MIN: Final = 8 * MIB
# The period at which the log is trimmed to the progress of connected followers.
TRIM_PERIOD_S: Final = 1.0
# A fetch without progress for this long is aborted; the leader offers a snapshot again.
FETCH_SILENCE_S: Final = 10.0
# The delay before a snapshot that found no room is retried: the disk may still be filling.
FULL_PERIOD_S: Final = 5.0
# The least time between snapshots that are made because of an estimate alone.
GAIN_PERIOD_S: Final = 2.0
# The least time between two snapshots that replace unreadable ones: on a disk that damages whatever
# it stores, each reader would cause the next.
REPLACE_PERIOD_S: Final = 60.0
# Errors of a read that tell nothing about the file.
SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# The period in which each reason for giving up a fetch is logged once: a fetch that fails is
# repeated about twice a second.
REASONS_PERIOD_S: Final = 60.0
# A fetch is aborted before it takes the last room, which the log's term and small files need.
FETCH_ROOM_BYTES: Final = MIB


class Dump(SerializerBase):
    """The serializer given to the library: two entries that represent the snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: tuple[Entry, Entry] | None = None

    def represent(self, previous: Entry, last: Entry) -> None:
        """Set the entries of the next load. The machine must have been loaded before."""
        self._entries = (previous, last)

    def deserialize(self) -> tuple[None, Entry, Entry, set[Node]]:
        """Return indexes and terms to the library; this cannot fail, so F3 swallows nothing."""
        assert self._entries is not None
        previous, last = self._entries
        return None, last, previous, set()


def _placeholders(header: SnapshotHeader) -> tuple[Entry, Entry]:
    last, term, previous_term, _ = header
    return (PLACEHOLDER, last - 1, previous_term), (PLACEHOLDER, last, term)


class Snapshots:
    """The snapshots of one replica."""

    def __init__(self, shared: "Shared", files: Files, dump: Dump) -> None:
        config = shared.config
        self.store = SnapshotStore(files, f"{config.directory}/snapshots", config.identity)
        self._shared = shared
        self._dump = dump
        self._transport: LibraryTransport
        self._acks: LeaderAcks
        self._latest = self.store.latest()
        self._image: Image | None = None
        self._writer: SnapshotWriter | None = None
        self._pace = Pace(lambda: round(shared.callbacks.now_s() * 1_000_000))
        self._making = 0  # the index of the snapshot that is being made
        self._make_after_s = -1e9
        self._is_waiting = False  # whether a snapshot is due but there is no room for it
        # The newest snapshot, if it turned out to be unreadable. Compared by identity: the snapshot
        # that replaces it may have the same index and size.
        self._doubted: SnapshotInfo | None = None
        # The snapshot that a reader could not read, and the reason. The reader's thread sets it;
        # the next turn handles it.
        self._unreadable: tuple[SnapshotInfo, str] | None = None
        self._replace_after_s = -1e9
        self._gain_s = -1e9  # when a snapshot may be made again to drop deleted jobs
        self._fetch: FetchSink | None = None
        self._fetch_after_s = -1e9
        self._fetch_received = 0
        self._fetch_moved_s = 0.0
        self._fetch_what = ""  # the words for what is fetched, and from where
        self._reasons: set[str] = set()  # the reasons of failed fetches that were logged lately
        self._reasons_until_s = -1e9
        self._trim_s = -1e9
        self._closed = False

    def wire(self, transport: "LibraryTransport", acks: "LeaderAcks") -> None:
        """Connect the parts."""
        self._transport = transport
        self._acks = acks

    # --- the start -------------------------------------------------------------------------------

    def load_latest(self) -> SnapshotHeader | None:
        """Load the machine from the newest snapshot, and make the log begin there (F6)."""
        info, journal = self._latest, self._shared.journal
        if info is None:
            journal.check_begin()
            return None
        chunks = self.store.read(info)
        header = read_header(info, chunks, self._shared.config.birth)
        self._shared.callbacks.load_image(chunks)
        if self._shared.repairs.align_log_with_snapshot:
            journal.align(*header[:3])
        return header

    def take_over(self, header: SnapshotHeader) -> None:
        """Pass the header loaded by `load_latest` to the library."""
        journal = self._shared.journal
        if self._shared.repairs.align_log_with_snapshot:
            # The library compares them with the beginning of the log, and clears it if they differ.
            self._dump.represent(journal[0], journal[1])
        else:
            self._dump.represent(*_placeholders(header))
        self._shared.core.assume_applied(header.last)

    # --- making ----------------------------------------------------------------------------------

    def compact(self) -> None:
        """Begin a snapshot of the state applied so far, if it is newer than the last.

        It may be as old as one that cannot be read.
        """
        shared = self._shared
        index = shared.core.applied
        term = shared.journal.term_of(index)
        previous_term = shared.journal.term_of(index - 1)
        # One in place of an unreadable snapshot may have the same index.
        base = 1 if self._latest is None else self._latest.index - self._is_doubted
        if self._writer is not None or self._fetch is not None or index <= base:
            return
        if not self._fits():
            return
        assert term is not None and previous_term is not None, "the log lost what was applied"
        self._making = index
        self._writer = self.store.create(index, term)
        header = SnapshotHeader(index, term, previous_term, shared.config.birth)
        self._writer.write(header.encode())
        self._image = shared.callbacks.begin_image()
        shared.due = True
        shared.callbacks.wake()

    def turn(self) -> None:
        """Begin a due snapshot, trim the log, and check the progress of a fetch."""
        shared = self._shared
        if self._unreadable is not None:
            self._doubt(*self._unreadable)
        if self._writer is None:
            if self._is_due():
                self.compact()
        elif self._image is not None and (is_full(self._writer.error) or shared.room.full):
            self._no_room(f"the snapshot at {self._making} is given up")
            self._give_up_making()
        if shared.now_s - self._trim_s >= TRIM_PERIOD_S:
            self._trim_s = shared.now_s
            self._trim()
        if self._fetch is not None:
            self._watch(self._fetch)

    def size_and_behind(self) -> tuple[int, int]:
        """Return the bytes of the newest snapshot, and of the log after it."""
        covered, size = (0, 0) if self._latest is None else (self._latest.index, self._latest.bytes)
        return size, self._shared.journal.bytes_after(covered)

    def _is_due(self) -> bool:
        shared = self._shared
        if self._is_doubted and shared.now_s >= self._replace_after_s:
            return True
        size, logged = self.size_and_behind()
        if logged > max(shared.config.snapshot_bytes_min, size):
            return True
        room = shared.room
        if not room.low:
            return False
        # Room is scarce, so the log is cut sooner. A new snapshot also drops deleted jobs, but that
        # gain is an estimate, so it is used at most once per GAIN_PERIOD_S.
        return logged >= room.growth_bytes or (
            shared.now_s >= self._gain_s and room.gains(size + logged)
        )

    @property
    def _is_doubted(self) -> bool:
        """Whether the newest snapshot cannot be read."""
        return self._doubted is not None and self._doubted is self._latest

    def _doubt(self, info: SnapshotInfo, reason: str) -> None:
        """Have the newest snapshot made again, because a reader could not read it.

        Otherwise no member could catch up by it, and this node could not start again. The machine
        in memory does not depend on the file.
        """
        self._unreadable = None
        if info is self._latest and not self._is_doubted:
            self._doubted = info
            self._shared.callbacks.log(
                f"the snapshot at {info.index} cannot be read, and is made again: {reason}",
                is_warning=True,
            )

    def _fits(self) -> bool:
        """Whether there is room for a snapshot; if not, log that once."""
        shared, room = self._shared, self._shared.room
        if shared.now_s < self._make_after_s:
            return False
        needs, self._is_waiting, waited = room.snapshot_needs_bytes, False, self._is_waiting
        if room.free_bytes >= needs:
            return True
        self._is_waiting = True
        if not waited:
            shared.callbacks.log(
                f"the snapshot at {shared.core.applied} waits: {room.free_bytes} bytes are free, "
                f"and it needs {needs}",
                is_warning=True,
            )
        return False

    def _no_room(self, what: str) -> None:
        self._make_after_s = self._fetch_after_s = self._shared.now_s + FULL_PERIOD_S
        line = f"{what}: the disk is full; it is tried again"
        self._shared.callbacks.log(line, is_warning=True)

    @property
    def imaging(self) -> bool:
        """Whether an image is being made and is not waiting for the disk."""
        image, writer = self._image, self._writer
        return image is not None and writer is not None and writer.backlog_bytes < BACKLOG_BYTES_MAX

    def slice(self) -> None:
        """Make the next slice of the image, if one is due."""
        if self._image is not None:
            self._pace.slice(self._write_chunk)

    def _write_chunk(self) -> bool:
        """Make one chunk of the image, if the disk keeps up; return whether to make another."""
        image, writer = self._image, self._writer
        assert image is not None and writer is not None
        if not self.imaging:
            return False
        chunk = image.next_chunk()
        if chunk is None:
            self._image = None
            image.close()
            writer.finish(self._made)
            return False
        writer.write(chunk)
        return True

    def _made(self, error: OSError | None) -> None:
        self._writer = None
        if self._closed or self._shared.stopped:
            return
        if is_full(error):
            # Nothing is lost: the log is not cut.
            self._no_room(f"the snapshot at {self._making} is given up")
            return
        if error is not None:
            self._shared.stop(f"the snapshot at {self._making} failed: {told(error)}")
            return
        self._gain_s = self._shared.now_s + GAIN_PERIOD_S
        if self._is_doubted:
            self._replace_after_s = self._shared.now_s + REPLACE_PERIOD_S
            self._shared.callbacks.log(
                f"the snapshot at {self._making} replaces the one that cannot be read"
            )
        self._latest = self.store.latest()
        self._trim_s = -1e9
        self._shared.due = True
        self._shared.callbacks.wake()

    def _trim(self) -> None:
        """Trim the log to the entries not in the snapshot, or still needed by a connected peer."""
        shared, latest = self._shared, self._latest
        if latest is None:
            return
        journal = shared.journal
        retain = LOW_RETAIN_BYTES if shared.room.low else shared.config.log_retain_bytes
        # A fetched snapshot is published before it is installed.
        covered = min(latest.index, shared.core.applied) - 1
        first = min(covered, journal.index_with_bytes_after(min(RETAIN_BYTES_MIN, retain)))
        if shared.core.leads:
            for peer, link in self._transport.links.items():
                if link.linked:
                    first = min(first, self._acks.known.get(peer, 0))
            first = max(first, journal.index_with_bytes_after(retain))
            first = min(first, covered)
        # Also where the log begins there already: older segments may be left after a fetched
        # snapshot has replaced it, or after a start.
        journal.trim(first)

    # --- serving ---------------------------------------------------------------------------------

    def offered(self) -> tuple[int, int] | None:
        """Return index and term of the newest snapshot."""
        return None if self._latest is None else (self._latest.index, self._latest.term)

    def source(self) -> tuple[SnapshotInfo, Iterator[bytes]] | None:
        """Return the newest snapshot and its chunks; its file is open at return.

        If it cannot be read, this raises what `SnapshotStore.read` raises, and so do the chunks.
        """
        info = self.store.latest()
        if info is None:
            return None
        chunks = self._read(info)
        return info, chain([next(chunks)], chunks)

    def _read(self, info: SnapshotInfo) -> Iterator[bytes]:
        """Yield the chunks, in any thread; tell the next turn if they cannot be read."""
        try:
            yield from self.store.read(info)
        except (BeanpoleError, OSError) as error:
            if not (isinstance(error, OSError) and error.errno in SHORTAGES):
                self._unreadable = info, str(error)
            raise

    # --- fetching --------------------------------------------------------------------------------

    @property
    def fetching(self) -> bool:
        """Return whether a snapshot is being fetched."""
        return self._fetch is not None

    def fetch(self, peer: str, index: int) -> None:
        """Fetch a peer's snapshot, unless a fetch is in progress."""
        shared = self._shared
        if self._fetch is not None or shared.now_s < self._fetch_after_s:
            return
        if shared.room.free_bytes < FETCH_ROOM_BYTES:
            self._no_room(f"the snapshot at {index} of {peer} is not fetched")
            return
        sink = FetchSink(self.store, index, shared.config.birth)
        self._fetch = sink
        self._fetch_received, self._fetch_moved_s = 0, shared.now_s
        self._fetch_what = f"the snapshot at {index} of {peer}"
        self._give_up_making()
        shared.callbacks.fetch_snapshot(
            peer, index, sink, lambda failure: self._fetched(sink, failure)
        )

    def _give_up_making(self) -> None:
        if self._image is not None and self._writer is not None:
            self._image.close()
            self._writer.abort()
            self._image = self._writer = None

    def _fetched(self, sink: FetchSink, failure: str | None) -> None:
        if sink is not self._fetch or self._closed or self._shared.stopped:
            return
        if failure is not None or sink.failure is not None or sink.writer is None:
            self._give_up_fetch(sink, failure or sink.failure or "it is empty")
            return
        sink.complete = True
        sink.writer.finish(lambda error: self._published(sink, error))

    def _published(self, sink: FetchSink, error: OSError | None) -> None:
        if self._closed or self._shared.stopped:
            return
        if is_full(error):
            if sink is self._fetch:
                self._fetch = None
            self._no_room("the snapshot from a peer is given up")
            return
        if error is not None:
            words = "the snapshot from a peer could not be written"
            self._shared.stop(f"{words}: {told(error)}")
            return
        self._latest = self.store.latest()
        # The next turn installs it, because the library must not be called from here.
        self._shared.due = True
        self._shared.callbacks.wake()

    def _watch(self, sink: FetchSink) -> None:
        """Abort a fetch without progress: the link may have failed without notice."""
        now_s = self._shared.now_s
        if not sink.complete and (
            is_full(sink.error) or self._shared.room.free_bytes < FETCH_ROOM_BYTES
        ):
            sink.abort()
            self._fetch = None
            self._no_room(f"{self._fetch_what} is given up")
        elif sink.received != self._fetch_received:
            self._fetch_received, self._fetch_moved_s = sink.received, now_s
        elif now_s - self._fetch_moved_s > FETCH_SILENCE_S and self._latest_is_before(sink):
            self._give_up_fetch(sink, f"no progress for {FETCH_SILENCE_S:.0f} s")

    def _latest_is_before(self, sink: FetchSink) -> bool:
        header, latest = sink.header, self._latest
        return header is None or latest is None or latest.index < header.last

    def _give_up_fetch(self, sink: FetchSink, reason: str) -> None:
        """Abort a fetch that failed, and log the reason, which an operator may have to remove."""
        sink.abort()
        self._fetch = None
        shared = self._shared
        now_s = shared.callbacks.now_s()
        # Otherwise a peer that fails at once would be asked as often as it offers.
        self._fetch_after_s = now_s + shared.config.raft_min_s
        if now_s >= self._reasons_until_s:
            self._reasons_until_s = now_s + REASONS_PERIOD_S
            self._reasons.clear()
        if reason not in self._reasons:
            self._reasons.add(reason)
            shared.callbacks.log(f"{self._fetch_what} is given up: {reason}", is_warning=True)

    def install_fetched(self) -> None:
        """Load a snapshot that was fetched and published, if it is still needed."""
        sink, latest = self._fetch, self._latest
        if sink is None or sink.header is None or latest is None:
            return
        header = sink.header
        if (latest.index, latest.term) < (header.last, header.term):
            return  # not published yet
        # It may have been overtaken by a snapshot that was fetched before and not installed.
        sink.abort()
        self._fetch = None
        shared = self._shared
        core, journal = shared.core, shared.journal
        # F7: another leader may have sent entries since, which this member has acknowledged.
        useless = latest.index <= core.commit or journal.term_of(latest.index) == latest.term
        if core.leads or (useless and shared.repairs.refuse_old_snapshots):
            return
        chunks = self.store.read(latest)
        header = read_header(latest, chunks, self._shared.config.birth)
        shared.callbacks.load_image(chunks)
        self._dump.represent(*_placeholders(header))
        core.load_snapshot()

    def close(self) -> None:
        """Abort the snapshot that is being made or fetched."""
        self._closed = True
        self._give_up_making()
        if self._fetch is not None:
            self._fetch.abort()
            self._fetch = None
