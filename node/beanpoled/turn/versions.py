"""The machine's version: what this program knows, what the cluster works at, when it is raised.

The version lives in the log (docs/adr/0018): here a leader decides that RAISE is due, and a node
that does not know the version which it meets stops. What a version means is in `core`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from beanpole import commands as c
from beanpole.core.image import restore
from beanpole.core.machine import Machine
from beanpole.errors import UnknownVersion

if TYPE_CHECKING:
    from beanpoled.turn.node import Node

# Somebody waits for the answer and asks again before this ends. Afterwards nothing is raised: what
# an operator wants counts now, and not when a member comes back days later with another program.
WISH_US: Final = 1_000_000


class Versions:
    """The versions of one node."""

    def __init__(self, node: "Node", knows: int) -> None:
        """Begin; `knows` is the newest machine version that the program knows."""
        self.knows = knows
        self._node = node
        self._proposed = (0, 0)  # term and version of the newest RAISE of this node
        # What an operator asks for: term, version, and the loop time at which that ends.
        self._wanted = (0, 0, 0)

    def known(self) -> dict[str, int]:
        """The newest version that each member knows, this node included; 0: not said yet.

        A member says it with each beat. What counts was heard in this term and on the present
        link: a member that is away may come back with an older program.
        """
        node = self._node
        term = node.replica.term
        known = {
            name: peer.knows if peer.beat is not None and peer.beat.term == term else 0
            for name, peer in node.peers.peers.items()
        }
        return {**known, node.name: self.knows}

    def common(self) -> int:
        """The newest version that every member knows; 0 while one of them has not said it."""
        return min(self.known().values())

    def due(self) -> tuple[c.Command, ...]:
        """The RAISE that the next entry should carry, if any. Each is proposed once in a term."""
        node = self._node
        active = node.machine.version
        if self.knows <= active or not node.leader.serving:
            return ()
        if node.config.upgrade_finalize == "manual":
            term, version, until_us = self._wanted
            if term != node.leader.term or node.loop_us > until_us or self.common() < version:
                return ()
        else:
            version = self.common()
        proposed = (node.leader.term, version)
        if version <= active or proposed == self._proposed:
            return ()
        self._proposed = proposed
        return ((c.RAISE, version),)

    def finalize(self, to: int) -> tuple[int, str]:
        """An operator asks for a version; 0: for the newest that the program of a member knows.

        Returns:
            The version, and why it cannot be raised now. There is no reason if the machine has
            that version already, or if its RAISE is in the log or goes into the next entry.
        """
        node = self._node
        known = self.known()
        version = to or max(known.values())
        if version <= node.machine.version:
            return node.machine.version, ""
        if not node.leader.serving:
            return version, f"{node.name} has just been elected"
        term = node.leader.term
        if self._proposed != (term, version):
            refusal = refusal_words(version, known)
            if refusal:
                return version, refusal
            self._wanted = (term, version, node.loop_us + WISH_US)
            node.wake()
        return version, ""

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


def refusal_words(version: int, known: Mapping[str, int]) -> str:
    """Name the members that are away, or whose programs do not know a version; else nothing."""
    words = []
    for name, newest in sorted(known.items()):
        if not newest:
            words.append(f"{name} is away, and may come back with an older release")
        elif newest < version:
            words.append(f"{name} knows up to {newest} and must be upgraded")
    return "; ".join(words)
