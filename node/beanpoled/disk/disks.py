"""The identity of this node's disk, and the disks of the other members that it has met.

This module reads both at the start, rejects a start that contradicts the disk, and replaces both.
`admission` decides the consequences for a peer.
"""

import os
import threading
from typing import Any, Final

import msgpack

from beanpole.errors import StorageError, WrongIdentity
from beanpole.storage.files import Files
from beanpole.storage.format import Identity, check_identity
from beanpole.storage.small_files import PAYLOAD_BYTES_MAX, read_checked, write_atomic
from beanpoled.config.node import NodeConfig
from beanpoled.disk import identity as record
from beanpoled.disk.identity import DISK_ID_BYTES, FOUNDING, REJOINING, VOTER, DiskIdentity

# This many disks of a member are remembered; a still older one would be taken for a new disk.
DISKS_MAX: Final = 100
# Only disks of members are remembered: at most 9 members with names of 63 bytes, so that the file
# stays small.
assert 9 * (DISKS_MAX * DISK_ID_BYTES + 63 + 8) < PAYLOAD_BYTES_MAX
OTHERS_FILE: Final = "peers"
# Parts that exist only on a disk that has run consensus.
PARTS: Final = ("log", "snapshots", "events")


class Disks:
    """This node's disk, and the disks of the other members that it knows.

    Attributes:
        own: the identity of this disk, as stored on it.
    """

    def __init__(self, files: Files, config: NodeConfig, fresh_id: bytes) -> None:
        """Read the data directory, or begin a new one with `fresh_id`.

        Raises:
            StorageError: the directory contradicts itself or the configuration.
            UnknownVersion: a newer program wrote it.
            OSError: the disk refuses.
        """
        self._files = files
        self._directory = config.data_dir
        self._owner = Identity(config.cluster, config.node_id)
        self._others_path = os.path.join(config.data_dir, OTHERS_FILE)
        # The thread that writes the log notes its segments while the loop goes on.
        self._lock = threading.Lock()
        files.make_directory(config.data_dir)
        self.own = self._begin(config, fresh_id)
        others = read_checked(files, self._others_path, self._owner) if self.own.runs else None
        # The present disk of each member, followed by the disks that it replaced.
        self._others: dict[str, bytes] = {} if others is None else msgpack.unpackb(others)

    def change(self, **changes: Any) -> None:
        """Change the identity of this disk, durably at return; may be called from any thread.

        Raises:
            OSError: the change failed, and nothing has changed.
        """
        with self._lock:
            changed = self.own._replace(**changes)
            record.write(self._files, self._directory, changed)
            self.own = changed

    def note_log(self, base: int) -> None:
        """Record that a segment of the log with this base exists."""
        self.change(log_base=base)

    def known(self, node: str) -> tuple[bytes, ...]:
        """The disks of a member: the present one, then those that it replaced."""
        disks = self._others.get(node)
        if disks is None:
            return tuple(disk for name, disk in self.own.founders if name == node)
        return tuple(disks[at : at + DISK_ID_BYTES] for at in range(0, len(disks), DISK_ID_BYTES))

    def remember(self, node: str, disk_id: bytes) -> None:
        """Record a disk of a member as its present one, durably at return.

        Raises:
            OSError: the disk cannot be recorded.
        """
        known = self.known(node)
        if known[:1] == (disk_id,):
            return
        others = self._others | {node: b"".join((disk_id, *known)[:DISKS_MAX])}
        write_atomic(self._files, self._others_path, self._owner, msgpack.packb(others))
        self._others = others

    # --- the start --------------------------------------------------------------------------------

    def _begin(self, config: NodeConfig, fresh_id: bytes) -> DiskIdentity:
        found = read_own(self._files, config)
        if found is not None and found.runs:
            return found
        # Nothing was ever promised on this disk: it may become whatever the start requires.
        wanted = self._fresh(found, config, tuple(sorted(config.members)), fresh_id)
        if wanted != found:
            record.write(self._files, config.data_dir, wanted)
        return wanted

    def _fresh(
        self, found: DiskIdentity | None, config: NodeConfig, members: tuple[str, ...], fresh: bytes
    ) -> DiskIdentity:
        if found is not None and found.owner != self._owner:
            found = None
        if config.rejoin and (found is None or found.standing != REJOINING):
            found = DiskIdentity(*self._owner, fresh, members, REJOINING, replacement=True)
        if found is None:
            found = DiskIdentity(*self._owner, fresh, members)
        found = found._replace(members=members)
        if found.standing == FOUNDING and len(members) == 1:
            # There is no other member to wait for.
            founders = ((found.node, found.disk_id),)
            birth = record.birth_of(found.cluster, founders)
            found = found._replace(standing=VOTER, birth=birth, founders=founders)
        return found


def read_own(files: Files, config: NodeConfig) -> DiskIdentity | None:
    """Read the identity of this disk, and check it as a start does; None if the disk is empty.

    Raises:
        StorageError: the directory contradicts itself or the configuration.
        UnknownVersion: a newer program wrote it.
        OSError: the disk refuses.
    """
    directory = config.data_dir
    found = record.read(files, directory)
    parts = [part for part in PARTS if files.exists(f"{directory}/{part}")]
    if parts and (found is None or not found.runs):
        raise StorageError(
            f"{directory} holds {' and '.join(parts)} but no {record.IDENTITY_FILE} that "
            "belongs to it: it is not a whole data directory; restore it, or empty it and "
            "start with --rejoin"
        )
    if found is not None and found.runs:
        own = Identity(config.cluster, config.node_id)
        check_identity(found.owner, own, record.path_of(directory))
        _check_members(found, tuple(sorted(config.members)))
    return found


def _check_members(found: DiskIdentity, members: tuple[str, ...]) -> None:
    if found.members != members:
        raise WrongIdentity(
            f"the configuration has the members {', '.join(members)}, and this disk is part of "
            f"{', '.join(found.members)}: put the list back, or change members with all nodes "
            "stopped (beanpole recover, see docs/operating.md)"
        )
