"""Tests of elections: C1 to C5, D1, and handing leadership over."""

import pytest

from beanpole.replication.consensus import TURN_PERIOD_MAX_S
from beanpole.replication.pysyncobj import messages
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim.cluster import Cluster
from tests.sim.lone import Lone

both = pytest.mark.parametrize("repaired", [True, False])


def until_candidate(lone: Lone) -> int:
    """Let the replica stand for election, and return the term."""
    while not lone.take(messages.PRE_VOTE):
        lone.run(0.01)
    term = lone.replica.term + 1
    for peer in lone.peers[: (len(lone.peers) + 1) // 2]:
        lone.receive(peer, messages.PRE_VOTE_GRANTED, term)
    lone.replica.turn()
    assert (lone.replica.role, lone.replica.term) == ("candidate", term)
    return term


@both
def test_a_vote_counts_once(repaired: bool) -> None:
    """C1: the library counts messages."""
    lone = Lone(5, ALL_REPAIRS if repaired else ALL_REPAIRS.without("votes_by_name"))
    term = until_candidate(lone)
    lone.receive("n1", messages.VOTE_GRANTED, term)
    lone.receive("n1", messages.VOTE_GRANTED, term)
    assert lone.replica.role == ("candidate" if repaired else "leader")
    lone.receive("n2", messages.VOTE_GRANTED, term)
    assert lone.replica.role == "leader"


def test_a_vote_that_comes_after_the_candidacy_does_not_count() -> None:
    lone = Lone()
    term = until_candidate(lone)
    lone.clock.run(1.5)
    lone.receive("n1", messages.VOTE_GRANTED, term)
    assert lone.replica.role == "candidate"


@both
def test_a_vote_survives_a_crash(repaired: bool) -> None:
    """C2: a forgotten vote makes two leaders in one term."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("sync_votes"))
    lone.clock.run(0.01)
    lone.receive("n1", messages.VOTE, 7, 1, 0, 0)
    assert lone.take() == [(messages.VOTE_GRANTED, 7)]
    lone.crash()
    lone.start()
    lone.receive("n2", messages.VOTE, 7, 1, 0, 0)
    assert lone.take(messages.VOTE_GRANTED) == ([] if repaired else [(messages.VOTE_GRANTED, 7)])


def test_a_vote_waits_for_a_disk_that_is_at_work_and_the_loop_does_not() -> None:
    """A hanging disk blocked the whole node while the others elected another leader."""
    lone = Lone()
    lone.append("n1", 1, (1, 0))
    lone.clock.run(0.01)
    lone.disk.latency_s = 1e6
    lone.append("n1", 1, (1, 0), [(1, b"a")])
    lone.run(1.0)
    lone.take()
    lone.receive("n2", messages.VOTE, 2, 2, 1, 0)
    lone.append("n2", 2, (2, 1), [(2, b"b")])
    lone.run(0.1)
    assert (lone.replica.term, lone.replica.leader) == (2, "n2")
    assert lone.take(messages.VOTE_GRANTED) == lone.take(messages.ACK) == []
    lone.disk.hasten(0.0005)
    lone.run(0.1)
    sent = lone.take()
    assert (messages.VOTE_GRANTED, 2) in sent
    assert [message[3] for message in sent if message[0] == messages.ACK][-1] == 4
    lone.crash()
    lone.start()
    lone.receive("n1", messages.VOTE, 2, 9, 9, 0)
    assert lone.take(messages.VOTE_GRANTED) == []


def test_what_waited_for_the_disk_is_not_said_in_a_later_term() -> None:
    lone = Lone()
    lone.disk.latency_s = 1e6
    lone.receive("n1", messages.VOTE, 2, 1, 0, 0)
    lone.receive("n2", messages.VOTE, 3, 1, 0, 0)
    assert lone.take(messages.VOTE_GRANTED) == []
    lone.disk.hasten(0.0005)
    lone.run(0.05)
    assert lone.take(messages.VOTE_GRANTED) == [(messages.VOTE_GRANTED, 3)]


def test_a_member_whose_disk_hangs_does_not_stand() -> None:
    lone = Lone()
    lone.replica.note_disk(True)
    lone.run(5.0)
    lone.receive("n1", messages.TIMEOUT_NOW, 0)
    lone.run(0.1)
    assert lone.replica.term == 0 and lone.take(messages.PRE_VOTE) == []
    lone.replica.note_disk(False)
    lone.run(2.0)
    assert lone.take(messages.PRE_VOTE) != []


@both
def test_a_member_that_is_cut_off_keeps_its_term(repaired: bool) -> None:
    """C3: it came back with a higher term and deposed a working leader."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("pre_vote"))
    lone.append("n1", 1, (1, 0))
    lone.run(10.0)
    assert (lone.replica.term == 1) is repaired


@both
def test_a_member_with_a_leader_votes_for_no_other(repaired: bool) -> None:
    """C3: one bad link deposed the leader again and again."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("leader_stickiness"))
    lone.append("n1", 1, (1, 0))
    lone.clock.run(0.01)
    lone.receive("n2", messages.VOTE, 2, 1, 0, 0)
    assert lone.replica.term == (1 if repaired else 2)
    assert bool(lone.take(messages.VOTE_GRANTED)) is not repaired


def test_a_leader_with_a_majority_is_not_voted_out() -> None:
    lone = Lone()
    lone.elect()
    lone.receive("n2", messages.VOTE, 9, 9, 9, 0)
    assert lone.replica.leader == "n0"
    lone.receive("n2", messages.VOTE, 9, 9, 8, 1)  # the leader itself hands over
    assert lone.replica.leader is None


def test_pre_votes_are_given_only_without_a_leader_and_to_a_log_as_long() -> None:
    lone = Lone()
    lone.append("n1", 1, (1, 0), [(1, b"a")])
    lone.take()
    lone.receive("n2", messages.PRE_VOTE, 2, 2, 1)
    assert lone.take() == [], "there is a leader"
    lone.run(0.51)
    lone.take()
    lone.receive("n2", messages.PRE_VOTE, 2, 1, 0)
    assert lone.take() == [], "its log is shorter"
    lone.receive("n2", messages.PRE_VOTE, 2, 2, 1)
    assert lone.take() == [(messages.PRE_VOTE_GRANTED, 2)]
    lone.receive("n2", messages.PRE_VOTE, 1, 2, 1)
    assert lone.take() == [(messages.HIGHER_TERM, 1)], "its term is over"
    assert lone.replica.term == 1


def test_pre_votes_are_void_after_a_message_of_a_leader() -> None:
    lone = Lone()
    while not lone.take(messages.PRE_VOTE):
        lone.run(0.01)
    lone.receive("n1", messages.PRE_VOTE_GRANTED, 1)
    lone.append("n2", 1, (1, 0))
    lone.run(0.2)
    assert lone.replica.term == 1 and lone.replica.leader == "n2"
    lone.run(2.0)
    assert lone.replica.role == "follower", "it asks again before it stands"


@both
def test_a_pause_is_not_silence_of_the_leader(repaired: bool) -> None:
    """C4: after a pause it stood for election before it read the heartbeats that were waiting."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("pause_is_not_silence"))
    lone.append("n1", 1, (1, 0))
    lone.run(0.1)
    lone.take()
    lone.clock.run(5.0)
    lone.replica.turn()
    assert bool(lone.take(messages.PRE_VOTE)) is not repaired
    lone.run(1.1)
    assert lone.take(messages.PRE_VOTE), "after a full timeout it does"


def test_the_longest_turns_are_no_pause_for_the_shortest_timeout() -> None:
    """With a shorter one, which was allowed, there was never an election."""
    lone = Lone(raft_min_s=0.05, raft_max_s=0.06, heartbeat_s=0.01)
    lone.run(1.0, TURN_PERIOD_MAX_S)
    assert lone.take(messages.PRE_VOTE)


@both
def test_a_deposed_leader_gives_the_others_time(repaired: bool) -> None:
    """C5: the deadline of a leader is as old as its leadership."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("deposed_leader_waits"))
    lone.elect()
    for _ in range(30):
        lone.run(0.05)
        for peer in lone.peers:
            lone.acknowledge(peer, lone.replica.last_index)
    assert lone.replica.role == "leader"
    lone.take()
    lone.receive("n1", messages.HIGHER_TERM, 9)
    assert (lone.replica.role, lone.replica.term) == ("follower", 9)
    lone.run(0.1)
    assert bool(lone.take(messages.PRE_VOTE)) is not repaired


@both
def test_a_leader_without_answers_steps_down(repaired: bool) -> None:
    """D1: it continued to lead for 30 s, beside its successor."""
    lone = Lone(repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("check_quorum"))
    lone.elect()
    lone.run(2.2)
    assert lone.replica.role == ("follower" if repaired else "leader")


def test_a_cut_link_of_one_member_costs_no_term() -> None:
    """C3: with one cut link of three, the library changed leaders all the time."""
    cluster = Cluster(3, seed=4)
    leader = cluster.wait_leader()
    term = leader.replica.term
    first, second = [name for name in cluster.names if name != leader.name]
    cluster.network.partition({(first, second), (second, first)})
    cluster.clock.run(30.0)
    cluster.network.partition({(first, leader.name), (leader.name, first)})
    cluster.clock.run(30.0)
    cluster.network.heal()
    cluster.converge()
    assert leader.replica.term == term


def test_leadership_is_handed_over_under_load() -> None:
    """C7: the library refuses while entries are in flight."""
    cluster = Cluster(3, seed=5)
    leader = cluster.wait_leader()
    cluster.put(leader)
    target = next(name for name in cluster.names if name != leader.name)
    while leader.replica.can_propose():
        cluster.propose(leader)
    assert leader.replica.transfer(target)
    assert not leader.replica.can_propose()
    begun_s = cluster.clock.now_s
    assert cluster.clock.run_until(lambda: cluster.nodes[target].replica.role == "leader", 1.0)
    assert cluster.clock.now_s - begun_s < 0.1
    cluster.converge()
    assert len(cluster.acknowledged) == 9


def test_a_transfer_to_nobody_is_refused_and_a_stuck_one_ends() -> None:
    lone = Lone()
    assert not lone.replica.transfer("n1"), "a follower has nothing to hand over"
    lone.elect()
    assert not lone.replica.transfer("n9")
    lone.replica.propose(b"a")
    assert lone.replica.transfer(None)
    assert not lone.replica.transfer("n1"), "one at a time"
    assert not lone.replica.can_propose()
    for _ in range(30):
        lone.run(0.05)
        for peer in lone.peers:
            lone.acknowledge(peer, lone.replica.last_index - 1)
    assert lone.replica.can_propose()
    assert not lone.take(messages.TIMEOUT_NOW)


def test_a_transfer_to_a_member_without_a_link_is_refused_and_holds_up_nothing() -> None:
    """No entry was proposed for a second, ten times in a row, and `None` chose that member, too."""
    lone = Lone()
    lone.elect()
    lone.disconnect("n2")
    assert not lone.replica.transfer("n2")
    assert lone.replica.can_propose()
    assert lone.replica.transfer(None)
    lone.replica.turn()
    assert lone.take(messages.TIMEOUT_NOW, "n1")
    lone = Lone()
    lone.elect()
    for peer in lone.peers:
        lone.disconnect(peer)
    assert not lone.replica.transfer(None)


def test_the_target_of_a_transfer_stands_at_once() -> None:
    lone = Lone()
    lone.append("n1", 1, (1, 0))
    lone.receive("n2", messages.TIMEOUT_NOW, 1)
    lone.run(0.05)
    assert lone.replica.role == "follower", "only the leader may ask"
    lone.receive("n1", messages.TIMEOUT_NOW, 1)
    lone.replica.turn()
    votes = lone.take(messages.VOTE)
    assert [message[1] for message in votes] == [2, 2]
    assert [message[4] for message in votes] == [1, 1]


def test_a_target_that_lost_its_links_does_not_stand_when_they_come_back() -> None:
    """It deposed the leader, which had given the transfer up long before."""
    lone = Lone()
    lone.append("n1", 1, (1, 0))
    lone.receive("n1", messages.TIMEOUT_NOW, 1)
    for peer in lone.peers:
        lone.disconnect(peer)
    lone.run(5.0)
    lone.take()
    for peer in lone.peers:
        lone.replica.connected(peer)
    lone.append("n1", 1, (1, 0))
    lone.run(0.4)
    assert (lone.replica.term, lone.replica.leader) == (1, "n1")
    assert not lone.take(messages.VOTE)
