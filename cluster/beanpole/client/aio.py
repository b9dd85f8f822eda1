"""An asyncio beanstalk client with the API of aiostalk: changing the import is enough.

    from beanpole.client import aio as aiostalk

The client knows several nodes, fails over when its node is lost, and also works with plain
beanstalkd. The commands of a client run one after the other: a task that waits in `reserve` needs a
client of its own. The connections are in `aio_wire`, the protocol logic is in `sansio`;
docs/clients.md is the guide for users.
"""

import ssl
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self, overload

from beanpole.client.aio_commands import AioCommands
from beanpole.client.aio_wire import Wire
from beanpole.client.patience import CONNECT_TIMEOUT_S, PATIENCE_S, REPLY_TIMEOUT_S
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
from beanpole.client.sansio.steps import skip

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


class Client(AioCommands[TBody]):
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
        """Store the addresses; `connect`, or the first command, connects to a node.

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
            ValueError: there is no address, or no tube to watch, or `keep` is not from 0 to 300.
        """
        super().__init__(
            Session(
                Nodes(address, spread),
                time.monotonic,
                patience_s=patience_s,
                reply_timeout_s=reply_timeout_s,
                connect_timeout_s=connect_timeout_s,
                keep_s=keep,
                token=token.encode(),
            ),
            encoding,
            use,
            watch,
        )
        self._wire = Wire(tls)

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

    async def close(self) -> None:
        """Close the connection; reserved jobs return to their queues.

        A command in progress fails, and later ones raise ClosedError until `connect`. After a
        command in progress a kept session ends only when its time `keep` is over. In a fork of the
        process that connected, only the descriptor is closed: the connection and its jobs are the
        other process's.
        """
        if self._wire.is_inherited:
            skip(self._session.quit())
            self._wire.close()
        elif self._wire.is_busy:
            self._session.shut()
            self._wire.close()
        else:
            await self._run(self._session.quit())

    async def connect(self) -> None:
        """Connect to one of the nodes, also after `close`.

        Raises:
            NoNodeError: no node answers; it is a ConnectionError.
            DeniedError: no user has the token, or the user lacks the right to a tube.
        """
        await self._run(self._commands.connect())
