"""The memory that this process may use, and the default limit of the queue.

The queue counts only the memory of its jobs (`core.accounts`). `memory_budget` checks whether the
configuration fits into the memory.
"""

import os
from typing import Final, NamedTuple

from beanpoled.config.settings import GIB, MIB

# Half of the memory is for the queue. The other half is for everything beside jobs: the log's
# newest part, buffers of clients and peers, an image in progress (16 MiB, and jobs that change
# meanwhile), the process that converts events, holes in the heap, and the system's cache of the
# log.
QUEUE_SHARE: Final = 2
# Assumed if the system does not report its memory: a small machine.
UNKNOWN_BYTES: Final = 2 * GIB
# cgroup version 1 represents "no limit" by a number just below 2**63.
UNLIMITED_BYTES: Final = 2**60


class Memory(NamedTuple):
    """An amount of memory, and the source of that figure."""

    bytes: int
    source: str


def found(root: str = "/") -> Memory:
    """Return the smallest limit of this process: its cgroups', or the machine's memory.

    Args:
        root: the folder of /proc and /sys, for tests.
    """
    limits = [Memory(UNKNOWN_BYTES, "assumed")]
    machine = _machine(root)
    if machine:
        limits = [Memory(machine, "the machine's")]
    limits += [Memory(limit, "the cgroup's") for limit in _cgroups(root)]
    return min(limits)


def queue_bytes_default(memory: Memory, nodes: int = 1) -> int:
    """Return the default of `queue_bytes_max`, for each of the nodes of one machine."""
    return max(MIB, memory.bytes // QUEUE_SHARE // nodes)


def _machine(root: str) -> int:
    try:
        with open(os.path.join(root, "proc/meminfo"), encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name == "MemTotal":
                    return int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _cgroups(root: str) -> list[int]:
    """The limits of this process's cgroups and of all their parents, in both versions."""
    limits: list[int] = []
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return limits
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            top, name = "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        folders = [folder for folder in path.split("/") if folder]
        # In a container the path may be that of the host; then only the top folder exists.
        for depth in range(len(folders), -1, -1):
            limit = _limit(os.path.join(root, top, *folders[:depth], name))
            if limit:
                limits.append(limit)
    return limits


def _limit(path: str) -> int:
    """The number in a file; 0 if there is none, or if it means no limit."""
    try:
        with open(path, encoding="ascii") as file:
            value = int(file.read())
    except (OSError, ValueError):
        return 0
    return value if 0 < value < UNLIMITED_BYTES else 0
