"""The replies of one connection: in the order of its requests, or past that order.

Here is when a reply is written, and how much a client may have outstanding. The bytes of replies
are in the package of each protocol; whether the client is read is in `flow`.
"""

from collections import deque
from typing import Final, final

from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import KIND_WAIT

# Replies that a client may have outstanding; a pipeline longer than this is read in pieces.
PENDING_MAX: Final = 1024

# A reply that is longer is no error, and is not looked up among them.
ERROR_MAX_BYTES: Final = 128

# The head of a queue once the replies that were ready are written.
HELD: Final = 0  # a request whose reply comes later
WAIT: Final = 1  # a wait for a job: nothing stands before it any more
EMPTY: Final = 2  # nothing is pending


@final
class ReplyQueue:
    """The replies that a client is owed, and what is to be written at the end of the turn.

    A protocol whose replies come in the order of the requests calls `expect` for each request that
    is on its way, `answer` when its result is there, and `reply` for one that needs no result. One
    whose replies may pass each other calls `push`, which waits for nothing.
    """

    __slots__ = ("_clients", "_errors", "_large_bytes", "_out", "_owner", "_pending", "_port")

    def __init__(self, clients: Clients, owner: Connection, port: ClientPort) -> None:
        self._clients = clients
        self._errors = clients.errors[owner.protocol]
        self._owner: Connection | None = owner
        self._port = port
        # In order: bytes that are ready, or the kind of a request that is on its way.
        self._pending: deque[bytes | int] = deque()
        self._out: list[bytes] = []
        # The size of the large replies that are owed or not flushed; see `owe`.
        self._large_bytes = 0

    @property
    def pending(self) -> int:
        """How many requests have no reply that is written."""
        return len(self._pending)

    @property
    def head(self) -> int:
        """The kind of the first pending reply: HELD, WAIT or EMPTY."""
        if not self._pending:
            return EMPTY
        return WAIT if self._pending[0] == KIND_WAIT else HELD

    @property
    def is_full(self) -> bool:
        """Whether the replies that are owed are as many, or as large, as they may be."""
        return (
            len(self._pending) >= PENDING_MAX
            or self._large_bytes >= self._clients.client_output_bytes_max
        )

    def room(self, size_max: int) -> int:
        """How many replies of up to this size may be owed beside those that are."""
        room_bytes = self._clients.client_output_bytes_max - self._large_bytes
        return max(0, min(PENDING_MAX - len(self._pending), room_bytes // size_max))

    # --- requests -------------------------------------------------------------------------------

    def expect(self, kind: int) -> None:
        """The reply of a request of this kind will come later."""
        self._pending.append(kind)

    def owe(self, size_max: int) -> None:
        """A reply of up to this size will be written: a few short lines can ask for gigabytes.

        What was owed is forgotten when everything is written; from then on the client's own reading
        sets the pace (`FlowControl.stall`). A negative size takes back what is not owed after all.
        """
        self._large_bytes += size_max

    def retract(self, count: int) -> None:
        """The newest requests are no longer on their way; they will be made again."""
        for _ in range(count):
            self._pending.pop()

    # --- replies --------------------------------------------------------------------------------

    def reply(self, reply: bytes) -> None:
        """Answer the newest request: now, or behind what is pending."""
        if self._pending:
            self._pending.append(reply)
        else:
            self.push(reply)

    def push(self, data: bytes) -> None:
        """Write at the end of this turn, past everything that is pending."""
        if not self._out:
            owner = self._owner
            if owner is None:
                return  # the connection has ended
            self._clients.dirty.append(owner)
            self._clients.write_soon()
        self._out.append(data)
        if len(data) <= ERROR_MAX_BYTES and data in self._errors:
            self._errors[data] += 1

    def answer(self, reply: bytes) -> int:
        """The oldest pending request has its reply. Returns the new head."""
        pending = self._pending
        if len(pending) == 1:
            pending.clear()
            self.push(reply)
            return EMPTY
        pending[0] = reply
        return self._settle()

    def answer_newest(self, reply: bytes) -> int:
        """The newest pending request has its reply. Returns the new head."""
        self._pending[-1] = reply
        return self._settle()

    def answer_kind(self, kind: int, reply: bytes) -> int:
        """The oldest pending request of a kind has its reply. Returns the new head."""
        self._pending[self._pending.index(kind)] = reply
        return self._settle()

    def _settle(self) -> int:
        """Write the replies at the head that are ready."""
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
        """Write what is to be written at once; whether a client that owed too much goes on."""
        out = self._out
        if not out:
            return False
        self._out = []
        self._port.write(out[0] if len(out) == 1 else b"".join(out))
        # A pending wait owes nothing, and in a long pipeline of reserves there is always one.
        if not self._large_bytes or self.head == HELD:
            return False
        self._large_bytes = 0
        return True

    def end(self) -> None:
        """The connection has ended: nothing is written any more."""
        self._pending.clear()
        self._out.clear()
        self._owner = None  # it holds this queue: a cycle
