"""Tests of the replica as the node drives it: start, turns, failures, idle traffic."""

import errno

import pytest

from beanpole.replication.consensus import ENTRY_MAX_BYTES, Replica, ReplicaConfig
from beanpole.replication.pysyncobj import messages
from beanpole.storage.format import Identity
from tests.sim.cluster import Cluster
from tests.sim.lone import Lone


def test_it_is_a_replica() -> None:
    replica: Replica = Lone().replica
    assert (replica.node_id, replica.members) == ("n0", ("n0", "n1", "n2"))
    assert (replica.role, replica.leader, replica.term) == ("follower", None, 0)
    assert (replica.first_index, replica.last_index, replica.commit_index) == (1, 1, 1)
    assert replica.match_index("n1") == 0 and replica.journal_bytes > 0


def test_a_put_takes_two_delays_and_one_write() -> None:
    cluster = Cluster(3, seed=1)
    cluster.turn_delay_s = 0.0
    leader = cluster.wait_leader()
    cluster.put(leader)
    begun_s = cluster.clock.now_s
    cluster.put(leader)
    took_s = cluster.clock.now_s - begun_s
    assert took_s == pytest.approx(2 * cluster.network.delay_s + leader.disk.latency_s, abs=1e-4)


def test_six_messages_an_entry() -> None:
    cluster = Cluster(3, seed=1)
    leader = cluster.wait_leader()
    cluster.put(leader, 10)
    before = cluster.network.sent
    cluster.put(leader, 100)
    cluster.clock.run(0.002)
    # Two appends, two acknowledgements, two new commit indexes; and heartbeats.
    assert cluster.network.sent - before <= 100 * 6 + 100


def test_a_quiet_turn_asks_the_library_nothing() -> None:
    lone = Lone()
    lone.elect()
    lone.run(0.05)
    lone.take()
    for _ in range(100):
        lone.replica.turn()
    assert not lone.sent


def test_alone_it_leads_at_once_and_comes_back_with_everything() -> None:
    cluster = Cluster(1)
    begun_s = cluster.clock.now_s
    leader = cluster.wait_leader()
    assert cluster.clock.now_s - begun_s < 0.05
    cluster.put(leader, 20)
    done: list[int] = []
    leader.replica.confirm(lambda: done.append(1))
    cluster.clock.run(0.1)
    assert done
    leader = cluster.restart("n0")
    cluster.wait_leader()
    cluster.converge()
    assert len(leader.applied) == 20


def test_all_members_may_lose_power_at_once() -> None:
    cluster = Cluster(3, seed=8)
    cluster.put(cluster.wait_leader(), 30)
    for name in cluster.names:
        cluster.crash(name)
    for name in cluster.names:
        cluster.start(name)
    cluster.put(cluster.wait_leader(), 5)
    cluster.converge()
    assert len(cluster.acknowledged) == 35


def test_a_lost_tail_leaves_no_commit_index_ahead_of_the_log() -> None:
    """F10: a leader with a commit index beyond its log committed every new entry alone."""
    lone = Lone()
    lone.append("n1", 1, (1, 0), [(1, b"a")] * 20, commit=21)
    lone.replica.turn()
    assert lone.replica.commit_index == 21
    lone.crash()
    lone.start()
    assert lone.replica.last_index < 21
    assert lone.replica.commit_index <= lone.replica.last_index


@pytest.mark.parametrize(
    ("code", "remedy"), [(errno.EIO, "replace it and proceed"), (errno.ENOSPC, "make room on its")]
)
def test_a_failed_write_stops_the_node(code: int, remedy: str) -> None:
    lone = Lone()
    lone.elect()
    lone.disk.failing = OSError(code, "refused", "/log/1.wal")
    lone.replica.propose(b"a")
    lone.run(0.1)
    assert lone.reason is not None and lone.reason.startswith("the log could not be written")
    assert ": refused, at /log/1.wal; " in lone.reason and remedy in lone.reason
    sent = len(lone.sent)
    lone.run(1.0)
    lone.acknowledge("n1", lone.replica.last_index, 2**30)
    assert len(lone.sent) == sent and not lone.applied, "it does nothing any more"


def test_a_failed_write_of_a_vote_stops_the_node_before_it_is_sent() -> None:
    lone = Lone()
    lone.run(0.05)
    lone.disk.failing = OSError(errno.EIO, "refused")
    lone.receive("n1", messages.VOTE, 7, 1, 0, 0)
    assert lone.reason is not None
    assert not lone.take(messages.VOTE_GRANTED)


def test_a_fatal_error_of_one_node_leaves_the_others() -> None:
    cluster = Cluster(3, seed=9)
    cluster.deaths_expected = True
    leader = cluster.wait_leader()
    leader.disk.failing = OSError(errno.EIO, "refused")
    cluster.propose(leader)
    cluster.clock.run(0.1)
    assert [name for name, _ in cluster.deaths] == [leader.name]
    cluster.crash(leader.name)
    cluster.put(cluster.wait_leader(), 5)
    cluster.start(leader.name)
    cluster.converge()


def test_a_turn_inside_a_callback_is_a_programmers_error() -> None:
    lone = Lone(1)
    lone.run(0.1)
    lone.replica.confirm(lone.replica.turn)
    lone.run(0.02)
    assert lone.reason is not None and "from inside one of its callbacks" in lone.reason


def test_proposals_are_checked() -> None:
    lone = Lone()
    with pytest.raises(AssertionError, match="without can_propose"):
        lone.replica.propose(b"a")
    lone.elect()
    for entry in (b"", bytes(ENTRY_MAX_BYTES + 1)):
        with pytest.raises(AssertionError, match="an entry of"):
            lone.replica.propose(entry)
    lone.replica.propose(bytes(ENTRY_MAX_BYTES))
    lone.run(0.01)
    (message,) = lone.take(messages.APPEND, "n1")
    assert len(message[7][1]) == ENTRY_MAX_BYTES + 1, "the largest entry travels in one piece (B6)"


def test_a_closed_replica_is_silent() -> None:
    lone = Lone()
    lone.elect()
    lone.replica.propose(b"a")
    lone.replica.close()
    lone.replica.close()
    lone.take()
    lone.run(3.0)
    assert not lone.take() and not lone.replica.can_propose()
    lone.acknowledge("n1", 1)
    lone.replica.connected("n1")
    lone.replica.disconnected("n1")
    assert lone.replica.role == "follower"
    lone.start()
    assert lone.replica.last_index == 3, "closing writes what was buffered"


def test_configurations_that_cannot_work_are_refused() -> None:
    identity = Identity("c", "n0")
    for members, over in (
        (("n1", "n2"), {}),
        (("n0", "n0"), {}),
        (("n0",), {"rejoin": True}),
        (("n0", "n1"), {"heartbeat_s": 0.4}),
    ):
        with pytest.raises(AssertionError):
            ReplicaConfig("n0", members, "/n0", identity, **over)
