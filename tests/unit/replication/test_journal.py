"""Tests of the log's window: the library's view, the disk's contents, and crashes."""

from typing import Any
from unittest.mock import Mock

import pytest

from beanpole.errors import Damaged
from beanpole.replication.consensus import ReplicaConfig
from beanpole.replication.pysyncobj.journal import (
    ADD,
    NEWEST_MAX,
    PLACEHOLDER,
    SLICE_ENTRIES_MAX,
    TRUNCATE,
    LogJournal,
)
from beanpole.replication.pysyncobj.messages import NO_OP, OURS
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpole.storage.format import Identity
from tests.sim.clock import Clock
from tests.sim.disk import Disk, Killed


def opened(disk: Disk, **over: Any) -> LogJournal:
    """Open the log of one node."""
    config = ReplicaConfig(
        "n0", ("n0",), "/n0", Identity("journal", "n0"), **{"segment_bytes": 4096, **over}
    )
    return LogJournal(config, disk, ALL_REPAIRS)


def filled(disk: Disk, count: int, size: int = 100, **over: Any) -> LogJournal:
    """Return a log with entries from 1 on, each with different bytes."""
    journal = opened(disk, **over)
    for index in range(1, count + 1):
        journal.add(b"%03d" % index + b"x" * size, index, 1 + index // 10)
    journal.wal.sync()
    journal.after_durable()
    return journal


@pytest.fixture
def disk() -> Disk:
    return Disk(Clock(), 1)


def test_everything_comes_back(disk: Disk) -> None:
    journal = filled(disk, 50)
    journal.setCurrentTerm(9, "n2")
    journal.deleteEntriesFrom(40)
    journal.add(b"other", 41, 9)
    journal.wal.sync()
    again = opened(disk)
    assert [again[place] for place in range(41)] == [journal[place] for place in range(41)]
    assert (again[-1], len(again), again.durable) == ((b"other", 41, 9), 41, 41)
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (9, "n2")
    assert again.getRaftCommitIndex() == 1, "F10: a persisted one may be ahead of the log"


def test_the_newest_entry_is_the_last_that_is_not_the_library_s(disk: Disk) -> None:
    journal = opened(disk)
    assert journal.newest() is None
    journal.add(OURS + b"first", 1, 1)
    journal.add(OURS + b"second", 2, 2)
    journal.add(NO_OP, 3, 3)
    assert journal.newest() == (2, b"second")
    for index in range(4, 4 + NEWEST_MAX):
        journal.add(NO_OP, index, index)
    assert journal.newest() is None


def test_old_entries_are_read_back_from_segments(disk: Disk) -> None:
    journal = filled(disk, 200, log_memory_bytes=2000)
    assert sum(len(command or b"") for command in journal._commands) <= 2000
    assert journal[0:200] == filled(Disk(Clock(), 2), 200)[0:200]
    assert opened(disk, log_memory_bytes=2000)[3] == journal[3]


def test_slices_are_bounded_and_never_empty(disk: Disk) -> None:
    journal = filled(disk, 2 * SLICE_ENTRIES_MAX, 1)
    assert len(journal[0:]) == SLICE_ENTRIES_MAX
    assert journal[5:6] == [journal[5]]
    assert journal[2 * SLICE_ENTRIES_MAX :] == []
    journal.add(b"x" * 3_000_000, journal.last + 1, 99)
    assert len(journal[len(journal) - 1 :]) == 1
    assert len(journal[len(journal) - 2 :]) == 1


def test_an_unsynced_tail_is_lost_and_nothing_else(disk: Disk) -> None:
    journal = filled(disk, 20)
    journal.add(b"lost", 21, 5)
    assert (journal.durable, journal.last) == (20, 21)
    disk.crash()
    assert opened(disk).last == 20


def test_durable_follows_the_disk(disk: Disk) -> None:
    journal = filled(disk, 20)
    journal.add(b"a", 21, 5)
    journal.deleteEntriesFrom(15)
    assert (journal.durable, journal.last) == (15, 15)
    journal.add(b"b", 16, 5)
    assert journal.durable == 15
    journal.wal.sync()
    assert journal.durable == 16


def test_a_reset_stands_for_a_snapshot(disk: Disk) -> None:
    journal = filled(disk, 20)
    journal.clear()
    journal.add(PLACEHOLDER, 99, 6)
    journal.add(PLACEHOLDER, 100, 7)
    journal.add(b"next", 101, 7)
    journal.wal.sync()
    for log in (journal, opened(disk)):
        assert (log.first, log.last, len(log)) == (99, 101, 3)
        assert [log.term_of(index) for index in (98, 99, 100, 101)] == [None, 6, 7, 7]
        assert [entry[0] for entry in log[0:3]] == [PLACEHOLDER, PLACEHOLDER, b"next"]


def test_trimmed_segments_go_and_term_and_vote_stay(disk: Disk) -> None:
    journal = opened(disk)
    journal.setCurrentTerm(7, "n1")
    for index in range(1, 201):
        journal.add(b"x" * 100, index, 7)
    journal.wal.sync()
    before = len(disk.list("/n0/log"))
    journal.trim(150)
    assert (journal.first, journal[0][1], len(journal)) == (150, 150, 51)
    journal.after_durable()
    assert len(disk.list("/n0/log")) == before, "not before term and vote are written again"
    journal.wal.sync()
    journal.after_durable()
    disk._clock.run(0.1)
    assert len(disk.list("/n0/log")) < before / 2
    disk.crash()
    again = opened(disk)
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (7, "n1")
    assert again.first <= 150 and again.last == 200
    with pytest.raises(Damaged, match="without a snapshot"):
        again.check_begin()


def replaced(disk: Disk) -> LogJournal:
    """Return a log of many segments that was just replaced by a snapshot at 300."""
    journal = opened(disk)
    journal.wal.on_durable = journal.after_durable
    journal.setCurrentTerm(7, "n1")
    for index in range(1, 201):
        journal.add(b"x" * 100, index, 7)
    journal.wal.sync()
    journal.clear()
    journal.add(PLACEHOLDER, 299, 7)
    journal.add(PLACEHOLDER, 300, 7)
    return journal


def trimmed(journal: LogJournal, disk: Disk) -> None:
    """Trim a log again and again, as a replica does, while the disk works."""
    for _ in range(5):
        journal.trim(200)
        journal.wal.flush()
        disk._clock.run(0.1)


def test_the_segments_of_a_replaced_log_go(disk: Disk) -> None:
    """They stayed until a later snapshot, and for ever on a disk without room for one."""
    journal = replaced(disk)
    before = len(disk.list("/n0/log"))
    journal.wal.flush()
    disk._clock.run(0.1)
    disk.crash()
    assert len(disk.list("/n0/log")) == before > 5, "the node died before they went"
    again = opened(disk)
    again.wal.on_durable = again.after_durable
    for log in (again, again):
        end = log.wal.end
        trimmed(log, disk)
        assert len(disk.list("/n0/log")) <= 2
    assert again.wal.end == end, "term and vote are written once"
    assert (again.first, again.last) == (299, 300)


@pytest.mark.parametrize("seed", range(5))
def test_a_death_while_a_replaced_log_goes_loses_neither_vote_nor_log(seed: int) -> None:
    calls, completed = 0, False
    while not completed:
        disk = Disk(Clock(), seed)
        journal = replaced(disk)
        disk.killed = died = Mock()
        disk.calls_left = calls
        try:
            trimmed(journal, disk)
            completed = not died.called
        except Killed:
            pass
        disk.crash()
        again = opened(disk)
        assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (7, "n1"), calls
        assert (again.last == 200 and again.first < 200) or again.last == 300, calls
        again.align(300, 7, 7)
        assert (again.first, again.last) == (299, 300)
        calls += 1
    assert calls > 15
    assert len(disk.list("/n0/log")) <= 2


def test_a_log_may_begin_with_a_cut(disk: Disk) -> None:
    """The segments before it were removed; a node that found no entry to cut did not start."""
    journal = opened(disk)
    journal._replay(0, TRUNCATE, 41, 0, b"")
    for index in range(41, 91):
        journal._replay(index, ADD, index, 9, b"y")
    assert (journal.first, journal.last) == (41, 90)


@pytest.mark.parametrize("index", [2, 30, 50])
def test_alignment_keeps_what_follows_the_snapshot(disk: Disk, index: int) -> None:
    """F6: the library clears a log that does not begin at the snapshot."""
    journal = filled(disk, 50)
    term = journal.term_of(index)
    assert term is not None
    journal.align(index, term, term)
    assert (journal.first, journal.last) == (index - 1, 50)
    assert journal[1][1] == index


def test_alignment_puts_a_stand_in_before_the_first_entry(disk: Disk) -> None:
    journal = filled(disk, 50)
    journal.trim(20)
    journal.align(20, 3, 2)
    assert [entry[1:] for entry in journal[0:2]] == [(19, 2), (20, 3)]
    assert [entry[0] == PLACEHOLDER for entry in journal[0:2]] == [True, False]


@pytest.mark.parametrize(("index", "term"), [(80, 9), (50, 99)])
def test_alignment_drops_a_log_that_the_snapshot_contradicts(
    disk: Disk, index: int, term: int
) -> None:
    journal = filled(disk, 50)
    journal.align(index, term, 1)
    assert (journal.first, journal.last) == (index - 1, index)


def test_a_hole_between_snapshot_and_log_is_damage(disk: Disk) -> None:
    journal = filled(disk, 50)
    journal.trim(30)
    with pytest.raises(Damaged, match="begins at 30, the snapshot ends at 20"):
        journal.align(20, 3, 3)


def test_sizes_behind_an_index(disk: Disk) -> None:
    journal = filled(disk, 50)
    assert journal.bytes_after(50) == 0
    assert journal.bytes_after(0) == journal.wal.end - journal._ats[0]
    per_entry = journal.bytes_after(49)
    assert journal.index_with_bytes_after(10 * per_entry) == 40
    assert journal.index_with_bytes_after(10**9) == 1
