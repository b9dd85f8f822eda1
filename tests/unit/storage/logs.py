"""Small logs for tests: opened, filled, read back."""

from beanpole.storage.format import Identity
from beanpole.storage.wal import Wal
from tests.unit.storage.disk import Disk

OURS = Identity("dev", "n0")
Record = tuple[int, int, int, int, bytes]


def opened(disk: Disk, segment_bytes: int = 8192, identity: Identity = OURS) -> Wal:
    """Open the log without looking at its records."""
    return Wal.open(disk, "log", identity, segment_bytes, replay=lambda *record: None)


def replayed(disk: Disk, segment_bytes: int = 8192) -> list[Record]:
    """Open the log and return its records."""
    found: list[Record] = []
    Wal.open(disk, "log", OURS, segment_bytes, replay=lambda *r: found.append(r)).close()
    return found


def fill(wal: Wal, count: int, size: int = 100) -> list[Record]:
    """Append some records and return them."""
    records: list[Record] = []
    for index in range(count):
        payload = bytes([index % 255 + 1]) * size
        records.append((wal.append(7, index, 3, payload), 7, index, 3, payload))
    return records
