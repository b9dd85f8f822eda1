"""Events of qless's jobs: a node started from an image still names their queues."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.operations import qless as operations
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import Events
from tests.unit.eventlog.made import Driver
from tests.unit.eventlog.test_store import Life, image_of


def call(driver: Driver, now: float, code: int, *args: Any) -> None:
    driver.do(operations.command(1, code, q.THROTTLES, now, args))


def put(driver: Driver, jid: bytes, queue: bytes, now: float = 1.0) -> None:
    call(driver, now, q.PUT, queue, jid, b"K", b"{}", 0.0, b"", None, None, None, (), (), False)


def complete(driver: Driver, jid: bytes, queue: bytes, now: float) -> None:
    put(driver, jid, queue, now)
    call(driver, now, q.POP, queue, b"loom-1", 1)
    call(driver, now, q.COMPLETE, jid, b"loom-1", queue, b"{}", None, 0.0, ())


def rows(life: Life) -> list[dict[str, Any]]:
    """Return the rows of the newest segment."""
    part = life.log.part(life.log._first)
    assert isinstance(part, Events)
    found: list[dict[str, Any]] = columns.to_arrow(part).to_pylist()
    return found


def tubes(life: Life) -> list[str]:
    """Return the queue names in the columns of the newest segment."""
    return [row["tube"] for row in rows(life)]


def restarted(life: Life) -> Life:
    """Restart the node from an image."""
    life.log.seal()
    life.settle()
    machine, number = image_of(life.driver.machine), life.driver.number
    life = life.crash()
    life.log.attach(machine)
    life.driver = Driver(life.log, machine)
    life.driver.number = number
    return life


def begin() -> Life:
    life = Life()
    life.driver.apply((1, 0, 0, 0, [(c.LEADER, 0, 0, ((c.RAISE, c.MACHINE_VERSION),))]))
    life.driver.do((c.OPEN, 1))
    put(life.driver, b"first", b"weave")
    return life


def test_a_node_that_starts_from_an_image_names_the_queues() -> None:
    life = begin()
    named = tubes(life)
    life = restarted(life)
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


@pytest.mark.parametrize("again", [False, True])
def test_a_complete_job_whose_queue_is_forgotten(again: bool, monkeypatch: Any) -> None:
    """Its last event names the queue, although the node may have dropped the name."""
    monkeypatch.setattr("beanpoled.eventlog.store.STALE_NAMES", 0)
    life = begin()
    complete(life.driver, b"old", b"spin", 2.0)
    call(life.driver, 3.0, q.FORGET_QUEUES, (b"spin",))
    assert b"spin" not in life.driver.machine.qless.queues
    if again:
        life = restarted(life)
    else:
        life.log.seal()
        life.log.seal()
    complete(life.driver, b"new", b"knit", 1e7)
    assert tubes(life)[-1] == "qless:spin"
    assert rows(life)[-1]["event"] == "expired"


def test_the_columns_have_workers_groups_and_clocks_of_clients() -> None:
    life = begin()
    call(life.driver, 2.5, q.POP, b"weave", b"loom-\xff", 1)
    call(life.driver, 4.0, q.FAIL, b"first", b"loom-\xff", b"torn", b"message", None)
    life.driver.do((c.PUT, 1, b"work", 5, 0, 60, b""), (c.TAKE, 1))
    wanted = ("event", "worker", "reason", "client_time_us", "wait_us", "run_us")
    assert [tuple(row[name] for name in wanted) for row in rows(life)] == [
        ("put", None, None, 1_000_000, None, None),
        ("reserved", "loom-\\xff", None, 2_500_000, 1_500_000, None),
        ("failed", "loom-\\xff", "torn", 4_000_000, None, 1_500_000),
        ("put", None, None, None, None, None),
    ]
