"""How long clients wait: for a connection, for a reply, between two attempts, and for a node.

Belongs here: the times that several clients have in common. A client with another reason for a time
defines it itself, as `rpc` does.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# Longer than one node needs to report that there is no majority (its command_timeout).
REPLY_TIMEOUT_S: Final = 15.0
CONNECT_TIMEOUT_S: Final = 2.0
# Covers an election, and the restart of a cluster that lost its power.
PATIENCE_S: Final = 10.0
# A reserve waits at a node in slices of this length, so that the client notices a node that
# vanished without closing the connection, and can return to its home in between.
WAIT_SLICE_S: Final = 30
# The pause after the first failed attempt; it doubles up to the longest one.
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0

# The time for a client's first question doubles this often at most, from 2 s to more than eight
# minutes. It is never above the time-out of a reply.
SILENCES_MAX: Final = 8

# Returns the time in seconds; only differences count.
Clock = Callable[[], float]


def jitter(longest_s: float) -> float:
    """Return a random time between half of the longest one and all of it.

    Clients that lost the same node then do not come back all at once.
    """
    return longest_s * (0.5 + random.random() / 2)


class Waits:
    """How long a session waits for a connection and for a reply, before it tries another node."""

    def __init__(self, reply_s: float, connect_s: float) -> None:
        """Begin with the time-outs of the client, which are never exceeded."""
        self._reply_s, self._connect_s = reply_s, connect_s
        self._command_s = math.inf  # the limit of the command in progress
        self._greeting_s = math.inf  # the limit of the question in progress
        self._silences = 0  # questions in a row that no node has answered

    @property
    def reply_s(self) -> float:
        """How long to wait for a reply, in addition to what a node may wait before it answers."""
        return min(self._reply_s, self._command_s, self._greeting_s)

    @property
    def connect_s(self) -> float:
        """How long to wait for a connection."""
        return min(self._connect_s, self._command_s)

    def limit(self, wait_s: float) -> None:
        """Wait no longer than this from the next step on.

        Raises:
            ValueError: `wait_s` is not above 0.
        """
        _check(wait_s)
        self._reply_s, self._connect_s = min(wait_s, self._reply_s), min(wait_s, self._connect_s)

    @contextmanager
    def at_first(self, wait_s: float | None) -> Iterator[None]:
        """Wait no longer than this at the first node; None changes nothing.

        Raises:
            ValueError: `wait_s` is not above 0.
        """
        if wait_s is not None:
            _check(wait_s)
        self._command_s = math.inf if wait_s is None else wait_s
        try:
            yield
        finally:
            self._command_s = math.inf

    @contextmanager
    def greeting(self, is_limited: bool) -> Iterator[None]:
        """Wait for a reply no longer than for a connection, and twice as long after each silence.

        This is for a question that a node answers without the others. The kernel accepts
        connections for a node that stands still; all of them may be slow.

        Args:
            is_limited: False where more than the question would be lost with the connection, or
                where no other node is known.
        """
        if is_limited:
            self._greeting_s = self._connect_s * 2**self._silences
        try:
            yield
            self._silences = 0
        except TimeoutError:
            if self.reply_s == self._greeting_s:  # no shorter limit ended it
                self._silences = min(self._silences + 1, SILENCES_MAX)
            raise
        finally:
            self._greeting_s = math.inf

    def double(self) -> None:
        """Wait for twice as long at the next node: the cluster may be slow, not one node silent."""
        self._command_s *= 2


def _check(wait_s: float) -> None:
    if not wait_s > 0:
        raise ValueError(f"wait_s must be above 0, and is {wait_s}")
