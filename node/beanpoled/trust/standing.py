"""The TLS connections that stand, and the end of those whose certificate is revoked meanwhile.

A handshake is checked by OpenSSL; a connection that was made before its certificate came onto the
list would go on for as long as its other side likes. No socket is opened here.
"""

import asyncio
from functools import partial
from typing import Final, Protocol

from beanpoled.trust.apart import apart
from beanpoled.trust.revocations import Identity, identity, read

# Connections that are looked at in one step of the loop, for a millisecond or so.
SLICE: Final = 200


class Connection(Protocol):
    """A connection whose other side has shown a certificate."""

    def end(self) -> None:
        """Close the connection now."""


class _UnreadableList(Exception):
    """A list of revoked certificates was not read; its words name the file and the reason."""


class Standing:
    """The connections that one list of revoked certificates is for."""

    def __init__(self, path: str) -> None:
        """Begin without connections; `path`: of the list, which need not be there yet."""
        self._path = path
        self._connections: dict[Connection, Identity] = {}
        # Empty until the file has been replaced: handshakes before were checked by it.
        self._revoked: frozenset[Identity] = frozenset()
        self._applied = 0  # the generation of the files whose list was applied
        self._is_applying = False
        self._told: tuple[int, str] | None = None  # the generation and why its list was not read

    def add(self, connection: Connection, certificate: bytes | None) -> None:
        """Register a connection; one whose handshake began with an older list may end at once.

        Args:
            connection: of this node.
            certificate: of the other side, in DER; None if it has shown none. It is asked for now,
                because OpenSSL does not tell it of a connection that has failed.
        """
        if certificate is None:
            return
        try:
            shown = identity(certificate)
        except (ValueError, IndexError):  # OpenSSL reads more than this program
            return
        self._connections[connection] = shown
        if shown in self._revoked:
            connection.end()

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended."""
        self._connections.pop(connection, None)

    async def apply(self, generation: int) -> str | None:
        """Read the list and end the connections that it revokes, if that was not done yet.

        A list that cannot be read is tried again by each call, and told once for its content.

        Args:
            generation: of the files that OpenSSL uses; 0 before any of them was replaced.

        Returns:
            A line to log, if something has happened.
        """
        if generation == self._applied or self._is_applying:  # long lists outlast a call's pause
            return None
        self._is_applying = True
        try:
            count = await self._end_revoked()
        except _UnreadableList as error:
            told = (generation, str(error))
            if told == self._told:
                return None
            self._told = told
            return (
                "the list of revoked certificates cannot be read for the connections that stand, "
                f"which go on: {error}"
            )
        finally:
            self._is_applying = False
        self._applied = generation
        words = "connection" if count == 1 else "connections"
        return f"ended {count} {words} with a certificate that is revoked now" if count else None

    async def _end_revoked(self) -> int:
        """Read the list, end the connections that it revokes, and return how many there were.

        Raises:
            _UnreadableList: no connection has ended. OpenSSL has read the file: it changes just
                now, or OpenSSL understands more of it than this program.
        """
        try:
            # A list of many thousand entries takes long, and a volume may not answer at all.
            self._revoked = await apart("revoked", partial(read, self._path))
        except OSError as error:
            raise _UnreadableList(f"{self._path!r}: {error.strerror}") from error
        except (ValueError, IndexError) as error:
            words = f"not understood ({type(error).__name__}: {error})"
            raise _UnreadableList(f"{self._path!r}: {words}") from error
        count = 0
        for place, (connection, shown) in enumerate(list(self._connections.items()), 1):
            if shown in self._revoked:
                connection.end()
                count += 1
            if not place % SLICE:
                await asyncio.sleep(0)
        return count
