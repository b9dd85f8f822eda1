"""Sick nodes step aside. That each schedule can fail is shown in `test_mutants`."""

import inspect
from collections.abc import Callable

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from tests.sim import schedules_sick

SCHEDULES: list[Callable[[int, Repairs], None]] = [
    schedule
    for name, schedule in inspect.getmembers(schedules_sick, inspect.isfunction)
    if schedule.__module__ == schedules_sick.__name__ and not name.startswith("_")
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: str(schedule.__name__))
def test_a_sick_node_steps_aside(schedule: Callable[[int, Repairs], None]) -> None:
    schedule(0, ALL_REPAIRS)


def test_all_are_there() -> None:
    assert len(SCHEDULES) >= 6
