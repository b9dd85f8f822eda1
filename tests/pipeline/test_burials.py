"""Buried jobs that are moved to another queue: a move has two events, which a border may divide."""

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from random import Random

import pytest

from pyspark_beanpole.statistics import answers
from pyspark_beanpole.statistics.keys import Parts
from pyspark_beanpole.statistics.parts import merged, reduced
from tests.pipeline.double import event
from tests.pipeline.histories import Event
from tests.pipeline.kept import LIMITS, Row, batch

JOB = 7
# Steps of a job: each is one event, or both events of a move.
STEPS: dict[str, list[tuple[str, str, str, str | None]]] = {
    "buried": [("buried", "reserved", "buried", None)],
    "changed": [("moved", "buried", "buried", "admin")],
    "moved": [("moved", "buried", "moving", "admin"), ("moved", "moving", "buried", "admin")],
    "moved as ready": [
        ("moved", "buried", "moving", "admin"), ("moved", "moving", "ready", "admin"),
    ],
    "moved to be buried": [
        ("moved", "ready", "moving", "admin"), ("moved", "moving", "buried", "admin"),
    ],
    "kicked": [("kicked", "buried", "ready", None)],
    "deleted": [("deleted", "buried", "gone", None)],
}  # fmt: skip
STATES = {"moved as ready": "ready", "kicked": "ready", "deleted": "gone"}


def lived(steps: Iterable[str]) -> tuple[list[Event], int | None]:
    """Return the events of a job, and the offset of its burial if it is buried at the end."""
    events = [event(0, job_id=JOB)]
    burial: int | None = None
    for step in steps:
        for name, before, after, reason in STEPS[step]:
            columns = {"event": name, "state_before": before, "state": after, "reason": reason}
            events.append(event(len(events), job_id=JOB, **columns))
        if step in STATES:
            burial = None
        elif step in ("buried", "moved to be buried"):
            burial = len(events) - 1
    return events, burial


def letters(parts: Parts) -> list[Row]:
    found: list[Row] = answers.dead_letters(parts).to_pylist()
    return found


def cut(events: Sequence[Event], cuts: Sequence[int]) -> list[Parts]:
    edges = pairwise([0, *cuts, len(events)])
    return [reduced([batch(events[low:high])], LIMITS) for low, high in edges]


LIVES = [
    ("buried", "moved"),
    ("buried", "changed", "moved", "moved"),
    ("buried", "moved", "kicked", "moved to be buried", "moved"),
    ("buried", "moved", "moved as ready"),
    ("buried", "moved as ready", "buried", "moved"),
    ("buried", "kicked", "buried", "moved", "deleted"),
    ("moved to be buried", "moved", "changed"),
]


@pytest.mark.parametrize("steps", LIVES)
def test_a_move_of_a_buried_job_is_no_burial_wherever_ranges_end(steps: tuple[str, ...]) -> None:
    events, burial = lived(steps)
    wanted = [] if burial is None else [burial]
    places = range(1, len(events))
    for cuts in [(), *combinations(places, 1), *combinations(places, 2)]:
        pieces = cut(events, cuts)
        for order in (pieces, pieces[::-1], [*pieces[::2], *pieces[1::2]]):
            parts = merged([])
            for piece in order:
                parts = merged([parts, piece])
            assert [row["offset"] for row in letters(parts)] == wanted, (cuts, steps)
            assert parts["buried"].num_rows == len(wanted), "nothing is kept of what is over"


def test_an_event_for_each_range_in_any_order() -> None:
    random = Random(3)
    for steps in LIVES * 10:
        events, burial = lived(steps)
        pieces = cut(events, range(1, len(events)))
        while len(pieces) > 1:
            random.shuffle(pieces)
            some = random.randint(1, len(pieces))
            pieces = [merged(pieces[:some]), *pieces[some:]]
        [parts] = pieces
        assert [row["offset"] for row in letters(parts)] == ([] if burial is None else [burial])


def test_the_columns_are_those_of_the_burial_also_while_the_job_is_moved() -> None:
    events, _ = lived(("buried", "moved"))
    events[1] |= {"worker": "n0:1:1", "run_us": 5, "tube": "work"}
    for end in (2, 3, 4):
        [row] = letters(reduced([batch(events[:end])], LIMITS))
        found = [row[name] for name in ("offset", "worker", "run_us", "tube")]
        assert found == [1, "n0:1:1", 5, "work"]


@pytest.mark.parametrize("tubes", [["work"], ["dead"]])
def test_of_some_queues_a_job_is_where_it_was_moved(tubes: list[str]) -> None:
    """The events of the other queue are left out, so the burial is that of the move."""
    events, _ = lived(("buried", "moved", "changed"))
    for one in events:
        one["tube"] = "work" if one["offset"] < 3 else "dead"
    parts = reduced([batch(events)], LIMITS, tubes=tubes)
    assert [row["offset"] for row in letters(parts)] == ([] if tubes == ["work"] else [3])
