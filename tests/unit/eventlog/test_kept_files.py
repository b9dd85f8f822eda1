"""Files of events that a node already has: which go, and which stay when the disk refuses.

The log of events while the node works is in `test_store`.
"""

import errno

import pytest

from beanpoled.eventlog.events import Events
from beanpoled.eventlog.store import RETAIN_PERIOD_US
from tests.unit.eventlog.made import Driver
from tests.unit.eventlog.test_store import SETTINGS, Life, filled, image_of, paths
from tests.unit.node.stage import config


@pytest.mark.parametrize("is_own", [False, True])
def test_a_snapshot_that_comes_before_kept_events_are_proven_takes_them_away(is_own: bool) -> None:
    life = Life(durability="memory")
    life.driver.put(50)
    snapshot = image_of(life.driver.machine) if is_own else None
    life.driver.put(50, b"lost")
    life.settle()
    again = life.crash(durability="memory")
    if snapshot is None:
        again.driver.apply(life.driver.entries[0])
        driver = Driver()
        driver.apply(life.driver.entries[0])
        for _ in range(3):
            driver.put(50, b"new")
        snapshot = image_of(driver.machine)
    assert not again.log._queue.events_kept
    again.log.attach(snapshot, is_own)
    assert paths(again) if is_own else not again.read()
    assert again.log._queue.events_kept is not is_own
    again.settle()
    assert bool(paths(again)) is is_own


def test_files_that_cannot_be_removed_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = filled()
    sizes = life.log.bytes
    files = life.host.files
    named = sorted(paths(life))
    files.remove(named[0])  # by an operator
    remove = files.remove

    def refuse(path: str) -> None:
        if path == named[1]:
            raise OSError(errno.EIO, "Input/output error")
        remove(path)

    monkeypatch.setattr(files, "remove", refuse)
    life.log.take_limits(config(**SETTINGS | {"event_retain_bytes": 0}))
    for second in range(1, 5):
        life.log.run_periodic(second * RETAIN_PERIOD_US)
        life.settle()
    assert paths(life) == [named[1]] == list(life.log._left_out)
    assert life.log.bytes == 0 < sizes
    assert len([line for line in life.host.lines if "cannot remove events" in line]) == 1
    monkeypatch.undo()
    life.log.run_periodic(9 * RETAIN_PERIOD_US)
    life.settle()
    assert paths(life) == [] == list(life.log._left_out)


def test_a_file_whose_name_cannot_be_made_durable_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = Life()
    monkeypatch.setattr(life.host.files, "sync_directory", refused)
    life.driver.put(50)
    life.settle()
    assert (paths(life), life.log.bytes, life.log.lost) == ([], 0, 50)


@pytest.mark.parametrize("call", ["make_directory", "list"])
def test_a_node_without_its_directory_of_events_starts_and_keeps_none(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It ended, with the wrong setting where `events` was a file."""
    life = filled()
    named = paths(life)
    monkeypatch.setattr(life.host.files, call, refused)
    life.host.lines.clear()
    without = life.crash()
    (line,) = life.host.lines
    assert line.startswith("no events are kept until the next start: [Errno 5] Input/output error")
    assert f"make {life.log.directory} a directory that user " in line
    for entry in life.driver.entries:
        without.driver.apply(entry)
    without.driver.put(50)
    without.log.attach(image_of(without.driver.machine))
    without.settle()
    assert not without.log.kept and without.log.spans() == []
    assert not without.driver.machine.queue.events
    assert f"{life.log.directory} could not be used" in without.log.refusal
    monkeypatch.undo()
    again = without.crash()
    assert paths(again) == named and again.log.spans() == []
    for entry in life.driver.entries:
        again.driver.apply(entry)
    assert again.log.spans() == [(0, 500)]


def test_an_unfinished_file_that_cannot_be_removed_is_only_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = filled()
    unfinished = f"{life.log.directory}/1-2.events.tmp"
    life.host.files.open(unfinished, create=True)
    life.host.files.sync_directory(life.log.directory)
    monkeypatch.setattr(life.host.files, "remove", refused)
    life.host.lines.clear()
    again = life.crash()
    told = f"an unfinished file of events stays: [Errno 5] Input/output error: {unfinished}"
    assert [line.startswith(told) for line in life.host.lines] == [True]
    for entry in life.driver.entries:
        again.driver.apply(entry)
    assert again.log.spans() == [(0, 500)]


def refused(path: str) -> None:
    raise OSError(errno.EIO, f"Input/output error: {path}")


@pytest.mark.constants
def test_a_directory_that_vanishes_does_not_stop_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    life = filled()

    def gone(path: str) -> int:
        raise FileNotFoundError(errno.ENOENT, "no such directory", path)

    monkeypatch.setattr(life.host.files, "free_bytes", gone)
    for look in range(3):
        life.log.run_periodic(look * RETAIN_PERIOD_US)
        life.settle()
    assert life.log.spans() == [(0, 500)]
    assert len([line for line in life.host.lines if "is unknown: [Errno 2] no such" in line]) == 1


@pytest.mark.constants
def test_a_disk_of_the_events_that_hangs_is_asked_once_and_outside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life = filled()
    asked: list[str] = []

    def free_bytes(path: str) -> int:
        asked.append(path)
        return 1 << 40

    monkeypatch.setattr(life.host.files, "free_bytes", free_bytes)
    life.host.files.latency_s = 1e6
    for look in range(3):
        life.log.run_periodic(look * RETAIN_PERIOD_US)
        life.settle()
    assert not asked, "the loop waited for the disk"
    life.host.files.hasten(0.0)
    life.settle()
    assert asked == [life.log.directory]
    life.log.run_periodic(3 * RETAIN_PERIOD_US)
    life.settle()
    assert len(asked) == 2


@pytest.mark.constants
def test_a_seal_does_not_look_at_all_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With small segments and a slow disk, thousands wait, and each entry seals one."""
    life = Life()
    looks: list[Events] = []

    def look(events: Events) -> int:
        looks.append(events)
        return 100

    monkeypatch.setattr(Events, "memory_bytes", property(look))
    for _ in range(20):
        life.driver.put(50)
    assert len(life.log._waiting) == 20
    assert life.log._waiting_bytes == 20 * 100
    assert len(looks) <= 2 * 20
    life.settle()
    assert not life.log._waiting and not life.log._waiting_bytes
