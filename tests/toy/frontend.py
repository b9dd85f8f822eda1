"""The toy protocol at a node: what `docs/adding-a-protocol.md` explains line by line."""

from collections.abc import Mapping
from typing import Any, Final

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpole.core.jobs import effects
from beanpole.core.jobs import job as jobs
from beanpole.core.jobs.job import Job
from beanpoled.config.protocols import Protocol
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.frontend import Frontend
from beanpoled.frontends.requests import RequestConnection
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import KIND_OPEN, KIND_QUIET, KIND_WAIT, NOT_DONE
from tests.toy.protocol import DONE, HUH, LISTEN, POLL, PUT, TAKE, TELL, TRY, WORDS, Parser
from tests.toy.space import PREFIX, TOY

TTR_US: Final = 60 * SECOND_US
# How long a job is known, with its result when it is done.
TTL_US: Final = 3600 * SECOND_US
# Jobs that one client may listen to.
LISTENS_MAX: Final = 1000
# The effect by which TELL reaches the listeners of a job.
WORD: Final = effects.NOTIFIED_MIN

ROW: Final = Protocol("toy", listen=(), port_offset=70)


class ToyConnection(RequestConnection):
    """A client of the toy protocol."""

    __slots__ = ("_counts", "_listening", "_parser", "_queue", "_request")
    _speaks = TOY

    def __init__(
        self, clients: Clients, protocol: str, port: ClientPort, counts: list[int]
    ) -> None:
        super().__init__(clients, protocol, port)
        self._parser = Parser()
        self._counts = counts
        self._listening: set[int] = set()  # jobs
        self._queue = b""  # the one that the session watches
        self._request = 0  # the number of the last wait

    # --- requests become commands -----------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)

    @property
    def _buffered_bytes(self) -> int:
        return self._parser.buffered_bytes

    def _unfinished_bytes(self) -> int:
        return 0  # a line is short

    def _act(self) -> bool:
        match self._parser.next():
            case None:
                return False
            case (int(kind), *arguments):
                self._counts[kind] += 1
                self._ask(kind, arguments)
        return True

    def _ask(self, kind: int, arguments: list[Any]) -> None:
        origin = self._clients.origin
        if kind == HUH:
            self._replies.reply(b"HUH\n")
            return
        if kind == POLL:
            self._poll(PREFIX + arguments[0])
            return
        self._session()
        if kind in (TAKE, TRY):
            self._reserve(kind, PREFIX + arguments[0])
            return
        self._replies.expect(kind)
        if kind == PUT:
            queue, body = PREFIX + arguments[0], arguments[1]
            put = (c.ADD, self.number, queue, 0, 0, TTR_US, TTL_US, b"", 0, 0, body)
            origin.submit_put(self, kind, put)
        elif kind == TELL:
            job, word = arguments
            origin.submit(self, kind, (c.NOTIFY, self.number, job, WORD, word))
        elif kind == DONE:
            job, result = arguments
            origin.submit(self, kind, (c.FINISH, self.number, job, jobs.DONE, result))
        else:
            origin.submit(self, kind, (c.PEEK, self.number, arguments[0]))

    def _reserve(self, kind: int, queue: bytes) -> None:
        origin = self._clients.origin
        if queue != self._queue:
            origin.submit(self, KIND_QUIET, (c.WATCH, self.number, queue))
            if self._queue:
                origin.submit(self, KIND_QUIET, (c.IGNORE, self.number, self._queue))
            self._queue = queue
        self.blocked = True  # what stands behind it in a pipeline waits
        if kind == TRY:
            self._replies.expect(TRY)
            origin.submit(self, TRY, (c.TAKE, self.number))
            return
        self._replies.expect(KIND_WAIT)
        self._request += 1
        self.wait = origin.wait(self, self._request)

    def _poll(self, queue: bytes) -> None:
        listeners = self._clients.listeners
        if listeners.wait(self, (queue,)) is not None:
            self._replies.reply(b"READY\n")
        elif self.ended:
            listeners.stop_waiting(self)
            self._replies.reply(b"NO\n")
        else:
            self.blocked = True
            self._replies.expect(POLL)

    def half_closed(self) -> None:
        """See `Connection`. A client that sends nothing more waits for nothing."""
        super().half_closed()
        if self._clients.listeners.stop_waiting(self):
            self.blocked = False
            self._settled(self._replies.answer_kind(POLL, b"NO\n"))

    def _arm(self) -> None:
        """A TAKE has no time-out; but a client that sends nothing more waits for nothing."""
        if self.ended and self.wait is not None:
            self._clients.origin.end_wait(self.wait)

    def watches(self, tube: bytes) -> bool:
        """See `Connection`."""
        return tube == self._queue

    # --- results become replies -------------------------------------------------------------------

    def answered(self, kind: int, result: Any) -> None:
        """See `Connection`."""
        if self.closed:
            return
        if kind == PUT:
            self._answer(b"NO\n" if isinstance(result, int) else b"OK %d\n" % result[0])
        elif kind in (TELL, DONE):
            self._answer(b"OK\n" if result == c.OK else b"NO\n")
        elif kind == TRY:
            self._tried(result)
        elif kind == LISTEN:
            self._listen(result)
        elif kind in (KIND_OPEN, KIND_QUIET) and result != c.OK:
            self.drop()

    def _tried(self, result: tuple[int, bytes] | int) -> None:
        if result == c.AGAIN:
            self._clients.origin.submit(self, TRY, (c.TAKE, self.number))
        elif isinstance(result, int):
            self._answer_alone(b"NO\n")
        else:
            self._answer_alone(b"JOB %d %b\n" % result)

    def _listen(self, result: tuple[int, bytes] | int) -> None:
        listeners = self._clients.listeners
        if isinstance(result, int) or len(self._listening) >= LISTENS_MAX:
            self._answer(b"NO\n")
            return
        ended = listeners.listen(self, result[0])
        self._answer(b"OK\n")
        if ended is not None:
            self.job_told(*ended)
        else:
            self._listening.add(result[0])

    def job_told(self, job_id: int, kind: int, data: bytes) -> None:
        """See `Connection`."""
        if kind == WORD:
            self._push(b"TOLD %d %b\n" % (job_id, data))
        elif kind == effects.DONE:
            self._push(b"RESULT %d %b\n" % (job_id, data))
        else:
            self._push(b"GONE %d\n" % job_id)
        if kind != WORD:
            self._listening.discard(job_id)

    def queue_ready(self, queue: bytes) -> None:
        """See `Connection`."""
        self.blocked = False
        self._settled(self._replies.answer_kind(POLL, b"READY\n"))

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `Connection`."""
        self.wait = None
        self.blocked = False
        if not self.closed:
            reply = b"NO\n" if job is None else b"JOB %d %b\n" % (job.id, job.body)
            self._settled(self._replies.answer_newest(reply))

    def failed(self, kind: int, why: int) -> None:
        """See `Connection`."""
        if self.closed:
            return
        if why != NOT_DONE:
            self.drop()
            return
        if kind in (KIND_WAIT, TRY):
            self.wait = None
            self.blocked = False
        self._settled(self._replies.answer_kind(kind, b"NO\n"))

    def _refuse(self) -> bool:
        if self._parser.next() is None:
            return False
        self._replies.push(b"NO\n")
        return True


class ToyFrontend(Frontend):
    """The toy protocol at a node."""

    def __init__(self, clients: Clients, name: str) -> None:
        super().__init__(clients, name, since=3)
        self._counts = [0] * (HUH + 1)

    def connect(self, port: ClientPort) -> Connection:
        """See `Frontend`."""
        return ToyConnection(self.clients, self.name, port, self._counts)

    def counters(self) -> Mapping[str, int]:
        """See `Frontend`."""
        return dict(zip(WORDS, self._counts[PUT:HUH], strict=True))
