"""The waiting line: clients blocked in `reserve`, first come first served in each tube.

The line lives at the leader only and is volatile: after a change of leader the origins resend their
waits. It only proposes; the GRANT in the log decides which client gets a job. No I/O, no clock.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

# Lazily deleted places are swept when they outnumber the live ones by more than this.
STALE_SLACK: Final = 64
# Each place that is taken pays for a sweep of this many: more than the two that keep up with it.
SWEPT_PER_PLACE: Final = 4
# A new line pays for a look at this many others, so that lines without waiters never outnumber
# those with waiters by much.
LINES_PER_NEW: Final = 2
# The limit of waiting clients' tubes that one turn examines, so that lists of a thousand tubes do
# not hold it up: a place in a line takes a tenth of a microsecond.
LOOKS_PER_TURN_MAX: Final = 16_384

# (origin, its incarnation, session): the sessions of a new incarnation have the same numbers.
Key = tuple[int, int, int]


class Waiter:
    """One blocked client."""

    __slots__ = (
        "behind",
        "granting",
        "key",
        "parked",
        "place",
        "request",
        "tubes",
        "until_us",
    )

    def __init__(self, key: Key, request: int, behind: int, place: int) -> None:
        self.key = key
        self.request = request
        self.behind = behind  # the origin's batch that the wait stands behind
        self.place = place
        self.tubes: tuple[bytes, ...] = ()
        self.granting = False  # a GRANT for this waiter is in the log and not applied
        # The cluster time at which its origin asked to end the wait; 0 if it did not.
        self.until_us = 0
        self.parked = False  # its origin is silent; it keeps its place


class _Line:
    """The places in one tube: a heap that also has places whose waiters have left them.

    A place is a plain number, because all lines together may have a million of them: with a tuple
    for each, the garbage collector held a leader up for longer than an election.
    """

    __slots__ = ("places", "sweep_at")

    def __init__(self) -> None:
        self.places: list[int] = []
        self.sweep_at = STALE_SLACK  # the number of places at which it is swept


class WaitingLine:
    """All waiters: by client, and by tube in the order of their places."""

    def __init__(self) -> None:
        self.waiters: dict[Key, Waiter] = {}
        self._placed: dict[int, Waiter] = {}  # the same, by place
        self._lines: dict[bytes, _Line] = {}
        self._round: deque[bytes] = deque()  # the tubes of all lines, the next to look at first
        self._sweepable = 0  # the number of places that sweeps may look at now
        self._next_place = 1

    def __len__(self) -> int:
        return len(self.waiters)

    def next_place(self) -> int:
        """Allocate a new place at the end of every line."""
        self._next_place += 1
        return self._next_place - 1

    def add(self, waiter: Waiter, tubes: Iterable[bytes]) -> None:
        """Add a waiter, and enter it at its place in the lines of its tubes.

        A waiter that is being granted a job stands in no line: see `put_back`.
        """
        assert waiter.key not in self.waiters
        waiter.tubes = tuple(tubes)
        self.waiters[waiter.key] = waiter
        self._placed[waiter.place] = waiter
        self.put_back(waiter)

    def move(self, waiter: Waiter, tubes: Iterable[bytes]) -> None:
        """Let a waiter stand only in the lines of these tubes, at the end of each."""
        del self._placed[waiter.place]
        waiter.place = self.next_place()
        self._placed[waiter.place] = waiter
        waiter.tubes = tuple(tubes)
        self.put_back(waiter)

    def put_back(self, waiter: Waiter) -> None:
        """Return a waiter to its place: it was granted nothing, or its origin sends again."""
        if self.waiters.get(waiter.key) is waiter and not (waiter.granting or waiter.parked):
            self._enter(waiter)

    def _enter(self, waiter: Waiter) -> None:
        # All lines of clients that watch a thousand tubes grow by the same places: they may not be
        # swept in the same call.
        sweepable = self._sweepable + SWEPT_PER_PLACE * len(waiter.tubes)
        self._sweepable = min(sweepable, LOOKS_PER_TURN_MAX)
        place = waiter.place
        for tube in waiter.tubes:
            line = self._lines.get(tube)
            if line is None:
                line = self._begin_line(tube)
            heappush(line.places, place)
            size = len(line.places)
            if size > line.sweep_at and self._sweepable >= min(size, LOOKS_PER_TURN_MAX):
                self._sweepable -= size
                self._sweep(line)

    def _begin_line(self, tube: bytes) -> _Line:
        """Begin the line of a tube, and end others without waiters.

        A tube that clients watch for one reply each is soon gone, and then no job and no waiter
        leads to its line again.
        """
        for _ in range(min(LINES_PER_NEW, len(self._round))):
            other = self._round.popleft()
            # Not `first`: to drop a thousand places from a heap takes ten times as long.
            if self._placed.keys().isdisjoint(self._lines[other].places):
                del self._lines[other]
            else:
                self._round.append(other)
        line = self._lines[tube] = _Line()
        self._round.append(tube)
        return line

    def remove(self, key: Key) -> Waiter | None:
        """Forget a waiter; its places are skipped from now on."""
        waiter = self.waiters.pop(key, None)
        if waiter is not None:
            del self._placed[waiter.place]
        return waiter

    def first(self, tube: bytes) -> Waiter | None:
        """The first waiter of a tube that can be granted a job now.

        Places of waiters that are gone, parked or being granted a job are dropped; `put_back`
        enters them again.
        """
        line = self._lines.get(tube)
        if line is None:
            return None
        places = line.places
        while places:
            waiter = self._placed.get(places[0])
            if waiter is not None and not waiter.granting and not waiter.parked:
                return waiter
            heappop(places)
        return None

    def of_origin(self, origin: int) -> Iterator[Waiter]:
        """The waiters of one origin."""
        return (waiter for waiter in list(self.waiters.values()) if waiter.key[0] == origin)

    def clear(self) -> None:
        """Forget everything: leadership is lost."""
        self.waiters.clear()
        self._placed.clear()
        self._lines.clear()
        self._round.clear()

    def _sweep(self, line: _Line) -> None:
        line.places[:] = self._placed.keys() & set(line.places)
        heapify(line.places)
        line.sweep_at = 2 * len(line.places) + STALE_SLACK
