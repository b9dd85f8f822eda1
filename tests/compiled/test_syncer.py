"""The thread of syncer.c: alone, behind RealFiles, and under the log. `make test` builds it."""

import asyncio
import errno
import importlib.util
import os
import random
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from beanpole.storage import files as files_module
from beanpole.storage.disk_handle import DiskHandle
from beanpole.storage.files import RealFiles, SyncedWrite
from beanpole.storage.format import Identity
from beanpole.storage.wal import Wal

BUILT = Path(__file__).resolve().parents[2] / "build" / "compiled" / "beanpole" / "storage"
OURS = Identity("dev", "n0")
WAIT_S = 60.0
# The size of the zeros that a file has in advance.
ROOM = 2 * 1024 * 1024


@pytest.fixture(scope="module")
def kind() -> Any:
    """The class Syncer of the compiled tree, with the other modules from the sources."""
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
        """Wait for the end of a write; return its error and duration."""
        readable, _, _ = select.select([self.event], [], [], WAIT_S)
        assert readable, "the thread says nothing"
        os.eventfd_read(self.event)
        result: tuple[int, int] = self.syncer.take()
        return result

    def close(self) -> None:
        self.syncer.end()
        os.close(self.event)


@pytest.mark.parametrize("room", [0, ROOM], ids=["cached", "direct"])
def test_it_writes_where_it_is_told(kind: Any, tmp_path: Path, room: int) -> None:
    alone = Alone(kind, tmp_path / "file")
    os.truncate(alone.path, room)
    expected = bytearray()
    for number in range(50):
        piece = bytes([number]) * (number * 997 + 1)
        assert alone.syncer.begin(alone.fd, piece, len(expected), room)
        expected += piece
        error, took_us = alone.take()
        assert error == 0 and 0 <= took_us < WAIT_S * 1e6
    alone.close()
    assert alone.path.read_bytes() == bytes(expected).ljust(room, b"\0")


def test_direct_writes_change_nothing_but_what_they_are_told(kind: Any, tmp_path: Path) -> None:
    """Two files, other writes in between, all sizes and offsets, up to the end of the room."""
    seed = random.SystemRandom().randrange(2**32)
    dice = random.Random(seed)
    sys.stdout.write(f"seed {seed}\n")
    alone = Alone(kind, tmp_path / "file")
    files = [alone.fd, os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)]
    room = ROOM - 1000  # its last block is incomplete
    for file in files:
        os.ftruncate(file, room)
    models = [bytearray(room), bytearray(room)]
    ends = [0, 0]
    for _ in range(400):
        place = dice.choice((0, 0, 0, 1))
        size = dice.choice((1, 100, 4095, 4096, 4097, dice.randrange(1, 20_000), 300_000))
        piece = dice.randbytes(min(size, room - ends[place]))
        if not piece:
            break
        if dice.random() < 0.2:
            os.pwrite(files[place], piece, ends[place])
        else:
            assert alone.syncer.begin(files[place], piece, ends[place], room)
            assert alone.take()[0] == 0
        models[place][ends[place] : ends[place] + len(piece)] = piece
        ends[place] += len(piece)
    alone.close()
    assert (tmp_path / "file").read_bytes() == models[0]
    assert (tmp_path / "other").read_bytes() == models[1]


def test_it_goes_past_the_cache_where_the_file_system_lets_it(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    os.truncate(alone.path, ROOM)
    try:
        os.close(os.open(alone.path, os.O_RDWR | os.O_DIRECT))
        possible = True
    except OSError:
        possible = False
    assert alone.syncer.begin(alone.fd, b"x", 0, ROOM)
    assert alone.take()[0] == 0
    assert direct_descriptors(alone.path) == possible
    os.close(alone.fd)
    alone.close()
    assert direct_descriptors(alone.path) == 0


def direct_descriptors(path: Path) -> int:
    """Return the number of this process's descriptors for direct writes to a file."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{number}") == str(path):
                flags = Path(f"/proc/self/fdinfo/{number}").read_text().split()[3]
                found += bool(int(flags, 8) & os.O_DIRECT)
    return found


def test_settling_is_waiting_and_not_taking(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    alone.syncer.settle()
    large = os.urandom(1 << 20) * 8
    assert alone.syncer.begin(alone.fd, large, 0, 0)
    alone.syncer.settle()
    assert alone.path.read_bytes() == large
    assert alone.take()[0] == 0
    alone.close()


def test_one_write_at_a_time_and_each_is_taken_once(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    assert alone.syncer.take() is None
    assert alone.syncer.begin(alone.fd, b"first", 0, 0)
    assert not alone.syncer.begin(alone.fd, b"second", 0, 0)
    assert alone.take()[0] == 0
    assert alone.syncer.take() is None
    alone.close()
    assert alone.path.read_bytes() == b"first"
    assert not alone.syncer.begin(alone.fd, b"too late", 0, 0)


def test_the_owner_may_close_its_file_while_it_is_written(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    for number in range(100):
        assert alone.syncer.begin(alone.fd, b"%03d" % number, 0, 0)
        os.close(alone.fd)
        alone.fd = os.open(alone.path, os.O_RDWR)
        assert alone.take()[0] == 0
    alone.close()
    assert alone.path.read_bytes() == b"099"


def test_errors_are_numbers(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    with pytest.raises(OSError, match="Bad file descriptor"):
        alone.syncer.begin(-1, b"x", 0, 0)
    assert alone.syncer.begin(os.open("/dev/full", os.O_RDWR), b"x", 0, 0)
    assert alone.take()[0] in (errno.ENOSPC, errno.EINVAL, errno.EOPNOTSUPP)
    assert alone.syncer.begin(os.open(alone.path, os.O_RDONLY), b"x", 0, 0)
    assert alone.take()[0] == errno.EBADF
    with pytest.raises(TypeError):
        alone.syncer.begin(alone.fd, "text", 0, 0)
    alone.close()


def test_the_end_waits_for_writes_in_progress(kind: Any, tmp_path: Path) -> None:
    alone = Alone(kind, tmp_path / "file")
    large = os.urandom(1 << 20) * 8
    assert alone.syncer.begin(alone.fd, large, 0, 0)
    alone.syncer.end()
    alone.syncer.end()
    assert alone.path.read_bytes() == large
    threads = [thread.name for thread in threading.enumerate()]
    assert not any(name.startswith("beanpole") for name in threads)


# --- under the log --------------------------------------------------------------------------------


def in_a_loop(kind: Any, work: Callable[[RealFiles], Any], patch: pytest.MonkeyPatch) -> None:
    """Run a coroutine function with a disk that uses the thread."""
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
        files.submit(SyncedWrite(handle, 0, [b"x"], 0, lambda: None, lambda _: None), done)
        await told.wait()
        assert errors[0] is not None and errors[0].errno == errno.EBADF
        assert errors[0].filename == str(path)

    in_a_loop(kind, work, monkeypatch)
