"""A synchronous beanstalk client with the API of greenstalk: changing the import is enough.

    from beanpole.client import blocking as greenstalk

The client knows several nodes, fails over when its node is lost, and also works with plain
beanstalkd. A client must not be shared between threads. The sockets are in `blocking_wire`, the
protocol logic is in `sansio`; docs/clients.md is the guide for users.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar, overload

from beanpole.client.blocking_wire import Wire
from beanpole.client.patience import CONNECT_TIMEOUT_S, PATIENCE_S, REPLY_TIMEOUT_S
from beanpole.client.sansio import batches
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.faults import (
    ERROR_RESPONSES,
    BadFormatError,
    BatchError,
    BeanstalkdError,
    BuriedError,
    ClosedError,
    DeadlineSoonError,
    DeniedError,
    DrainingError,
    Error,
    ExpectedCrlfError,
    InternalError,
    JobTooBigError,
    MayBeDoneError,
    NoNodeError,
    NotAvailableError,
    NotFoundError,
    NotIgnoredError,
    OutOfMemoryError,
    TimedOutError,
    UnknownCommandError,
    UnknownResponseError,
)
from beanpole.client.sansio.nodes import Address, Addresses, Nodes
from beanpole.client.sansio.session import Session
from beanpole.client.sansio.shapes import (
    DEFAULT_DELAY,
    DEFAULT_PRIORITY,
    DEFAULT_TTR,
    DEFAULT_TUBE,
    Job,
    JobOrID,
    Stats,
    StatsJob,
    StatsTube,
    TBody,
)
from beanpole.client.sansio.steps import Steps, skip

__all__ = [
    "DEFAULT_DELAY",
    "DEFAULT_PRIORITY",
    "DEFAULT_TTR",
    "DEFAULT_TUBE",
    "ERROR_RESPONSES",
    "Address",
    "Addresses",
    "BadFormatError",
    "BatchError",
    "BeanstalkdError",
    "BuriedError",
    "Client",
    "ClosedError",
    "DeadlineSoonError",
    "DeniedError",
    "DrainingError",
    "Error",
    "ExpectedCrlfError",
    "InternalError",
    "Job",
    "JobOrID",
    "JobTooBigError",
    "MayBeDoneError",
    "NoNodeError",
    "NotAvailableError",
    "NotFoundError",
    "NotIgnoredError",
    "OutOfMemoryError",
    "Stats",
    "StatsJob",
    "StatsTube",
    "TBody",
    "TimedOutError",
    "UnknownCommandError",
    "UnknownResponseError",
]

_Result = TypeVar("_Result")


class Client(Generic[TBody]):
    """A client connected to one of several nodes. docs/clients.md has the rules of repetition."""

    @overload
    def __init__(
        self: "Client[bytes]",
        address: Addresses,
        encoding: None,
        use: str = ...,
        watch: str | Iterable[str] = ...,
        *,
        spread: bool = ...,
        patience_s: float = ...,
        reply_timeout_s: float = ...,
        connect_timeout_s: float = ...,
        keep: int = ...,
        tls: ssl.SSLContext | None = ...,
        token: str = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: "Client[str]",
        address: Addresses,
        encoding: str = ...,
        use: str = ...,
        watch: str | Iterable[str] = ...,
        *,
        spread: bool = ...,
        patience_s: float = ...,
        reply_timeout_s: float = ...,
        connect_timeout_s: float = ...,
        keep: int = ...,
        tls: ssl.SSLContext | None = ...,
        token: str = ...,
    ) -> None: ...

    def __init__(
        self,
        address: Addresses,
        encoding: str | None = "utf-8",
        use: str = DEFAULT_TUBE,
        watch: str | Iterable[str] = DEFAULT_TUBE,
        *,
        spread: bool = True,
        patience_s: float = PATIENCE_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        keep: int = 0,
        tls: ssl.SSLContext | None = None,
        token: str = "",
    ) -> None:
        """Connect to one of the nodes.

        Args:
            address: (host, port), "host:port,...", the path of a UNIX socket, or a list of these.
                A host name may resolve to several addresses.
            encoding: the encoding of job bodies; None for bytes.
            use: the tube for puts.
            watch: the tubes for reserves.
            spread: try the nodes in a random order of this client; if False, in the given order.
            patience_s: how long to look for a node that answers before giving up.
            reply_timeout_s: how long to wait for a reply, in addition to the time that a reserve
                may wait at the node.
            connect_timeout_s: how long a node may take to accept a connection.
            keep: how many seconds the cluster keeps the reservations of this client after its
                connection or its node is lost, from 0 (not at all) to 300. Ignored by servers
                without this extension.
            tls: the TLS context, with the CA to trust; None for plain TCP.
            token: the token of the user as whom the client acts, sent on each connection; empty
                for no user.

        Raises:
            NoNodeError: no node answers; it is a ConnectionError.
            DeniedError: no user has the token, or the user lacks the right to a tube.
            ValueError: there is no address, or no tube to watch, or `keep` is not from 0 to 300.
        """
        self.encoding = encoding
        self._wire = Wire(tls)
        self._session = Session(
            Nodes(address, spread),
            time.monotonic,
            patience_s=patience_s,
            reply_timeout_s=reply_timeout_s,
            connect_timeout_s=connect_timeout_s,
            keep_s=keep,
            token=token.encode(),
        )
        self._commands: Commands[TBody] = Commands(self._session, encoding, time.monotonic)
        watched = [watch] if isinstance(watch, str) else list(watch)
        self._commands.set_tubes(use, watched)
        self._run(self._commands.connect())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._session.at or 'not connected'})"

    def close(self) -> None:
        """Close the connection; reserved jobs return to their queues.

        Later commands raise ClosedError. In a fork of the process that connected, only the
        descriptor is closed: the connection and its jobs are the other process's.
        """
        if self._wire.is_inherited:
            skip(self._session.quit())
            self._wire.close()
        else:
            self._run(self._session.quit())

    @property
    def node(self) -> str:
        """The address of the connected node; empty if the client is not connected."""
        return str(self._session.at or "")

    @property
    def is_kept(self) -> bool:
        """Whether reservations outlive this connection: see `keep`."""
        return self._session.is_kept

    @property
    def held(self) -> Sequence[int]:
        """The ids of the jobs reserved by this client; TTRs that expire are not noticed."""
        return tuple(self._session.held)

    def on_lost(self, tell: Callable[[Sequence[int]], None]) -> None:
        """Set the callback for the ids of jobs whose reservations end with a connection.

        It runs within the command that notices the loss, and its exceptions are those of that
        command.
        """
        self._session.lost = tell

    def put(
        self,
        body: TBody,
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
        ttr: int = DEFAULT_TTR,
        *,
        key: str | None = None,
    ) -> int:
        """Put a job into the used tube and return its id. Delay and TTR are in seconds.

        Args:
            body: the body of the job.
            priority: 0 is the most urgent.
            delay: how long to wait before the job is ready.
            ttr: how long a worker may hold the job before it is ready again.
            key: an idempotency key of 1 to 64 printable characters: of all puts with one key, in
                any tube, the first makes a job and the others return its id. The client repeats
                such a put when a reply is lost.

        Raises:
            MayBeDoneError: the outcome is unknown: the reply was lost, and for a put with a key the
                repetition had no answer or was refused. A second put without a key may make a
                second job.
            DrainingError: no node accepts puts now.
            NotAvailableError: the put has a key, and the server does not support keys.
        """
        return self._run(self._commands.put(body, priority, delay, ttr, key))

    def use(self, tube: str) -> None:
        """Use this tube for puts from now on, also on later connections."""
        self._run(self._commands.use(tube))

    def reserve(self, timeout: int | None = None) -> Job[TBody]:
        """Wait for a job of the watched tubes, for `timeout` seconds or without limit.

        Raises:
            TimedOutError: no job was ready in time.
            DeadlineSoonError: the TTR of a job reserved by this client ends within a second.
        """
        return self._run(self._commands.reserve(timeout))

    def reserve_job(self, id: int) -> Job[TBody]:
        """Reserve one job by its id, in any tube and state, unless it is reserved.

        Raises:
            NotFoundError: there is no such job, or it is reserved.
            MayBeDoneError: the connection ended, and the second attempt did not find the job. The
                first may have reserved it; the cluster then releases it when it notices the loss.
        """
        return self._run(self._commands.reserve_job(id))

    def delete(self, job: JobOrID[TBody], *, wait_s: float | None = None) -> None:
        """Delete a job that no other client has reserved; for `wait_s` see `touch`."""
        self._run(self._commands.delete(job, wait_s))

    def release(
        self,
        job: JobOrID[TBody],
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
        *,
        wait_s: float | None = None,
    ) -> None:
        """Release a job reserved by this client; it is ready again after `delay` seconds.

        For `wait_s` see `touch`.
        """
        self._run(self._commands.release(job, priority, delay, wait_s))

    def bury(
        self,
        job: JobOrID[TBody],
        priority: int = DEFAULT_PRIORITY,
        *,
        wait_s: float | None = None,
    ) -> None:
        """Bury a job reserved by this client: it is not given out until it is kicked.

        For `wait_s` see `touch`.
        """
        self._run(self._commands.bury(job, priority, wait_s))

    def touch(self, job: JobOrID[TBody], *, wait_s: float | None = None) -> None:
        """Restart the TTR of a job reserved by this client.

        Args:
            job: the job, or its id.
            wait_s: how long to wait for the first node's connection or reply, above 0. It doubles
                with each next node; the time-outs of the client remain the upper limit.
        """
        self._run(self._commands.touch(job, wait_s))

    def limit_waits(self, wait_s: float) -> None:
        """Wait no longer than this for a connection or a reply of each node from now on.

        For a program that is to end. Any thread may call it; a wait that has begun goes on.

        Raises:
            ValueError: `wait_s` is not above 0.
        """
        self._session.waits.limit(wait_s)

    def holds(self, job: JobOrID[TBody]) -> bool:
        """Whether this client has a job reserved, after a `MayBeDoneError` at its end.

        A client whose session is kept resumes it, and the cluster tells. If so, the end may be
        repeated. If not, the job has been ended, or was lost.

        Raises:
            NoNodeError: no node answers.
        """
        return self._run(self._commands.holds(job))

    def watch(self, tube: str) -> int:
        """Add this tube to the watch list; return the number of watched tubes."""
        return self._run(self._commands.watch(tube))

    def ignore(self, tube: str) -> int:
        """Remove this tube from the watch list; return the number of watched tubes."""
        return self._run(self._commands.ignore(tube))

    def peek(self, id: int) -> Job[TBody]:
        """Return a job by its id, without reserving it."""
        return self._run(self._commands.peek(id))

    def peek_ready(self) -> Job[TBody]:
        """Return the used tube's next ready job, without reserving it."""
        return self._run(self._commands.peek_next("ready"))

    def peek_delayed(self) -> Job[TBody]:
        """Return the used tube's next delayed job, without reserving it."""
        return self._run(self._commands.peek_next("delayed"))

    def peek_buried(self) -> Job[TBody]:
        """Return the used tube's next buried job, without reserving it."""
        return self._run(self._commands.peek_next("buried"))

    def kick(self, bound: int) -> int:
        """Make up to `bound` jobs of the used tube ready: buried ones, or else delayed ones.

        Returns:
            The number of jobs that became ready.

        Raises:
            MayBeDoneError: the reply was lost; a second kick may kick other jobs.
        """
        return self._run(self._commands.kick(bound))

    def kick_job(self, job: JobOrID[TBody]) -> None:
        """Make one buried or delayed job ready.

        If the reply is lost, the command is repeated. It kicks the job once more if the job was
        buried again in between.

        Raises:
            MayBeDoneError: the reply was lost, and the repetition found no such job or was refused.
        """
        self._run(self._commands.kick_job(job))

    def stats_job(self, job: JobOrID[TBody]) -> StatsJob:
        """Return the statistics of a job."""
        return self._run(self._commands.stats_job(job))

    def stats_tube(self, tube: str) -> StatsTube:
        """Return the statistics of a tube."""
        return self._run(self._commands.stats_tube(tube))

    def stats(self) -> Stats:
        """Return the statistics of the node and its cluster."""
        return self._run(self._commands.stats())

    def tubes(self) -> list[str]:
        """Return the names of all tubes."""
        return self._run(self._commands.tubes())

    def using(self) -> str:
        """Return the tube for puts."""
        return self._run(self._commands.using())

    def watching(self) -> list[str]:
        """Return the tubes for reserves."""
        return self._run(self._commands.watching())

    def pause_tube(self, tube: str, delay: int) -> None:
        """Stop reserves from a tube for `delay` seconds."""
        self._run(self._commands.pause_tube(tube, delay))

    def put_many(
        self,
        bodies: Iterable[TBody],
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
        ttr: int = DEFAULT_TTR,
    ) -> list[int]:
        """Put jobs into the used tube together and return their ids, in order.

        Raises:
            BatchError: some jobs were not put, or it is unknown whether they were; it has the
                result of each.
        """
        return self._run(batches.put_many(self._commands, bodies, priority, delay, ttr))

    def reserve_many(self, count: int, timeout: int | None = None) -> list[Job[TBody]]:
        """Wait for a job as `reserve` does, and reserve up to `count` jobs that are ready then.

        Raises:
            TimedOutError: no job was ready in time.
            BatchError: a body is not in the client's encoding; `results` has the other jobs, and
                `held` the ids of all.
            ValueError: `count` is not from 1 to 1000.
        """
        return self._run(batches.reserve_many(self._commands, count, timeout))

    def delete_many(self, jobs: Sequence[JobOrID[TBody]]) -> list[bool]:
        """Delete jobs together; return for each whether it existed and could be deleted.

        Raises:
            BatchError: the outcome of some jobs is unknown; it has the result of each.
        """
        return self._run(batches.delete_many(self._commands, jobs))

    def _run(self, steps: Steps[_Result]) -> _Result:
        return self._wire.run(steps)
