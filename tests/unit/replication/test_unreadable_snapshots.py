"""Tests of a snapshot that its own node cannot read: it is made again from the machine."""

import errno
from typing import Any

import pytest

from beanpole.errors import BeanpoleError, Damaged
from beanpole.replication.pysyncobj import messages, snapshots
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from beanpole.storage.files import Handle
from tests.sim.cluster import Cluster
from tests.sim.lone import Lone

ENTRIES = 120  # an image of three chunks
HEADER = 512 + 8 + 2  # a byte in the first chunk
MIB = 1024 * 1024


def a_replica(**over: Any) -> Lone:
    """Return a replica alone, with a snapshot of everything that it has applied."""
    lone = Lone(1, **over)
    lone.run(0.1)
    more(lone, ENTRIES)
    lone.replica.compact()
    lone.run(0.2)
    assert lone.replica.snapshot_index == lone.replica.applied_index
    return lone


def more(lone: Lone, entries: int) -> None:
    """Apply more entries."""
    for _ in range(entries):
        lone.replica.propose(b"x" * 200)
        lone.run(0.02)


def path_of(lone: Lone) -> str:
    """Return the path of the only snapshot."""
    [name] = lone.disk.list("/n0/snapshots")
    return f"/n0/snapshots/{name}"


def read(lone: Lone) -> int:
    """Read the newest snapshot to its end, and return the number of its chunks."""
    source = lone.replica.snapshot_source()
    assert source is not None
    return len(list(source[1]))


def refused(lone: Lone) -> None:
    with pytest.raises((BeanpoleError, OSError)):
        read(lone)


def lines_with(lone: Lone, words: str) -> int:
    return sum(words in line for line in lone.lines)


@pytest.mark.parametrize("offset", [3, HEADER, -1, None])
def test_a_snapshot_that_cannot_be_read_is_made_again(offset: int | None) -> None:
    """No member caught up by it, and the node did not start again."""
    lone = a_replica()
    path = path_of(lone)
    if offset is None:
        lone.disk.remove(path)
    else:
        lone.disk.flip(path, offset)
    refused(lone)
    lone.run(0.2)
    assert path_of(lone) == path, "it has the same index"
    assert read(lone) == 1 + 3
    assert lines_with(lone, "cannot be read, and is made again: ") == 1
    assert lines_with(lone, "replaces the one that cannot be read") == 1
    lone.crash()
    lone.start()
    lone.run(0.1)
    assert lone.loaded == 3
    assert lone.reason is None


def test_it_is_made_once_for_all_readers() -> None:
    lone = a_replica()
    lone.disk.flip(path_of(lone), -1)
    early = [lone.replica.snapshot_source() for _ in range(3)]
    refused(lone)
    for source in early[:2]:
        assert source is not None
        with pytest.raises(Damaged):
            list(source[1])
    lone.run(0.2)
    syncs = lone.disk.syncs
    assert early[2] is not None
    with pytest.raises(Damaged):
        list(early[2][1])  # it still has the old file open
    lone.run(snapshots.REPLACE_PERIOD_S + 1, 0.1)
    assert lone.disk.syncs == syncs, "nothing is made for the reader of the old file"
    assert (lines_with(lone, "is made again"), lines_with(lone, "replaces")) == (1, 1)
    assert read(lone) == 1 + 3


def test_a_disk_that_damages_all_it_stores_is_not_written_without_end() -> None:
    lone = a_replica()
    for _ in range(3):
        lone.disk.flip(path_of(lone), -1)
        refused(lone)
        lone.run(0.2)
        assert read(lone) == 1 + 3
        for _ in range(2):
            lone.disk.flip(path_of(lone), -1)
            for _ in range(10):
                refused(lone)
                lone.run(1.0, 0.1)
            lone.disk.flip(path_of(lone), -1)
        assert lines_with(lone, "replaces") == 1
        lone.run(snapshots.REPLACE_PERIOD_S, 0.1)
        assert lines_with(lone, "replaces") == 2
        lone.lines.clear()
        lone.run(snapshots.REPLACE_PERIOD_S, 0.1)
        assert lines_with(lone, "replaces") == 0


def test_a_newer_snapshot_in_progress_replaces_it() -> None:
    lone = a_replica()
    lone.disk.flip(path_of(lone), -1)
    more(lone, 10)
    lone.replica.compact()
    refused(lone)
    lone.run(0.2)
    assert lone.replica.snapshot_index == lone.replica.applied_index
    assert read(lone) == 1 + 3
    lone.run(snapshots.REPLACE_PERIOD_S + 1, 0.1)
    assert lines_with(lone, "replaces") == 1


def test_it_is_made_again_when_a_full_disk_has_room() -> None:
    lone = a_replica(disk_reserve_bytes=0)
    lone.disk.capacity_bytes = 64 * MIB
    lone.disk.flip(path_of(lone), -1)
    lone.disk.taken_bytes = lone.disk.free_bytes("") - MIB
    lone.run(0.1)
    for _ in range(3):
        refused(lone)
        lone.run(snapshots.FULL_PERIOD_S, 0.1)
    assert (lines_with(lone, "is made again"), lines_with(lone, "waits")) == (1, 1)
    assert lines_with(lone, "replaces") == 0
    # The disk is full before the replica can notice it.
    lone.disk.taken_bytes = 0
    lone.clock.run(0.1)
    lone.replica.turn()
    lone.disk.taken_bytes = lone.disk.free_bytes("")
    lone.run(1.0)
    assert lines_with(lone, "is given up: the disk is full") == 1
    assert lone.disk.list("/n0/snapshots") == [path_of(lone).rsplit("/", 1)[1]]
    lone.disk.taken_bytes = 0
    lone.run(snapshots.FULL_PERIOD_S + 0.1)
    assert read(lone) == 1 + 3
    assert lone.reason is None


def test_a_node_without_descriptors_does_not_doubt_its_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lone = a_replica()

    def refuse(path: str, create: bool = False) -> Handle:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(lone.disk, "open", refuse)
        refused(lone)
    lone.run(0.2)
    assert lines_with(lone, "is made again") == 0
    assert read(lone) == 1 + 3


def test_one_that_is_not_installed_waits_for_the_machine() -> None:
    """The machine of this follower is older than the snapshot that it has fetched."""
    lone = Lone()
    lone.append("n1", 1, (1, 0), [(1, b"%d" % index) for index in range(2, 12)], commit=8)
    lone.run(0.05)
    lone.receive("n1", messages.OFFER, 1, 2, 20, 1)
    lone.append("n2", 2, (11, 1), [(1, b"%d" % index) for index in range(12, 31)])
    _, _, sink, done = lone.fetches.pop()
    sink.write(SnapshotHeader(20, 1, 1).encode())
    sink.write(b"machine")
    done(None)
    lone.run(0.1)
    assert (lone.replica.snapshot_index, lone.replica.applied_index) == (20, 8)
    lone.disk.flip(path_of(lone), -1)
    refused(lone)
    lone.run(0.2)
    refused(lone)
    lone.replica.compact()
    lone.run(0.2)
    assert (lone.replica.snapshot_index, lines_with(lone, "replaces")) == (20, 0)
    lone.append("n2", 2, (30, 1), commit=20)
    lone.run(0.2)
    assert (lone.replica.snapshot_index, lines_with(lone, "replaces")) == (20, 1)
    assert read(lone) == 1 + 1
    assert lone.reason is None


def test_a_member_that_lost_its_disk_catches_up_by_the_one_that_is_made_again() -> None:
    cluster = Cluster(3, seed=3, snapshot_bytes_min=20_000, log_retain_bytes=2_000)
    leader = cluster.wait_leader()
    away = next(name for name in cluster.names if name != leader.name)
    cluster.crash(away)
    cluster.disks[away].wipe()
    cluster.rejoin.add(away)
    cluster.put(leader, 300, 300)
    cluster.clock.run(2.5)
    [name] = leader.disk.list(f"/{leader.name}/snapshots")
    path = f"/{leader.name}/snapshots/{name}"
    leader.disk.flip(path, leader.disk.size(path) // 2)
    cluster.start(away)
    cluster.converge()
    assert cluster.fetches > 1
    cluster.restart(leader.name)
    cluster.put(cluster.wait_leader(), 10)
    cluster.converge()
