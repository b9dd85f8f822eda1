"""The identity of a disk at a start: a member never returns silently with another disk."""

import dataclasses
from types import MappingProxyType
from typing import Any

import pytest

from beanpole.errors import StorageError, WrongIdentity
from beanpoled.config.node import NodeConfig
from beanpoled.disk import identity
from beanpoled.disk.disks import DISKS_MAX, Disks
from beanpoled.disk.identity import FOUNDING, NO_LOG, REJOINING, VOTER
from tests.sim.clock import Clock
from tests.sim.disk import Disk, Killed
from tests.unit.node.stage import config

OWN = b"own disk........"
OTHER = b"other disk......"
THIRD = b"third disk......"
BIRTH = b"birth..........."


def begin(disk: Disk, fresh: bytes = OWN, **overrides: Any) -> Disks:
    """Start n0 of three on a disk."""
    return Disks(disk, config(**overrides), fresh)


def joined(disk: Disk, **changes: Any) -> Disks:
    """Return a disk that is part of a cluster."""
    disks = begin(disk)
    disks.change(birth=BIRTH, standing=VOTER, **changes)
    return disks


def members(*names: str) -> dict[str, Any]:
    """Return the setting of another list of members."""
    known = config().members
    return {"members": MappingProxyType({name: known.get(name, known["n2"]) for name in names})}


@pytest.fixture
def disk() -> Disk:
    return Disk(Clock(), 1)


def test_an_empty_disk_keeps_its_id_and_belongs_to_no_cluster(disk: Disk) -> None:
    first = begin(disk).own
    assert (first.disk_id, first.standing, first.runs) == (OWN, FOUNDING, False)
    disk.crash()
    assert begin(disk, OTHER).own == first


def test_a_node_alone_founds_itself(disk: Disk) -> None:
    own = begin(disk, **members("n0")).own
    assert (own.standing, own.founders) == (VOTER, (("n0", OWN),))
    assert own.birth == identity.birth_of("stage", own.founders)


def test_what_was_begun_without_a_cluster_may_rejoin(disk: Disk) -> None:
    """A refused start leaves nothing behind that would hinder --rejoin."""
    begin(disk)
    disk.crash()
    own = begin(disk, OTHER, rejoin=True).own
    assert (own.disk_id, own.standing, own.replacement) == (OTHER, REJOINING, True)
    disk.crash()
    assert begin(disk, THIRD).own == own, "the flag is not needed again"
    assert begin(disk, THIRD, rejoin=True).own == own


def test_a_disk_without_a_cluster_takes_any_list_cluster_or_name(disk: Disk) -> None:
    begin(disk)
    assert begin(disk, OTHER, **members("n0", "n5")).own.members == ("n0", "n5")
    moved = begin(disk, OTHER, cluster="typing error mended").own
    assert (moved.cluster, moved.disk_id) == ("typing error mended", OTHER)


@pytest.mark.parametrize("rejoin", [False, True])
def test_a_crash_at_any_call_of_a_first_start_forgets_no_flag(rejoin: bool) -> None:
    """Finding 1: a directory existed before the mark that its owner must not vote."""
    for calls in range(20):
        disk = Disk(Clock(), calls)
        disk.calls_left = calls
        try:
            begin(disk, rejoin=rejoin)
        except Killed:
            disk.crash()
            disk.calls_left = None
            found = identity.read(disk, "/n0")
            assert found is None or found.standing == (REJOINING if rejoin else FOUNDING)
            assert not begin(disk, OTHER).own.runs
        else:
            assert calls > 3
            return
    pytest.fail("a start makes that many calls")


@pytest.mark.parametrize(
    "overrides", [members("n0"), members("n0", "n1", "n3"), members("n0", "n1")]
)
def test_another_member_list_than_the_disk_is_part_of_is_refused(
    disk: Disk, overrides: dict[str, Any]
) -> None:
    """A list that was cut to one member began a second cluster with the same jobs."""
    joined(disk)
    with pytest.raises(StorageError, match="this disk is part of n0, n1, n2: put the list back"):
        begin(disk, **overrides)
    assert begin(disk).own.standing == VOTER


@pytest.mark.parametrize("part", ["identity", "peers", "log"])
def test_a_record_that_cannot_be_looked_for_is_not_replaced(disk: Disk, part: str) -> None:
    """A failed look counted as a missing file, and a new identity replaced the good one."""
    before = joined(disk, incarnation=3).own
    disk.unreadable_path = f"/n0/{part}"
    with pytest.raises(OSError, match=f"input/output error: '/n0/{part}'"):
        begin(disk, OTHER)
    disk.unreadable_path = ""
    assert begin(disk, OTHER).own == before


def test_another_node_s_directory_is_refused(disk: Disk) -> None:
    joined(disk)
    others: list[dict[str, Any]] = [{"cluster": "other"}, {"node_id": "n1"}]
    for other in others:
        with pytest.raises(WrongIdentity, match="belongs to node n0 of cluster stage"):
            begin(disk, **other)


@pytest.mark.parametrize("part", ["log", "snapshots", "events"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("rejoin", [False, True])
def test_parts_of_a_disk_without_its_identity_are_refused(
    disk: Disk, part: str, known: bool, rejoin: bool
) -> None:
    if known:
        begin(disk)
    disk.make_directory(f"/n0/{part}")
    with pytest.raises(StorageError, match=f"holds {part} but no identity.*--rejoin"):
        begin(disk, rejoin=rejoin)


def test_a_flag_that_stays_has_no_effect_on_a_disk_that_counts(disk: Disk) -> None:
    joined(disk)
    assert begin(disk, OTHER, rejoin=True).own.standing == VOTER


def test_segments_of_the_log_are_noted(disk: Disk) -> None:
    disks = joined(disk)
    assert disks.own.log_base == NO_LOG
    disks.note_log(0)
    disks.note_log(4711)
    disk.crash()
    assert begin(disk).own.log_base == 4711


def test_what_cannot_be_written_is_not_so(disk: Disk) -> None:
    disks = joined(disk, incarnation=3)
    disk.failing = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        disks.change(incarnation=4)
    with pytest.raises(OSError, match="No space"):
        disks.remember("n1", OTHER)
    assert (disks.own.incarnation, disks.known("n1")) == (3, ())


def test_disks_of_others_are_remembered_the_present_one_first(disk: Disk) -> None:
    disks = joined(disk, founders=(("n0", OWN), ("n1", OTHER), ("n2", THIRD)))
    assert disks.known("n1") == (OTHER,), "founders are known"
    disks.remember("n1", OTHER)
    disks.remember("n1", THIRD)
    disk.crash()
    disks = begin(disk)
    assert disks.known("n1") == (THIRD, OTHER)
    for number in range(DISKS_MAX):
        disks.remember("n1", number.to_bytes(16, "big"))
    assert len(disks.known("n1")) == DISKS_MAX


def test_the_file_of_others_stays_small(disk: Disk) -> None:
    """Finding C: enough unknown disks filled the file until an assertion ended the node."""
    names = tuple("x" * 62 + str(number) for number in range(9))
    known = config().members["n0"]
    whole: NodeConfig = dataclasses.replace(
        config(), node_id=names[0], members=MappingProxyType(dict.fromkeys(names, known))
    )
    disks = Disks(disk, whole, OWN)
    for name in names[1:]:
        for number in range(DISKS_MAX + 5):
            disks.remember(name, number.to_bytes(16, "big"))
    assert [len(disks.known(name)) for name in names[1:]] == [DISKS_MAX] * 8
