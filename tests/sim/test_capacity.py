"""The simulated disk with a capacity: what fits, what does not, and what a crash leaves of it."""

import errno

import pytest

from tests.sim.clock import Clock
from tests.sim.disk import BLOCK_BYTES, Disk


def a_disk(blocks: int) -> Disk:
    disk = Disk(Clock(), 1)
    disk.capacity_bytes = blocks * BLOCK_BYTES
    return disk


def test_a_write_that_does_not_fit_fails_with_a_part_of_it_written() -> None:
    disk = a_disk(3)
    handle = disk.open("/a/file", create=True)
    handle.write(0, bytes(BLOCK_BYTES + 1))
    assert disk.free_bytes("/a") == BLOCK_BYTES
    with pytest.raises(OSError, match="no space") as error:
        handle.write(BLOCK_BYTES + 1, bytes(3 * BLOCK_BYTES))
    assert error.value.errno == errno.ENOSPC
    assert (handle.size(), disk.free_bytes("/a")) == (3 * BLOCK_BYTES, 0)
    assert disk.erred


def test_what_a_file_has_can_be_written_again_on_a_full_disk() -> None:
    disk = a_disk(2)
    handle = disk.open("/a/file", create=True)
    handle.write(0, bytes(2 * BLOCK_BYTES))
    handle.write_synced(BLOCK_BYTES, b"x" * BLOCK_BYTES)
    assert handle.read(BLOCK_BYTES, 1) == b"x"
    other = disk.open("/a/other", create=True)
    with pytest.raises(OSError, match="no space"):
        other.write_synced(0, b"x")
    disk.remove("/a/file")
    other.write_synced(0, b"x")


def test_a_crash_changes_neither_the_capacity_nor_what_others_took() -> None:
    disk = a_disk(4)
    disk.taken_bytes = 2 * BLOCK_BYTES
    handle = disk.open("/a/file", create=True)
    handle.write(0, bytes(BLOCK_BYTES))
    handle.sync()
    disk.sync_directory("/a")
    disk.crash()
    assert disk.free_bytes("/a") == BLOCK_BYTES
    with pytest.raises(OSError, match="no space"):
        disk.open("/a/file").write(0, bytes(3 * BLOCK_BYTES))
