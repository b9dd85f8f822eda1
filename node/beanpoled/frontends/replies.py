"""The replies of one connection: in the order of its requests, or ahead of that order.

This file decides when a reply is written, and how much a client may have outstanding. The bytes of
replies are in the package of each protocol; reading from the client is in `flow`.
"""

from collections import deque
from typing import Final, final

from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.large_output import LARGE_BYTES
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import KIND_WAIT

# Replies that a client may have outstanding; a pipeline longer than this is read in pieces.
PENDING_MAX: Final = 1024

# A reply that waits for those before it counts as owed from this size on: an echo has megabytes.
OWED_BYTES_MIN: Final = 128

# A longer reply is not an error, and is not looked up among the errors.
ERROR_MAX_BYTES: Final = 128

# The parts of a reply whose bytes are in memory in any case: the body of a job, or what many
# clients are sent. They are joined when they are written.
Parts = tuple[bytes, ...]

# The state of the head of a queue once the ready replies are written.
HELD: Final = 0  # a request whose reply comes later
WAIT: Final = 1  # a wait for a job, with no reply before it
EMPTY: Final = 2  # nothing is pending


@final
class ReplyQueue:
    """The replies owed to a client, and the bytes to write at the end of the turn.

    A protocol that replies in the order of the requests calls `expect` for each request that is
    in progress, `answer` when its result arrives, and `reply` for a request that needs no result.
    A protocol whose replies may overtake each other calls `push`, which waits for nothing.

    Attributes:
        queued_bytes: the size of the output that is not written yet.
        own_bytes: the part of it that is in memory for this client alone.
    """

    __slots__ = (
        "_clients",
        "_copies_bytes",
        "_errors",
        "_large_bytes",
        "_out",
        "_owner",
        "_pending",
        "_port",
        "own_bytes",
        "queued_bytes",
    )

    def __init__(self, clients: Clients, owner: Connection, port: ClientPort) -> None:
        self._clients = clients
        self._errors = clients.errors[owner.protocol]
        self._owner: Connection | None = owner
        self._port = port
        # In order: bytes that are ready, or the kind of a request in progress.
        self._pending: deque[bytes | int] = deque()
        self._out: list[bytes] = []
        self.queued_bytes = self.own_bytes = 0
        # The size of the large replies that are owed or not flushed; see `owe`.
        self._large_bytes = 0
        self._copies_bytes = 0  # see `owe_copy`

    @property
    def pending(self) -> int:
        """How many requests have no written reply."""
        return len(self._pending)

    @property
    def head(self) -> int:
        """The kind of the first pending reply: HELD, WAIT or EMPTY."""
        if not self._pending:
            return EMPTY
        return WAIT if self._pending[0] == KIND_WAIT else HELD

    @property
    def is_full(self) -> bool:
        """Whether the client must be sent what it is owed before it is owed more."""
        return (
            len(self._pending) >= PENDING_MAX
            or self._large_bytes >= self._clients.client_output_bytes_max
            or self.queued_bytes >= self._clients.client_output_bytes_max
            or (self._copies_bytes > 0 and self._clients.unread.is_full)
            # The line counts what it had when it joined.
            or (
                self.queued_bytes > LARGE_BYTES
                and self._owner is not None
                and self._clients.large.has(self._owner)
            )
        )

    def room(self, size_max: int) -> int:
        """Return how many more replies of up to this size may be owed."""
        room_bytes = self._clients.client_output_bytes_max - self._large_bytes
        return max(0, min(PENDING_MAX - len(self._pending), room_bytes // size_max))

    # --- requests -------------------------------------------------------------------------------

    def expect(self, kind: int) -> None:
        """Add a request of this kind, whose reply comes later."""
        self._pending.append(kind)

    def owe(self, size_max: int) -> None:
        """Account for a reply of up to this size: a few short lines can request gigabytes.

        The account is cleared when everything is written; from then on the client's own reading
        sets the pace (`FlowControl.stall`). A negative size takes back an amount that is not owed.
        """
        self._large_bytes += size_max

    def owe_copy(self, size_max: int) -> None:
        """Account for a reply of up to this size that any number of clients may ask for at once.

        While all of them together are owed too much, or read too little, each gets one at a time.
        Jobs that are taken need no such limit: each is in the memory of the queue, and only one
        client gets it.
        """
        self.owe(size_max)
        self._copies_bytes += size_max
        self._clients.unread.owed_bytes += size_max

    def retract(self, count: int) -> None:
        """Remove the newest requests, which are no longer in progress; they will be made again."""
        for _ in range(count):
            self._pending.pop()

    # --- replies --------------------------------------------------------------------------------

    def reply(self, reply: bytes) -> None:
        """Answer the newest request: now, or after the pending ones."""
        if self._pending:
            self._pending.append(reply)
            if len(reply) >= OWED_BYTES_MIN:
                self.owe_copy(len(reply))
        else:
            self.push(reply)

    def push(self, data: bytes) -> None:
        """Write at the end of this turn, ahead of everything that is pending."""
        if not self._out:
            owner = self._owner
            if owner is None:
                return  # the connection has ended
            self._clients.dirty.append(owner)
            self._clients.write_soon()
        self._out.append(data)
        self.queued_bytes += len(data)
        self.own_bytes += len(data)
        if len(data) <= ERROR_MAX_BYTES and data in self._errors:
            self._errors[data] += 1

    def push_shared(self, parts: Parts) -> None:
        """Do the same as `push` with bytes that are kept in any case."""
        for part in parts:
            self.push(part)
            self.own_bytes -= len(part)

    def answer(self, reply: bytes | Parts) -> int:
        """Answer the oldest pending request; return the new head."""
        pending = self._pending
        if isinstance(reply, tuple):
            pending.popleft()
            self.push_shared(reply)
            return self._settle()
        if len(pending) == 1:
            pending.clear()
            self.push(reply)
            return EMPTY
        pending[0] = reply
        return self._settle()

    def answer_newest(self, reply: bytes) -> int:
        """Answer the newest pending request; return the new head."""
        self._pending[-1] = reply
        return self._settle()

    def answer_kind(self, kind: int, reply: bytes) -> int:
        """Answer the oldest pending request of a kind; return the new head."""
        self._pending[self._pending.index(kind)] = reply
        return self._settle()

    def _settle(self) -> int:
        """Write the ready replies at the head."""
        pending = self._pending
        while pending:
            head = pending[0]
            if isinstance(head, int):
                return WAIT if head == KIND_WAIT else HELD
            pending.popleft()
            self.push(head)
        return EMPTY

    # --- the turn, and the end ------------------------------------------------------------------

    def flush(self) -> bool:
        """Write the queued output; return whether a client that was owed too much may go on."""
        was_full = (
            self.queued_bytes > LARGE_BYTES  # it may have been in the line
            or self.queued_bytes >= self._clients.client_output_bytes_max
        )
        out = self.take()
        if not out:
            return False
        self._port.write(out[0] if len(out) == 1 else b"".join(out))
        # A pending wait owes nothing, and a long pipeline of reserves always contains one.
        if not self._large_bytes or self.head == HELD:
            return was_full
        self._large_bytes = 0
        self._clear_copies()
        return True

    def take(self) -> list[bytes]:
        """Return the queued output, which the caller writes."""
        out, self._out = self._out, []
        self.queued_bytes = self.own_bytes = 0
        return out

    def _clear_copies(self) -> None:
        if self._copies_bytes:
            self._clients.unread.owed_bytes -= self._copies_bytes
            self._copies_bytes = 0

    def end(self) -> None:
        """End the queue with its connection: nothing is written any more."""
        self._pending.clear()
        self._out.clear()
        self._clear_copies()
        self.queued_bytes = self.own_bytes = 0
        self._owner = None  # the owner refers to this queue: a cycle
