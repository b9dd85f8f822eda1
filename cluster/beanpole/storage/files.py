"""The interface to the disk: the operations on files, and their implementation on the real disk.

Belongs here: opening, listing, renaming, syncing, and running disk work outside the loop. This
module knows no file format. The deterministic simulator has a second implementation of `Files`.
"""

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from beanpole.storage.disk_handle import DiskHandle
from beanpole.storage.locks import LOCK, DirectoryLock
from beanpole.storage.threads import start_daemon

if TYPE_CHECKING:
    from beanpole.storage._syncer import Syncer

# Writes of the log must not wait for the megabytes of a snapshot, nor a measurement of the free
# space for either, nor one of them for the events' disk, so each has a queue of work with a thread.
LANE_LOG: Final = 0
LANE_BULK: Final = 1
LANE_LOOK: Final = 2
LANE_LOOK_EVENTS: Final = 3
LANES: Final = 4
_LANE_NAMES: Final = ("beanpole-log", "beanpole-bulk", "beanpole-look", "beanpole-look-2")

# Freeing 300 MiB at once delayed every sync of the machine by 25 to 55 ms (ext4). In steps of this
# size the delay was 3 to 5 ms, and the removal took 200 ms instead of 80.
REMOVE_STEP_BYTES: Final = 8 * 1024 * 1024
REMOVE_PAUSE_S: Final = 0.002

# The end of the name of a file that is being written or removed: under its final name a file is
# complete.
TEMPORARY: Final = ".tmp"

# With fewer free inodes a disk is full. A node makes a few files between two looks at the space: a
# segment of the log, a snapshot, a file of events, and temporary ones of its records.
INODES_MIN: Final = 16

Work = Callable[[], None]
Done = Callable[[OSError | None], None]


class SyncedWrite:
    """A unit of work that only writes one range and syncs it.

    An implementation may run it like any other work. Alternatively it may write by other means and
    then call `note` in the loop, with the time that it took in microseconds, instead of `run`. Such
    a write may overtake other work of its lane, and it may rewrite zeros after the range, up to
    `room`: no other write may go there before `settle` has returned.
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
        self.chunks = chunks  # joined where the work runs
        self.room = room
        self.run = run
        self.note = note

    def __call__(self) -> None:
        """Run the work in the ordinary way."""
        self.run()


class Handle(Protocol):
    """One open file. Two threads may use it at once if their ranges do not overlap."""

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`, or raise OSError, possibly after a partial write."""
        ...

    def write_synced(self, offset: int, data: bytes) -> None:
        """Write all of `data` and make it durable, including the size of the file.

        One call instead of two, because after each system call the thread waits for the
        interpreter's lock, which a busy loop rarely releases.
        """
        ...

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes; fewer only at the end of the file."""
        ...

    def sync(self) -> None:
        """Make all written data, and the size of the file, durable."""
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
        """Open a file for reading and writing; `create` replaces it by a new, empty one.

        A handle stays valid when the file is renamed or removed.
        """
        ...

    def list(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; nothing if it does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or a directory has this path.

        A disk that cannot tell raises OSError: a start that took a record for missing would write
        a new one over it.
        """
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, durably. Does nothing if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`; durable after `sync_directory`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; durable after `sync_directory`."""
        ...

    def remove_slowly(self, path: str) -> None:
        """Remove a file without readers, in steps if it is large, so that others can use the disk.

        If the process dies during this, the beginning of the file remains. A gigabyte takes most of
        a second.
        """
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return the bytes that this user may still write on the disk of `path`.

        A disk without free inodes has no room either: a node writes its log, its snapshots and its
        records to new files. A disk that hangs may not answer, so that a node that serves asks in
        a lane.
        """
        ...

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        """Run `work` outside the caller's loop, then call `done` in the loop.

        The work of one lane runs one at a time in the order submitted. `done` gets None or the
        OSError that `work` raised; any other exception of `work` is a bug and is raised in the
        loop.
        """
        ...

    def settle(self) -> None:
        """Wait until no `SyncedWrite` is in progress by other means than `run`."""
        ...


class InlineFiles:
    """The disk for tools and unit tests: `submit` runs the work and calls `done` at once."""

    def open(self, path: str, create: bool = False) -> Handle:
        """Open a file; `create` replaces it by a new, empty one."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        return DiskHandle(os.open(path, flags, 0o600))

    def list(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; nothing if it does not exist."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether the path exists, even as a broken symbolic link."""
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def make_directory(self, path: str) -> None:
        """Make the missing directories from the top down, syncing each parent."""
        path = os.path.abspath(path)
        if _is_directory(path):
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
        """Truncate a file step by step, then remove it."""
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
        except OSError as error:
            error.filename = path  # the system names none
            raise
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        """Return the bytes available to this user; 0 if no files can be made there."""
        status = os.statvfs(path)
        # File systems that make inodes as they need them report 0 of 0.
        if status.f_files and status.f_favail < INODES_MIN:
            return 0
        return status.f_bavail * status.f_frsize

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        """Run the work before returning."""
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)

    def settle(self) -> None:
        """Do nothing: no work is in progress when `submit` returns."""

    def hold(self, directory: str) -> DirectoryLock:
        """Lock a directory for this process until the lock is released or the process ends.

        Raises:
            StorageError: another process holds it.
        """
        self.make_directory(directory)
        return DirectoryLock(os.path.join(directory, LOCK))


class RealFiles(InlineFiles):
    """The disk of a running node: one daemon thread per lane, started when it is first needed.

    In the compiled tree a native thread, outside Python, does the log's synced writes.
    """

    def __init__(self, post: Callable[[Callable[[], None]], object]) -> None:
        """Store the function by which the threads post results to the loop.

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
        self.only_bulk_is_left = False  # of a `close`, in whatever thread asks

    def watch(self, add_reader: Callable[[int, Callable[[], None]], object]) -> bool:
        """Use the thread of syncer.c, if it was compiled; return whether it was.

        Args:
            add_reader: registers a callable for the loop to call when a descriptor is readable.
        """
        kind = _syncer_kind()
        if kind is not None:
            self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._syncer = kind(self._event)
            add_reader(self._event, self._synced)
        return kind is not None

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        """Hand the work to the lane's thread. Must not be called after `close`."""
        assert not self.closed, "submit() after close()"
        if type(work) is SyncedWrite and self._begin(work, done):
            return
        if self._threads[lane] is None:
            try:
                self._threads[lane] = start_daemon(partial(self._serve, lane), _LANE_NAMES[lane])
            except OSError as error:  # the lane's next work tries again
                self._post_result(partial(self._deliver, done, error))
                return
        self._queues[lane].put((work, done))

    def settle(self) -> None:
        """See `Files`."""
        if self._syncer is not None:
            self._syncer.settle()

    def close(self) -> None:
        """Finish the submitted work, then end the threads. Results are no longer delivered.

        A caller that received a result would submit its next work. A measurement is not waited
        for.
        """
        self.closed = True
        if self._syncer is not None:
            self._syncer.end()
        for queue in self._queues:
            queue.put(None)
        for lane in (LANE_LOG, LANE_BULK):
            self.only_bulk_is_left = lane == LANE_BULK
            if (thread := self._threads[lane]) is not None:
                thread.join()

    def drop(self, lane: int) -> None:
        """Discard the work that waits in a lane, and end the lane: for a `close` that hangs.

        May be called in any thread, during `close` or after it.
        """
        queue = self._queues[lane]
        with contextlib.suppress(Empty):
            while True:
                queue.get_nowait()
        queue.put(None)

    def _begin(self, work: SyncedWrite, done: Done) -> bool:
        """Hand a write to the native thread, if it is idle; return whether it was accepted."""
        handle, syncer = work.handle, self._syncer
        if syncer is None or self._syncing is not None or type(handle) is not DiskHandle:
            return False
        try:
            begun = syncer.begin(handle.descriptor, b"".join(work.chunks), work.offset, work.room)
        except OSError:
            return False  # no descriptor is left for the file
        if begun:
            self._syncing = (work, done)
        return begun

    def _synced(self) -> None:
        """Handle the completion of a write by the native thread."""
        os.eventfd_read(self._event)
        if self.closed:
            return
        assert self._syncer is not None and self._syncing is not None
        result = self._syncer.take()
        assert result is not None, "the thread has not finished"
        (work, done), self._syncing = self._syncing, None
        error, took_us = result
        if error:
            failure = OSError(error, os.strerror(error))
            assert type(work.handle) is DiskHandle, "see _begin"
            work.handle.name(failure)
            done(failure)
            return
        work.note(took_us)
        done(None)

    def _serve(self, lane: int) -> None:
        take = self._queues[lane].get
        while (item := take()) is not None:
            work, done = item
            try:
                work()
            except OSError as error:
                self._post_result(partial(self._deliver, done, error))
            except BaseException as bug:  # a bug must be raised in the loop, not in this thread
                self._post_result(partial(_raise, bug))
            else:
                self._post_result(partial(self._deliver, done, None))

    def _deliver(self, done: Done, error: OSError | None) -> None:
        if not self.closed:
            done(error)

    def _post_result(self, result: Callable[[], None]) -> None:
        try:
            self._post(result)
        except RuntimeError:
            # The loop is closed: nothing is left that could use the result.
            if not self.closed:
                raise


def measure(
    files: Files, path: str, lane: int, done: Callable[[int, OSError | None], None]
) -> None:
    """Measure the free space outside the loop; `done` gets it in the loop, or the error."""
    found = 0

    def work() -> None:
        nonlocal found
        found = files.free_bytes(path)

    files.submit(work, lambda error: done(found, error), lane)


def _is_directory(path: str) -> bool:
    """Return whether the path is, or leads to, a directory; raise OSError if the disk fails."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _syncer_kind() -> "type[Syncer] | None":
    """Return the class defined by syncer.c; None outside the compiled tree."""
    try:
        from beanpole.storage._syncer import Syncer
    except ImportError:
        return None
    return Syncer


def _raise(error: BaseException) -> None:
    raise error
