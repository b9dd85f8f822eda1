"""The forgetting file system keeps synced data, and loses the rest in any way that a disk may.

The survival of unsynced data is random, so each property is tried many times, or on a disk whose
power fails repeatedly.
"""

import mmap
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.power import ForgetfulDisk, Moment

TRIES = 40
SECTOR = 512
BLOCK = 4096


def fail(disk: ForgetfulDisk) -> None:
    """Let the power fail and return, while no process uses the disk."""
    disk.cut()
    disk.refuse()
    disk.restore()


def make(path: Path, content: bytes) -> None:
    """Create a durable file, including its name."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.pwrite(descriptor, content, 0)
    os.fsync(descriptor)
    os.close(descriptor)
    sync_directory(path.parent)


def write_over(path: Path, content: bytes) -> None:
    """Write to a file without any sync."""
    descriptor = os.open(path, os.O_RDWR)
    os.pwrite(descriptor, content, 0)
    os.close(descriptor)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def seen(disk: ForgetfulDisk, act: Callable[[], None], read: Callable[[], object]) -> set[object]:
    """Return all results of `read` after `act` and a power cut, over many tries."""
    found: set[object] = set()
    for _ in range(TRIES):
        disk.format()
        act()
        fail(disk)
        found.add(read())
    return found


def test_what_was_not_synced_is_lost_or_torn(disk: ForgetfulDisk) -> None:
    path = disk.place / "file"
    old, new = b"o" * SECTOR * 4, b"n" * SECTOR * 4

    def act() -> None:
        make(path, old)
        write_over(path, new)

    found = seen(disk, act, path.read_bytes)
    assert {old, new} <= found
    assert len(found) > 2, "no write was torn"
    for content in found:
        assert isinstance(content, bytes) and len(content) == len(old)
        sectors = [content[start : start + SECTOR] for start in range(0, len(old), SECTOR)]
        assert set(sectors) <= {b"o" * SECTOR, b"n" * SECTOR}, "a sector was torn"


@pytest.mark.parametrize("sync", [os.fsync, os.fdatasync])
def test_what_was_synced_stays(disk: ForgetfulDisk, sync: Callable[[int], None]) -> None:
    path = disk.place / "file"

    def act() -> None:
        make(path, b"")
        descriptor = os.open(path, os.O_RDWR)
        os.pwrite(descriptor, b"s" * 70_000, 0)
        sync(descriptor)
        os.pwrite(descriptor, b"more", 70_000)
        os.close(descriptor)

    for content in seen(disk, act, path.read_bytes):
        assert isinstance(content, bytes) and content[:70_000] == b"s" * 70_000
        # A size may survive without its bytes.
        assert content[70_000:] in (b"", b"more", bytes(4))


def test_a_write_with_rwf_dsync_stays_and_syncs_its_range_only(disk: ForgetfulDisk) -> None:
    path = disk.place / "file"

    def act() -> None:
        make(path, bytes(3 * BLOCK))
        descriptor = os.open(path, os.O_RDWR)
        os.pwrite(descriptor, b"l" * BLOCK, 0)
        os.pwritev(descriptor, [b"s" * BLOCK], BLOCK, os.RWF_DSYNC)
        os.close(descriptor)

    found = seen(disk, act, path.read_bytes)
    assert {content[BLOCK : 2 * BLOCK] for content in found if isinstance(content, bytes)} == {
        b"s" * BLOCK
    }
    assert bytes(BLOCK) in {content[:BLOCK] for content in found if isinstance(content, bytes)}


def test_o_direct_alone_is_the_cache_of_the_disk(disk: ForgetfulDisk) -> None:
    path = disk.place / "file"
    block = mmap.mmap(-1, BLOCK)
    block.write(b"d" * BLOCK)
    flags = 0

    def act() -> None:
        make(path, bytes(2 * BLOCK))
        descriptor = os.open(path, os.O_RDWR | os.O_DIRECT)
        os.pwritev(descriptor, [block], 0, flags)
        with pytest.raises(OSError, match="Invalid argument"):
            os.pwrite(descriptor, b"no whole sector", 0)
        os.close(descriptor)

    found = seen(disk, act, lambda: path.read_bytes()[:BLOCK])
    assert {bytes(BLOCK), b"d" * BLOCK} <= found
    flags = os.RWF_DSYNC
    assert seen(disk, act, lambda: path.read_bytes()[:BLOCK]) == {b"d" * BLOCK}
    counts = disk.counts()
    assert counts["direct"] == counts["range_syncs"] == TRIES


def test_a_new_name_may_vanish_until_its_directory_is_synced(disk: ForgetfulDisk) -> None:
    def act() -> None:
        descriptor = os.open(disk.place / "file", os.O_RDWR | os.O_CREAT)
        os.fsync(descriptor)
        os.close(descriptor)

    def synced() -> None:
        act()
        sync_directory(disk.place)

    def names() -> tuple[str, ...]:
        return tuple(os.listdir(disk.place))

    assert seen(disk, act, names) == {(), ("file",)}
    assert seen(disk, synced, names) == {("file",)}


def test_a_rename_is_done_or_not(disk: ForgetfulDisk) -> None:
    path = disk.place / "file"

    def act() -> None:
        make(path, b"old")
        make(disk.place / "new.tmp", b"new")
        (disk.place / "new.tmp").rename(path)

    def synced() -> None:
        act()
        sync_directory(disk.place)

    def read() -> tuple[bytes, bool]:
        return path.read_bytes(), (disk.place / "new.tmp").exists()

    assert seen(disk, act, read) == {(b"old", True), (b"new", False)}
    assert seen(disk, synced, read) == {(b"new", False)}


def test_a_removed_file_may_come_back_whole(disk: ForgetfulDisk) -> None:
    path = disk.place / "directory" / "file"

    def act() -> None:
        path.parent.mkdir()
        sync_directory(disk.place)
        make(path, b"here")
        shutil.rmtree(path.parent)

    def read() -> bytes | None:
        return path.read_bytes() if path.exists() else None

    assert seen(disk, act, read) == {None, b"here"}


def test_a_cut_is_durable_after_fsync(disk: ForgetfulDisk) -> None:
    path = disk.place / "file"
    old = b"a" * 100_000

    def act() -> None:
        make(path, old)
        os.truncate(path, 1000)

    def synced() -> None:
        act()
        descriptor = os.open(path, os.O_RDWR)
        os.fsync(descriptor)
        os.ftruncate(descriptor, 2000)
        os.close(descriptor)

    assert seen(disk, act, path.read_bytes) == {old, old[:1000]}
    for content in seen(disk, synced, path.read_bytes):
        assert isinstance(content, bytes) and content[:1000] == old[:1000]
        assert not content[1000:].strip(b"\0"), "cut bytes came back"


def test_room_that_is_reserved_reads_as_zeros(disk: ForgetfulDisk) -> None:
    path = disk.place / "file"
    make(path, b"x")
    descriptor = os.open(path, os.O_RDWR)
    os.posix_fallocate(descriptor, 0, 200_000)
    assert os.pread(descriptor, 300_000, 1) == bytes(199_999)
    os.fsync(descriptor)
    os.close(descriptor)
    fail(disk)
    assert path.stat().st_size == 200_000


def test_random_writes_are_as_in_a_model(disk: ForgetfulDisk) -> None:
    chance = random.Random(14)
    path = disk.place / "file"
    make(path, b"")
    durable = b""
    for _ in range(60):
        descriptor = os.open(path, os.O_RDWR)
        now = bytearray(durable)
        for _ in range(chance.randrange(6)):
            place, size = chance.randrange(200_000), chance.randrange(1, 90_000)
            data = chance.randbytes(size)
            if chance.random() < 0.2:
                os.ftruncate(descriptor, place)
                now = now[:place].ljust(place, b"\0")
            else:
                os.pwrite(descriptor, data, place)
                now = now.ljust(place, b"\0")
                now[place : place + size] = data
        assert os.pread(descriptor, 400_000, 0) == now
        os.fsync(descriptor)
        os.pwrite(descriptor, b"not synced", chance.randrange(len(now) + 1))
        os.close(descriptor)
        fail(disk)
        found = path.read_bytes()
        # Everything except the sectors of the last write is as synced.
        assert len(now) <= len(found) <= len(now) + 10
        differing = [at for at, byte in enumerate(now) if found[at] != byte]
        assert not differing or differing[-1] - differing[0] < 10
        durable = found


def test_a_write_that_meets_a_cut_is_answered_when_its_process_may_end(
    disk: ForgetfulDisk,
) -> None:
    path = disk.place / "file"
    make(path, b"old")
    pid = os.fork()
    if pid == 0:
        descriptor = os.open(path, os.O_RDWR)
        while True:
            os.pwritev(descriptor, [b"new"], 0, os.RWF_DSYNC)
    disk.cut(Moment("bytes", 5))
    assert Path(f"/proc/{pid}/stat").exists(), "it had learnt of the cut"
    os.kill(pid, 9)
    disk.refuse()
    os.waitpid(pid, 0)
    with pytest.raises(OSError, match="Input/output error"):
        path.write_bytes(b"x")
    disk.restore()
    assert path.read_bytes() in (b"old", b"new")
    path.write_bytes(b"again")


def test_a_disk_that_lies_forgets_what_was_written_and_synced(
    program: Path, tmp_path: Path
) -> None:
    disk = ForgetfulDisk(program, tmp_path / "disk", 3, lies=True)
    path = disk.place / "file"
    try:
        make(path, b"old")
        descriptor = os.open(path, os.O_RDWR)
        os.pwritev(descriptor, [b"new"], 0, os.RWF_DSYNC)
        os.close(descriptor)
        assert path.read_bytes() == b"new"
        fail(disk)
        assert path.read_bytes() == b"old"
    finally:
        disk.close()
    assert not os.path.ismount(disk.place)
