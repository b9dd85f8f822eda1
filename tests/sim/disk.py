"""A disk in memory that forgets: after a crash, unsynced data may be gone or partly written.

Implements `beanpole.storage.files.Files`. Names are as volatile as contents: a rename survives a
crash only after `sync_directory`.
"""

import errno
import os
import random
from collections import deque
from collections.abc import Callable

from beanpole.storage.files import LANE_LOG, LANE_LOOK, LANES, Done, Handle, Work
from tests.sim.clock import Clock

SECTOR_BYTES = 512
# A file takes whole blocks of a disk with a capacity.
BLOCK_BYTES = 4096


class PowerLoss(Exception):
    """The machine died in the middle of a write."""


class Killed(BaseException):
    """The process died before this call. No handler of the node may catch it."""


class Inode:
    """The content of one file, and the changes that a crash may undo."""

    __slots__ = ("data", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        # Not synced: (offset, new bytes, old bytes, old size); a truncation has no new bytes.
        self.pending: list[tuple[int, bytes | None, bytes, int]] = []

    def write(self, offset: int, data: bytes) -> None:
        """Write like pwrite: a gap is filled with zeros."""
        old, size = bytes(self.data[offset : offset + len(data)]), len(self.data)
        self.pending.append((offset, data, old, size))
        self._put(offset, data)

    def write_synced(self, offset: int, data: bytes) -> None:
        """Write and make exactly this range durable: undoing older changes must not touch it."""
        self._put(offset, data)
        end = offset + len(data)
        for place, (start, new, old, size) in enumerate(self.pending):
            old = _overlay(start, old, offset, data)
            new = None if new is None else _overlay(start, new, offset, data)
            self.pending[place] = (start, new, old, max(size, end))

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        self.pending.append((size, None, bytes(self.data[size:]), len(self.data)))
        self._cut(size)

    def crash(self, dice: random.Random) -> None:
        """Return to the durable content, then apply a random part of the unsynced changes."""
        for offset, _, old, size in reversed(self.pending):
            self._cut(size)
            self._put(offset, old)
        pending, self.pending = self.pending, []
        for offset, data, _, _ in pending:
            luck = dice.random()
            if luck < 0.5:
                continue
            if data is None:
                self._cut(offset)
                continue
            if luck < 0.75:  # torn at a sector
                sectors = (offset + len(data)) // SECTOR_BYTES - offset // SECTOR_BYTES
                end = (offset // SECTOR_BYTES + dice.randint(0, sectors)) * SECTOR_BYTES
                data = data[: max(0, end - offset)]
            if data:
                self._put(offset, data)

    def _put(self, offset: int, data: bytes) -> None:
        if not data:
            return
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data

    def _cut(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))


def _blocks(size: int) -> int:
    """Return the space that a file of this size takes."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _nobody() -> None:
    """Fail: without an owner of `killed`, `calls_left` must not be used."""
    raise AssertionError("nobody hears of a death beside the loop")


def _overlay(start: int, content: bytes, offset: int, data: bytes) -> bytes:
    """Return `content`, which begins at `start`, with `data` at `offset` laid over it."""
    low, high = max(start, offset), min(start + len(content), offset + len(data))
    if low >= high:
        return content
    return content[: low - start] + data[low - offset : high - offset] + content[high - start :]


class DiskHandle:
    """An open file of a simulated disk; dead after a crash."""

    def __init__(self, disk: "Disk", inode: Inode, path: str) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._life = disk.life

    def write(self, offset: int, data: bytes) -> None:
        """Write all bytes, or fail after writing a part of them."""
        self._check()
        self._disk.count_call()
        if self._disk.failing is not None:
            self._inode.write(offset, bytes(data[: self._disk.partly(len(data))]))
        self._disk.check_write(self._path)
        room = self._disk.room(self._inode, offset + len(data))
        self._inode.write(offset, bytes(data[: max(0, room - offset)]))
        self._check_room(offset + len(data), room)

    def write_synced(self, offset: int, data: bytes) -> None:
        """Write and sync in one call."""
        self._check()
        self._disk.count_call()
        self._disk.check_write(self._path)
        room = self._disk.room(self._inode, offset + len(data))
        if room < offset + len(data):
            self._inode.write(offset, bytes(data[: max(0, room - offset)]))
        self._check_room(offset + len(data), room)
        if self._disk.dying:
            self._inode.write(offset, bytes(data))
        else:
            self._inode.write_synced(offset, bytes(data))
        self._disk.check_sync(self._path)

    def read(self, offset: int, size: int) -> bytes:
        """Read; returns fewer bytes only at the end of the file."""
        self._check()
        return bytes(self._inode.data[offset : offset + size])

    def sync(self) -> None:
        """Make the content durable."""
        self._check()
        self._disk.count_call()
        self._disk.check_sync(self._path)
        self._inode.pending.clear()

    def size(self) -> int:
        """Return the size."""
        self._check()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        self._check()
        self._disk.count_call()
        self._disk.check_write(self._path)
        self._inode.truncate(size)

    def close(self) -> None:
        """Close the file; this makes nothing durable."""

    def _check_room(self, size: int, room: int) -> None:
        if room < size:
            self._disk.erred = True
            raise OSError(errno.ENOSPC, "no space left on device", self._path)

    def _check(self) -> None:
        assert self._life == self._disk.life, "a file of an earlier life is used"


class Disk:
    """One node's disk. It survives the node."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.life = 0
        self.latency_s = 0.0005
        self.looks_hang = False  # nothing measures the free space
        self.working = False  # whether a work runs in its lane
        self.failing: OSError | None = None  # raised by every write and sync
        # When a write or sync of the log first failed: the node has to end.
        self.failed_s: float | None = None
        self.full_path = ""  # writes to files below this path fail with ENOSPC
        self.unreadable_path = ""  # looks for names below this path fail with EIO
        self.erred = False  # some call failed in this life
        self.refused = False  # some call failed for another reason than the capacity
        self.syncs = 0
        # Capacity in bytes, of whole blocks; None: unlimited. May be set at any time: files that
        # exist stay, also over a crash. `taken_bytes` is space that other programs have taken.
        self.capacity_bytes: int | None = None
        self.taken_bytes = 0
        # Changing or syncing calls left before the one at which the process dies.
        self.calls_left: int | None = None
        self.calls = 0  # changing or syncing calls so far
        self.killed: Callable[[], None] = _nobody  # called if the process dies in a lane
        self._clock = clock
        self._random = random.Random(seed)
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._directories: set[str] = set()
        self._lanes: list[deque[tuple[Work, Done]]] = [deque() for _ in range(LANES)]
        self.dying = False

    # --- faults ----------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose power: unsynced data is gone or partly written."""
        self.calls_left = None
        for lane in self._lanes[:LANE_LOOK]:
            if lane and self._random.random() < 0.5:
                self._begin(lane[0][0])
        for lane in self._lanes:
            lane.clear()
        self.life += 1
        self.killed = _nobody
        self.failing = self.failed_s = None
        self.erred = self.refused = False
        for inode in {id(inode): inode for inode in self._names.values()}.values():
            inode.crash(self._random)
        for inode in {id(inode): inode for inode in self._durable_names.values()}.values():
            inode.crash(self._random)
        if self._random.random() < 0.3:
            self._durable_names = dict(self._names)  # the system had synced the directory by itself
        self._names = dict(self._durable_names)

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.crash()
        self._names.clear()
        self._durable_names.clear()
        self._directories.clear()

    def hasten(self, latency_s: float) -> None:
        """Set the latency, and finish what is in progress after it."""
        self.latency_s = latency_s
        for lane, works in enumerate(self._lanes):
            if works:
                self._run_soon(lane)

    def _begin(self, work: Work) -> None:
        """Let a work write, and lose power before it syncs."""
        self.dying = True
        try:
            work()
        except (PowerLoss, OSError):
            pass
        finally:
            self.dying = False

    def count_call(self) -> None:
        """Count a call that changes or syncs something; the process may die at it."""
        self.calls += 1
        if self.calls_left is not None:
            if self.calls_left == 0:
                raise Killed  # also at every further call, until `crash`
            self.calls_left -= 1

    @property
    def refuses_by_itself(self) -> bool:
        """Whether the disk refuses calls for another reason than its capacity."""
        return bool(self.full_path) or self.failing is not None

    @property
    def used_bytes(self) -> int:
        """The space that all files take."""
        return sum(_blocks(len(inode.data)) for inode in self._names.values())

    def room(self, inode: Inode, size: int) -> int:
        """Return the size that a file of `size` bytes can have: less only on a full disk."""
        had = len(inode.data)
        if self.capacity_bytes is None or size <= had:
            return size
        return min(size, _blocks(had) + max(0, self.free_bytes("")) // BLOCK_BYTES * BLOCK_BYTES)

    @property
    def busy(self) -> bool:
        """Whether a work that changes something is in progress or queued."""
        return any(self._lanes[:LANE_LOOK])

    def partly(self, size: int) -> int:
        """Return how many bytes of a write reach the disk before it fails."""
        return self._random.randint(0, size)

    def check_write(self, path: str = "") -> None:
        """Raise the error that a test asked for."""
        if self.full_path and path.startswith(self.full_path):
            self.erred = self.refused = True
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if self.failing is not None:
            self.erred = self.refused = True
            # A segment that is made ahead (.tmp) may fail, because nothing relies on it yet.
            is_log = "/log/" in path and not path.endswith(".tmp")
            if is_log and self.failed_s is None and not self.dying:
                self.failed_s = self._clock.now_s
            raise self.failing

    def check_sync(self, path: str = "") -> None:
        """Raise the error that a test asked for, or lose power."""
        self.check_write(path)
        if self.dying:
            raise PowerLoss
        self.syncs += 1

    def lose(self, prefix: str) -> int:
        """Lose all files below a path, durably; returns how many there were."""
        lost = [path for path in self._durable_names if path.startswith(prefix)]
        for names in (self._names, self._durable_names):
            for path in [path for path in names if path.startswith(prefix)]:
                del names[path]
        self._directories.discard(prefix.rstrip("/"))
        return len(lost)

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Flip bits of one byte of a file."""
        self._names[path].data[offset] ^= mask

    def size(self, path: str) -> int:
        """Return the size of a file."""
        return len(self._names[path].data)

    # --- Files -----------------------------------------------------------------------------------

    def open(self, path: str, create: bool = False) -> Handle:
        """Open a file; `create` makes a new file in its place."""
        if create:
            self.count_call()
            self.check_write(path)
            self._names[path] = Inode()
        return DiskHandle(self, self._named(path), path)

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory."""
        prefix = directory.rstrip("/") + "/"
        names = {path[len(prefix) :] for path in self._names if path.startswith(prefix)}
        return sorted(name for name in names if "/" not in name)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        if self.unreadable_path and path.startswith(self.unreadable_path):
            raise OSError(errno.EIO, "input/output error", path)
        return path in self._names or path in self._directories

    def make_directory(self, path: str) -> None:
        """Make a directory, durably."""
        if path in self._directories:
            return
        self.count_call()
        self._directories.add(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing the target."""
        self.count_call()
        self.check_write()
        self._names[target] = self._named(source)
        del self._names[source]

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.count_call()
        self._named(path)
        del self._names[path]

    def remove_slowly(self, path: str) -> None:
        """Truncate and remove a file: its readers notice."""
        self.count_call()
        self._named(path).truncate(0)
        self.remove(path)

    def settle(self) -> None:
        """Do nothing: all writes go through the lanes."""

    def sync_directory(self, path: str) -> None:
        """Make the names of a directory durable."""
        self.count_call()
        self.check_sync()
        for name in [name for name in self._durable_names if os.path.dirname(name) == path]:
            del self._durable_names[name]
        for name, inode in self._names.items():
            if os.path.dirname(name) == path:
                self._durable_names[name] = inode

    def free_bytes(self, path: str) -> int:
        """Return the free space of the capacity; 1 TiB without one."""
        if self.capacity_bytes is None:
            return 2**40
        return max(0, self.capacity_bytes - self.taken_bytes - self.used_bytes)

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        """Run a work after the disk's latency, one at a time in each lane."""
        self._lanes[lane].append((work, done))
        if len(self._lanes[lane]) == 1:
            self._run_soon(lane)

    def _run_soon(self, lane: int) -> None:
        """Run the first work of a lane after the latency; `hasten` ends a hang."""
        if lane != LANE_LOOK or not self.looks_hang:
            self._clock.after(self.latency_s, self._runner(lane, self._lanes[lane][0]))

    def _named(self, path: str) -> Inode:
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def _runner(self, lane: int, item: tuple[Work, Done]) -> Callable[[], None]:
        life = self.life

        def run() -> None:
            if life != self.life or not self._lanes[lane] or self._lanes[lane][0] is not item:
                return  # the machine died, or `hasten` finished it earlier
            work, done = item
            error: OSError | None = None
            self.working = True
            try:
                work()
            except OSError as failure:
                error = failure
            except Killed:
                self._lanes[lane].popleft()
                self.killed()
                return
            finally:
                self.working = False
            self._lanes[lane].popleft()
            if self._lanes[lane]:
                self._run_soon(lane)
            done(error)

        return run
