"""The thread of syncer.c: alone, behind RealFiles, and under the log. `make test` builds it."""

import asyncio
import errno
import importlib.util
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beanpole.storage import files as files_module
from beanpole.storage.files import DiskHandle, RealFiles, SyncedWrite
from beanpole.storage.wal import Identity, Wal

BUILT = Path(__file__).resolve().parents[2] / "build" / "compiled" / "beanpole" / "storage"
OURS = Identity("dev", "n0")
WAIT_S = 20.0


@pytest.fixture(scope="module")
def kind() -> Any:
    """The class Syncer of the compiled tree, beside the modules of the sources."""
    (path,) = BUILT.glob("_syncer.*.so")
    spec = importlib.util.spec_from_file_location("beanpole.storage._syncer", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Syncer


class Alone:
    """A syncer with its eventfd, and a file."""

    def __init__(self, kind: Any, path: Path) -> None:
        self.event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.syncer = kind(self.event)
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def take(self) -> tuple[int, int]:
        """Wait for the end of a write."""
        readable, _, _ = select.select([self.event], [], [], WAIT_S)
        assert readable, "the thread says nothing"
        os.eventfd_read(self.event)
        result: tuple[int, int] = self.syncer.take()
        return result

    def close(self) -> None:
        self.syncer.end()
        os.close(self.event)


def test_it_writes_where_it_is_told(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    expected = bytearray()
    for number in range(50):
        piece = bytes([number]) * (number * 997 + 1)
        assert alone.syncer.begin(alone.fd, piece, len(expected))
        expected += piece
        error, took_us = alone.take()
        assert error == 0 and 0 <= took_us < WAIT_S * 1e6
    alone.close()
    assert alone.path.read_bytes() == expected


def test_one_write_at_a_time_and_each_is_taken_once(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    assert alone.syncer.take() is None
    assert alone.syncer.begin(alone.fd, b"first", 0)
    assert not alone.syncer.begin(alone.fd, b"second", 0)
    assert alone.take()[0] == 0
    assert alone.syncer.take() is None
    alone.close()
    assert alone.path.read_bytes() == b"first"
    assert not alone.syncer.begin(alone.fd, b"too late", 0)


def test_the_owner_may_close_its_file_while_it_is_written(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    for number in range(100):
        assert alone.syncer.begin(alone.fd, b"%03d" % number, 0)
        os.close(alone.fd)
        alone.fd = os.open(alone.path, os.O_RDWR)
        assert alone.take()[0] == 0
    alone.close()
    assert alone.path.read_bytes() == b"099"


def test_errors_are_numbers(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    with pytest.raises(OSError, match="Bad file descriptor"):
        alone.syncer.begin(-1, b"x", 0)
    assert alone.syncer.begin(os.open("/dev/full", os.O_RDWR), b"x", 0)
    assert alone.take()[0] in (errno.ENOSPC, errno.EINVAL, errno.EOPNOTSUPP)
    assert alone.syncer.begin(os.open(alone.path, os.O_RDONLY), b"x", 0)
    assert alone.take()[0] == errno.EBADF
    with pytest.raises(TypeError):
        alone.syncer.begin(alone.fd, "text", 0)
    alone.close()


def test_the_end_waits_for_what_is_under_way(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    large = os.urandom(1 << 20) * 8
    assert alone.syncer.begin(alone.fd, large, 0)
    alone.syncer.end()
    alone.syncer.end()
    assert alone.path.read_bytes() == large
    threads = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("beanpole") for name in threads)


# --- under the log --------------------------------------------------------------------------------


def in_a_loop(kind: Any, work: Callable[[RealFiles], Any], patch: pytest.MonkeyPatch) -> None:
    """Run a coroutine function with a disk that has the thread."""
    patch.setattr(files_module, "_syncer_kind", lambda: kind)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        files = RealFiles(loop.call_soon_threadsafe)
        assert files.watch(loop.add_reader)
        await asyncio.wait_for(work(files), WAIT_S)
        files.close()

    asyncio.run(run())


def test_a_log_is_written_by_it(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[int] = []
    note = SyncedWrite.__init__

    def init(self: SyncedWrite, *args: Any) -> None:
        note(self, *args)
        inner = self.note

        def counted(took_us: int) -> None:
            noted.append(took_us)
            inner(took_us)

        self.note = counted

    monkeypatch.setattr(SyncedWrite, "__init__", init)

    async def work(files: RealFiles) -> None:
        wal = Wal.open(files, str(tmp_path / "log"), OURS, 1 << 20, replay=lambda *_: None)
        for index in range(300):
            durable = asyncio.Event()
            wal.on_durable = durable.set
            wal.append(1, index, 1, bytes(index * 37 % 9000))
            wal.flush()
            if index % 50 == 7:
                wal.append(1, index, 2, b"synced")
                wal.sync()
                assert wal.durable == wal.end
            while wal.durable < wal.end:
                await durable.wait()
                durable.clear()
        wal.append(1, 300, 1, b"last")
        wal.flush()
        wal.close()

    in_a_loop(kind, work, monkeypatch)
    assert len(noted) > 200
    found: list[int] = []
    disk = RealFiles(lambda _: None)
    Wal.open(
        disk, str(tmp_path / "log"), OURS, 1 << 20, replay=lambda *r: found.append(r[2] * 10 + r[3])
    ).close()
    assert [number for number in found if number % 10 == 1] == [n * 10 + 1 for n in range(301)]
    assert found.count(72) == 1
    disk.close()


def test_a_failed_write_is_told_in_the_loop(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(files: RealFiles) -> None:
        told = asyncio.Event()
        errors: list[OSError | None] = []

        def done(error: OSError | None) -> None:
            errors.append(error)
            told.set()

        path = tmp_path / "file"
        path.touch()
        handle = DiskHandle(os.open(path, os.O_RDONLY))
        files.submit(SyncedWrite(handle, 0, [b"x"], lambda: None, lambda _: None), done)
        await told.wait()
        assert errors[0] is not None and errors[0].errno == errno.EBADF

    in_a_loop(kind, work, monkeypatch)
