"""The way from an origin to the leader, whichever node that is.

Here is only what an origin asks for; `turn.routing` has it.
"""

from abc import abstractmethod


class LeaderLink:
    """The way of an origin to the leader, which is above it."""

    @abstractmethod
    def target(self) -> tuple[str, int, int] | None:
        """Where batches go: (leader, term, generation of the link); None if they cannot."""

    @abstractmethod
    def send(self, kind: int, frame: bytes) -> bool:
        """Send a frame to the leader; False if it was not taken, and everything must come again."""

    @abstractmethod
    def wake(self) -> None:
        """Ask for a turn because there is something for an entry, unless one comes by itself."""
