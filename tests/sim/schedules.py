"""Directed schedules for replicas: situations that random runs find too rarely.

Each function takes a seed, which it ignores, and the repairs that are on, and raises a Violation if
a guarantee is broken. Most drive one replica among scripted peers (`lone`), the others a cluster.
Schedules for whole nodes are in `schedules_node`.
"""

from collections.abc import Sequence

from beanpole.replication.pysyncobj import messages, transport
from beanpole.replication.pysyncobj.journal import SLICE_BYTES_MAX, SLICE_ENTRIES_MAX
from beanpole.replication.pysyncobj.repairs import Repairs
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from tests.sim.cluster import Cluster, Violation
from tests.sim.lone import Lone
from tests.sim.mutations import planted


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise Violation(words)


def _stand(lone: Lone, voters: Sequence[str]) -> int:
    """Let the replica become a candidate and return its term."""
    while not lone.take(messages.PRE_VOTE):
        lone.run(0.01)
    term = lone.replica.term + 1
    for peer in voters:
        lone.receive(peer, messages.PRE_VOTE_GRANTED, term)
    lone.replica.turn()
    assert lone.replica.role == "candidate"
    return term


# --- acknowledgements and resending (B3, B4, B5, B7, F11) -----------------------------------------


def an_acknowledgement_of_an_earlier_term(_: int, repairs: Repairs) -> None:
    """B3: an acknowledgement that is late by two elections is about entries that are gone since."""
    lone = Lone(repairs=repairs)
    lone.elect()
    index = lone.replica.propose(b"a")
    lone.run(0.02)
    old = lone.replica.term - 1
    lone.receive("n1", messages.ACK, old, lone.round, index + 1, messages.MATCHED, 0)
    lone.run(0.02)
    _require(not lone.applied, f"{index} is committed by an acknowledgement of term {old}")


def an_entry_of_an_earlier_term_on_a_majority(_: int, repairs: Repairs) -> None:
    """Figure 8 of Raft's paper: it may be replaced until an entry of this term is on a majority."""
    lone = Lone(repairs=repairs)
    lone.run(0.05)
    lone.append("n1", 1, (1, 0), [(1, b"a")])
    lone.run(0.05)
    _stand(lone, ("n1",))
    lone.receive("n1", messages.VOTE_GRANTED, lone.replica.term)
    lone.run(0.02)
    lone.acknowledge("n1", 2)
    lone.run(0.02)
    _require(not lone.applied, "an entry of an earlier term is committed by counting members")
    lone.acknowledge("n1", 3)
    lone.run(0.02)
    _require(lone.applied == [(2, b"a")], "what an entry of this term follows is not committed")


def acknowledgements_one_by_one(_: int, repairs: Repairs) -> None:
    """B4, V5: an entry is sent once to each peer, however its acknowledgement arrives."""
    lone = Lone(repairs=repairs)
    lone.elect()
    lone.acknowledge_each("n1", lone.propose_each(8))
    sent = lone.entries_to("n1")
    _require(sent == 8, f"8 entries were sent {sent} times")


def many_answers_behind_a_gap(_: int, repairs: Repairs) -> None:
    """B4, V5: a gap is filled once, although every message behind it asked for that."""
    lone = Lone(repairs=repairs)
    lone.elect()
    lone.propose_each(8)
    lone.miss("n1", 8, answers=5)
    sent = lone.entries_to("n1")
    _require(sent == 8, f"8 entries were sent again {sent} times")


def a_long_tail_of_another_term(_: int, repairs: Repairs) -> None:
    """B5, V2: a follower finds where its log differs in as many steps as there are terms."""
    lone = Lone(repairs=repairs)
    lone.append("n1", 1, (1, 0), [(1, b"x")] * 50)
    lone.run(0.05)
    steps, previous = 0, 51
    while previous:
        lone.take()
        lone.append("n2", 2, (previous, 2 if previous > 1 else 0), [(2, b"y")])
        rewinds = [ack[3] for ack in lone.take(messages.ACK) if ack[4] == messages.REWIND]
        previous = rewinds[0] - 1 if rewinds else 0
        steps += 1
    _require(steps <= 2, f"{steps} steps back over a tail of one term")


def a_large_entry_before_a_conflict(_: int, repairs: Repairs) -> None:
    """Entries behind one that fills a slice are replaced like all others."""
    lone = Lone(repairs=repairs)
    lone.append("n1", 1, (1, 0), [(1, b"a" * SLICE_BYTES_MAX), (1, b"b"), (1, b"c")])
    lone.append("n2", 2, (2, 1), [(2, b"B")])
    lone.run(0.05)
    _require(lone.reason is None, f"it stopped behind a large entry: {lone.reason}")
    _require(lone.replica.last_index == 3, f"its log ends at {lone.replica.last_index}, not at 3")


def a_peer_that_acknowledges_nothing(_: int, repairs: Repairs) -> None:
    """B7, V4: the bytes in flight to one peer are bounded."""
    with planted(lambda: [(transport, "WINDOW_BYTES", 10_000)]):
        lone = Lone(repairs=repairs)
        lone.elect()
        backlog = 0
        while backlog < 100:
            while lone.replica.can_propose():
                lone.replica.propose(b"x" * 990)
                backlog += 1
            lone.run(0.01)
            lone.acknowledge("n2", lone.replica.last_index)
            lone.run(0.01)
        sent = lone.entries_to("n1")
    _require(sent <= 20, f"{sent} entries of 1 kB are on their way, 10 kB are allowed")


def a_long_log_at_the_start(_: int, repairs: Repairs) -> None:
    """F11, V4: a turn applies a bounded number of entries."""
    lone = Lone(repairs=repairs)
    count = 3 * SLICE_ENTRIES_MAX
    lone.append("n1", 1, (1, 0), [(1, b"e")] * count, commit=count + 1)
    lone.replica.turn()
    applied = len(lone.applied)
    _require(applied <= SLICE_ENTRIES_MAX, f"one turn applied {applied} entries")


# --- elections (B8, C1 to C5, D1) -----------------------------------------------------------------


def two_leaders_of_one_term(_: int, repairs: Repairs) -> None:
    """B8, R1: a leader that hears another leader of its term stops, because safety is lost."""
    lone = Lone(repairs=repairs)
    lone.elect()
    lone.append("n1", lone.replica.term, (2, 1))
    _require(lone.reason is not None, "a second leader of the term is obeyed")


def a_vote_that_comes_twice(_: int, repairs: Repairs) -> None:
    """C1, R1: three of five members elect a leader, not one that votes twice."""
    lone = Lone(5, repairs=repairs)
    term = _stand(lone, ("n1", "n2"))
    lone.receive("n1", messages.VOTE_GRANTED, term)
    lone.receive("n1", messages.VOTE_GRANTED, term)
    _require(lone.replica.role != "leader", f"two of five elected the leader of term {term}")


def a_member_comes_back(_: int, repairs: Repairs) -> None:
    """C3: a member that was cut off does not depose a working leader."""
    cluster = Cluster(3, seed=4, repairs=repairs)
    leader = cluster.wait_leader()
    cluster.put(leader)
    term = leader.replica.term
    cluster.network.isolate(next(name for name in cluster.names if name != leader.name))
    cluster.clock.run(10.0)
    cluster.network.heal()
    cluster.clock.run(3.0)
    _require(leader.replica.term == term, f"the leader of term {term} was deposed")


def a_vote_against_a_leader_that_works(_: int, repairs: Repairs) -> None:
    """C3: a member in contact with a leader does not help to depose it."""
    lone = Lone(repairs=repairs)
    lone.append("n1", 1, (1, 0))
    lone.clock.run(0.01)  # a busy disk would delay its vote
    lone.receive("n2", messages.VOTE, 2, 1, 0, 0)
    _require(not lone.take(messages.VOTE_GRANTED), "it voted against the leader it hears")


def heartbeats_that_wait_unread(_: int, repairs: Repairs) -> None:
    """C4: after a pause a follower reads its input first."""
    lone = Lone(repairs=repairs)
    lone.append("n1", 1, (1, 0))
    lone.run(0.1)
    lone.take()
    lone.clock.run(5.0)
    lone.replica.turn()
    _require(not lone.take(messages.PRE_VOTE), "it asks for votes before it reads")


def a_leader_is_deposed(_: int, repairs: Repairs) -> None:
    """C5: a deposed leader lets the other members stand first."""
    lone = Lone(repairs=repairs)
    lone.elect()
    for _place in range(30):
        lone.run(0.05)
        for peer in lone.peers:
            lone.acknowledge(peer, lone.replica.last_index)
    lone.take()
    lone.receive("n1", messages.HIGHER_TERM, 9)
    lone.run(0.1)
    _require(not lone.take(messages.PRE_VOTE), "a deposed leader stands again at once")


def a_member_pauses_when_it_is_to_lead(_: int, repairs: Repairs) -> None:
    """A leader that has given a transfer up is not deposed by its target, which was paused."""
    given_up = 0
    for seed in range(1, 7):
        cluster = Cluster(3, seed, repairs=repairs)
        leader = cluster.wait_leader()
        cluster.put(leader, 3)
        cluster.clock.run(1.0)
        target = next(node for node in cluster.nodes.values() if node is not leader)
        target.pause(0.9 * cluster.config("n0").raft_max_s)
        term = leader.replica.term
        assert leader.replica.transfer(target.name)
        cluster.clock.run_until(lambda: not leader.replica._transfer.active, 5.0)  # noqa: B023
        if leader.replica.role != "leader":
            continue  # the target read the request after its pause, in time
        given_up += 1
        cluster.clock.run(5.0)
        words = f"life {seed}: {leader.name} led in {term}, now it is {leader.replica.term}"
        _require(leader.replica.role == "leader" and leader.replica.term == term, words)
    assert given_up, "each transfer succeeded"


def a_leader_is_cut_off(_: int, repairs: Repairs) -> None:
    """D1, V1: a leader that is cut off steps down within two of the longest timeouts."""
    cluster = Cluster(3, seed=4, repairs=repairs)
    leader = cluster.wait_leader()
    cluster.network.isolate(leader.name)
    cluster.clock.run(3.0)
    _require(leader.replica.role != "leader", "it still believes in itself after 3 s alone")


def a_vote_before_a_power_cut(_: int, repairs: Repairs) -> None:
    """C2, R8: a member votes once in a term, also across a power cut."""
    lone = Lone(repairs=repairs)
    lone.clock.run(0.01)  # a busy disk would delay its vote
    lone.receive("n1", messages.VOTE, 7, 1, 0, 0)
    assert lone.take() == [(messages.VOTE_GRANTED, 7)]
    lone.crash()
    lone.start()
    lone.receive("n2", messages.VOTE, 7, 1, 0, 0)
    _require(not lone.take(messages.VOTE_GRANTED), "it voted twice in term 7")


# --- proofs, disks and snapshots (E1, A6, F6, F7) -------------------------------------------------


def an_answer_to_an_earlier_question(_: int, repairs: Repairs) -> None:
    """E1, R9: only messages sent after the question prove leadership."""
    lone = Lone(repairs=repairs)
    lone.elect()
    lone.run(0.06)
    old = lone.round
    done: list[str] = []
    lone.replica.confirm(lambda: done.append("confirmed"))
    lone.acknowledge("n1", lone.replica.last_index, old)
    lone.replica.turn()
    _require(not done, "a read is confirmed by an answer from before it")


def a_disk_is_lost_and_then_the_leader(_: int, repairs: Repairs) -> None:
    """A6: entries of the leader and a lost disk survive a vote of that disk and a third one."""
    cluster = Cluster(3, seed=12, repairs=repairs)
    leader = cluster.wait_leader()
    cluster.put(leader, 3)
    lost, third = [name for name in cluster.names if name != leader.name]
    cluster.network.isolate(third)
    cluster.put(leader, 5)
    cluster.crash(lost)
    cluster.disks[lost].wipe()
    cluster.rejoin.add(lost)
    cluster.crash(leader.name)
    cluster.start(lost)
    cluster.network.heal()
    cluster.clock.run(10.0)
    cluster.start(leader.name)
    cluster.converge()


def a_power_cut_between_snapshot_and_trimming(_: int, repairs: Repairs) -> None:
    """F6: entries behind the snapshot stay."""
    cluster = Cluster(1, repairs=repairs)
    cluster.put(cluster.wait_leader(), 20)
    node = cluster.nodes["n0"]
    node.replica.compact()
    cluster.put(node, 20)
    assert node.replica.snapshot_source() is not None
    cluster.restart("n0")
    cluster.wait_leader()
    cluster.converge()


def a_snapshot_that_was_overtaken(_: int, repairs: Repairs) -> None:
    """F7: loading a fetched snapshot removes no entry that was acknowledged meanwhile."""
    lone = Lone(repairs=repairs)
    entries = [(1, b"%d" % index) for index in range(2, 31)]
    lone.append("n1", 1, (1, 0), entries[:10], commit=8)
    lone.run(0.05)
    lone.receive("n1", messages.OFFER, 1, 2, 20, 1)
    lone.append("n2", 2, (11, 1), entries[10:])
    lone.run(0.05)
    told = lone.take(messages.ACK)[-1][3] - 1
    sink, done = lone.fetches.pop()[2:]
    sink.write(SnapshotHeader(20, 1, 1).encode())
    sink.write(b"machine")
    done(None)
    lone.run(0.1)
    last = lone.replica.last_index
    _require(last >= told, f"{told} was acknowledged, and {last} is left")
