"""Events as the machine emits them: records, and a note for each log entry that had events.

A node holds them in memory in this form until a segment is full. The names of the columns are in
`columns`; the layout of a record is in the library (`beanpole.events`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from beanpole.events import RECORD

# log index, cluster time in us, leader's wall time in us, offset of the entry's first event, the
# machine's state hash after the entry.
NOTE: Final = Struct("<qqqQI")
_FIRST_AT: Final = 24  # position of the offset in a note
_FIRST: Final = Struct("<Q")
# Positions in a record: of the tube's number among numbers of four bytes, and of the host's among
# numbers of two bytes.
_TUBE_AT: Final = 2
_HOST_AT: Final = 3
# The sort key of externals and details.
_OFFSET: Final = itemgetter(0)

Bytes = bytes | bytearray
_Row = TypeVar("_Row", bound=tuple[Any, ...])
# The external id of an event's job: (offset of the event, number of the id's space, id).
External = tuple[int, int, bytes]
# Memory of one external: the tuple, its offset, its place, and an id of 40 bytes, which the job
# shares during its life.
EXTERNAL_BYTES: Final = 192
# Facts about an event that its record lacks: (offset, worker, reason, clock of its client), see
# `core.jobs.emitter.Emitter`. The worker's name lives as long as its job.
Detail = tuple[int, bytes | None, bytes | None, int]
DETAIL_BYTES: Final = 192


class Note(NamedTuple):
    """A log entry that had events."""

    log_index: int
    time_us: int
    wall_us: int
    first: int
    state_hash: int


class Events(NamedTuple):
    """Events in the order of their offsets, without a gap.

    Attributes:
        first: the offset of the first record.
        records: RECORD.size bytes for each event.
        notes: NOTE.size bytes for each entry; the first may have begun before `first`.
        names: of the tubes, by their numbers; may contain more than necessary.
        members: names of the nodes, by their places as origins.
        hosts: names of the clients' hosts, by their numbers; may contain more than necessary; None
            before machine version 4, whose events have no column of hosts.
        externals: of the events whose jobs have an external id, in the order of their offsets.
        details: of the events of protocols with named workers, in the order of their offsets.
    """

    first: int
    records: Bytes
    notes: Bytes
    names: Mapping[int, bytes]
    members: tuple[str, ...]
    hosts: Mapping[int, bytes] | None = None
    externals: Sequence[External] = ()
    details: Sequence[Detail] = ()

    @property
    def memory_bytes(self) -> int:
        """The memory that these events take."""
        return open_bytes(self.records, self.externals, self.details)

    @property
    def rows(self) -> int:
        """The number of events."""
        return len(self.records) // RECORD.size

    @property
    def end(self) -> int:
        """The offset after the last event."""
        return self.first + self.rows

    def note(self, place: int) -> Note:
        """Return the note at a position; -1 is the last."""
        at = place * NOTE.size if place >= 0 else len(self.notes) + place * NOTE.size
        return Note._make(NOTE.unpack_from(self.notes, at))

    def slice(self, start: int, end: int) -> "Events":
        """Copy the events in the offsets [start, end), which must be here."""
        low, high = start - self.first, end - self.first
        assert 0 <= low < high <= self.rows, (start, end, self.first, self.rows)
        begin, stop = self._entry_of(start), self._entry_of(end - 1) + 1
        return self._replace(
            first=start,
            records=bytes(memoryview(self.records)[low * RECORD.size : high * RECORD.size]),
            notes=bytes(memoryview(self.notes)[begin * NOTE.size : stop * NOTE.size]),
            externals=_between(self.externals, start, end),
            details=_between(self.details, start, end),
        )

    def parts(self, rows_max: int) -> Iterator["Events"]:
        """Copy all events in order, at most `rows_max` at a time."""
        for start in range(self.first, self.end, rows_max):
            yield self.slice(start, min(start + rows_max, self.end))

    def tubes(self) -> set[int]:
        """Return the numbers of the tubes in the records."""
        return set(memoryview(self.records).cast("I")[_TUBE_AT :: RECORD.size // 4].tolist())

    def hosts_named(self) -> set[int]:
        """Return the numbers of the hosts in the records, perhaps including UNKNOWN."""
        return set(memoryview(self.records).cast("H")[_HOST_AT :: RECORD.size // 2].tolist())

    def _entry_of(self, offset: int) -> int:
        """Return the position of the note of an offset's entry."""
        notes = self.notes

        def first(place: int) -> int:
            found: int = _FIRST.unpack_from(notes, place * NOTE.size + _FIRST_AT)[0]
            return found

        return bisect_right(range(len(notes) // NOTE.size), offset, key=first) - 1

    def first_at_wall(self, wall_us: int) -> int | None:
        """Return the first offset at or after a wall time; None if all are older."""
        for note in map(Note._make, NOTE.iter_unpack(self.notes)):
            if note.wall_us >= wall_us:
                return max(note.first, self.first)
        return None


def _between(rows: Sequence[_Row], start: int, end: int) -> Sequence[_Row]:
    """Copy the rows whose first field is an offset in [start, end)."""
    low = bisect_left(rows, start, key=_OFFSET)
    return rows[low : bisect_left(rows, end, low, key=_OFFSET)]


def open_bytes(records: Bytes, externals: Sequence[External], details: Sequence[Detail]) -> int:
    """Return the memory that events with these parts take."""
    return len(records) + EXTERNAL_BYTES * len(externals) + DETAIL_BYTES * len(details)


class EventBatch(NamedTuple):
    """Some events in the form for readers."""

    first: int
    rows: int
    wall_us_max: int
    payload: bytes
