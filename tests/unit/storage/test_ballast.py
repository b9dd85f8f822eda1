"""The file that is removed when the disk is full."""

import errno
from random import Random

import pytest

from beanpole.storage.ballast import START_BYTES, Ballast, is_full, make_room_to_start
from beanpole.storage.files import LANE_BULK
from beanpole.storage.format import Identity
from beanpole.storage.wal import Wal
from tests.sim.clock import Clock
from tests.sim.disk import Disk as SimDisk
from tests.unit.storage.disk import Disk

SIZE = 3 * 1024 * 1024 + 5


def test_it_takes_room_and_gives_it_back() -> None:
    disk = Disk()
    ballast = Ballast(disk, "/data", SIZE)
    assert not ballast.there and not ballast.release()
    ballast.restore()
    assert len(disk.names["/data/ballast"].data) == SIZE
    disk.crash(Random(1))
    ballast = Ballast(disk, "/data", SIZE)
    assert ballast.there
    ballast.restore()  # the file exists
    assert ballast.release() and not disk.exists("/data/ballast")


def test_one_that_is_being_made_is_not_made_twice() -> None:
    disk = Disk(inline=False)
    ballast = Ballast(disk, "/data", SIZE)
    ballast.restore()
    ballast.restore()
    assert len(disk.works[LANE_BULK]) == 1
    assert not ballast.release()
    disk.run()
    assert ballast.there


def test_without_room_for_it_there_is_none() -> None:
    disk = SimDisk(Clock(), 1)
    disk.capacity_bytes = SIZE // 2
    ballast = Ballast(disk, "/data", SIZE)
    ballast.restore()
    disk._clock.run(1.0)
    assert not ballast.there
    assert disk.used_bytes == 0
    disk.capacity_bytes = 2 * SIZE
    ballast.restore()
    disk._clock.run(1.0)
    assert ballast.there


def test_what_a_dead_process_left_unfinished_is_removed() -> None:
    disk = Disk()
    disk.open("/data/ballast.tmp", create=True)
    assert not Ballast(disk, "/data", SIZE).there
    assert not disk.exists("/data/ballast.tmp")


def test_none_is_wanted_without_a_reserve() -> None:
    disk = Disk()
    ballast = Ballast(disk, "/data", 0)
    ballast.restore()
    assert not disk.names


def test_a_start_gives_it_up_only_if_it_must() -> None:
    disk = SimDisk(Clock(), 1)
    ballast = Ballast(disk, "/data", SIZE)
    ballast.restore()
    disk._clock.run(1.0)
    disk.capacity_bytes = disk.used_bytes + START_BYTES
    assert not make_room_to_start(disk, "/data")
    disk.capacity_bytes -= 4096
    assert make_room_to_start(disk, "/data")
    assert disk.free_bytes("") > SIZE
    assert not make_room_to_start(disk, "/data")


def test_only_a_full_disk_is_full() -> None:
    assert is_full(OSError(errno.ENOSPC, "")) and is_full(OSError(errno.EDQUOT, ""))
    assert not is_full(OSError(errno.EIO, "")) and not is_full(None)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("gives", [True, False])
def test_the_log_tries_once_more_if_the_disk_was_full_and_room_was_made(
    code: int, gives: bool
) -> None:
    """A failed sync is never retried; a write without room is retried as a whole."""
    disk = Disk(inline=False)
    wal = Wal.open(disk, "/log", Identity("c", "n"), 64 * 1024, replay=lambda *_: None)
    failures: list[OSError] = []
    asked: list[bool] = []
    wal.on_failure = failures.append

    def on_full() -> bool:
        asked.append(gives)
        disk.fail = lambda operation, path: None
        return gives

    def fail(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(code, "")

    wal.on_full = on_full
    disk.fail = fail
    at = wal.append(1, 2, 3, b"payload")
    wal.flush()
    disk.run()
    went_on = gives and code == errno.ENOSPC
    assert bool(asked) is (code == errno.ENOSPC)
    assert bool(failures) is not went_on
    assert (wal.durable > at) is went_on


def test_a_write_is_repeated_where_the_loop_has_just_made_room() -> None:
    """The disk's thread found no ballast any more, and the node ended beside free space."""
    disk = Disk(inline=False)
    ballast = Ballast(disk, "/data", SIZE)
    ballast.restore()
    disk.run()
    wal = Wal.open(disk, "/log", Identity("c", "n"), 64 * 1024, replay=lambda *_: None)
    wal.on_full = ballast.make_room
    failures: list[OSError] = []
    wal.on_failure = failures.append

    def fail(operation: str, path: str) -> None:
        if operation == "write" and ballast.there:
            assert ballast.release()  # by the loop, before the thread asks for it
            raise OSError(errno.ENOSPC, "")

    disk.fail = fail
    at = wal.append(1, 2, 3, b"payload")
    wal.flush()
    disk.run()
    assert not failures and wal.durable > at
    ballast.restore()
    disk.run()
    assert ballast.there and ballast.make_room()
    assert Ballast(disk, "/data", SIZE).make_room() is False
