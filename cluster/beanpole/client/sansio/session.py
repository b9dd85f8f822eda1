"""The session of a client: it outlives connections, and sends requests to a node that answers.

Belongs here: the search for a node, the state that is restored on each new connection, and the
reservations that are lost with one. The commands and their replies are in `commands`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from secrets import token_urlsafe
from typing import Final

from beanpole.client.interrupts import Suppress, is_of_handler
from beanpole.client.patience import PAUSE_MAX_S, PAUSE_MIN_S, Clock, Waits, jitter
from beanpole.client.sansio.faults import (
    UNCONNECTED,
    ClosedError,
    DeniedError,
    MayBeDoneError,
    NoNodeError,
    NotAvailableError,
    fits,
    may_be_done,
    misfit,
    missing,
)
from beanpole.client.sansio.nodes import RETURN_MAX_S, RETURN_MIN_S, Nodes
from beanpole.client.sansio.refusals import Refusals
from beanpole.client.sansio.settings import check_settings
from beanpole.client.sansio.steps import (
    Close,
    Connect,
    Endpoint,
    IsGone,
    Pause,
    Probe,
    Receive,
    Send,
    Steps,
)
from beanpole.constants import DEFAULT_TUBE
from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk.client import (
    Reply,
    ReplyParser,
    encode,
    encode_tubes,
    extensions_of,
)

# Attempts at a command, in case that every node answers it by closing the connection.
TRIES_MAX: Final = 6

# The random bytes of a session's token, which must not be guessed; it has 32 characters.
TOKEN_BYTES: Final = 24
# While its session is not kept, a client asks its node at most this often whether it can be: the
# connection may be older than the end of an upgrade, and last for weeks.
KEEP_RETRY_S: Final = 60.0
RESUME: Final = b"resume"
AUTH: Final = b"auth"


class Session:
    """The state of a client that outlives its connections.

    Attributes:
        used: the tube for puts.
        watched: the tubes for reserves, in the order in which they were watched.
        held: the jobs that this client has reserved, as far as it knows.
        ending: the held jobs with a command in flight that ends the reservation.
        orphans: jobs that the session holds at the cluster without the client's knowledge: the
            replies that reserved them were lost.
        lost: the callback for the jobs whose reservations ended with a connection.
        waits: the time-outs of the client, which a command may lower for itself.
        refusals: the nodes that have refused the handshakes of the present command.
    """

    def __init__(
        self,
        nodes: Nodes,
        clock: Clock,
        *,
        patience_s: float,
        reply_timeout_s: float,
        connect_timeout_s: float,
        keep_s: int = 0,
        token: bytes = b"",
    ) -> None:
        """Begin without a connection.

        Raises:
            ValueError: see `check_settings`.
        """
        check_settings(keep_s, token)
        self._nodes = nodes
        self._clock = clock
        self._patience_s = patience_s
        self.waits = Waits(reply_timeout_s, connect_timeout_s)
        self.refusals = Refusals(nodes, clock)
        self._parser = ReplyParser()
        self._is_clean = False  # no reply on the present connection was another command's
        self._return_s, self._return_at = RETURN_MIN_S, 0.0
        self._left: Endpoint | None = None  # the node whose connection ended last
        self._is_closed = False
        self.used = DEFAULT_TUBE
        self.watched: dict[bytes, None] = {DEFAULT_TUBE: None}
        self.held: dict[int, None] = {}
        self.ending: dict[int, None] = {}
        self.orphans: dict[int, None] = {}
        self.lost: Callable[[Sequence[int]], None] = lambda _: None
        self.at: Endpoint | None = None  # the connected node
        self._keep_s = keep_s
        self._user_token = token
        self._token = b""  # of the kept session, if there is one
        self._kept_at = 0.0  # when the kept session had a connection last
        self._ask_keep_at = 0.0  # when to ask again whether the session can be kept
        self._words: frozenset[bytes] | None = None  # the extensions of the connected node

    # --- requests -------------------------------------------------------------------------------

    def until(self) -> float:
        """Return the deadline of a command that begins now."""
        return self._clock() + self._patience_s

    def ask(
        self, request: bytes, *, repeat: bool = True, wait_s: float = 0, needs: bytes = b""
    ) -> Steps[tuple[Reply, bool]]:
        """Send one request and return its reply, and whether it was sent more than once.

        Args:
            request: the bytes that `encode` returns.
            repeat: the request is idempotent and is repeated when the connection is lost.
            wait_s: how long the node may wait before it answers.
            needs: the extension that the request needs; empty for none.

        Raises:
            MayBeDoneError: the connection ended before the reply, and `repeat` is False.
            NoNodeError: no node answers.
            NotAvailableError: the node does not have the extension.
            UnknownResponseError: the reply belongs to another command.
        """
        got = yield from self.ask_all([request], repeat=repeat, wait_s=wait_s, needs=needs)
        if (wrong := misfit(request, got[0][0])) is not None:
            raise wrong
        return got[0][0], got[1]

    def ask_all(
        self,
        requests: Sequence[bytes],
        *,
        repeat: bool = True,
        wait_s: float = 0,
        needs: bytes = b"",
    ) -> Steps[tuple[list[Reply], bool]]:
        """Send requests together and return their replies; all are repeated, or none. See `ask`."""
        self.refusals.begin(self.until())
        sent = losses = 0
        while True:
            try:
                yield from self.refusals.wait()
                yield from self.connect(self.until())
            except UNCONNECTED as error:
                if sent:
                    raise may_be_done(error) from error
                raise
            place, before = self.at, sent
            try:
                if needs and needs not in (yield from self.extensions()):
                    raise missing(needs, place, sent)
                sent += 1
                return (yield from self.exchange_all(requests, wait_s)), sent > 1
            except (OSError, ProtocolError) as error:
                if isinstance(error, MayBeDoneError) or is_of_handler(error):
                    raise
                yield from self.drop()
                self.waits.double()
                if self.refusals.note(place, error):
                    sent = before
                    continue
                losses += 1
                if losses == TRIES_MAX or (sent and not repeat):
                    why = f"{place}: {str(error) or 'the connection ended'}"
                    if not sent:  # each node closed at the question for its extensions
                        raise NoNodeError(f"no node answers: {why}") from error
                    raise may_be_done(why) from error
            yield Pause(jitter(PAUSE_MIN_S))

    def exchange(self, request: bytes) -> Steps[Reply]:
        """Send one request on the present connection and return its reply."""
        return (yield from self.exchange_all([request]))[0]

    def exchange_all(
        self, requests: Sequence[bytes], wait_s: float = 0, got: list[Reply] | None = None
    ) -> Steps[list[Reply]]:
        """Send requests on the present connection and return their replies.

        Args:
            requests: the requests, encoded.
            wait_s: how long the node may wait before each reply.
            got: a list for the replies; if the connection is lost, it has those that arrived.
        """
        replies = [] if got is None else got
        is_clean = False
        try:
            yield Send(b"".join(requests), self.waits.reply_s)
            for _ in requests:
                while (reply := self._parser.next()) is None:
                    data = yield Receive(wait_s + self.waits.reply_s)
                    if not data:
                        raise ConnectionError("the node closed the connection")
                    self.refusals.is_heard = True
                    self._parser.feed(data)
                replies.append(reply)
            is_clean = self._parser.is_empty and all(map(fits, requests, replies))
            if not is_clean:
                yield Close()  # each later reply could answer another request
            return replies
        finally:
            if not is_clean:
                # Also if the caller was cancelled: a late reply would answer another request.
                self._forget()

    def extensions(self) -> Steps[frozenset[bytes]]:
        """Return the extensions of beanstalk that the connected node supports.

        Raises:
            ProtocolError: the node does not tell them, so another node has to be asked.
        """
        if self._words is None:
            with self.waits.greeting(not self.held and len(self._nodes.known) > 1):
                reply = yield from self.exchange(encode(b"extensions"))
            self._words = extensions_of(reply)
        return self._words

    @property
    def is_kept(self) -> bool:
        """Whether the reservations outlive the connection."""
        return bool(self._token)

    def let_go(self, jobs: Iterable[int]) -> None:
        """Hold these jobs no more, as far as the client knows, and report none of them as lost.

        Those that the cluster still has reserved for a kept session are orphans once it is resumed.
        """
        for job in jobs:
            self.held.pop(job, None)
            self.orphans.pop(job, None)

    # --- the connection -------------------------------------------------------------------------

    def open(self) -> Steps[None]:
        """Connect to a node, also after the session was closed. See `connect`."""
        self._is_closed = False
        yield from self.connect(self.until())

    def shut(self) -> None:
        """Let no command connect from now on."""
        self._is_closed = True

    def quit(self) -> Steps[None]:
        """Close the connection and end the kept session, so that its jobs are released at once.

        No later command connects again, until `open`. If no node answers soon, a kept session ends
        when its time is over.
        """
        self.shut()
        try:
            if self.at is not None and self.is_kept and (yield IsGone()):
                yield from self.drop()  # the node was lost since the last command
            if self.at is None and self.is_kept:
                # An interrupted command gave the connection up. The session may hold jobs without
                # the client's knowledge: an interrupted reserve may have been done.
                yield from self._rejoin()
            if self.at is not None and self.is_kept:
                with Suppress(OSError):
                    yield Send(b"quit\r\n", self.waits.connect_s)
        finally:
            self._token = b""
            self.held.clear()
            self.orphans.clear()
            self.at = None
        yield Close()

    def _rejoin(self) -> Steps[None]:
        """Resume the kept session at one node, only to end it; the node it was at is tried first.

        No node is tried after `connect_timeout_s`, nor waited for longer than that at each step.
        """
        until = self._clock() + self.waits.connect_s
        with self.waits.at_first(self.waits.connect_s):
            # Names are not resolved again, which could take long.
            for endpoint in sorted(self._nodes.known, key=lambda one: one != self._left):
                if self._clock() > until:
                    return
                with Suppress(OSError, ProtocolError, DeniedError, NotAvailableError):
                    yield Connect(endpoint, self.waits.connect_s)
                    self._parser, self._words = ReplyParser(), None
                    if self._user_token:
                        yield from self._authenticate()
                    if RESUME in (yield from self.extensions()):
                        reply = yield from self.exchange(encode(RESUME, self._token))
                        if reply[0] in (b"RESUMED", b"NOT_FOUND"):
                            self.at = endpoint
                            return

    def drop(self) -> Steps[None]:
        """Close the connection."""
        self._forget()
        yield Close()

    def leave(self, asked: set[Endpoint | None]) -> Steps[bool]:
        """Connect to a node that was not asked yet; return False if none of them answers.

        It is also False if jobs would be lost.

        Args:
            asked: the nodes that were asked; this one and the next are added.

        Raises:
            DeniedError, NotAvailableError, ClosedError: see `connect`.
        """
        asked.add(self.at)
        if self.held or asked.issuperset(self._nodes.known):
            return False
        yield from self.drop()
        others = yield from self._nodes.look_up(self._left)
        is_open = yield from self._open_any([one for one in others if one not in asked])
        if is_open:
            asked.add(self.at)  # now: a node that closes at each request would be tried for ever
        return is_open

    def connect(self, until: float) -> Steps[None]:
        """Ensure that there is a connection to any node; the node that was lost is tried last.

        Raises:
            NoNodeError: no node answers before the time `until`.
            DeniedError: no user has the token, or the user lacks the right to a tube.
            NotAvailableError: there is a token, and the server does not support users.
            ClosedError: the session is closed, or was closed meanwhile.
        """
        if self._is_closed:
            raise ClosedError("the client is closed")
        if self.at is not None:
            if not (yield IsGone()) and (yield from self._keep_late()):
                yield from self._go_home(until)
                return
            yield from self.drop()
        pause_s = PAUSE_MIN_S
        self._nodes.why.clear()
        while True:
            endpoints = yield from self._nodes.look_up(self._left)
            if (yield from self._open_any(endpoints)):
                return
            if self._clock() > until:
                raise NoNodeError(f"no node answers: {self._nodes.words()}")
            yield Pause(jitter(pause_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _open_any(self, endpoints: Sequence[Endpoint]) -> Steps[bool]:
        """Connect to the first of these that answers; return False if none does."""
        for endpoint in endpoints:
            is_open = yield from self._open(endpoint)
            if self._is_closed:  # meanwhile, by another task
                yield from self.drop()
                raise ClosedError("the client is closed")
            if is_open:
                return True
        return False

    def _open(self, endpoint: Endpoint) -> Steps[bool]:
        try:
            self.refusals.is_heard = False
            yield Connect(endpoint, self.waits.connect_s)
            self._is_clean = True
            yield from self._begin()
            if not self._is_clean:
                raise ProtocolError("a reply does not fit its command")
        except (DeniedError, NotAvailableError):
            yield from self.drop()
            raise
        except (OSError, ProtocolError) as error:
            if is_of_handler(error):
                raise
            self._nodes.why[str(endpoint)] = str(error) or type(error).__name__
            yield from self.drop()
            self.waits.double()
            return False
        self.at = endpoint
        self._left = None
        if endpoint == self._nodes.known[0]:
            self._return_s = RETURN_MIN_S
        self._return_at = self._clock() + jitter(self._return_s)
        return True

    def _begin(self) -> Steps[None]:
        """Authenticate, resume the kept session, and restore the used tube and the watch list."""
        self._parser, self._words = ReplyParser(), None
        if self._user_token:
            yield from self._authenticate()
        if self._keep_s:
            yield from self._resume()
        requests = encode_tubes(self.used, self.watched)
        for reply in (yield from self.exchange_all(requests)) if requests else ():
            if reply[0] == b"DENIED":
                raise DeniedError
            if reply[0] not in (b"USING", b"WATCHING"):
                raise ProtocolError(f"tubes are not restored: {reply[0].decode()}")

    def _authenticate(self) -> Steps[None]:
        """Send the user's token, but not to a server that does not support users.

        Raises:
            DeniedError: no user has the token; another node would answer the same.
            NotAvailableError: the server does not support users.
        """
        if AUTH not in (yield from self.extensions()):
            raise NotAvailableError(f"it does not know {AUTH.decode()!r}")
        reply = yield from self.exchange(encode(AUTH, self._user_token))
        if reply[0] == b"DENIED":
            raise DeniedError
        if reply[0] != b"ACCEPTED":
            raise ProtocolError(f"the token is not taken: {reply[0].decode()}")

    def _resume(self) -> Steps[None]:
        """Resume the session of the last connection; if there is none, begin a kept session."""
        if RESUME not in (yield from self.extensions()):
            if self.is_kept and self._clock() < self._kept_at + self._keep_s:
                # The cluster supports `resume`, so this node is behind. Another node may resume.
                raise ProtocolError(f"it does not know {RESUME.decode()!r} yet")
            self._token = b""
            self._ask_keep_at = self._clock() + KEEP_RETRY_S
            self._lose(())
            return
        if self._token:
            reply = yield from self.exchange(encode(RESUME, self._token))
            if reply[0] == b"RESUMED":
                self._kept_at = self._clock()
                self._lose([int(job) for job in (reply[2] or b"").split()])
                return
            if reply[0] != b"NOT_FOUND":
                raise ProtocolError(f"the session is not resumed: {reply[0].decode()}")
        self._token = b""
        self._lose(())
        word = yield from self._keep()
        if not self.is_kept:
            raise ProtocolError(f"the session is not kept: {word.decode()}")

    def _keep(self) -> Steps[bytes]:
        """Let the cluster keep the session; return the word of the reply.

        Without the reply it may be kept: the next connection resumes it, and `quit` ends it.
        """
        self._token, self._kept_at = token_urlsafe(TOKEN_BYTES).encode(), self._clock()
        reply = yield from self.exchange(encode(b"keep", self._token, self._keep_s))
        if reply[0] != b"KEPT":
            self._token = b""
        return reply[0]

    def _keep_late(self) -> Steps[bool]:
        """Keep the session, with its jobs, if its node can by now; False if the node is lost."""
        if self._keep_s and not self.is_kept and self._clock() >= self._ask_keep_at:
            self._ask_keep_at = self._clock() + KEEP_RETRY_S
            self._words = None
            with Suppress(OSError, ProtocolError):
                if RESUME in (yield from self.extensions()):
                    yield from self._keep()
        return self.at is not None

    def _go_home(self, until: float) -> Steps[None]:
        """Return to the first node, if it answers again and no reservation would be lost.

        The kernel accepts connections for a node that hangs, so that the client would wait there
        for each reply until its time-out, again and again.
        """
        known = self._nodes.known
        if self.at == known[0] or self.held or self._clock() < self._return_at:
            return
        self._return_s = min(2 * self._return_s, RETURN_MAX_S)
        self._return_at = self._clock() + jitter(self._return_s)
        reply = b""
        with Suppress(OSError):
            reply = yield Probe(known[0], self.waits.connect_s, encode(b"list-tube-used"))
        if reply.startswith(b"USING "):
            yield from self.drop()
            yield from self.connect(until)

    def _forget(self) -> None:
        """Note that the connection has ended; reservations are lost unless they are kept."""
        self._left = self.at or self._left
        if self.at is not None:
            self._kept_at = self._clock()
        self.at, self._is_clean = None, False
        if not self.is_kept:
            self._lose(())

    def _lose(self, still: Collection[int]) -> None:
        """Set the held jobs to `still`, and report the others that were held as lost."""
        lost = [job for job in self.held if job not in still and job not in self.ending]
        self.orphans = {job: None for job in still if job not in self.held}
        self.held = {job: None for job in self.held if job in still}
        if lost:
            self.lost(lost)
