"""The life cycle of a connection whose client sends requests.

The subclass of each protocol interprets requests; the order of replies is in `replies`, flow
control in `flow`, and commands go to `origin`.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import ClassVar, Final

from beanpole import commands as c
from beanpole.core.users import PUT
from beanpole.events import NO_PROTOCOL, PROTOCOL_NUMBERS
from beanpoled.frontends.clients import UNKNOWN_TOKEN, Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.flow import FlowControl
from beanpoled.frontends.large_output import LARGE_BYTES
from beanpoled.frontends.replies import EMPTY, WAIT, Parts, ReplyQueue
from beanpoled.frontends.unfinished import COUNTED_BYTES
from beanpoled.host.seam import ClientPort, Timer
from beanpoled.origin.batches import KIND_HELD
from beanpoled.origin.opening import user_by_rule

# A client that has sent this many wrong tokens is closed, and each costs it this delay: guessing
# 256 bits finds nothing, but guesses should not fill the log.
WRONG_TOKENS_MAX: Final = 3
WRONG_TOKEN_DELAY_US: Final = 1_000_000
# This number of requests of a client is acted on in one step of the loop, before others are. A read
# has up to 256 KiB, and the shortest requests, which cost some us each and leave no reply pending,
# two bytes.
REQUESTS_IN_A_ROW_MAX: Final = 256
# ... and their replies, whose bytes show what they cost: INFO of RESP takes 65 us for 340.
BYTES_IN_A_ROW_MAX: Final = 16 * 1024
# A client that waits in the line of large outputs is closed when this multiple of the largest
# output of one client is queued for it: messages may come faster than the node can write them.
LINE_OUTPUTS_MAX: Final = 4

# The reasons for which a node refuses to make a job, see `_refuse_put`.
PUT_ALLOWED: Final = -1  # there is none
PUT_DRAINING: Final = 0
PUT_NO_ROOM: Final = 1
PUT_DENIED: Final = 2
PUT_NO_MAJORITY: Final = 3
PUT_BEYOND_QUOTA: Final = 4


class RequestConnection(Connection):
    """A connection with requests and replies. Each subclass implements one protocol."""

    __slots__ = (
        "_clients",
        "_flow",
        "_held_bytes",
        "_held_request",
        "_is_checked",
        "_is_counted",
        "_is_resting",
        "_looks",
        "_port",
        "_replies",
        "_row_is_over",
        "_timer",
        "_wrong_tokens",
        "blocked",
        "closed",
        "ended",
    )
    _speaks: ClassVar[int]  # the protocol of its sessions, see `events`

    def __init__(self, clients: Clients, protocol: str, port: ClientPort) -> None:
        super().__init__(protocol, port.client_host, port.client_names, port.certificate)
        self._clients = clients
        self._port = port
        self._replies = ReplyQueue(clients, self, port)
        self._flow = FlowControl(clients, port)
        self._timer: Timer | None = None
        self._wrong_tokens = 0
        self._looks = 0  # for extensions, such as `auth`; see `_meter_user`
        self._is_counted = False  # whether `Unfinished` has its request
        self._held_request: Callable[[], None] | None = None  # makes it again
        self._held_bytes = 0  # of its body
        self._is_checked = False  # the request that is made again was held
        self._is_resting = False  # others have their step of the loop before its next request
        self._row_is_over = False  # the present request takes long: others have a turn behind it
        self.blocked = False  # later input must wait for the present request
        self.ended = False  # the client will send nothing more
        self.closed = False

    # --- implemented by each protocol -----------------------------------------------------------

    @abstractmethod
    def _feed(self, data: bytes) -> None:
        """Buffer bytes from the client."""

    @property
    @abstractmethod
    def _buffered_bytes(self) -> int:
        """The number of received bytes that are not parsed yet."""

    @abstractmethod
    def _unfinished_bytes(self) -> int:
        """The number of received bytes of a request whose end has not arrived."""

    @abstractmethod
    def _act(self) -> bool:
        """Act on the next request; False if more bytes are needed."""

    @abstractmethod
    def _refuse(self) -> bool:
        """Refuse the first request of a client above the limit; False if it needs more bytes."""

    @abstractmethod
    def _arm(self) -> None:
        """Set the timer of the present wait: every request before it is answered."""

    def _refuse_put(self, reason: int) -> None:
        """Answer a put that this node refuses, or a held request, for one of the PUT_ reasons."""
        raise AssertionError(f"no request of {self.protocol} is refused here")

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
        else:
            self._count_unfinished()

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
        if not self.closed and self._flow.stall(self):
            self._update_flow()

    def unstall(self) -> None:
        """See `Connection`."""
        if self._flow.unstall(self):
            self._process()

    def hold(self) -> None:
        """See `Connection`."""
        if not (self._flow.held or self.closed):
            self._flow.held = True
            self._update_flow()

    # --- from `Clients` -------------------------------------------------------------------------

    def flush(self) -> None:
        """See `Connection`."""
        if self.closed:
            return
        replies, clients = self._replies, self._clients
        if (
            replies.queued_bytes <= LARGE_BYTES
            or clients.leaving  # an end does not wait for the line
            or clients.large.may_write(self, replies.own_bytes)
        ):
            self.write()

    def write(self) -> None:
        """See `Connection`."""
        if self._replies.flush() and not self._flow.reading:
            self._clients.host.call_soon(self._process)

    @property
    def output_bytes(self) -> int:
        """See `Connection`."""
        return self._replies.queued_bytes

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
        """Act on received requests until something must be waited for, or others have a turn."""
        if self._is_resting:
            return
        if self._clients.outbox_is_full and self._buffered_bytes:
            # Input that is in memory waits, too: all clients together may have GiBs of short
            # requests, which take several times that in the outbox. `room_again` goes on.
            self._update_flow()
            return
        if self._clients.rates.are_limited and not self.blocked:
            self._process_metered()
            return
        self._act_on_row(REQUESTS_IN_A_ROW_MAX, has_more=True)
        self._update_flow()

    def _process_metered(self) -> None:
        """Do the same as `_process` under a rate limit: charge the requests acted on."""
        rates, now_us = self._clients.rates, self._clients.now_us
        if self.is_metered and not (self.number or self.throttled):
            self._find_payer()  # the rules may have changed
        allowed = 0 if self.throttled else rates.allowance(self, now_us)
        count = min(allowed, REQUESTS_IN_A_ROW_MAX)
        is_new = rates.limits_users and not self.is_metered
        left = self._act_on_row(count, has_more=count < allowed, is_one=is_new)
        is_begun = is_new and left < count
        if is_begun:
            self._meter_user()
        rates.spend(self, count - left, now_us)
        if is_begun and left and not (self._is_resting or self.blocked):
            self._process_metered()  # its user's meter allows the rest, or does not
            return
        if not (left or self._is_resting or self.blocked or self.closed):
            rates.throttle(self, now_us)
        self._update_flow()

    def _meter_user(self) -> None:
        """Let the rate of a user count the requests from the present one on.

        Many requests need no session, such as PING or those that are malformed: without a session
        they count as those of the user that a rule would give it.
        """
        if self._looks == 1:
            self._looks += 1  # clients that look for `auth` send it behind that
            return
        self.is_metered = True
        if not self.number:
            self._find_payer()

    def _find_payer(self) -> None:
        protocol = PROTOCOL_NUMBERS.get(self.protocol, NO_PROTOCOL)
        self.payer = user_by_rule(self, protocol, self._clients.machine)

    def _act_on_row(self, left: int, has_more: bool, is_one: bool = False) -> int:
        """Act on one row of requests, and rest if it was a long one.

        Args:
            left: the most requests.
            has_more: whether the client may send more than that now.
            is_one: whether the row ends with its first request.

        Returns:
            How many more it could have been.
        """
        replies = self._replies
        enough_bytes = replies.queued_bytes + BYTES_IN_A_ROW_MAX
        self._row_is_over = False
        while (
            left
            and not self._row_is_over
            and replies.queued_bytes < enough_bytes
            and not (self.blocked or self._flow.held or self.closed or replies.is_full)
        ):
            if not self._act():
                if self.ended and not replies.pending:
                    self._close()
                break
            left -= 1
            if is_one:
                break
        is_long = (has_more and not left) or self._row_is_over
        if (is_long or replies.queued_bytes >= enough_bytes) and not (self.blocked or self.closed):
            self._is_resting = True
            self._clients.host.call_soon(self._rested)
        return left

    def _rested(self) -> None:
        self._is_resting = False
        if not self.closed:
            self._process()

    def _update_flow(self) -> None:
        if not self.closed:
            has_enough = self._is_resting or self._replies.is_full
            self._flow.update(self, has_enough, self._buffered_bytes)
            self._count_unfinished()

    def _count_unfinished(self) -> None:
        unfinished_bytes = self._unfinished_bytes() + self._held_bytes
        if unfinished_bytes >= COUNTED_BYTES or self._is_counted:
            self._is_counted = self._clients.unfinished.update(self, unfinished_bytes)

    def _answer(self, reply: bytes | Parts) -> None:
        """Answer the oldest pending request."""
        head = self._replies.answer(reply)
        if head == WAIT:
            self._arm()
        elif head == EMPTY and (self.ended or not self._flow.reading):
            self._go_on()

    def _push(self, data: bytes, times: int = 1) -> None:
        """Write an unsolicited message; a client that does not read is closed instead.

        Args:
            data: the message, which other clients may receive, too.
            times: how often it is written.
        """
        if self._flow.stalled:
            self._clients.abort_slow(self)
        else:
            self._replies.push_shared((data,) * times)
            queued_max = self._clients.client_output_bytes_max
            if self._replies.queued_bytes >= queued_max:
                # The port says in this turn whether the client reads: an entry may have thousands
                # of messages for it, and all of them would be queued before the turn's end.
                self.flush()
            if self._replies.queued_bytes >= LINE_OUTPUTS_MAX * queued_max:
                self._clients.abort_slow(self)

    def _answer_alone(self, reply: bytes | Parts) -> None:
        """Answer the request that blocked later input; nothing is pending before it."""
        self.blocked = False
        self._settled(self._replies.answer(reply))

    def _settled(self, head: int) -> None:
        """Resume what the written replies held up."""
        if head == WAIT:
            self._arm()
        elif head == EMPTY:
            self._go_on()

    def _go_on(self) -> None:
        if self.ended and self.blocked and self.wait is None:
            self._close(lost=False)  # the client asked to quit
        else:
            self._process()

    def _session(self) -> int:
        """Return the session's number; the first command that needs a session opens it."""
        if not self.number:
            self._clients.origin.open_session(self, self._speaks)
        return self.number

    # --- puts that this node refuses ------------------------------------------------------------

    def _admit_any_put(self) -> bool:
        """Let a put pass if this node makes jobs now; otherwise refuse it and return False."""
        self.is_producer = True
        clients = self._clients
        if clients.draining:
            self._refuse_put(PUT_DRAINING)
            return False
        if clients.machine.puts_refused:
            # Refuse it at once: its body would be logged on a disk that has no room for it.
            self._refuse_put(PUT_NO_ROOM)
            return False
        return True

    def _why_not_put(self, queue: bytes, size: int) -> int:
        """Return why a job may not be put, or PUT_ALLOWED, as far as this node knows."""
        if not self._clients.may(self, PUT, queue):
            return PUT_DENIED
        return PUT_BEYOND_QUOTA if self._clients.is_over_quota(self, size) else PUT_ALLOWED

    def _hold_or_refuse_put(self, reason: int, size: int, again: Callable[[], None]) -> None:
        """Answer a put later, by `again`, or now, if it was held already; see `_hold_request`."""
        if not self._hold_request(size, again):
            self._refuse_put(reason)

    # --- requests that are held -----------------------------------------------------------------

    def _hold_request(self, size: int, again: Callable[[], None]) -> bool:
        """Keep a request out of the log that would have no effect, as far as this node knows.

        See `held_requests`. The requests behind it wait.

        Args:
            size: of the body.
            again: makes the request again, once this node knows more.

        Returns:
            False if it was held already: the caller refuses it.
        """
        if self._is_checked:
            return False
        self.blocked = True
        self._replies.expect(KIND_HELD)
        self._held_request, self._held_bytes = again, size
        self._clients.held_requests.hold(self)
        return True

    def request_checked(self, is_known: bool) -> None:
        """See `Connection`."""
        again = self._held_request
        if again is None:
            return
        self._held_request, self._held_bytes = None, 0
        self._replies.retract(1)
        self.blocked = False
        if is_known:
            self._is_checked = True
            again()
            self._is_checked = False
        else:
            self._refuse_put(PUT_NO_MAJORITY)
        self._process()

    # --- authentication -------------------------------------------------------------------------

    def _authenticate(self, kind: int, token: bytes, name: bytes = b"") -> None:
        """Ask the machine which user has this token; its answer is of this kind.

        The answer goes to `_authenticated`. The session is open. Later requests are not parsed
        before it arrives. With a name, the token must be that user's.
        """
        self.blocked = True
        self._replies.expect(kind)
        digest = sha256(token).digest()
        self._clients.origin.submit(self, kind, (c.AS_USER, self.number, name, digest))

    def _authenticated(self, result: int, accepted: bytes, refused: bytes) -> None:
        """Reply with the machine's answer. A wrong token costs a delay, several the connection."""
        clients = self._clients
        session = clients.session(self.number)
        if result == c.OK and session is not None:
            self.user, self.token = session.user, session.token
            self._wrong_tokens = 0
            self._answer_alone(accepted)
            self.rights_changed()
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
        """End at the client's request: nothing behind that request is executed."""
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
        large = self._clients.large
        if large.has(self):
            large.end_behind(self, self._port, self._replies.take())
            self._port.pause_reading()
        else:
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
        self._held_request = None
        self._clients.origin.close(self, lost)
        self._replies.end()
        self.batch = self.wait = None  # both refer to this connection: cycles
        self._clients.forget(self)
