"""Parts of sets, by the rules of Redis for its ranges, which clients rely on.

A page is from `offset` to `offset + count - 1`, where a negative number counts from the end: a
count of 0 from 0 on is all. None stands for more than a list may have.
"""

from beanpole import qless as q
from beanpole.core.qless.scores import Scores


def page(scores: Scores, offset: int, count: int) -> list[bytes] | None:
    """Members by rank, the lowest score first."""
    start, number = bounds(len(scores), offset, count)
    return None if number > q.LISTED_MAX else scores.lowest(start, number)


def page_from_top(scores: Scores, offset: int, count: int) -> list[bytes] | None:
    """Members by rank, the highest score first."""
    start, number = bounds(len(scores), offset, count)
    return None if number > q.LISTED_MAX else scores.highest(start, number)


def bounds(size: int, offset: int, count: int) -> tuple[int, int]:
    """The first rank of a page, and how many ranks it has."""
    first, last = offset, offset + count - 1
    if first < 0:
        first = max(0, first + size)
    if last < 0:
        last += size
    return first, max(0, min(last, size - 1) - first + 1)


def between(scores: Scores, low: float, high: float, offset: int, count: int) -> list[bytes] | None:
    """Members with scores from `low` to `high`, the lowest first; a negative count is all."""
    start = scores.count_below(low)
    first, number = _limited(scores.count_upto(high) - start, offset, count)
    return None if number > q.LISTED_MAX else scores.lowest(start + first, number)


def between_from_top(
    scores: Scores, low: float, high: float, offset: int, count: int
) -> list[bytes] | None:
    """Members with scores from `low` to `high`, the highest first; a negative count is all."""
    end = scores.count_upto(high)
    first, number = _limited(end - scores.count_below(low), offset, count)
    if number > q.LISTED_MAX:
        return None
    return scores.highest(len(scores) - end + first, number)


def count_between(scores: Scores, low: float, high: float) -> int:
    """How many members have scores from `low` to `high`."""
    return max(0, scores.count_upto(high) - scores.count_below(low))


def _limited(size: int, offset: int, count: int) -> tuple[int, int]:
    if offset < 0:
        return 0, 0
    rest = max(0, size - offset)
    return offset, rest if count < 0 else min(rest, count)
