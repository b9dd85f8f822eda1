"""Recent wait times, run times and rates of jobs by queue, computed from events.

Every node sees the events of the whole cluster, so each has figures for all of it, except for the
time before its own start. Nothing here is replicated or written. Every second a bounded number of
the new events is sampled, spread evenly over them; each sample stands for the events that were
skipped. A node that keeps no events has no figures.
"""

from collections.abc import Iterable
from heapq import nlargest
from struct import Struct
from typing import Final

from beanpole import events as e
from beanpole.constants import U32_MAX
from beanpole.core.jobs.job import DONE, FAILED, READY, RESERVED
from beanpoled.eventlog.events import Bytes
from beanpoled.eventlog.sketch import Sketch
from beanpoled.view import Lately, Quantiles

# At most about 4 ms of processor time each second, whatever the load.
LOOK_RECORDS_MAX: Final = 1_024
LOOK_PERIOD_US: Final = 1_000_000
# Figures cover the last one to two of these periods: long enough for a quantile of a slow queue,
# short enough to be current.
GENERATION_US: Final = 60_000_000
# The limit of queues with figures: queues that had events in the last two minutes. A queue with 100
# different durations takes some 20 KiB.
QUEUES_TRACKED_MAX: Final = 1_000

# Fields of a record: kind, states before and after, the tube's number, wait and run in
# microseconds.
_SHORT: Final = Struct("<BxBB4xI56xqq12x")
assert _SHORT.size == e.RECORD.size
_STEP: Final[int] = e.RECORD.size
# The golden ratio in 32 bits: the fractional parts of its multiples are spread evenly.
_GOLDEN: Final = 0x9E3779B1
# Kinds of events that end a job: it is gone, or has a result. A failure ends it, unless it is
# repeated.
_ENDS: Final = frozenset({e.DELETED, e.DONE, e.EXPIRED, e.FAILED})
# The states of a job that has ended and is kept, until it is gone.
_KEPT: Final = (DONE, FAILED)


class Figures:
    """The events of one queue, or of all queues.

    Attributes:
        puts: jobs that were put.
        reserved: reservations.
        ended: jobs that were deleted, done, expired, or failed for good.
        waits: times from ready to reserved.
        runs: times from reserved to the end of the reservation.
    """

    def __init__(self) -> None:
        self.puts = 0
        self.reserved = 0
        self.ended = 0
        self.waits = Sketch()
        self.runs = Sketch()

    @property
    def events(self) -> int:
        """The activity: puts, reservations and ends."""
        return self.puts + self.reserved + self.ended

    def add(self, event: tuple[int, ...], weight: int) -> None:
        """Count an event, as `_SHORT` unpacks it, that stands for `weight` events."""
        kind, before, after, _, wait_us, run_us = event
        if kind == e.PUT:
            self.puts += weight
        elif kind == e.RESERVED:
            self.reserved += weight
            if wait_us >= 0:
                self.waits.add(wait_us, weight)
        if before == RESERVED and run_us >= 0:
            self.runs.add(run_us, weight)
        if kind in _ENDS and before not in _KEPT and (kind != e.FAILED or after != READY):
            self.ended += weight

    def add_all(self, other: "Figures") -> None:
        """Add the counts of other figures."""
        self.puts += other.puts
        self.reserved += other.reserved
        self.ended += other.ended
        self.waits.add_all(other.waits)
        self.runs.add_all(other.runs)


class Latencies:
    """The figures of a node, by queue."""

    def __init__(self) -> None:
        # The offset up to which events were examined; -1: no present event counts, because the log
        # that is read again after a start contains events of earlier times.
        self._seen = -1
        self._now_us = 0
        self._look_us = 0
        self._begun_us = -1  # loop time of the first event that counts
        self._turned_us = 0
        # The older generation and the one in progress, by the tubes' numbers; and the sums over all
        # tubes, because adding up a thousand tubes would keep the loop busy for 60 ms.
        self._older: dict[int, Figures] = {}
        self._newer: dict[int, Figures] = {}
        self._older_all = Figures()
        self._newer_all = Figures()

    def is_due(self, loop_us: int) -> bool:
        """Whether the next sampling is due."""
        return self._seen < 0 or loop_us - self._look_us >= LOOK_PERIOD_US

    def look(self, records: Bytes, first: int, loop_us: int) -> None:
        """Sample the new events of the open segment.

        Args:
            records: of the segment, `RECORD.size` bytes each.
            first: the offset of its first event.
            loop_us: time of the loop.
        """
        self._look_us = self._now_us = loop_us
        end = first + len(records) // _STEP
        if self._begun_us < 0:
            self._begun_us = self._turned_us = loop_us
        elif loop_us - self._turned_us >= GENERATION_US:
            self._turn(loop_us)
        new = end - max(self._seen, first) if self._seen >= 0 else 0
        self._seen = end
        if new > 0:
            stride = -(-new // LOOK_RECORDS_MAX)
            self._count(records, end - first - new, stride)

    def forget(self) -> None:
        """Skip present events: the log continues elsewhere, so events may repeat or be missing."""
        self._seen = -1

    def _turn(self, loop_us: int) -> None:
        # A node that was stopped for long has no events of the last generation.
        is_stale = loop_us - self._turned_us >= 2 * GENERATION_US
        self._older, self._older_all = self._newer, self._newer_all
        if is_stale:
            self._older, self._older_all = {}, Figures()
        self._newer, self._newer_all = {}, Figures()
        self._begun_us = loop_us if is_stale else self._turned_us
        self._turned_us = loop_us

    def _count(self, records: Bytes, start: int, stride: int) -> None:
        unpack = _SHORT.unpack_from
        queues, every = self._newer, self._newer_all
        end = len(records) // _STEP
        for number, first in enumerate(range(start, end, stride)):
            # One of the next `stride` events, but not always the first: of a client that puts,
            # takes and deletes one job after the other, only the puts would be counted.
            at = min(first + ((number * _GOLDEN & U32_MAX) * stride >> 32), end - 1)
            event = unpack(records, at * _STEP)
            every.add(event, stride)
            tube = event[3]
            figures = queues.get(tube)
            if figures is None:
                if len(queues) >= QUEUES_TRACKED_MAX:
                    continue
                figures = queues[tube] = Figures()
            figures.add(event, stride)

    def of(self, number: int) -> Lately:
        """Return the figures of a queue by its tube's number."""
        return self._lately(
            generation[number] for generation in (self._older, self._newer) if number in generation
        )

    def of_all(self) -> Lately:
        """Return the figures of all queues together, including queues without their own figures."""
        return self._lately((self._older_all, self._newer_all))

    def busiest(self, count: int) -> list[int]:
        """Return the numbers of the queues with the most puts, reservations and ends."""
        sums: dict[int, int] = {}
        for generation in (self._older, self._newer):
            for number, figures in generation.items():
                sums[number] = sums.get(number, 0) + figures.events
        return nlargest(count, sums, key=sums.__getitem__)

    @property
    def seconds(self) -> float:
        """The length of time that the figures cover."""
        return (self._now_us - self._begun_us) / 1e6 if self._begun_us >= 0 else 0.0

    def _lately(self, parts: Iterable[Figures]) -> Lately:
        total = Figures()
        for part in parts:
            total.add_all(part)
        seconds = max(1.0, self.seconds)
        return Lately(
            total.puts / seconds,
            total.reserved / seconds,
            total.ended / seconds,
            _quantiles(total.waits),
            _quantiles(total.runs),
        )


def _quantiles(sketch: Sketch) -> Quantiles:
    p50_us, p90_us, p99_us = sketch.quantiles_us((0.5, 0.9, 0.99))
    return Quantiles(p50_us / 1e6, p90_us / 1e6, p99_us / 1e6, sketch.count)
