"""Sorted sets with scores, and their ranges, against a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from beanpole.core.jobs.order import PART_MAX, Order
from beanpole.core.qless import ranges
from beanpole.core.qless.scores import Scores

MEMBERS = st.dictionaries(
    st.binary(min_size=1, max_size=2), st.sampled_from([-1.0, 0.0, 1.0, 2.5, 4.0]), max_size=12
)
RANKS = st.integers(-15, 15)
SCORES = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.5, 4.0, 9.0])


def filled(members: dict[bytes, float]) -> Scores:
    scores = Scores()
    for member, score in members.items():
        scores.add(member, score)
    return scores


def redis_slice(names: list[bytes], offset: int, count: int) -> list[bytes]:
    """Return ZRANGE offset, offset + count - 1."""
    size = len(names)
    first, last = offset, offset + count - 1
    first = max(0, first + size if first < 0 else first)
    last = last + size if last < 0 else last
    return names[first : last + 1] if last >= 0 else []


@given(MEMBERS, RANKS, RANKS)
def test_pages_are_those_of_redis(members: dict[bytes, float], offset: int, count: int) -> None:
    names = [member for _, member in sorted((s, m) for m, s in members.items())]
    scores = filled(members)
    assert ranges.page(scores, offset, count) == redis_slice(names, offset, count)
    names.reverse()
    assert ranges.page_from_top(scores, offset, count) == redis_slice(names, offset, count)


@given(MEMBERS, SCORES, SCORES, RANKS, RANKS)
def test_ranges_of_scores_are_those_of_redis(
    members: dict[bytes, float], low: float, high: float, offset: int, count: int
) -> None:
    """ZRANGEBYSCORE low high LIMIT offset count, and ZREVRANGEBYSCORE."""
    scores = filled(members)
    names = [m for s, m in sorted((s, m) for m, s in members.items()) if low <= s <= high]
    assert ranges.count_between(scores, low, high) == len(names)
    end = None if count < 0 else offset + count
    expected = [] if offset < 0 else names[offset:end]
    assert ranges.between(scores, low, high, offset, count) == expected
    names.reverse()
    expected = [] if offset < 0 else names[offset:end]
    assert ranges.between_from_top(scores, low, high, offset, count) == expected


@given(MEMBERS, SCORES, st.integers(0, 15), st.integers(0, 15))
def test_members_from_a_rank_on(
    members: dict[bytes, float], score: float, start: int, count: int
) -> None:
    scores = filled(members)
    pairs = sorted((s, m) for m, s in members.items())
    names = [member for _, member in pairs]
    assert scores.lowest(start, count) == names[start:][:count]
    assert scores.highest(start, count) == names[::-1][start:][:count]
    below = [member for one, member in pairs if one <= score]
    assert scores.upto(score, start, count) == below[start:][:count]
    above = [member for one, member in pairs if one >= score]
    assert scores.since(score, start, count) == above[start:][:count]


def test_a_part_of_an_order_skips_whole_lists() -> None:
    order = Order()
    size = 5 * PART_MAX
    for key in range(size):
        order.add(key)
    for start in (0, 1, PART_MAX - 1, PART_MAX, 3 * PART_MAX + 7, size - 1, size, size + 9):
        for count in (-1, 0, 1, PART_MAX, 2 * PART_MAX + 3, size):
            assert order.part(start, count) == [*range(size)][start:][: max(0, count)]
            backwards = [*range(size)][::-1][start:][: max(0, count)]
            assert order.part_from_end(start, count) == backwards
