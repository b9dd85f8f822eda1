"""The path from an origin to the leader, whichever node that is.

This is only the interface that an origin needs; `turn.routing` implements it.
"""

from abc import abstractmethod


class LeaderLink:
    """The path from an origin to the leader; a higher layer implements it."""

    @abstractmethod
    def target(self) -> tuple[str, int, int] | None:
        """The target of batches: (leader, term, generation of the link); None if there is none."""

    @abstractmethod
    def send(self, kind: int, frame: bytes) -> bool:
        """Send a frame to the leader; return False if it was rejected and all must be resent."""

    @abstractmethod
    def wake(self) -> None:
        """Ask for a turn because an entry has something to carry, unless a turn is due anyway."""
