"""The events that this node keeps: the open segment in memory, the sealed ones in files.

All of it is called in the node's loop. The machine appends records to its queue's buffer; after
each entry `applied` adds one note. A segment is sealed by handing that buffer over: it becomes
columns and a file away from the loop. Events never stop the queue: what cannot be kept is a gap.

Exactly once: what the log is cut behind is sealed before (see `Callbacks.begin_image`), and what a
restart emits again is dropped up to the end of the newest file.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

from beanpole.core.hosts import HOSTS_SINCE
from beanpole.core.machine import Machine
from beanpole.core.qless import emitting
from beanpole.errors import BeanpoleError, WrongIdentity
from beanpole.storage.files import LANE_BULK
from beanpole.storage.format import Identity
from beanpoled.config.node import NodeConfig
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import NOTE, Events, open_bytes
from beanpoled.eventlog.latencies import Latencies
from beanpoled.eventlog.segment import About, EventSegment
from beanpoled.host.seam import WARNING, Host
from beanpoled.view import JobCounts

DIRECTORY: Final = "events"
# Sealed and not written yet, in memory: a disk that is so far behind gets no more.
WAITING_BYTES_MAX: Final = 128 * 1024 * 1024
# Making columns of a segment is spread over a fourth of the time in which its events came, so that
# it neither holds up the clients nor falls behind; and over no more than this: snapshots wait.
SPREAD_DIVISOR: Final = 4
SPREAD_US_MAX: Final = 5_000_000
# A larger segment is not spread: what is sealed behind it may find no room in the meantime.
SPREAD_BYTES_MAX: Final = WAITING_BYTES_MAX // 4
# How often what must go is looked for.
RETAIN_PERIOD_US: Final = 1_000_000
# Events are removed below this multiple of the disk's reserve: before puts are refused for it.
EVENT_RESERVES: Final = 2
# Names of tubes that are gone are forgotten when they outnumber the others by more than this.
STALE_NAMES: Final = 1024
# One reader's slice of what is in memory: copying it takes a tenth of a millisecond.
SLICE_ROWS: Final = 16_384

Span = tuple[int, int]


class EventLog:
    """A node's events. `kept` is False where the configuration says that there are none."""

    def __init__(self, config: NodeConfig, host: Host, machine: Machine) -> None:
        self.kept = config.events == "on"
        self.directory = os.path.join(config.data_dir, DIRECTORY)
        self._config = config
        self._host = host
        self._identity = Identity(config.cluster, config.node_id)
        self._members = tuple(sorted(config.members))
        self._segments: list[EventSegment] = []
        self.bytes = 0  # of the segments' files
        # Files that are not offered, and their bytes: they are the first to go.
        self._left_out: dict[str, int] = {}
        self.lost = 0  # events that could not be kept
        self.reserve_bytes = config.disk_reserve_bytes  # of the disk, as it is now
        self._waiting: list[tuple[Events, About]] = []
        # What the log emits below this is here already; and what stands there, if a file said so.
        self._sealed_end = 0
        self._sealed_about: About | None = None
        self._notes = bytearray()
        self._loop_us = 0  # when the house was kept last
        self._since_us = -1  # loop time at which the open segment was first seen with events
        self._next_retain_us = 0
        self.latencies = Latencies()
        self._removing = 0  # works in progress
        self._spans: list[Span] | None = None  # of the segments, joined
        self._machine = machine
        self._follow(machine)

    def open(self) -> None:
        """Find the segments of an earlier life. Raises OSError if there can be no directory."""
        if not self.kept:
            return
        files = self._host.files
        files.make_directory(self.directory)
        for name in files.list(self.directory):
            path = os.path.join(self.directory, name)
            if name.endswith(segments.TEMPORARY):
                files.remove(path)
            elif name.endswith(segments.SUFFIX):
                self._find(path)
        self._follow(self._machine)

    def _find(self, path: str) -> None:
        try:
            found = segments.inspect(self._host.files, path, self._identity)
        except (WrongIdentity, OSError) as doubt:
            # Another's, or perhaps good: what becomes of it is for people to say.
            self._host.log(f"events left out: {doubt}", WARNING)
            return
        except BeanpoleError as error:
            self._leave_out(path, self._size(path), str(error))
            return
        if found.first < self._sealed_end:
            self._leave_out(path, found.size, f"{path} begins before {self._sealed_end}")
            return
        self._segments.append(found)
        self.bytes += found.size
        self._sealed_end, self._sealed_about = found.end, found.about

    def _leave_out(self, path: str, size: int, reason: str) -> None:
        """Do not offer a file, and remove it when its room is needed."""
        self._left_out[path] = size
        self._host.log(f"events left out: {reason}", WARNING)

    def _size(self, path: str) -> int:
        with suppress(OSError), closing(self._host.files.open(path)) as handle:
            return handle.size()
        return 0

    # --- what the machine did -------------------------------------------------------------------

    def attach(self, machine: Machine) -> None:
        """The node goes on with another machine: what is open belongs to the old one."""
        self.seal()
        self._follow(machine)

    def _follow(self, machine: Machine) -> None:
        self._machine = machine
        queue = self._queue = machine.queue
        self.latencies.forget()
        self._names = self._living_names()
        queue.tubes_named.clear()
        self._end = queue.events_total
        # Events that the log brings again are not kept a second time.
        queue.events_kept = self.kept and self._sealed_end <= self._end
        self._begin()

    def _begin(self) -> None:
        """Begin a segment at the machine's present offset."""
        queue = self._queue
        self._first = self._end
        self._jobs = JobCounts(queue.ready, queue.reserved, queue.delayed, queue.buried)
        self._since_us = -1
        self._notes = bytearray()
        queue.events = bytearray()
        queue.externals = []
        queue.details = []
        self._forget_names()

    def _forget_names(self) -> None:
        """Called while the open segment is empty, and so needs none of the names."""
        living = len(self._queue.tubes) + len(self._machine.qless.queues)
        if len(self._names) > 2 * living + STALE_NAMES:
            # A new dictionary: those that were sealed go on with the old one.
            self._names = self._living_names()

    def _living_names(self) -> dict[int, bytes]:
        names = {tube.number: name for name, tube in self._queue.tubes.items()}
        names |= emitting.queue_names(self._machine.qless)
        return names

    def applied(self, index: int, wall_us: int) -> None:
        """An entry was applied. This is on the way of every command: a few steps per entry."""
        queue = self._queue
        if queue.tubes_named:
            self._names.update(queue.tubes_named)
            queue.tubes_named.clear()
        first, total = self._end, queue.events_total
        if total == first:
            return
        self._end = total
        if queue.events_kept:
            self._notes += NOTE.pack(index, queue.now_us, wall_us, first, self._machine.state_hash)
            if self._open_bytes() >= self._config.event_segment_bytes:
                self.seal()
        elif self.kept and total >= self._sealed_end:
            self._reach_sealed(index)

    def _reach_sealed(self, index: int) -> None:
        """The log has brought again what is in files; from here on its events are new."""
        about = self._sealed_about
        assert about is not None, "only files make a node drop events"
        expected = (about.log_index[1], self._sealed_end, about.state_hash)
        if expected != (index, self._end, self._machine.state_hash):
            self._distrust()
        self._queue.events_kept = True
        self._names = self._living_names()  # none was told meanwhile
        self._begin()

    def _distrust(self) -> None:
        """Drop files that do not belong to this log: with durability "memory" it can lose its end.

        Which of them do belong is known only of what a snapshot covers.
        """
        wrong = [found for found in self._segments if found.end > self._first]
        self._host.log(
            f"events {self._first} to {self._sealed_end} are not those of the log, which has lost "
            "its end; their files are removed",
            WARNING,
        )
        self._drop(len(self._segments) - len(wrong), len(self._segments))

    def seal(self) -> None:
        """Hand what is open to the disk, and begin anew; costs the same whatever its size."""
        if not self._notes:
            return
        self._look()  # at what came since the last time: it is gone from here
        events = self._open_events()
        about = segments.about(events, self._jobs)
        self._sealed_end = events.end
        within_us = self._spread_us()
        self._begin()
        behind = sum(waiting.memory_bytes for waiting, _ in self._waiting)
        if behind > WAITING_BYTES_MAX:
            self._lost(events, f"{behind} bytes of older ones wait for the disk")
            return
        self._waiting.append((events, about))
        # After a damaged file, the log may bring its events again: the name is a good one's now.
        name = segments.name_of(events.first, events.end)
        self._left_out.pop(os.path.join(self.directory, name), None)
        written: list[EventSegment] = []

        def work() -> None:
            written.append(self._write(events, about, within_us))

        def done(error: OSError | None) -> None:
            del self._waiting[0]
            if error is not None:
                self._lost(events, str(error))
                return
            self._segments += written
            self.bytes += written[0].size
            self._spans = None

        # The lane of snapshots: one that is begun after this is complete only after this.
        self._host.files.submit(work, done, LANE_BULK)

    def _open_bytes(self) -> int:
        """What the open segment takes in memory."""
        queue = self._queue
        return open_bytes(queue.events, queue.externals, queue.details)

    def _spread_us(self) -> int:
        """Return over how long to make columns of the open segment."""
        if self._waiting or self._since_us < 0:
            return 0  # it is behind already, or came in a moment
        if self._open_bytes() > SPREAD_BYTES_MAX:
            return 0
        return min((self._loop_us - self._since_us) // SPREAD_DIVISOR, SPREAD_US_MAX)

    def _write(self, events: Events, about: About, within_us: int) -> EventSegment:
        """Runs in a thread."""
        try:
            batches = self._host.encode_events(events, within_us)
        except Exception as error:
            # Whatever it is, the queue goes on without these events.
            raise OSError(f"cannot be made columns: {error!r}") from error
        files = self._host.files
        return segments.write(
            files, self.directory, self._identity, events.first, events.end, about, batches
        )

    def _lost(self, events: Events, reason: str) -> None:
        self.lost += events.rows
        words = f"events {events.first} to {events.end} are not kept here: {reason}"
        self._host.log(words, WARNING)

    # --- time -----------------------------------------------------------------------------------

    def run_periodic(self, loop_us: int) -> None:
        """Called every 100 ms of the loop's time."""
        self._loop_us = loop_us
        if self.latencies.is_due(loop_us):
            self._look()
        if self._notes:
            if self._since_us < 0:
                self._since_us = loop_us
            elif loop_us - self._since_us >= self._config.event_segment_age_s * 1_000_000:
                self.seal()
        else:
            self._forget_names()  # tubes come and go without events, too
        if (self._segments or self._left_out) and loop_us >= self._next_retain_us:
            self._next_retain_us = loop_us + RETAIN_PERIOD_US
            if not self._removing:  # else the room that this makes would be counted twice
                self._retain()

    def _look(self) -> None:
        if self._queue.events_kept:
            self.latencies.look(self._queue.events, self._first, self._loop_us)

    def take_limits(self, config: NodeConfig) -> None:
        """Take other limits of what is kept."""
        self._config = config

    def _retain(self) -> None:
        """Remove the oldest segments that are too much, too old, or in the way of the queue."""
        config = self._config
        # The earlier of two clocks, so that one that is set ahead removes nothing.
        wall_us = min(self._host.wall_us(), self._machine.wall_us)
        oldest_us = wall_us - config.event_retain_age_s * 1_000_000
        # From twice the reserve on, so that events go before puts are refused.
        wanted = EVENT_RESERVES * self.reserve_bytes
        missing = wanted - self._host.files.free_bytes(self.directory)
        kept = self.bytes + sum(self._left_out.values())
        short = max(kept - config.event_retain_bytes, missing)
        freed = count = 0
        useless: list[str] = []
        while self._left_out and freed < short:
            path = next(iter(self._left_out))
            freed += self._left_out.pop(path)
            useless.append(path)
        if useless:
            self._host.log(f"left out before, and removed: {', '.join(useless)}")
            self._remove(useless)
        for found in self._segments:
            if freed >= short and found.about.wall_us[1] >= oldest_us:
                break
            count += 1
            freed += found.size
        if count and missing > 0:
            first, end = self._segments[0].first, self._segments[count - 1].end
            self._host.log(f"events {first} to {end} are removed: below twice the disk's reserve")
        self._drop(0, count)

    def _drop(self, start: int, end: int) -> None:
        """Forget segments by their places, and remove their files; readers of one go on."""
        gone = self._segments[start:end]
        if not gone:
            return
        del self._segments[start:end]
        self.bytes -= sum(found.size for found in gone)
        self._spans = None
        self._remove([found.path for found in gone])

    def _remove(self, paths: list[str]) -> None:
        self._removing += 1

        def work() -> None:
            for path in paths:
                self._host.files.remove(path)

        def done(error: OSError | None) -> None:
            self._removing -= 1
            if error is not None:
                self._host.log(f"cannot remove events: {error}", WARNING)

        self._host.files.submit(work, done, LANE_BULK)

    def busiest(self, count: int) -> Iterator[bytes]:
        """Return the names of the queues with most events lately, as far as they are known."""
        numbers = self.latencies.busiest(count)
        return (self._names[number] for number in numbers if number in self._names)

    # --- readers --------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The offset that the next event will have; while the log is brought again, an older."""
        return self._end if self._queue.events_kept else self._first

    def jobs(self) -> JobCounts:
        """The counts after all events before `end`."""
        queue = self._queue
        if not queue.events_kept:
            return self._jobs
        return JobCounts(queue.ready, queue.reserved, queue.delayed, queue.buried)

    @property
    def applied_index(self) -> int:
        """The last entry whose events are here, or could be."""
        return self._machine.index

    def jobs_before(self) -> JobCounts:
        """The counts before the first event of the first span."""
        if self._segments:
            return self._segments[0].about.jobs
        return self._waiting[0][1].jobs if self._waiting else self._jobs

    def spans(self) -> list[Span]:
        """The offsets that can be read here: (first, end), ascending; several if there are gaps."""
        if self._spans is None:
            self._spans = _joined([(found.first, found.end) for found in self._segments])
        memory = [events for events, _ in self._waiting] + [self._open_events()]
        found = _joined(self._spans + [(events.first, events.end) for events in memory])
        limit = self.end
        return [(first, min(end, limit)) for first, end in found if first < min(end, limit)]

    def part(self, offset: int) -> EventSegment | Events | None:
        """Return where an offset is: a file, or a copy of at most SLICE_ROWS from memory."""
        if offset >= self.end:
            return None
        place = bisect_right(self._segments, offset, key=lambda found: found.first) - 1
        if place >= 0 and offset < self._segments[place].end:
            return self._segments[place]
        for events in (*(events for events, _ in self._waiting), self._open_events()):
            if events.first <= offset < events.end:
                return events.slice(offset, min(offset + SLICE_ROWS, events.end))
        return None

    def walls(self) -> tuple[list[EventSegment], list[Events]]:
        """Return the files, and behind them the notes of what is in memory, without its records."""
        memory = [events for events, _ in self._waiting] + [self._open_events()]
        return list(self._segments), [
            events._replace(records=b"", notes=bytes(events.notes), externals=(), details=())
            for events in memory
        ]

    def leave_out(self, damaged: EventSegment, reason: str) -> None:
        """A segment cannot be read: say so once, and do not offer it any more."""
        if damaged in self._segments:
            self._segments.remove(damaged)
            self.bytes -= damaged.size
            self._spans = None
            self._leave_out(damaged.path, damaged.size, reason)

    def _open_events(self) -> Events:
        machine = self._machine
        # None of them is forgotten or renamed, so that those who read it later may have all.
        hosts = machine.hosts.names if machine.version >= HOSTS_SINCE else None
        return Events(
            self._first,
            self._queue.events,
            self._notes,
            self._names,
            self._members,
            hosts,
            self._queue.externals,
            self._queue.details,
        )


def _joined(spans: list[Span]) -> list[Span]:
    """Join what touches; empty ones vanish."""
    found: list[Span] = []
    for first, end in spans:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        elif first < end:
            found.append((first, end))
    return found
