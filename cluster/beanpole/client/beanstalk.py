"""A small synchronous beanstalk client with failover, for the command line, tests and scripts.

The client has one connection at a time, and restores the used tube and the watch list on each new
one. The encoding is in `protocol.beanstalk.client`. Programs of users use `blocking` or `aio`.
"""

import math
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from beanpole.client.patience import PATIENCE_S, REPLY_TIMEOUT_S, WAIT_SLICE_S
from beanpole.client.sansio.faults import DrainingError, OutOfMemoryError
from beanpole.client.stream import StreamClient
from beanpole.constants import DEFAULT_TUBE, PRIORITY_DEFAULT
from beanpole.errors import ClientError, ProtocolError
from beanpole.protocol.beanstalk.client import (
    Reply,
    ReplyParser,
    encode,
    encode_put,
    encode_tubes,
    extensions_of,
)

# Twice that of the other clients: the commands that put jobs by this one are for people and shell
# scripts, whose workers start a process for each step.
TTR_DEFAULT_S: Final = 120
_DENIED: Final = b"DENIED"
_AUTH: Final = b"auth"
# These replies are one word, which does not tell its reader what to change.
_REASONS: Final = {
    b"DENIED": "the user of this token, or of clients without one, lacks the right",
    b"DRAINING": DrainingError.reason,
    b"INTERNAL_ERROR": "the node cannot do this now: it reaches no majority, or stops",
    b"JOB_TOO_BIG": "the body is larger than max_job_size, a setting of the nodes",
    b"OUT_OF_MEMORY": OutOfMemoryError.reason,
}


class Job(NamedTuple):
    """A job as a node returned it."""

    id: int
    body: bytes


class Client(StreamClient):
    """A client connected to one of several nodes.

    When the connection ends, idempotent commands are repeated, at another node if necessary. Other
    commands raise OutcomeUnknown, and the caller decides.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        patience_s: float = PATIENCE_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        asks_first: bool = False,
    ) -> None:
        """See `StreamClient`.

        Args:
            addresses: see `StreamClient`.
            patience_s: see `StreamClient`.
            reply_timeout_s: see `StreamClient`.
            token: of a user; empty for no user.
            tls: see `StreamClient`.
            asks_first: whether to send a command without an effect on each new connection, if there
                are several nodes, so that no outcome is unknown because one stands still.
        """
        super().__init__(addresses, patience_s=patience_s, reply_timeout_s=reply_timeout_s, tls=tls)
        self._parser = ReplyParser()
        self._token = token.encode()
        self._asks_first = asks_first
        self._used = DEFAULT_TUBE
        self._watched = [DEFAULT_TUBE]

    def use(self, tube: bytes) -> None:
        """Use this tube for puts from now on, also on later connections."""
        request = encode(b"use", tube)
        self._connect(time.monotonic() + self._patience_s)
        before, self._used = self._used, tube
        try:
            self._expect(self.call(request), b"USING")
        except ClientError:
            self._used = before
            raise

    def watch(self, tubes: Iterable[bytes]) -> None:
        """Reserve from exactly these tubes from now on, also on later connections."""
        wanted = list(dict.fromkeys(tubes))
        assert wanted, "a watch list is never empty"
        requests = [encode(b"watch", tube) for tube in wanted]
        requests += [encode(b"ignore", tube) for tube in self._watched if tube not in wanted]
        self._connect(time.monotonic() + self._patience_s)
        before, self._watched = self._watched, wanted
        try:
            for request in requests:
                self._expect(self.call(request), b"WATCHING")
        except ClientError:
            self._watched = before
            self.close()
            raise

    def put(
        self,
        body: bytes,
        priority: int = PRIORITY_DEFAULT,
        delay_s: int = 0,
        ttr_s: int = TTR_DEFAULT_S,
    ) -> int:
        """Put a job and return its id. If the node is draining, the next one is tried.

        Raises:
            OutcomeUnknown: the connection ended; a second put may make a second job.
            ClientError: the put was refused; the message begins with the first word of the reply.
        """
        request = encode_put(body, priority, delay_s, ttr_s)
        reply = self.call(request, repeat=False)
        asked = 1
        while reply[0] == b"DRAINING" and asked < self.address_count:
            self._leave()
            reply = self.call(request, repeat=False)
            asked += 1
        return int(self._expect(reply, b"INSERTED")[1][0])

    def reserve(self, timeout_s: int | None = None) -> Job | None:
        """Wait for a job of the watched tubes; return None if none is ready within `timeout_s`."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        left_s = WAIT_SLICE_S if timeout_s is None else timeout_s
        while True:
            reply = self._request(
                _reserve_within, self._next_reply, repeat=True, wait_s=min(WAIT_SLICE_S, left_s)
            )
            if until_s is not None:
                left_s = round(until_s - time.monotonic())
            if reply[0] != b"TIMED_OUT" or left_s <= 0:
                break
        if reply[0] in (b"TIMED_OUT", b"DEADLINE_SOON"):
            return None
        return self._job(self._expect(reply, b"RESERVED"))

    def reserve_job(self, job: int) -> Job | None:
        """Reserve one job in any tube; return None if it does not exist or is reserved.

        Raises:
            OutcomeUnknown: the connection ended; a second attempt may not find the job that the
                first has reserved.
        """
        reply = self.call(encode(b"reserve-job", job), repeat=False)
        return None if reply[0] == b"NOT_FOUND" else self._job(self._expect(reply, b"RESERVED"))

    def delete(self, job: int) -> bool:
        """Delete a job; return False if there is none or another connection has reserved it."""
        return self._done(encode(b"delete", job), b"DELETED")

    def release(self, job: int, priority: int = PRIORITY_DEFAULT, delay_s: int = 0) -> bool:
        """Release a job reserved on this connection; return False if it is not reserved here."""
        return self._done(encode(b"release", job, priority, delay_s), b"RELEASED")

    def bury(self, job: int, priority: int = PRIORITY_DEFAULT) -> bool:
        """Bury a job reserved on this connection; return False if it is not reserved here."""
        return self._done(encode(b"bury", job, priority), b"BURIED")

    def touch(self, job: int) -> bool:
        """Restart the TTR of a job reserved here; return False if it is not reserved here."""
        return self._done(encode(b"touch", job), b"TOUCHED")

    def kick(self, bound: int) -> int:
        """Make up to `bound` jobs of the used tube ready: buried ones, or else delayed ones."""
        reply = self.call(encode(b"kick", bound), repeat=False)
        return int(self._expect(reply, b"KICKED")[1][0])

    def kick_job(self, job: int) -> bool:
        """Make one buried or delayed job ready; return False if it is neither."""
        return self._done(encode(b"kick-job", job), b"KICKED")

    def pause(self, tube: bytes, delay_s: int) -> bool:
        """Stop reserves from a tube for `delay_s`; return False if there is no such tube."""
        return self._done(encode(b"pause-tube", tube, delay_s), b"PAUSED")

    def peek(self, what: int | bytes) -> Job | None:
        """Return a job by id, or the used tube's next b"ready", b"delayed" or b"buried" job.

        Returns:
            The job, which is not reserved; None if there is none.
        """
        request = encode(b"peek", what) if isinstance(what, int) else encode(b"peek-" + what)
        reply = self.call(request)
        return None if reply[0] == b"NOT_FOUND" else self._job(self._expect(reply, b"FOUND"))

    def text(self, word: bytes, *arguments: int | bytes) -> str | None:
        """Return the text of stats, stats-job, stats-tube or list-tubes; None if not found."""
        reply = self.call(encode(word, *arguments))
        if reply[0] == b"NOT_FOUND":
            return None
        return (self._expect(reply, b"OK")[2] or b"").decode()

    def call(self, request: bytes, *, repeat: bool = True) -> Reply:
        """Send one request, which does not wait at the node, and return its reply.

        Args:
            request: the bytes that `encode` returns.
            repeat: the request is idempotent and is repeated when the connection is lost.

        Raises:
            OutcomeUnknown: the connection ended before the reply, and `repeat` is False.
            ClientError: no node answers.
        """
        return self._request(lambda _: request, self._next_reply, repeat=repeat, wait_s=0)

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)

    def _next_reply(self) -> Reply | None:
        return self._parser.next()

    def _begin(self) -> None:
        """Authenticate, and restore the used tube and the watch list.

        As in `sansio`, the token is not sent to a server that does not support users.

        Raises:
            ProtocolError: the node refuses for now, so another node has to be asked.
            ClientError: every node would answer the same.
        """
        self._parser = ReplyParser()
        if self._token:
            asked = self._ask_first(encode(b"extensions"))
            if _AUTH not in extensions_of(asked):
                raise ClientError(
                    f"{self.address} does not support users; the token was not sent to it"
                )
            reply = self._exchange(encode(_AUTH, self._token), self._next_reply, 0)
            if reply[0] == _DENIED:
                raise ClientError("DENIED: no user has this token")
            self._restored(reply, b"ACCEPTED")
        elif self._asks_first and self.address_count > 1:
            self._restored(self._ask_first(encode(b"list-tube-used")), b"USING")
        for request in encode_tubes(self._used, self._watched):
            reply = self._exchange(request, self._next_reply, 0)
            self._restored(reply, b"USING", b"WATCHING")

    def _ask_first(self, request: bytes) -> Reply:
        """Ask a new node a question that it answers by itself."""
        with self._waits.greeting(self.address_count > 1):
            return self._exchange(request, self._next_reply, 0)

    def _restored(self, reply: Reply, *words: bytes) -> None:
        """Check a reply to what a connection begins with."""
        if reply[0] not in (*words, _DENIED):
            raise ProtocolError(f"the connection is not restored: {reply[0].decode()}")
        self._expect(reply, *words)

    def _done(self, request: bytes, word: bytes) -> bool:
        reply = self.call(request, repeat=False)
        if reply[0] == b"NOT_FOUND":
            return False
        self._expect(reply, word)
        return True

    @staticmethod
    def _job(reply: Reply) -> Job:
        return Job(reply[1][0], reply[2] or b"")

    @staticmethod
    def _expect(reply: Reply, *words: bytes) -> Reply:
        if reply[0] not in words:
            reason = _REASONS.get(reply[0])
            raise ClientError(reply[0].decode() + (f": {reason}" if reason else ""))
        return reply


def _reserve_within(left_s: float) -> bytes:
    """Return a reserve that waits for the rest of a slice: what is repeated waits no longer."""
    return encode(b"reserve-with-timeout", math.ceil(left_s))
