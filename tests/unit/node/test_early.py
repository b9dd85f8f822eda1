"""Waits that arrive before the batch that precedes them: acceptance, time and cost."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.sessions import Origin
from beanpole.errors import ProtocolError
from beanpoled.leading import early
from beanpoled.leading.early import EarlyWaits
from beanpoled.links import frames
from tests.unit.node.stage import leading


def origins(next_number: int = 5, incarnation: int = 1, alive: bool = True) -> dict[int, Origin]:
    """Return origin 1."""
    origin = Origin(1)
    origin.incarnation, origin.next_number, origin.alive = incarnation, next_number, alive
    return {1: origin}


def taken(waits: EarlyWaits, known: dict[int, Origin]) -> list[tuple[int, int, bool]]:
    """Return (session, request, ending) of the waits that can be registered now."""
    waits.look(known)
    return [(place[2], wait.request, wait.ending) for place, wait in iter(waits.take, None)]


@pytest.fixture
def waits() -> EarlyWaits:
    return EarlyWaits()


def test_a_wait_is_taken_when_its_batch_is_applied(waits: EarlyWaits) -> None:
    waits.add(1, 1, [(7, 1, 5), (8, 1, 4), (9, 1, 6)])
    assert waits.behind(origins()) == 2
    assert taken(waits, origins()) == [(8, 1, False)]
    assert (waits.count, waits.behind(origins())) == (2, 2)
    assert taken(waits, origins(6)) == [(7, 1, False)]
    assert taken(waits, origins(6)) == []
    assert taken(waits, origins(7)) == [(9, 1, False)]
    assert waits.count == 0


def test_the_wait_that_came_first_is_taken_first_whatever_its_origin(waits: EarlyWaits) -> None:
    known = origins() | {2: origins()[1]}
    waits.add(2, 1, [(1, 1, 0)])
    waits.add(1, 1, [(2, 1, 0)])
    waits.add(2, 1, [(3, 1, 0)])
    waits.look(known)
    assert [place for place, _ in iter(waits.take, None)] == [(2, 1, 1), (1, 1, 2), (2, 1, 3)]


def test_a_wait_that_is_to_end_ends_when_it_is_registered(waits: EarlyWaits) -> None:
    waits.add(1, 1, [(7, 3, 5), (8, 1, 0)])
    waits.end((1, 1, 8), 1)
    assert taken(waits, origins()) == [(8, 1, True)]
    waits.end((1, 1, 7), 2)  # of an earlier request
    waits.end((1, 2, 7), 3)  # of another incarnation
    waits.end((1, 1, 9), 1)
    assert taken(waits, origins(6)) == [(7, 3, False)]


def test_what_comes_again_is_there_once(waits: EarlyWaits) -> None:
    for _ in range(3):
        waits.add(1, 1, [(7, 1, 5), (8, 1, 0)])
    waits.end((1, 1, 7), 1)
    waits.add(1, 1, [(7, 1, 5)])
    assert waits.count == 2
    assert taken(waits, origins()) == [(8, 1, False)]
    waits.add(1, 1, [(7, 1, 5)])
    assert taken(waits, origins(6)) == [(7, 1, True)]


def test_a_later_request_of_a_session_takes_the_place_of_the_one_before(waits: EarlyWaits) -> None:
    waits.add(1, 1, [(7, 1, 5)])
    assert taken(waits, origins()) == []
    waits.end((1, 1, 7), 1)
    waits.add(1, 1, [(7, 2, 5), (7, 3, 6)])
    assert waits.count == 1
    assert taken(waits, origins(6)) == []
    assert taken(waits, origins(7)) == [(7, 3, False)]


def test_waits_of_an_incarnation_that_is_not_up_yet_are_kept(waits: EarlyWaits) -> None:
    waits.add(1, 2, [(7, 1, 0)])
    for known in ({}, origins(), origins(incarnation=2, alive=False)):
        assert taken(waits, known) == []
    assert taken(waits, origins(1, incarnation=2)) == [(7, 1, False)]


def test_waits_of_a_dead_incarnation_are_forgotten(waits: EarlyWaits) -> None:
    waits.add(1, 1, [(7, 1, 9), (8, 1, 0)])
    assert taken(waits, origins(incarnation=2)) == []
    assert waits.count == 0
    waits.add(1, 2, [(1, 1, 9)])
    waits.add(1, 1, [(2, 1, 0)])
    assert waits.count == 1
    waits.add(1, 3, [(3, 1, 0)])
    assert taken(waits, origins(incarnation=3)) == [(3, 1, False)]


def test_a_link_that_ends_takes_only_its_own(waits: EarlyWaits) -> None:
    waits.add(1, 1, [(7, 1, 9), (8, 1, 0)])
    waits.add(2, 1, [(7, 1, 0)])
    waits.forget(1)
    waits.forget(1)
    assert waits.count == 1
    waits.look(origins() | {2: origins()[1]})
    assert [place for place, _ in iter(waits.take, None)] == [(2, 1, 7)]


@pytest.mark.constants
def test_an_origin_may_not_flood_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "EARLY_MAX", 3)
    stage = leading()
    stage.items("n1", frames.WAITS, *((session, 1, 9) for session in (1, 2, 3)))
    stage.items("n1", frames.WAITS, (3, 2, 9))
    with pytest.raises(ProtocolError, match="too many clients"):
        stage.items("n1", frames.WAITS, (4, 1, 9))


@pytest.mark.parametrize("number", [-1, 2**63, 1.0, "1"])
def test_numbers_that_no_wait_has_are_refused(number: object) -> None:
    for term, incarnation, request in ((1, number, 1), (number, 1, 1), (1, 1, number)):
        with pytest.raises(ProtocolError):
            frames.decode_items(frames.pack((term, incarnation, [(1, 1, request)])), 3)


def lines_run(action: Callable[[], object]) -> int:
    """Count the lines of the node's own code that an action runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "beanpole" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.constants
def test_a_turn_with_many_early_waits_that_end_costs_as_much_for_each() -> None:
    """4,000 clients whose first command is `reserve-with-timeout 0` cost 0.4 s per turn."""
    costs = []
    for clients in (200, 800):
        stage = leading()
        sessions = range(10, 10 + clients)
        stage.batch("n1", 2, *((c.OPEN, session) for session in sessions))
        waits = frames.encode_items(1, 1, [(session, 1, 2) for session in sessions])
        ends = frames.encode_items(1, 1, [(session, 1) for session in sessions])

        def come(waits: bytes = waits, ends: bytes = ends, node: Any = stage.node) -> None:
            node.router.receive("n1", frames.WAITS, waits)
            node.router.receive("n1", frames.UNWAITS, ends)
            node.leader.proposer.propose()
            node.leader.unwaits.turn()

        first, again = lines_run(come), lines_run(stage.node.leader.proposer.propose)
        costs.append(first)
        assert again < 200, "a turn that finds nothing new looks at each of them again"
        stage.commit()
        for done in stage.replica.confirmations:
            done()
        stage.run()
        (frame,) = stage.sent(frames.NONES, "n1")
        assert len(frames.decode_items(frame, 3)[2]) == clients
    assert costs[1] < 5 * costs[0]
