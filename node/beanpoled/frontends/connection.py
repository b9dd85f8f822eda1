"""One client's connection, whatever it speaks: replies in order, flow control, the end.

What the requests mean is in the subclass of each protocol (`beanstalk`); where commands go is
`origin`. A reply that needs no cluster waits here for those before it.
"""

from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from beanpole.core.jobs.job import Job
from beanpoled.host.seam import ClientPort, Timer
from beanpoled.origin.batches import KIND_WAIT, Batch, Wait

if TYPE_CHECKING:
    from beanpoled.frontends.clients import Clients

# Replies that a client may have outstanding; a pipeline longer than this is read in pieces.
PENDING_MAX: Final = 1024
# What a client may send behind a blocked request before it is paused, beside one whole body.
INPUT_BYTES_MAX: Final = 64 * 1024


class Parser(Protocol):
    """What a codec offers to a connection."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not parsed."""

    def feed(self, data: bytes) -> None:
        """Take bytes of the client."""

    def next(self) -> tuple[Any, ...] | None:
        """The next request, or None if more bytes are needed."""


class Connection:
    """A client's connection. Subclasses implement `origin.Client` for their protocol."""

    __slots__ = (
        "_clients",
        "_large_bytes",
        "_out",
        "_parser",
        "_pending",
        "_port",
        "_reading",
        "_timer",
        "batch",
        "blocked",
        "closed",
        "ended",
        "is_producer",
        "is_worker",
        "number",
        "refused",
        "stalled",
        "wait",
    )

    def __init__(self, clients: "Clients", port: ClientPort, parser: Parser) -> None:
        self._clients = clients
        self._port = port
        self._parser = parser
        # Replies in order: bytes that are ready, or the kind of a request that is on its way.
        self._pending: deque[bytes | int] = deque()
        self._out: list[bytes] = []
        # What the large replies that are owed or not flushed may take; see `_owe`.
        self._large_bytes = 0
        self._timer: Timer | None = None
        self._reading = True
        self.number = 0
        self.batch: Batch | None = None
        self.wait: Wait | None = None
        self.blocked = False  # what stands behind the present request must wait for it
        self.stalled = False  # the client does not read its replies
        self.ended = False  # the client has sent everything it will
        self.refused = False  # one client too many: its first command is answered so
        self.closed = False
        self.is_producer = False
        self.is_worker = False

    # --- of each protocol -----------------------------------------------------------------------

    @abstractmethod
    def _handle(self, request: tuple[Any, ...]) -> None:
        """Act on a request."""

    @abstractmethod
    def _refusal(self) -> bytes:
        """What a client hears that is one too many."""

    @abstractmethod
    def _arm(self) -> None:
        """Every request before the present wait is answered: set its timer."""

    @abstractmethod
    def watches(self, tube: bytes) -> bool:
        """Whether the client would take a job of this tube."""

    @abstractmethod
    def answered(self, kind: int, result: Any) -> None:
        """See `origin.Client`."""

    @abstractmethod
    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `origin.Client`."""

    @abstractmethod
    def failed(self, kind: int, why: int) -> None:
        """See `origin.Client`."""

    # --- from the host --------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self.closed:
            return
        self._parser.feed(data)
        if self.refused:
            if self._parser.next() is not None:
                self._write(self._refusal())
                self._close()
            return
        self._process()

    def half_closed(self) -> None:
        """The client will send nothing more, but it still reads."""
        self.ended = True
        if self.wait is not None:
            self._clients.origin.end_wait(self.wait)
        self._process()

    def lost(self) -> None:
        """The connection is gone."""
        self._end(lost=True)

    def stall(self) -> None:
        """Too many replies are waiting for the client to read them."""
        if not self.stalled:
            self.stalled = True
            self._clients.stalled[self] = self._clients.loop_us
            self._set_reading()

    def unstall(self) -> None:
        """The client has read its replies."""
        if self.stalled:
            self.stalled = False
            self._clients.stalled.pop(self, None)
            self._process()

    def flush(self) -> None:
        """Write the replies of this turn at once. Called by the node at the end of the turn."""
        out = self._out
        if out and not self.closed:
            self._out = []
            self._port.write(out[0] if len(out) == 1 else b"".join(out))
            if self._large_bytes and not self._pending:
                self._large_bytes = 0
                if not self._reading:
                    self._clients.host.call_soon(self._process)

    @property
    def is_waiting(self) -> bool:
        """Whether the client is blocked, with nothing before that still on its way."""
        return self.wait is not None and len(self._pending) == 1

    # --- requests and replies -------------------------------------------------------------------

    def _process(self) -> None:
        """Act on what is received, until something must be waited for."""
        next_request = self._parser.next
        while not (self.blocked or self.stalled or self.closed):
            if self._owes_enough:
                break
            request = next_request()
            if request is None:
                if self.ended and not self._pending:
                    self._close()
                break
            self._handle(request)
        self._set_reading()

    def _set_reading(self) -> None:
        """Read from the client only while there is room for more."""
        if self.closed:
            return
        clients = self._clients
        full = (
            self.stalled
            or self._owes_enough
            or clients.outbox_is_full
            or self._parser.buffered_bytes > clients.input_bytes_max
        )
        if full == self._reading:
            self._reading = not full
            if full:
                self._port.pause_reading()
                clients.paused[self] = None
            else:
                self._port.resume_reading()
                clients.paused.pop(self, None)

    @property
    def _owes_enough(self) -> bool:
        """Whether the replies that are under way are as many, or as large, as they may be."""
        return (
            len(self._pending) >= PENDING_MAX
            or self._large_bytes >= self._clients.client_output_bytes_max
        )

    def _owe(self, size_max: int) -> None:
        """A reply of up to so many bytes will be written: a few short lines can ask for gigabytes.

        What was owed is forgotten when everything is written; from then on the client's own reading
        sets the pace (`stall`).
        """
        self._large_bytes += size_max

    def room_again(self) -> None:
        """The outbox has room again."""
        self._process()

    def _reply(self, reply: bytes) -> None:
        """Answer now, or behind what is pending."""
        if self._pending:
            self._pending.append(reply)
        else:
            self._write(reply)

    def _write(self, reply: bytes) -> None:
        if not self._out:
            self._clients.dirty.append(self)
            self._clients.wake()
        self._out.append(reply)

    def _answer_first(self, reply: bytes) -> None:
        """The first pending request has its reply."""
        pending = self._pending
        if len(pending) == 1:
            pending.clear()
            self._write(reply)
            if self.ended or not self._reading:
                self._settle()
        else:
            pending[0] = reply
            self._settle()

    def _settle(self) -> None:
        """Write the replies at the head that are ready; go on with what they held up."""
        pending = self._pending
        while pending:
            head = pending[0]
            if isinstance(head, int):
                break
            pending.popleft()
            self._write(head)
        if pending:
            if pending[0] == KIND_WAIT:
                self._arm()
            return
        if self.ended and self.blocked and self.wait is None:
            self._close(lost=False)  # it asked for the end
            return
        self._process()

    # --- the end --------------------------------------------------------------------------------

    def _quit(self) -> None:
        """The client asked for the end: nothing behind that is executed."""
        self.ended = True
        self.blocked = True
        if not self._pending:
            self._close(lost=False)

    def drop(self) -> None:
        """See `origin.Client`: close without another reply, between replies."""
        if not self.closed:
            self._close()

    def abort(self) -> None:
        """Close at once: the client does not read its replies."""
        if not self.closed:
            self._port.abort()
            self._end(lost=True)

    def _close(self, lost: bool = True) -> None:
        self.flush()
        self._port.close()
        self._end(lost)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, lost: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self._stop_timer()
        self._clients.origin.close(self, lost)
        self._pending.clear()
        self._out.clear()
        self.batch = None  # it holds this connection as an owner: a cycle
        self._clients.forget(self)
