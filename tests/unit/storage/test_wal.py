"""The log in normal operation: group commit, reading, roll-over, dropping, filling, failing."""

import errno
import os
import threading
from pathlib import Path

import pytest

from beanpole.errors import Damaged, LogFailed, UnknownVersion, WrongIdentity
from beanpole.storage.files import LANE_BULK, InlineFiles
from beanpole.storage.format import (
    FILE_HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    RECORD_HEADER_BYTES,
    Identity,
)
from beanpole.storage.wal import Wal
from beanpole.storage.writer import FILL_AHEAD_BYTES, FILL_STEP_BYTES
from tests.unit.storage.disk import Disk, broken_sync, full
from tests.unit.storage.logs import OURS, Record, fill, opened, replayed


def test_records_come_back_in_order_with_their_positions() -> None:
    disk = Disk()
    wal = opened(disk)
    records = fill(wal, 5)
    records.append((wal.append(255, 2**64 - 1, 2**64 - 1, b""), 255, 2**64 - 1, 2**64 - 1, b""))
    assert [record[0] for record in records] == [n * (RECORD_HEADER_BYTES + 100) for n in range(6)]
    wal.flush()
    assert wal.durable == wal.end == 5 * (RECORD_HEADER_BYTES + 100) + RECORD_HEADER_BYTES
    assert replayed(disk) == records


def test_positions_go_on_after_a_restart() -> None:
    disk = Disk()
    wal = opened(disk)
    records = fill(wal, 3)
    wal.close()
    wal = opened(disk)
    assert wal.durable == wal.end == records[-1][0] + RECORD_HEADER_BYTES + 100
    records += fill(wal, 3)
    wal.close()
    assert replayed(disk) == records


def test_nothing_is_durable_before_the_disk_says_so() -> None:
    disk = Disk(inline=False)
    wal = opened(disk)
    calls: list[int] = []
    wal.on_durable = lambda: calls.append(wal.durable)
    first = wal.append(1, 1, 1, b"a")
    wal.flush()
    assert (wal.durable, wal.buffered_bytes, calls) == (first, 0, [])
    disk.step()
    assert (wal.durable, calls) == (wal.end, [wal.end])


def test_while_one_batch_is_written_the_next_forms_and_follows_as_one_write() -> None:
    disk = Disk(inline=False)
    wal = opened(disk)
    fill(wal, 1)
    wal.flush()
    later = fill(wal, 20)
    wal.flush()
    wal.flush()
    assert len(disk.works[0]) == 1 and wal.buffered_bytes == 20 * (RECORD_HEADER_BYTES + 100)
    disk.log.clear()
    disk.step()
    assert wal.durable == later[0][0] and wal.buffered_bytes == 0
    disk.step()
    assert wal.durable == wal.end
    assert disk.log == ["write 00000000000000000000.wal", "sync 00000000000000000000.wal"] * 2


def test_sync_in_the_loop_takes_over_a_submitted_write() -> None:
    disk = Disk(inline=False)
    wal = opened(disk)
    calls: list[int] = []
    wal.on_durable = lambda: calls.append(wal.durable)
    records = fill(wal, 2)
    wal.flush()
    records += fill(wal, 2)
    wal.sync()
    assert wal.durable == wal.end and calls == []
    disk.log.clear()
    disk.run()
    assert disk.log == [], "the submitted write was done already"
    assert calls == [wal.end]
    disk.kill()
    assert replayed(disk) == records


def test_sync_alone_also_tells_the_owner_but_not_from_inside() -> None:
    disk = Disk(inline=False)
    wal = opened(disk)
    calls: list[int] = []
    wal.on_durable = lambda: calls.append(wal.durable)
    wal.append(1, 1, 1, b"term")
    wal.sync()
    assert calls == []
    disk.run()
    assert calls == [wal.end]
    wal.sync()
    disk.run()
    assert calls == [wal.end]


def test_sync_waits_for_a_write_that_runs_in_the_thread() -> None:
    """The thread is held inside the write while the loop calls sync()."""
    disk = Disk(inline=False)
    wal = opened(disk)
    fill(wal, 1)
    wal.flush()
    inside, go_on = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if threading.current_thread() is thread and operation == "write":
            inside.set()
            assert go_on.wait(60)

    disk.fail = hold
    work, done = disk.works[0].popleft()
    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(60)
    threading.Timer(0.02, go_on.set).start()
    records = fill(wal, 1)
    wal.sync()
    assert go_on.is_set() and wal.durable == wal.end
    thread.join(60)
    done(None)
    assert wal.read(records[0][0]) == records[0][1:]


def test_sync_lets_the_disk_settle_before_it_writes() -> None:
    """A write in progress outside the interpreter may still put zeros after its bytes."""
    disk = Disk(inline=False)
    wal = opened(disk)
    fill(wal, 1)
    wal.flush()
    fill(wal, 1)
    before = len(disk.log)
    wal.sync()
    assert disk.settled == [before] and len(disk.log) > before


def test_records_are_read_from_the_buffer_from_the_running_batch_and_from_disk() -> None:
    disk = Disk(inline=False)
    wal = opened(disk, segment_bytes=2048)
    records = fill(wal, 30)
    wal.flush()
    records += fill(wal, 30)
    for at, *rest in records:
        assert wal.read(at) == tuple(rest)
    disk.run()
    assert wal.buffered_bytes == 0
    for at, *rest in records:
        assert wal.read(at) == tuple(rest)
    wal.close()
    wal = opened(disk, segment_bytes=2048)
    for at, *rest in records:
        assert wal.read(at) == tuple(rest)


def test_what_was_synced_before_its_completion_is_read_from_disk() -> None:
    disk = Disk(inline=False)
    wal = opened(disk)
    records = fill(wal, 2)
    wal.sync()
    records += fill(wal, 2)
    wal.sync()  # the completion of the first sync has not run yet
    for at, *rest in records:
        assert wal.read(at) == tuple(rest)


def test_a_record_that_changed_on_disk_is_not_given_out() -> None:
    disk = Disk()
    wal = opened(disk)
    at = wal.append(1, 1, 1, b"precious")
    wal.flush()
    node = disk.names["log/00000000000000000000.wal"]
    node.data[FILE_HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1
    with pytest.raises(Damaged, match=r"offset 512.*beanpoled --dump-wal log"):
        wal.read(at)


def test_roll_over_syncs_the_old_segment_before_the_new_one_gets_its_name() -> None:
    disk = Disk(inline=False)
    wal = opened(disk, segment_bytes=2048)
    records = fill(wal, 12)
    disk.log.clear()
    wal.flush()
    disk.step()
    first, second = "00000000000000000000.wal", f"{records[11][0]:020d}.wal"
    assert disk.log == [
        f"write {first}",
        f"sync {first}",
        f"open {second}.tmp",
        f"write {second}.tmp",
        f"sync {second}.tmp",
        f"rename {second}",
        "sync_directory log",
        f"write {second}",
        f"sync {second}",
    ]
    wal.close()
    assert replayed(disk, 2048) == records


def test_a_record_never_lies_in_two_segments_and_a_huge_one_has_its_own() -> None:
    disk = Disk()
    wal = opened(disk, segment_bytes=2048)
    records: list[Record] = []
    for size in (1, 1400, 100, 5000, 0, 10, 2048 - FILE_HEADER_BYTES - RECORD_HEADER_BYTES, 1):
        payload = b"x" * size
        records.append((wal.append(1, size, 1, payload), 1, size, 1, payload))
        wal.flush()
    bases = [int(name[:20]) for name in disk.list("log")]
    assert bases == [records[n][0] for n in (0, 2, 3, 4, 6, 7)]
    wal.close()
    assert replayed(disk, 2048) == records


def test_drop_before_removes_whole_segments_oldest_first() -> None:
    disk = Disk()
    wal = opened(disk, segment_bytes=2048)
    records = fill(wal, 60)
    wal.flush()
    names = disk.list("log")
    bases = [int(name[:20]) for name in names]
    wal.drop_before(bases[1] - 1)
    assert disk.list("log") == names
    disk.log.clear()
    wal.drop_before(bases[3])
    assert disk.list("log") == names[3:]
    assert [line for line in disk.log if "remove" in line or "directory" in line] == [
        line for name in names[:3] for line in (f"remove {name}", "sync_directory log")
    ]
    assert wal.start == bases[3] and wal.bytes_kept == wal.end - bases[3]
    wal.drop_before(wal.end + 1000)
    assert disk.list("log") == names[-1:]
    kept = [record for record in records if record[0] >= wal.start]
    assert all(wal.read(record[0]) == record[1:] for record in kept)
    wal.close()
    assert replayed(disk, 2048) == kept


@pytest.mark.parametrize("failing", ["remove", "sync_directory"])
def test_a_removal_that_fails_is_tried_again(failing: str) -> None:
    """Of the second segment, which stays, or the sync behind that of the first, which is gone."""
    disk = Disk()
    wal = opened(disk, segment_bytes=2048)
    fill(wal, 60)
    wal.flush()
    names = disk.list("log")

    def stuck(operation: str, path: str) -> None:
        if operation == failing and not path.endswith(names[0]):
            raise OSError(errno.EIO, "input/output error", path)

    disk.fail = stuck
    wal.drop_before(int(names[3][:20]))
    assert disk.list("log") == names[1:] and not wal.failed
    disk.fail = lambda operation, path: None
    wal.drop_before(int(names[4][:20]))
    assert disk.list("log") == names[4:]


def test_a_segment_stays_until_the_thread_has_left_it() -> None:
    """All of it is durable, but zeros may still be written into it."""
    disk = Disk(inline=False)
    wal = opened(disk, segment_bytes=2048)
    fill(wal, 11)
    wal.flush()
    disk.step()
    fill(wal, 1)
    wal.drop_before(wal.end)
    assert wal.start == 0
    wal.flush()
    disk.run()
    wal.drop_before(wal.end)
    assert wal.start > 0


def test_what_is_not_durable_is_never_dropped() -> None:
    disk = Disk(inline=False)
    wal = opened(disk, segment_bytes=2048)
    fill(wal, 60)
    wal.drop_before(wal.end)
    assert wal.start == 0
    wal.flush()
    disk.step()
    wal.drop_before(wal.end)
    assert wal.start > 0
    disk.step(LANE_BULK)
    assert len(disk.list("log")) == 1


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory"])
def test_a_failure_is_told_once_and_nothing_is_written_any_more(operation: str) -> None:
    disk = Disk(inline=False)
    wal = opened(disk, segment_bytes=2048)
    durable = wal.durable
    failures: list[OSError] = []
    wal.on_failure = failures.append
    wal.on_durable = lambda: pytest.fail("nothing became durable")

    def broken(name: str, path: str) -> None:
        if name == operation:
            raise OSError(errno.EIO, "input/output error", path)

    disk.fail = broken
    fill(wal, 30)
    wal.flush()
    fill(wal, 1)
    disk.run()
    assert [error.errno for error in failures] == [errno.EIO]
    disk.fail = lambda name, path: None
    disk.log.clear()
    fill(wal, 1)
    wal.flush()
    disk.run()
    with pytest.raises(LogFailed):
        wal.sync()
    wal.close()
    assert disk.log == [] and wal.durable == durable and len(failures) == 1 and wal.failed


def test_a_failing_sync_in_the_loop_is_told_and_the_queued_write_stays_undone() -> None:
    disk = Disk(inline=False)
    wal = opened(disk)
    failures: list[OSError] = []
    wal.on_failure = failures.append
    fill(wal, 1)
    wal.flush()
    disk.fail = broken_sync
    with pytest.raises(LogFailed):
        wal.sync()
    disk.fail = lambda operation, path: None
    disk.log.clear()
    disk.run()
    assert disk.log == [] and len(failures) == 1 and wal.durable == 0


def test_a_full_disk_is_fatal_for_records_but_not_for_filling_ahead() -> None:
    disk = Disk(inline=False)
    disk.fail = lambda operation, path: full(operation, path) if "tmp" not in path else None
    wal = opened(disk, segment_bytes=2 * FILL_STEP_BYTES)
    failures: list[OSError] = []
    wal.on_failure = failures.append
    # The first segment was opened and written as .tmp: open it again under its name.
    disk.fail = lambda operation, path: None
    wal.close()
    disk.run()
    disk.fail = full
    wal = opened(disk, segment_bytes=4 * FILL_AHEAD_BYTES)
    wal.on_failure = failures.append
    disk.run()
    assert failures == []
    fill(wal, 1)
    disk.fail = lambda operation, path: None
    wal.flush()
    disk.step()
    assert wal.durable == wal.end
    disk.fail = full
    disk.run()
    fill(wal, 1)
    wal.flush()
    disk.run()
    assert [error.errno for error in failures] == [errno.ENOSPC]


def test_space_ahead_is_filled_in_steps_away_from_the_batches() -> None:
    disk = Disk(inline=False)
    size = 2 * FILL_AHEAD_BYTES
    wal = opened(disk, segment_bytes=size)
    node = disk.names["log/00000000000000000000.wal"]
    assert len(node.data) == FILL_AHEAD_BYTES, "filled before anybody waits"
    while wal.end < size // 2:
        wal.append(1, 1, 1, b"x" * 100_000)
        wal.flush()
        disk.step()
        assert wal.durable == wal.end
        disk.run()
        ahead = len(node.data) - FILE_HEADER_BYTES - wal.end
        assert FILL_AHEAD_BYTES - 2 * FILL_STEP_BYTES < ahead <= FILL_AHEAD_BYTES
    while wal.end < size * 3 // 2:
        wal.append(1, 1, 1, b"x" * 100_000)
        wal.flush()
        disk.run()
    assert len(node.data) <= size
    assert all(len(other.data) <= size for other in disk.names.values())


def test_files_of_others_are_refused() -> None:
    disk = Disk()
    opened(disk).close()
    with pytest.raises(WrongIdentity, match=r"node n0 of cluster dev.*node n1 of cluster dev"):
        opened(disk, identity=Identity("dev", "n1"))
    with pytest.raises(WrongIdentity, match="cluster prod"):
        opened(disk, identity=Identity("prod", "n0"))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (1, r"was written by a program before release 0\.2\.0 \(file version 1, .*: finish its"),
        (3, r"\.wal has file version 3, this program reads 2: upgrade beanpoled on this node"),
    ],
)
def test_another_version_is_refused_with_what_to_do(version: int, words: str) -> None:
    disk = Disk()
    opened(disk).close()
    disk.names["log/00000000000000000000.wal"].data[8] = version
    with pytest.raises(UnknownVersion, match=words):
        opened(disk)


def test_an_unfinished_segment_file_is_removed_at_the_start() -> None:
    disk = Disk()
    opened(disk).close()
    disk.open("log/00000000000000000512.wal.tmp", create=True)
    opened(disk)
    assert disk.list("log") == ["00000000000000000000.wal"]


def test_limits_are_checked() -> None:
    wal = opened(Disk())
    with pytest.raises(AssertionError):
        wal.append(0, 1, 1, b"")
    with pytest.raises(AssertionError):
        wal.append(1, 1, 1, bytes(PAYLOAD_BYTES_MAX + 1))
    assert wal.end == 0


def test_counters_count() -> None:
    disk = Disk()
    wal = opened(disk)
    before = wal.syncs
    fill(wal, 3)
    wal.flush()
    assert wal.syncs == before + 1 and wal.bytes_written == wal.end
    assert wal.sync_us_total >= wal.last_sync_us >= 0
    assert sum(wal.sync_counts) == wal.syncs


def test_the_real_disk(tmp_path: Path) -> None:
    directory = str(tmp_path / "a" / "log")
    records: list[Record] = []
    for _ in range(3):
        found: list[Record] = []
        wal = Wal.open(
            InlineFiles(), directory, OURS, 1 << 16, replay=lambda *r, found=found: found.append(r)
        )
        assert found == records
        records += fill(wal, 300)
        wal.close()
    assert sum(name.endswith(".wal") for name in os.listdir(directory)) > 1
