"""The file that decides the identity of a disk: `identity` in the data directory.

This module defines the record and its bytes, and reads and replaces it. It needs no node, so
operators' tools use it, too. `admission` decides from it which nodes may talk to each other.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgpack

from beanpole.errors import Damaged, StorageError, UnknownVersion
from beanpole.storage.files import Files
from beanpole.storage.format import Identity
from beanpole.storage.segment import NO_LOG as NO_LOG
from beanpole.storage.small_files import read_record, write_atomic

IDENTITY_FILE: Final = "identity"
FORMAT: Final = 1
DISK_ID_BYTES: Final = 16
BIRTH_BYTES: Final = 16
# Operators compare the beginning of a birth id: messages and tables show this many digits.
BIRTH_DIGITS: Final = 8
# Programs before 0.2.0 wrote a disk id and at most one byte after it, which is shorter than every
# record of this format.
OLD_BYTES_MAX: Final = DISK_ID_BYTES + 1

# The standing of a disk. A founding disk has never run consensus; a rejoining disk has no vote.
FOUNDING: Final = "founding"
VOTER: Final = "voter"
REJOINING: Final = "rejoining"
STANDINGS: Final = (FOUNDING, VOTER, REJOINING)
# The beginning of the message with which a node ends when its disk refuses the record.
WRITE_REFUSED: Final = "cannot write the identity of this disk"

Founders = tuple[tuple[str, bytes], ...]


class DiskIdentity(NamedTuple):
    """The identity of a disk.

    Attributes:
        cluster: name of the cluster.
        node: name of the node.
        disk_id: 16 random bytes of this disk.
        members: sorted names of the members of the cluster that the disk was last part of.
        standing: FOUNDING, VOTER or REJOINING.
        birth: the birth id of the cluster, 16 bytes; empty before it is known.
        founders: sorted (node, disk id) of the disks that founded the cluster; may be empty if it
            began in another way.
        incarnation: the last one that the node began on this disk; 0 for none.
        replacement: whether the disk was ever begun with `--rejoin`.
        log_base: position at which the newest segment of the log begins; NO_LOG before the first.
    """

    cluster: str
    node: str
    disk_id: bytes
    members: tuple[str, ...]
    standing: str = FOUNDING
    birth: bytes = b""
    founders: Founders = ()
    incarnation: int = 0
    replacement: bool = False
    log_base: int = NO_LOG

    @property
    def runs(self) -> bool:
        """Whether this disk may run consensus: it knows the birth id of the cluster."""
        return bool(self.birth)

    @property
    def owner(self) -> Identity:
        """The cluster and node in the header of every file."""
        return Identity(self.cluster, self.node)


def birth_of(cluster: str, founders: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the birth id of the cluster that these (node, disk id) pairs found.

    A node that receives a birth id and its founders can verify that they belong together.
    """
    agreed: bytes = msgpack.packb((cluster, sorted(founders)))
    return hashlib.sha256(agreed).digest()[:BIRTH_BYTES]


def short(birth: bytes) -> str:
    """Return the abbreviated birth id that messages show."""
    return birth.hex()[:BIRTH_DIGITS] or "none"


def path_of(directory: str) -> str:
    """Return the path of the record of a data directory."""
    return os.path.join(directory, IDENTITY_FILE)


def write(files: Files, directory: str, identity: DiskIdentity) -> None:
    """Replace the record, durably at return. The directory must exist.

    Raises:
        OSError: the old record is still in place.
    """
    write_atomic(files, path_of(directory), identity.owner, encode(identity))


def read(files: Files, directory: str) -> DiskIdentity | None:
    """Return the record of a data directory, None if there is none.

    Raises:
        Damaged: the file is corrupt.
        StorageError: a program before 0.2.0 wrote it.
        UnknownVersion: a newer program wrote it.
        OSError: the disk refuses.
    """
    path = path_of(directory)
    found = read_record(files, path)
    if found is None:
        return None
    owner, payload = found
    return decode(payload, owner, path)


def read_stopped(files: Files, directory: str) -> DiskIdentity:
    """Return the record of a data directory that must have one, for tools.

    Raises:
        StorageError: there is none; for other errors see `read`.
    """
    identity = read(files, directory)
    if identity is None:
        raise StorageError(f"{path_of(directory)} does not exist: {directory} is no data directory")
    return identity


def found_offline(
    cluster: str, members: Iterable[str], new_disk_id: Callable[[], bytes]
) -> list[DiskIdentity]:
    """Return the records of a new cluster whose disks are all made by one tool.

    Args:
        cluster: name of the cluster.
        members: names of its nodes.
        new_disk_id: returns DISK_ID_BYTES random bytes.
    """
    names = tuple(sorted(members))
    founders = tuple((name, new_disk_id()) for name in names)
    birth = birth_of(cluster, founders)
    return [
        DiskIdentity(cluster, name, disk_id, names, VOTER, birth, founders)
        for name, disk_id in founders
    ]


def encode(identity: DiskIdentity) -> bytes:
    """Return the content of the file. Cluster and node are in its header."""
    packed: bytes = msgpack.packb(
        {
            "format": FORMAT,
            "disk_id": identity.disk_id,
            "members": identity.members,
            "standing": identity.standing,
            "birth": identity.birth,
            "founders": dict(identity.founders),
            "incarnation": identity.incarnation,
            "replacement": identity.replacement,
            "log_base": identity.log_base,
        }
    )
    return packed


def decode(payload: bytes, owner: Identity, path: str) -> DiskIdentity:
    """Decode the content of the file; keys that this program does not know are ignored.

    Raises:
        Damaged: the content is no valid record.
        StorageError: a program before 0.2.0 wrote it.
        UnknownVersion: a newer program wrote it.
    """
    if len(payload) <= OLD_BYTES_MAX:
        raise StorageError(
            f"{path} was written by a program before 0.2.0, whose data this one does not read: "
            "empty the data directory of every node, or go back to that program"
        )
    try:
        values: Any = msgpack.unpackb(payload)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise Damaged(f"{path} is no record of a disk") from error
    if type(values) is not dict or type(values.get("format")) is not int:
        raise Damaged(f"{path} is no record of a disk")
    if values["format"] != FORMAT:
        raise UnknownVersion(
            f"{path} has format {values['format']}, this program knows {FORMAT}: install the "
            "newer program that wrote it"
        )
    try:
        identity = DiskIdentity(
            cluster=owner.cluster,
            node=owner.node,
            disk_id=bytes(values["disk_id"]),
            members=tuple(map(str, values["members"])),
            standing=str(values["standing"]),
            birth=bytes(values["birth"]),
            founders=tuple(sorted((str(a), bytes(b)) for a, b in values["founders"].items())),
            incarnation=int(values["incarnation"]),
            replacement=bool(values["replacement"]),
            log_base=int(values["log_base"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{path} is no whole record of a disk") from error
    if not _makes_sense(identity):
        raise Damaged(f"{path} contradicts itself")
    return identity


def _makes_sense(identity: DiskIdentity) -> bool:
    known = len(identity.birth) == BIRTH_BYTES
    return (
        len(identity.disk_id) == DISK_ID_BYTES
        and identity.node in identity.members
        and list(identity.members) == sorted(set(identity.members))
        and (known or not identity.birth)
        and identity.standing in STANDINGS
        and (known or identity.standing != VOTER)
        and (not known or identity.standing != FOUNDING)
        and (known or identity.log_base == NO_LOG)
        and identity.log_base >= NO_LOG
        and identity.incarnation >= 0
    )
