"""A sorted set as in Redis: members in the order of their scores.

Members of equal score are in the order of their bytes. Scores are finite, except that some calls
use infinity (TIMEOUT puts a job in front of all others); they are never NaN.
"""

from collections.abc import Iterator
from math import nextafter
from typing import Final

from beanpole.core.jobs.order import Order

INFINITY: Final = float("inf")


class Scores:
    """Members with scores. No operation takes long, except those that return many members.

    Attributes:
        bytes: the total size of the members.
    """

    __slots__ = ("_order", "_scores", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._scores: dict[bytes, float] = {}
        self._order = Order()

    def __len__(self) -> int:
        return len(self._scores)

    def __contains__(self, member: bytes) -> bool:
        return member in self._scores

    def score(self, member: bytes) -> float | None:
        """Return the score of a member; None if it is not in the set."""
        return self._scores.get(member)

    def add(self, member: bytes, score: float) -> bool:
        """Set the score of a member; returns whether the member is new."""
        before = self._scores.get(member)
        if before is None:
            self.bytes += len(member)
        else:
            if before == score:
                return False
            self._order.remove((before, member))
        self._scores[member] = score
        self._order.add((score, member))
        return before is None

    def remove(self, member: bytes) -> bool:
        """Remove a member; returns whether it was in the set."""
        score = self._scores.pop(member, None)
        if score is None:
            return False
        self.bytes -= len(member)
        self._order.remove((score, member))
        return True

    def ends(self) -> tuple[float, float]:
        """Return the lowest and the highest score of a set that is not empty."""
        return self._order.first()[0], self._order.last()[0]

    def lowest(self, start: int, count: int) -> list[bytes]:
        """Return members from a rank on, the lowest score first."""
        return [member for _, member in self._order.part(start, count)]

    def highest(self, start: int, count: int) -> list[bytes]:
        """Return members from a rank on, the highest score first."""
        return [member for _, member in self._order.part_from_end(start, count)]

    def upto(self, score: float, start: int, count: int) -> list[bytes]:
        """Return members with this score or a lower one, the lowest first."""
        first = self._order.first()
        if first is None or first[0] > score:  # the usual case: nothing is due yet
            return []
        return self.lowest(start, min(count, self.count_upto(score) - start))

    def since(self, score: float, start: int, count: int) -> list[bytes]:
        """Return members with this score or a higher one, the lowest first."""
        return self.lowest(self.count_below(score) + start, count)

    def count_below(self, score: float) -> int:
        """Return the number of members with a lower score."""
        return self._order.count_below((score, b""))

    def count_upto(self, score: float) -> int:
        """Return the number of members with this score or a lower one."""
        if score >= INFINITY:
            return len(self)
        return self._order.count_below((nextafter(score, INFINITY), b""))

    def copied(self) -> list[list[tuple[float, bytes]]]:
        """Return all (score, member) in order, in small lists: 1 us per thousand members."""
        return self._order.copied()

    def __iter__(self) -> Iterator[bytes]:
        for _, member in self._order:
            yield member
