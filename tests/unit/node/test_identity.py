"""The record that identifies a disk: its encoding, and rejected records."""

from functools import partial
from typing import Any

import msgpack
import pytest

from beanpole.errors import Damaged, StorageError, UnknownVersion
from beanpole.storage.format import Identity
from beanpole.storage.small_files import write_atomic
from beanpoled.disk import identity
from beanpoled.disk.identity import FOUNDING, REJOINING, VOTER, DiskIdentity
from tests.sim.clock import Clock
from tests.sim.disk import Disk

OWNER = Identity("c", "n0")
FOUNDERS = (("n0", b"0" * 16), ("n1", b"1" * 16), ("n2", b"2" * 16))
BIRTH = identity.birth_of("c", FOUNDERS)
MEMBERS = ("n0", "n1", "n2")
WHOLE = DiskIdentity(
    cluster="c",
    node="n0",
    disk_id=b"0" * 16,
    members=MEMBERS,
    standing=VOTER,
    birth=BIRTH,
    founders=FOUNDERS,
    incarnation=7,
    replacement=True,
    log_base=2**40,
)


@pytest.fixture
def disk() -> Disk:
    return Disk(Clock(), 1)


def changed(**changes: Any) -> bytes:
    """The content of a record with some keys changed."""
    values = msgpack.unpackb(identity.encode(WHOLE))
    return bytes(msgpack.packb({**values, **changes}))


def test_what_is_written_is_read_again_after_a_crash(disk: Disk) -> None:
    assert identity.read(disk, "/n0") is None
    for record in (
        WHOLE,
        DiskIdentity("c", "n0", b"d" * 16, MEMBERS),
        DiskIdentity("c", "n0", b"d" * 16, MEMBERS, REJOINING, replacement=True),
    ):
        identity.write(disk, "/n0", record)
        disk.crash()
        assert identity.read(disk, "/n0") == record


def test_a_crash_leaves_the_old_record_or_the_new_one() -> None:
    seen = set()
    for seed in range(40):
        disk = Disk(Clock(), seed)
        identity.write(disk, "/n0", WHOLE)
        later = WHOLE._replace(incarnation=8)
        disk.submit(partial(identity.write, disk, "/n0", later), print)
        disk.crash()
        found = identity.read(disk, "/n0")
        assert found is not None
        assert found in (WHOLE, WHOLE._replace(incarnation=8))
        seen.add(found.incarnation)
    assert 7 in seen


def test_a_birth_id_names_its_founders_in_any_order_and_nobody_else() -> None:
    assert identity.birth_of("c", reversed(FOUNDERS)) == BIRTH
    assert len(BIRTH) == identity.BIRTH_BYTES
    assert identity.birth_of("d", FOUNDERS) != BIRTH
    assert identity.birth_of("c", (*FOUNDERS[:2], ("n2", b"3" * 16))) != BIRTH
    assert identity.short(BIRTH) == BIRTH.hex()[:8]
    assert identity.short(b"") == "none"


@pytest.mark.parametrize("content", [b"d" * 16, b"d" * 16 + b"\1"])
def test_the_record_of_an_earlier_program_is_refused(disk: Disk, content: bytes) -> None:
    write_atomic(disk, "/n0/identity", OWNER, content)
    with pytest.raises(StorageError, match=r"before 0\.2\.0.*empty the data directory"):
        identity.read(disk, "/n0")


def test_a_newer_format_is_refused_and_an_unknown_key_is_not(disk: Disk) -> None:
    write_atomic(disk, "/n0/identity", OWNER, changed(format=2))
    with pytest.raises(UnknownVersion, match="format 2, this program knows 1: install the newer"):
        identity.read(disk, "/n0")
    write_atomic(disk, "/n0/identity", OWNER, changed(later=1))
    assert identity.read(disk, "/n0") == WHOLE


@pytest.mark.parametrize(
    "change",
    [
        {"format": "1"},
        {"disk_id": b"short"},
        {"disk_id": None},
        {"members": ["n1", "n2"]},
        {"members": ["n1", "n0"]},
        {"members": 3},
        {"standing": "king"},
        {"standing": FOUNDING},
        {"birth": b""},
        {"birth": b"short"},
        {"founders": []},
        {"incarnation": -1},
        {"incarnation": "x"},
        {"log_base": -2},
    ],
)
def test_a_record_that_makes_no_sense_is_damage(disk: Disk, change: dict[str, Any]) -> None:
    write_atomic(disk, "/n0/identity", OWNER, changed(**change))
    with pytest.raises(Damaged):
        identity.read(disk, "/n0")


@pytest.mark.parametrize("content", [b"\xc1" * 30, msgpack.packb([1] * 30), bytes(30)])
def test_bytes_that_are_no_record_are_damage(disk: Disk, content: bytes) -> None:
    write_atomic(disk, "/n0/identity", OWNER, content)
    with pytest.raises(Damaged):
        identity.read(disk, "/n0")
