"""The interface that the library requires of its transport, and the outputs of `commit_path`.

The library needs these methods, not its own transport class; inheriting from that class would lose
the gain of compilation. The subclass in `transport` handles the messages themselves.
"""

from collections.abc import Callable
from typing import Any

from pysyncobj.node import Node

from beanpole.replication.pysyncobj.journal import Entry

# A message of the library.
Payload = dict[str, Any]


class TransportBase:
    """Holds the callbacks that the library registers.

    Attributes:
        deliver: receives a message; None after `destroy`.
        link_began: called when messages can be sent to a member.
        link_ended: called when messages can no longer be sent to a member.
    """

    def __init__(self) -> None:
        self.deliver: Callable[[Node, Payload], None] | None = None
        self.link_began: Callable[[Node], None]
        self.link_ended: Callable[[Node], None]

    def append(self, node: Node, entries: list[Entry], previous: int, previous_term: int) -> bool:
        """Send the entries after `previous`, or none."""
        raise AssertionError("overridden")

    def withhold(self, node: Node) -> None:
        """Offer the snapshot instead of an append."""
        raise AssertionError("overridden")

    # --- called by the library -------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True always: the node manages the links."""
        return True

    def setOnMessageReceivedCallback(self, callback: Callable[[Node, Payload], None]) -> None:
        """Register the callback for messages."""
        self.deliver = callback

    def setOnNodeConnectedCallback(self, callback: Callable[[Node], None]) -> None:
        """Register the callback for new links."""
        self.link_began = callback

    def setOnNodeDisconnectedCallback(self, callback: Callable[[Node], None]) -> None:
        """Register the callback for links that ended."""
        self.link_ended = callback

    def setOnReadonlyNodeConnectedCallback(self, callback: Callable[[Node], None]) -> None:
        """Do nothing: there are no such nodes."""

    def setOnReadonlyNodeDisconnectedCallback(self, callback: Callable[[Node], None]) -> None:
        """Do nothing: there are no such nodes."""

    def setOnUtilityMessageCallback(self, message: str, callback: Callable[..., None]) -> None:
        """Do nothing: a member accepts no commands of the library's tools."""

    def destroy(self) -> None:
        """Stop delivering messages."""
        self.deliver = None
