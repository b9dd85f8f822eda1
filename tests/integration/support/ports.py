"""Loopback ports for the servers of the tests.

One block is what `beanpole up --base-port` takes for nine nodes; blocks are below the range from
which the kernel gives ports to outgoing connections, so that no client can take one away.
"""

import itertools
import os
import socket
from typing import Final

FIRST: Final = 23000
END: Final = 24000
BLOCK: Final = 70

_blocks = (END - FIRST) // BLOCK
# Two test runs on one machine begin at different blocks.
_order = itertools.count(os.getpid() % _blocks)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            # Binding beside a listener works with SO_REUSEADDR on some systems, listening never.
            probe.listen(1)
        except OSError:
            return False
    return True


def free_block() -> int:
    """Return the first port of a block in which nothing listens."""
    for number in itertools.islice(_order, _blocks):
        first = FIRST + number % _blocks * BLOCK
        if all(is_free(port) for port in range(first, first + BLOCK)):
            return first
    raise AssertionError(f"no {BLOCK} free ports in a row between {FIRST} and {END}")
