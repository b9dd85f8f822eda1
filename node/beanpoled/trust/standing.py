"""The TLS connections that stand, and the end of those whose certificate is revoked meanwhile.

A handshake is checked by OpenSSL; a connection that was made before its certificate came onto the
list would go on for as long as its other side likes. No socket is opened here.
"""

import asyncio
from typing import Final, Protocol

from beanpoled.trust.revocations import Identity, identity, read

# Connections that are looked at in one step of the loop, for a millisecond or so.
SLICE: Final = 200


class Connection(Protocol):
    """A connection whose other side has shown a certificate."""

    def end(self) -> None:
        """Close the connection now."""


class UnreadableList(Exception):
    """A list of revoked certificates was not read; its words name the file and the reason."""


class Standing:
    """The connections that one list of revoked certificates is for."""

    def __init__(self, path: str) -> None:
        """Begin without connections; `path`: of the list, which need not be there yet."""
        self._path = path
        self._connections: dict[Connection, Identity] = {}
        # Empty until the file has been replaced: handshakes before were checked by it.
        self._revoked: frozenset[Identity] = frozenset()

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

    async def end_revoked(self) -> int:
        """Read the list, and end the connections that it revokes.

        Returns:
            How many there were.

        Raises:
            UnreadableList: no connection has ended. OpenSSL has read the file: it changes just now,
                or OpenSSL understands more of it than this program.
        """
        try:
            # A list of many thousand entries takes long.
            self._revoked = await asyncio.to_thread(read, self._path)
        except OSError as error:
            raise UnreadableList(f"{self._path!r}: {error.strerror}") from error
        except (ValueError, IndexError) as error:
            words = f"not understood ({type(error).__name__}: {error})"
            raise UnreadableList(f"{self._path!r}: {words}") from error
        count = 0
        for place, (connection, shown) in enumerate(list(self._connections.items()), 1):
            if shown in self._revoked:
                connection.end()
                count += 1
            if not place % SLICE:
                await asyncio.sleep(0)
        return count
