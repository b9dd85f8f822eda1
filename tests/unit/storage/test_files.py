"""The real disk: the guarantees of its methods; works run in order and report in the loop."""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from beanpole.errors import StorageError
from beanpole.storage.files import (
    LANE_BULK,
    LANE_LOG,
    LANE_LOOK,
    LANE_LOOK_EVENTS,
    REMOVE_STEP_BYTES,
    InlineFiles,
    RealFiles,
    measure,
)
from beanpole.storage.format import Identity
from beanpole.storage.wal import Wal

WAIT_S = 30


def test_a_file_is_written_read_cut_and_renamed(tmp_path: Path) -> None:
    files = InlineFiles()
    directory = str(tmp_path / "a" / "b")
    assert files.list(directory) == []
    files.make_directory(directory)
    files.make_directory(directory)
    path = f"{directory}/file"
    with pytest.raises(FileNotFoundError):
        files.open(path)
    handle = files.open(path, create=True)
    handle.write(0, b"0123456789")
    handle.write_synced(8, b"abcd")
    assert (handle.read(0, 100), handle.read(9, 2), handle.size()) == (b"01234567abcd", b"bc", 12)
    handle.truncate(3)
    handle.sync()
    handle.sync()
    files.rename(path, path + "2")
    files.sync_directory(directory)
    assert handle.read(0, 100) == b"012"
    assert files.list(directory) == ["file2"] and not files.exists(path)
    files.remove(path + "2")
    handle.close()
    handle.close()
    assert files.open(path, create=True).size() == 0
    assert files.free_bytes(directory) > 0


def test_what_the_system_writes_in_parts_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short write is no error: without the rest, a log would have a record cut in the middle."""
    pwrite, pwritev = os.pwrite, os.pwritev

    def half(descriptor: int, data: bytes | memoryview, offset: int) -> int:
        return pwrite(descriptor, data[: (len(data) + 1) // 2], offset)

    def half_synced(descriptor: int, buffers: Any, offset: int, flags: int) -> int:
        (data,) = buffers
        return pwritev(descriptor, (data[: (len(data) + 1) // 2],), offset, flags)

    monkeypatch.setattr(os, "pwrite", half)
    monkeypatch.setattr(os, "pwritev", half_synced)
    handle = InlineFiles().open(str(tmp_path / "file"), create=True)
    handle.write(0, b"0123456789")
    assert handle.read(0, 100) == b"0123456789"
    handle.write_synced(5, b"abcdefghijk")
    assert handle.read(0, 100) == b"01234abcdefghijk"
    handle.close()


@pytest.mark.parametrize(
    ("inodes", "free", "room"),
    [(1000, 16, True), (1000, 15, False), (1000, 0, False), (0, 0, True)],
)
def test_a_disk_without_inodes_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inodes: int, free: int, room: bool
) -> None:
    """The node would end at its next file, with gigabytes that are free."""
    real = os.statvfs(tmp_path)
    values = list(real)
    values[5:8] = [inodes, free, free]  # f_files, f_ffree, f_favail
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(values))
    expected = real.f_bavail * real.f_frsize if room else 0
    assert InlineFiles().free_bytes(str(tmp_path)) == expected


@pytest.mark.parametrize(
    ("size", "steps"),
    [
        (0, []),
        (REMOVE_STEP_BYTES, []),
        (3 * REMOVE_STEP_BYTES + 1, [2 * REMOVE_STEP_BYTES + 1, REMOVE_STEP_BYTES + 1, 1]),
    ],
)
def test_a_large_file_is_removed_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, steps: list[int]
) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, size)
    sizes: list[int] = []
    monkeypatch.setattr(time, "sleep", lambda pause_s: sizes.append(path.stat().st_size))
    InlineFiles().remove_slowly(str(path))
    assert sizes == steps and not path.exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_look_that_fails_is_no_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    files = InlineFiles()
    file = tmp_path / "file"
    file.touch()
    assert files.exists(str(file)) and not files.exists(f"{file}/below")
    dangling = tmp_path / "dangling"
    dangling.symlink_to("nowhere")
    assert files.exists(str(dangling)) and not files.exists(str(tmp_path / "none"))

    def refuse(path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    for look in (files.exists, files.make_directory):
        # pytest looks at files, too, before it reports a failure.
        with pytest.raises(OSError) as caught, monkeypatch.context() as patch:
            patch.setattr(os, "lstat", refuse)
            patch.setattr(os, "stat", refuse)
            look(str(file))
        assert (caught.value.errno, caught.value.filename) == (number, str(file))


def test_errors_of_an_open_file_name_it_as_it_is_called_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of a node said that its disk failed, but not which one."""
    files = InlineFiles()
    path = tmp_path / "file"
    handle = files.open(f"{path}.tmp", create=True)
    files.rename(f"{path}.tmp", str(path))

    def refuse(*_arguments: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    calls: list[tuple[Callable[[], object], Path]] = [
        (lambda: handle.write(0, b"x"), path),
        (lambda: handle.write_synced(0, b"x"), path),
        (lambda: handle.read(0, 1), path),
        (handle.sync, path),
        (handle.size, path),
        (lambda: handle.truncate(0), path),
        (lambda: files.sync_directory(str(tmp_path)), tmp_path),
    ]
    for call, named in calls:
        with pytest.raises(OSError) as caught, monkeypatch.context() as patch:
            for name in ("pwrite", "pwritev", "pread", "fsync", "fdatasync", "fstat", "ftruncate"):
                patch.setattr(os, name, refuse)
            call()
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(named))


def test_create_empties_what_was_there(tmp_path: Path) -> None:
    files = InlineFiles()
    path = tmp_path / "file"
    path.write_bytes(b"old")
    handle = files.open(str(path), create=True)
    assert handle.size() == 0
    handle.close()


def test_a_directory_is_held_by_one(tmp_path: Path) -> None:
    files = InlineFiles()
    lock = files.hold(str(tmp_path))
    with pytest.raises(StorageError, match="in use by another process"):
        files.hold(str(tmp_path))
    lock.release()
    files.hold(str(tmp_path)).release()


def test_a_lock_on_a_file_that_was_removed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = InlineFiles()
    lock = files.hold(str(tmp_path))
    opening, held = os.open, []

    def late(*arguments: Any) -> int:
        """Let the holder give up, and another one come, after the file was opened."""
        descriptor = opening(*arguments)
        monkeypatch.setattr(os, "open", opening)
        lock.remove()
        held.append(files.hold(str(tmp_path)))
        return descriptor

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(StorageError, match="in use by another process"):
        files.hold(str(tmp_path))
    held[0].remove()
    assert os.listdir(tmp_path) == []


class Loop:
    """A loop that is a queue: `post` is thread-safe, `turn` runs the next callable."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.post = self._calls.put

    def turn(self) -> None:
        self._calls.get(timeout=WAIT_S)()


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "input/output error")])
def test_the_free_space_is_measured_outside_the_loop(
    error: OSError | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    files = RealFiles(loop.post)
    threads: list[int] = []
    statvfs = os.statvfs

    def asked(path: str) -> os.statvfs_result:
        threads.append(threading.get_ident())
        if error is not None:
            raise error
        return statvfs(path)

    monkeypatch.setattr(os, "statvfs", asked)
    answers: list[tuple[int, OSError | None, int]] = []
    measure(
        files,
        str(tmp_path),
        LANE_LOOK,
        lambda found, failed: answers.append((found, failed, threading.get_ident())),
    )
    loop.turn()
    files.close()
    [(found, failed, thread)] = answers
    assert (found > 0) is (error is None) and failed is error
    assert thread == threading.get_ident() not in threads


@pytest.mark.parametrize("lane", [LANE_LOOK, LANE_LOOK_EVENTS])
@pytest.mark.parametrize("other", [LANE_LOG, LANE_BULK])
def test_a_stop_does_not_wait_for_a_disk_that_does_not_tell_its_free_space(
    lane: int, other: int
) -> None:
    loop = Loop()
    files = RealFiles(loop.post)
    begun, go_on, written = threading.Event(), threading.Event(), threading.Event()

    def hangs() -> None:
        begun.set()
        go_on.wait()

    files.submit(hangs, lambda _: None, lane)
    files.submit(written.set, lambda _: None, other)
    begun.wait()
    files.close()
    assert written.is_set() and not go_on.is_set()
    go_on.set()


def test_works_run_elsewhere_in_order_and_are_answered_in_the_loop() -> None:
    loop = Loop()
    files = RealFiles(loop.post)
    order: list[int] = []
    threads: set[int] = set()
    answers: list[tuple[OSError | None, int]] = []

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            threads.add(threading.get_ident())
            order.append(number)
            if number == 3:
                raise OSError(errno.EIO, "input/output error")

        return run

    for number in range(6):
        files.submit(work(number), lambda e: answers.append((e, threading.get_ident())))
    for _ in range(6):
        loop.turn()
    files.close()
    assert order == list(range(6))
    assert len(threads) == 1 and threading.get_ident() not in threads
    assert {thread for _, thread in answers} == {threading.get_ident()}
    assert [error is not None for error, _ in answers] == [n == 3 for n in range(6)]


def test_work_of_a_lane_whose_thread_cannot_start_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loop = Loop()
    files = RealFiles(loop.post)
    ran: list[str] = []
    answers: list[OSError | None] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        files.submit(lambda: ran.append("first"), answers.append, LANE_BULK)
    assert answers == []  # it is told in a step of its own, as ever
    loop.turn()
    files.submit(lambda: ran.append("second"), answers.append, LANE_BULK)
    loop.turn()
    files.close()
    [failed, succeeded] = answers
    assert failed is not None and failed.errno == errno.EAGAIN and succeeded is None
    assert ran == ["second"]


def test_bulk_work_does_not_delay_the_log() -> None:
    loop = Loop()
    files = RealFiles(loop.post)
    go_on = threading.Event()
    answers: list[str] = []
    files.submit(lambda: assert_set(go_on), lambda _: answers.append("bulk"), LANE_BULK)
    files.submit(lambda: None, lambda _: answers.append("log"), LANE_LOG)
    loop.turn()
    assert answers == ["log"]
    go_on.set()
    loop.turn()
    assert answers == ["log", "bulk"]
    files.close()


def assert_set(event: threading.Event) -> None:
    assert event.wait(WAIT_S)


def test_a_bug_in_a_work_is_raised_in_the_loop_and_the_thread_lives_on() -> None:
    loop = Loop()
    files = RealFiles(loop.post)
    answers: list[OSError | None] = []
    files.submit(lambda: assert_set_never(), answers.append)
    files.submit(lambda: None, answers.append)
    with pytest.raises(AssertionError, match="a bug"):
        loop.turn()
    loop.turn()
    assert answers == [None]
    files.close()


def assert_set_never() -> None:
    raise AssertionError("a bug")


def test_close_finishes_what_was_submitted_even_when_the_loop_is_gone() -> None:
    done: list[int] = []

    def gone(call: Callable[[], None]) -> None:
        raise RuntimeError("Event loop is closed")

    go_on = threading.Event()
    files = RealFiles(gone)
    files.submit(lambda: assert_set(go_on), lambda _: None)
    files.submit(lambda: done.append(1), lambda _: None)
    closer = threading.Thread(target=files.close)
    closer.start()
    while not files.closed:
        pass
    go_on.set()
    closer.join(WAIT_S)
    assert done == [1]


def test_after_its_close_nobody_is_told_of_results() -> None:
    """A snapshot completed at the moment of a stop tried to remove the previous one."""
    loop = Loop()
    files = RealFiles(loop.post)
    told: list[OSError | None] = []
    ran: list[int] = []
    files.submit(lambda: ran.append(1), told.append)
    files.close()
    loop.turn()  # the result was already posted
    assert ran == [1] and told == []


def test_the_log_with_a_real_thread(tmp_path: Path) -> None:
    """Appends, group commits and inline syncs; all records are found after the restart."""
    loop = Loop()
    files = RealFiles(loop.post)
    ours = Identity("dev", "n0")
    wal = Wal.open(files, str(tmp_path), ours, 1 << 20, replay=lambda *record: None)
    for index in range(3000):
        wal.append(1, index, 1, b"x" * (index % 1000))
        if index % 3 == 0:
            wal.flush()
        if index % 500 == 0:
            wal.sync()
            assert wal.durable == wal.end
    wal.flush()
    while wal.durable < wal.end:
        loop.turn()
    wal.close()
    files.close()
    found: list[int] = []
    Wal.open(
        InlineFiles(), str(tmp_path), ours, 1 << 20, replay=lambda a, k, i, t, p: found.append(i)
    ).close()
    assert found == list(range(3000))
