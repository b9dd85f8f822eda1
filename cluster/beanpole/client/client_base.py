"""What the clients of beanstalk have in common, whichever way they wait for a node.

The commands are in `aio_commands`, and in `blocking_commands`, which is made from it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic

from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.session import Session
from beanpole.client.sansio.shapes import TBody


class ClientBase(Generic[TBody]):
    """The session of a client, and what needs no answer of a node."""

    def __init__(
        self, session: Session, encoding: str | None, use: str, watch: str | Iterable[str]
    ) -> None:
        """Begin with a session that is not connected. `Client` explains the others.

        Raises:
            ValueError: there is no tube to watch.
        """
        self.encoding = encoding
        self._session = session
        self._commands: Commands[TBody] = Commands(session, encoding, time.monotonic)
        self._commands.set_tubes(use, [watch] if isinstance(watch, str) else list(watch))

    def __repr__(self) -> str:
        return f"Client({self._session.at or 'not connected'})"

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

    def limit_waits(self, wait_s: float) -> None:
        """Wait no longer than this for a connection or a reply of each node from now on.

        For a program that is to end. Any thread may call it; a wait that has begun goes on.

        Raises:
            ValueError: `wait_s` is not above 0.
        """
        self._session.waits.limit(wait_s)
