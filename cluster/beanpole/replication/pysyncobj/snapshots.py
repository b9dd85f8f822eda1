"""Snapshots: made in slices, offered to those who are too far behind, fetched, loaded.

Replaces the library's serializer and its transfer (F1 to F9): it would publish half-written
files, swallow errors while loading, fill the link and clear the log of whoever receives one.
A snapshot's first chunk is ours (`Heading`), the others are the machine's.
"""

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import msgpack
from pysyncobj.node import Node

from beanpole.errors import Damaged, ProtocolError, UnknownVersion
from beanpole.pace import Pace
from beanpole.replication.consensus import MIB, Image
from beanpole.replication.pysyncobj.journal import HOLLOW, Entry
from beanpole.replication.pysyncobj.library import SerializerBase
from beanpole.storage.files import Files
from beanpole.storage.snapshots import CHUNK_BYTES_MAX, SnapshotInfo, SnapshotStore, SnapshotWriter

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.acks import LeaderAcks
    from beanpole.replication.pysyncobj.shared import Shared
    from beanpole.replication.pysyncobj.transport import LibraryTransport

HEADING_VERSION: Final = 1
# What may wait for the disk before the image pauses.
BACKLOG_BYTES_MAX: Final = 16 * MIB
# Kept before every snapshot, also on followers: whoever is a few entries behind when leadership
# moves right after a snapshot would otherwise need all of it.
RETAIN_BYTES_MIN: Final = 8 * MIB
# Connected followers move on all the time; the log follows them at this pace.
TRIM_PERIOD_S: Final = 1.0
# A fetch that brings nothing for this long is given up; the leader offers again.
FETCH_SILENCE_S: Final = 10.0


class Heading(NamedTuple):
    """The first chunk of every snapshot."""

    last: int
    term: int
    previous_term: int

    def encode(self) -> bytes:
        """Return the bytes of the chunk."""
        return msgpack.packb((HEADING_VERSION, *self))

    @classmethod
    def decode(cls, chunk: bytes) -> "Heading":
        """Read the chunk.

        Raises:
            ProtocolError: it is no heading.
            UnknownVersion: it is one of another version.
        """
        try:
            items = msgpack.unpackb(chunk, use_list=False)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ProtocolError("the first chunk of a snapshot is no heading") from error
        if type(items) is not tuple or not items or not all(type(item) is int for item in items):
            raise ProtocolError("the first chunk of a snapshot is no heading")
        if items[0] != HEADING_VERSION:
            raise UnknownVersion(f"snapshot version {items[0]}; known is {HEADING_VERSION}")
        if len(items) != 4 or items[1] < 2 or not 0 <= items[3] <= items[2]:
            raise ProtocolError("the heading of a snapshot makes no sense")
        return cls(*items[1:])


class Dump(SerializerBase):
    """What the library takes for its serializer: two entries that stand for the snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: tuple[Entry, Entry] | None = None

    def stand_for(self, previous: Entry, last: Entry) -> None:
        """Say what the next load is about. The machine has been loaded before."""
        self._entries = (previous, last)

    def deserialize(self) -> tuple[None, Entry, Entry, set[Node]]:
        """Give the library indexes and terms; nothing here can fail, so F3 swallows nothing."""
        assert self._entries is not None
        previous, last = self._entries
        return None, last, previous, set()


class FetchSink:
    """Where a fetch writes. The heading of what really comes decides what it is."""

    def __init__(self, store: SnapshotStore, index: int) -> None:
        self.heading: Heading | None = None
        self.writer: SnapshotWriter | None = None
        self.failure: str | None = None
        self.received = 0  # chunks
        self._store = store
        self._index = index

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that are not on the disk yet."""
        return 0 if self.writer is None else self.writer.backlog_bytes

    def write(self, chunk: bytes) -> None:
        """Take a chunk; after a failure nothing more is taken."""
        if self.failure is not None:
            return
        if not 0 < len(chunk) <= CHUNK_BYTES_MAX:
            self.failure = f"a chunk of {len(chunk)} bytes"
            return
        if self.writer is None:
            try:
                heading = Heading.decode(chunk)
            except (ProtocolError, UnknownVersion) as error:
                self.failure = str(error)
                return
            if heading.last < self._index:
                self.failure = f"asked for {self._index}, got {heading.last}"
                return
            self.heading = heading
            self.writer = self._store.create(heading.last, heading.term)
        self.writer.write(chunk)
        self.received += 1

    def abort(self) -> None:
        """Take nothing more and remove what was written."""
        self.failure = self.failure or "given up"
        if self.writer is not None:
            self.writer.abort()


def _hollow(heading: Heading) -> tuple[Entry, Entry]:
    last, term, previous_term = heading
    return (HOLLOW, last - 1, previous_term), (HOLLOW, last, term)


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
        self._pace = Pace(lambda: round(shared.outside.now_s() * 1_000_000))
        self._making = 0  # the index of the snapshot that is being made
        self._fetch: FetchSink | None = None
        self._fetch_after_s = -1e9
        self._fetch_received = 0
        self._fetch_moved_s = 0.0
        self._trim_s = -1e9
        self._closed = False

    def wire(self, transport: "LibraryTransport", acks: "LeaderAcks") -> None:
        """Connect the parts."""
        self._transport = transport
        self._acks = acks

    # --- the start -------------------------------------------------------------------------------

    def load_latest(self) -> Heading | None:
        """Load the machine from the newest snapshot, and let the log begin there (F6)."""
        info, journal = self._latest, self._shared.journal
        if info is None:
            journal.check_begin()
            return None
        chunks = self.store.read(info)
        heading = self._heading(info, chunks)
        self._shared.outside.load_image(chunks)
        if self._shared.repairs.align_log_with_snapshot:
            journal.align(*heading)
        return heading

    def take_over(self, heading: Heading) -> None:
        """Tell the library what was loaded by `load_latest`."""
        journal = self._shared.journal
        if self._shared.repairs.align_log_with_snapshot:
            # The library compares them with the beginning of the log, and clears it if they differ.
            self._dump.stand_for(journal[0], journal[1])
        else:
            self._dump.stand_for(*_hollow(heading))
        self._shared.core.assume_applied(heading.last)

    def _heading(self, info: SnapshotInfo, chunks: Iterator[bytes]) -> Heading:
        try:
            heading = Heading.decode(next(chunks))
        except (ProtocolError, StopIteration) as error:
            raise Damaged(f"{info.path}: this is no snapshot of the machine") from error
        if (heading.last, heading.term) != (info.index, info.term):
            raise Damaged(f"{info.path}: the heading is of another snapshot")
        return heading

    # --- making ----------------------------------------------------------------------------------

    def compact(self) -> None:
        """Begin a snapshot of what is applied now."""
        shared = self._shared
        index = shared.core.applied
        term = shared.journal.term_of(index)
        previous_term = shared.journal.term_of(index - 1)
        base = 1 if self._latest is None else self._latest.index
        if self._writer is not None or self._fetch is not None or index <= base:
            return
        assert term is not None and previous_term is not None, "the log lost what was applied"
        self._making = index
        self._writer = self.store.create(index, term)
        self._writer.write(Heading(index, term, previous_term).encode())
        self._image = shared.outside.begin_image()
        shared.due = True
        shared.outside.wake()

    def turn(self) -> None:
        """Begin what is due; shorten the log; see whether a fetch goes on."""
        shared = self._shared
        if self._writer is None and self._is_due():
            self.compact()
        if shared.now_s - self._trim_s >= TRIM_PERIOD_S:
            self._trim_s = shared.now_s
            self._trim()
        if self._fetch is not None:
            self._watch(self._fetch)

    def _is_due(self) -> bool:
        covered, size = (0, 0) if self._latest is None else (self._latest.index, self._latest.bytes)
        limit = max(self._shared.config.snapshot_bytes_min, size)
        return self._shared.journal.bytes_after(covered) > limit

    @property
    def imaging(self) -> bool:
        """Whether an image is being made, and the disk follows."""
        image, writer = self._image, self._writer
        return image is not None and writer is not None and writer.backlog_bytes < BACKLOG_BYTES_MAX

    def slice(self) -> None:
        """Go on with the image, if it is time."""
        if self._image is not None:
            self._pace.slice(self._write_chunk)

    def _write_chunk(self) -> bool:
        """Make one chunk of the image, if the disk follows; whether another may be made."""
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
        if error is not None:
            self._shared.stop(f"the snapshot at {self._making} failed: {error}")
            return
        self._latest = self.store.latest()
        self._trim_s = -1e9
        self._shared.due = True
        self._shared.outside.wake()

    def _trim(self) -> None:
        """Shorten the log to what a snapshot does not cover and a connected peer still needs."""
        shared, latest = self._shared, self._latest
        if latest is None:
            return
        journal, config = shared.journal, shared.config
        first = min(
            latest.index - 1,
            journal.index_with_bytes_after(min(RETAIN_BYTES_MIN, config.log_retain_bytes)),
        )
        if shared.core.leads:
            for peer, link in self._transport.links.items():
                if link.linked:
                    first = min(first, self._acks.known.get(peer, 0))
            first = max(first, journal.index_with_bytes_after(config.log_retain_bytes))
            first = min(first, latest.index - 1)
        if first > journal.first:
            journal.trim(first)

    # --- serving ---------------------------------------------------------------------------------

    def offered(self) -> tuple[int, int] | None:
        """Return index and term of the newest snapshot."""
        return None if self._latest is None else (self._latest.index, self._latest.term)

    def source(self) -> tuple[SnapshotInfo, Iterator[bytes]] | None:
        """Return the newest snapshot and its chunks; the file is open when this returns."""
        info = self.store.latest()
        if info is None:
            return None
        chunks = self.store.read(info)
        return info, chain([next(chunks)], chunks)

    # --- fetching --------------------------------------------------------------------------------

    @property
    def fetching(self) -> bool:
        """Return whether a snapshot is on its way here."""
        return self._fetch is not None

    def fetch(self, peer: str, index: int) -> None:
        """Fetch a peer's snapshot, unless one is on its way."""
        shared = self._shared
        if self._fetch is not None or shared.now_s < self._fetch_after_s:
            return
        sink = FetchSink(self.store, index)
        self._fetch = sink
        self._fetch_received, self._fetch_moved_s = 0, shared.now_s
        self._give_up_making()
        shared.outside.fetch_snapshot(
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
            sink.abort()
            self._end_fetch()
            return
        sink.writer.finish(lambda error: self._published(sink, error))

    def _published(self, sink: FetchSink, error: OSError | None) -> None:
        if self._closed or self._shared.stopped:
            return
        if error is not None:
            self._shared.stop(f"the snapshot from a peer could not be written: {error}")
            return
        self._latest = self.store.latest()
        # The next turn installs it: here nothing says that the library may be called.
        self._shared.due = True
        self._shared.outside.wake()

    def _watch(self, sink: FetchSink) -> None:
        """Give a fetch up that stands still: the link may be gone without anybody saying so."""
        now_s = self._shared.now_s
        if sink.received != self._fetch_received:
            self._fetch_received, self._fetch_moved_s = sink.received, now_s
        elif now_s - self._fetch_moved_s > FETCH_SILENCE_S and self._latest_is_before(sink):
            sink.abort()
            self._end_fetch()

    def _latest_is_before(self, sink: FetchSink) -> bool:
        heading, latest = sink.heading, self._latest
        return heading is None or latest is None or latest.index < heading.last

    def _end_fetch(self) -> None:
        self._fetch = None
        # A peer that fails at once would otherwise be asked as fast as it offers.
        self._fetch_after_s = self._shared.outside.now_s() + self._shared.config.raft_min_s

    def install_fetched(self) -> None:
        """Load a snapshot that was fetched and published, if it still is of use."""
        sink, latest = self._fetch, self._latest
        if sink is None or sink.heading is None or latest is None:
            return
        heading = sink.heading
        if (latest.index, latest.term) < (heading.last, heading.term):
            return  # not published yet
        self._fetch = None
        shared = self._shared
        core, journal = shared.core, shared.journal
        # F7: meanwhile another leader may have sent entries that this member has acknowledged.
        useless = heading.last <= core.commit or journal.term_of(heading.last) == heading.term
        if core.leads or (useless and shared.repairs.refuse_old_snapshots):
            return
        chunks = self.store.read(latest)
        heading = self._heading(latest, chunks)
        shared.outside.load_image(chunks)
        self._dump.stand_for(*_hollow(heading))
        core.load_snapshot()

    def close(self) -> None:
        """Give up what is being made or fetched."""
        self._closed = True
        self._give_up_making()
        if self._fetch is not None:
            self._fetch.abort()
            self._fetch = None
