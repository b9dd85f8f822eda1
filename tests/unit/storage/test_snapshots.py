"""Snapshots: complete or absent, verified when read, and no obstacle to the log."""

import errno
import gc
import os
from collections.abc import Callable, Iterator
from random import Random

import pytest

from beanpole.errors import Damaged, WrongIdentity
from beanpole.storage.files import LANE_BULK
from beanpole.storage.format import FILE_HEADER_BYTES, Identity
from beanpole.storage.snapshots import (
    SYNC_STEP_BYTES,
    SnapshotInfo,
    SnapshotStore,
    SnapshotWriter,
)
from tests.unit.storage.disk import Disk, broken_sync, full

OURS = Identity("dev", "n0")
CHUNKS = [b"one", b"x" * 1000, bytes(700)]


def opened(disk: Disk) -> SnapshotStore:
    return SnapshotStore(disk, "snap", OURS)


def newest(store: SnapshotStore) -> SnapshotInfo:
    info = store.latest()
    assert info is not None
    return info


def write(store: SnapshotStore, index: int, chunks: list[bytes]) -> SnapshotWriter:
    """Write and finish a snapshot; the caller runs the disk's works."""
    writer = store.create(index, 2)
    for chunk in chunks:
        writer.write(chunk)
    return writer


def finished(disk: Disk, store: SnapshotStore, index: int, chunks: list[bytes]) -> None:
    outcomes: list[OSError | None] = []
    write(store, index, chunks).finish(outcomes.append)
    disk.run()
    assert outcomes == [None]


def test_a_finished_snapshot_is_the_newest_and_reads_back_as_written() -> None:
    disk = Disk()
    store = opened(disk)
    assert store.latest() is None
    finished(disk, store, 7, CHUNKS)
    info = newest(store)
    assert (info.index, info.term) == (7, 2)
    assert info.bytes == len(disk.names[info.path].data)
    assert list(store.read(info)) == CHUNKS
    again = opened(disk)
    assert again.latest() == info
    assert list(again.read(info)) == CHUNKS


def test_an_empty_snapshot_is_allowed() -> None:
    disk = Disk()
    store = opened(disk)
    finished(disk, store, 1, [])
    assert list(store.read(newest(store))) == []


def test_the_backlog_falls_when_chunks_are_written() -> None:
    disk = Disk(inline=False)
    store = opened(disk)
    writer = write(store, 1, CHUNKS)
    assert writer.backlog_bytes == 1703
    disk.step(LANE_BULK)
    assert writer.backlog_bytes == 1700
    disk.run()
    assert writer.backlog_bytes == 0


def test_it_counts_only_when_it_is_durable() -> None:
    """Cut the power at every step of the works, several times with different luck."""
    for steps in range(9):
        for luck in range(8):
            disk = Disk(inline=False)
            store = opened(disk)
            finished(disk, store, 1, [b"old"])
            outcomes: list[OSError | None] = []
            write(store, 2, CHUNKS).finish(outcomes.append)
            for _ in range(steps):
                disk.step(LANE_BULK)
            disk.crash(Random(luck))
            store = opened(disk)
            info = newest(store)
            expected = {1: [b"old"], 2: CHUNKS}[info.index]
            assert list(store.read(info)) == expected
            assert info.index == 2 or not outcomes
            assert not any(name.endswith(".tmp") for name in disk.list("snap"))


def test_it_is_renamed_only_after_its_sync_and_before_the_older_one_goes() -> None:
    disk = Disk()
    store = opened(disk)
    finished(disk, store, 1, CHUNKS)
    old = disk.list("snap")[0]
    disk.log.clear()
    finished(disk, store, 2, [b"x"])
    assert [line.split()[0] for line in disk.log] == [
        *("open", "write", "write", "write", "sync", "rename", "sync_directory"),
        *("rename", "sync_directory", "remove_slowly"),
    ]
    assert old not in disk.list("snap") and len(disk.list("snap")) == 1


def test_a_large_snapshot_is_synced_as_it_grows() -> None:
    disk = Disk()
    store = opened(disk)
    disk.log.clear()
    finished(disk, store, 1, [bytes(SYNC_STEP_BYTES // 4)] * 20)
    syncs = sum(line.startswith("sync 0") for line in disk.log)
    assert syncs == 1 + 20 // 4


def test_a_reader_that_has_begun_survives_the_next_snapshot() -> None:
    disk = Disk()
    store = opened(disk)
    finished(disk, store, 1, CHUNKS)
    chunks: Iterator[bytes] = store.read(newest(store))
    assert next(chunks) == CHUNKS[0]
    disk.log.clear()
    finished(disk, store, 2, [b"new"])
    assert disk.log[-1].startswith("remove "), "and not in steps, which would shorten it"
    assert list(chunks) == CHUNKS[1:]
    disk.log.clear()
    finished(disk, store, 3, [b"newer"])
    assert disk.log[-1].startswith("remove_slowly ")


@pytest.mark.parametrize("operation", ["rename", "remove_slowly"])
def test_one_that_could_not_be_removed_is_removed_after_the_next(operation: str) -> None:
    disk = Disk()
    store = opened(disk)
    finished(disk, store, 1, CHUNKS)

    def refuse(tried: str, path: str) -> None:
        if tried == operation and "1-0" in path and not path.endswith("1.tmp"):
            raise OSError(errno.EIO, "input/output error")

    disk.fail = refuse
    finished(disk, store, 2, [b"new"])
    disk.fail = lambda tried, path: None
    finished(disk, store, 3, [b"newer"])
    assert disk.list("snap") == [os.path.basename(newest(store).path)]


def test_a_reader_that_comes_too_late_finds_no_file_and_not_a_piece_of_one() -> None:
    disk = Disk(inline=False)
    store = opened(disk)
    finished(disk, store, 1, CHUNKS)
    late = store.read(newest(store))
    write(store, 2, [b"new"]).finish(lambda error: None)
    disk.run()
    with pytest.raises(FileNotFoundError):
        next(late)


def test_what_is_left_of_one_that_was_being_removed_is_removed_at_the_start() -> None:
    disk = Disk()
    store = opened(disk)
    finished(disk, store, 1, CHUNKS)
    info = newest(store)
    disk.rename(info.path, f"{info.path}.tmp")
    disk.names[f"{info.path}.tmp"].data.clear()
    assert opened(disk).latest() is None and disk.list("snap") == []


def test_an_older_snapshot_does_not_replace_a_newer_one() -> None:
    disk = Disk()
    store = opened(disk)
    late = write(store, 5, [b"late"])
    finished(disk, store, 9, [b"new"])
    late.finish(lambda error: None)
    disk.run()
    assert newest(store).index == 9
    assert newest(opened(disk)).index == 9


@pytest.mark.parametrize("works", [0, 99])
def test_one_that_was_overtaken_is_removed_once_and_no_piece_of_it_is_left(works: int) -> None:
    """It ends before its overtaker's clean-up, or after it; cut the power at every step."""
    for steps in range(8):
        for luck in range(8):
            disk = Disk(inline=False)
            store = opened(disk)
            late = store.create(5, 2)
            write(store, 9, CHUNKS).finish(lambda error: None)
            for _ in range(works):
                disk.step(LANE_BULK)
            late.finish(lambda error: None)
            disk.log.clear()
            for _ in range(steps):
                disk.step(LANE_BULK)
            assert sum(line.startswith("remove_slowly ") for line in disk.log) <= 1
            disk.crash(Random(luck))
            info = opened(disk).latest()
            if steps == 7:
                assert info is not None and list(opened(disk).read(info)) == CHUNKS


def test_an_aborted_snapshot_leaves_nothing() -> None:
    disk = Disk(inline=False)
    store = opened(disk)
    writer = write(store, 1, CHUNKS)
    disk.step(LANE_BULK)
    writer.abort()
    writer.abort()
    disk.run()
    assert disk.list("snap") == [] and store.latest() is None
    finished(disk, store, 1, CHUNKS)
    writer.abort()
    disk.run()
    assert list(store.read(newest(store))) == CHUNKS


@pytest.mark.parametrize(("fail", "code"), [(full, errno.ENOSPC), (broken_sync, errno.EIO)])
def test_a_failure_reaches_finish_and_leaves_the_older_one(
    fail: Callable[[str, str], None], code: int
) -> None:
    disk = Disk(inline=False)
    store = opened(disk)
    finished(disk, store, 1, CHUNKS)
    before = disk.list("snap")
    outcomes: list[OSError | None] = []
    writer = write(store, 2, CHUNKS)
    disk.fail = fail
    writer.finish(outcomes.append)
    disk.run()
    assert [error.errno for error in outcomes if error is not None] == [code]
    assert writer.error is outcomes[0]
    assert disk.list("snap") == before and newest(store).index == 1
    assert writer.backlog_bytes == 0


@pytest.mark.usefixtures("uncollected")
def test_a_failed_writer_is_freed_with_its_chunks() -> None:
    def writers() -> int:
        return sum(type(one) is SnapshotWriter for one in gc.get_objects())

    before = writers()
    disk = Disk(inline=False)
    disk.fail = full
    write(opened(disk), 1, CHUNKS).finish(lambda _: None)
    assert writers() == before + 1
    disk.run()
    assert writers() == before


def test_every_flipped_byte_is_noticed() -> None:
    disk = Disk()
    store = opened(disk)
    finished(disk, store, 1, [b"one", b"two" * 20])
    info = newest(store)
    node = disk.names[info.path]
    for offset in range(FILE_HEADER_BYTES, len(node.data)):
        for bit in (1, 128):
            node.data[offset] ^= bit
            with pytest.raises(Damaged, match=f"{info.path}: offset"):
                list(store.read(info))
            node.data[offset] ^= bit
    assert len(list(store.read(info))) == 2


def test_every_cut_is_noticed() -> None:
    disk = Disk()
    store = opened(disk)
    finished(disk, store, 1, [b"one", b"two" * 20])
    info = newest(store)
    node = disk.names[info.path]
    whole = bytes(node.data)
    for cut in range(len(whole)):
        node.data = bytearray(whole[:cut])
        with pytest.raises(Damaged):
            list(store.read(info))


def test_chunks_in_another_order_are_noticed() -> None:
    disk = Disk()
    store = opened(disk)
    finished(disk, store, 1, [b"aaaa", b"bbbb"])
    info = newest(store)
    node = disk.names[info.path]
    first, second = FILE_HEADER_BYTES, FILE_HEADER_BYTES + 12
    one, two = node.data[first:second], node.data[second : second + 12]
    node.data[first : second + 12] = two + one
    with pytest.raises(Damaged):
        list(store.read(info))


def test_snapshots_of_others_are_refused() -> None:
    disk = Disk()
    finished(disk, opened(disk), 1, CHUNKS)
    with pytest.raises(WrongIdentity):
        SnapshotStore(disk, "snap", Identity("dev", "n1"))
