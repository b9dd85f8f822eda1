"""Events in simulation: a plain encoding in place of Arrow's, and what must be readable at the end.

Every node's readable events are compared with those of the witness, which applied every entry once.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgpack

from beanpole.commands import BASE_VERSION
from beanpole.events import KIND_SINCE, RECORD
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import NOTE, EventBatch, Events
from beanpoled.eventlog.segment import EventSegment
from tests.sim.cluster import Violation

if TYPE_CHECKING:
    from beanpole.core.machine import Machine
    from tests.sim.host import SimHost

BATCH_ROWS: Final = 20
# Where the tube's number stands in a record.
_TUBE: Final = slice(8, 12)
# ... and its kind.
_KIND: Final = 0

# Offset, log index, position in its entry, cluster time us, wall time us, tube, record.
Row = tuple[int, int, int, int, int, bytes, bytes]


def rows(events: Events) -> Iterator[Row]:
    """Decode events one by one."""
    notes = list(NOTE.iter_unpack(events.notes))
    for place in range(events.rows):
        offset = events.first + place
        index, time_us, wall_us, first, _ = next(
            note for note in reversed(notes) if note[3] <= offset
        )
        record = bytes(events.records[place * RECORD.size : (place + 1) * RECORD.size])
        tube = events.names[int.from_bytes(record[_TUBE], "little")]
        yield offset, index, offset - first, time_us, wall_us, tube, record


def encode(events: Events) -> list[EventBatch]:
    """What `columns.encode` is on real nodes."""
    batches = []
    for part in events.parts(BATCH_ROWS):
        some = list(rows(part))
        payload = msgpack.packb(some)
        batches.append(EventBatch(part.first, len(some), max(row[4] for row in some), payload))
    return batches


class EventWitness:
    """All events that the log has made, in order."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._names: dict[int, bytes] = {}

    def applied(self, machine: "Machine", index: int, wall_us: int) -> None:
        """The witness's machine has applied an entry, and its queue has only those events."""
        queue = machine.queue
        self._names.update(queue.tubes_named)
        queue.tubes_named.clear()
        if queue.events:
            first = len(self.rows)
            note = NOTE.pack(index, queue.now_us, wall_us, first, machine.state_hash)
            self.rows += rows(Events(first, queue.events, note, self._names, ()))
            for row in self.rows[first:]:
                since = KIND_SINCE.get(row[6][_KIND], BASE_VERSION)
                if since > machine.version:
                    raise Violation(f"event {row[0]} is of machine version {since}, at {index}")

    def check(self, host: "SimHost", whole: bool) -> int:
        """Compare what a node can give to readers; `whole`: nothing may be missing.

        Returns:
            How many events the node has.
        """
        log, count = host.node.events, 0
        if log.end != len(self.rows):
            raise Violation(f"{host.name} has events to {log.end}, not to {len(self.rows)}")
        spans = log.spans()
        if whole and spans != ([(0, log.end)] if log.end else []):
            raise Violation(f"{host.name} has only the events {spans} of {log.end}")
        for first, end in spans:
            found = list(_read(host, first, end))
            if found != self.rows[first:end]:
                raise Violation(f"{host.name} has other events in {first} to {end}")
            count += len(found)
        return count


def _read(host: "SimHost", first: int, end: int) -> Iterator[Row]:
    """Read the events of a span as the service does."""
    position = first
    while position < end:
        part = host.node.events.part(position)
        if part is None:
            raise Violation(f"{host.name} cannot read event {position} of its span to {end}")
        for row in _rows_of(host, part):
            if position <= row[0] < end:
                yield row
                position = row[0] + 1


def _rows_of(host: "SimHost", part: EventSegment | Events) -> Iterator[Row]:
    if isinstance(part, Events):
        payloads = [batch.payload for batch in encode(part)]
    else:
        handle = host.files.open(part.path)
        payloads = [segments.read(handle, part, place) for place in part.places]
    for payload in payloads:
        yield from map(tuple, msgpack.unpackb(payload))
