"""Agreement of replicas: which members count, and when a differing replica may go on."""

import pytest

from beanpole.constants import SECOND_US
from beanpoled.leading.proposing import DIGEST_PERIOD_US
from beanpoled.peers import agreement as module
from beanpoled.peers.agreement import Agreement, ImageDigest

NO_IMAGE = (0, 0, 0)
ALL = ("n1", "n2")


@pytest.fixture
def three() -> Agreement:
    """Return a replica of three that has applied entries 1 to 9; the hash of entry n is 10 n."""
    return applied(Agreement(ALL))


def applied(agreement: Agreement, last: int = 9) -> Agreement:
    for index in range(1, last + 1):
        agreement.applied(index, 10 * index)
    return agreement


def tell(
    agreement: Agreement, name: str, index: int, state_hash: int, image: ImageDigest = NO_IMAGE
) -> str:
    return agreement.compare(name, (index, state_hash), image, 0)


def test_equal_chains_are_no_dispute(three: Agreement) -> None:
    assert tell(three, "n1", 9, 90) == tell(three, "n2", 5, 50) == ""
    assert not three.disputed
    assert three.judge((), 0) is None


def test_a_member_that_agrees_behind_the_difference_counts_for_nobody(three: Agreement) -> None:
    tell(three, "n2", 4, 40)
    assert tell(three, "n1", 5, 1) == "at index 5 (its state hash)"
    assert three.disputed
    reason = three.judge((), 0)
    assert reason is not None and reason.startswith(
        "this replica differs from n1 at index 5 (its state hash), and no majority of the 3"
    )


def test_a_member_that_agreed_at_the_difference_or_later_counts_although_it_is_away(
    three: Agreement,
) -> None:
    tell(three, "n2", 6, 60)
    tell(three, "n1", 5, 1)
    assert three.judge((), 0) is None
    tell(three, "n1", 9, 1)
    assert three.judge((), 100 * SECOND_US) is None


def test_a_linked_member_is_waited_for_and_not_for_ever(three: Agreement) -> None:
    tell(three, "n1", 5, 1)
    assert three.judge(ALL, SECOND_US) is None
    assert three.judge(("n1",), SECOND_US) is not None
    assert three.judge(ALL, 2 * SECOND_US) is not None
    tell(three, "n2", 7, 70)
    assert three.judge(ALL, 2 * SECOND_US) is None


def test_a_difference_is_told_once_and_may_end(three: Agreement) -> None:
    assert tell(three, "n1", 5, 1) != ""
    assert tell(three, "n1", 6, 2) == ""
    tell(three, "n1", 9, 90)  # it is back with an empty disk
    assert not three.disputed
    assert three.judge((), 0) is None


def test_a_member_that_is_outvoted_is_told_by_how_many(three: Agreement) -> None:
    tell(three, "n1", 5, 1)
    tell(three, "n2", 7, 1)
    reason = three.judge(ALL, 0)
    assert reason is not None
    assert "differs from 2 of 3 members at index 5" in reason and "--rejoin" in reason


def test_an_image_that_differs_needs_the_digests_of_images(three: Agreement) -> None:
    three.digested((5, 77, 2))
    tell(three, "n2", 9, 90)  # its hash does not cover its image
    where = tell(three, "n1", 9, 90, (5, 78, 2))
    assert where == "at index 5 (the digest of its image)"
    assert three.judge((), 0) is not None
    assert three.judge(("n2",), 2 * DIGEST_PERIOD_US + 29 * SECOND_US) is None, "two more chances"
    assert three.judge(("n2",), 150 * SECOND_US) is not None
    assert three.image_disputed
    tell(three, "n2", 9, 90, (5, 77, 3))  # an image of another version has different bytes anyway
    assert three.judge((), 0) is not None
    tell(three, "n2", 9, 90, (5, 77, 2))
    assert three.judge((), 0) is None


def test_a_member_that_is_always_ahead_is_compared_when_this_replica_is_there(
    three: Agreement,
) -> None:
    assert tell(three, "n1", 12, 1) == ""
    assert tell(three, "n1", 30, 3) == ""
    for index in range(10, 13):
        three.applied(index, 10 * index)
    assert tell(three, "n1", 40, 4) == "at index 12 (its state hash)"


def test_a_snapshot_forgets_what_was_compared(three: Agreement) -> None:
    tell(three, "n1", 5, 1)
    three.forget()
    assert not three.disputed
    assert tell(three, "n1", 5, 1) == ""
    three.applied(20, 200)
    assert tell(three, "n1", 20, 201) != ""


def test_the_image_before_a_snapshot_is_not_compared(three: Agreement) -> None:
    three.digested((5, 77, 2))
    three.forget()
    assert tell(three, "n1", 9, 90, (5, 78, 2)) == ""
    assert not three.disputed


@pytest.mark.constants
def test_only_so_many_chains_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HASHES_KEPT_MAX", 3)
    agreement = applied(Agreement(ALL))
    assert tell(agreement, "n1", 6, 1) == ""
    assert tell(agreement, "n1", 7, 1) != ""


def test_two_of_two_that_differ_stop() -> None:
    agreement = applied(Agreement(["n1"]))
    tell(agreement, "n1", 5, 1)
    assert agreement.judge(["n1"], 0) is not None


def test_five_need_three() -> None:
    agreement = applied(Agreement(["n1", "n2", "n3", "n4"]))
    tell(agreement, "n1", 5, 1)
    tell(agreement, "n2", 9, 90)
    assert agreement.judge((), 0) is not None
    assert agreement.judge(("n3",), 0) is None
    tell(agreement, "n3", 9, 90)
    assert agreement.judge((), 0) is None
    tell(agreement, "n3", 9, 91)
    assert agreement.judge((), 0) is not None
