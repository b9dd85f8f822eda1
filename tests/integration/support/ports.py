"""Loopback ports for the servers of the tests.

One block is what `beanpole up --base-port` takes for nine nodes, with ten more for the protocol of
the tests. Blocks are below the kernel's range of ephemeral ports, so no outgoing connection takes a
port away.
"""

import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

# Below the ports of the benchmark.
FIRST: Final = 19000
END: Final = 23000
BLOCK: Final = 80
# The share of one test process: `make test` runs up to five of them at a time. The last block is
# for servers with one port. A test of such a server takes milliseconds; if it took a block, a row
# of them would come back to that of a node that is starting and does not listen yet.
BLOCKS: Final = 7
SHARE: Final = (BLOCKS + 1) * BLOCK

# Kept open, and so locked, until this process ends.
_lock: IO[bytes] | None = None
_blocks: Iterator[int] = itertools.cycle(())
_singles: Iterator[int] = itertools.cycle(())


def _take_share() -> None:
    """Take the first share that no other process has."""
    global _lock, _blocks, _singles
    if _lock is not None:
        return
    for first in range(FIRST, END - SHARE + 1, SHARE):
        path = Path(tempfile.gettempdir()) / f"beanpole-test-ports-{os.getuid()}-{first}"
        lock = path.open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            _lock = lock
            last = first + BLOCKS * BLOCK
            _blocks = itertools.cycle(range(first, last, BLOCK))
            _singles = itertools.cycle(range(last, last + BLOCK))
            return
    raise AssertionError(f"{(END - FIRST) // SHARE} processes of tests run already")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            # With SO_REUSEADDR some systems allow binding beside a listener, but never listening.
            probe.listen(1)
        except OSError:
            return False
    return True


def free_block() -> int:
    """Return the first port of a block in which no server listens."""
    _take_share()
    for first in itertools.islice(_blocks, BLOCKS):
        if all(is_free(port) for port in range(first, first + BLOCK)):
            return first
    raise AssertionError(f"none of the {BLOCKS} blocks of {BLOCK} ports is free")


def free_port() -> int:
    """Return a port for a server with one port, on which none listens."""
    _take_share()
    for port in itertools.islice(_singles, BLOCK):
        if is_free(port):
            return port
    raise AssertionError(f"none of the {BLOCK} ports for single servers is free")
