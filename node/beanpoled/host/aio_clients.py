"""Clients' connections on asyncio: TCP and UNIX sockets under `connection`."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Final, cast

from beanpole.addresses import TLS_PREFIX, UNIX, UNIX_PREFIX, host_name
from beanpole.client.dialing import keep_alive
from beanpole.errors import ConfigurationError
from beanpoled.config.node import NodeConfig
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.frontend import Frontend, Frontends
from beanpoled.host.seam import WARNING, Log
from beanpoled.host.sockets import BACKLOG, Failed, bind
from beanpoled.host.tasks import watched
from beanpoled.host.tls import TlsAcceptor
from beanpoled.trust.certificates import names_in, shown_name
from beanpoled.trust.trust import Trust

# A vanished client is detected by the probes of `keep_alive` in silence, or when its output is not
# acknowledged for this long.
USER_TIMEOUT_MS: Final = 120_000
# While a node is cut off its ports are closed, and another program may get one, as the local port
# of a connection of its own. Most of these end within some seconds, and the cluster has one member
# less if the node ends. A program that keeps the port for longer is probably a server, which only
# an operator can move.
REOPEN_PERIOD_S: Final = 1.0
REOPEN_TRIES_MAX: Final = 30


class ClientProtocol:
    """One client's socket; it is the connection's `ClientPort`.

    An `asyncio.Protocol` in all but name: a compiled class cannot inherit from it.
    """

    def __init__(self, frontend: Frontend, is_tls: bool = False) -> None:
        """Begin; `is_tls`: whether the client uses TLS."""
        self._frontend = frontend
        self._is_tls = is_tls
        self._is_behind = False  # whether the client has not read all of its output
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self.client_host = b""
        self.client_names: tuple[bytes, ...] = ()
        self.certificate = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        _keep_alive(self._transport)
        self.client_host = _host_of(self._transport)
        if self._is_tls:
            # None if the client was not required to show one.
            certificate = self._transport.get_extra_info("peercert") or {}
            names = names_in(certificate)
            self.client_names = tuple(sorted(name.encode(errors="replace") for name in names))
            self.certificate = shown_name(certificate)
        self._connection = self._frontend.connected(self)
        if self._connection is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            try:
                self._connection.received(data)
            except OSError as failure:
                raise Failed(str(failure)) from failure

    def eof_received(self) -> bool:
        if self._connection is not None:
            self._connection.half_closed()
        # Earlier requests are still answered; the connection closes itself.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._caught_up()
        if self._connection is not None:
            self._connection.lost()
            self._connection = None  # it holds this protocol as its port: breaks a reference cycle

    def pause_writing(self) -> None:
        # The socket has not taken all of a write: `write` counts what is left.
        self._is_behind = True

    def resume_writing(self) -> None:
        assert self._transport is not None
        if not self.unsent_bytes:
            self._caught_up()
        self._transport.set_write_buffer_limits(high=0)
        if self._connection is not None:
            self._connection.unstall()

    def _caught_up(self) -> None:
        self._is_behind = False
        self._frontend.clients.unread.forget(self)

    def write(self, data: bytes) -> None:
        """See `ClientPort`."""
        assert self._transport is not None
        if self._transport.is_closing():
            return
        before = self.unsent_bytes if self._is_behind else 0
        self._transport.write(data)
        if self._is_behind:
            self._note_behind(len(data), before)

    def _note_behind(self, size: int, before: int) -> None:
        """Count a write that was not sent at once.

        Args:
            size: what was written.
            before: `unsent_bytes` before the write.
        """
        transport, connection = self._transport, self._connection
        if transport is None or connection is None:
            return
        clients = self._frontend.clients
        clients.unread.wrote(connection, self, size, before)
        if self.unsent_bytes > clients.client_output_bytes_max:
            # It goes on when it has read most of this, and not only when it has read all.
            transport.set_write_buffer_limits(high=clients.client_output_bytes_max)
            connection.stall()

    @property
    def unsent_bytes(self) -> int:
        """See `ClientPort`."""
        assert self._transport is not None
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        """See `ClientPort`."""
        assert self._transport is not None
        if self._is_behind:
            self._frontend.clients.unread.ended(self)
        self._transport.close()

    def abort(self) -> None:
        """See `ClientPort`."""
        assert self._transport is not None
        self._caught_up()
        self._transport.abort()

    def pause_reading(self) -> None:
        """See `ClientPort`."""
        assert self._transport is not None
        if self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See `ClientPort`."""
        assert self._transport is not None
        if not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()


def _host_of(transport: asyncio.Transport) -> bytes:
    """The client's host, by its address; its name is not looked up."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family == socket.AF_UNIX:
        return host_name(UNIX)
    peer = transport.get_extra_info("peername")  # None if the client has gone already
    return host_name(peer[0]) if peer else b""


def _keep_alive(transport: asyncio.Transport) -> None:
    raw = transport.get_extra_info("socket")
    if raw is None or raw.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):  # the client may be gone already
        keep_alive(raw)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


class ClientServer:
    """The sockets for clients, of all protocols.

    Attributes:
        frontends: the protocols.
        reopen_period_s: between two tries to open a port again, for a test that does not wait.
    """

    def __init__(
        self,
        config: NodeConfig,
        loop: asyncio.AbstractEventLoop,
        log: Log,
        fatal: Callable[[str], None],
        trust: Trust,
    ) -> None:
        self._trust = trust
        self.frontends: Frontends
        self._config = config
        self._loop = loop
        self._log = log
        self._fatal = fatal
        self.reopen_period_s = REOPEN_PERIOD_S
        self._open: dict[str, _Acceptor] = {}  # by protocol
        self._were_open: set[str] = set()  # protocols that this node has accepted clients of
        self._retries: dict[str, asyncio.TimerHandle] = {}  # the next try to open again

    def check_paths(self) -> None:
        """Bind and release each UNIX socket once, so that one in use is reported at the start.

        Raises:
            OSError: another server is there, or the system refuses the path.
            ConfigurationError: another kind of file is there.
        """
        for addresses in self._config.client_addresses.values():
            for address in addresses:
                if address.startswith(UNIX_PREFIX):
                    bind(address).close()
                    os.unlink(address.removeprefix(UNIX_PREFIX))

    def open(self, protocol: str) -> None:
        """Accept clients of a protocol.

        A configured address that is taken stops the node. A default address does not: a newer
        program adds protocols for which the machine may run another server. Addresses at which the
        node has listened before are tried for half a minute.
        """
        if protocol not in self._open and protocol not in self._retries:
            self._try(protocol, REOPEN_TRIES_MAX if protocol in self._were_open else 0)

    def _try(self, protocol: str, tries_left: int) -> None:
        """Open the addresses of a protocol, or try again later."""
        is_retry = self._retries.pop(protocol, None) is not None
        addresses = self._config.client_addresses.get(protocol, ())
        try:
            with contextlib.ExitStack() as stack:  # all of them or none
                sockets = [stack.enter_context(bind(item, listen=True)) for item in addresses]
                stack.pop_all()
        except (OSError, ConfigurationError) as error:
            if tries_left:
                self._try_later(protocol, tries_left, None if is_retry else error)
            else:
                self._give_up(protocol, error)
            return
        acceptor = _Acceptor(self._loop, self.frontends[protocol], addresses, sockets, self._trust)
        self._open[protocol] = acceptor
        self._were_open.add(protocol)
        if is_retry:
            self._log(f"listening for clients of {protocol} again")

    def _try_later(self, protocol: str, tries_left: int, error: Exception | None) -> None:
        """Try again in a second; `error`: of the first try, which is logged."""
        if error is not None:
            self._log(
                f"cannot listen again for clients of {protocol} yet: {error}; trying each "
                f"second, {tries_left} times at most",
                WARNING,
            )
        self._retries[protocol] = self._loop.call_later(
            self.reopen_period_s, self._try, protocol, tries_left - 1
        )

    def _give_up(self, protocol: str, error: Exception) -> None:
        if protocol not in self._config.unconfigured:
            self._fatal(f"cannot listen for clients of {protocol}: {error}")
            return
        self._log(
            f"no clients of {protocol} can come: {error}; this address is the "
            f"default, give another one in the setting listeners",
            WARNING,
        )

    def close(self) -> None:
        """Accept no more clients; existing connections stay open."""
        for acceptor in self._open.values():
            acceptor.close()
        self._open.clear()
        for timer in self._retries.values():
            timer.cancel()
        self._retries.clear()


class _Acceptor:
    """The listening sockets of one protocol."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        frontend: Frontend,
        addresses: tuple[str, ...],
        sockets: list[socket.socket],
        trust: Trust,
    ) -> None:
        self._trust = trust
        self._loop = loop
        self._frontend = frontend
        self._addresses = addresses
        self._sockets = sockets
        self._servers: list[asyncio.AbstractServer | TlsAcceptor] = []
        self._is_open = True
        self._opening = watched(loop, self._serve())  # the loop keeps a weak reference only

    async def _serve(self) -> None:
        if not self._is_open:  # closed in the step of the loop that has opened it
            return
        for address, raw in zip(self._addresses, list(self._sockets), strict=True):
            server: asyncio.AbstractServer | TlsAcceptor
            if address.startswith(TLS_PREFIX):
                server = self._tls_acceptor(raw)
            elif raw.family == socket.AF_UNIX:
                server = await self._loop.create_unix_server(
                    self._protocol, sock=raw, backlog=BACKLOG
                )
            else:
                server = await self._loop.create_server(self._protocol, sock=raw, backlog=BACKLOG)
            if not self._is_open:
                server.close()
                return
            self._servers.append(server)

    def _protocol(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, ClientProtocol(self._frontend))

    def _tls_acceptor(self, raw: socket.socket) -> TlsAcceptor:
        certificates = self._trust.of_clients
        assert certificates is not None, "the configuration was checked"
        whom = f"a client of {self._frontend.name}"
        handshakes = self._trust.handshakes
        room = handshakes.of_clients
        return TlsAcceptor(
            self._loop, raw, certificates, handshakes, room, self._tls_protocol, whom
        )

    def _tls_protocol(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, ClientProtocol(self._frontend, is_tls=True))

    def close(self) -> None:
        """Accept no more clients."""
        self._is_open = False
        for server in self._servers:
            server.close()
        self._servers.clear()
        for raw in self._sockets:
            raw.close()
        self._sockets.clear()
        for address in self._addresses:
            if address.startswith(UNIX_PREFIX):
                # A path that cannot be removed must not end a node that stops or waits for others:
                # the next `bind` removes it, or says what is there.
                with contextlib.suppress(OSError):
                    os.unlink(address.removeprefix(UNIX_PREFIX))
