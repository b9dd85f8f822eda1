"""The data directory of a stopped node: read its contents, and make new directories from them.

This is behind `beanpole inspect` and `beanpole recover`; a running node uses none of it. Texts for
people are in `cli`.
"""

import os
from dataclasses import dataclass, field
from typing import Final

from beanpole import commands as c
from beanpole.client.exiting import os_error_words
from beanpole.core.image import image, restore
from beanpole.core.machine import Machine
from beanpole.core.users import ANY_RIGHT, EVERYWHERE, TOKENS_MAX, USERS_MAX, USERS_SINCE, User
from beanpole.errors import BeanpoleError, UnknownVersion
from beanpole.replication.pysyncobj.offline import StoppedReplica, begin_replica
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from beanpole.storage.files import Files, InlineFiles
from beanpole.storage.format import Identity
from beanpoled.disk.identity import NO_LOG, DiskIdentity
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.store import DIRECTORY as EVENTS_DIRECTORY

# Entries that are made here refuse no puts.
NO_FLAGS: Final = 0


@dataclass
class Holdings:
    """The queue in one data directory.

    Attributes:
        replica: the log and the newest snapshot; None if they cannot be read.
        machine: the queue as of the last entry; None if it cannot be built.
        committed: an index that is known to be committed, from a snapshot or a file of events.
        damage: the reasons why parts cannot be read, one line each; empty if all can be read.
        events_damage: the same of files of events, which a start leaves out: nothing else needs
            them, and the other nodes have the events.
    """

    replica: StoppedReplica | None
    machine: Machine | None
    committed: int
    damage: list[str]
    events_damage: list[str] = field(default_factory=list)


def look(files: Files, directory: str, record: DiskIdentity) -> Holdings:
    """Read a whole directory and judge it as a start would. Damage is reported, not raised.

    Args:
        files: the disk; nothing is written.
        directory: the data directory.
        record: its `identity`.
    """
    found = Holdings(None, None, 0, [])
    identity = record.owner
    if record.log_base == NO_LOG and not files.list(os.path.join(directory, "log")):
        return found  # the node has never run
    try:
        replica = StoppedReplica(files, directory, identity, record.birth, record.log_base)
        found.replica = replica
        found.machine = machine_of(replica)
    except (BeanpoleError, OSError) as error:
        found.damage.append(words_of(error))
    if found.replica is not None and found.replica.snapshot is not None:
        found.committed = found.replica.snapshot.index
    found.committed = max(
        found.committed, _last_with_events(files, directory, identity, found.events_damage)
    )
    return found


def machine_of(stopped: StoppedReplica) -> Machine:
    """Build the queue from the snapshot and all entries after it, committed or not.

    Raises:
        Damaged: the snapshot or an entry cannot be read.
        UnknownVersion: the snapshot or an entry is of another version.
    """
    chunks = stopped.image()
    machine = Machine() if chunks is None else restore.load(chunks)
    for position, _, payload in stopped.entries():
        try:
            flags, time_us, wall_us, sections = c.decode_entry(payload)
        except UnknownVersion as error:
            raise UnknownVersion(f"entry {position} cannot be applied: {error}") from None
        applied = machine.apply(position, flags, time_us, wall_us, sections)
        if applied.raised and machine.version > c.MACHINE_VERSION:
            raise UnknownVersion(restore.upgrade_words(machine.version, c.MACHINE_VERSION))
        _forget_events(machine)
    return machine


def begin_anew(machine: Machine, last: int) -> int:
    """End every session of the old cluster, so that reserved jobs are ready again.

    The members of the new cluster may be others, so no old member is kept as an origin.

    Args:
        machine: the state with all known commands of the old cluster.
        last: index of the last entry of its log.

    Returns:
        The index of the machine afterwards.
    """
    now_us, wall_us = machine.queue.now_us, machine.wall_us
    downs = tuple(
        (c.NODE_DOWN, origin.index, origin.incarnation)
        for origin in machine.origins.values()
        if origin.alive
    )
    position = max(machine.index, last) + 1
    machine.apply(position, NO_FLAGS, now_us, wall_us, [(c.LEADER, 0, 0, downs)])
    while machine.has_work() or machine.detached:
        # A kept session would go on with its jobs for its grace, and its secret would be valid.
        for session in list(machine.detached.values()):
            machine.forget_detached(session)
            machine.kill(session)
        position += 1
        machine.apply(position, NO_FLAGS, now_us, wall_us, [])
    machine.origins.clear()
    _forget_events(machine)
    return position


def may_have_user(machine: Machine, name: bytes) -> str:
    """Return the reason why a machine cannot have a user of this valid name; empty if it can."""
    if machine.version < USERS_SINCE:
        return f"machine version {machine.version} has no users"
    if name not in machine.users.rows and len(machine.users.rows) >= USERS_MAX:
        return f"there are {USERS_MAX} users, which is the most; name one of them"
    return ""


def make_administrator(machine: Machine, name: bytes, digest: bytes) -> None:
    """Give a user every right and one more token, as where those of all administrators are lost.

    A user that exists keeps its limits and its tokens, but the oldest if it has TOKENS_MAX.

    Args:
        machine: `may_have_user` has no reason against it.
        name: of a user, which may not exist yet; not that of all without a token.
        digest: of the token.
    """
    users = machine.users
    before = users.rows.get(name)
    rights = ((EVERYWHERE, ANY_RIGHT),)
    if before is None:
        user = User(name, (digest,), rights, birth=users.new_birth())
    else:
        tokens = (*before.tokens, digest)[-TOKENS_MAX:]
        user = User(name, tokens, rights, before.limits, before.birth)
    users.change({**users.rows, name: user})


def write_replica(
    directory: str, identity: Identity, machine: Machine, header: SnapshotHeader
) -> int:
    """Make log and snapshot of a member of the new cluster, and return the base of its log.

    Raises:
        OSError: the disk refuses.
    """
    picture = image.Image(machine)
    try:
        chunks = iter(picture.next_chunk, None)
        return begin_replica(InlineFiles(), directory, identity, header, chunks)
    finally:
        picture.close()


def _last_with_events(files: Files, directory: str, identity: Identity, damage: list[str]) -> int:
    """The log index of the newest event in a file: events are of committed entries only.

    Args:
        files: the disk; nothing is written.
        directory: the data directory.
        identity: the owner of the files.
        damage: gets a line for each file that cannot be used.
    """
    folder = os.path.join(directory, EVENTS_DIRECTORY)
    last = 0
    try:
        names = [name for name in files.list(folder) if name.endswith(segments.SUFFIX)]
    except OSError as error:
        damage.append(f"events: {words_of(error)}")
        return last
    for name in names:
        try:
            found = segments.inspect(files, os.path.join(folder, name), identity)
            last = max(last, found.about.log_index[1])
        except (BeanpoleError, OSError) as error:
            damage.append(f"events: {words_of(error)}")
    return last


def words_of(error: BeanpoleError | OSError) -> str:
    """Return why a part of a directory cannot be read, in words for people."""
    return os_error_words(error) if isinstance(error, OSError) else str(error)


def _forget_events(machine: Machine) -> None:
    """Drop all events: nothing reads them here, and those of a long log would fill the memory."""
    machine.queue.events = bytearray()
    machine.queue.externals.clear()
    machine.queue.details.clear()
    machine.queue.tubes_named.clear()
    machine.queue.ready_tubes.clear()
