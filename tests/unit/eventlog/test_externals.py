"""External ids of jobs in events: in memory, in files, after restarts and replays."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.jobs.job import DONE
from beanpole.core.machine import Machine
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import EXTERNAL_BYTES, Events
from tests.unit.core.foreign import LEASED, QUEUES, add_spaces
from tests.unit.eventlog.made import Driver
from tests.unit.eventlog.test_store import Life, image_of, reference


@pytest.fixture(autouse=True)
def spaces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


def begin(driver: Driver) -> None:
    """Open session 1 for beanstalk and session 2 for a space with external ids."""
    driver.apply((1, 0, 0, 0, [(c.LEADER, 0, 0, ((c.RAISE, 3),))]))
    driver.do(
        (c.OPEN, 1),
        (c.OPEN, 2),
        (c.SET_PROTOCOL, 2, LEASED),
        (c.WATCH, 2, QUEUES[LEASED]),
    )


def add(external_id: bytes) -> tuple[Any, ...]:
    return (c.ADD, 2, QUEUES[LEASED], 0, 0, 0, 0, external_id, 0, 0, b"body")


def some(driver: Driver, dice: random.Random) -> None:
    """Make transitions of jobs with an external id, without one, and of beanstalk's."""
    for _ in range(dice.randint(1, 9)):
        driver.do(
            add(dice.choice((b"", b"%d" % driver.machine.queue.next_id))),
            (c.PUT, 1, b"work", 5, 0, 60, b"body"),
            (c.TAKE, 2),
        )
    session = driver.machine.origins[1].sessions[2]
    for job_id in dice.sample(list(session.reserved), len(session.reserved) // 2):
        driver.do((c.FINISH, 2, job_id, DONE, b""))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_they_are_the_same_after_restarts_and_replays(seed: int) -> None:
    dice = random.Random(seed)
    life = Life()
    begin(life.driver)
    snapshot, covered = Machine(), 0
    for _ in range(10):
        some(life.driver, dice)
        entries = life.driver.entries
        expected = reference(entries)
        assert life.log.spans() == [(0, len(expected))], seed
        assert life.read() == expected, seed
        if dice.random() < 0.4:
            life.log.seal()
            life.settle()
            snapshot, covered = image_of(life.driver.machine), len(entries)
        if dice.random() < 0.5:
            number = life.driver.number
            life = life.crash()
            life.log.attach(machine := image_of(snapshot))
            life.driver = Driver(life.log, machine)
            life.driver.entries = entries[:covered]
            for entry in entries[covered:]:
                life.driver.apply(entry)
            life.driver.number = number
    assert {bool(row.external) for row in life.read()} == {True, False}, seed


def test_events_that_are_brought_again_leave_none_behind() -> None:
    """Below the end of its files a node keeps neither records nor external ids."""
    life = Life()
    begin(life.driver)
    life.driver.do(add(b"first"))
    life.log.seal()
    life.settle()
    entries = life.driver.entries
    again = life.crash()
    for entry in entries[:-1]:
        again.driver.apply(entry)
    assert not again.driver.machine.queue.externals
    again.driver.apply(entries[-1])
    again.driver.number = life.driver.number
    again.driver.do(add(b"second"))
    assert [row.external for row in again.read()] == [[LEASED, b"first"], [LEASED, b"second"]]


def test_they_count_in_what_a_segment_takes() -> None:
    life = Life(event_segment_bytes=5 * (96 + EXTERNAL_BYTES))
    begin(life.driver)
    for place in range(4):
        life.driver.do(add(b"job %d" % place))
        assert life.driver.machine.queue.externals
    life.driver.do(add(b"the fifth"))
    assert not life.driver.machine.queue.externals
    life.settle()
    assert [row.external[1] for row in life.read()][-1] == b"the fifth"


def test_the_column_has_them_and_null_for_all_others() -> None:
    life = Life()
    begin(life.driver)
    life.driver.do(add(b"one"), add(b""), (c.PUT, 1, b"work", 5, 0, 60, b""), add(b"\xff"))
    life.driver.do((c.TAKE, 2))
    part = life.log.part(0)
    assert isinstance(part, Events)
    table = columns.to_arrow(part)
    assert table.column("external_id").to_pylist() == ["one", None, None, "\\xff", "one"]
    tube = f"foreign{LEASED}:q"
    assert table.column("tube").to_pylist() == [tube, tube, "work", tube, tube]
