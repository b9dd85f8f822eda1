"""A lost log, or one without its newest segments, is refused; no crash looks like that."""

import pytest

from beanpole.errors import Damaged
from beanpole.storage.segment import NO_LOG, segment_name
from beanpole.storage.small_files import read_checked, write_atomic
from beanpole.storage.wal import Wal
from tests.sim.clock import Clock
from tests.sim.disk import Disk, Killed
from tests.unit.storage.logs import OURS, Record, fill

SEGMENT_BYTES = 2048
NOTED = "/n0/noted"


class Owner:
    """The owner of a log: it records in a small file which segments exist."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        found = read_checked(disk, NOTED, OURS)
        self.noted = NO_LOG if found is None else int(found)
        self.records: list[Record] = []
        self.wal = Wal.open(
            disk,
            "/n0/log",
            OURS,
            SEGMENT_BYTES,
            replay=lambda *record: self.records.append(record),
            newest=self.noted,
            note=self.note,
        )

    def note(self, base: int) -> None:
        write_atomic(self.disk, NOTED, OURS, b"%d" % base)
        self.noted = base


def lose(disk: Disk, prefix: str) -> None:
    """Remove files as if they had never existed."""
    for names in (disk._names, disk._durable_names):
        for name in [name for name in names if name.startswith(prefix)]:
            del names[name]


@pytest.fixture
def disk() -> Disk:
    return Disk(Clock(), 1)


def test_every_segment_is_noted_before_it_holds_a_record(disk: Disk) -> None:
    owner = Owner(disk)
    assert owner.noted == 0
    fill(owner.wal, 60)
    owner.wal.sync()
    bases = [int(name.split(".")[0]) for name in disk.list("/n0/log")]
    assert len(bases) > 3 and owner.noted == bases[-1]


def test_a_log_that_is_gone_is_refused(disk: Disk) -> None:
    """Finding 2: a new segment was made, and the node voted with an empty log."""
    Owner(disk).wal.close()
    lose(disk, "/n0/log/")
    with pytest.raises(Damaged, match=r"/n0/log: the log is gone.*mount or restore.*--rejoin"):
        Owner(disk)
    assert disk.list("/n0/log") == [], "nothing is made in its place"


def test_a_log_without_its_newest_segment_is_refused(disk: Disk) -> None:
    owner = Owner(disk)
    fill(owner.wal, 60)
    owner.wal.close()
    newest = segment_name(owner.noted)
    lose(disk, f"/n0/log/{newest}")
    with pytest.raises(Damaged, match=f"{newest} and the segments after it are gone"):
        Owner(disk)


def test_a_crash_at_any_call_refuses_nothing_and_loses_nothing() -> None:
    for calls in range(400):
        disk = Disk(Clock(), calls)
        disk.calls_left = calls
        kept: list[Record] = []
        try:
            owner = Owner(disk)
            for _ in range(12):
                records = fill(owner.wal, 5)
                owner.wal.sync()
                kept += records
        except Killed:
            disk.crash()
            disk.calls_left = None
            again = Owner(disk)
            assert again.records[: len(kept)] == kept, calls
            assert again.noted >= 0
            again.wal.append(7, 99, 3, b"more")
            again.wal.sync()
        else:
            assert calls > 20
            return
    pytest.fail("a log makes that many calls")
