"""Tests of the follower's side of appends: B1, B2, B5, B8, F11 and fatal input."""

import pytest

from beanpole.replication.pysyncobj import messages
from beanpole.replication.pysyncobj.appends import REWIND_ENTRIES_MAX
from beanpole.replication.pysyncobj.journal import SLICE_BYTES_MAX, SLICE_ENTRIES_MAX
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim.lone import Lone

ENTRIES = [(1, b"a"), (1, b"b"), (1, b"c"), (1, b"d")]
both = pytest.mark.parametrize("repaired", [True, False])


@both
def test_a_resent_message_deletes_nothing_that_matches(repaired: bool) -> None:
    """B1: acknowledged entries vanished when some of them arrived again."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("keep_matching_entries"))
    lone.append("n1", 1, (1, 0), ENTRIES)
    lone.run(0.05)
    assert lone.take(messages.ACK)[-1][3] == 6, "all four are acknowledged"
    lone.append("n1", 1, (1, 0), ENTRIES[:2])
    assert lone.replica.last_index == (5 if repaired else 3)
    lone.append("n1", 1, (3, 1))
    assert lone.replica.last_index == (5 if repaired else 3)


def test_a_resent_message_is_acknowledged_up_to_its_own_end_only() -> None:
    lone = Lone()
    lone.append("n1", 1, (1, 0), ENTRIES)
    lone.run(0.05)
    lone.take()
    lone.append("n1", 1, (1, 0), ENTRIES[:2])
    assert lone.take(messages.ACK)[-1][3] == 4


def test_entries_are_replaced_from_the_first_conflict_on() -> None:
    lone = Lone()
    lone.append("n1", 1, (1, 0), ENTRIES)
    lone.append("n2", 2, (1, 0), [(1, b"a"), (1, b"b"), (2, b"C")])
    lone.append("n2", 2, (4, 2), [], commit=4)
    lone.run(0.05)
    assert lone.replica.last_index == 4
    assert lone.applied == [(2, b"a"), (3, b"b"), (4, b"C")]
    assert lone.take(messages.ACK)[-1][3:5] == (5, messages.MATCHED)


def test_entries_behind_a_large_one_are_replaced() -> None:
    """The library searched them in one slice, which ends after a large entry."""
    lone = Lone()
    lone.append("n1", 1, (1, 0), [(1, b"a" * SLICE_BYTES_MAX), (1, b"b"), (1, b"c")])
    lone.append("n2", 2, (2, 1), [(2, b"B")], commit=3)
    lone.run(0.05)
    assert lone.reason is None
    assert lone.replica.last_index == 3
    assert [entry for _, entry in lone.applied[1:]] == [b"B"]


@both
def test_a_commit_index_counts_only_for_what_was_compared(repaired: bool) -> None:
    """B2: a deposed leader committed its own lost entries and answered their clients."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("commit_verified_only"))
    lone.append("n1", 1, (1, 0), ENTRIES)
    lone.append("n2", 2, (9, 2), [], commit=9)  # of a log with entries that this member lacks
    lone.run(0.05)
    assert lone.applied == ([] if repaired else [(i + 2, e) for i, (_, e) in enumerate(ENTRIES)])
    lone.append("n2", 2, (3, 1), [], commit=9)  # the logs are equal up to 3
    lone.run(0.05)
    assert lone.replica.commit_index == (3 if repaired else 5)


@both
def test_a_conflicting_term_is_skipped_in_one_step(repaired: bool) -> None:
    """B5: one step per entry, and every later message began the search again."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("rewind_whole_terms"))
    lone.append("n1", 1, (1, 0), [(1, b"x")] * 50)
    lone.run(0.05)
    lone.take()
    lone.append("n2", 2, (51, 2), [(2, b"y")])
    (answer,) = lone.take(messages.ACK)
    assert answer[3:5] == (2 if repaired else 51, messages.REWIND)


def test_a_step_back_over_a_long_term_is_bounded() -> None:
    """A leader that was killed under load got its whole last term again after its restart."""
    lone = Lone()
    for at in range(1, 2001, 200):
        lone.append("n1", 1, (at, min(at - 1, 1)), [(1, b"x")] * 200)
        lone.run(0.05)
    lone.replica.close()
    lone.start()
    last = lone.replica.last_index
    assert (last, lone.replica.commit_index) == (2001, 1)
    lone.take()
    lone.append("n2", 2, (last, 2))
    (answer,) = lone.take(messages.ACK)
    assert answer[3:5] == (last - REWIND_ENTRIES_MAX + 1, messages.REWIND)
    lone.append("n2", 2, (last - 8, 1), [(2, b"y")])
    assert lone.replica.last_index == last - 7


def test_a_rewind_never_goes_below_what_is_committed() -> None:
    lone = Lone()
    lone.append("n1", 1, (1, 0), ENTRIES)
    lone.append("n1", 1, (3, 1), [], commit=3)
    lone.run(0.05)
    lone.take()
    lone.append("n2", 2, (5, 2))
    (answer,) = lone.take(messages.ACK)
    assert answer[3:5] == (4, messages.REWIND)


def test_a_conflict_below_the_commit_index_stops_the_node() -> None:
    lone = Lone()
    lone.append("n1", 1, (1, 0), ENTRIES)
    lone.append("n1", 1, (5, 1), [], commit=5)
    lone.run(0.05)
    lone.append("n2", 2, (4, 2))
    assert lone.reason is not None and "differs from this one at 4" in lone.reason


def test_replacing_a_committed_entry_stops_the_node() -> None:
    lone = Lone()
    lone.append("n1", 1, (1, 0), ENTRIES)
    lone.append("n1", 1, (5, 1), [], commit=5)
    lone.run(0.05)
    lone.append("n2", 2, (3, 1), [(2, b"other")])
    assert lone.reason is not None and "replaces entry 4" in lone.reason


@both
def test_a_second_leader_of_the_term_stops_the_node(repaired: bool) -> None:
    """B8: the library obeys it."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("halt_on_second_leader"))
    lone.elect()
    lone.append("n1", lone.replica.term, (2, 1))
    if repaired:
        assert lone.reason is not None and "both lead term" in lone.reason
    else:
        assert lone.reason is None and lone.replica.role == "follower"


def test_an_old_leader_is_told_the_term() -> None:
    lone = Lone()
    lone.append("n1", 5, (1, 0))
    lone.take()
    lone.append("n2", 4, (1, 0))
    assert lone.take() == [(messages.HIGHER_TERM, 5)]
    assert lone.replica.leader == "n1"


@both
def test_what_is_committed_is_applied_in_slices(repaired: bool) -> None:
    """F11: a restarted member applied its whole log in one step of the loop."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("apply_in_slices"))
    count = 3 * SLICE_ENTRIES_MAX
    lone.append("n1", 1, (1, 0), [(1, b"e")] * count, commit=count + 1)
    lone.replica.turn()
    assert len(lone.applied) == (SLICE_ENTRIES_MAX if repaired else count)
    woken = lone.woken
    lone.replica.turn()
    assert len(lone.applied) == (2 * SLICE_ENTRIES_MAX if repaired else count)
    assert lone.woken > woken or not repaired
    lone.run(0.05)
    assert len(lone.applied) == count


def test_a_turn_applies_no_more_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries have the most expensive commands: 256 of them would take seconds."""
    lone = Lone()
    apply = lone.apply

    def slow(index: int, term: int, entry: bytes) -> None:
        lone.clock.now_s += 0.02
        apply(index, term, entry)

    monkeypatch.setattr(lone, "apply", slow)
    lone.append("n1", 1, (1, 0), [(1, b"e")] * 10, commit=11)
    woken = lone.woken
    for applied in (3, 6, 9, 10):
        lone.replica.turn()
        assert len(lone.applied) == applied
    assert lone.woken > woken


def test_a_large_slice_is_cut_by_bytes_too() -> None:
    lone = Lone()
    lone.append("n1", 1, (1, 0), [(1, b"e" * 400_000)] * 6, commit=7)
    lone.replica.turn()
    assert len(lone.applied) == 2


def test_an_exception_in_apply_stops_the_node_and_is_not_repeated() -> None:
    """I2, I4: the library logs it and applies the entry again, forever."""
    lone = Lone()
    lone.append("n1", 1, (1, 0), [(1, b"a"), (1, b"poison"), (1, b"b")], commit=4)
    lone.run(0.1)
    assert lone.reason is not None and lone.reason.startswith("ValueError in turn at lone.py:")
    assert lone.applied == [(2, b"a")]
