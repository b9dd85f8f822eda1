"""Files of any bytes: a valid prefix of the written records, or one of our own errors.

Good files are edited at random, some with a corrected checksum of the header, so that the fields
after it are reached. Every cut and every flipped bit is in test_damage, test_snapshots and
test_records.
"""

from struct import Struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.errors import BeanpoleError, Damaged
from beanpole.storage.dump import describe
from beanpole.storage.format import FILE_HEADER_BYTES
from beanpole.storage.small_files import read_checked, write_atomic
from beanpole.storage.snapshots import SnapshotStore
from beanpole.storage.wal import Wal
from tests.unit.storage.disk import Disk, Node
from tests.unit.storage.logs import OURS, Record, fill, opened

FIRST = "log/00000000000000000000.wal"
SNAPSHOTS = "snap"
SMALL = "data/incarnation"
CHUNKS = [b"one", b"x" * 700, bytes(600), b"two"]
CHECK = Struct("<I")

PLACES = st.one_of(st.integers(0, 600), st.integers(0, 4000))
SIZES = st.one_of(st.integers(0, 8), st.integers(0, 1200))
PIECES = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.builds(lambda size: bytes(size), st.integers(1, 1200)),
    st.just(b"\xff\xff\xff\xff"),
)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PLACES, PIECES),
        st.tuples(st.just("insert"), PLACES, PIECES),
        st.tuples(st.just("remove"), PLACES, SIZES),
        st.tuples(st.just("cut"), PLACES, st.just(0)),
        st.tuples(st.just("repeat"), PLACES, SIZES),
    ),
    max_size=4,
)
FILES = st.tuples(EDITS, st.booleans())
PROPERTY = settings(max_examples=300, deadline=None)
Edits = tuple[list[tuple[str, int, bytes | int]], bool]


def spoilt(good: bytes, edits: Edits) -> bytes:
    """Return the edited file, with a corrected header checksum if the edits request it."""
    data = bytearray(good)
    for how, place, what in edits[0]:
        if how == "write":
            assert isinstance(what, bytes)
            data[place : place + len(what)] = what
        elif how == "insert":
            assert isinstance(what, bytes)
            data[place:place] = what
        elif isinstance(what, int):
            if how == "remove":
                del data[place : place + what]
            elif how == "cut":
                del data[place:]
            else:
                data[place:place] = data[place : place + what]
    if edits[1] and len(data) >= FILE_HEADER_BYTES:
        body = bytes(data[: FILE_HEADER_BYTES - CHECK.size])
        data[len(body) : FILE_HEADER_BYTES] = CHECK.pack(crc32c(body))
    return bytes(data)


def place_file(path: str, data: bytes) -> Disk:
    """Return a disk with one file of these bytes."""
    disk = Disk()
    node = disk.names[path] = Node(path)
    node.data, node.durable = bytearray(data), bytearray(data)
    return disk


def good_log() -> tuple[bytes, list[Record]]:
    disk = Disk()
    wal = opened(disk)
    records: list[Record] = []
    for count, size in ((1, 20), (3, 300), (2, 0), (1, 900)):
        records += fill(wal, count, size)
        wal.flush()
    return bytes(disk.names[FIRST].data[:3000]), records


def good_snapshot() -> tuple[bytes, str]:
    disk = Disk()
    writer = SnapshotStore(disk, SNAPSHOTS, OURS).create(7, 2)
    for chunk in CHUNKS:
        writer.write(chunk)
    writer.finish(lambda error: None)
    disk.run()
    (name,) = disk.list(SNAPSHOTS)
    path = f"{SNAPSHOTS}/{name}"
    return bytes(disk.names[path].data), path


def good_small() -> bytes:
    disk = Disk()
    write_atomic(disk, SMALL, OURS, b"seventeen")
    return bytes(disk.names[SMALL].data)


LOG, RECORDS = good_log()
SNAPSHOT, SNAPSHOT_PATH = good_snapshot()
SMALL_FILE = good_small()


def check_log(data: bytes) -> None:
    disk = place_file(FIRST, data)
    found: list[Record] = []
    try:
        wal = Wal.open(disk, "log", OURS, 8192, replay=lambda *record: found.append(record))
    except BeanpoleError as error:
        assert str(error)
        # Records replayed before the damage was found are correct nevertheless.
        assert found == RECORDS[: len(found)]
        return
    assert found == RECORDS[: len(found)]
    for at, *rest in found:
        assert wal.read(at) == tuple(rest)
    at = wal.append(9, 99, 9, b"new")
    wal.flush()
    assert wal.read(at) == (9, 99, 9, b"new")
    wal.close()
    again: list[Record] = []
    Wal.open(disk, "log", OURS, 8192, replay=lambda *record: again.append(record)).close()
    assert again == [*found, (at, 9, 99, 9, b"new")]


@PROPERTY
@given(FILES)
def test_a_spoilt_log_is_a_prefix_of_itself_or_refused(edits: Edits) -> None:
    data = spoilt(LOG, edits)
    check_log(data)
    # The description is never empty, and never shows more than the file has.
    assert list(describe("log", place_file(FIRST, data)))


@PROPERTY
@given(st.binary(max_size=1500))
def test_any_bytes_behind_the_header_of_a_log_are_no_records(data: bytes) -> None:
    disk = place_file(FIRST, LOG[:FILE_HEADER_BYTES] + data)
    found: list[Record] = []
    try:
        Wal.open(disk, "log", OURS, 8192, replay=lambda *record: found.append(record)).close()
    except BeanpoleError as error:
        assert str(error)
    assert not found


@PROPERTY
@given(FILES)
def test_a_spoilt_snapshot_is_a_prefix_and_then_refused(edits: Edits) -> None:
    """A reader must see the end before the content counts (`core.restore.load` checks this)."""
    disk = place_file(SNAPSHOT_PATH, spoilt(SNAPSHOT, edits))
    found: list[bytes] = []
    whole = False
    try:
        store = SnapshotStore(disk, SNAPSHOTS, OURS)
        info = store.latest()
        if info is not None:
            found += store.read(info)
            whole = True
    except BeanpoleError as error:
        assert str(error)
    assert found == CHUNKS if whole else found == CHUNKS[: len(found)]


@PROPERTY
@given(FILES)
def test_a_spoilt_small_file_is_as_it_was_or_refused(edits: Edits) -> None:
    disk = place_file(SMALL, spoilt(SMALL_FILE, edits))
    try:
        found = read_checked(disk, SMALL, OURS)
    except BeanpoleError as error:
        assert str(error)
    else:
        assert found == b"seventeen"


@pytest.mark.parametrize("name", [b"\xff" * 3, b""], ids=["no text", "empty"])
def test_a_header_without_names_is_refused(name: bytes) -> None:
    """Its checksum is correct, but no version of the program writes such a header."""
    data = bytearray(LOG[:FILE_HEADER_BYTES])
    place = data.index(b"dev")
    data[place - 2] = len(name)
    data[place : place + 3] = name
    data = data.ljust(FILE_HEADER_BYTES, b"\0")
    check_log(spoilt(bytes(data), ([], True)))
    with pytest.raises(Damaged, match="the names in the header"):
        opened(place_file(FIRST, spoilt(bytes(data), ([], True))))
