"""The life of a connection whose client sends requests: from its first bytes to its end.

What the requests mean is in the subclass of each protocol, the order of replies in `replies`, when
a client is read in `flow`, where commands go in `origin`.
"""

from abc import abstractmethod
from functools import partial
from hashlib import sha256
from typing import Final

from beanpole import commands as c
from beanpoled.frontends.clients import UNKNOWN_TOKEN, Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.flow import FlowControl
from beanpoled.frontends.replies import EMPTY, WAIT, ReplyQueue
from beanpoled.host.seam import ClientPort, Timer

# A client that has sent so many wrong tokens is closed, and each costs it so long: a guess of 256
# bits finds nothing, but the log should not be filled with them.
WRONG_TOKENS_MAX: Final = 3
WRONG_TOKEN_DELAY_US: Final = 1_000_000


class RequestConnection(Connection):
    """A connection with requests and replies. Subclasses know one protocol."""

    __slots__ = (
        "_clients",
        "_flow",
        "_port",
        "_replies",
        "_timer",
        "_wrong_tokens",
        "blocked",
        "closed",
        "ended",
    )

    def __init__(self, clients: Clients, protocol: str, port: ClientPort) -> None:
        super().__init__(protocol, port.client_host, port.client_names)
        self._clients = clients
        self._port = port
        self._replies = ReplyQueue(clients, self, port)
        self._flow = FlowControl(clients, port)
        self._timer: Timer | None = None
        self._wrong_tokens = 0
        self.blocked = False  # what stands behind the present request must wait for it
        self.ended = False  # the client has sent everything it will
        self.closed = False

    # --- of each protocol -----------------------------------------------------------------------

    @abstractmethod
    def _feed(self, data: bytes) -> None:
        """Take bytes of the client."""

    @property
    @abstractmethod
    def _buffered_bytes(self) -> int:
        """How many bytes of the client were not looked at."""

    @abstractmethod
    def _act(self) -> bool:
        """Act on the next request; False if more bytes are needed."""

    @abstractmethod
    def _refuse(self) -> bool:
        """Answer the first request of one client too many; False if more bytes are needed."""

    @abstractmethod
    def _arm(self) -> None:
        """Every request before the present wait is answered: set its timer."""

    # --- from the host --------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """See `Connection`."""
        if self.closed:
            return
        self._feed(data)
        if not self.refused:
            self._process()
        elif self._refuse():
            self._close()

    def half_closed(self) -> None:
        """See `Connection`."""
        self.ended = True
        if self.wait is not None:
            self._clients.origin.end_wait(self.wait)
        self._process()

    def lost(self) -> None:
        """See `Connection`."""
        self._end(lost=True)

    def stall(self) -> None:
        """See `Connection`."""
        if self._flow.stall(self):
            self._update_flow()

    def unstall(self) -> None:
        """See `Connection`."""
        if self._flow.unstall(self):
            self._process()

    # --- from `Clients` -------------------------------------------------------------------------

    def flush(self) -> None:
        """See `Connection`."""
        if not self.closed and self._replies.flush() and not self._flow.reading:
            self._clients.host.call_soon(self._process)

    def room_again(self) -> None:
        """See `Connection`."""
        self._process()

    @property
    def is_waiting(self) -> bool:
        """See `Connection`."""
        return self.wait is not None and self._replies.pending == 1

    @property
    def is_at_rest(self) -> bool:
        """See `Connection`."""
        return not self._replies.pending or self.is_waiting

    # --- requests and replies -------------------------------------------------------------------

    def _process(self) -> None:
        """Act on what is received, until something must be waited for."""
        if self._clients.rates.are_limited and not self.blocked:
            self._process_metered()
            return
        while not (self.blocked or self._flow.stalled or self.closed or self._replies.is_full):
            if not self._act():
                if self.ended and not self._replies.pending:
                    self._close()
                break
        self._update_flow()

    def _process_metered(self) -> None:
        """The same where an address or a user has a limit: it counts what is done at once."""
        rates, now_us = self._clients.rates, self._clients.now_us
        left = allowed = 0 if self.throttled else rates.allowance(self, now_us)
        while left and not (
            self.blocked or self._flow.stalled or self.closed or self._replies.is_full
        ):
            if not self._act():
                if self.ended and not self._replies.pending:
                    self._close()
                break
            left -= 1
        rates.spend(self, allowed - left, now_us)
        if not (left or self.blocked or self.closed):
            rates.throttle(self, now_us)
        self._update_flow()

    def _update_flow(self) -> None:
        if not self.closed:
            self._flow.update(self, self._replies.is_full, self._buffered_bytes)

    def _answer(self, reply: bytes) -> None:
        """The oldest pending request has its reply."""
        head = self._replies.answer(reply)
        if head == WAIT:
            self._arm()
        elif head == EMPTY and (self.ended or not self._flow.reading):
            self._go_on()

    def _push(self, data: bytes) -> None:
        """Tell the client what it did not ask for; one that does not read has had its limit."""
        if self._flow.stalled:
            self._clients.abort_slow(self)
        else:
            self._replies.push(data)

    def _answer_alone(self, reply: bytes) -> None:
        """Answer the request that held up what stands behind it; before it nothing is pending."""
        self.blocked = False
        self._settled(self._replies.answer(reply))

    def _settled(self, head: int) -> None:
        """Go on with what the replies that were written held up."""
        if head == WAIT:
            self._arm()
        elif head == EMPTY:
            self._go_on()

    def _go_on(self) -> None:
        if self.ended and self.blocked and self.wait is None:
            self._close(lost=False)  # it asked for the end
        else:
            self._process()

    # --- whose the session is -------------------------------------------------------------------

    def _authenticate(self, kind: int, token: bytes, name: bytes = b"") -> None:
        """Ask the machine whose token it is; its answer is of this kind, for `_authenticated`.

        The session is open. What stands behind the request is not looked at before it is answered.
        With a name it must be that user's token.
        """
        self.blocked = True
        self._replies.expect(kind)
        digest = sha256(token).digest()
        self._clients.origin.submit(self, kind, (c.AS_USER, self.number, name, digest))

    def _authenticated(self, result: int, accepted: bytes, refused: bytes) -> None:
        """Take the machine's answer, and reply. A client that guesses waits, and is closed soon."""
        clients = self._clients
        session = clients.session(self.number)
        if result == c.OK and session is not None:
            self.user, self.token = session.user, session.token
            self._wrong_tokens = 0
            self._answer_alone(accepted)
            return
        self._wrong_tokens += 1
        clients.refused_client(UNKNOWN_TOKEN)
        if self._wrong_tokens < WRONG_TOKENS_MAX:
            answer = partial(self._answer_alone, refused)
        else:
            answer = partial(self._refuse_for_good, refused)
        self._timer = clients.call_later(WRONG_TOKEN_DELAY_US, answer)

    def _refuse_for_good(self, refused: bytes) -> None:
        self._replies.answer(refused)
        self._close()

    # --- the end --------------------------------------------------------------------------------

    def _quit(self) -> None:
        """The client asked for the end: nothing behind that is executed."""
        self.ended = True
        self.blocked = True
        if not self._replies.pending:
            self._close(lost=False)

    def drop(self) -> None:
        """See `Connection`."""
        if not self.closed:
            self._close()

    def abort(self) -> None:
        """See `Connection`."""
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
        self._replies.end()
        self.batch = None  # it holds this connection as an owner: a cycle
        self._clients.forget(self)
