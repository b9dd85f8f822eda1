"""A sorted set: members in the order of their scores, as Redis has it.

Equal scores are in the order of the members' bytes. Scores are finite, or infinite where a call
says so (TIMEOUT puts a job in front of all); they are never NaN.
"""

from collections.abc import Iterator
from math import nextafter
from typing import Final

from beanpole.core.jobs.order import Order

INFINITY: Final = float("inf")


class Scores:
    """Members with scores. No operation is long, but those that give many members."""

    __slots__ = ("_order", "_scores")

    def __init__(self) -> None:
        self._scores: dict[bytes, float] = {}
        self._order = Order()

    def __len__(self) -> int:
        return len(self._scores)

    def __contains__(self, member: bytes) -> bool:
        return member in self._scores

    def score(self, member: bytes) -> float | None:
        """The score of a member; None if it is not there."""
        return self._scores.get(member)

    def add(self, member: bytes, score: float) -> bool:
        """Give a member a score; whether it is new."""
        before = self._scores.get(member)
        if before is not None:
            if before == score:
                return False
            self._order.remove((before, member))
        self._scores[member] = score
        self._order.add((score, member))
        return before is None

    def remove(self, member: bytes) -> bool:
        """Take a member out; whether it was there."""
        score = self._scores.pop(member, None)
        if score is None:
            return False
        self._order.remove((score, member))
        return True

    def lowest(self, start: int, count: int) -> list[bytes]:
        """Members from a rank on, the lowest score first."""
        return [member for _, member in self._order.part(start, count)]

    def highest(self, start: int, count: int) -> list[bytes]:
        """Members from a rank on, the highest score first."""
        return [member for _, member in self._order.part_from_end(start, count)]

    def upto(self, score: float, start: int, count: int) -> list[bytes]:
        """Members with this score or a lower one, the lowest first."""
        first = self._order.first()
        if first is None or first[0] > score:  # most often, for what is to come later
            return []
        return self.lowest(start, min(count, self.count_upto(score) - start))

    def since(self, score: float, start: int, count: int) -> list[bytes]:
        """Members with this score or a higher one, the lowest first."""
        return self.lowest(self.count_below(score) + start, count)

    def count_below(self, score: float) -> int:
        """How many members have a lower score."""
        return self._order.count_below((score, b""))

    def count_upto(self, score: float) -> int:
        """How many members have this score or a lower one."""
        if score >= INFINITY:
            return len(self)
        return self._order.count_below((nextafter(score, INFINITY), b""))

    def copied(self) -> list[list[tuple[float, bytes]]]:
        """Return all (score, member) in order, cut into small lists: 1 us for a thousand."""
        return self._order.copied()

    def __iter__(self) -> Iterator[bytes]:
        for _, member in self._order:
            yield member
