"""Ranges of sorted sets by the rules of Redis, which clients rely on.

A page goes from `offset` to `offset + count - 1`, where a negative number counts from the end: a
count of 0 from 0 on is everything. The result None means that the list would exceed LISTED_MAX.
"""

from beanpole import qless as q
from beanpole.core.qless.scores import Scores


def page(scores: Scores, offset: int, count: int) -> list[bytes] | None:
    """Return members by rank, the lowest score first."""
    start, number = bounds(len(scores), offset, count)
    return None if number > q.LISTED_MAX else scores.lowest(start, number)


def page_from_top(scores: Scores, offset: int, count: int) -> list[bytes] | None:
    """Return members by rank, the highest score first."""
    start, number = bounds(len(scores), offset, count)
    return None if number > q.LISTED_MAX else scores.highest(start, number)


def bounds(size: int, offset: int, count: int) -> tuple[int, int]:
    """Return the first rank of a page, and its number of ranks."""
    first, last = offset, offset + count - 1
    if first < 0:
        first = max(0, first + size)
    if last < 0:
        last += size
    return first, max(0, min(last, size - 1) - first + 1)


def between(scores: Scores, low: float, high: float, offset: int, count: int) -> list[bytes] | None:
    """Return members with scores from `low` to `high`, the lowest first; all if `count` < 0."""
    start = scores.count_below(low)
    first, number = _limited(scores.count_upto(high) - start, offset, count)
    return None if number > q.LISTED_MAX else scores.lowest(start + first, number)


def between_from_top(
    scores: Scores, low: float, high: float, offset: int, count: int
) -> list[bytes] | None:
    """Return members with scores from `low` to `high`, the highest first; all if `count` < 0."""
    end = scores.count_upto(high)
    first, number = _limited(end - scores.count_below(low), offset, count)
    if number > q.LISTED_MAX:
        return None
    return scores.highest(len(scores) - end + first, number)


def count_between(scores: Scores, low: float, high: float) -> int:
    """Return the number of members with scores from `low` to `high`."""
    return max(0, scores.count_upto(high) - scores.count_below(low))


def _limited(size: int, offset: int, count: int) -> tuple[int, int]:
    if offset < 0:
        return 0, 0
    rest = max(0, size - offset)
    return offset, rest if count < 0 else min(rest, count)
