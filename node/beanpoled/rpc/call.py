"""A program's call with many commands, as its origin sees it.

A call is a client with a session of its own. Its commands travel in the node's batches, and it ends
when all of them are answered or one of them never will be. The messages on the wire are in `queue`
and `jobs`.
"""

from collections.abc import Callable
from typing import Any, Final

from beanpole import commands as c
from beanpole import events
from beanpole.core.jobs.job import Job
from beanpoled.frontends.clients import Clients
from beanpoled.origin.batches import KIND_OPEN, KIND_QUIET, UNKNOWN, Batch, Wait

# All commands of a call are of one kind: their results come in the order of the commands.
KIND_COMMAND: Final = 0
# Beside `origin.NOT_DONE` and `UNKNOWN`: the cluster has reached its limit of sessions.
NO_SESSION: Final = 3
# ... or no user has the caller's token any more.
NO_USER: Final = 4
KIND_USER: Final = 1
# The ids of jobs begin above it.
NO_JOB: Final = 0


class Call:
    """A call in progress; implements `origin.Client`.

    Attributes:
        results: the machine's result of each command, in order.
        failure: 0, or the reason why results are missing: NO_SESSION, NO_USER,
            `origin.NOT_DONE`, `UNKNOWN`.
    """

    __slots__ = (
        "_clients",
        "_done",
        "_ended",
        "_expected",
        "batch",
        "client_host",
        "client_names",
        "failure",
        "number",
        "results",
        "token",
        "user",
        "wait",
    )

    def __init__(
        self,
        clients: Clients,
        client_host: bytes,
        done: Callable[[], None],
        client_names: tuple[bytes, ...] = (),
        token: bytes = b"",
    ) -> None:
        """Open a session for the caller.

        Args:
            clients: of the node.
            client_host: the address of the caller.
            done: called when the call has ended.
            client_names: the names in its certificate.
            token: the digest of its token; empty if it has none.
        """
        self._clients = clients
        self.client_host = client_host
        self.client_names = client_names
        self.user = self.token = b""
        self._done = done
        self._expected = 0
        self._ended = False
        self.number = 0
        self.batch: Batch | None = None
        self.wait: Wait | None = None
        self.results: list[Any] = []
        self.failure = 0
        clients.calls[self] = None
        clients.origin.open_session(self, events.GRPC)
        if token:
            clients.origin.submit(self, KIND_USER, (c.AS_USER, self.number, b"", token))

    def put(
        self, tube: bytes, priority: int, delay_s: int, ttr_s: int, body: bytes, key: bytes
    ) -> None:
        """Put a job; an empty key means none."""
        self._expected += 1
        job = (self.number, tube, priority, delay_s, ttr_s, body)
        command = (c.PUT_KEYED, *job, key) if key else (c.PUT, *job)
        self._clients.origin.submit_put(self, KIND_COMMAND, command)

    def barrier(self) -> None:
        """Peek at a job that never exists: then earlier acknowledged commands are applied here."""
        self.submit(c.PEEK, NO_JOB)

    def submit(self, operation: int, *fields: int | bytes) -> None:
        """Submit an operation of `beanpole.commands`; its fields follow the session."""
        self._expected += 1
        self._clients.origin.submit(self, KIND_COMMAND, (operation, self.number, *fields))

    def end(self, failure: int = UNKNOWN) -> None:
        """Close the session; submitted commands may still take effect. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self.failure = failure
        del self._clients.calls[self]
        self._clients.origin.close(self, lost=False)
        self.batch = None  # it refers to this call as an owner: a cycle
        self._done()

    # --- origin.Client --------------------------------------------------------------------------

    def answered(self, kind: int, result: Any) -> None:
        """See `origin.Client`."""
        if self._ended or kind == KIND_QUIET:
            return
        if kind == KIND_OPEN:
            if result != c.OK:
                self.end(NO_SESSION)
            return
        if kind == KIND_USER:
            if result != c.OK:
                self.end(NO_USER)
            return
        self.results.append(result)
        if len(self.results) == self._expected:
            self.end(failure=0)

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `origin.Client`; a call never waits for a job."""

    def failed(self, kind: int, why: int) -> None:
        """See `origin.Client`."""
        self.end(why)

    def drop(self) -> None:
        """See `origin.Client`."""
        self.end()
