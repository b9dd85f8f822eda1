"""Tests of durability "memory": the log is written later, in larger portions."""

from beanpole.replication.pysyncobj import messages
from beanpole.replication.pysyncobj.journal import WRITE_BEHIND_BYTES, WRITE_BEHIND_S
from tests.sim.lone import Lone

# A turn of the node comes as often, whatever happens.
TURN_S = 0.01


def leading(size: int = 3, durability: str = "memory") -> Lone:
    """Return a leader whose log is written to the end."""
    lone = Lone(size, durability=durability)
    if size > 1:
        lone.elect()
    lone.run(0.1)
    log = lone.replica.log_on_disk()
    assert lone.replica.role == "leader"
    assert log.written == log.end
    return lone


def writes_of(lone: Lone, seconds: float, step_s: float = 0.001) -> int:
    """Return the number of writes while an entry is proposed in each step of so much time."""
    before = lone.replica.disk().syncs
    end_s = lone.clock.now_s + seconds
    while lone.clock.now_s < end_s:
        lone.run(step_s, step_s)
        index = lone.replica.propose(b"a" * 100)
        lone.replica.turn()
        for peer in lone.peers:
            lone.acknowledge(peer, index)
        lone.replica.turn()
    assert lone.replica.commit_index >= lone.replica.last_index - 1
    return lone.replica.disk().syncs - before


def test_entries_share_a_write() -> None:
    for size in 1, 3:
        count = writes_of(leading(size), 1.0)
        assert 0.7 / WRITE_BEHIND_S < count <= 1.0 / WRITE_BEHIND_S + 1
        assert writes_of(leading(size, "sync"), 1.0) > 5 * count


def test_the_last_entry_is_written_soon() -> None:
    lone = leading()
    lone.replica.propose(b"a")
    lone.replica.turn()
    lone.run(0.001, 0.001)
    lone.replica.propose(b"b")
    lone.replica.turn()
    assert lone.replica.log_on_disk().last < lone.replica.last_index
    lone.run(WRITE_BEHIND_S + 2 * TURN_S, TURN_S)
    assert lone.replica.log_on_disk().last == lone.replica.last_index


def test_many_bytes_are_written_at_once() -> None:
    lone = leading()
    lone.replica.propose(b"a")
    lone.replica.turn()
    lone.run(0.001, 0.001)
    lone.replica.propose(bytes(WRITE_BEHIND_BYTES))
    lone.replica.turn()
    lone.run(0.001, 0.001)
    assert lone.replica.log_on_disk().last == lone.replica.last_index


def test_a_vote_behind_a_write_in_progress_does_not_wait_for_a_period() -> None:
    """It is held until it is on the disk, and other members wait for it."""
    lone = Lone(durability="memory")
    lone.append("n1", 1, (1, 0), [(1, b"a")])
    lone.run(0.05)
    lone.clock.run(1.0)  # the leader is silent
    lone.disk.latency_s = 0.002
    lone.append("n1", 1, (2, 1), [(1, b"b")])
    lone.replica.turn()
    assert lone.disk.busy
    lone.clock.run(0.0015)
    lone.take()
    lone.receive("n2", messages.VOTE, 2, 9, 1, 1)
    lone.replica.turn()
    assert not lone.take(messages.VOTE_GRANTED)
    lone.clock.run(0.001)  # the first write ends
    lone.replica.turn()
    lone.clock.run(0.0025)
    lone.replica.turn()
    assert lone.take(messages.VOTE_GRANTED)
