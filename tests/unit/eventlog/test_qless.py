"""Events of qless's jobs: their queues are named also by a node that has started from an image."""

import pytest

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.operations import qless as operations
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import Events
from tests.unit.eventlog.made import Driver
from tests.unit.eventlog.test_store import Life, image_of


def put(driver: Driver, jid: bytes, queue: bytes) -> None:
    args = (queue, jid, b"klass", b"{}", 0.0, b"", None, None, None, (), (), False)
    driver.do(operations.command(1, q.PUT, q.THROTTLES, 1.0, args))


def tubes(life: Life) -> list[str]:
    """The names in the newest segment, as its columns have them."""
    part = life.log.part(life.log._first)
    assert isinstance(part, Events)
    found: list[str] = columns.to_arrow(part).column("tube").to_pylist()
    return found


def begin() -> Life:
    life = Life()
    life.driver.apply((1, 0, 0, 0, [(c.LEADER, 0, 0, ((c.RAISE, c.MACHINE_VERSION),))]))
    life.driver.do((c.OPEN, 1))
    put(life.driver, b"first", b"weave")
    return life


def test_a_node_that_starts_from_an_image_names_the_queues() -> None:
    life = begin()
    named = tubes(life)
    life.log.seal()
    life.settle()
    machine, number = image_of(life.driver.machine), life.driver.number
    life = life.crash()
    life.log.attach(machine)
    life.driver = Driver(life.log, machine)
    life.driver.number = number
    put(life.driver, b"second", b"weave")
    assert tubes(life) == named


def test_names_stay_when_those_of_tubes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beanpoled.eventlog.store.STALE_NAMES", 10)
    life = begin()
    named = tubes(life)
    for place in range(100):
        life.driver.do((c.PUT, 1, b"tube %d" % place, 5, 0, 60, b""))
        life.driver.do((c.DELETE, 1, life.driver.machine.queue.next_id - 1))
    life.log.seal()
    put(life.driver, b"second", b"weave")
    assert tubes(life) == named
