"""The machine's version: what this program knows, what the cluster works at, when it is raised.

The version lives in the log (docs/adr/0018): here a leader decides that RAISE is due, and a node
that does not know the version which it meets stops. What a version means is in `core`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from beanpole import commands as c
from beanpole.core.image import restore
from beanpole.core.machine import Machine
from beanpole.errors import UnknownVersion

if TYPE_CHECKING:
    from beanpoled.turn.node import Node


class Versions:
    """The versions of one node."""

    def __init__(self, node: "Node", knows: int) -> None:
        """Begin; `knows` is the newest machine version that the program knows."""
        self.knows = knows
        self._node = node
        self._proposed = (0, 0)  # term and version of the newest RAISE of this node

    def common(self) -> int:
        """The newest version that every member knows; 0 while one of them has not said it.

        A member says it with each beat. What counts was heard in this term and on the present
        link: a member that is away may come back with an older program.
        """
        node = self._node
        term = node.replica.term
        versions = [
            peer.knows if peer.beat is not None and peer.beat.term == term else 0
            for peer in node.peers.peers.values()
        ]
        return min(versions, default=self.knows)

    def due(self) -> tuple[c.Command, ...]:
        """The RAISE that the next entry should carry, if any. Each is proposed once in a term."""
        node = self._node
        active = node.machine.version
        if self.knows <= active or not node.leader.serving:
            return ()
        version = min(self.knows, self.common())
        proposed = (node.leader.term, version)
        if version <= active or proposed == self._proposed:
            return ()
        self._proposed = proposed
        return ((c.RAISE, version),)

    def raised(self) -> None:
        """A RAISE was applied: go on, or stop before anything is made of the entry."""
        active = self._node.machine.version
        if active > self.knows:
            self._node.fatal(restore.upgrade_words(active, self.knows))
        self._node.host.log(f"the cluster works at machine version {active}")

    def load_image(self, chunks: Iterator[bytes]) -> Machine:
        """Build a machine from a snapshot; the node stops at one of a version it does not know.

        Raises:
            Damaged: it is no image.
        """
        try:
            return restore.load(chunks, self.knows)
        except UnknownVersion as error:
            self._node.fatal(str(error))
            raise
