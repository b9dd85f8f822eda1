"""The waiting line: its order, the first waiter of a tube, and skipped waiters."""

import gc

import pytest

from beanpoled.leading.waiting import (
    LINES_PER_NEW,
    LOOKS_PER_TURN_MAX,
    STALE_SLACK,
    Waiter,
    WaitingLine,
)


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
    assert len(line._lines[b"a"].places) <= STALE_SLACK + 3
    stays.parked = False
    line.put_back(stays)
    assert line.first(b"a") is stays


def test_places_behind_a_blocked_waiter_do_not_pile_up_because_other_lines_are_long() -> None:
    line = WaitingLine()
    for session in range(1000):
        add(line, session, b"%d" % session)
    for _ in range(500):
        line.remove(add(line, 5000, b"7").key)
    assert len(line._lines[b"7"].places) <= STALE_SLACK + 3


def test_the_garbage_collector_visits_no_place() -> None:
    line = WaitingLine()
    for session in range(10):
        add(line, session, b"a", b"b")
    places = [place for of in line._lines.values() for place in of.places]
    assert len(places) == 20
    assert not any(map(gc.is_tracked, places))


def test_a_line_is_not_forgotten_while_its_only_waiter_is_being_granted_something() -> None:
    line = WaitingLine()
    first = add(line, 1, b"a")
    first.granting = True
    for number in range(10):
        add(line, 2 + number, b"other-%d" % number)
    assert b"a" in line._lines
    first.granting = False
    line.put_back(first)
    assert line.first(b"a") is first


def test_a_waiter_that_moves_stands_at_the_end_of_its_new_lines_and_in_no_old_one() -> None:
    line = WaitingLine()
    first, second = add(line, 1, b"a", b"b"), add(line, 2, b"b")
    line.move(first, (b"b",))
    assert line.first(b"a") is None
    assert line.first(b"b") is second
    line.remove(second.key)
    assert line.first(b"b") is first
    assert line.remove(first.key) is first
    assert line.first(b"b") is None


def test_lines_that_nobody_stands_in_are_forgotten() -> None:
    line = WaitingLine()
    blocked = [add(line, session, b"%d" % session) for session in range(10)]
    for number in range(2000):  # a tube for one reply each
        waiter = add(line, 5000, b"reply-%d" % number)
        assert line.first(b"reply-%d" % number) is waiter
        line.remove(waiter.key)
    assert len(line._lines) == len(line._round) <= 1 + LINES_PER_NEW * len(blocked)
    assert [line.first(waiter.tubes[0]) for waiter in blocked] == blocked


@pytest.mark.constants
def test_the_lines_of_a_thousand_tubes_are_not_swept_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = WaitingLine()
    tubes = [b"%d" % number for number in range(1000)]
    swept = 0
    sweep = line._sweep

    def counted(of: object) -> None:
        nonlocal swept
        swept += len(of.places)  # type: ignore[attr-defined]
        sweep(of)  # type: ignore[arg-type]

    monkeypatch.setattr(line, "_sweep", counted)
    add(line, 0, *tubes)  # blocked for ever, in front of the others
    looks = []
    for number in range(3 * STALE_SLACK):
        waiter = add(line, 1 + number, *tubes)
        line.remove(waiter.key)
        looks.append(swept)
        swept = 0
    assert 0 < max(looks) <= LOOKS_PER_TURN_MAX
    assert max(len(of.places) for of in line._lines.values()) <= 3 * STALE_SLACK
