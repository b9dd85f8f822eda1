"""Events in simulation: a plain encoding in place of Arrow's, and a check of what is readable.

Every node's readable events are compared with those of the witness, which applied every entry once.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack

from beanpole import commands as c
from beanpole.events import FIELDS, KIND_SINCE, RECORD
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import NOTE, EventBatch, Events
from beanpoled.eventlog.segment import EventSegment
from tests.sim.cluster import Violation

if TYPE_CHECKING:
    from beanpole.core.machine import Machine
    from tests.sim.host import SimHost

BATCH_ROWS: Final = 20
# The position of the tube's number in a record.
_TUBE: Final = slice(8, 12)
# The positions of the host's number and of the kind in a record, and of the session in its fields.
_HOST: Final = slice(6, 8)
_KIND: Final = 0
_SESSION: Final = tuple(map(FIELDS.index, ("origin", "incarnation", "session")))


class Row(NamedTuple):
    """An event."""

    offset: int
    log_index: int
    position: int  # in its entry
    time_us: int
    wall_us: int
    tube: bytes
    host: bytes  # empty if it is not known
    external: list[Any]  # the space and the id of the job, if it has an external id
    detail: list[Any]  # worker, reason and the client's clock, if they are known
    record: bytes


def rows(events: Events) -> Iterator[Row]:
    """Decode events one by one."""
    notes = list(NOTE.iter_unpack(events.notes))
    externals: dict[int, list[Any]] = {
        offset: [space, name] for offset, space, name in events.externals
    }
    details = {offset: list(known) for offset, *known in events.details}
    for place in range(events.rows):
        offset = events.first + place
        index, time_us, wall_us, first, _ = next(
            note for note in reversed(notes) if note[3] <= offset
        )
        record = bytes(events.records[place * RECORD.size : (place + 1) * RECORD.size])
        tube = events.names[int.from_bytes(record[_TUBE], "little")]
        host = (events.hosts or {}).get(int.from_bytes(record[_HOST], "little"), b"")
        external = externals.get(offset, [])
        beside = (tube, host, external, details.get(offset, []))
        yield Row(offset, index, offset - first, time_us, wall_us, *beside, record)


def encode(events: Events) -> list[EventBatch]:
    """Encode events in batches, as `columns.encode` does on real nodes."""
    batches = []
    for part in events.parts(BATCH_ROWS):
        some = list(rows(part))
        payload = msgpack.packb(some)
        batches.append(EventBatch(part.first, len(some), max(row.wall_us for row in some), payload))
    return batches


class EventWitness:
    """All events that the log has made, in order."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._names: dict[int, bytes] = {}
        # The hosts with which sessions were opened, by (origin, incarnation, session). A number is
        # used only once in an incarnation.
        self.hosts: dict[tuple[int, ...], bytes] = {}

    def applied(
        self, machine: "Machine", index: int, wall_us: int, sections: list[c.Section]
    ) -> None:
        """Take the events of an entry that the witness's machine has just applied."""
        queue = machine.queue
        for origin, incarnation, _, commands in sections:
            for command in commands if origin != c.LEADER else ():
                if command[0] == c.OPEN_FROM:
                    session = (origin, incarnation, command[1])
                    self.hosts.setdefault(session, command[2])
        self._names.update(queue.tubes_named)
        queue.tubes_named.clear()
        if queue.events:
            first = len(self.rows)
            note = NOTE.pack(index, queue.now_us, wall_us, first, machine.state_hash)
            beside = (machine.hosts.names, queue.externals, queue.details)
            self.rows += rows(Events(first, queue.events, note, self._names, (), *beside))
            for row in self.rows[first:]:
                since = KIND_SINCE.get(row.record[_KIND], c.BASE_VERSION)
                if since > machine.version:
                    raise Violation(f"event {row[0]} is of machine version {since}, at {index}")
                self._check_host(row)

    def _check_host(self, row: Row) -> None:
        """Check that an event has the host with which its session was opened in the log."""
        fields = RECORD.unpack(row.record)
        wanted = self.hosts.get(tuple(fields[place] for place in _SESSION), b"")
        if row.host != wanted:
            raise Violation(
                f"event {row.offset} is of host {row.host!r}, its session of {wanted!r}"
            )

    def check(self, host: "SimHost", whole: bool) -> int:
        """Compare a node's readable events with these; `whole`: none may be missing.

        Returns:
            The number of events the node has.
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
            if position <= row.offset < end:
                yield row
                position = row.offset + 1


def _rows_of(host: "SimHost", part: EventSegment | Events) -> Iterator[Row]:
    if isinstance(part, Events):
        payloads = [batch.payload for batch in encode(part)]
    else:
        handle = host.files.open(part.path)
        payloads = [segments.read(handle, part, place) for place in part.places]
    for payload in payloads:
        yield from map(Row._make, msgpack.unpackb(payload))
