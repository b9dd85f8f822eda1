"""Whether the replicas agree, and whether this one may go on when they do not.

Here is only what was told, what it means, and the judgement; heartbeats are in `turn.heartbeats`.
No I/O, no clock. Every heartbeat tells the running hash of a member's transitions, and the digest
of its image at an index that the log fixed. A hash covers everything before it, so equal hashes at
an index mean that nothing differed up to there. A member counts as agreeing only if it has shown
that, at or after the first index at which another one differs: a member that is away has shown
nothing.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from beanpole.constants import SECOND_US

# Chains of this many newest entries are kept to compare with what the others say. A follower that
# lags further is compared once it has caught up.
CHAINS_KEPT: Final = 16_384

# The two things that are compared.
STATE_HASH: Final = 0
IMAGE: Final = 1
# How long a linked member is waited for before it counts for no side, too. It tells its hash with
# every heartbeat, once it has applied as much; this forgives a short pause of it. The log asks for
# the digest of an image each minute of cluster time, and it is made in slices: a member that missed
# one has the next one too, and half a minute for its slices.
_WAITS_US: Final = (2 * SECOND_US, 150 * SECOND_US)
# A member that had a link so lately counts as linked: links are dialed again at once.
RELINK_US: Final = _WAITS_US[STATE_HASH]
_NAMES: Final = ("its running digest", "the digest of its image")

# A digest of an image: index, CRC, version of the machine.
ImageDigest = tuple[int, int, int]


class _Member:
    """The digests of another member, of each of the two things that are compared."""

    __slots__ = ("agreed", "ahead", "differs")

    def __init__(self) -> None:
        self.agreed = [0, 0]  # the last index at which it was equal
        self.differs = [0, 0]  # the first index at which it was not; 0 if it is
        self.ahead = (0, 0)  # the index and state hash that it told before this node was there

    def note(self, kind: int, index: int, equal: bool) -> bool:
        """Take a comparison; return whether it is a difference that was not known."""
        if equal:
            self.agreed[kind] = max(self.agreed[kind], index)
            self.differs[kind] = 0
            return False
        if self.differs[kind]:
            return False
        self.differs[kind] = index
        return True


class Agreement:
    """The others' state, as this replica knows it.

    Attributes:
        disputed: whether a member is known to differ, so that `judge` has something to judge.
        image: the digest of this replica's image at the last index that the log fixed.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        """Know nothing yet of these other members."""
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

    # --- what this replica has --------------------------------------------------------------------

    def applied(self, index: int, state_hash: int) -> None:
        """Remember the state hash after an entry."""
        self._hashes[index] = state_hash
        self._indexes.append(index)
        if len(self._indexes) > CHAINS_KEPT:
            del self._hashes[self._indexes.popleft()]

    def digested(self, image: ImageDigest) -> None:
        """The digest of the image at an index that the log fixed is ready."""
        self.image = image

    def forget(self) -> None:
        """A snapshot replaced the machine: what was compared before is about another one."""
        self._hashes.clear()
        self._indexes.clear()
        self.image = (0, 0, 0)
        self._members = {name: _Member() for name in self._members}
        self.disputed = False

    # --- what the others say ----------------------------------------------------------------------

    def told(self, name: str, state_hash: tuple[int, int], image: ImageDigest, now_us: int) -> str:
        """A member told its state hash (index, state hash) and the digest of its image.

        Returns:
            Where it differs, if that was not known; else nothing.
        """
        member = self._members[name]
        found = ""
        last = self._indexes[-1] if self._indexes else 0
        for index, value in (member.ahead, state_hash):
            mine = self._hashes.get(index)
            if mine is not None and member.note(STATE_HASH, index, mine == value):
                found = self._dispute(STATE_HASH, index, now_us)
        # What it told when it was ahead is compared when this node is there, too: under load each
        # heartbeat of a faster member would be ahead.
        if member.ahead[0] <= last:
            member.ahead = state_hash if state_hash[0] > last else (0, 0)
        # Of another version the same state has other bytes.
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

    # --- the judgement ----------------------------------------------------------------------------

    def judge(self, linked: Collection[str], now_us: int) -> str | None:
        """Whether this replica may go on.

        Args:
            linked: the members with a link, now or lately: they may still show that they agree.
            now_us: the time, as the loop lived it.

        Returns:
            Why this replica must stop; None if it goes on, or if a linked member is waited for.
        """
        for kind in (STATE_HASH, IMAGE):
            reason = self._judge(kind, linked, now_us)
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
