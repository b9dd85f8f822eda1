"""The file of a segment: written completely, and rejected if any byte differs."""

import errno
import os
from pathlib import Path

import pytest

from beanpole.errors import BeanpoleError, Damaged, UnknownVersion, WrongIdentity
from beanpole.storage.disk_handle import DiskHandle
from beanpole.storage.files import Files, Handle, InlineFiles
from beanpole.storage.format import Identity
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import EventBatch
from beanpoled.eventlog.segment import EventSegment
from beanpoled.view import JobCounts
from tests.sim.clock import Clock
from tests.sim.disk import Disk
from tests.unit.eventlog.made import chance

IDENTITY = Identity("test", "n0")
BATCHES = [EventBatch(7, 2, 50, b"two events"), EventBatch(9, 1, 60, b"one")]


def written(directory: Path, files: Files | None = None, with_hosts: bool = True) -> EventSegment:
    about = segments.about(chance(1, 3, 7, with_hosts), JobCounts(1, 2, 3, 4))
    return segments.write(files or InlineFiles(), str(directory), IDENTITY, 7, 10, about, BATCHES)


def payloads(segment: EventSegment, files: Files | None = None) -> list[bytes]:
    handle = (files or InlineFiles()).open(segment.path)
    try:
        return [segments.read(handle, segment, place) for place in segment.places]
    finally:
        handle.close()


@pytest.mark.parametrize("with_hosts", [False, True])
def test_what_was_written_is_read(tmp_path: Path, with_hosts: bool) -> None:
    segment = written(tmp_path, with_hosts=with_hosts)
    assert segment.about.columns == (2 if with_hosts else 1)
    assert [entry.name for entry in tmp_path.iterdir()] == [segments.name_of(7, 10)]
    assert segments.inspect(InlineFiles(), segment.path, IDENTITY) == segment
    assert payloads(segment) == [batch.payload for batch in BATCHES]
    notes = chance(1, 3, 7)
    assert segment.about.log_index == (notes.note(0).log_index, notes.note(-1).log_index)
    assert segment.about.jobs == JobCounts(1, 2, 3, 4)
    assert segment.size == Path(segment.path).stat().st_size


def test_a_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """Each later segment was lost until the next start."""
    directory = tmp_path / "data" / "events"
    with pytest.raises(FileNotFoundError, match="data/events"):
        written(directory)
    assert not list(tmp_path.iterdir()), "a data directory that was moved away can come back"
    directory.parent.mkdir()
    assert payloads(written(directory)) == [batch.payload for batch in BATCHES]


def test_no_other_byte_and_no_cut_is_believed() -> None:
    disk = Disk(Clock(), 1)
    path = written(Path("/events"), disk).path
    whole = disk.open(path).read(0, disk.size(path))
    spoiled = [whole[:place] for place in range(len(whole))]
    for place in range(len(whole)):
        other = bytearray(whole)
        other[place] ^= 1 << place % 8
        spoiled.append(bytes(other))
    for data in spoiled:
        disk.open(path, create=True).write(0, data)
        with pytest.raises(BeanpoleError, match=r"\.events"):
            payloads(segments.inspect(disk, path, IDENTITY), disk)


def test_an_end_of_zeros_is_named_as_one(tmp_path: Path) -> None:
    """Zeros are the footer of an index without a byte, whose checksum is right."""
    path = Path(written(tmp_path).path)
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    with pytest.raises(Damaged, match="it has no end with a right checksum"):
        segments.inspect(InlineFiles(), str(path), IDENTITY)


def test_another_nodes_and_another_versions_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path).path
    with pytest.raises(WrongIdentity, match="node n0 of cluster test"):
        segments.inspect(InlineFiles(), path, Identity("test", "n1"))
    monkeypatch.setattr(segments, "COLUMNS_VERSION", 3)
    with pytest.raises(UnknownVersion, match="columns of version 2, this program knows 1 and 3"):
        segments.inspect(InlineFiles(), path, IDENTITY)
    Path(path).write_bytes(b"something else")
    with pytest.raises(Damaged, match="not the beginning"):
        segments.inspect(InlineFiles(), path, IDENTITY)


class FullHandle(DiskHandle):
    """A file on a disk that reports late that it is full."""

    def sync(self) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")


class FullDisk(InlineFiles):
    def open(self, path: str, create: bool = False) -> Handle:
        return FullHandle(os.open(path, os.O_RDWR | os.O_CREAT))


@pytest.mark.constants
def test_a_full_disk_gets_its_room_back(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space left"):
        written(tmp_path, FullDisk())
    assert list(tmp_path.iterdir()) == []
