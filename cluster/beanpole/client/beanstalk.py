"""A synchronous beanstalk client that goes to another node when its own is gone.

One connection at a time; used tube and watch list are set again on each new one. It serves the
command line, tests and scripts. The bytes are in `protocol.beanstalk.client`.
"""

import random
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from beanpole.addresses import UNIX_PREFIX, split_address
from beanpole.constants import DEFAULT_TUBE
from beanpole.errors import ClientError, OutcomeUnknown, ProtocolError
from beanpole.protocol.beanstalk.client import Reply, ReplyParser, encode, encode_put

# Longer than one node needs to say that there is no majority (its command_timeout).
REPLY_TIMEOUT_S: Final = 15.0
CONNECT_TIMEOUT_S: Final = 2.0
# Covers an election, and the restart of a cluster that lost its power.
PATIENCE_S: Final = 10.0
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0

PRIORITY_DEFAULT: Final = 65536
TTR_DEFAULT_S: Final = 120


class Job(NamedTuple):
    """A job as a node gave it."""

    id: int
    body: bytes


def _pause(longest_s: float) -> None:
    # Jitter: clients that lost the same node do not come back all at once.
    time.sleep(longest_s * (0.5 + random.random() / 2))


class Client:
    """A connection to any one of several nodes.

    Commands that can be repeated without harm are, on another node if need be. When the connection
    ends while another command is out, OutcomeUnknown is raised, and the caller decides.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        patience_s: float = PATIENCE_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
    ) -> None:
        """Remember where the nodes are; the first command connects.

        Args:
            addresses: "host:port" or "unix:PATH"; the first that answers is taken.
            patience_s: how long to look for a node that answers before giving up.
            reply_timeout_s: how long a node may be silent, beside the time a reserve waits.
        """
        assert addresses, "a client needs an address"
        self._addresses = list(addresses)
        self._patience_s = patience_s
        self._reply_timeout_s = reply_timeout_s
        self._socket: socket.socket | None = None
        self._parser = ReplyParser()
        self._used = DEFAULT_TUBE
        self._watched = [DEFAULT_TUBE]

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the node releases the jobs reserved on it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def address(self) -> str:
        """The node that is connected, or will be tried first."""
        return self._addresses[0]

    def use(self, tube: bytes) -> None:
        """Put into this tube from now on, also on later connections."""
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
        """Put a job and return its id. A node that drains is left for the next one.

        Raises:
            OutcomeUnknown: putting it again may make a second job.
            ClientError: it was refused; the message is the node's word.
        """
        request = encode_put(body, priority, delay_s, ttr_s)
        reply = self.call(request, repeat=False)
        for _ in self._addresses[1:]:
            if reply[0] != b"DRAINING":
                break
            self._leave()
            reply = self.call(request, repeat=False)
        return int(self._expect(reply, b"INSERTED")[1][0])

    def reserve(self, timeout_s: int | None = None) -> Job | None:
        """Wait for a job of the watched tubes; None if none came within `timeout_s` seconds."""
        if timeout_s is None:
            reply = self.call(encode(b"reserve"), wait_s=None)
        else:
            reply = self.call(encode(b"reserve-with-timeout", timeout_s), wait_s=timeout_s)
        if reply[0] in (b"TIMED_OUT", b"DEADLINE_SOON"):
            return None
        return self._job(self._expect(reply, b"RESERVED"))

    def reserve_job(self, job: int) -> Job | None:
        """Reserve one job, wherever it is; None if it is not there or is reserved."""
        reply = self.call(encode(b"reserve-job", job))
        return None if reply[0] == b"NOT_FOUND" else self._job(self._expect(reply, b"RESERVED"))

    def delete(self, job: int) -> bool:
        """Delete a job; False if it is not there or is reserved by another connection."""
        return self._done(encode(b"delete", job), b"DELETED")

    def release(self, job: int, priority: int = PRIORITY_DEFAULT, delay_s: int = 0) -> bool:
        """Give a job reserved here back; False if it is not reserved here."""
        return self._done(encode(b"release", job, priority, delay_s), b"RELEASED")

    def bury(self, job: int, priority: int = PRIORITY_DEFAULT) -> bool:
        """Put a job reserved here aside; False if it is not reserved here."""
        return self._done(encode(b"bury", job, priority), b"BURIED")

    def touch(self, job: int) -> bool:
        """Begin the TTR of a job reserved here anew; False if it is not reserved here."""
        return self._done(encode(b"touch", job), b"TOUCHED")

    def kick(self, bound: int) -> int:
        """Make up to `bound` jobs of the used tube ready: buried ones, or else delayed ones."""
        reply = self.call(encode(b"kick", bound), repeat=False)
        return int(self._expect(reply, b"KICKED")[1][0])

    def kick_job(self, job: int) -> bool:
        """Make one buried or delayed job ready; False if it is neither."""
        return self._done(encode(b"kick-job", job), b"KICKED")

    def pause(self, tube: bytes, delay_s: int) -> bool:
        """Give out no job of a tube for `delay_s`; False if there is no such tube."""
        return self._done(encode(b"pause-tube", tube, delay_s), b"PAUSED")

    def peek(self, what: int | bytes) -> Job | None:
        """Look at a job by id, or at the used tube's next b"ready", b"delayed" or b"buried"."""
        request = encode(b"peek", what) if isinstance(what, int) else encode(b"peek-" + what)
        reply = self.call(request)
        return None if reply[0] == b"NOT_FOUND" else self._job(self._expect(reply, b"FOUND"))

    def text(self, word: bytes, *arguments: int | bytes) -> str | None:
        """Return what stats, stats-job, stats-tube or list-tubes answer; None if not found."""
        reply = self.call(encode(word, *arguments))
        if reply[0] == b"NOT_FOUND":
            return None
        return (self._expect(reply, b"OK")[2] or b"").decode()

    def call(self, request: bytes, *, repeat: bool = True, wait_s: float | None = 0) -> Reply:
        """Send one request and return its reply.

        Args:
            request: as `encode` makes it.
            repeat: doing it twice does no harm, so it is sent again when the connection is lost.
            wait_s: how long the node itself may wait before it answers; None for ever.

        Raises:
            OutcomeUnknown: the connection ended before the reply, and `repeat` is False.
            ClientError: no node answers.
        """
        until = time.monotonic() + self._patience_s
        while True:
            self._connect(until)
            try:
                return self._exchange(request, wait_s)
            except (OSError, ProtocolError) as error:
                address = self.address
                self._leave()
                if not repeat:
                    raise OutcomeUnknown(f"{address}: {error or 'the connection ended'}") from error
                if time.monotonic() > until:
                    raise ClientError(f"{address}: {error or 'the connection ended'}") from error
                _pause(PAUSE_MIN_S)

    def _exchange(self, request: bytes, wait_s: float | None) -> Reply:
        assert self._socket is not None
        self._socket.settimeout(None if wait_s is None else wait_s + self._reply_timeout_s)
        self._socket.sendall(request)
        while (reply := self._parser.next()) is None:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the node closed the connection")
            self._parser.feed(data)
        return reply

    def _leave(self) -> None:
        """Close, and begin with the next node when connecting again."""
        self.close()
        self._addresses.append(self._addresses.pop(0))

    def _connect(self, until: float) -> None:
        """Connect to the first node that answers, going round until then."""
        pause_s = PAUSE_MIN_S
        reasons: dict[str, str] = {}
        while self._socket is None:
            for _ in self._addresses:
                try:
                    self._open()
                    return
                except (OSError, ProtocolError) as error:
                    reasons[self.address] = str(error)
                    self._leave()
            if time.monotonic() > until:
                words = "; ".join(f"{address}: {why}" for address, why in reasons.items())
                raise ClientError(f"no node answers: {words}")
            _pause(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _open(self) -> None:
        """Connect to the first address and set tube and watch list as they were."""
        self._parser = ReplyParser()
        if self.address.startswith(UNIX_PREFIX):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(CONNECT_TIMEOUT_S)
            self._socket.connect(self.address.removeprefix(UNIX_PREFIX))
        else:
            self._socket = socket.create_connection(
                split_address(self.address), timeout=CONNECT_TIMEOUT_S
            )
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        requests = [encode(b"use", self._used)] if self._used != DEFAULT_TUBE else []
        requests += [encode(b"watch", tube) for tube in self._watched if tube != DEFAULT_TUBE]
        if DEFAULT_TUBE not in self._watched:
            requests.append(encode(b"ignore", DEFAULT_TUBE))
        for request in requests:
            self._expect(self._exchange(request, 0), b"USING", b"WATCHING")

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
            raise ClientError(reply[0].decode())
        return reply
