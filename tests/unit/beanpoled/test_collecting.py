"""Full collections of a node: when they run, and that they find what is older than the start."""

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from beanpoled.collecting import PERIOD_S, SMALL_MAX, Collector


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def frozen() -> Iterator[None]:
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


def begun(jobs: int) -> tuple[Collector, Any, weakref.ref[Cycle]]:
    """Begin with a cycle that nothing refers to after the start."""
    queue = SimpleNamespace(jobs=range(jobs), tubes=())
    machine = SimpleNamespace(queue=queue, qless=SimpleNamespace(by_id=()), sessions=0)
    context: Any = SimpleNamespace(loads=1, machine=machine)
    collector, cycle = Collector(context), Cycle()
    collector.begin(0.0)
    return collector, context, weakref.ref(cycle)


def test_a_small_node_is_collected_once_in_a_period() -> None:
    collector, _, cycle = begun(SMALL_MAX)
    collector.look(PERIOD_S - 1)
    assert cycle() is not None
    collector.look(PERIOD_S)
    assert cycle() is None


def test_a_large_node_is_not_collected_while_it_works() -> None:
    collector, _, cycle = begun(SMALL_MAX + 1)
    collector.look(PERIOD_S)
    assert cycle() is not None


def test_a_replaced_machine_is_collected_at_once() -> None:
    collector, context, cycle = begun(SMALL_MAX + 1)
    context.loads += 1
    collector.look(1.0)
    assert cycle() is None
    later = weakref.ref(Cycle())
    collector.look(2.0)
    assert later() is not None, "one collection is enough"
