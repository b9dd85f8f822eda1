"""Histories keep their first item and the newest ones, by number and by size."""

from collections.abc import Iterator
from typing import Any

import pytest

from beanpole import qless as q
from beanpole.core.qless import config, history
from beanpole.core.qless.job import history_bytes
from tests.unit.core.qless.making import empty_tables, waiting_job


def whens(limit: bytes | None, items: int) -> list[float]:
    """Return the times of a history to which items were added at 0, 1, 2, ..."""
    t = empty_tables()
    job = waiting_job(t, b"jid")
    if limit is not None:
        config.config_set(t, q.CORE, 0.0, (b"max-job-history", limit))
    for when in range(items):
        history.append(t, job, when + 0.9, q.HAS_PUT, b"q")
    return [item[0] for item in job.history]


@pytest.mark.parametrize(
    ("limit", "items", "expected"),
    [
        (None, 99, [*range(99)]),
        (None, 150, [0, *range(51, 150)]),
        (b"5", 5, [0, 1, 2, 3, 4]),
        (b"5", 9, [0, 5, 6, 7, 8]),
        (b"1", 4, [0, 3]),
        (b"nonsense", 101, [0, *range(2, 101)]),
        (b"0", 1002, [0, *range(3, 1002)]),
        (b"1e9", 1001, [0, *range(2, 1001)]),
    ],
)
def test_the_first_item_stays_and_the_newest(
    limit: bytes | None, items: int, expected: list[int]
) -> None:
    assert whens(limit, items) == expected


def test_large_items_push_older_ones_out() -> None:
    t = empty_tables()
    job = waiting_job(t, b"jid")
    history.append(t, job, 0.0, q.HAS_PUT, b"q")
    half = b"x" * (q.HISTORY_MAX_BYTES // 2 - 1)
    for when in range(1, 4):
        history.log(t, q.CORE, float(when), (b"jid", half, b""))
    assert [item[0] for item in job.history] == [0, 2, 3]


class Counting(list[Any]):
    """A list that counts the items that are read from it."""

    read = 0

    def __iter__(self) -> Iterator[Any]:
        self.read += len(self)
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.read += len(found) if isinstance(place, slice) else 1
        return found


@pytest.mark.constants
def test_an_item_is_added_without_a_look_at_the_others() -> None:
    """One entry may have thousands of them: each took 0.14 ms at a history of 1,000 items."""
    t = empty_tables()
    job = waiting_job(t, b"jid")
    config.config_set(t, q.CORE, 0.0, (b"max-job-history", b"0"))
    job.history = items = Counting()
    added = 2 * q.HISTORY_MAX
    for when in range(added):
        history.append(t, job, float(when), q.HAS_LOGGED, b"text", b"%d" % when)
    assert len(items) == q.HISTORY_MAX
    assert items.read <= added, "each item is read once, when it makes room"
    assert job.texts == job.history_texts == history_bytes(job.history)


def test_what_no_history_has_room_for_is_refused() -> None:
    t = empty_tables()
    job = waiting_job(t, b"jid")
    whole = b"x" * q.HISTORY_MAX_BYTES
    assert history.log(t, q.CORE, 0.0, (b"jid", whole, b"{}"))[0] == q.TOO_MUCH
    assert job.history == []


def test_a_client_adds_an_item() -> None:
    t = empty_tables()
    job = waiting_job(t, b"jid")
    assert history.log(t, q.CORE, 3.5, (b"jid", b"half way", b'{"n":1}')) == (q.OK, None)
    assert job.history == [(3.0, q.HAS_LOGGED, b"half way", b'{"n":1}')]
    assert history.log(t, q.CORE, 3.5, (b"no", b"half way", b"")) == (q.NO_JOB, (b"no",))
