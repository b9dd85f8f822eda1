"""A disk in memory for the tests: it counts, fails on demand, and loses power like a real one.

Unsynced writes survive a crash sector by sector, in any combination; unsynced changes of names
survive in their order, up to any point. The test decides when works run.
"""

import errno
import os
from collections import deque
from collections.abc import Callable
from random import Random

from beanpole.storage.files import LANE_LOG, LANES, Done, Handle, Work
from beanpole.storage.format import SECTOR_BYTES


class Node:
    """The content of a file: durable bytes, and later writes and cuts."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.data = bytearray()
        self.durable = bytearray()
        # (offset, bytes), or (size, None) for a cut
        self.pending: list[tuple[int, bytes | None]] = []

    def crash(self, random: Random) -> None:
        """Keep synced bytes, and a random choice of the sectors written since."""
        pieces = [piece for write in self.pending for piece in sectors(*write)]
        self.pending = [piece for piece in pieces if random.random() < 0.5]
        self.sync()
        self.data = bytearray(self.durable)

    def sync(self) -> None:
        """Make the unsynced writes durable; clean pages are not written again."""
        for offset, piece in self.pending:
            if piece is None:
                del self.durable[offset:]
            else:
                put(self.durable, offset, piece)
        self.pending.clear()


def put(data: bytearray, offset: int, piece: bytes) -> None:
    """Write into bytes; a gap after their end becomes zeros."""
    data.extend(bytes(max(0, offset + len(piece) - len(data))))
    data[offset : offset + len(piece)] = piece


def sectors(offset: int, data: bytes | None) -> list[tuple[int, bytes | None]]:
    """Split a write at the borders of sectors."""
    if data is None:
        return [(offset, None)]
    pieces: list[tuple[int, bytes | None]] = []
    start = 0
    while start < len(data):
        end = start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES
        pieces.append((offset + start, data[start:end]))
        start = end
    return pieces


class Disk:
    """Files in memory.

    Attributes:
        fail: called before each operation with its name and path; may raise OSError.
        log: every operation, as "name base-of-path".
        settled: the length of the log at each call of `settle`.
        inline: run submitted works at once instead of in `step`.
    """

    def __init__(self, inline: bool = True) -> None:
        self.inline = inline
        self.fail: Callable[[str, str], None] = lambda operation, path: None
        self.log: list[str] = []
        self.settled: list[int] = []
        self.names: dict[str, Node] = {}
        self.works: list[deque[tuple[Work, Done]]] = [deque() for _ in range(LANES)]
        self._durable_names: dict[str, Node] = {}
        self._changes: list[tuple[str, Node | None]] = []
        self._life = 0

    def note(self, operation: str, path: str, life: int | None = None) -> None:
        """Record an operation; fail if the test requests it or the process is dead."""
        assert life is None or life == self._life, "a dead process reached the disk"
        self.log.append(f"{operation} {os.path.basename(path)}")
        self.fail(operation, path)

    def open(self, path: str, create: bool = False) -> Handle:
        self.note("open", path)
        if create:
            self._change(path, Node(path))
        return DiskHandle(self, self._named(path), self._life)

    def list(self, directory: str) -> list[str]:
        return sorted(os.path.basename(p) for p in self.names if os.path.dirname(p) == directory)

    def exists(self, path: str) -> bool:
        self.fail("exists", path)
        return path in self.names

    def make_directory(self, path: str) -> None:
        self.note("make_directory", path)

    def rename(self, source: str, target: str) -> None:
        self.note("rename", target)
        node = self._named(source)
        # One change, because a rename is atomic: the old name disappears as the new one appears.
        del self.names[source]
        self._change(target, node)
        self._changes.append((source, None))

    def remove(self, path: str) -> None:
        self.note("remove", path)
        self._named(path)
        del self.names[path]
        self._changes.append((path, None))

    def remove_slowly(self, path: str) -> None:
        self.note("remove_slowly", path)
        node = self._named(path)  # a reader notices the cut
        node.data.clear()
        node.pending.append((0, None))
        del self.names[path]
        self._changes.append((path, None))

    def settle(self) -> None:
        """Record the call: only lanes write to this disk."""
        self.settled.append(len(self.log))

    def sync_directory(self, path: str) -> None:
        self.note("sync_directory", path)
        self._durable_names = dict(self.names)
        self._changes.clear()

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        self.works[lane].append((work, done))
        if self.inline:
            self.run()

    def step(self, lane: int = LANE_LOG) -> bool:
        """Run the oldest work of a lane and its completion; False if there is none."""
        if not self.works[lane]:
            return False
        work, done = self.works[lane].popleft()
        error = None
        try:
            work()
        except OSError as raised:
            error = raised
        done(error)
        return True

    def run(self) -> None:
        """Run works until none is left."""
        while any(self.step(lane) for lane in range(LANES)):
            pass

    def crash(self, random: Random) -> None:
        """Cut the power: works are lost, and so is a part of the unsynced bytes and names."""
        self._life += 1
        for queue in self.works:
            queue.clear()
        names = self._durable_names
        for path, node in self._changes[: random.randint(0, len(self._changes))]:
            if node is None:
                names.pop(path, None)
            else:
                names[path] = node
        self._changes.clear()
        for node in names.values():
            node.crash(random)
        self.names, self._durable_names = names, dict(names)

    def kill(self) -> None:
        """Kill the process: works are lost, but written bytes stay in the system's cache."""
        self._life += 1
        for queue in self.works:
            queue.clear()

    def _named(self, path: str) -> Node:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self.names[path]

    def _change(self, path: str, node: Node) -> None:
        node.path = path
        self.names[path] = node
        self._changes.append((path, node))


class DiskHandle:
    """An open file of the disk in memory."""

    def __init__(self, disk: Disk, node: Node, life: int) -> None:
        self._disk = disk
        self._node = node
        self._life = life
        self._open = True

    def _note(self, operation: str) -> None:
        assert self._open, f"{operation} of a closed file"
        self._disk.note(operation, self._node.path, self._life)

    def write(self, offset: int, data: bytes) -> None:
        self._note("write")
        node = self._node
        put(node.data, offset, data)
        node.pending.append((offset, bytes(data)))

    def write_synced(self, offset: int, data: bytes) -> None:
        self.write(offset, data)
        self.sync()

    def read(self, offset: int, size: int) -> bytes:
        self._note("read")
        return bytes(self._node.data[offset : offset + size])

    def sync(self) -> None:
        try:
            self._note("sync")
        except OSError:
            # As on Linux: after the failure the pages count as clean, although the disk lacks them.
            self._node.pending.clear()
            raise
        self._node.sync()

    def size(self) -> int:
        return len(self._node.data)

    def truncate(self, size: int) -> None:
        self._note("truncate")
        del self._node.data[size:]
        self._node.pending.append((size, None))

    def close(self) -> None:
        self._open = False


def full(operation: str, path: str) -> None:
    """Fail every write of a file: the disk is full."""
    if operation == "write":
        raise OSError(errno.ENOSPC, "no space left", path)


def broken_sync(operation: str, path: str) -> None:
    """Fail every sync."""
    if operation == "sync":
        raise OSError(errno.EIO, "input/output error", path)
