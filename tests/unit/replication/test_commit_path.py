"""Tests of the steps of an entry that bypass the library.

The simulated lives and their mutants check that these steps keep Raft's guarantees.
"""

import pytest

from beanpole.replication.pysyncobj import messages
from beanpole.replication.pysyncobj.commit_path import SLICES_PER_TURN_MAX
from beanpole.replication.pysyncobj.core import Core
from beanpole.replication.pysyncobj.journal import SLICE_ENTRIES_MAX
from beanpole.replication.pysyncobj.library import Library
from beanpole.replication.pysyncobj.messages import OURS
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim.lone import Lone


class Watched:
    """Counts the ticks that the library ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ticks = 0
        real = Library.doTick

        def tick(library: Library, wait_s: float) -> None:
            self.ticks += 1
            real(library, wait_s)

        monkeypatch.setattr(Library, "doTick", tick)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.mark.parametrize(("size", "others"), [(3, 1), (4, 2), (5, 2)])
def test_a_majority_commits_and_no_fewer(size: int, others: int) -> None:
    lone = Lone(size)
    lone.elect()
    index = lone.replica.propose(b"a")
    lone.run(0.05)
    for peer in lone.peers[: others - 1]:
        lone.acknowledge(peer, index)
    lone.run(0.05)
    assert lone.replica.commit_index == index - 1
    lone.acknowledge(lone.peers[others - 1], index)
    lone.run(0.02)
    assert lone.replica.commit_index == index
    assert lone.applied == [(index, b"a")]


def test_a_leader_alone_commits_what_its_disk_has() -> None:
    lone = Lone(1)
    lone.run(0.05)
    index = lone.replica.propose(b"a")
    lone.replica.turn()
    assert lone.replica.commit_index < index
    lone.run(0.05)
    assert lone.applied == [(index, b"a")]


def test_the_library_has_no_part_in_an_entry(watched: Watched) -> None:
    lone = Lone()
    lone.elect()
    watched.ticks = 0
    for index in lone.propose_each(5):
        lone.acknowledge("n1", index)
        lone.run(0.05)
    assert len(lone.applied) == 5
    assert not watched.ticks


def test_the_library_has_no_part_in_what_a_leader_sends(watched: Watched) -> None:
    lone = Lone()
    lone.run(0.02)
    lone.append("n1", 1, (1, 0), [(1, b"a")], commit=1)  # the first entry of this leader
    lone.run(0.02)
    watched.ticks = 0
    lone.append("n1", 1, (2, 1), [(1, b"b")], commit=2)
    lone.append("n1", 1, (3, 1), commit=3)
    lone.run(0.02)
    assert lone.applied == [(2, b"a"), (3, b"b")]
    assert lone.replica.leader == "n1"
    assert not watched.ticks
    assert lone.take(messages.ACK)[-1][3] == 4


def test_another_leader_and_a_later_term_are_the_librarys() -> None:
    lone = Lone()
    lone.run(0.02)
    lone.append("n1", 1, (1, 0), [(1, b"a")])
    lone.append("n2", 3, (2, 1), [(3, b"b")])
    assert (lone.replica.leader, lone.replica.term) == ("n2", 3)
    assert lone.replica.last_index == 3


def test_silence_is_the_librarys(watched: Watched) -> None:
    lone = Lone()
    lone.elect()
    lone.run(lone.replica._config.raft_max_s * 3)
    assert lone.replica.role == "follower"
    assert watched.ticks


def test_a_slice_that_is_ended_goes_on_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = Lone()
    lone.run(0.02)
    lone.append("n1", 1, (1, 0), [(1, b"%d" % at) for at in range(5)])
    lone.run(0.02)

    def apply(index: int, _: int, entry: bytes) -> None:
        lone.applied.append((index, entry))
        lone.replica._journal.end_slice()

    monkeypatch.setattr(lone.replica._core, "_apply", apply)
    lone.append("n1", 1, (6, 1), commit=6)
    for count in range(1, 6):
        lone.replica.turn()
        assert len(lone.applied) == count


def test_a_switched_off_repair_gives_all_steps_to_the_library(watched: Watched) -> None:
    lone = Lone(repairs=ALL_REPAIRS.without("flow_control"))
    lone.elect()
    lone.acknowledge_each("n1", lone.propose_each(2))
    assert watched.ticks
    assert isinstance(lone.replica._core, Core)
    assert [entry for _, entry in lone.applied] == [b"a", b"a"]


@pytest.mark.parametrize(("size", "others"), [(2, 1), (3, 1), (4, 2), (5, 2)])
def test_a_leader_leads_while_a_majority_answers(size: int, others: int) -> None:
    lone = Lone(size)
    lone.elect()
    for answering, role in ((others, "leader"), (others - 1, "follower")):
        for _ in range(50):
            for peer in lone.peers[:answering]:
                lone.acknowledge(peer, lone.replica.last_index)
            lone.run(0.05)
        assert lone.replica.role == role


def test_an_idle_leader_sends_a_heartbeat_per_period() -> None:
    lone = Lone()
    lone.elect()
    for _ in range(100):
        for peer in lone.peers:
            lone.acknowledge(peer, lone.replica.last_index)
        lone.run(0.01)
    periods = 1.0 / lone.replica._config.heartbeat_s
    assert periods * 0.8 <= len(lone.take(messages.APPEND)) / 2 <= periods + 1


def told(lone: Lone, index: int) -> list[str]:
    """Return the members that were told of a commit without entries, and forget all messages.

    Appends with entries carry the commit index anyway.
    """
    sent, lone.sent = lone.sent, []
    return [
        to
        for to, message in sent
        if message[0] == messages.APPEND and message[3] >= index and not message[7]
    ]


def committed(lone: Lone, *later: str) -> int:
    """Propose an entry, of which `later` may learn later, and let a majority have it."""
    index = lone.replica.propose(b"a")
    if later:
        lone.replica.tell_later(index, later)
    lone.replica.turn()
    lone.clock.run(0.01)
    lone.acknowledge("n1", index)
    lone.sent.clear()
    lone.replica.turn()
    assert lone.replica.commit_index == index
    return index


def test_all_members_are_told_of_a_commit_unless_they_can_wait() -> None:
    lone = Lone()
    lone.elect()
    assert told(lone, committed(lone)) == ["n1", "n2"]
    assert told(lone, committed(lone, "n2")) == ["n1"]
    assert told(lone, committed(lone, "n1", "n2")) == []
    assert told(lone, committed(lone)) == ["n1", "n2"]


def test_who_can_wait_learns_of_a_commit_with_the_next_entry() -> None:
    lone = Lone()
    lone.elect()
    index = committed(lone, "n1", "n2")
    lone.replica.propose(b"b")
    lone.replica.turn()
    appends = lone.take(messages.APPEND)
    assert [(message[3], len(message[7]) // 2) for message in appends] == [(index, 1)] * 2


def test_who_can_wait_learns_of_a_commit_with_the_next_heartbeat() -> None:
    lone = Lone()
    lone.elect()
    index = committed(lone, "n1", "n2")
    lone.run(lone.replica._config.heartbeat_s + 0.01)
    assert told(lone, index) == ["n1", "n2"]


def test_one_entry_that_cannot_wait_is_enough() -> None:
    lone = Lone()
    lone.elect()
    first = lone.replica.propose(b"a")
    lone.replica.turn()
    last = lone.replica.propose(b"b")
    lone.replica.tell_later(first, ("n1",))
    lone.replica.tell_later(last, ("n1", "n2"))
    lone.replica.turn()
    lone.clock.run(0.01)
    lone.acknowledge("n1", last)
    lone.sent.clear()
    lone.replica.turn()
    assert told(lone, last) == ["n2"]


def test_another_leadership_forgets_who_can_wait() -> None:
    lone = Lone()
    lone.elect()
    lost = lone.replica.propose(b"a")
    lone.replica.tell_later(lost, ("n1", "n2"))
    term = lone.replica.term + 1
    lone.append("n1", term, (lost - 1, term - 1), [(term, b"b"), (term, b"c")], commit=lost)
    lone.run(0.02)
    assert not lone.replica._core._path._later


def test_an_entry_asks_for_a_turn_when_it_can_be_committed_and_for_no_other() -> None:
    lone = Lone()
    lone.elect()
    lone.run(0.05)
    before = lone.woken
    index = lone.replica.propose(b"a")
    lone.replica.turn()
    assert lone.take(messages.APPEND)
    lone.clock.run(0.01)
    assert lone.woken == before
    lone.acknowledge("n1", index)
    lone.replica.turn()
    assert lone.applied[-1] == (index, b"a")
    assert lone.woken == before + 1


def test_a_turn_sends_a_part_of_what_a_member_lacks_and_only_to_it() -> None:
    """A leader sent 16 MiB in one turn, which took longer than an election."""
    lone = Lone()
    lone.elect()
    first = lone.replica.last_index + 1
    journal, term = lone.replica._journal, lone.replica.term
    for index in range(first, first + 2000):
        journal.add(OURS + b"a", index, term)
    lone.replica._core.next_index[lone.replica._shared.members["n1"]] = journal.last + 1
    lone.take()
    lone.clock.run(0.06)  # the next heartbeat is due
    bound = SLICES_PER_TURN_MAX * SLICE_ENTRIES_MAX
    for turn in range(2000 // bound + 1):
        woken = lone.woken
        lone.replica.turn()
        appends = [(to, message) for to, message in lone.sent if message[0] == messages.APPEND]
        lone.take()
        assert turn == 0 or {to for to, _ in appends} == {"n2"}
        assert sum(len(message[7]) // 2 for to, message in appends if to == "n2") <= bound
        assert lone.woken > woken or turn == 2000 // bound
    _, last = appends[-1]
    assert last[4] + len(last[7]) // 2 == journal.last
    assert not lone.replica._core.has_unsent
