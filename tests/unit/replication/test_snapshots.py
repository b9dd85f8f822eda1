"""Tests of snapshots: made in slices, aligned (F6), refused (F7), offered (F8), fetched."""

import errno
from typing import Any

import pytest

from beanpole.errors import Damaged, WrongIdentity
from beanpole.replication.pysyncobj import messages, snapshots
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from tests.sim.cluster import Cluster, Violation
from tests.sim.lone import Lone

both = pytest.mark.parametrize("repaired", [True, False])
SMALL: dict[str, Any] = {"snapshot_bytes_min": 20_000, "log_retain_bytes": 2_000}


def follower(repaired: bool = True, **over: Any) -> Lone:
    """Return a follower of n1 in term 1 with ten entries, committed up to 8."""
    lone = Lone(
        repairs=ALL_REPAIRS if repaired else ALL_REPAIRS.without("refuse_old_snapshots"), **over
    )
    lone.append("n1", 1, (1, 0), [(1, b"%d" % index) for index in range(2, 12)], commit=8)
    lone.run(0.05)
    lone.take()
    return lone


def deliver(lone: Lone, last: int, term: int, previous_term: int) -> None:
    """Let the requested fetch succeed with a snapshot."""
    _, _, sink, done = lone.fetches.pop()
    sink.write(SnapshotHeader(last, term, previous_term).encode())
    sink.write(b"machine")
    done(None)


@both
def test_a_crash_between_snapshot_and_trimming_loses_nothing(repaired: bool) -> None:
    """F6: all entries after the snapshot were deleted."""
    repairs = ALL_REPAIRS if repaired else ALL_REPAIRS.without("align_log_with_snapshot")
    cluster = Cluster(1, repairs=repairs)
    cluster.put(cluster.wait_leader(), 20)
    node = cluster.nodes["n0"]
    node.replica.compact()
    cluster.put(node, 20)
    assert node.replica.snapshot_source() is not None
    assert node.replica.first_index == 1, "nothing is trimmed yet"
    cluster.restart("n0")
    cluster.wait_leader()
    if repaired:
        cluster.converge()
        assert len(cluster.nodes["n0"].applied) == 40
    else:
        with pytest.raises(Violation, match="20 acknowledged entries are lost"):
            cluster.converge()


@both
def test_a_snapshot_that_is_behind_is_not_loaded(repaired: bool) -> None:
    """F7: the log was cleared for any snapshot."""
    lone = follower(repaired)
    lone.receive("n1", messages.OFFER, 1, 2, 5, 1)
    assert bool(lone.fetches) is not repaired
    if repaired:
        assert lone.take(messages.ACK)[-1][3:5] == (9, messages.MATCHED)


@both
def test_a_snapshot_that_was_overtaken_is_not_loaded(repaired: bool) -> None:
    """F7: entries acknowledged to another leader in the meantime were cleared."""
    lone = follower(repaired)
    lone.receive("n1", messages.OFFER, 1, 2, 20, 1)
    lone.append("n2", 2, (11, 1), [(1, b"%d" % index) for index in range(12, 31)])
    lone.run(0.05)
    assert lone.take(messages.ACK)[-1][3:5] == (31, messages.MATCHED)
    deliver(lone, 20, 1, 1)
    lone.run(0.1)
    assert lone.replica.last_index == (30 if repaired else 20)
    assert bool(lone.loaded) is not repaired


def test_a_member_that_is_behind_says_only_that_it_lives_while_it_fetches() -> None:
    lone = follower()
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    assert [fetch[:2] for fetch in lone.fetches] == [("n1", 50)]
    lone.append("n1", 1, (70, 1))
    lone.receive("n1", messages.OFFER, 1, 3, 50, 1)
    assert {ack[4] for ack in lone.take(messages.ACK)} == {messages.ALIVE}
    assert len(lone.fetches) == 1
    deliver(lone, 60, 1, 1)  # newer than offered
    lone.run(0.1)
    assert (lone.replica.first_index, lone.replica.last_index) == (59, 60)
    assert lone.replica.applied_index == lone.replica.commit_index == 60
    assert lone.loaded == 1
    lone.append("n1", 1, (70, 1))
    assert lone.take(messages.ACK)[-1][3:5] == (61, messages.REWIND)
    lone.crash()
    lone.start()
    assert (lone.replica.applied_index, lone.replica.last_index) == (60, 60)


def test_a_failed_fetch_is_tried_again_later() -> None:
    lone = follower()
    for _ in range(2):
        lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
        lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
        assert len(lone.fetches) == 1
        lone.fetches.pop()[3]("the link is gone")
        lone.run(0.6)
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    _, _, sink, done = lone.fetches.pop()
    sink.write(b"no header")
    sink.write(b"more")
    done(None)
    lone.run(0.6)
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    deliver(lone, 49, 1, 1)  # older than offered
    lone.run(0.6)
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    lone.fetches[0][2].write(SnapshotHeader(50, 1, 1).encode())
    lone.fetches[0][2].write(b"")
    lone.fetches.pop()[3](None)
    lone.run(0.6)
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    lone.clock.run(1.0)
    lone.run(11.0, 0.1)  # the fetch brings nothing
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    assert len(lone.fetches) == 2
    assert lone.reason is None and lone.replica.last_index == 11


def test_a_fetch_that_fails_again_and_again_tells_each_reason_once_a_minute() -> None:
    """A member fetched twice a second for ever, and nothing in its log said why that failed."""
    lone = follower()

    def fails(*reasons: str) -> list[str]:
        """Let a fetch fail for each reason, and return the lines of the log."""
        for reason in reasons:
            lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
            lone.fetches.pop()[3](reason)
            lone.run(0.6)
        lines, lone.lines = lone.lines, []
        return lines

    what = "the snapshot at 50 of n1 is given up:"
    assert fails("n1: DATA_LOSS: a", *["n1: DATA_LOSS: a"] * 20) == [f"{what} n1: DATA_LOSS: a"]
    assert fails(*["b", "n1: DATA_LOSS: a"] * 10) == [f"{what} b"]
    lone.run(snapshots.REASONS_PERIOD_S, 0.1)
    assert fails(*["b"] * 10) == [f"{what} b"]
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    deliver(lone, 49, 1, 1)
    lone.run(0.6)
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    lone.fetches.pop()[3](None)
    lone.run(0.6)
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    lone.run(11.0, 0.1)
    silent = f"{what} no progress for 10 s"
    assert lone.lines == [f"{what} asked for 50, got 49", f"{what} it is empty", silent]
    assert lone.reason is None


def test_a_snapshot_of_another_life_of_the_cluster_is_refused() -> None:
    lone = follower(birth=b"this")
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    _, _, sink, done = lone.fetches.pop()
    sink.write(SnapshotHeader(50, 1, 1, b"that").encode())
    sink.write(b"machine")
    done(None)
    lone.run(0.6)
    assert lone.reason is None and lone.replica.last_index == 11
    lone.replica.compact()
    lone.run(0.5)
    assert lone.replica.snapshot_index == 8
    lone.replica.close()
    lone.over["birth"] = b"that"
    with pytest.raises(WrongIdentity, match="another life of the cluster"):
        lone.start()


def test_offers_are_bounded() -> None:
    """F8: 132,869 messages in 100 ms while a follower waited for a dump."""
    lone = Lone(**SMALL)
    lone.elect()
    for _ in range(40):
        index = lone.replica.propose(b"x" * 900)
        lone.run(0.01)
        lone.acknowledge("n2", index)
        lone.run(0.01)
    lone.disconnect("n1")
    lone.run(1.5)
    assert lone.replica.snapshot_source() is not None
    lone.replica.connected("n1")
    lone.take()
    for _ in range(100):
        lone.receive("n1", messages.ACK, lone.replica.term, 2**30, 2, messages.REWIND, 0)
        lone.run(0.01)
        lone.acknowledge("n2", lone.replica.last_index, 2**30)
    sent = lone.take(peer="n1")
    assert 5 <= sum(message[0] == messages.OFFER for message in sent) <= 25
    assert len(sent) <= 130


def test_snapshots_are_made_when_the_log_is_long_and_the_log_is_trimmed() -> None:
    cluster = Cluster(3, seed=2, **SMALL)
    leader = cluster.wait_leader()
    cluster.put(leader, 300, 300)
    cluster.clock.run(2.5)
    cluster.converge()
    for node in cluster.nodes.values():
        assert node.replica.first_index > 100
        assert node.replica.journal_bytes < 70_000 + 64 * 1024
    cluster.restart(leader.name)
    cluster.put(cluster.wait_leader(), 10)
    cluster.converge()


def test_a_member_that_was_away_for_long_gets_a_snapshot() -> None:
    cluster = Cluster(3, seed=3, **SMALL)
    leader = cluster.wait_leader()
    away = next(name for name in cluster.names if name != leader.name)
    cluster.crash(away)
    cluster.put(leader, 300, 300)
    cluster.clock.run(2.5)
    cluster.start(away)
    cluster.converge()
    assert (cluster.fetches, cluster.loads) == (1, 1)


def test_the_log_is_kept_for_a_connected_follower_up_to_a_limit() -> None:
    for retain, loads in ((10**6, 0), (2_000, 1)):
        cluster = Cluster(3, seed=3, snapshot_bytes_min=20_000, log_retain_bytes=retain)
        leader = cluster.wait_leader()
        cluster.put(leader, 1)
        slow = next(name for name in cluster.names if name != leader.name)
        cluster.clock.run(0.2)
        cluster.network.detect_s = 100.0  # the link looks up, but nothing arrives
        cluster.network.partition({(leader.name, slow)})
        cluster.put(leader, 300, 300)
        cluster.clock.run(2.5)
        cluster.network.heal()
        cluster.converge()
        assert cluster.loads == loads


def test_an_image_is_produced_in_slices() -> None:
    lone = Lone(1)
    lone.run(0.1)
    for index in range(300):
        lone.replica.propose(b"%d" % index)
        lone.run(0.02)
    image = lone.begin_image()
    assert image.next_chunk() is not None
    lone.chunk_s = 0.010
    lone.replica.compact()
    turns = 0
    while lone.replica.snapshot_source() is None:
        lone.clock.run(0.001)
        lone.replica.turn()
        lone.replica.slice_image()
        turns += 1
    assert turns > 6 * 70, "one chunk, which takes ten milliseconds, and then a rest of eighty"
    source = lone.replica.snapshot_source()
    assert source is not None and len(list(source[1])) == 1 + 6


@pytest.mark.constants
def test_an_image_that_waits_for_the_disk_lets_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "BACKLOG_BYTES_MAX", 1)
    lone = Lone(1)
    lone.run(0.1)
    lone.replica.propose(b"a")
    lone.run(0.1)
    lone.replica.compact()
    assert not lone.replica.imaging, "its header is not on the disk yet"
    lone.clock.run(0.1)
    assert lone.replica.imaging


def test_a_snapshot_that_cannot_be_written_stops_the_node() -> None:
    lone = Lone(1)
    lone.run(0.1)
    lone.replica.propose(b"a")
    lone.run(0.1)
    lone.replica.compact()
    lone.replica.slice_image()
    lone.disk.failing = OSError(errno.EIO, "input/output error")
    lone.clock.run(0.1)
    assert lone.reason is not None and "snapshot" in lone.reason


def test_a_damaged_snapshot_stops_the_start() -> None:
    """F3: the library went on with half a machine."""
    lone = Lone(1)
    lone.run(0.1)
    lone.replica.propose(b"a")
    lone.run(0.1)
    lone.replica.compact()
    lone.run(0.1)
    source = lone.replica.snapshot_source()
    assert source is not None
    lone.replica.close()
    lone.disk.flip(source[0].path, 530)
    with pytest.raises(Damaged):
        lone.start()


def test_compacting_twice_does_nothing_without_news() -> None:
    lone = Lone(1)
    lone.run(0.1)
    lone.replica.propose(b"a")
    lone.run(0.1)
    lone.replica.compact()
    lone.replica.compact()
    lone.run(0.2)
    first = lone.replica.snapshot_source()
    lone.replica.compact()
    lone.run(0.2)
    second = lone.replica.snapshot_source()
    assert first is not None and second is not None and first[0] == second[0]


def test_a_snapshot_that_is_not_installed_cuts_nothing_that_is_not_applied() -> None:
    """The log was cut at the newest snapshot, although the machine did not have it."""
    lone = follower(log_retain_bytes=10)
    lone.receive("n1", messages.OFFER, 1, 2, 20, 1)
    lone.append("n2", 2, (11, 1), [(1, b"%d" % index) for index in range(12, 31)])
    lone.run(0.05)
    deliver(lone, 20, 1, 1)
    lone.run(2.5)
    assert (lone.replica.snapshot_index, lone.replica.applied_index) == (20, 8)
    assert lone.replica.first_index < 8
    lone.append("n2", 2, (30, 1), commit=30)
    lone.run(0.1)
    assert (lone.replica.applied_index, lone.reason) == (30, None)
    assert [index for index, _ in lone.applied] == list(range(2, 31))


@pytest.mark.parametrize("restarted", [False, True])
def test_the_log_that_a_fetched_snapshot_replaces_leaves_the_disk(restarted: bool) -> None:
    """Its segments stayed until a later snapshot, and for ever on a disk without room for one."""
    lone = Lone()
    lone.receive("n2", messages.VOTE, 3, 1, 0, 0)
    lone.run(0.05)
    assert lone.take(messages.VOTE_GRANTED) == [(messages.VOTE_GRANTED, 3)]
    for first in range(2, 402, 10):
        entries = [(3, b"x" * 2_000)] * 10
        previous = (first - 1, 3 if first > 2 else 0)
        lone.append("n2", 3, previous, entries, commit=first)
        lone.run(0.01)
    lone.run(1.0)
    before = lone.replica.journal_bytes
    assert before > 10 * 64 * 1024
    lone.receive("n2", messages.OFFER, 3, 2, 1000, 3)
    deliver(lone, 1000, 3, 3)
    while lone.replica.applied_index < 1000:
        lone.run(0.01)
    assert lone.replica.journal_bytes > before, "nothing is dropped before it is replaced durably"
    if restarted:
        lone.crash()
        lone.start()
    lone.run(1.5)
    assert lone.replica.journal_bytes < 2 * 64 * 1024
    assert len(lone.disk.list("/n0/log")) <= 2
    size = lone.replica.log_on_disk().end
    lone.run(10.0, 0.1)
    assert lone.replica.log_on_disk().end == size, "term and vote are not written again and again"
    lone.crash()
    lone.start()
    assert (lone.replica.term, lone.replica.last_index) == (3, 1000)
    lone.take()
    for term, granted in ((3, []), (4, [(messages.VOTE_GRANTED, 4)])):
        lone.receive("n1", messages.VOTE, term, 2000, 3, 0)
        lone.run(0.05)
        assert lone.take(messages.VOTE_GRANTED) == granted, "it has voted for n2 in term 3"


def test_a_fetch_that_was_overtaken_leaves_no_file() -> None:
    """Its file stayed until the next start."""
    lone = follower()
    lone.receive("n1", messages.OFFER, 1, 2, 20, 1)
    lone.append("n2", 2, (11, 1), [(1, b"%d" % index) for index in range(12, 31)])
    deliver(lone, 20, 1, 1)
    lone.run(0.1)
    lone.append("n1", 3, (11, 1), [(3, b"another")], round_=2)
    assert lone.replica.last_index == 12
    lone.receive("n1", messages.OFFER, 3, 3, 20, 1)
    sink = lone.fetches.pop()[2]
    sink.write(SnapshotHeader(20, 1, 1).encode())
    lone.run(0.1)
    assert lone.replica.applied_index == 20, "it was fetched before"
    assert lone.disk.list("/n0/snapshots") == [f"{20:020d}-{1:020d}.snapshot"]
