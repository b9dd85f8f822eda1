"""Tests of acknowledgements: group commit (D2), B3, B4, flow control (B7), confirmations (E1)."""

import pytest

from beanpole.errors import ProtocolError
from beanpole.replication.pysyncobj import journal, messages, transport
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim.lone import Lone

both = pytest.mark.parametrize("repaired", [True, False])


def acknowledged() -> tuple[Lone, int]:
    """Return a leader that will commit an entry in its next turn, and the index of the entry."""
    lone = Lone()
    lone.elect()
    index = lone.replica.propose(b"a")
    lone.replica.turn()
    lone.clock.run(0.001)
    lone.acknowledge("n1", index)
    lone.take()
    return lone, index


@both
def test_a_follower_acknowledges_what_its_disk_has(repaired: bool) -> None:
    """D2: an acknowledged entry was gone after a power cut."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("clip_follower_acks"))
    lone.run(0.05)
    lone.append("n1", 1, (1, 0), [(1, b"a"), (1, b"b")])
    lone.replica.turn()
    acks = [message[3] for message in lone.take(messages.ACK) if message[4] == messages.MATCHED]
    assert max(acks, default=0) == (2 if repaired else 4)
    lone.run(0.05)
    if repaired:
        assert lone.take(messages.ACK)[-1][3] == 4, "the rest follows when it is durable"


def test_a_slow_disk_still_gives_signs_of_life() -> None:
    lone = Lone()
    lone.run(0.05)
    lone.disk.latency_s = 100.0
    for place in range(100):
        lone.append("n1", 1, (1 + place, min(place, 1)), [(1, b"a")])
        lone.run(0.01)
    acks = lone.take(messages.ACK)
    assert 10 <= len(acks) <= 25, "about one per heartbeat"
    assert {message[3] for message in acks} == {2}


@both
def test_a_leader_counts_itself_when_its_disk_has_the_entry(repaired: bool) -> None:
    """D2: the library counts the leader at once; a power cut of two nodes lost the entry."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("clip_leader_acks"))
    lone.elect()
    lone.disk.latency_s = 100.0
    index = lone.replica.propose(b"a")
    lone.run(0.02)
    lone.acknowledge("n1", index)
    lone.run(0.02)
    assert lone.applied == ([] if repaired else [(index, b"a")])
    lone.acknowledge("n2", index)
    lone.run(0.02)
    assert lone.applied == [(index, b"a")], "a majority has it without the leader"
    assert lone.replica.durable_index < index


def test_an_entry_commits_when_the_leaders_disk_is_the_last() -> None:
    lone = Lone()
    lone.elect()
    lone.disk.latency_s = 0.5
    index = lone.replica.propose(b"a")
    lone.run(0.02)
    lone.acknowledge("n1", index)
    lone.run(0.1)
    assert not lone.applied
    lone.run(0.5)
    assert lone.applied == [(index, b"a")]


@both
def test_an_acknowledgement_of_another_term_does_not_count(repaired: bool) -> None:
    """B3: one delayed over two elections committed entries that only this node had."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("acks_of_this_term"))
    lone.elect()
    index = lone.replica.propose(b"a")
    lone.run(0.02)
    old = lone.replica.term - 1
    lone.receive("n1", messages.ACK, old, lone.round, index + 1, messages.MATCHED, 0)
    lone.run(0.02)
    assert lone.applied == ([] if repaired else [(index, b"a")])


def test_an_acknowledgement_beyond_the_log_is_refused() -> None:
    lone = Lone()
    lone.elect()
    with pytest.raises(ProtocolError, match="does not exist"):
        lone.acknowledge("n1", lone.replica.last_index + 1)
    lone.run(0.02)
    assert lone.reason is None and lone.replica.role == "leader"


@both
def test_acknowledgements_do_not_send_again_what_is_in_flight(repaired: bool) -> None:
    """B4: with 200 entries in flight each was sent nine times, which made B1 common."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("acks_never_rewind"))
    lone.elect()
    indexes = lone.propose_each(8)
    assert lone.entries_to("n1") == 8
    lone.acknowledge_each("n1", indexes)
    assert (lone.entries_to("n1") == 0) is repaired


@both
def test_a_rewind_is_honoured_once_per_resend(repaired: bool) -> None:
    """B4: every message after a gap asked again, and the whole backlog was sent for each."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("one_rewind_per_resend"))
    lone.elect()
    lone.propose_each(8)
    lone.miss("n1", 8, answers=5)
    assert lone.entries_to("n1") == (8 if repaired else 40)


def test_a_rewind_after_a_lost_resend_is_honoured() -> None:
    lone = Lone()
    lone.elect()
    for _ in range(4):
        lone.replica.propose(b"a")
    lone.replica.turn()
    for _ in range(3):
        round_ = lone.round
        lone.take()
        lone.receive("n1", messages.ACK, lone.replica.term, round_, 3, messages.REWIND, 0)
        lone.replica.turn()
        assert sum(len(m[7]) // 2 for to, m in lone.sent if to == "n1") == 4


def test_the_commit_index_is_told_at_once_and_needs_no_answer() -> None:
    lone, index = acknowledged()
    lone.replica.turn()
    notice = lone.take(messages.APPEND, "n2")
    assert [message[3] for message in notice] == [index]
    assert notice[0][6] == 0


def test_the_next_entry_travels_with_the_commit_index_and_before_the_apply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lone, index = acknowledged()
    happened: list[str] = []

    def committed() -> None:
        lone.replica.propose(b"b")

    def flush() -> None:
        (append,) = lone.take(messages.APPEND, "n2")
        happened.append(f"sent commit index {append[3]} and {len(append[7]) // 2} entry")

    def apply(at: int, term: int, entry: bytes) -> None:
        happened.append(f"applied {at}, disk busy: {lone.disk.busy}")

    for callback in (committed, flush, apply):
        monkeypatch.setattr(lone, callback.__name__, callback)
    lone.replica.turn()
    assert happened == [
        f"sent commit index {index} and 1 entry",
        f"applied {index}, disk busy: True",
    ]


def test_a_full_link_gets_only_heartbeats_until_it_takes_one() -> None:
    """B7: the leader kept sending, whatever the peer had read."""
    lone = Lone()
    lone.elect()
    lone.takes = False
    first = lone.replica.propose(b"a")
    lone.run(0.3)
    lone.takes = True
    lone.replica.propose(b"b")
    lone.run(0.01)
    lone.run(0.08)
    appends = lone.take(messages.APPEND, "n1")
    assert len(appends[0][7]) == 0, "first a heartbeat"
    entries = [message for message in appends if message[7]]
    assert entries[0][4] == first - 1, "then everything from what was not taken"


@pytest.mark.constants
@both
def test_what_is_in_flight_is_bounded(repaired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """B7: a peer that did not acknowledge got the whole backlog into its memory."""
    monkeypatch.setattr(transport, "WINDOW_BYTES", 10_000)
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("flow_control"))
    lone.elect()
    term = lone.replica.term
    backlog = 0
    while backlog < 100:
        while lone.replica.can_propose():
            lone.replica.propose(b"x" * 990)
            backlog += 1
        lone.run(0.01)
        lone.acknowledge("n2", lone.replica.last_index)  # a majority with the leader's disk
        lone.run(0.01)
    sent = lone.entries_to("n1")
    assert (sent <= 20) is repaired
    for _ in range(30):
        # The peer has received everything sent; more follows step by step.
        lone.receive("n1", messages.ACK, term, 2**30, 2 + sent + 1, messages.MATCHED, 0)
        lone.run(0.06)
        sent += lone.entries_to("n1")
    assert sent >= 100


def test_the_window_fits_the_path() -> None:
    """Messages in flight on a slow path took seconds, and heartbeats waited behind them."""
    lone = Lone()
    lone.elect()
    lines = lone.replica._transport
    link, first = lines.links["n1"], lines.links["n1"].window_bytes

    def answer(late_s: float, in_a_full_window: bool = False) -> int:
        lone.take()
        lone.run(0.06)
        round_ = lone.round
        for _ in range(int(late_s / 0.3)):
            lone.run(0.3)
            lone.acknowledge("n2", 1)
        link.paused = in_a_full_window
        lone.acknowledge("n1", 1, round_)
        link.paused = in_a_full_window
        lone.acknowledge("n1", 1, round_)  # of the same round: nothing was sent since
        return link.window_bytes

    assert answer(0) == first
    assert answer(1) == first // 2
    assert answer(1) == first // 4 == transport.WINDOW_BYTES_MIN
    assert answer(1) == transport.WINDOW_BYTES_MIN
    assert answer(0.3, in_a_full_window=True) == first // 2
    for _ in range(10):
        largest = answer(0, in_a_full_window=True)
    assert largest == transport.WINDOW_BYTES
    lone.disconnect("n1")
    lone.replica.connected("n1")
    assert link.window_bytes == first


@pytest.mark.constants
def test_what_a_peer_gets_before_it_acknowledges_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer with an empty disk, or on a new link, got the whole log in one turn (seed 376)."""
    monkeypatch.setattr(transport, "WINDOW_BYTES", 10_000)
    monkeypatch.setattr(journal, "SLICE_BYTES_MAX", 4_000)
    lone = Lone()
    lone.elect()
    term, backlog = lone.replica.term, 0
    while backlog < 100:
        while lone.replica.can_propose():
            lone.replica.propose(b"x" * 990)
            backlog += 1
        lone.run(0.01)
        lone.acknowledge("n2", lone.replica.last_index)
        lone.run(0.01)
    lone.take()
    lone.disconnect("n1")
    lone.replica.connected("n1")
    lone.run(0.02)
    assert 0 < lone.entries_to("n1") <= 20
    lone.receive("n1", messages.ACK, term, 2**30, 2, messages.REWIND, 0)
    lone.run(0.02)
    sent = lone.entries_to("n1")
    assert 0 < sent <= 20
    lone.disconnect("n1")
    lone.replica.connected("n1")
    lone.run(0.02)
    more = lone.entries_to("n1")
    assert 0 < more <= 20, "on a link that follows one without an acknowledgement"
    sent += more
    for _ in range(30):
        lone.receive("n1", messages.ACK, term, 2**30, 2 + sent, messages.MATCHED, 0)
        lone.run(0.02)
        lone.acknowledge("n2", lone.replica.last_index)
        sent += lone.entries_to("n1")
    assert sent >= 100


@both
def test_a_confirmation_needs_answers_to_something_sent_later(repaired: bool) -> None:
    """E1: a leader that was replaced answered reads."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("confirm_by_majority"))
    lone.elect()
    lone.run(0.06)
    old = lone.round
    done: list[str] = []
    lone.replica.confirm(lambda: done.append("confirmed"))
    lone.acknowledge("n1", lone.replica.last_index, old)
    lone.take()
    lone.replica.turn()
    assert bool(done) is not repaired
    assert lone.take(messages.APPEND, "n1")[0][6] == 1 or not repaired, "an answer is asked for"
    lone.acknowledge("n2", lone.replica.last_index)
    lone.replica.turn()
    assert done == ["confirmed"]


def test_a_confirmation_is_dropped_with_leadership() -> None:
    lone = Lone()
    lone.elect()
    done: list[str] = []
    lone.replica.confirm(lambda: done.append("confirmed"))
    lone.receive("n1", messages.HIGHER_TERM, 9)
    lone.replica.turn()
    lone.acknowledge("n1", lone.replica.last_index)
    lone.run(0.1)
    assert not done
    lone.replica.confirm(lambda: done.append("confirmed"))
    lone.run(0.1)
    assert not done, "a follower confirms nothing"


def test_a_majority_answers_for_a_while_only() -> None:
    lone = Lone()
    assert not lone.replica.majority_answers
    lone.elect()
    assert lone.replica.majority_answers
    lone.run(0.6)
    assert not lone.replica.majority_answers


def answered(lone: Lone, peer: str, round_: int | None = None) -> int:
    """Let a peer answer, and return when a majority was heard, in microseconds."""
    lone.acknowledge(peer, lone.replica.last_index, round_)
    lone.replica.turn()
    return lone.replica.majority_heard_us


def test_a_late_answer_shows_only_when_the_message_was_sent() -> None:
    lone = Lone()
    assert not lone.replica.majority_heard_us
    lone.elect()
    lone.run(0.1)
    old = lone.round
    begun_us = answered(lone, "n1")
    for _ in range(3):
        lone.run(0.3)
        assert answered(lone, "n2", old) == begun_us
    assert lone.replica.majority_answers, "the last one arrived now"
    assert 800_000 <= answered(lone, "n2") - begun_us <= 900_000
    lone.receive("n1", messages.HIGHER_TERM, 9)
    lone.replica.turn()
    assert not lone.replica.majority_heard_us


def test_a_leader_forgets_when_it_sent_old_messages() -> None:
    lone = Lone()
    lone.elect()
    lone.run(0.1)
    old = lone.round
    for _ in range(40):
        lone.run(0.3)
        heard_us = answered(lone, "n1")
    assert answered(lone, "n2", old) == heard_us
    assert answered(lone, "n1", old) == heard_us, "an answer that was overtaken"


@both
def test_alone_an_entry_waits_for_the_disk(repaired: bool) -> None:
    """D2: with one member there is no acknowledgement to delay."""
    lone = Lone(1, ALL_REPAIRS if repaired else ALL_REPAIRS.without("alone_waits_for_disk"))
    lone.run(0.1)
    assert lone.replica.role == "leader"
    index = lone.replica.propose(b"a")
    assert not lone.replica.can_propose(), "what arrives meanwhile forms the next entry"
    lone.replica.turn()
    lone.replica.turn()
    assert lone.applied == ([] if repaired else [(index, b"a")])
    lone.run(0.02)
    assert lone.applied == [(index, b"a")]
    assert lone.replica.can_propose()


def test_in_memory_nothing_waits_for_the_disk() -> None:
    lone = Lone(1, durability="memory")
    lone.run(0.1)
    lone.disk.latency_s = 100.0
    index = lone.replica.propose(b"a")
    assert lone.replica.durable_index == index
    lone.replica.turn()
    lone.replica.turn()
    assert lone.applied == [(index, b"a")]


def test_at_most_eight_entries_are_in_flight() -> None:
    lone = Lone()
    lone.elect()
    count = 0
    while lone.replica.can_propose():
        lone.replica.propose(b"a")
        count += 1
    assert count == 8


# --- a disk that is far behind --------------------------------------------------------------------


@pytest.mark.constants
def test_a_leader_whose_own_disk_hangs_proposes_no_more_than_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It kept 438 MiB in 5 s, because its followers commit without it."""
    monkeypatch.setattr(journal, "UNWRITTEN_BYTES_MAX", 10_000)
    lone = Lone()
    lone.elect()
    lone.disk.latency_s = 1e6
    count = 0
    while lone.replica.can_propose() and count < 100:
        index = lone.replica.propose(bytes(1000))
        lone.run(0.01)
        for peer in lone.peers:
            lone.acknowledge(peer, index)
        lone.run(0.01)
        count += 1
    assert lone.replica.commit_index == lone.replica.last_index
    assert 9 <= count <= 11
    log = lone.replica.log_on_disk()
    assert log.last == lone.replica.last_index - count
    assert 10_000 < log.end - log.written < 12_000
    lone.disk.hasten(0.0005)
    lone.run(0.01)
    assert lone.replica.can_propose()
    log = lone.replica.log_on_disk()
    assert (log.last, log.written) == (lone.replica.last_index, log.end)


@pytest.mark.constants
def test_a_follower_whose_disk_hangs_takes_no_more_than_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new leader, or one with a new link, does not know which entries are in flight."""
    monkeypatch.setattr(journal, "UNWRITTEN_BYTES_MAX", 10_000)
    lone = Lone()
    lone.append("n1", 1, (1, 0))
    lone.run(0.01)
    lone.disk.latency_s = 1e6
    for index in range(2, 40):
        lone.append("n1", 1, (index - 1, 0 if index == 2 else 1), [(1, bytes(1000))])
        lone.replica.turn()
    log = lone.replica.log_on_disk()
    assert log.end - log.written < 12_000
    assert {message[4] for message in lone.take(messages.ACK)} >= {messages.ALIVE}
    last = lone.replica.last_index
    lone.disk.hasten(0.0005)
    lone.run(0.05)
    lone.take()
    lone.append("n1", 1, (39, 1))
    (answer,) = lone.take(messages.ACK)
    assert (answer[3], answer[4]) == (last + 1, messages.REWIND)


def test_how_far_the_disk_is_is_known_in_memory_too() -> None:
    lone = Lone(durability="memory")
    lone.elect()
    lone.disk.latency_s = 1e6
    index = lone.replica.propose(b"a")
    lone.run(0.05)
    assert lone.replica.durable_index == index
    assert lone.replica.log_on_disk().last == index - 1
