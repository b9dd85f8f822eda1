"""Small files: the old content or the new one, with checksum and owner."""

import errno
from random import Random

import pytest

from beanpole.errors import Damaged, UnknownVersion, WrongIdentity
from beanpole.storage.format import Identity
from beanpole.storage.small_files import PAYLOAD_BYTES_MAX, read_checked, write_atomic
from tests.unit.storage.disk import Disk

OURS = Identity("dev", "n0")
PATH = "data/incarnation"


def test_the_content_comes_back() -> None:
    disk = Disk()
    assert read_checked(disk, PATH, OURS) is None
    for payload in (b"17", b"", b"\0" * 600, b"x" * PAYLOAD_BYTES_MAX):
        write_atomic(disk, PATH, OURS, payload)
        assert read_checked(disk, PATH, OURS) == payload
    assert disk.list("data") == ["incarnation"]


def test_it_is_durable_at_return() -> None:
    disk = Disk()
    write_atomic(disk, PATH, OURS, b"17")
    disk.crash(Random(3))
    assert read_checked(disk, PATH, OURS) == b"17"


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_directory"])
def test_a_crash_at_any_operation_leaves_the_old_or_the_new(operation: str) -> None:
    for luck in range(10):
        disk = Disk()
        write_atomic(disk, PATH, OURS, b"old")

        def broken(name: str, path: str) -> None:
            if name == operation:
                raise OSError(errno.EIO, "input/output error", path)

        disk.fail = broken
        with pytest.raises(OSError, match="input/output"):
            write_atomic(disk, PATH, OURS, b"new")
        disk.fail = lambda name, path: None
        disk.crash(Random(luck))
        assert read_checked(disk, PATH, OURS) in (b"old", b"new")
        write_atomic(disk, PATH, OURS, b"next")
        assert read_checked(disk, PATH, OURS) == b"next"


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    disk = Disk()
    write_atomic(disk, PATH, OURS, b"seventeen")
    node = disk.names[PATH]
    for offset in range(len(node.data)):
        for bit in range(8):
            node.data[offset] ^= 1 << bit
            with pytest.raises((Damaged, UnknownVersion)):
                read_checked(disk, PATH, OURS)
            node.data[offset] ^= 1 << bit
    whole = bytes(node.data)
    for cut in range(len(whole)):
        node.data = bytearray(whole[:cut])
        with pytest.raises(Damaged):
            read_checked(disk, PATH, OURS)
    node.data = bytearray(whole + b"x")
    with pytest.raises(Damaged):
        read_checked(disk, PATH, OURS)


def test_a_file_of_another_node_is_refused() -> None:
    disk = Disk()
    write_atomic(disk, PATH, OURS, b"17")
    with pytest.raises(WrongIdentity, match="belongs to node n0 of cluster dev"):
        read_checked(disk, PATH, Identity("dev", "n2"))
