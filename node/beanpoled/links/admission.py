"""Decide from disks and hellos alone whether to talk to a peer, wait for it or refuse it.

Pure functions: no file, no link, no clock. `introductions` acts on these decisions.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from beanpoled.disk.identity import (
    FOUNDING,
    REJOINING,
    VOTER,
    DiskIdentity,
    Founders,
    birth_of,
    short,
)
from beanpoled.links.link import DISK, MEMBERS, OLDER, Hello

TALK: Final = 0
WAIT: Final = 1  # one of the two does not know its birth id yet: nothing but hellos
REFUSE: Final = 2

_REJOIN: Final = "restore its data directory, or start it on an empty one with --rejoin"


class Verdict(NamedTuple):
    """The fate of a link.

    Attributes:
        kind: TALK, WAIT or REFUSE.
        cause: of a refusal: one of the causes in `link`.
        reason: of a refusal, for the operators of both nodes.
        is_mutual: whether this node may be the one in error.
    """

    kind: int
    cause: int = 0
    reason: str = ""
    is_mutual: bool = False


class Known(NamedTuple):
    """Earlier knowledge about a member.

    Attributes:
        disks: its present disk, then the disks that it replaced.
        incarnation: its highest one in the cluster's state.
        kept_index: the index that its present disk has reached, as the member has told this
            process; 0 if unknown.
    """

    disks: tuple[bytes, ...] = ()
    incarnation: int = 0
    kept_index: int = 0


_TALK: Final = Verdict(TALK)
_WAIT: Final = Verdict(WAIT)


def judge(own: DiskIdentity, hello: Hello, known: Known) -> Verdict:
    """Decide about a peer that has proved its identity."""
    node = hello.node
    if node not in own.members:
        return Verdict(REFUSE, MEMBERS, f"{node} is no member: {', '.join(own.members)}")
    if own.birth and hello.birth:
        if own.birth != hello.birth:
            return _refuse(
                f"{node} is part of the cluster with the birth id {short(hello.birth)}, "
                f"{own.node} of the one with {short(own.birth)}: they never belong together; "
                "restore the data directory of the one that is wrong, or start it on an empty one "
                "with --rejoin",
                is_mutual=True,
            )
        return _judge_disk(hello, known)
    if own.birth:
        if hello.standing == FOUNDING and (node, hello.disk_id) not in own.founders:
            return _refuse(
                f"{node} has an empty disk, and the cluster with the birth id {short(own.birth)} "
                f"was founded without it: {_REJOIN}"
            )
        if known.disks and hello.disk_id in known.disks[1:]:
            return _refuse(f"{node} has a disk that was replaced by another one: {_REJOIN}")
        return _WAIT
    if own.standing == FOUNDING and hello.birth and not _proves(own, hello):
        return _refuse(
            f"{own.node} has an empty disk, and {node} is part of the cluster with the birth id "
            f"{short(hello.birth)}, which was founded without it: {_REJOIN}",
            is_mutual=True,
        )
    return _WAIT


def _judge_disk(hello: Hello, known: Known) -> Verdict:
    """Decide about a disk with the same birth id."""
    node, disks = hello.node, known.disks
    if disks and disks[0] != hello.disk_id:
        if not hello.replacement or hello.disk_id in disks:
            return _refuse(f"{node} has another disk than before: {_REJOIN}")
        return _TALK
    if hello.standing == VOTER and hello.incarnation < known.incarnation:
        return _older(
            f"{node} was incarnation {known.incarnation} before, and its disk knows of "
            f"{hello.incarnation}"
        )
    if disks and hello.last_index < known.kept_index:
        # The present end of its log is left out of the text: it may grow from one refusal to the
        # next, and only equal texts count as consecutive refusals.
        return _older(
            f"{node} had the log up to {known.kept_index} on its disk before, and has less"
        )
    return _TALK


def _proves(own: DiskIdentity, hello: Hello) -> bool:
    """Whether this empty disk is a founder of the cluster that the hello names.

    The birth id is a hash over the founders, so an invented list does not match it.
    """
    return (own.node, own.disk_id) in hello.founders and hello.birth == birth_of(
        own.cluster, hello.founders
    )


def _refuse(reason: str, is_mutual: bool = False) -> Verdict:
    return Verdict(REFUSE, DISK, reason, is_mutual)


def _older(found: str) -> Verdict:
    words = f"{found}: it is an older copy; start it on an empty one with --rejoin"
    return Verdict(REFUSE, OLDER, words)


def founding(own: DiskIdentity, met: Mapping[str, Hello]) -> tuple[bytes, Founders] | None:
    """Decide the cluster that this disk joins: (birth id, founders), or None to go on waiting.

    `met` holds the members that are connected now and were answered with WAIT. Only the first of
    the members founds a cluster, so that two of them never found different ones; the others learn
    the birth id from a member that has it already. See docs/adr/0014-one-identity.md.
    """
    if own.standing == REJOINING:
        return _majority_of_others(own, met)
    for hello in met.values():
        if hello.birth:
            return hello.birth, hello.founders  # `judge` has verified the proof
    others = [name for name in own.members if name != own.node]
    if own.node != own.members[0] or any(
        name not in met or met[name].standing != FOUNDING for name in others
    ):
        return None
    founders = tuple(
        sorted([(own.node, own.disk_id), *((name, met[name].disk_id) for name in others)])
    )
    return birth_of(own.cluster, founders), founders


def _majority_of_others(
    own: DiskIdentity, met: Mapping[str, Hello]
) -> tuple[bytes, Founders] | None:
    """Accept the birth id that a majority of the other members gives to a rejoining disk."""
    needed = (len(own.members) - 1) // 2 + 1
    for hello in met.values():
        agreeing = sum(other.birth == hello.birth for other in met.values())
        if hello.birth and agreeing >= needed:
            return hello.birth, hello.founders
    return None


def awaited(own: DiskIdentity, met: Mapping[str, Hello]) -> tuple[str, ...]:
    """Return the members that a disk waits for while it does not know its cluster."""
    if own.runs:
        return ()
    others = tuple(name for name in own.members if name != own.node)
    if own.standing == REJOINING:
        absent = tuple(name for name in others if name not in met or not met[name].birth)
    else:
        absent = tuple(name for name in others if name not in met or met[name].standing != FOUNDING)
    return absent or others


def without_data(own: DiskIdentity, met: Mapping[str, Hello]) -> tuple[str, ...]:
    """Return the members, as far as known here, with an empty disk that waits to rejoin.

    They have no vote and nothing to tell. If the others are no majority, the wait has no end.
    """
    disks: list[DiskIdentity | Hello] = [own, *met.values()]
    return tuple(disk.node for disk in disks if disk.standing == REJOINING and not disk.birth)


def is_hopeless(own: DiskIdentity, refusals: Mapping[str, int]) -> bool:
    """Whether a starting node may as well exit: it will never be part of a majority.

    One peer in error must not keep down a node whose own disk is right. `refusals` holds, by
    member, the causes for which this node was refused, or refused a member and may be in error
    itself.
    """
    if own.standing == FOUNDING and DISK in refusals.values():
        return True  # a cluster is founded by all of its members
    members = len(own.members)
    return members - len(refusals) < members // 2 + 1
