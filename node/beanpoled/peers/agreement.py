"""Compare the replicas, and decide whether this one may go on when they differ.

This module holds what members announced, compares it, and judges; heartbeats are in
`turn.heartbeats`. No I/O, no clock. Every heartbeat contains the state hash of a member, and the
digest of its image at an index that the log fixed. A hash covers everything before it, so equal
hashes at an index mean that nothing differed up to there. A member counts as agreeing only if it
has shown agreement at or after the first index at which another member differs: an absent member
has shown nothing.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from beanpole.constants import SECOND_US

# This many newest hashes are kept to compare with those of other members. A follower that lags
# further is compared once it has caught up.
HASHES_KEPT_MAX: Final = 16_384

# The two kinds of comparison.
STATE_HASH: Final = 0
IMAGE: Final = 1
# How long a linked member that has not taken a side counts as agreeing. It sends its hash with
# every heartbeat, once it has applied as many entries; this allows for a short pause of the member.
# The log asks for the digest of an image each minute of cluster time, and it is made in slices: a
# member that missed one digest takes part in the next, with half a minute for its slices.
_WAITS_US: Final = (2 * SECOND_US, 150 * SECOND_US)
# A member counts as linked for this time after its last link, and after the start of this node:
# links are dialed again within half a second.
RELINK_US: Final = _WAITS_US[STATE_HASH]
# For the digest of an image, a member that restarts counts as linked for as long as its process
# takes to start: it takes part in the next digest.
RESTART_US: Final = 10 * SECOND_US
_NAMES: Final = ("its state hash", "the digest of its image")

# The digest of an image: index, CRC, version of the machine.
ImageDigest = tuple[int, int, int]


class _Member:
    """The comparisons with another member, of both kinds."""

    __slots__ = ("agreed", "ahead", "differs")

    def __init__(self) -> None:
        self.agreed = [0, 0]  # the last index at which it was equal
        self.differs = [0, 0]  # the first index at which it was not; 0 if it is
        self.ahead = (0, 0)  # index and state hash that it sent ahead of this replica

    def note(self, kind: int, index: int, equal: bool) -> bool:
        """Record a comparison; return whether it is a new difference."""
        if equal:
            self.agreed[kind] = max(self.agreed[kind], index)
            self.differs[kind] = 0
            return False
        if self.differs[kind]:
            return False
        self.differs[kind] = index
        return True


class Agreement:
    """The state of the other members, as this replica knows it.

    Attributes:
        disputed: whether a member is known to differ, so that `judge` has something to decide.
        image: the digest of this replica's image at the last index that the log fixed.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        """Begin with no knowledge of these other members."""
        self.disputed = False
        self._members = {name: _Member() for name in peers}
        self._size = len(self._members) + 1
        self._majority = self._size // 2 + 1
        self._since_us = [0, 0]  # when the present dispute began
        self._hashes: dict[int, int] = {}
        self._indexes: deque[int] = deque()
        self.image: ImageDigest = (0, 0, 0)

    @property
    def image_disputed(self) -> bool:
        """Whether the image of a member is known to differ: the next digest may decide."""
        return any(member.differs[IMAGE] for member in self._members.values())

    # --- of this replica --------------------------------------------------------------------------

    def applied(self, index: int, state_hash: int) -> None:
        """Remember the state hash after an entry."""
        self._hashes[index] = state_hash
        self._indexes.append(index)
        if len(self._indexes) > HASHES_KEPT_MAX:
            del self._hashes[self._indexes.popleft()]

    def digested(self, image: ImageDigest) -> None:
        """Store the digest of the image at an index that the log fixed."""
        self.image = image

    def forget(self) -> None:
        """Forget all comparisons: a snapshot replaced the machine that they were about."""
        self._hashes.clear()
        self._indexes.clear()
        self.image = (0, 0, 0)
        self._members = {name: _Member() for name in self._members}
        self.disputed = False

    # --- from the other members -------------------------------------------------------------------

    def compare(
        self, name: str, state_hash: tuple[int, int], image: ImageDigest, now_us: int
    ) -> str:
        """Compare the state hash (index, state hash) and image digest that a member sent.

        Returns:
            Where the member differs, if that is new; else an empty string.
        """
        member = self._members[name]
        found = ""
        last = self._indexes[-1] if self._indexes else 0
        for index, value in (member.ahead, state_hash):
            mine = self._hashes.get(index)
            if mine is not None and member.note(STATE_HASH, index, mine == value):
                found = self._dispute(STATE_HASH, index, now_us)
        # A hash that a member sent while it was ahead is compared once this node gets there: under
        # load, every heartbeat of a faster member would be ahead.
        if member.ahead[0] <= last:
            member.ahead = state_hash if state_hash[0] > last else (0, 0)
        # Another version of the machine encodes the same state differently.
        comparable = image[0] and image[0] == self.image[0] and image[2] == self.image[2]
        if comparable and member.note(IMAGE, image[0], image[1] == self.image[1]):
            where = self._dispute(IMAGE, image[0], now_us)
            found = found or where
        self.disputed = any(any(member.differs) for member in self._members.values())
        return found

    def _dispute(self, kind: int, index: int, now_us: int) -> str:
        if sum(member.differs[kind] > 0 for member in self._members.values()) == 1:
            self._since_us[kind] = now_us
        return f"at index {index} ({_NAMES[kind]})"

    # --- the decision -----------------------------------------------------------------------------

    def judge(
        self, linked: Collection[str], now_us: int, restarting: Collection[str] = ()
    ) -> str | None:
        """Decide whether this replica may go on.

        Args:
            linked: the members with a link now or recently: they may still show that they agree.
            now_us: the loop's time.
            restarting: the members without a link that may show it with the next image.

        Returns:
            The reason why this replica must stop; None if it goes on, or waits for a linked member.
        """
        for kind, able in ((STATE_HASH, linked), (IMAGE, {*linked, *restarting})):
            reason = self._judge(kind, able, now_us)
            if reason is not None:
                return reason
        return None

    def _judge(self, kind: int, linked: Collection[str], now_us: int) -> str | None:
        differing = {
            name: member.differs[kind]
            for name, member in self._members.items()
            if member.differs[kind]
        }
        if not differing:
            return None
        index = min(differing.values())
        agreeing = [
            name
            for name, member in self._members.items()
            if name not in differing and member.agreed[kind] >= index
        ]
        votes = 1 + len(agreeing)
        if now_us - self._since_us[kind] < _WAITS_US[kind]:
            votes += sum(name not in differing and name not in agreeing for name in linked)
        if votes >= self._majority:
            return None
        where = f"at index {index} ({_NAMES[kind]})"
        if len(differing) >= self._majority:
            return (
                f"this replica differs from {len(differing)} of {self._size} members {where}: "
                "stopping; keep its data directory for inspection and start it with --rejoin on "
                "an empty one"
            )
        return (
            f"this replica differs from {', '.join(sorted(differing))} {where}, and no majority of "
            f"the {self._size} members has shown that it agrees with either: all that differ stop; "
            'keep their data directories, start the others, and see "Replicas differ" in '
            "docs/operating.md"
        )
