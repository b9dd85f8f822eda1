"""An ordered set with bounded operations, against a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from beanpole.core.jobs.order import PART_MAX, Order

KEYS = st.integers(0, 40)


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "pop"]), KEYS), max_size=200))
def test_it_is_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    order, expected = Order(), set[int]()
    for what, key in steps:
        if what == "add" and key not in expected:
            order.add(key)
            expected.add(key)
        elif what == "remove" and key in expected:
            order.remove(key)
            expected.remove(key)
        elif what == "pop" and expected:
            order.pop_first()
            expected.remove(min(expected))
        assert order.first() == min(expected, default=None)
        assert list(order) == sorted(expected)
        assert len(order) == len(expected)


def test_no_part_is_longer_than_a_part_may_be() -> None:
    """Keys added at the end fill parts, keys added between others split them."""
    order = Order()
    for key in range(0, 20 * PART_MAX, 2):
        order.add(key)
    assert [len(part) for part in order._parts] == [PART_MAX] * 10
    for key in range(1, 20 * PART_MAX, 2):
        order.add(key)
    assert max(map(len, order._parts)) <= PART_MAX
    assert list(order) == list(range(20 * PART_MAX))
    for key in range(20 * PART_MAX - 1, 0, -1):
        order.remove(key)
    assert order._parts == [[0]]
    assert order._lasts == [0]
    order.pop_first()
    assert not order._parts
    assert not order._lasts


def test_pairs_are_ordered_by_both() -> None:
    order = Order()
    for pair in ((2, b"a"), (1, b"b"), (1, b"a")):
        order.add(pair)
    assert list(order) == [(1, b"a"), (1, b"b"), (2, b"a")]
    order.remove((1, b"b"))
    assert order.first() == (1, b"a")
