"""The condition of a node in words: its state, its obstacles, and the absent members.

This module only reads the parts of the node and changes nothing. `reporting` decides when the
condition is logged.
"""

from typing import Final

from beanpoled.origin.outbox import Origin
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context
from beanpoled.turn.disk_health import DiskHealth
from beanpoled.turn.introductions import Introductions
from beanpoled.turn.lifecycle import Lifecycle
from beanpoled.turn.stopping import Stopping, clients

STARTING: Final = "starting"
REJOINING: Final = "rejoining"
SERVING: Final = "serving"
CUT_OFF: Final = "cut off"
STOPPING: Final = "stopping"

# Members that wait to rejoin wait for a majority that has data.
_LOST: Final = "; the data of a majority is lost, and no wait ends that: see `beanpole recover`"
_NONE: Final = "; no member has data: a new cluster starts without --rejoin"

# The reasons of which a member is the subject begin so, others with its address.
_VERBS: Final = ("is ", "has ")


class Condition:
    """The state of a node as operators see it."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        origin: Origin,
        introductions: Introductions,
        lifecycle: Lifecycle,
        stopping: Stopping,
        disk_health: DiskHealth,
    ) -> None:
        self._context = context
        self._peers = peers
        self._origin = origin
        self._introductions = introductions
        self._lifecycle = lifecycle
        self._stopping = stopping
        self._disk_health = disk_health

    @property
    def state(self) -> str:
        """One of the constants above. Clients are served only in SERVING."""
        context = self._context
        if context.stopping or context.stopped:
            return STOPPING
        if context.replica.rejoining:
            return REJOINING
        if self._lifecycle.fenced:
            return CUT_OFF
        return SERVING if self._serves() else STARTING

    def waits_for(self) -> str:
        """The obstacle that keeps this node from serving, serving again or stopping, in words.

        Empty if there is no obstacle: the node serves clients, is about to, or is about to exit.
        """
        context = self._context
        if context.stopping or context.stopped:
            holders = self._stopping.holders
            return f"waiting for {clients(holders)} to finish their jobs" if holders else ""
        if not context.disks.own.runs:
            rejoins = context.replica.rejoining
            whom = "a majority of the others" if rejoins else "all members to found the cluster"
            absent = self._introductions.waiting_for()
            return f"waiting for {whom}: {self._told(absent)}{self._loss()}"
        if not self._peers.has_contact():
            absent = self.absent()
            present = len(context.members) - len(absent)
            if present < len(context.members) // 2 + 1:
                return f"waiting for a majority: {self._told(absent)}{self._loss()}"
            if context.replica.role == "leader":
                return "waiting for answers of a majority"
            leader = context.replica.leader
            if leader is not None and leader not in absent:
                return f"waiting for the leader {leader}, which is silent"
            # Linked members cannot help each other while each waits for a third.
            return "waiting for a leader" + (f": {self._told(absent)}" if absent else "")
        if self._disk_health.writes_hang:
            return f"waiting for the disk, behind for {self._disk_health.lag_us / 1e6:.0f} s"
        if context.replica.room().full:  # caught up or not: it takes no further command
            return "waiting for room on the full disk"
        if self._lifecycle.fenced and self._lifecycle.is_path_slow():
            return f"waiting to be heard by {context.replica.leader} in time"
        if self._origin.up and not context.replica.rejoining:
            return "" if self._serves() else "waiting for the cluster to be raised"
        missing = max(0, context.replica.commit_index - context.replica.applied_index)
        more = f": {missing} entries to apply" if missing else ""
        return f"catching up with {context.replica.leader}{more}"

    def unanswered(self) -> str:
        """The reason why a command of this node ended without an answer, in words."""
        waits, name = self.waits_for(), self._context.name
        if waits:
            return f"no answer of a majority: {name} is {waits}"
        return f"no answer of a majority, or {name} was cut off"

    def _serves(self) -> bool:
        return self._origin.up and not self._lifecycle.is_opening

    def absent(self) -> tuple[str, ...]:
        """The members without a link to this node."""
        return tuple(name for name, peer in self._peers.peers.items() if not peer.linked)

    def absent_words(self) -> str:
        """The same members, each with the reason, to follow "without"; empty if none is absent."""
        return "; without ".join(f"{name}: {self._clause(name)}" for name in self.absent())

    def _clause(self, name: str) -> str:
        reason = self.reason(name)
        return f"it {reason}" if reason.startswith(_VERBS) else reason

    def _told(self, names: tuple[str, ...]) -> str:
        return ", ".join(f"{name} {self.reason(name)}" for name in names)

    def reason(self, name: str) -> str:
        """The reason why there is no link to a member, to follow its name."""
        refusal = self._introductions.refusal(name)
        if refusal:
            return f"is refused: {refusal}"
        if name in self._introductions.without_data():
            return "has an empty disk and waits to rejoin"
        return self._context.host.link_words(name)

    def _loss(self) -> str:
        """What to do where too many members have no data to wait for."""
        members = len(self._context.members)
        kept = members - len(self._introductions.without_data())
        if not kept:
            return _NONE
        return _LOST if kept < members // 2 + 1 else ""
