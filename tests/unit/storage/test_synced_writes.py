"""A disk may write a batch of one synced write without running its work."""

import errno

import pytest

from beanpole.errors import LogFailed
from beanpole.storage.files import LANE_LOG, Done, SyncedWrite, Work
from beanpole.storage.writer import FILL_AHEAD_BYTES
from tests.unit.storage.disk import Disk
from tests.unit.storage.logs import fill, opened, replayed


class Elsewhere(Disk):
    """A disk that does synced writes, on demand, by other means than running the work."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[SyncedWrite, Done]] = []

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        if isinstance(work, SyncedWrite):
            self.writes.append((work, done))
        else:
            super().submit(work, done, lane)

    def finish(self, error: OSError | None = None) -> None:
        work, done = self.writes.pop(0)
        if error is None:
            work.handle.write_synced(work.offset, b"".join(work.chunks))
            work.note(17)
        done(error)


def test_a_write_that_was_done_elsewhere_counts_like_any_other() -> None:
    disk = Elsewhere()
    wal = opened(disk)
    records = fill(wal, 3)
    wal.flush()
    records += fill(wal, 3)
    assert wal.durable == 0
    disk.finish()
    assert (wal.durable, wal.last_sync_us, wal.bytes_written) == (records[3][0], 17, records[3][0])
    disk.finish()
    assert wal.durable == wal.end and not disk.writes
    wal.close()
    assert replayed(disk) == records


def test_a_sync_does_not_wait_for_what_is_done_elsewhere() -> None:
    disk = Elsewhere()
    wal = opened(disk)
    records = fill(wal, 2)
    wal.flush()
    records += fill(wal, 2)
    wal.sync()
    assert wal.durable == wal.end
    syncs, written = wal.syncs, wal.bytes_written
    disk.finish()
    assert (wal.durable, wal.syncs, wal.bytes_written) == (wal.end, syncs, written)
    records += fill(wal, 1)
    wal.flush()
    disk.finish()
    wal.close()
    assert replayed(disk) == records


def test_what_is_larger_than_the_zeros_ahead_is_an_ordinary_work() -> None:
    disk = Elsewhere()
    wal = opened(disk, segment_bytes=1 << 24)
    fill(wal, 1, FILL_AHEAD_BYTES)
    wal.flush()
    assert not disk.writes and wal.durable == wal.end
    fill(wal, 1)
    wal.flush()
    assert len(disk.writes) == 1


def test_after_a_write_failed_elsewhere_nothing_is_written() -> None:
    disk = Elsewhere()
    wal = opened(disk)
    failures: list[OSError] = []
    wal.on_failure = failures.append
    fill(wal, 1)
    wal.flush()
    disk.finish(OSError(errno.EIO, "input/output error"))
    assert wal.failed and len(failures) == 1
    before = len(disk.log)
    fill(wal, 1)
    wal.flush()
    with pytest.raises(LogFailed):
        wal.sync()
    assert disk.log[before:] == [] and not disk.writes


@pytest.mark.parametrize("has_ballast", [True, False])
def test_a_write_that_found_no_room_elsewhere_is_repeated_with_the_ballast(
    has_ballast: bool,
) -> None:
    disk = Elsewhere()
    wal = opened(disk)
    failures: list[OSError] = []
    wal.on_failure = failures.append
    is_full = True

    def fail(operation: str, path: str) -> None:
        if operation == "write" and is_full:
            raise OSError(errno.ENOSPC, "no space left on device", path)

    def freed() -> bool:
        nonlocal is_full
        is_full = not has_ballast
        return has_ballast

    wal.on_full = freed
    records = fill(wal, 2)
    wal.flush()
    disk.fail = fail
    disk.finish(OSError(errno.ENOSPC, "no space left on device"))
    assert wal.failed is not has_ballast
    assert [error.errno for error in failures] == ([] if has_ballast else [errno.ENOSPC])
    if has_ballast:
        assert wal.durable == wal.end
        records += fill(wal, 1)
        wal.flush()
        disk.finish()
        wal.close()
        assert replayed(disk) == records
