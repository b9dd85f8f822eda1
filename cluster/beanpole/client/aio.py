"""An asyncio beanstalk client with the names of aiostalk: changing the import is enough.

    from beanpole.client import aio as aiostalk

It knows several nodes, goes to another when its own is gone, and works with plain beanstalkd. The
commands of one client follow each other: a task that waits in `reserve` has a client of its own.
Its connections are in `aio_wire`, what it says is in `sansio`. docs/clients.md.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar, overload

from beanpole.client.aio_wire import Wire
from beanpole.client.sansio import batches
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.faults import (
    ERROR_RESPONSES,
    BadFormatError,
    BatchError,
    BeanstalkdError,
    BuriedError,
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
from beanpole.client.sansio.session import (
    CONNECT_TIMEOUT_S,
    PATIENCE_S,
    REPLY_TIMEOUT_S,
    Session,
)
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
from beanpole.client.sansio.steps import Steps
from beanpole.protocol.beanstalk.requests import KEEP_MAX_S

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
    """A client of any one of several nodes. See docs/clients.md for what is repeated and when."""

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
        """Remember where the nodes are; `connect`, or the first command, connects to one.

        Args:
            address: (host, port), "host:port,...", the path of a UNIX socket, or a list of these;
                a name may have several addresses.
            encoding: of bodies; None for bytes.
            use: the tube for puts.
            watch: the tubes for reserves.
            spread: each client prefers a node of its own; otherwise the first that is given.
            patience_s: how long to look for a node that answers before giving up.
            reply_timeout_s: how long a node may be silent, beside the time that a reserve waits.
            connect_timeout_s: how long a node may take to accept a connection.
            keep: for how many seconds reservations wait for this client after its connection, or
                its node, was lost: up to 300; 0: not at all. Of effect where the nodes have it.
            tls: how to speak TLS, with the CA that is trusted; None: not at all.
            token: of the user as whom the client acts, said on each connection; empty: of nobody.

        Raises:
            ValueError: there is no address, or `keep` is not from 0 to 300.
        """
        if not 0 <= keep <= KEEP_MAX_S:
            raise ValueError(f"keep must be from 0 to {KEEP_MAX_S} seconds")
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

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Client({self._session.at or 'not connected'})"

    async def close(self) -> None:
        """Close the connection; what is reserved returns to its queue."""
        if self._wire.is_busy:
            self._wire.close()  # what is in progress fails
        else:
            await self._run(self._session.quit())

    async def connect(self) -> None:
        """Connect to one of the nodes.

        Raises:
            NoNodeError: none answers; it is a ConnectionError.
        """
        await self._run(self._commands.connect())

    @property
    def node(self) -> str:
        """The address of the node that is connected; empty if none is."""
        return str(self._session.at or "")

    @property
    def is_kept(self) -> bool:
        """Whether reservations outlive this connection: see `keep`."""
        return self._session.is_kept

    @property
    def held(self) -> Sequence[int]:
        """The jobs that are reserved here, for all that is known. Their TTRs are not watched."""
        return tuple(self._session.held)

    def on_lost(self, tell: Callable[[Sequence[int]], None]) -> None:
        """Have the ids told of jobs whose reservations end with a connection."""
        self._session.lost = tell

    async def put(
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
            body: what the job is.
            priority: 0 is the most urgent.
            delay: it is ready so much later.
            ttr: how long a worker may have it.
            key: 1 to 64 printable characters: of all puts with this key, in any tube, the first
                makes a job and the others return its id. So it is repeated when a reply is lost.

        Raises:
            MayBeDoneError: the reply was lost; putting it again may make a second job, unless
                it has a key.
            DrainingError: no node takes puts now.
            NotAvailableError: it has a key, and the node is no Beanpole.
        """
        return await self._run(self._commands.put(body, priority, delay, ttr, key))

    async def use(self, tube: str) -> None:
        """Put into this tube from now on, also on later connections."""
        await self._run(self._commands.use(tube))

    async def reserve(self, timeout: int | None = None) -> Job[TBody]:  # noqa: ASYNC109 - its name
        """Wait for a job of the watched tubes, for `timeout` seconds or for ever.

        Raises:
            TimedOutError: none came.
            DeadlineSoonError: the TTR of a job that is held here ends within a second.
        """
        return await self._run(self._commands.reserve(timeout))

    async def reserve_job(self, id: int) -> Job[TBody]:
        """Reserve one job, wherever it is, unless it is reserved.

        Raises:
            MayBeDoneError: the connection ended and the job is not to be had now; that connection
                may have reserved it, and then it comes back when the cluster has noticed.
        """
        return await self._run(self._commands.reserve_job(id))

    async def delete(self, job: JobOrID[TBody]) -> None:
        """Delete a job that is held here or that nobody holds."""
        await self._run(self._commands.delete(job))

    async def release(
        self,
        job: JobOrID[TBody],
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
    ) -> None:
        """Give a job that is held here back, ready again after `delay` seconds."""
        await self._run(self._commands.release(job, priority, delay))

    async def bury(self, job: JobOrID[TBody], priority: int = DEFAULT_PRIORITY) -> None:
        """Put a job that is held here aside, until it is kicked."""
        await self._run(self._commands.bury(job, priority))

    async def touch(self, job: JobOrID[TBody]) -> None:
        """Begin the TTR of a job that is held here anew."""
        await self._run(self._commands.touch(job))

    async def watch(self, tube: str) -> int:
        """Reserve from this tube, too; return how many are watched."""
        return await self._run(self._commands.watch(tube))

    async def ignore(self, tube: str) -> int:
        """Reserve from this tube no longer; return how many are watched."""
        return await self._run(self._commands.ignore(tube))

    async def peek(self, id: int) -> Job[TBody]:
        """Look at a job."""
        return await self._run(self._commands.peek(id))

    async def peek_ready(self) -> Job[TBody]:
        """Look at the used tube's next ready job."""
        return await self._run(self._commands.peek_next("ready"))

    async def peek_delayed(self) -> Job[TBody]:
        """Look at the used tube's next delayed job."""
        return await self._run(self._commands.peek_next("delayed"))

    async def peek_buried(self) -> Job[TBody]:
        """Look at the used tube's next buried job."""
        return await self._run(self._commands.peek_next("buried"))

    async def kick(self, bound: int) -> int:
        """Make up to `bound` jobs of the used tube ready: buried ones, or else delayed ones.

        Raises:
            MayBeDoneError: the reply was lost; a second kick may kick more.
        """
        return await self._run(self._commands.kick(bound))

    async def kick_job(self, job: JobOrID[TBody]) -> None:
        """Make one buried or delayed job ready."""
        await self._run(self._commands.kick_job(job))

    async def stats_job(self, job: JobOrID[TBody]) -> StatsJob:
        """Return the statistics of a job."""
        return await self._run(self._commands.stats_job(job))

    async def stats_tube(self, tube: str) -> StatsTube:
        """Return the statistics of a tube."""
        return await self._run(self._commands.stats_tube(tube))

    async def stats(self) -> Stats:
        """Return the statistics of the node and its cluster."""
        return await self._run(self._commands.stats())

    async def tubes(self) -> list[str]:
        """Return the names of all tubes."""
        return await self._run(self._commands.tubes())

    async def using(self) -> str:
        """Return the tube for puts."""
        return await self._run(self._commands.using())

    async def watching(self) -> list[str]:
        """Return the tubes for reserves."""
        return await self._run(self._commands.watching())

    async def pause_tube(self, tube: str, delay: int) -> None:
        """Give out no job of a tube for `delay` seconds."""
        await self._run(self._commands.pause_tube(tube, delay))

    async def put_many(
        self,
        bodies: Iterable[TBody],
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
        ttr: int = DEFAULT_TTR,
    ) -> list[int]:
        """Put jobs into the used tube together and return their ids, in order.

        Raises:
            BatchError: some are not put, or may be put; it has the result of each.
        """
        return await self._run(batches.put_many(self._commands, bodies, priority, delay, ttr))

    async def reserve_many(
        self,
        count: int,
        timeout: int | None = None,  # noqa: ASYNC109 - as in `reserve`
    ) -> list[Job[TBody]]:
        """Wait for a job as `reserve` does, and take up to `count` in all that are ready then.

        Raises:
            TimedOutError: none came.
            ValueError: `count` is not from 1 to 1000.
        """
        return await self._run(batches.reserve_many(self._commands, count, timeout))

    async def delete_many(self, jobs: Sequence[JobOrID[TBody]]) -> list[bool]:
        """Delete jobs together; for each, whether it was there to be deleted.

        Raises:
            BatchError: of some it is not known; it has the result of each.
        """
        return await self._run(batches.delete_many(self._commands, jobs))

    async def _run(self, steps: Steps[_Result]) -> _Result:
        return await self._wire.run(steps)
