"""The toy protocol's space: its queues and jobs, apart from those of all others.

Belongs here: the rows that the library has for it. A protocol of the product writes its rows into
the tables themselves; these come and go with a test.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from beanpole import events
from beanpole.core.jobs.spaces import REFUSE, SPACES, SPACES_SINCE, Rules

# Of the protocol, in events and sessions; far from those that are or will be.
TOY: Final = 200
# The prefix of the names of its queues.
PREFIX: Final = b"\x1f"
QUEUE_NAME_MAX_BYTES: Final = 64

RULES: Final = Rules((TOY,), PREFIX, QUEUE_NAME_MAX_BYTES, b"", True, REFUSE)


@contextmanager
def registered() -> Iterator[None]:
    """Let every machine that is made meanwhile know the space."""
    events.PROTOCOL_NAMES[TOY] = "toy"
    events.PROTOCOL_SINCE[TOY] = SPACES_SINCE
    SPACES[TOY] = RULES
    try:
        yield
    finally:
        del SPACES[TOY]
        del events.PROTOCOL_SINCE[TOY]
        del events.PROTOCOL_NAMES[TOY]
