"""Which disk is whose: this node's own disk id, and the disk ids of the members it has met.

A node that lost its disk has also lost its vote and the entries it acknowledged. It must not come
back as if nothing had happened, so every node remembers the others' disks and refuses a new one
that was not begun with `--rejoin`, and one that was replaced since.
"""

import os
from typing import Final

import msgpack

from beanpole.errors import Damaged, StorageError
from beanpole.storage.files import Files
from beanpole.storage.records import read_checked, write_atomic
from beanpole.storage.wal import Identity
from beanpoled.link import Hello

DISK_ID_BYTES: Final = 16
# Stands behind the own disk id if this disk was begun with --rejoin.
REPLACEMENT: Final = b"\1"
# So many disks of a member are remembered; an older one would be met as if it were new.
DISKS_MAX: Final = 100
OWN_FILE: Final = "identity"
OTHERS_FILE: Final = "peers"


class Disks:
    """The disk ids that this node knows."""

    def __init__(
        self,
        files: Files,
        directory: str,
        identity: Identity,
        fresh_id: bytes,
        rejoin: bool = False,
    ) -> None:
        """Read the data directory, or begin a new one with `fresh_id`, or as a replacement.

        Raises:
            StorageError: the directory is another node's, is damaged, or misses its identity.
        """
        self._files = files
        self._identity = identity
        self._others_path = os.path.join(directory, OTHERS_FILE)
        files.make_directory(directory)
        path = os.path.join(directory, OWN_FILE)
        found = read_checked(files, path, identity)
        self.is_fresh = found is None
        rest = [
            name for name in ("log", "snapshots", "events") if files.exists(f"{directory}/{name}")
        ]
        if found is None:
            if rest:
                raise StorageError(
                    f"{directory} holds {' and '.join(rest)} but no {OWN_FILE}: it is not a whole "
                    "data directory; restore it, or empty it and start with --rejoin"
                )
            found = fresh_id + (REPLACEMENT if rejoin else b"")
            write_atomic(files, path, identity, found)
        self.own, mark = found[:DISK_ID_BYTES], found[DISK_ID_BYTES:]
        if len(self.own) != DISK_ID_BYTES or mark not in (b"", REPLACEMENT):
            raise Damaged(f"{path} holds {len(found)} bytes and no disk id")
        # For ever, because a member that was away may meet this disk when it counts already.
        self.is_replacement = mark == REPLACEMENT
        if self.is_replacement and not rest and not rejoin:
            # It was begun, and ended before the replica noted that it must not count.
            raise StorageError(f"{directory} is empty and was to rejoin: start with --rejoin again")
        others = read_checked(files, self._others_path, identity)
        # The present disk of each member, and behind it those that it replaced.
        self._others: dict[str, bytes] = {} if others is None else msgpack.unpackb(others)

    def refuses(self, hello: Hello) -> str | None:
        """Why the member behind a hello cannot be talked to; None if it can.

        A disk that is new to this node is remembered before anything else is said to it.

        Raises:
            OSError: it cannot be remembered.
        """
        known = self._others.get(hello.node, b"")
        disks = [known[at : at + DISK_ID_BYTES] for at in range(0, len(known), DISK_ID_BYTES)]
        if disks[:1] == [hello.disk_id]:
            return None
        if disks and (not hello.rejoining or hello.disk_id in disks):
            return (
                f"{hello.node} has an empty or another disk than before: restore its data "
                "directory, or start it on an empty one with --rejoin"
            )
        kept = b"".join([hello.disk_id, *disks][:DISKS_MAX])
        others = self._others | {hello.node: kept}
        write_atomic(self._files, self._others_path, self._identity, msgpack.packb(others))
        self._others = others
        return None
