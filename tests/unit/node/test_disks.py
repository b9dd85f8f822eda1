"""Whose disk is whose: nobody comes back with an empty disk as if nothing had happened."""

import pytest

from beanpole.errors import StorageError, WrongIdentity
from beanpole.storage.records import write_atomic
from beanpole.storage.wal import Identity
from beanpoled.disks import Disks
from beanpoled.link import Hello
from tests.sim.clock import Clock
from tests.sim.disk import Disk

IDENTITY = Identity("cluster", "n0")
OWN = b"own disk........"
OTHER = b"other disk......"
THIRD = b"third disk......"


def hello(disk_id: bytes, rejoining: bool = False) -> Hello:
    return Hello(1, "cluster", "n1", "config", disk_id, rejoining, bytes(16))


@pytest.fixture
def disk() -> Disk:
    return Disk(Clock(), 1)


def test_a_disk_keeps_its_id(disk: Disk) -> None:
    first = Disks(disk, "/n0", IDENTITY, OWN)
    assert (first.own, first.is_fresh) == (OWN, True)
    disk.crash()
    again = Disks(disk, "/n0", IDENTITY, OTHER)
    assert (again.own, again.is_fresh) == (OWN, False)


def test_another_node_s_directory_is_refused(disk: Disk) -> None:
    Disks(disk, "/n0", IDENTITY, OWN)
    with pytest.raises(WrongIdentity):
        Disks(disk, "/n0", Identity("cluster", "n9"), OWN)


@pytest.mark.parametrize("kept", ["log", "snapshots", "events"])
def test_a_directory_with_a_part_and_no_identity_is_refused(disk: Disk, kept: str) -> None:
    disk.make_directory(f"/n0/{kept}")
    with pytest.raises(StorageError, match="not a whole data directory"):
        Disks(disk, "/n0", IDENTITY, OWN)


def test_an_id_of_another_size_is_damage(disk: Disk) -> None:
    write_atomic(disk, "/n0/identity", IDENTITY, b"short")
    with pytest.raises(StorageError, match="no disk id"):
        Disks(disk, "/n0", IDENTITY, OWN)


def test_a_member_s_disk_is_remembered_before_it_is_talked_to(disk: Disk) -> None:
    assert Disks(disk, "/n0", IDENTITY, OWN).refuses(hello(OTHER)) is None
    disk.crash()
    disks = Disks(disk, "/n0", IDENTITY, OWN)
    assert disks.refuses(hello(OTHER)) is None
    refusal = disks.refuses(hello(THIRD))
    assert refusal is not None
    assert "--rejoin" in refusal
    assert disks.refuses(hello(OTHER)) is None


def test_a_member_that_rejoins_has_its_new_disk_from_then_on(disk: Disk) -> None:
    disks = Disks(disk, "/n0", IDENTITY, OWN)
    assert disks.refuses(hello(OTHER)) is None
    assert disks.refuses(hello(THIRD, rejoining=True)) is None
    assert disks.refuses(hello(THIRD)) is None
    assert disks.refuses(hello(OTHER)) is not None


def test_a_replacement_is_one_for_ever_and_what_it_replaced_never_comes_back(disk: Disk) -> None:
    """A member that was away while another rejoined refused that one's disk for good."""
    there = Disk(Clock(), 2)
    assert Disks(there, "/n1", Identity("cluster", "n1"), THIRD, rejoin=True).is_replacement
    there.make_directory("/n1/log")
    again = Disks(there, "/n1", Identity("cluster", "n1"), OTHER)
    assert (again.own, again.is_replacement) == (THIRD, True)
    disks = Disks(disk, "/n0", IDENTITY, OWN)
    assert not disks.is_replacement
    assert disks.refuses(hello(OTHER, rejoining=True)) is None
    assert disks.refuses(hello(THIRD, rejoining=True)) is None
    disk.crash()
    disks = Disks(disk, "/n0", IDENTITY, OWN)
    assert disks.refuses(hello(OTHER, rejoining=True)) is not None
    assert disks.refuses(hello(THIRD, rejoining=True)) is None


def test_a_replacement_that_never_began_must_say_so_again(disk: Disk) -> None:
    Disks(disk, "/n0", IDENTITY, OWN, rejoin=True)
    with pytest.raises(StorageError, match="start with --rejoin again"):
        Disks(disk, "/n0", IDENTITY, OWN)
    assert Disks(disk, "/n0", IDENTITY, OTHER, rejoin=True).own == OWN


def test_what_cannot_be_remembered_is_not_accepted(disk: Disk) -> None:
    disks = Disks(disk, "/n0", IDENTITY, OWN)
    disk.failing = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        disks.refuses(hello(OTHER))
    disk.failing = None
    assert disks.refuses(hello(THIRD)) is None
