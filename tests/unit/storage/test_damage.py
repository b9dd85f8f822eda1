"""Every cut, every flipped bit, every torn batch: a valid prefix or `Damaged`, never a guess.

The rule: durable records are found, or the start is refused. The last batch may be lost only if it
looks as a power cut leaves it, with sectors missing.
"""

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.errors import BeanpoleError, Damaged
from beanpole.storage.dump import describe
from beanpole.storage.format import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, SECTOR_BYTES, Identity
from beanpole.storage.wal import Wal
from tests.unit.storage.disk import Disk, Node, broken_sync

OURS = Identity("dev", "n0")
FIRST = "log/00000000000000000000.wal"
SEGMENT_BYTES = 4096


def opened(disk: Disk) -> tuple[Wal, list[int]]:
    """Open the log and return the indexes of its records."""
    found: list[int] = []
    wal = Wal.open(
        disk,
        "log",
        OURS,
        SEGMENT_BYTES,
        replay=lambda at, kind, index, term, p: found.append(index),
    )
    return wal, found


def written(batches: list[list[int]]) -> tuple[bytes, list[int]]:
    """Return the bytes of a segment with these batches of payload sizes, and the records' ends."""
    disk = Disk()
    wal, _ = opened(disk)
    ends: list[int] = []
    for sizes in batches:
        for size in sizes:
            wal.append(1, len(ends), 1, bytes([len(ends) + 1]) * size)
            ends.append(wal.end + FILE_HEADER_BYTES)
        wal.flush()
    return bytes(disk.names[FIRST].data), ends


def disk_of(data: bytes) -> Disk:
    """Return a disk with one segment of these bytes."""
    disk = Disk()
    node = disk.names[FIRST] = Node(FIRST)
    node.data, node.durable = bytearray(data), bytearray(data)
    return disk


def outcome(data: bytes) -> list[int] | None:
    """Open a log of these bytes; return the indexes found, or None for a refusal.

    The same indexes must be found again after a power cut right after the start, and the log must
    take new records.
    """
    disk = disk_of(data)
    try:
        wal, found = opened(disk)
    except BeanpoleError:
        return None
    assert wal.durable == wal.end
    disk.crash(Random(1))
    wal, again = opened(disk)
    assert again == found
    wal.append(1, 99, 1, b"new")
    wal.flush()
    wal.close()
    assert opened(disk)[1] == [*found, 99]
    return found


def test_every_cut_leaves_the_records_before_it() -> None:
    data, ends = written([[20], [30, 0, 700], [90, 10]])
    for cut in range(FILE_HEADER_BYTES, ends[-1] + 2):
        whole = [index for index, end in enumerate(ends) if end <= cut]
        assert outcome(data[:cut]) == whole, f"cut at {cut}"


def test_a_segment_without_its_header_is_refused() -> None:
    data, _ = written([[20]])
    for cut in range(FILE_HEADER_BYTES):
        assert outcome(data[:cut]) is None


def test_every_flipped_bit_is_refused_or_harmless() -> None:
    """Also in the last record, as long as no sector of it is zeros: nothing looks torn then."""
    data, ends = written([[20], [30, 0, 700], [90, 10]])
    everything = list(range(len(ends)))
    for offset in range(ends[-1] + 40):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[offset] ^= 1 << bit
            allowed = (None,) if offset < ends[-1] else (None, everything)
            assert outcome(bytes(flipped)) in allowed, f"bit {bit} of byte {offset}"


def test_a_flip_in_the_last_batch_beside_a_sector_of_zeros_looks_torn() -> None:
    """The two cases cannot be distinguished, which is documented; only the last batch is lost."""
    disk = Disk()
    wal, _ = opened(disk)
    wal.append(1, 0, 1, b"first")
    wal.flush()
    at = wal.append(1, 1, 1, bytes(1200))
    wal.flush()
    data = bytearray(disk.names[FIRST].data)
    data[FILE_HEADER_BYTES + at + RECORD_HEADER_BYTES + 5] ^= 1
    assert outcome(bytes(data)) == [0]
    wal.append(1, 2, 1, b"later")
    wal.flush()
    data = bytearray(disk.names[FIRST].data)
    data[FILE_HEADER_BYTES + at + RECORD_HEADER_BYTES + 5] ^= 1
    assert outcome(bytes(data)) is None, "a later batch proves that it was durable"


def test_a_batch_torn_in_any_way_is_cut_and_never_called_damage() -> None:
    """Any sectors of the last batch may be missing; later records in it may be whole."""
    sizes = [300, 40, 900, 1, 700, 500]
    data, ends = written([[100, 20], sizes])
    start = ends[1]
    first = start // SECTOR_BYTES
    count = (ends[-1] - 1) // SECTOR_BYTES - first + 1
    assert count >= 5
    for kept in itertools.product((False, True), repeat=count):
        torn = bytearray(data)
        for number, keep in enumerate(kept):
            if not keep:
                low = max((first + number) * SECTOR_BYTES, start)
                high = (first + number + 1) * SECTOR_BYTES
                torn[low:high] = bytes(high - low)
        found = outcome(bytes(torn))
        assert found is not None and found[:2] == [0, 1], f"sectors {kept}"
        assert found == list(range(len(found)))
        if all(kept):
            assert len(found) == len(ends)


def test_missing_sectors_of_a_durable_batch_are_damage() -> None:
    data, ends = written([[900, 900], [50]])
    hole = bytearray(data)
    hole[1024:1536] = bytes(512)
    with pytest.raises(Damaged, match=rf"{FIRST}: offset 512: the record at offset {ends[1]} was"):
        opened(disk_of(bytes(hole)))


def test_the_cut_is_durable_before_the_log_goes_on() -> None:
    data, ends = written([[20], [1500]])
    torn = disk_of(data[: ends[0] + 700])
    torn.log.clear()
    wal, found = opened(torn)
    assert found == [0]
    name = FIRST.removeprefix("log/")
    cut = torn.log.index(f"truncate {name}")
    assert f"sync {name}" in torn.log[cut:]
    assert not any(torn.names[FIRST].durable[ends[0] :])
    assert wal.end == ends[0] - FILE_HEADER_BYTES


def test_what_a_start_has_read_is_durable_although_an_earlier_sync_failed() -> None:
    """After a failed sync the system believes that pages are clean which the disk never got."""
    for luck in range(10):
        disk = Disk()
        wal, _ = opened(disk)
        wal.append(1, 0, 1, b"durable")
        wal.flush()
        failures: list[OSError] = []
        wal.on_failure = failures.append
        disk.fail = broken_sync
        wal.append(1, 1, 1, b"x" * 700)
        wal.append(1, 2, 1, b"x" * 700)
        wal.flush()
        assert len(failures) == 1
        disk.fail = lambda operation, path: None
        disk.kill()
        wal, found = opened(disk)
        assert found == [0, 1, 2] and wal.durable == wal.end
        disk.crash(Random(luck))
        assert opened(disk)[1] == found


def test_bytes_of_an_older_segment_are_never_records_of_this_one() -> None:
    disk = Disk()
    wal, _ = opened(disk)
    for index in range(25):
        wal.append(1, index, 1, b"x" * 300)
        wal.flush()
    names = disk.list("log")
    old, new = (disk.names[f"log/{name}"] for name in names[-2:])
    used = len(new.data.rstrip(b"\0"))
    stale = old.data[used:]
    assert any(stale)
    new.data[used : used + len(stale)] = stale
    # Whole records of another segment at their own offsets: neither accepted, nor torn.
    with pytest.raises(Damaged):
        opened(disk)


def test_a_record_moved_within_its_segment_is_not_accepted() -> None:
    data, ends = written([[20], [20], [20]])
    size = RECORD_HEADER_BYTES + 20
    moved = bytearray(data)
    moved[ends[2] : ends[2] + size] = data[ends[1] : ends[2]]
    assert outcome(bytes(moved)) is None


def segments() -> tuple[Disk, list[str]]:
    """Return a log of several full segments."""
    disk = Disk()
    wal, _ = opened(disk)
    for index in range(60):
        wal.append(1, index, 1, b"x" * 200)
        wal.flush()
    wal.close()
    names = disk.list("log")
    assert len(names) >= 4
    return disk, names


def test_a_missing_segment_is_named() -> None:
    disk, names = segments()
    del disk.names[f"log/{names[2]}"]
    with pytest.raises(Damaged, match=rf"log/{names[2]}: offset 0: missing.*--dump-wal log"):
        opened(disk)


def test_an_older_segment_must_be_whole() -> None:
    disk, names = segments()
    node = disk.names[f"log/{names[1]}"]
    used = len(node.data.rstrip(b"\0"))
    for cut in range(FILE_HEADER_BYTES, used):
        broken, _ = segments() if cut % 997 == 0 else (disk, names)
        broken.names[f"log/{names[1]}"].data = node.data[:cut]
        with pytest.raises(Damaged):
            opened(broken)


def test_a_segment_under_another_name_is_refused() -> None:
    disk, names = segments()
    disk.names[f"log/{names[1]}"], disk.names[f"log/{names[2]}"] = (
        disk.names[f"log/{names[2]}"],
        disk.names[f"log/{names[1]}"],
    )
    with pytest.raises(Damaged, match="its header says"):
        opened(disk)


def test_the_dump_shows_records_ends_and_damage_without_changing_anything() -> None:
    data, ends = written([[20], [30, 1200]])
    disk = disk_of(data)
    disk.log.clear()
    lines = list(describe("log", disk))
    assert lines[1] == "  node n0 of cluster dev"
    assert lines[2] == "  offset 512: at 0 kind 1 index 0 term 1 payload 20 bytes"
    assert lines[-1] == f"  offset {ends[-1]}: end of the records at position {ends[-1] - 512}"
    assert {line.split()[0] for line in disk.log} == {"open", "read"}
    lines = list(describe("log", disk_of(data[: ends[1] + 500])))
    assert lines[-1].startswith(f"  offset {ends[1]}: torn tail, a start cuts it")
    flipped = bytearray(data)
    flipped[630] ^= 1
    lines = list(describe("log", disk_of(bytes(flipped))))
    assert lines[-1].startswith("DAMAGED: offset 569: the checksum of the record is wrong")
    assert list(describe("nowhere", Disk())) == ["nowhere: no segments"]
    lines = list(describe("log", disk_of(b"short")))
    assert lines[-1].startswith(f"DAMAGED: {FIRST}: offset 0")


def test_the_dump_shows_a_missing_segment() -> None:
    disk, names = segments()
    del disk.names[f"log/{names[2]}"]
    assert f"DAMAGED: {names[2]} should come here" in list(describe("log", disk))


ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 1800)),
    st.tuples(st.sampled_from(["flush", "step", "sync", "drop", "kill", "crash"]), st.integers(0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=60))
def test_any_life_keeps_what_was_durable(actions: list[tuple[str, int]]) -> None:
    """The model is a list of (position, index); power cuts keep any sectors of unsynced data."""
    disk = Disk(inline=False)
    wal, _ = opened(disk)
    model: list[tuple[int, int]] = []
    index = 0
    for action, number in [*actions, ("crash", 7)]:
        if action == "append":
            index += 1
            model.append((wal.append(1, index, 1, Random(index).randbytes(number)), index))
        elif action == "flush":
            wal.flush()
        elif action == "step":
            disk.step(number % 2)
        elif action == "sync":
            wal.sync()
        elif action == "drop" and model:
            wal.drop_before(model[number % len(model)][0])
        elif action in ("kill", "crash"):
            durable, start = wal.durable, wal.start
            if action == "kill":
                disk.kill()
            else:
                disk.crash(Random(number))
            wal, found = opened(disk)
            needed = [item for at, item in model if start <= at < durable]
            known = [item for _, item in model]
            assert found == known[len(known) - len(found) :] or found == [
                item for item in known if found[0] <= item <= found[-1]
            ]
            assert not needed or (found[0] <= needed[0] and found[-1] >= needed[-1])
            model = [(at, item) for at, item in model if wal.start <= at < wal.end]
            assert [item for _, item in model] == found
