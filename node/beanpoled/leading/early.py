"""Waits that reached the leader before the batch that they stand behind was applied.

This module decides only when each wait may be registered, and which waits end at once; the waiting
line is in `waiting`, and proposals are in `dispatching`. No I/O, no clock. The cost of a wait does
not depend on the number of early waits, because thousands of clients may arrive at one moment.
"""

from collections import deque
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final

from beanpole.core.sessions import Origin
from beanpoled.leading.waiting import Key

# The limit for one origin. A session has at most one early wait, and a node at most this many
# connections (`connections_max`); an origin that sends more is broken.
EARLY_MAX: Final = 1_000_000


class EarlyWait:
    """A wait that is not registered yet."""

    __slots__ = ("behind", "ending", "fresh", "request")

    def __init__(self, request: int, behind: int) -> None:
        self.request = request
        self.behind = behind  # the origin's batch that the wait stands behind
        self.ending = False  # its origin has already asked for its end
        self.fresh = True  # `look` has not checked yet whether that batch is applied


class _Arrivals:
    """The early waits of one incarnation of an origin."""

    __slots__ = ("buckets", "incarnation", "numbers", "waits")

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.waits: dict[int, EarlyWait] = {}  # by session
        # Sessions by the batch that their wait stands behind, and the numbers of those batches as a
        # heap.
        self.buckets: dict[int, list[int]] = {}
        self.numbers: list[int] = []

    def later(self, session: int, wait: EarlyWait) -> None:
        """Keep a wait until its batch is applied."""
        wait.fresh = False
        bucket = self.buckets.get(wait.behind)
        if bucket is None:
            bucket = self.buckets[wait.behind] = []
            heappush(self.numbers, wait.behind)
        bucket.append(session)


class EarlyWaits:
    """All early waits, by origin.

    Attributes:
        count: their number.
    """

    def __init__(self) -> None:
        self.count = 0
        self._origins: dict[int, _Arrivals] = {}
        self._fresh: list[tuple[int, int]] = []  # (origin, session), in the order of arrival
        # Waits whose batch is applied and that were not taken yet; some of them are forgotten.
        self._ready: deque[tuple[Key, EarlyWait]] = deque()

    def add(self, origin: int, incarnation: int, items: list[tuple[int, ...]]) -> bool:
        """Accept WAITs (session, request, behind); return False if there are too many."""
        arrivals = self._origins.get(origin)
        if arrivals is None or arrivals.incarnation < incarnation:
            self.forget(origin)
            arrivals = self._origins[origin] = _Arrivals(incarnation)
        elif arrivals.incarnation > incarnation:
            return True  # that incarnation is over, and its clients wait no more
        waits = arrivals.waits
        for session, request, behind in items:
            known = waits.get(session)
            if known is None:
                if len(waits) >= EARLY_MAX:
                    return False
                self.count += 1
            elif known.request >= request:
                continue  # an origin may resend everything on the same link
            if known is not None and known.fresh:
                known.request, known.behind, known.ending = request, behind, False
            else:
                waits[session] = EarlyWait(request, behind)
                self._fresh.append((origin, session))
        return True

    def end(self, key: Key, request: int) -> None:
        """Accept an UNWAIT: the wait is to end as soon as it is registered."""
        arrivals = self._origins.get(key[0])
        if arrivals is not None and arrivals.incarnation == key[1]:
            wait = arrivals.waits.get(key[2])
            if wait is not None and wait.request == request:
                wait.ending = True

    def behind(self, origins: Mapping[int, Origin]) -> int:
        """The number of waits behind batches that are not applied; exact before the next `look`."""
        count = self.count - len(self._fresh)
        for index, session in self._fresh:
            arrivals = self._origins[index]
            count += arrivals.waits[session].behind >= _next_number(origins, index, arrivals)
        return count

    def take(self) -> tuple[Key, EarlyWait] | None:
        """Remove and return the first wait whose batch is applied."""
        while self._ready:
            key, wait = self._ready.popleft()
            arrivals = self._origins.get(key[0])
            # The wait may be forgotten, or a later request of the session may have replaced it.
            if arrivals is not None and arrivals.waits.get(key[2]) is wait:
                del arrivals.waits[key[2]]
                self.count -= 1
                return key, wait
        return None

    def look(self, origins: Mapping[int, Origin]) -> None:
        """Find the waits whose batches are applied; forget those of dead incarnations."""
        for index in list(self._origins):
            self._look_at_kept(index, _next_number(origins, index, self._origins[index]))
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            for index, session in fresh:
                arrivals = self._origins.get(index)
                if arrivals is None:
                    continue
                wait = arrivals.waits[session]
                if wait.behind < _next_number(origins, index, arrivals):
                    wait.fresh = False
                    self._ready.append(((index, arrivals.incarnation, session), wait))
                else:
                    arrivals.later(session, wait)

    def _look_at_kept(self, index: int, number: int) -> None:
        arrivals = self._origins[index]
        if number == _DEAD:
            self.forget(index)
            return
        numbers, waits = arrivals.numbers, arrivals.waits
        while numbers and numbers[0] < number:
            behind = heappop(numbers)
            for session in arrivals.buckets.pop(behind):
                wait = waits.get(session)
                # Otherwise a later request of the session has replaced the wait.
                if wait is not None and not wait.fresh and wait.behind == behind:
                    self._ready.append(((index, arrivals.incarnation, session), wait))

    def forget(self, origin: int) -> None:
        """Forget the waits of an origin whose link ended: they come again on the next link."""
        arrivals = self._origins.pop(origin, None)
        if arrivals is not None:
            self.count -= len(arrivals.waits)
            self._fresh = [item for item in self._fresh if item[0] != origin]

    def clear(self) -> None:
        """Forget everything: leadership is lost."""
        self.count = 0
        self._origins.clear()
        self._fresh.clear()
        self._ready.clear()


_DEAD: Final = -1


def _next_number(origins: Mapping[int, Origin], index: int, arrivals: _Arrivals) -> int:
    """The first unapplied batch of this incarnation; 0 before its NODE_UP, _DEAD after its end."""
    origin = origins.get(index)
    if origin is None or not origin.alive or origin.incarnation < arrivals.incarnation:
        return 0
    return origin.next_number if origin.incarnation == arrivals.incarnation else _DEAD
