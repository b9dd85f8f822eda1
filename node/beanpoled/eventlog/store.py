"""The events that this node keeps: the open segment in memory, the sealed segments in files.

All of it is called in the node's loop. The machine appends records to its queue's buffer; after
each entry `applied` adds one note. Sealing a segment hands that buffer over to another thread,
which converts it into columns and a file. Events never stop the queue: those that cannot be kept
are a gap.

Exactly once: before the log is truncated, the events of the truncated entries are sealed (see
`Callbacks.begin_image`); events that a restart emits again are dropped up to the end of the newest
file.
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
from beanpole.storage.files import LANE_BULK, LANE_LOOK_EVENTS, measure
from beanpole.storage.format import Identity
from beanpoled.config.node import NodeConfig
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import NOTE, Events, open_bytes
from beanpoled.eventlog.latencies import Latencies
from beanpoled.eventlog.segment import About, EventSegment
from beanpoled.eventlog.spans import Span, joined
from beanpoled.host.seam import WARNING, Host
from beanpoled.view import JobCounts

DIRECTORY: Final = "events"
# The limit of sealed events in memory that are not written yet: a disk that is further behind gets
# no more.
WAITING_BYTES_MAX: Final = 128 * 1024 * 1024
# The conversion of a segment is spread over a fourth of the time in which its events came, so that
# it neither holds up the clients nor falls behind; but over no more than this, because snapshots
# wait.
SPREAD_DIVISOR: Final = 4
SPREAD_US_MAX: Final = 5_000_000
# The conversion of a larger segment is not spread: the next sealed segment might find no room
# meanwhile.
SPREAD_BYTES_MAX: Final = WAITING_BYTES_MAX // 4
# The period of checks for segments to remove.
RETAIN_PERIOD_US: Final = 1_000_000
# Events are removed when less than this multiple of the disk's reserve is free: before puts are
# refused.
EVENT_RESERVES: Final = 2
# Names of deleted tubes are forgotten when they outnumber the living tubes by more than this.
STALE_NAMES: Final = 1024
# The size of a reader's slice of the events in memory: copying it takes a tenth of a millisecond.
SLICE_ROWS: Final = 16_384


class EventLog:
    """A node's events.

    Attributes:
        kept: whether this process keeps events.
        refusal: why it keeps none, for readers.
    """

    def __init__(self, config: NodeConfig, host: Host, machine: Machine) -> None:
        self.kept = config.events == "on"
        self.refusal = 'it has events = "off"'
        self.directory = os.path.join(config.data_dir, DIRECTORY)
        self._config = config
        self._host = host
        self._identity = Identity(config.cluster, config.node_id)
        self._members = tuple(sorted(config.members))
        self._segments: list[EventSegment] = []
        self.bytes = 0  # of the segments' files
        # Files that are not offered, and their sizes: they are removed first.
        self._left_out: dict[str, int] = {}
        self.lost = 0  # events that could not be kept
        self.reserve_bytes = config.disk_reserve_bytes  # of the disk, as it is now
        self._waiting: list[tuple[Events, About]] = []
        self._waiting_bytes = 0
        # Events of the log below this offset are kept already; and the description of the last
        # file that was found, if any.
        self._sealed_end = 0
        self._sealed_about: About | None = None
        self._notes = bytearray()
        self._loop_us = 0  # loop time of the last `run_periodic`
        self._since_us = -1  # loop time at which the open segment was first seen with events
        self._next_retain_us = 0
        self.latencies = Latencies()
        self._removing = 0  # removals in progress
        self._is_looking = False  # whether the free space is being measured
        self._remove_failure = ""  # why the last one failed
        self._is_silent = False  # whether the disk did not tell its free space
        self._spans: list[Span] | None = None  # of the segments, joined
        self._machine = machine
        self._follow(machine)

    def open(self) -> None:
        """Find the segments of an earlier process.

        Without its directory a node keeps no events: it would write again those that are in files
        which it does not see.
        """
        if not self.kept:
            return
        try:
            paths = segments.find(self._host.files, self.directory, self._warn)
        except OSError as error:
            self.kept, paths = False, []
            self.refusal = f"{self.directory} could not be used at its start"
            self._warn(
                f"no events are kept until the next start: {error}; make {self.directory} a "
                f"directory that user {os.geteuid()} can read and write, or remove it, and restart"
            )
        for path in paths:
            self._find(path)
        self._follow(self._machine)

    def _warn(self, words: str) -> None:
        self._host.log(words, WARNING)

    def _find(self, path: str) -> None:
        try:
            found = segments.inspect(self._host.files, path, self._identity)
        except (WrongIdentity, OSError) as doubt:
            # A segment of another node, or perhaps a good one: operators must decide about it.
            self._warn(f"events left out: {doubt}")
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
        """Stop offering a file, and remove it when its space is needed."""
        self._left_out[path] = size
        self._warn(f"events left out: {reason}")

    def _size(self, path: str) -> int:
        with suppress(OSError), closing(self._host.files.open(path)) as handle:
            return handle.size()
        return 0

    # --- from the machine -----------------------------------------------------------------------

    def attach(self, machine: Machine, is_own: bool = False) -> None:
        """Continue with another machine: the open segment belongs to the old one.

        Args:
            machine: the new machine, from a snapshot.
            is_own: whether this node has made the snapshot; it has sealed its events before.
        """
        self.seal()
        is_proven = is_own or self._config.durability != "memory"
        if self.kept and not self._queue.events_kept and not is_proven:
            self._distrust("a snapshot came from another member before the log had proven them")
        self._follow(machine)

    def _follow(self, machine: Machine) -> None:
        self._machine = machine
        queue = self._queue = machine.queue
        self.latencies.forget()
        self._names = self._living_names()
        queue.tubes_named.clear()
        self._end = queue.events_total
        # Events that the log emits again are not kept a second time.
        queue.events_kept = self.kept and self._sealed_end <= self._end
        self._begin()

    def _begin(self) -> None:
        """Begin a segment at the machine's present offset."""
        queue = self._queue
        self._first = self._end
        self._jobs = self._job_counts()
        self._since_us = -1
        self._notes = bytearray()
        queue.events = bytearray()
        queue.externals = []
        queue.details = []
        self._forget_names()

    def _forget_names(self) -> None:
        """Forget names of deleted tubes; called while the open segment is empty."""
        living = len(self._queue.tubes) + len(self._machine.qless.queues)
        if len(self._names) > 2 * living + STALE_NAMES:
            # A new dictionary: sealed segments keep the old one.
            self._names = self._living_names()

    def _living_names(self) -> dict[int, bytes]:
        names = {tube.number: name for name, tube in self._queue.tubes.items()}
        names |= emitting.queue_names(self._machine.qless)
        return names

    def applied(self, index: int, wall_us: int) -> None:
        """Note an applied entry. This is on the path of every command: a few steps per entry."""
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
        """Keep events from here on: the log has emitted all events again that are in files."""
        about = self._sealed_about
        assert about is not None, "only files make a node drop events"
        expected = (about.log_index[1], self._sealed_end, about.state_hash)
        if expected != (index, self._end, self._machine.state_hash):
            self._distrust("the log has lost its end")
        self._queue.events_kept = True
        self._names = self._living_names()  # names were not tracked meanwhile
        self._begin()

    def _distrust(self, reason: str) -> None:
        """Drop files that may not belong to the log: with durability "memory" it can lose its end.

        Only files that a snapshot covers are known to belong to the log.
        """
        wrong = [found for found in self._segments if found.end > self._first]
        self._warn(
            f"events {self._first} to {self._sealed_end} may not be those of the log: {reason}; "
            "their files are removed"
        )
        self._drop(len(self._segments) - len(wrong), len(self._segments))
        self._sealed_end = min(self._sealed_end, self._first)

    def seal(self) -> None:
        """Hand the open segment to the disk, and begin a new one; the cost is constant."""
        if not self._notes:
            return
        self._look()  # sample the latest events before they leave
        events = self._open_events()
        about = segments.about(events, self._jobs)
        self._sealed_end = events.end
        within_us = self._spread_us()
        self._begin()
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self._lost(events, f"{self._waiting_bytes} bytes of older ones wait for the disk")
            return
        self._waiting.append((events, about))
        self._waiting_bytes += events.memory_bytes
        # After a damaged file, the log may emit its events again: the name now belongs to a good
        # file.
        name = segments.name_of(events.first, events.end)
        self._left_out.pop(os.path.join(self.directory, name), None)
        written: list[EventSegment] = []

        def work() -> None:
            written.append(self._write(events, about, within_us))

        def done(error: OSError | None) -> None:
            del self._waiting[0]
            self._waiting_bytes -= events.memory_bytes
            if error is not None:
                self._lost(events, str(error))
                return
            self._segments += written
            self.bytes += written[0].size
            self._spans = None

        # The lane of snapshots: a snapshot that begins after this is complete only after this.
        self._host.files.submit(work, done, LANE_BULK)

    def _open_bytes(self) -> int:
        """The memory that the open segment takes."""
        queue = self._queue
        return open_bytes(queue.events, queue.externals, queue.details)

    def _spread_us(self) -> int:
        """Return the time over which to spread the conversion of the open segment."""
        if self._waiting or self._since_us < 0:
            return 0  # the disk is behind already, or all events came in a moment
        if self._open_bytes() > SPREAD_BYTES_MAX:
            return 0
        return min((self._loop_us - self._since_us) // SPREAD_DIVISOR, SPREAD_US_MAX)

    def _write(self, events: Events, about: About, within_us: int) -> EventSegment:
        """Convert and write a segment; runs in a thread."""
        try:
            batches = self._host.encode_events(events, within_us)
        except Exception as error:
            # After any error the queue continues without these events.
            raise OSError(f"cannot be made columns: {error!r}") from error
        files = self._host.files
        return segments.write(
            files, self.directory, self._identity, events.first, events.end, about, batches
        )

    def _lost(self, events: Events, reason: str) -> None:
        self.lost += events.rows
        self._warn(f"events {events.first} to {events.end} are not kept here: {reason}")

    # --- time -----------------------------------------------------------------------------------

    def run_periodic(self, loop_us: int) -> None:
        """Sample, seal and remove segments when due; called every 100 ms of the loop's time."""
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
            # While files are being removed, their space would be counted twice.
            if not (self._removing or self._is_looking):
                self._measure()

    def _look(self) -> None:
        if self._queue.events_kept:
            self.latencies.look(self._queue.events, self._first, self._loop_us)

    def take_limits(self, config: NodeConfig) -> None:
        """Apply other limits for retention."""
        self._config = config

    def _measure(self) -> None:
        """Measure the free space, then `_retain`; a disk of the events alone may hang meanwhile."""
        self._is_looking = True

        def done(free: int, error: OSError | None) -> None:
            self._is_looking = False
            if error is not None and not self._is_silent:  # operators may have removed it
                self._warn(f"the free space of {self.directory} is unknown: {error}")
            self._is_silent = error is not None
            if not self._removing:
                missing = EVENT_RESERVES * self.reserve_bytes - free
                self._retain(missing if error is None else 0)

        measure(self._host.files, self.directory, LANE_LOOK_EVENTS, done)

    def _retain(self, missing: int) -> None:
        """Remove the oldest segments above the limits of size or age, and `missing` bytes."""
        config = self._config
        # The earlier of two clocks, so that a clock set ahead removes nothing.
        wall_us = min(self._host.wall_us(), self._machine.wall_us)
        oldest_us = wall_us - config.event_retain_age_s * 1_000_000
        kept = self.bytes + sum(self._left_out.values())
        short = max(kept - config.event_retain_bytes, missing)
        freed = count = 0
        useless: dict[str, int] = {}
        while self._left_out and freed < short:
            path = next(iter(self._left_out))
            useless[path] = self._left_out.pop(path)
            freed += useless[path]
        if useless:
            self._remove(useless, f"left out before, and removed: {', '.join(useless)}")
        for found in self._segments:
            if freed >= short and found.about.wall_us[1] >= oldest_us:
                break
            count += 1
            freed += found.size
        limits = "above event_retain_bytes or event_retain_age_s" if count > 1 else ""
        self._drop(0, count, "below twice the disk's reserve" if missing > 0 else limits)

    def _drop(self, start: int, end: int, reason: str = "") -> None:
        """Forget segments by position, and remove their files; a reader of one goes on."""
        gone = self._segments[start:end]
        if not gone:
            return
        del self._segments[start:end]
        self.bytes -= sum(found.size for found in gone)
        self._spans = None
        if reason:  # one file at a time, as it gets too old, is not worth a line
            self._host.log(f"events {gone[0].first} to {gone[-1].end} are removed: {reason}")
        self._remove({found.path: found.size for found in gone})

    def _remove(self, sizes: dict[str, int], words: str = "") -> None:
        """Remove files; those that stay are tried again. `words` are logged if none stays."""
        self._removing += 1
        stay: dict[str, int] = {}

        def work() -> None:
            for path, size in sizes.items():
                try:
                    self._host.files.remove(path)
                except FileNotFoundError:
                    pass  # an operator has removed it
                except OSError as error:
                    stay[path] = size
                    failure = error
            if stay:
                raise failure

        def done(error: OSError | None) -> None:
            self._removing -= 1
            self._left_out |= stay
            failure = "" if error is None else f"cannot remove events: {error}"
            if failure and failure != self._remove_failure:
                # Once: it is tried every second.
                self._warn(failure)
            elif words and not failure:
                self._host.log(words)
            self._remove_failure = failure

        self._host.files.submit(work, done, LANE_BULK)

    def busiest(self, count: int) -> Iterator[bytes]:
        """Return the names of the queues with the most recent events, as far as they are known."""
        numbers = self.latencies.busiest(count)
        return (self._names[number] for number in numbers if number in self._names)

    # --- readers --------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The offset of the next event; while the log emits old events again, an older offset."""
        return self._end if self._queue.events_kept else self._first

    def jobs(self) -> JobCounts:
        """The counts after all events before `end`."""
        return self._job_counts() if self._queue.events_kept else self._jobs

    def _job_counts(self) -> JobCounts:
        queue = self._queue
        return JobCounts(queue.ready, queue.reserved, queue.delayed, queue.buried)

    @property
    def applied_index(self) -> int:
        """The last entry whose events are in this log, or could be."""
        return self._machine.index

    def jobs_before(self) -> JobCounts:
        """The counts before the first event of the first span."""
        if self._segments:
            return self._segments[0].about.jobs
        return self._waiting[0][1].jobs if self._waiting else self._jobs

    def spans(self) -> list[Span]:
        """The offsets that can be read here: (first, end), ascending; several if there are gaps."""
        if self._spans is None:
            self._spans = joined([(found.first, found.end) for found in self._segments])
        memory = [(events.first, events.end) for events in self._in_memory()]
        found = joined(self._spans + memory)
        limit = self.end
        return [(first, min(end, limit)) for first, end in found if first < min(end, limit)]

    def part(self, offset: int) -> EventSegment | Events | None:
        """Return the part with an offset: a file, or a copy of at most SLICE_ROWS from memory."""
        if offset >= self.end:
            return None
        place = bisect_right(self._segments, offset, key=lambda found: found.first) - 1
        if place >= 0 and offset < self._segments[place].end:
            return self._segments[place]
        for events in self._in_memory():
            if events.first <= offset < events.end:
                return events.slice(offset, min(offset + SLICE_ROWS, events.end))
        return None

    def walls(self) -> tuple[list[EventSegment], list[Events]]:
        """Return the files, and the notes of the events in memory, without their records."""
        return list(self._segments), [
            events._replace(records=b"", notes=bytes(events.notes), externals=(), details=())
            for events in self._in_memory()
        ]

    def leave_out(self, damaged: EventSegment, reason: str) -> None:
        """Stop offering a segment that cannot be read, and log it once."""
        if damaged in self._segments:
            self._segments.remove(damaged)
            self.bytes -= damaged.size
            self._spans = None
            self._leave_out(damaged.path, damaged.size, reason)

    def _in_memory(self) -> list[Events]:
        """The events in no file yet, the oldest first: sealed ones, then the open segment."""
        return [*(events for events, _ in self._waiting), self._open_events()]

    def _open_events(self) -> Events:
        machine = self._machine
        # Hosts are never forgotten or renamed, so the whole mapping is safe for later readers.
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
