"""Tests of a member that lost its disk (A6)."""

import pytest

from beanpole.replication.pysyncobj import messages
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim.cluster import Cluster
from tests.sim.lone import Lone

both = pytest.mark.parametrize("repaired", [True, False])


def replaced(cluster: Cluster, name: str) -> None:
    """Give a node an empty disk and start it."""
    cluster.crash(name)
    cluster.disks[name].wipe()
    cluster.rejoin.add(name)
    cluster.start(name)


@both
def test_it_neither_votes_nor_stands(repaired: bool) -> None:
    repairs = ALL_REPAIRS if repaired else ALL_REPAIRS.without("rejoin_without_vote")
    lone = Lone(repairs=repairs, rejoin=True)
    assert lone.replica.rejoining is repaired
    lone.receive("n1", messages.PRE_VOTE, 1, 9, 0)
    lone.receive("n1", messages.VOTE, 1, 9, 0, 0)
    lone.receive("n1", messages.TIMEOUT_NOW, 0)
    lone.run(5.0)
    kinds = {message[0] for message in lone.take()}
    assert (kinds == set()) is repaired


def test_it_does_not_stand_when_its_leader_hands_over_to_it() -> None:
    """The leader may not know of the new disk yet: its last acknowledgement was of the old one."""
    lone = Lone(rejoin=True)
    lone.append("n1", 1, (1, 0))
    lone.run(0.05)
    assert lone.replica.leader == "n1"
    lone.receive("n1", messages.TIMEOUT_NOW, 1)
    lone.replica.turn()
    assert (lone.replica.role, lone.replica.term) == ("follower", 1)
    assert lone.take(messages.VOTE) == []


def test_it_counts_only_when_its_node_was_told_so() -> None:
    lone = Lone(rejoin=True)
    lone.crash()
    lone.start()
    assert lone.replica.rejoining, "a crash does not end it"
    lone.append("n1", 4, (1, 0), [(4, b"a")], commit=2)
    lone.run(2.5)
    nonce = lone.take(messages.ACK)[-1][5]
    lone.receive("n1", messages.REJOINED_AT, 4, nonce + 1, 2)
    lone.receive("n1", messages.REJOINED_AT, 3, nonce, 2)
    lone.run(0.1)
    assert lone.replica.rejoining, "the proof of another life or term"
    lone.receive("n1", messages.REJOINED_AT, 4, nonce, 3)
    lone.run(0.1)
    assert lone.replica.rejoining, "it does not have all of it"
    lone.append("n1", 4, (2, 4), [(4, b"b")], commit=3)
    lone.run(0.1)
    assert not lone.replica.rejoining
    assert not lone.over["rejoin"], "the node remembers it"
    lone.append("n1", 4, (3, 4))
    assert lone.take(messages.ACK)[-1][5] == 0
    lone.crash()
    lone.start()
    assert not lone.replica.rejoining


def test_it_waits_until_old_votes_are_void() -> None:
    lone = Lone(rejoin=True)
    lone.append("n1", 4, (1, 0), [(4, b"a")], commit=2)
    lone.run(0.1)
    nonce = lone.take(messages.ACK)[-1][5]
    lone.receive("n1", messages.REJOINED_AT, 4, nonce, 2)
    lone.run(1.0)
    assert lone.replica.rejoining
    lone.run(1.0)
    assert not lone.replica.rejoining


def test_a_leader_does_not_count_it_and_proves_itself_by_the_others() -> None:
    lone = Lone()
    lone.elect()
    term, nonce = lone.replica.term, 77
    index = lone.replica.propose(b"a")
    lone.run(0.02)
    lone.receive("n1", messages.ACK, term, lone.round, index + 1, messages.MATCHED, nonce)
    lone.run(0.1)
    assert not lone.applied and not lone.take(messages.REJOINED_AT)
    assert not lone.replica.transfer("n1")
    lone.run(0.1)
    lone.acknowledge("n2", index)
    lone.run(0.02)
    assert lone.applied == [(index, b"a")]
    lone.receive("n1", messages.ACK, term, lone.round, index + 1, messages.MATCHED, nonce)
    assert lone.take(messages.REJOINED_AT) == [(messages.REJOINED_AT, term, nonce, index)]
    lone.receive("n1", messages.ACK, term, 1, index + 1, messages.MATCHED, 0)
    later = lone.replica.propose(b"b")
    lone.run(0.02)
    lone.acknowledge("n1", later)
    lone.run(0.02)
    assert lone.applied[-1] == (later, b"b"), "now it counts again"


def test_a_leader_hands_over_to_a_member_that_counts() -> None:
    lone = Lone()
    lone.elect()
    index = lone.replica.propose(b"a")
    lone.run(0.02)
    # It has the whole log, the other does not.
    lone.receive("n1", messages.ACK, lone.replica.term, lone.round, index + 1, messages.MATCHED, 77)
    assert lone.replica.match_index("n1") == 0 < lone.replica.match_index("n2")
    assert lone.replica.transfer(None)


def test_answers_of_it_alone_keep_no_leader_in_office() -> None:
    lone = Lone()
    lone.elect()
    for _ in range(50):
        lone.run(0.05)
        lone.receive("n1", messages.ACK, lone.replica.term, lone.round, 3, messages.MATCHED, 77)
    assert lone.replica.role == "follower"


def test_a_replaced_disk_is_filled_and_counts_again() -> None:
    cluster = Cluster(3, seed=11, snapshot_bytes_min=20_000, log_retain_bytes=2_000)
    leader = cluster.wait_leader()
    cluster.put(leader, 100, 300)
    cluster.clock.run(1.5)
    name = next(name for name in cluster.names if name != leader.name)
    replaced(cluster, name)
    node = cluster.nodes[name]
    assert node.replica.rejoining
    assert cluster.clock.run_until(lambda: not node.replica.rejoining, 10.0)
    cluster.converge()
    third = next(other for other in cluster.names if other not in (name, leader.name))
    cluster.crash(third)
    cluster.put(cluster.wait_leader(), 5)


def test_it_waits_for_a_majority_of_the_others() -> None:
    cluster = Cluster(3, seed=12)
    leader = cluster.wait_leader()
    entries = cluster.put(leader, 5)
    name, third = [name for name in cluster.names if name != leader.name]
    cluster.crash(third)
    replaced(cluster, name)
    cluster.clock.run(20.0)
    assert cluster.nodes[name].replica.rejoining
    assert not any(node.replica.role == "leader" for node in cluster.nodes.values())
    cluster.start(third)
    assert cluster.clock.run_until(lambda: not cluster.nodes[name].replica.rejoining, 20.0)
    cluster.converge()
    assert cluster.acknowledged == set(entries)
