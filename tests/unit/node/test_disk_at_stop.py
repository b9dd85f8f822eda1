"""A stop does not wait for a disk whose hang began too late to be known before."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable

import pytest

from beanpole.storage.files import LANE_BULK, LANE_LOG
from beanpoled.host import aio
from beanpoled.host.aio import AioHost
from beanpoled.host.seam import UNSYNCED
from tests.unit.node.stage import config

TIMEOUT_S = 60.0
SOON_S = 0.1


class Disk:
    """A disk that hangs until the process ends; the end of the process is only noted.

    Attributes:
        ends: the status of each end, and what the log had then.
    """

    def __init__(self, log: Callable[[], str]) -> None:
        self._log = log
        self._over = threading.Event()
        self.begun = threading.Event()
        self.ends: list[tuple[int, list[str]]] = []

    def hang(self) -> None:
        self.begun.set()
        self._over.wait(TIMEOUT_S)

    def end_process(self, status: int) -> None:
        lines = [line.partition(" n0 ")[2] for line in self._log().splitlines()]
        self.ends.append((status, lines))
        self._over.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Disk:
    made = Disk(lambda: capsys.readouterr().err)
    monkeypatch.setattr(os, "_exit", made.end_process)
    return made


@pytest.mark.parametrize(("lane", "words"), [(LANE_LOG, UNSYNCED), (LANE_BULK, "stopped")])
def test_a_stop_does_not_wait_for_files_on_a_disk_that_hangs(
    lane: int, words: str, disk: Disk
) -> None:
    """Beside the log, what hangs may be the removal of a large file: all was synced."""

    async def stop() -> None:
        host = AioHost(config(), asyncio.get_running_loop())
        host.files.submit(disk.hang, lambda _: None, lane)
        disk.begun.wait(TIMEOUT_S)
        host.disk_within_s = 2 * SOON_S
        host.exit(lambda: None)
        await host.wait_for_exit()
        host.close_files(SOON_S)

    asyncio.run(stop())
    assert disk.ends == [(0, [words])]


def test_a_stop_does_not_wait_for_the_last_sync_of_a_disk_that_hangs(disk: Disk) -> None:
    async def stop() -> None:
        host = AioHost(config(), asyncio.get_running_loop())
        host.disk_within_s = SOON_S
        host.exit(disk.hang)
        host.close_files()

    asyncio.run(stop())
    assert disk.ends == [(0, [UNSYNCED])]


@pytest.mark.parametrize(
    ("failure", "end"),
    [
        (("no such member", 78), (78, ["fatal: no such member"])),
        (None, (1, [f"fatal: {UNSYNCED}"])),
    ],
)
def test_a_start_that_failed_stays_one_on_a_disk_that_hangs(
    failure: tuple[str, int] | None, end: tuple[int, list[str]], disk: Disk
) -> None:
    async def fail() -> None:
        host = AioHost(config(), asyncio.get_running_loop())
        host.files.submit(disk.hang, lambda _: None)
        host.disk_within_s = SOON_S
        if failure is not None:
            host.failed(*failure)
        host.close_files()

    asyncio.run(fail())
    assert disk.ends == [end]


def test_the_last_words_follow_the_last_write(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    async def stop() -> None:
        host = AioHost(config(), asyncio.get_running_loop())
        host.exit(lambda: host.files.submit(lambda: host.log("written"), lambda _: None))
        told.append(capsys.readouterr().err)
        host.close_files()

    asyncio.run(stop())
    lines = capsys.readouterr().err.splitlines()
    assert "stopped" not in told[0]
    assert [line.rpartition(" ")[2] for line in lines][-2:] == ["written", "stopped"]
    assert disk.ends == []


def test_a_stop_does_not_wait_for_a_vote_on_a_disk_that_hangs(disk: Disk) -> None:
    """A leader that hands over syncs its vote for the next one in the loop."""

    async def stop() -> None:
        host = AioHost(config(), asyncio.get_running_loop())
        host.disk_within_s = SOON_S
        waited = asyncio.Event()

        def vote() -> None:
            host.watch_disk(True)
            disk.hang()
            waited.set()

        host.handle_signals(vote, lambda _: None, lambda: None)
        os.kill(os.getpid(), signal.SIGTERM)
        await waited.wait()
        host.close_files()

    asyncio.run(stop())
    assert disk.ends == [(0, [UNSYNCED])]


@pytest.mark.slow
def test_a_stop_may_take_longer_while_its_loop_turns(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stop() -> None:
        loop = asyncio.get_running_loop()
        host = AioHost(config(), loop)
        host.disk_within_s = 4 * aio.BEAT_PERIOD_S
        drained, told = asyncio.Event(), list[object]()
        host.watch_disk(True)
        told.append(loop.call_later(6 * aio.BEAT_PERIOD_S, drained.set))
        await drained.wait()
        host.exit()
        host.close_files()

    asyncio.run(stop())
    assert disk.ends == [] and capsys.readouterr().err.endswith(" n0 stopped\n")
