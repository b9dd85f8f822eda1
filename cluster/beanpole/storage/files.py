"""The seam to the disk: what the node may do with files, and the real disk behind it.

Belongs here: opening, listing, renaming, syncing, and running disk work away from the loop. Nothing
here knows a file format. The deterministic simulator has a second implementation of `Files`.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from beanpole.errors import StorageError

if TYPE_CHECKING:
    from beanpole.storage._syncer import Syncer

# Work of the write-ahead log must not wait behind the megabytes of a snapshot, so there
# are two queues of work with one thread each.
LANE_LOG: Final = 0
LANE_BULK: Final = 1
LANES: Final = 2

# Freeing 300 MiB at once held every sync of the machine up for 25 to 55 ms (ext4); in steps like
# these it was 3 to 5, and took 200 ms in place of 80.
REMOVE_STEP_BYTES: Final = 8 * 1024 * 1024
REMOVE_PAUSE_S: Final = 0.002

Work = Callable[[], None]
Done = Callable[[OSError | None], None]


class SyncedWrite:
    """A work that only writes one range and syncs it.

    An implementation may run it like any other work, or write by other means and call `note` in the
    loop, with the microseconds that it took, in place of `run`. In the second way it may overtake
    other works of its lane, and zeros may be written again behind the range, up to `room`: nothing
    may be written there before it is `settled`.
    """

    __slots__ = ("chunks", "handle", "note", "offset", "room", "run")

    def __init__(
        self,
        handle: "Handle",
        offset: int,
        chunks: list[bytes],
        room: int,
        run: Work,
        note: Callable[[int], None],
    ) -> None:
        self.handle = handle
        self.offset = offset
        self.chunks = chunks  # in pieces: they are joined where the work runs
        self.room = room
        self.run = run
        self.note = note

    def __call__(self) -> None:
        """Run it like any other work."""
        self.run()


class Handle(Protocol):
    """One open file. May be used by two threads at once as long as their ranges differ."""

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`, or raise OSError (a part may be written then)."""
        ...

    def write_synced(self, offset: int, data: bytes) -> None:
        """Write all of `data` and make it durable, with the size that it needs.

        One call and not two, because a thread that comes back from the system waits for the
        interpreter each time, and a busy loop rarely lets it in.
        """
        ...

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes; fewer only at the end of the file."""
        ...

    def sync(self) -> None:
        """Make everything written, and the size, durable."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; durable after the next `sync`."""
        ...

    def close(self) -> None:
        """Close the file without syncing it. Closing twice is allowed."""
        ...


class Files(Protocol):
    """A disk. Every method may raise OSError."""

    def open(self, path: str, create: bool = False) -> Handle:
        """Open a file for reading and writing; `create` makes a new, empty one in its place.

        A handle stays valid when the file is renamed or removed.
        """
        ...

    def list(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; nothing if it does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a directory."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, durably. Does nothing if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Put `source` in the place of `target`; durable after `sync_directory`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; durable after `sync_directory`."""
        ...

    def remove_slowly(self, path: str) -> None:
        """Remove a file without readers, in steps if it is large: others want the disk, too.

        Dying meanwhile leaves the beginning of it. A gigabyte takes most of a second.
        """
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return the bytes that this user may still write on the disk of `path`."""
        ...

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        """Run `work` away from the caller's loop, then call `done` in the loop.

        Works of one lane run one at a time in the order submitted. `done` gets None or the OSError
        that `work` raised; any other exception of `work` is a bug and is raised in the loop.
        """
        ...

    def settle(self) -> None:
        """Wait until no `SyncedWrite` is in progress in the second of its ways."""
        ...


class DiskHandle:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_truncated")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._truncated = False

    @property
    def descriptor(self) -> int:
        """The descriptor, -1 once it is closed."""
        return self._descriptor

    def write(self, offset: int, data: bytes) -> None:
        """Write all of it; the system may take it in pieces."""
        written = os.pwrite(self._descriptor, data, offset)
        if written != len(data):
            rest = memoryview(data)
            while written < len(rest):
                written += os.pwrite(self._descriptor, rest[written:], offset + written)

    def write_synced(self, offset: int, data: bytes) -> None:
        """Write with RWF_DSYNC, which syncs exactly this range, in one system call."""
        written = os.pwritev(self._descriptor, (data,), offset, os.RWF_DSYNC)
        if written != len(data):
            rest = memoryview(data)
            while written < len(rest):
                written += os.pwritev(
                    self._descriptor, (rest[written:],), offset + written, os.RWF_DSYNC
                )

    def read(self, offset: int, size: int) -> bytes:
        """Read until `size` bytes or the end of the file."""
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing and (data := os.pread(self._descriptor, missing, offset + size - missing)):
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def sync(self) -> None:
        """Sync data and size. After a cut also all metadata: that happens once per start."""
        if self._truncated:
            os.fsync(self._descriptor)
            self._truncated = False
        else:
            os.fdatasync(self._descriptor)

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._descriptor, size)
        self._truncated = True

    def close(self) -> None:
        """Close the descriptor once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class InlineFiles:
    """The disk for tools and unit tests: `submit` runs the work and calls `done` at once."""

    def open(self, path: str, create: bool = False) -> Handle:
        """Open a file; `create` makes a new, empty one in its place."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        return DiskHandle(os.open(path, flags, 0o600))

    def list(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; nothing if it does not exist."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether there is something of this name."""
        return os.path.lexists(path)

    def make_directory(self, path: str) -> None:
        """Make what is missing from the top down, syncing each parent."""
        path = os.path.abspath(path)
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        self.make_directory(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self.sync_directory(parent)

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)

    def remove_slowly(self, path: str) -> None:
        """Shorten a file step by step, then remove it."""
        size = os.path.getsize(path)
        while size > REMOVE_STEP_BYTES:
            size -= REMOVE_STEP_BYTES
            os.truncate(path, size)
            time.sleep(REMOVE_PAUSE_S)
        os.remove(path)

    def sync_directory(self, path: str) -> None:
        """Sync a directory."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        """Return the bytes available to this user."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        """Run the work here and now."""
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)

    def settle(self) -> None:
        """Nothing is in progress when `submit` returns."""

    def hold(self, directory: str) -> "DirectoryLock":
        """Take a directory for this process until the lock is released or the process ends.

        Raises:
            StorageError: another process holds it.
        """
        self.make_directory(directory)
        return DirectoryLock(os.path.join(directory, "lock"))


class RealFiles(InlineFiles):
    """The disk of a running node: one daemon thread per lane, started when it is first needed.

    In the compiled tree the log's synced writes have a thread that is none of Python's.
    """

    def __init__(self, post: Callable[[Callable[[], None]], object]) -> None:
        """Remember how to get back into the loop.

        Args:
            post: runs a callable in the loop, from any thread (`loop.call_soon_threadsafe`).
        """
        self._post = post
        self._queues: list[SimpleQueue[tuple[Work, Done] | None]] = [
            SimpleQueue() for _ in range(LANES)
        ]
        self._threads: list[threading.Thread | None] = [None] * LANES
        self._syncer: Syncer | None = None
        self._syncing: tuple[SyncedWrite, Done] | None = None
        self._event = -1
        self.closed = False

    def watch(self, add_reader: Callable[[int, Callable[[], None]], object]) -> bool:
        """Use the thread of syncer.c, if there is one; return whether there is.

        Args:
            add_reader: calls a callable in the loop when a descriptor is readable.
        """
        kind = _syncer_kind()
        if kind is not None:
            self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._syncer = kind(self._event)
            add_reader(self._event, self._synced)
        return kind is not None

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        """Hand the work to the lane's thread; nothing is taken after `close`."""
        assert not self.closed, "submit() after close()"
        if type(work) is SyncedWrite and self._begin(work, done):
            return
        if self._threads[lane] is None:
            self._start(lane)
        self._queues[lane].put((work, done))

    def settle(self) -> None:
        """See `Files`."""
        if self._syncer is not None:
            self._syncer.settle()

    def close(self) -> None:
        """Finish what was submitted, then end the threads; results are not delivered any more.

        A caller that is told of a complete file would submit the next work.
        """
        self.closed = True
        if self._syncer is not None:
            self._syncer.end()
        for queue, thread in zip(self._queues, self._threads, strict=True):
            if thread is not None:
                queue.put(None)
                thread.join()

    def drop(self, lane: int) -> None:
        """Never begin what waits in a lane, and end the lane: for a `close` that takes too long.

        May be called in any thread, after `close` or during it.
        """
        queue = self._queues[lane]
        with contextlib.suppress(Empty):
            while True:
                queue.get_nowait()
        queue.put(None)

    def _begin(self, work: SyncedWrite, done: Done) -> bool:
        """Give a write to the thread that is none of Python's, if it has nothing to do."""
        handle, syncer = work.handle, self._syncer
        if syncer is None or self._syncing is not None or type(handle) is not DiskHandle:
            return False
        try:
            begun = syncer.begin(handle.descriptor, b"".join(work.chunks), work.offset, work.room)
        except OSError:
            return False  # it found no descriptor for the file
        if begun:
            self._syncing = (work, done)
        return begun

    def _synced(self) -> None:
        """The thread says that it has finished."""
        os.eventfd_read(self._event)
        if self.closed:
            return
        assert self._syncer is not None and self._syncing is not None
        result = self._syncer.take()
        assert result is not None, "the thread has not finished"
        (work, done), self._syncing = self._syncing, None
        error, took_us = result
        if error:
            done(OSError(error, os.strerror(error)))
            return
        work.note(took_us)
        done(None)

    def _start(self, lane: int) -> None:
        name = ("beanpole-log", "beanpole-bulk")[lane]
        thread = threading.Thread(target=self._serve, args=(lane,), name=name, daemon=True)
        self._threads[lane] = thread
        thread.start()

    def _serve(self, lane: int) -> None:
        take = self._queues[lane].get
        while (item := take()) is not None:
            work, done = item
            try:
                work()
            except OSError as error:
                self._answer(partial(self._tell, done, error))
            except BaseException as bug:  # the loop must see a bug of ours, not this thread
                self._answer(partial(_raise, bug))
            else:
                self._answer(partial(self._tell, done, None))

    def _tell(self, done: Done, error: OSError | None) -> None:
        if not self.closed:
            done(error)

    def _answer(self, answer: Callable[[], None]) -> None:
        try:
            self._post(answer)
        except RuntimeError:
            # A loop that was closed takes no results: nothing is left that could use them.
            if not self.closed:
                raise


def _syncer_kind() -> "type[Syncer] | None":
    """Return what syncer.c defines; None outside the compiled tree."""
    try:
        from beanpole.storage._syncer import Syncer
    except ImportError:
        return None
    return Syncer


def _raise(error: BaseException) -> None:
    raise error


class DirectoryLock:
    """Keeps a second process out of a directory; the system releases it when the process dies."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            message = f"{os.path.dirname(path)} is in use by another process"
            raise StorageError(message) from None

    def release(self) -> None:
        """Let others have the directory."""
        os.close(self._descriptor)
