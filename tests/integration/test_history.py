"""The judge of the fault tests detects planted faults."""

from collections.abc import Callable

import pytest

from tests.integration.support.history import (
    DELETED,
    INSERTED,
    UNKNOWN,
    Delete,
    Delivery,
    History,
    Put,
    judge,
)


def good_history() -> History:
    """Return a history with every permitted outcome and no fault."""
    return History(
        puts=[
            Put(b"a", INSERTED, 1),
            Put(b"b", INSERTED, 2),
            Put(b"c", UNKNOWN, 0),
            Put(b"d", UNKNOWN, 0),
            Put(b"e", "DRAINING", 0),
        ],
        deliveries=[Delivery(1, b"a"), Delivery(2, b"b"), Delivery(2, b"b"), Delivery(3, b"c")],
        deletes=[Delete(1, DELETED), Delete(2, UNKNOWN), Delete(2, DELETED), Delete(3, DELETED)],
    )


def test_a_good_history_is_good() -> None:
    verdict = judge(good_history())
    assert verdict.good
    assert (verdict.attempts, verdict.acknowledged, verdict.recovered) == (5, 2, 1)


def lose(history: History) -> None:
    history.puts.append(Put(b"f", INSERTED, 6))


def lose_after_delivery(history: History) -> None:
    history.puts.append(Put(b"f", INSERTED, 6))
    history.deliveries.append(Delivery(6, b"f"))
    history.deletes.append(Delete(6, "NOT_FOUND"))


def invent(history: History) -> None:
    history.deliveries.append(Delivery(7, b"nobody"))


def swap_bodies(history: History) -> None:
    history.deliveries[0] = Delivery(1, b"b")


def deliver_what_was_refused(history: History) -> None:
    history.deliveries.append(Delivery(8, b"e"))


def delete_twice(history: History) -> None:
    history.deletes.append(Delete(1, DELETED))


def put_twice(history: History) -> None:
    history.deliveries.append(Delivery(9, b"c"))


def give_an_id_twice(history: History) -> None:
    history.puts.append(Put(b"g", INSERTED, 1))


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lose, "lost"),
        (lose_after_delivery, "lost"),
        (invent, "unexpected"),
        (swap_bodies, "unexpected"),
        (deliver_what_was_refused, "unexpected"),
        (delete_twice, "doubled"),
        (put_twice, "doubled"),
        (give_an_id_twice, "doubled"),
        (give_an_id_twice, "lost"),
    ],
)
def test_every_fault_is_found(spoil: Callable[[History], None], kind: str) -> None:
    history = good_history()
    spoil(history)
    verdict = judge(history)
    assert not verdict.good
    assert getattr(verdict, kind)
