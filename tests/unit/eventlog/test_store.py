"""The events that a node keeps: sealing, restarts, gaps, retention, and power cuts."""

import errno
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.image.image import Image
from beanpole.core.image.restore import load
from beanpole.core.machine import Machine
from beanpole.events import RECORD
from beanpole.storage.format import MAGIC_EVENTS, Identity, encode_file_header
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.eventlog.store import RETAIN_PERIOD_US, SPREAD_US_MAX, EventLog
from beanpoled.view import JobCounts
from tests.sim.event_log import Row, rows
from tests.unit.eventlog.made import WALL_US, Driver
from tests.unit.node.stage import StageHost, config

SEGMENT_EVENTS = 50
SETTINGS = {"event_segment_bytes": SEGMENT_EVENTS * RECORD.size, "disk_reserve_bytes": 0}
ROOT = Path(__file__).resolve().parents[3]


class Life:
    """One life of a node's event log on a disk that survives it."""

    def __init__(
        self, host: StageHost | None = None, machine: Machine | None = None, **settings: Any
    ) -> None:
        self.host = host or StageHost()
        self.host.walls_us = WALL_US
        machine = machine or Machine()
        self.log = EventLog(config(**SETTINGS | settings), self.host, machine)
        self.log.open()
        self.driver = Driver(self.log, machine)

    def settle(self) -> None:
        """Let the disk finish its work."""
        self.host.clock.run(1.0)

    def crash(self, **settings: Any) -> "Life":
        """Lose unsynced data, and restart with an empty machine."""
        self.host.files.crash()
        return Life(self.host, **settings)

    def read(self) -> list[Row]:
        """Read all available events, as the service does."""
        found: list[Row] = []
        for first, end in self.log.spans():
            position = first
            while position < end:
                part = self.log.part(position)
                assert part is not None
                if isinstance(part, Events):
                    found += [row for row in rows(part) if row[0] < end]
                else:
                    handle = self.host.files.open(part.path)
                    for place in part.places:
                        payload = segments.read(handle, part, place)
                        found += map(Row._make, msgpack.unpackb(payload))
                position = found[-1][0] + 1
        return found


def image_of(machine: Machine) -> Machine:
    image = Image(machine)
    chunks = list(iter(image.next_chunk, None))
    image.close()
    return load(chunks)


def reference(entries: list[tuple[Any, ...]]) -> list[Row]:
    """Return the contents of an event log of these entries that is never sealed."""
    life = Life(event_segment_bytes=1024**3)
    for entry in entries:
        life.driver.apply(entry)
    return life.read()


def test_a_segment_is_sealed_when_it_is_full_and_nothing_is_missing_meanwhile() -> None:
    life = Life()
    for count in (49, 1, 7, 120, 3):
        life.driver.put(count)
        assert life.log.spans() == [(0, life.log.end)]
        assert life.read() == reference(life.driver.entries)
    names = life.host.files.list(life.log.directory)
    assert names == []  # the disk has not started
    life.settle()
    names = life.host.files.list(life.log.directory)
    assert names == [segments.name_of(0, 50), segments.name_of(50, 177)]
    assert life.log.spans() == [(0, 180)]
    assert life.read() == reference(life.driver.entries)
    assert life.log.jobs() == JobCounts(ready=180)


def test_a_segment_is_sealed_when_it_is_old() -> None:
    life = Life(event_segment_age_s=5)
    life.driver.put(3)
    for loop_us in range(0, 5_000_000, 100_000):
        life.log.run_periodic(loop_us)
    life.settle()
    assert life.host.files.list(life.log.directory) == []
    life.log.run_periodic(5_000_000)
    life.settle()
    assert life.host.files.list(life.log.directory) == [segments.name_of(0, 3)]
    life.log.run_periodic(50_000_000)
    life.settle()
    assert len(life.host.files.list(life.log.directory)) == 1


class Timed(StageHost):
    """Records the time allowed for the conversion of each segment, in microseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.within_us: list[int] = []

    def encode_events(self, events: Events, within_us: int = 0) -> list[EventBatch]:
        self.within_us.append(within_us)
        return super().encode_events(events, within_us)


def test_columns_are_made_over_a_part_of_the_time_in_which_the_events_came() -> None:
    host = Timed()
    life = Life(host, event_segment_age_s=3600)
    for seconds in (0, 8, 3600):
        life.driver.put(1)
        life.log.run_periodic(0)
        life.log.run_periodic(seconds * 1_000_000)
        life.log.seal()
        life.settle()
    assert host.within_us == [0, 2_000_000, SPREAD_US_MAX]


def test_columns_are_made_at_once_of_what_came_at_once_or_waited_for_others() -> None:
    host = Timed()
    life = Life(host, event_segment_age_s=3600)
    for _ in range(3):
        life.driver.put(1)
        life.log.run_periodic(0)
        life.log.run_periodic(8_000_000)
        life.log.seal()
    life.settle()
    life.log.run_periodic(100_000_000)
    life.driver.put(1)
    life.log.seal()
    life.settle()
    assert host.within_us == [2_000_000, 0, 0, 0]


@pytest.mark.constants
def test_columns_of_a_large_segment_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next sealed segment would be lost for lack of room."""
    monkeypatch.setattr("beanpoled.eventlog.store.SPREAD_BYTES_MAX", 2 * RECORD.size)
    host = Timed()
    life = Life(host, event_segment_age_s=3600)
    for count in (2, 3):
        life.driver.put(count)
        life.log.run_periodic(0)
        life.log.run_periodic(8_000_000)
        life.log.seal()
        life.settle()
    assert host.within_us == [2_000_000, 0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_after_restarts_every_event_is_there_once(seed: int) -> None:
    """The log repeats all entries since a snapshot; snapshots are taken at random."""
    dice = random.Random(seed)
    life = Life()
    entries: list[tuple[Any, ...]] = []
    snapshot, covered = Machine(), 0
    for _ in range(12):
        for _ in range(dice.randint(1, 12)):
            life.driver.put(dice.choice((1, 1, 5, 30, 70)), dice.choice((b"work", b"mail")))
        entries = life.driver.entries
        if dice.random() < 0.4:
            life.log.seal()
            life.settle()
            snapshot, covered = image_of(life.driver.machine), len(entries)
        elif dice.random() < 0.5:
            life.settle()
        if dice.random() < 0.5:
            life = life.crash()
            life.log.attach(machine := image_of(snapshot))
            number = life.driver.number
            life.driver = Driver(life.log, machine)
            life.driver.entries = entries[:covered]
            life.driver.number = number
            for entry in entries[covered:]:
                life.driver.apply(entry)
            life.driver.number = len(entries)
            assert entries == life.driver.entries
        life.driver.number = len(entries)
        expected = reference(entries)
        assert life.log.spans() == [(0, len(expected))], seed
        assert life.read() == expected, seed
    assert life.log.jobs_before() == JobCounts()


def test_a_snapshot_from_another_node_makes_a_gap() -> None:
    life, other = Life(), Life()
    life.driver.put(10)
    for entry in life.driver.entries:
        other.driver.apply(entry)
    other.driver.number = life.driver.number
    other.driver.put(15)
    machine = image_of(other.driver.machine)
    life.log.attach(machine)
    driver = Driver(life.log, machine)
    driver.number = other.driver.number
    driver.put(5)
    assert life.log.spans() == [(0, 10), (25, 30)]
    assert life.log.part(10) is None and life.log.part(30) is None
    life.log.seal()
    life.settle()
    again = life.crash()
    assert again.log.spans() == []  # its machine is at 0, and does not know them yet
    again.log.attach(image_of(machine))
    assert again.log.spans() == [(0, 10), (25, 30)]
    found = [row[0] for row in again.read()]
    assert found == [*range(10), *range(25, 30)]


def test_a_full_disk_makes_a_gap_and_nothing_else() -> None:
    life = Life()
    life.driver.put(50)
    life.host.files.failing = OSError(errno.ENOSPC, "no space left on device")
    life.settle()
    life.host.files.failing = None
    life.driver.put(50)
    life.driver.put(2)
    life.settle()
    assert life.log.spans() == [(50, 102)]
    assert life.log.jobs_before() == JobCounts(ready=50)
    assert [line for line in life.host.lines if "events 0 to 50 are not kept here" in line]
    assert "no space left" in life.host.lines[0]
    assert life.log.lost == 50
    assert life.log.bytes == sum(life.host.files.size(path) for path in paths(life))


def test_events_that_cannot_be_encoded_do_not_stop_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = Life()

    def fail(events: Events) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(life.host, "encode_events", fail)
    life.driver.put(60)
    life.settle()
    assert life.log.spans() == []
    assert "events 0 to 60 are not kept here: cannot be made columns" in life.host.lines[0]


@pytest.mark.constants
def test_a_disk_that_is_far_behind_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beanpoled.eventlog.store.WAITING_BYTES_MAX", 100 * RECORD.size)
    life = Life()
    for _ in range(5):
        life.driver.put(50)
    assert life.log.spans() == [(0, 150)]
    life.settle()
    life.driver.put(1)
    assert life.log.spans() == [(0, 150), (250, 251)]
    assert len(life.host.lines) == 2


def filled(**settings: Any) -> Life:
    """Make ten segments of fifty events."""
    life = Life(**settings)
    for _ in range(10):
        life.driver.put(50)
        life.settle()
    return life


def test_the_oldest_go_when_there_is_too_much() -> None:
    life = filled()
    size = sum(life.host.files.size(path) for path in paths(life))
    kept = Life(life.host, life.driver.machine, event_retain_bytes=size * 55 // 100)
    kept.log.run_periodic(0)
    kept.settle()
    assert kept.log.spans() == [(250, 500)]
    assert len(paths(life)) == 5
    assert kept.log.jobs_before() == JobCounts(ready=250)


def paths(life: Life) -> list[str]:
    directory = life.log.directory
    return [f"{directory}/{name}" for name in life.host.files.list(directory)]


def test_the_oldest_go_when_they_are_too_old_by_both_clocks() -> None:
    life = filled(event_retain_age_s=5)
    life.host.walls_us = WALL_US + 10**15  # the clock was set ahead by years
    life.log.run_periodic(0)
    life.settle()
    # The driver's entries are a second apart: the first two of eleven are older than 5 s.
    assert life.log.spans() == [(200, 500)]
    assert "events 0 to 200 are removed: above event_retain_bytes or" in life.host.lines[-1]


def test_the_oldest_go_before_the_queue_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts are refused below 1000 bytes."""
    life = filled(disk_reserve_bytes=1000)
    monkeypatch.setattr(life.host.files, "free_bytes", lambda path: 2000)
    life.log.run_periodic(0)
    life.settle()
    assert life.log.spans() == [(0, 500)]
    monkeypatch.setattr(life.host.files, "free_bytes", lambda path: 1999)
    life.log.run_periodic(RETAIN_PERIOD_US)
    life.log.run_periodic(2 * RETAIN_PERIOD_US)  # the first removal is still in progress
    life.settle()
    assert life.log.spans() == [(50, 500)]
    assert "events 0 to 50 are removed: below twice the disk's reserve" in life.host.lines[-1]
    life.log.run_periodic(3 * RETAIN_PERIOD_US)
    life.settle()
    assert life.log.spans() == [(100, 500)]


def test_files_that_cannot_be_used_are_named_and_left_out() -> None:
    life = filled()
    damaged, foreign = paths(life)[3], f"{life.log.directory}/notes.events"
    life.host.files.flip(damaged, 20)
    life.host.files.open(foreign, create=True).write(0, b"not ours")
    life.host.files.open(f"{life.log.directory}/x.tmp", create=True)
    again = Life(life.host, life.driver.machine)
    assert again.log.spans() == [(0, 150), (200, 500)]
    assert [line for line in again.host.lines if "left out" in line and damaged in line]
    assert [line for line in again.host.lines if "left out" in line and foreign in line]
    assert foreign in paths(again) and damaged in paths(again)
    assert f"{life.log.directory}/x.tmp" not in paths(again)


def spoiled() -> tuple[Life, list[str], str]:
    """Make ten segments, damage three files, and add a file of another node."""
    life = filled()
    useless = [paths(life)[3], paths(life)[5], f"{life.log.directory}/{'9' * 20}.events"]
    life.host.files.flip(useless[0], 20)
    life.host.files.flip(useless[1], life.host.files.size(useless[1]) - 1)
    life.host.files.open(useless[2], create=True).write(0, b"whatever")
    foreign = f"{life.log.directory}/foreign.events"
    header = encode_file_header(MAGIC_EVENTS, Identity("stage", "n7"), 0, 50)
    life.host.files.open(foreign, create=True).write(0, header)
    return life, useless, foreign


def test_files_that_cannot_be_used_go_first_when_the_disk_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life, useless, foreign = spoiled()
    again = Life(life.host, life.driver.machine, disk_reserve_bytes=1000)
    spans = [(0, 150), (200, 250), (300, 500)]
    found = again.log.part(120)
    assert isinstance(found, segments.EventSegment)
    again.log.leave_out(found, "damaged")
    spans = [(0, 100), (200, 250), (300, 500)]
    again.log.run_periodic(0)
    again.settle()
    assert again.log.spans() == spans and set(useless) < set(paths(again))
    sizes = sum(map(again.host.files.size, [*useless, found.path]))
    monkeypatch.setattr(again.host.files, "free_bytes", lambda path: 2000 - sizes)
    again.log.run_periodic(RETAIN_PERIOD_US)
    again.settle()
    assert again.log.spans() == spans
    assert not {*useless, found.path} & set(paths(again))
    again.log.run_periodic(2 * RETAIN_PERIOD_US)
    again.settle()
    assert again.log.spans() == [(350, 500)]
    assert foreign in paths(again)


def test_files_that_cannot_be_used_count_among_those_that_are_kept() -> None:
    life, useless, foreign = spoiled()
    total = sum(map(life.host.files.size, paths(life))) - life.host.files.size(foreign)
    again = Life(life.host, life.driver.machine, event_retain_bytes=total)
    again.log.run_periodic(0)
    again.settle()
    assert set(useless) < set(paths(again))
    again = Life(life.host, life.driver.machine, event_retain_bytes=total - 1)
    again.log.run_periodic(0)
    again.settle()
    gone = set(useless) - set(paths(again))
    assert len(gone) == 1 and foreign in paths(again)
    assert again.log.spans() == [(0, 150), (200, 250), (300, 500)]


def test_a_file_that_is_written_anew_is_of_use_again() -> None:
    life = filled()
    newest = paths(life)[-1]
    life.host.files.flip(newest, 20)
    again = life.crash(event_retain_bytes=1)
    assert again.log._left_out
    for entry in life.driver.entries:
        again.driver.apply(entry)
    assert not again.log._left_out
    again.settle()
    assert again.log.spans() == [(0, 500)]
    assert paths(again)[-1] == newest


def test_a_batch_that_is_damaged_takes_its_segment_out() -> None:
    life = filled()
    found = life.log.part(120)
    assert isinstance(found, segments.EventSegment)
    life.log.leave_out(found, "damaged")
    life.log.leave_out(found, "damaged")
    assert life.log.spans() == [(0, 100), (150, 500)]
    assert life.host.lines == ["events left out: damaged"]


def test_a_log_that_lost_its_end_takes_its_events_with_it() -> None:
    """After a power cut with durability "memory", other events follow where some are kept."""
    life = filled()
    other = life.crash()
    other.driver.step_us *= 2
    for _ in range(10):
        other.driver.put(50)
    assert other.log.spans() == []
    assert "may not be those of the log: the log has lost its end" in other.host.lines[-1]
    other.driver.put(7)
    other.settle()
    assert other.log.spans() == [(500, 507)]
    assert paths(other) == []


def test_a_log_that_is_brought_again_shows_nothing_twice() -> None:
    life = filled()
    again = life.crash()
    for entry in life.driver.entries[:5]:
        again.driver.apply(entry)
    assert (again.log.end, again.log.spans()) == (0, [])
    for entry in life.driver.entries[5:]:
        again.driver.apply(entry)
    assert (again.log.end, again.log.spans()) == (500, [(0, 500)])
    assert again.read() == reference(life.driver.entries)


def test_off_keeps_nothing() -> None:
    life = Life(events="off")
    life.driver.put(200)
    life.log.seal()
    life.settle()
    assert not life.log.kept
    assert life.driver.machine.queue.events_total == 200
    assert not life.driver.machine.queue.events
    assert not life.host.files.exists(life.log.directory)


@pytest.mark.constants
def test_names_of_tubes_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beanpoled.eventlog.store.STALE_NAMES", 10)
    life = Life()
    for number in range(100):
        life.driver.put(1, b"tube-%d" % number)
    assert life.read() == reference(life.driver.entries)
    assert {row[5] for row in life.read()} == {b"tube-%d" % number for number in range(100)}


@pytest.mark.constants
def test_names_of_tubes_without_events_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beanpoled.eventlog.store.STALE_NAMES", 10)
    life = Life()
    life.driver.do((c.OPEN, 1))
    for number in range(100):
        tube = b"tube-%d" % number
        life.driver.do((c.WATCH, 1, tube), (c.IGNORE, 1, tube))
        life.log.run_periodic(number * 100_000)
    assert len(life.log._names) <= 12
    life.driver.put(1)
    assert life.read() == reference(life.driver.entries)


@pytest.mark.slow
def test_a_node_that_seals_nothing_does_not_import_arrow() -> None:
    """Whole nodes run for 15 simulated seconds without it, and so does the daemon's import."""
    code = (
        "import sys, beanpoled.main; from tests.sim.storm import CALM, Storm; "
        "Storm(3, CALM).run(); sys.exit(bool({'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}/cluster:{ROOT}/node:{ROOT}"},
        check=False,
    )
    assert done.returncode == 0
