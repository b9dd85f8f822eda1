"""The machine's version: the versions that programs know, the active one, and when it is raised.

The version lives in the log (docs/adr/0018). Here a leader decides that RAISE is due, and a node
stops if it meets a version that it does not know. The meaning of a version is in `core`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from beanpole import commands as c
from beanpole.core.image import restore
from beanpole.core.machine import Machine
from beanpole.errors import UnknownVersion
from beanpoled.leading.term import Term
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context

# An operator waits for the answer and asks again before this time is over. Afterwards nothing is
# raised: the request counts now, and not when a member comes back days later with another program.
FINALIZE_REQUEST_US: Final = 1_000_000
# A new cluster raises its machine version by itself, some heartbeats after its first leader serves.
# For this long a node waits for that before it accepts clients, and a call before it is refused.
RAISE_PATIENCE_S: Final = 3.0


class Versions:
    """The versions of one node."""

    def __init__(self, context: Context, peers: Peers, term: Term) -> None:
        self._context = context
        self._peers = peers
        self._term = term
        self._proposed = (0, 0)  # term and version of the newest RAISE of this node
        # The request of an operator: term, version, and the loop time at which the request ends.
        self._wanted = (0, 0, 0)

    def known(self) -> dict[str, int]:
        """The newest version that each member knows, this node included; 0 if unknown.

        A member announces its version in each heartbeat. The announcement counts if it was received
        in this term, on the present link, and recently: an absent member may come back with an
        older program.
        """
        term = self._context.replica.term
        known = {self._context.name: self._context.knows}
        for name, peer in self._peers.peers.items():
            newest = None if peer.silent else peer.heartbeat
            known[name] = peer.knows if newest is not None and newest.term == term else 0
        return known

    def common(self) -> int:
        """The newest version that every member knows; 0 while one member's is unknown."""
        return min(self.known().values())

    def coming(self) -> int:
        """The version to which the leader is about to raise the cluster, or else the active one.

        This is the leader's rule as any member can judge it. Linked members that have announced
        nothing yet are taken to know what this program knows, and the leader to have the same
        setting. In the first life of a node, all members were there when they founded the cluster,
        so that a member without a link counts until it was linked once.
        """
        context = self._context
        active = context.machine.version
        is_new = context.disks.own.incarnation == 1
        peers = self._peers.peers.values()
        is_complete = all(peer.linked or (is_new and not peer.generation) for peer in peers)
        if context.config.upgrade_finalize == "manual" or not is_complete:
            return active
        common = min([context.knows, *(peer.knows for peer in peers if peer.knows)])
        return max(active, common)

    def due(self) -> tuple[c.Command, ...]:
        """The RAISE that the next entry should carry, if any. Each is proposed once in a term."""
        context, number = self._context, self._term.number
        active = context.machine.version
        if context.knows <= active or not self._term.serving:
            return ()
        if context.config.upgrade_finalize == "manual":
            term, version, until_us = self._wanted
            if term != number or context.loop_us > until_us or self.common() < version:
                return ()
        else:
            version = self.common()
        proposed = (number, version)
        if version <= active or proposed == self._proposed:
            return ()
        self._proposed = proposed
        return ((c.RAISE, version),)

    def finalize(self, to: int) -> tuple[int, str]:
        """Process an operator's request for a version; 0 means the newest that any member knows.

        Returns:
            The version, and the reason why it cannot be raised now. The reason is empty if the
            machine has that version already, or if its RAISE is in the log or goes into the next
            entry.
        """
        context = self._context
        known = self.known()
        version = to or max(known.values())
        if version <= context.machine.version:
            return context.machine.version, ""
        if not self._term.serving:
            return version, f"{context.name} has just been elected"
        term = self._term.number
        if self._proposed != (term, version):
            refusal = refusal_words(version, known)
            if refusal:
                return version, refusal
            self._wanted = (term, version, context.loop_us + FINALIZE_REQUEST_US)
            context.wake()
        return version, ""

    def raised(self) -> None:
        """Handle an applied RAISE; an unknown version stops the node before it is used."""
        active = self._context.machine.version
        if active > self._context.knows:
            self._context.fatal(restore.upgrade_words(active, self._context.knows))
        self._context.host.log(f"the cluster works at machine version {active}")

    def load_image(self, chunks: Iterator[bytes]) -> Machine:
        """Build a machine from a snapshot; the node stops if its version is unknown.

        Raises:
            Damaged: the bytes are no image.
        """
        try:
            return restore.load(chunks, self._context.knows)
        except UnknownVersion as error:
            self._context.fatal(str(error))
            raise


def refusal_words(version: int, known: Mapping[str, int]) -> str:
    """Name the members that are away or whose programs do not know a version; empty if none."""
    words = []
    for name, newest in sorted(known.items()):
        if not newest:
            words.append(f"{name} is away, and may come back with an older release")
        elif newest < version:
            words.append(f"{name} knows up to {newest} and must be upgraded")
    return "; ".join(words)
