"""Admission: for every pair of disks that meet, whether to accept, wait or refuse."""

from typing import Any

import pytest

from beanpoled.disk.identity import FOUNDING, REJOINING, VOTER, DiskIdentity, birth_of
from beanpoled.links import admission
from beanpoled.links.admission import REFUSE, TALK, WAIT, Known
from beanpoled.links.link import DISK, MEMBERS, OLDER, VERSIONS, Hello

MEMBERS_OF = ("n0", "n1", "n2")
DISKS = {"n0": b"0" * 16, "n1": b"1" * 16, "n2": b"2" * 16}
FOUNDERS = tuple(sorted(DISKS.items()))
BIRTH = birth_of("c", FOUNDERS)
EMPTY = b"e" * 16
OTHER_BIRTH = b"another birth id"


def own(node: str = "n0", **changes: Any) -> DiskIdentity:
    """Return the disk of a running member that founded the cluster."""
    disk = DiskIdentity("c", node, DISKS[node], MEMBERS_OF, VOTER, BIRTH, FOUNDERS)
    return disk._replace(**changes)


def unfounded(node: str = "n0", **changes: Any) -> DiskIdentity:
    """Return the same disk before it joined the cluster."""
    return DiskIdentity("c", node, DISKS[node], MEMBERS_OF)._replace(**changes)


def hello(disk: DiskIdentity, last_index: int = 50) -> Hello:
    """Return the hello of a disk."""
    return Hello(
        version_min=3,
        version_max=3,
        cluster=disk.cluster,
        node=disk.node,
        config_hash="",
        nonce=b"",
        disk_id=disk.disk_id,
        birth=disk.birth,
        standing=disk.standing,
        replacement=disk.replacement,
        incarnation=disk.incarnation,
        last_index=last_index,
        founders=disk.founders,
    )


def refusal(
    mine: DiskIdentity, other: DiskIdentity, known: Known | None = None, cause: int = DISK
) -> str:
    """Assert that a disk is refused, and return the reason."""
    verdict = admission.judge(mine, hello(other), known or Known())
    assert (verdict.kind, verdict.cause) == (REFUSE, cause)
    both = bool(mine.birth and other.birth and mine.birth != other.birth)
    assert verdict.is_mutual == (both or not mine.birth), "who has the wrong disk?"
    assert verdict.reason.count("\n") == 0
    return verdict.reason


def kind(mine: DiskIdentity, other: DiskIdentity, known: Known | None = None) -> int:
    return admission.judge(mine, hello(other), known or Known()).kind


def test_two_founders_talk() -> None:
    assert kind(own(), own("n1"), Known((DISKS["n1"],), incarnation=0)) == TALK
    assert kind(own(), own("n1")) == TALK


def test_a_node_that_is_no_member_is_refused_before_anything_is_remembered() -> None:
    verdict = admission.judge(own(), hello(own("n1")._replace(node="n7")), Known())
    assert (verdict.kind, verdict.cause) == (REFUSE, MEMBERS)
    assert verdict.reason == "n7 is no member: n0, n1, n2"


@pytest.mark.parametrize("standing", [VOTER, REJOINING])
def test_two_lives_of_a_cluster_never_talk(standing: str) -> None:
    """Shrinking and restoring a member list once connected two clusters on the same disks."""
    words = refusal(own(), own("n1", birth=OTHER_BIRTH, standing=standing))
    assert BIRTH.hex()[:8] in words and OTHER_BIRTH.hex()[:8] in words


def test_an_empty_disk_that_founded_the_cluster_is_waited_for_and_takes_it_over() -> None:
    """It stopped after its hello and before it learned of the founding."""
    assert kind(own(), unfounded("n1")) == WAIT
    late = unfounded("n1")
    assert kind(late, own()) == WAIT
    assert admission.founding(late, {"n0": hello(own())}) == (BIRTH, FOUNDERS)


def test_an_empty_disk_that_did_not_found_the_cluster_is_refused_on_both_sides() -> None:
    """Finding 3: two empty disks began a new, empty cluster."""
    empty = unfounded("n1", disk_id=EMPTY)
    for words in (refusal(own(), empty), refusal(empty, own())):
        assert "n1 has an empty disk" in words and "--rejoin" in words


def test_a_proof_of_a_birth_must_hold_this_very_disk() -> None:
    late = unfounded("n1")
    false = own(founders=(("n0", DISKS["n0"]), ("n1", DISKS["n1"])))
    assert "empty disk" in refusal(late, false), "the list does not fit the birth id"
    assert "empty disk" in refusal(late, own(birth=OTHER_BIRTH, founders=()))
    assert kind(late, own("n2", standing=REJOINING)) == WAIT, "whichever carries the proof"


def test_another_disk_than_before_is_refused_unless_it_replaced_it() -> None:
    known = Known((DISKS["n1"], b"o" * 16))
    assert "another disk" in refusal(own(), own("n1", disk_id=EMPTY), known)
    replacement = own("n1", disk_id=EMPTY, replacement=True)
    assert kind(own(), replacement, known) == TALK
    assert "another disk" in refusal(own(), replacement._replace(disk_id=b"o" * 16), known), (
        "what was replaced never comes back"
    )
    assert "replaced" in refusal(
        own(founders=(*FOUNDERS, ("n1", b"o" * 16))),
        unfounded("n1", disk_id=b"o" * 16),
        known,
    )


def test_a_disk_that_knows_an_older_incarnation_is_refused() -> None:
    """Finding 2: a disk restored from an older state voted."""
    known = Known((DISKS["n1"],), incarnation=5)
    words = refusal(own(), own("n1", incarnation=4), known, OLDER)
    assert "was incarnation 5 before, and its disk knows of 4" in words
    for incarnation in (5, 6):
        assert kind(own(), own("n1", incarnation=incarnation), known) == TALK
    rejoining = own("n1", disk_id=EMPTY, standing=REJOINING, replacement=True)
    assert kind(own(), rejoining, known) == TALK, "it knows of none before it counts"


def test_a_disk_with_less_than_it_said_it_had_is_refused() -> None:
    known = Known((DISKS["n1"],), kept_index=51)
    words = refusal(own(), own("n1"), known, OLDER)
    assert "up to 51 on its disk before, and has less: it is an older copy" in words
    assert admission.judge(own(), hello(own("n1"), 49), known).reason == words, (
        "its log may grow from one refusal to the next, and they are still in a row"
    )
    assert admission.judge(own(), hello(own("n1"), 51), known).kind == TALK
    replaced = own("n1", disk_id=EMPTY, standing=REJOINING, replacement=True)
    assert kind(own(), replaced, known) == TALK, "another disk never had it"


# --- how a cluster begins -------------------------------------------------------------------------


def met(*others: DiskIdentity) -> dict[str, Hello]:
    return {other.node: hello(other) for other in others}


def test_the_first_member_founds_when_all_are_there_and_empty() -> None:
    first = unfounded()
    assert admission.founding(first, met(unfounded("n1"))) is None
    assert admission.founding(first, met(unfounded("n1"), unfounded("n2"))) == (BIRTH, FOUNDERS)


def test_only_the_first_member_founds() -> None:
    """Otherwise two members could found different clusters, one of them with a disk now lost."""
    assert admission.founding(unfounded("n1"), met(unfounded(), unfounded("n2"))) is None


def test_nothing_is_founded_beside_a_disk_that_rejoins() -> None:
    """Its cluster exists, although none of its members is reachable."""
    rejoining = unfounded("n2", standing=REJOINING)
    assert admission.founding(unfounded(), met(unfounded("n1"), rejoining)) is None
    assert kind(unfounded(), rejoining) == WAIT
    assert kind(rejoining, unfounded()) == WAIT


def test_a_disk_that_rejoins_believes_a_majority_of_the_others() -> None:
    rejoining = unfounded("n2", standing=REJOINING, replacement=True)
    assert kind(rejoining, own()) == WAIT
    assert kind(own(), rejoining) == WAIT
    assert admission.founding(rejoining, met(own())) is None
    wrong = own("n1", birth=OTHER_BIRTH)
    assert admission.founding(rejoining, met(own(), wrong)) is None
    assert admission.founding(rejoining, met(own(), own("n1"))) == (BIRTH, FOUNDERS)
    of_two = rejoining._replace(members=("n0", "n2"))
    assert admission.founding(of_two, met(own())) == (BIRTH, FOUNDERS)


def test_the_absent_are_named() -> None:
    first = unfounded()
    assert admission.awaited(first, {}) == ("n1", "n2")
    assert admission.awaited(first, met(unfounded("n1"))) == ("n2",)
    rejoining = unfounded("n2", standing=REJOINING)
    assert admission.awaited(first, met(unfounded("n1"), rejoining)) == ("n2",)
    assert admission.awaited(unfounded("n1"), met(unfounded(), unfounded("n2"))) == ("n0", "n2")
    assert admission.awaited(rejoining, met(unfounded(), own("n1"))) == ("n0",)
    assert admission.awaited(own(), {}) == ()


# --- continuing a start ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "refusing", "hopeless"),
    [(2, 0, False), (2, 1, True), (3, 1, False), (3, 2, True), (5, 2, False), (5, 3, True)],
)
def test_a_node_ends_only_if_it_can_never_be_in_a_majority(
    size: int, refusing: int, hopeless: bool
) -> None:
    """Finding C: one misconfigured peer stopped a healthy node."""
    names = tuple(f"n{number}" for number in range(size))
    for cause in (MEMBERS, DISK):
        refusals = dict.fromkeys(names[1 : 1 + refusing], cause)
        assert admission.is_hopeless(own(members=names), refusals) is hopeless


def test_an_empty_disk_that_is_refused_for_it_ends_at_once() -> None:
    assert admission.is_hopeless(unfounded(), {"n1": DISK})
    assert not admission.is_hopeless(unfounded(), {"n1": MEMBERS})
    assert not admission.is_hopeless(unfounded(standing=REJOINING), {"n1": DISK})
    assert VERSIONS not in (DISK, MEMBERS)
    assert kind(unfounded(), unfounded("n1", standing=FOUNDING)) == WAIT
