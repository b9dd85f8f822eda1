"""What the library asks of the transport that it is given, and the ways out of `commit_path`.

It asks for these methods and not for its own class: inheriting from that would cost what a compiled
class saves. The messages themselves are the business of `transport`, which inherits from this.
"""

from collections.abc import Callable
from typing import Any

from pysyncobj.node import Node

from beanpole.replication.pysyncobj.journal import Entry

# A message of the library.
Payload = dict[str, Any]


class TransportBase:
    """Keeps what the library wants to be called.

    Attributes:
        deliver: takes a message; None when nothing is to be received any more.
        link_began: called when messages can be sent to a member.
        link_ended: called when they cannot any more.
    """

    def __init__(self) -> None:
        self.deliver: Callable[[Node, Payload], None] | None = None
        self.link_began: Callable[[Node], None]
        self.link_ended: Callable[[Node], None]

    def append(self, node: Node, entries: list[Entry], previous: int, previous_term: int) -> bool:
        """Send the entries that follow another one, or none."""
        raise AssertionError("overridden")

    def withhold(self, node: Node) -> None:
        """Offer the snapshot instead."""
        raise AssertionError("overridden")

    # --- what the library calls ------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """The links are the node's business: always ready."""
        return True

    def setOnMessageReceivedCallback(self, callback: Callable[[Node, Payload], None]) -> None:
        """Give its messages to this one."""
        self.deliver = callback

    def setOnNodeConnectedCallback(self, callback: Callable[[Node], None]) -> None:
        """Tell this one of new links."""
        self.link_began = callback

    def setOnNodeDisconnectedCallback(self, callback: Callable[[Node], None]) -> None:
        """Tell this one of links that ended."""
        self.link_ended = callback

    def setOnReadonlyNodeConnectedCallback(self, callback: Callable[[Node], None]) -> None:
        """Do nothing: there are no such nodes."""

    def setOnReadonlyNodeDisconnectedCallback(self, callback: Callable[[Node], None]) -> None:
        """Do nothing: there are no such nodes."""

    def setOnUtilityMessageCallback(self, message: str, callback: Callable[..., None]) -> None:
        """Do nothing: a member takes no commands of the library's tools."""

    def destroy(self) -> None:
        """Receive nothing any more."""
        self.deliver = None
