"""Dials of members: name, address and TLS; the pauses between dials; words for what failed.

`aio_peers` decides when a member is dialed.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from beanpoled.host.tls_stream import TlsStream
from beanpoled.trust.certificates import Certificates
from beanpoled.trust.handshakes import WORDS, reason_of
from beanpoled.trust.trust import Trust

# A peer that does not answer or refuses is retried soon at first, then less often.
DIAL_PAUSE_S: Final = 0.05
DIAL_PAUSE_MAX_S: Final = 0.5
# Why a member that does not answer cannot be reached.
SILENT: Final = "timed out"


class DialPauses:
    """The pauses before a peer is dialed again: an exponential backoff."""

    def __init__(self) -> None:
        self._pause_s = DIAL_PAUSE_S

    def after(self, lasted_s: float) -> float:
        """Return the pause after an attempt that lasted this long, including its connection."""
        lasted = lasted_s > DIAL_PAUSE_MAX_S
        self._pause_s = DIAL_PAUSE_S if lasted else min(2 * self._pause_s, DIAL_PAUSE_MAX_S)
        return self._pause_s


class Dialer:
    """Connects to members, each by the present addresses of its name."""

    def __init__(self, loop: asyncio.AbstractEventLoop, trust: Trust) -> None:
        self._loop = loop
        self._trust = trust
        self._lookups: dict[str, asyncio.Task[list[str] | OSError]] = {}  # by member

    def stop(self) -> None:
        """Cancel the look-ups that are running."""
        for lookup in self._lookups.values():
            lookup.cancel()

    async def connect(
        self,
        factory: Callable[[], asyncio.Protocol],
        peer: str,
        host: str,
        port: int,
    ) -> None:
        """Connect to the first address that answers.

        With TLS, the certificate must belong to this very member, whatever its address.

        Args:
            factory: makes the protocol of the connection.
            peer: the member's id.
            host: its name or address.
            port: its port for nodes.

        Raises:
            OSError: the name is not found, or no address answers.
        """
        addresses = await self._find(peer, host, port)
        certificates = self._trust.of_peers
        failure = OSError("has no address")
        for address in addresses:
            try:
                if certificates is None:
                    await self._loop.create_connection(factory, address, port)
                else:
                    await self._connect_tls(certificates, factory, peer, address, port)
                return
            except OSError as error:
                failure = error
        raise failure

    async def _connect_tls(
        self,
        certificates: Certificates,
        factory: Callable[[], asyncio.Protocol],
        peer: str,
        address: str,
        port: int,
    ) -> None:
        stream = TlsStream(
            self._loop, certificates.client, factory, peer, standing=certificates.standing
        )
        below = partial(cast, asyncio.Protocol, stream)
        try:
            await self._loop.create_connection(below, address, port)
            await stream.established
        finally:
            stream.give_up()
            del stream, below  # the error refers to this frame, and the stream to the error

    async def _find(self, peer: str, host: str, port: int) -> Sequence[str]:
        """Return the present addresses of a member's name; raise OSError if it is not found.

        The system's look-up cannot be interrupted, takes longer than a dial may if no name server
        answers, and occupies one of a few threads. So no second look-up begins while one is
        running, and its error is consumed even if the dial that began it is over: an unconsumed
        error would end the node.
        """
        lookup = self._lookups.get(peer)
        if lookup is None or lookup.done():
            lookup = self._loop.create_task(self._look_up(host, port))
            self._lookups[peer] = lookup
        await asyncio.wait([lookup])
        found = lookup.result()
        if isinstance(found, OSError):
            # A copy: one that is raised refers to this frame, and the frame to the look-up with it.
            raise type(found)(*found.args)
        return found

    async def _look_up(self, host: str, port: int) -> list[str] | OSError:
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            return error.with_traceback(None)
        return [str(entry[4][0]) for entry in found]


def why(error: OSError) -> str:
    """Describe briefly why a member could not be dialed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"shows a certificate that is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"refuses TLS: {WORDS[reason_of(error)]}"
    if isinstance(error, TimeoutError):
        return SILENT
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.gaierror):
        return f"is not found: {error.strerror}"
    return os.strerror(error.errno) if error.errno else str(error)
