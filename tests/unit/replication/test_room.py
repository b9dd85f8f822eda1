"""One replica with a full disk: it refuses, waits and continues, and never stops."""

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from beanpole.replication.consensus import MIB, DiskRoom
from beanpole.replication.pysyncobj import messages, snapshots
from beanpole.replication.pysyncobj.room import (
    BALLAST_ROOM_BYTES,
    LOG_ROOM_BYTES,
    UNKNOWN_PERIOD_S,
)
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from beanpole.storage.ballast import BALLAST_BYTES
from tests.sim.lone import Lone

DISK_BYTES = 64 * MIB
SMALL: dict[str, Any] = {"snapshot_bytes_min": MIB, "log_retain_bytes": 64 * 1024}


def a_replica(**over: Any) -> Lone:
    """Return a leader on a finite disk, with half a megabyte of log."""
    lone = Lone(**{**SMALL, "disk_reserve_bytes": 16 * MIB, **over})
    lone.disk.capacity_bytes = DISK_BYTES
    lone.elect()
    log_on(lone, 512 * 1024)
    return lone


def log_on(lone: Lone, size: int) -> None:
    """Log and commit entries with this total size."""
    for _ in range(size // 32_768):
        index = lone.replica.propose(b"x" * 32_768)
        lone.run(0.02)
        for peer in lone.peers:
            lone.acknowledge(peer, index)
        lone.run(0.02)


def leave(lone: Lone, size: int) -> None:
    """Fill the disk by another process, except for the given size."""
    lone.disk.taken_bytes = 0
    lone.disk.taken_bytes = lone.disk.free_bytes("") - size
    lone.run(0.05)


def hang(lone: Lone) -> None:
    """Let the disk answer no question for its free space any more."""
    lone.clock.run(0.001)  # the measurement in progress
    lone.disk.looks_hang = True


def test_puts_end_while_there_is_room_for_a_snapshot_and_the_log_until_then() -> None:
    lone = a_replica(disk_reserve_bytes=1)
    room = lone.replica.room()
    held = sum(len(entry) for _, entry in lone.applied)
    assert room.reserve_bytes > held + LOG_ROOM_BYTES
    leave(lone, room.reserve_bytes + 4096)
    assert not lone.replica.room().low
    leave(lone, room.reserve_bytes - 4096)
    assert lone.replica.room().low and not lone.replica.room().full
    leave(lone, room.reserve_bytes + 4096)
    assert lone.replica.room().low, "it would begin and end with every put"
    leave(lone, 2 * room.reserve_bytes)
    assert not lone.replica.room().low
    said = [line for line in lone.lines if "the reserve of" in line]
    assert len(said) == 2 and "what the next snapshot needs" in said[0]


def test_the_configured_reserve_counts_where_it_is_more() -> None:
    lone = a_replica(disk_reserve_bytes=32 * MIB)
    assert lone.replica.room().reserve_bytes == 32 * MIB
    leave(lone, 32 * MIB - 1)
    assert lone.replica.room().low
    assert "disk_reserve_bytes" in lone.lines[-1]
    for size in (32 * MIB + 4096, 32 * MIB - 4096):
        leave(lone, size)
        assert lone.replica.room().low, "it would begin and end with every file of another program"
    leave(lone, 40 * MIB)
    assert not lone.replica.room().low
    assert len([line for line in lone.lines if "the reserve of" in line]) == 2


def test_a_disk_that_does_not_tell_its_free_space_ends_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One failed query of a network's file system ended a node that served."""
    lone = a_replica()
    leave(lone, 40 * MIB)
    free_bytes, fails = lone.disk.free_bytes, True

    def asked(path: str) -> int:
        return untold(free_bytes, path) if fails else free_bytes(path)

    monkeypatch.setattr(lone.disk, "free_bytes", asked)
    before = lone.replica.room().free_bytes
    lone.disk.taken_bytes = 0
    log_on(lone, 512 * 1024)
    assert lone.reason is None
    left = lone.replica.room().free_bytes
    assert before - MIB < left < before, "the log uses up what was found last"

    def said() -> int:
        return sum("the free space of /n0 is unknown: " in line for line in lone.lines)

    assert said() == 1
    lone.run(UNKNOWN_PERIOD_S, 0.1)
    assert said() == 2
    fails = False
    lone.run(0.1)
    assert lone.replica.room().free_bytes > before
    fails = True
    lone.crash()
    with pytest.raises(OSError, match="input/output error"):
        lone.start()  # the room is not known at all


def test_a_disk_that_hangs_is_asked_once_and_the_log_uses_up_its_last_answer() -> None:
    """The loop waited for the answer, and served nobody meanwhile."""
    lone = a_replica()
    leave(lone, 40 * MIB)
    hang(lone)
    before = lone.replica.room()
    leave(lone, LOG_ROOM_BYTES - 4096)
    log_on(lone, 512 * 1024)
    now = lone.replica.room()
    assert now.looking and now.looks <= before.looks + 1, "one measurement waits for the disk"
    assert before.free_bytes - MIB < now.free_bytes < before.free_bytes and not now.full
    assert lone.replica.commit_index == lone.replica.last_index, "the log does not go on"
    lone.disk.looks_hang = False
    lone.disk.hasten(0.0005)
    lone.run(0.05)
    assert lone.replica.room().looks > now.looks
    assert lone.replica.room().free_bytes < LOG_ROOM_BYTES + BALLAST_BYTES


@pytest.mark.parametrize("way", ["hangs", "fails"])
def test_puts_end_by_the_last_measurement(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They went on until the log was full, and no snapshot had room to make it shorter."""
    lone = a_replica()
    leave(lone, lone.replica.room().reserve_bytes + MIB)
    if way == "hangs":
        hang(lone)
    else:
        monkeypatch.setattr(lone.disk, "free_bytes", partial(untold, lone.disk.free_bytes))
    lone.disk.taken_bytes = 0
    log_on(lone, 512 * 1024)
    assert not lone.replica.room().low
    log_on(lone, MIB)
    room = lone.replica.room()
    assert room.low and not room.full and room.free_bytes > room.snapshot_needs_bytes


def untold(free_bytes: Callable[[str], int], path: str) -> int:
    if path:
        raise OSError(errno.EIO, "input/output error", path)
    return free_bytes(path)


def test_the_log_stops_where_it_would_be_full_by_the_last_measurement() -> None:
    lone = a_replica()
    leave(lone, LOG_ROOM_BYTES + 3 * MIB)
    hang(lone)
    lone.disk.taken_bytes = 0
    log_on(lone, 2 * MIB)
    assert not lone.replica.room().full
    for _ in range(MIB // 32_768):
        if lone.replica.can_propose():
            log_on(lone, 32_768)
    assert lone.replica.room().full and not lone.replica.can_propose()


def test_a_disk_with_much_room_is_asked_less_often() -> None:
    lone = a_replica()

    def looks_of_a_second() -> int:
        lone.run(0.2)  # measured before
        looks = lone.replica.room().looks
        lone.run(1.0)
        return lone.replica.room().looks - looks

    assert looks_of_a_second() > 50
    lone.disk.capacity_bytes = None
    assert 5 < looks_of_a_second() < 15


def test_a_snapshot_waits_until_there_is_room_for_it() -> None:
    lone = a_replica(disk_reserve_bytes=0)
    log_on(lone, 400 * 1024)
    leave(lone, LOG_ROOM_BYTES + 800 * 1024)
    log_on(lone, 200 * 1024)
    assert lone.replica.snapshot_index == 0
    assert sum("waits" in line for line in lone.lines) == 1
    room = lone.replica.room()
    assert room.free_bytes < room.snapshot_needs_bytes
    leave(lone, 32 * MIB)
    lone.run(1.0)
    assert lone.replica.snapshot_index > 0
    assert lone.reason is None


def test_a_snapshot_that_meets_a_full_disk_is_given_up_and_made_later() -> None:
    lone = a_replica(snapshot_bytes_min=64 * MIB)
    log_on(lone, 2 * MIB)
    lone.chunk_s = 0.05
    lone.replica.compact()
    lone.run(0.01)
    lone.clock.run(0.0)  # the measurement in progress
    lone.disk.taken_bytes += lone.disk.free_bytes("")  # too soon for the replica to notice
    lone.run(0.5)
    assert lone.reason is None, "a full disk ended the node"
    assert [name for name in lone.disk.list("/n0/snapshots") if name.endswith(".tmp")] == []
    assert any("is given up: the disk is full" in line for line in lone.lines)
    lone.replica.compact()
    assert lone.disk.list("/n0/snapshots") == []
    lone.disk.taken_bytes = 0
    lone.run(snapshots.FULL_PERIOD_S + 0.1)
    lone.replica.compact()
    lone.run(1.0)
    assert lone.replica.snapshot_index == lone.replica.applied_index


def test_the_end_of_a_snapshot_meets_a_full_disk() -> None:
    lone = a_replica()
    lone.clock.run(0.001)  # the measurement in progress
    lone.replica.compact()
    lone.disk.taken_bytes += lone.disk.free_bytes("")
    lone.run(1.0)
    assert lone.reason is None
    assert lone.disk.list("/n0/snapshots") == []


@pytest.mark.slow
def test_snapshots_come_sooner_while_room_is_scarce() -> None:
    """Otherwise the log of deletes, touches and releases would fill the disk."""
    lone = a_replica(snapshot_bytes_min=64 * MIB, disk_reserve_bytes=1)
    log_on(lone, 3 * MIB)
    assert lone.replica.snapshot_index == 0
    leave(lone, lone.replica.room().reserve_bytes - 4096)
    held = len(lone.applied)
    for _ in range(800):
        log_on(lone, 32_768)
        del lone.applied[held:]  # these log entries make no jobs
        assert not lone.replica.room().full
    assert lone.replica.snapshot_index > 0
    assert lone.replica.journal_bytes < 4 * MIB
    assert lone.reason is None


def test_the_ballast_is_given_up_for_the_log_and_made_again() -> None:
    lone = a_replica()
    lone.run(1.0)
    assert lone.disk.size("/n0/ballast") == BALLAST_BYTES
    leave(lone, BALLAST_ROOM_BYTES - 4096)
    assert not lone.disk.exists("/n0/ballast")
    assert not lone.replica.room().full
    leave(lone, 48 * MIB)
    lone.run(11.0, 0.1)
    assert lone.disk.size("/n0/ballast") == BALLAST_BYTES


def test_a_write_that_finds_no_room_is_tried_again_on_that_of_the_ballast() -> None:
    lone = a_replica(segment_bytes=64 * 1024)
    lone.run(1.0)
    lone.disk.taken_bytes += lone.disk.free_bytes("")
    index = lone.replica.propose(b"x" * 500_000)
    lone.replica.turn()  # the disk's work is in progress before room is checked again
    lone.run(0.1)
    assert not lone.disk.exists("/n0/ballast")
    assert lone.replica.durable_index == index
    assert lone.reason is None


def test_a_leader_without_room_proposes_nothing() -> None:
    lone = a_replica()
    leave(lone, 0)
    leave(lone, LOG_ROOM_BYTES - 4096)  # the ballast is already removed
    assert lone.replica.room().full and not lone.replica.can_propose()
    assert lone.reason is None
    leave(lone, 32 * MIB)
    assert lone.replica.can_propose()
    assert "the log goes on" in "".join(lone.lines)


def test_a_follower_without_room_takes_nothing_and_then_asks_for_all_of_it() -> None:
    lone = Lone(disk_reserve_bytes=0)
    lone.disk.capacity_bytes = DISK_BYTES
    lone.append("n1", 1, (1, 0), [(1, b"a")] * 10)
    lone.run(0.1)
    leave(lone, LOG_ROOM_BYTES - 4096)
    lone.take()
    for previous in range(11, 31):
        lone.append("n1", 1, (previous, 1), [(1, b"b")])
    lone.append("n1", 1, (31, 1))
    lone.run(0.1)
    assert {ack[4] for ack in lone.take(messages.ACK)} == {messages.ALIVE}
    assert lone.replica.last_index == 11
    assert lone.reason is None
    leave(lone, 32 * MIB)
    lone.append("n1", 1, (31, 1))
    assert lone.take(messages.ACK)[-1][3:5] == (12, messages.REWIND)
    lone.append("n1", 1, (11, 1), [(1, b"b")] * 20, commit=31)
    lone.run(0.1)
    assert lone.replica.applied_index == 31


def offered(lone: Lone) -> Lone:
    """Let a leader offer a snapshot of entries that this follower lacks."""
    lone.append("n1", 1, (1, 0), [(1, b"a")] * 10, commit=8)
    lone.run(0.1)
    lone.receive("n1", messages.OFFER, 1, 2, 50, 1)
    return lone


def test_a_fetch_that_meets_a_full_disk_is_given_up_and_tried_later() -> None:
    lone = Lone(disk_reserve_bytes=0)
    lone.disk.capacity_bytes = DISK_BYTES
    offered(lone)
    sink, done = lone.fetches.pop()[2:]
    sink.write(SnapshotHeader(50, 1, 1).encode())
    lone.run(0.05)
    lone.disk.taken_bytes += lone.disk.free_bytes("")
    sink.write(b"x" * MIB)
    lone.run(0.1)
    done(None)
    lone.run(0.1)
    assert lone.reason is None, "a full disk ended the node"
    assert lone.disk.list("/n0/snapshots") == []
    assert any("is given up: the disk is full" in line for line in lone.lines)
    lone.receive("n1", messages.OFFER, 1, 3, 50, 1)
    assert not lone.fetches
    lone.run(snapshots.FULL_PERIOD_S + 0.1)
    lone.receive("n1", messages.OFFER, 1, 4, 50, 1)
    assert not lone.fetches, "there is no room yet"
    lone.disk.taken_bytes = 0
    lone.run(snapshots.FULL_PERIOD_S + 0.1)
    lone.receive("n1", messages.OFFER, 1, 5, 50, 1)
    assert len(lone.fetches) == 1


def test_the_end_of_a_fetch_meets_a_full_disk() -> None:
    lone = Lone(disk_reserve_bytes=0)
    lone.disk.capacity_bytes = DISK_BYTES
    offered(lone)
    sink, done = lone.fetches.pop()[2:]
    sink.write(SnapshotHeader(50, 1, 1).encode())
    sink.write(b"machine")
    lone.disk.taken_bytes += lone.disk.free_bytes("")
    done(None)
    lone.run(0.1)
    assert lone.reason is None, "a full disk ended the node"
    assert lone.disk.list("/n0/snapshots") == []


def test_a_disk_that_is_broken_is_no_full_disk() -> None:
    lone = a_replica()
    lone.replica.compact()
    lone.disk.failing = OSError(5, "input/output error")
    lone.run(0.1)
    assert lone.reason is not None


def test_the_figures_are_told() -> None:
    room = a_replica().replica.room()
    assert isinstance(room, DiskRoom)
    assert 0 < room.free_bytes < DISK_BYTES


@pytest.mark.parametrize("taken", [0, DISK_BYTES])
def test_a_start_on_a_full_disk(taken: int) -> None:
    lone = a_replica()
    lone.run(1.0)
    lone.disk.taken_bytes += lone.disk.free_bytes("") if taken else 0
    before = lone.replica.last_index
    lone.crash()
    lone.start()
    lone.run(0.1)
    assert lone.replica.last_index == before
    assert lone.reason is None
