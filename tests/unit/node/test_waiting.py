"""The waiting line: its order, the first waiter of a tube, and skipped waiters."""

from beanpoled.leading.waiting import STALE_SLACK, Waiter, WaitingLine


def add(line: WaitingLine, session: int, *tubes: bytes, origin: int = 0) -> Waiter:
    waiter = Waiter((origin, 1, session), 1, 0, line.next_place())
    line.add(waiter, tubes)
    return waiter


def test_the_first_to_come_is_first_in_every_tube() -> None:
    line = WaitingLine()
    first, second = add(line, 1, b"a"), add(line, 2, b"a", b"b")
    assert (line.first(b"a"), line.first(b"b"), line.first(b"c")) == (first, second, None)
    assert len(line) == 2


def test_a_waiter_that_is_being_granted_something_is_passed_over_and_keeps_the_place() -> None:
    line = WaitingLine()
    first, second = add(line, 1, b"a"), add(line, 2, b"a")
    first.granting = True
    assert line.first(b"a") is second
    line.put_back(first)
    assert line.first(b"a") is second
    first.granting = False
    line.put_back(first)
    assert line.first(b"a") is first


def test_a_waiter_that_is_granted_something_at_once_stands_in_no_line() -> None:
    line = WaitingLine()
    first = Waiter((0, 1, 1), 1, 0, line.next_place())
    first.granting = True
    line.add(first, (b"a", b"b"))
    second = add(line, 2, b"b")
    assert (line.first(b"a"), line.first(b"b"), len(line)) == (None, second, 2)
    first.granting = False
    line.put_back(first)
    assert (line.first(b"a"), line.first(b"b")) == (first, first)


def test_a_waiter_that_is_parked_is_passed_over_and_keeps_the_place() -> None:
    line = WaitingLine()
    first, second = add(line, 1, b"a"), add(line, 2, b"a")
    first.parked = True
    assert line.first(b"a") is second
    first.parked = False
    line.put_back(first)
    assert line.first(b"a") is first


def test_a_waiter_that_left_is_never_first() -> None:
    line = WaitingLine()
    first = add(line, 1, b"a")
    assert line.remove(first.key) is first
    assert line.remove(first.key) is None
    line.put_back(first)
    assert line.first(b"a") is None


def test_a_client_that_waits_again_has_a_new_place() -> None:
    line = WaitingLine()
    old = add(line, 1, b"a")
    other = add(line, 2, b"a")
    line.remove(old.key)
    again = add(line, 1, b"a")
    assert line.first(b"a") is other
    line.remove(other.key)
    assert line.first(b"a") is again


def test_the_waiters_of_one_origin() -> None:
    line = WaitingLine()
    mine = [add(line, 1, b"a", origin=3), add(line, 2, b"b", origin=3)]
    add(line, 1, b"a", origin=4)
    assert list(line.of_origin(3)) == mine
    line.clear()
    assert list(line.of_origin(3)) == []
    assert line.first(b"a") is None


def test_places_of_waiters_that_left_do_not_pile_up() -> None:
    line = WaitingLine()
    stays = add(line, 1, b"a")
    stays.parked = True
    for session in range(2, 2000):
        add(line, session, b"a")
        line.remove((0, 1, session))
    assert len(line._lines[b"a"]) <= STALE_SLACK + 3
    stays.parked = False
    line.put_back(stays)
    assert line.first(b"a") is stays
