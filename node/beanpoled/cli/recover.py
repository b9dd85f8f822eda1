"""`beanpole recover DIR --to OUT`: make a new cluster from one surviving disk.

The last resort when a majority of the disks is lost, and the way to change the members while all
nodes are stopped. It writes a complete data directory for each member; DIR is only read.
"""

import argparse
import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from typing import Any

from beanpole.client.where import folder
from beanpole.core.machine import Machine
from beanpole.core.users import ANONYMOUS, USER_NAME_MAX_BYTES, may_be_name
from beanpole.errors import ConfigurationError, StorageError
from beanpole.replication.pysyncobj.offline import StoppedReplica
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from beanpole.storage.files import InlineFiles
from beanpole.storage.locks import LOCK
from beanpole.storage.readonly import ReadOnlyFiles
from beanpole.storage.small_files import read_checked, write_atomic
from beanpoled.cli import tokens
from beanpoled.cli.inspect import as_json, as_text, record_of
from beanpoled.cli.outputs import is_within, naming, removing
from beanpoled.config.settings import MEMBERS_MAX, Name, alike
from beanpoled.disk import identity as identities
from beanpoled.disk.offline import (
    begin_anew,
    look,
    make_administrator,
    may_have_user,
    words_of,
    write_replica,
)
from beanpoled.leading.saved_clock import CLOCK_FILE


def add_command(commands: Any) -> None:
    """Add `recover` to the parser."""
    parser = commands.add_parser(
        "recover",
        help="make a new cluster from the data directory of one stopped node",
        description="For when a majority of the disks is lost, or the members are to change. All "
        "nodes must be stopped. DIR is only read; OUT gets a data directory for each member, to "
        "be copied to its machine. Without --yes it only says what it would do.",
    )
    parser.add_argument("directory", metavar="DIR", help="the data_dir with the newest log")
    parser.add_argument(
        "--to", type=folder, required=True, metavar="OUT", help="a folder that does not exist"
    )
    parser.add_argument(
        "--members",
        metavar="ID,...",
        help="ids of the nodes of the new cluster (default: the members of the old one)",
    )
    parser.add_argument(
        "--administrator",
        metavar="USER",
        help="give USER every right and a new token, which is printed: for when the tokens of all "
        "administrators are lost; other users stay as they are",
    )
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, and carry it out if --yes is given."""
    directory, out = arguments.directory, str(arguments.to)
    if os.path.lexists(out):
        raise _exists(out)
    if is_within(out, directory):
        raise ConfigurationError(f"--to = {out!r} is not allowed: it is in {directory!r}")
    record = record_of(ReadOnlyFiles(), directory)
    members = record.members if arguments.members is None else _members(arguments.members)
    administrator = None if arguments.administrator is None else _user(arguments.administrator)
    with _held(directory):
        found = look(ReadOnlyFiles(), directory, record)
        print(as_text(directory, as_json(record, found)))
        replica, machine = found.replica, found.machine
        if replica is None and not found.damage:
            raise StorageError(f"{directory} was never part of a cluster: nothing to recover")
        if replica is None or machine is None:
            raise StorageError(
                f"{directory} cannot be read as a whole (see damage above): recover from another "
                "disk, or from a copy of this one as it was before"
            )
        if not replica.last:
            raise StorageError(f"{directory} holds no entry: there is nothing to recover")
        print(_plan(record, replica, found.committed, members, out))
        token = None if administrator is None else _promoted(machine, administrator)
        if arguments.yes:
            with _whole(out, members):
                _write(record, replica, machine, members, directory, out)
            print(_what_next(members, out))
            if token is not None:
                print(f"\nThe new token of {arguments.administrator}: {token}\n{tokens.ONCE}")
        else:
            print("Nothing was written. The same command with --yes does it.")
    return 0


def _exists(out: str) -> ConfigurationError:
    return ConfigurationError(f"--to = {out!r} is not allowed: it exists; name a new folder")


@contextlib.contextmanager
def _held(directory: str) -> Iterator[None]:
    """Keep a node from starting meanwhile: it would append to the log that is being read.

    A directory that had no lock has none afterwards: a node could not open root's.
    """
    had_lock = os.path.lexists(os.path.join(directory, LOCK))
    try:
        lock = InlineFiles().hold(directory)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        yield  # no node runs on a disk that is mounted read-only
        return
    try:
        yield
    finally:
        if had_lock:
            lock.release()
        else:
            lock.remove()


def _members(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    try:
        members = tuple(sorted(str(Name().check(name)) for name in names))
    except ValueError as error:
        raise ConfigurationError(
            f"--members = {text!r} is not allowed: each id must be {error}"
        ) from None
    if len(set(members)) != len(members) or len(members) > MEMBERS_MAX:
        raise ConfigurationError(
            f"--members = {text!r} is not allowed: it must be 1 to {MEMBERS_MAX} ids, each once"
        )
    if same := alike(members):
        raise ConfigurationError(f"--members = {text!r} is not allowed: {same}")
    return members


def _user(text: str) -> bytes:
    name = text.encode(errors="surrogateescape")
    if not may_be_name(name) or name == ANONYMOUS:
        raise ConfigurationError(
            f"--administrator = {text!r} is not allowed: it must be 1 to {USER_NAME_MAX_BYTES} "
            f"letters, digits or -_.@, and not {ANONYMOUS.decode()}, the user of all without a "
            "token"
        )
    return name


def _promoted(machine: Machine, name: bytes) -> str:
    """Make a user an administrator with a new token, and return the token."""
    if reason := may_have_user(machine, name):
        raise ConfigurationError(f"--administrator is not allowed: {reason}")
    token = tokens.drawn()
    make_administrator(machine, name, token.digest)
    print(f"The user {name.decode()} gets every right and a new token.")
    return token.text


def _plan(
    record: identities.DiskIdentity,
    replica: StoppedReplica,
    committed: int,
    members: tuple[str, ...],
    out: str,
) -> str:
    lost = f"every change that was acknowledged behind index {replica.last} and is not on this disk"
    unsure = ""
    if committed < replica.last:
        unsure = f"""
  unsure   entries {committed + 1} to {replica.last}: on this disk, but perhaps never acknowledged;
           they count"""
    return f"""
This makes a new cluster of {", ".join(members)} with a birth id of its own:
  kept     every job that this disk knows of, with its id, except foreground jobs of Gearman, whose
           clients are gone, and running ones that use up the attempts of a policy by that; reserved
           ones become ready, but leases of Workq and running jobs of qless stay taken until their
           time is over
  lost     {lost}{unsure}
  not      the files of events: {record.node} keeps those of the old cluster where they are
  beware   disks of the old cluster (birth id {record.birth.hex()}) never join the new
           one, but a majority of them would serve the old queue beside it: see to it that the
           nodes that are given up cannot start again
It writes a data directory for each member below {out}."""


@contextlib.contextmanager
def _whole(out: str, members: tuple[str, ...]) -> Iterator[None]:
    """Make OUT, and leave it whole or not at all: some of the members would look like a cluster.

    Raises:
        ConfigurationError: another program, perhaps a second `recover`, has made it meanwhile.
    """
    files = InlineFiles()
    parent = os.path.dirname(os.path.abspath(out))
    with removing(), naming(out):
        files.make_directory(parent)
        try:
            os.mkdir(out, 0o700)
        except FileExistsError:
            raise _exists(out) from None
        try:
            files.sync_directory(parent)
            yield
        except BaseException:
            for name in members:
                shutil.rmtree(os.path.join(out, name), ignore_errors=True)
            with contextlib.suppress(OSError):  # files of others stay, and OUT with them
                os.rmdir(out)
            raise


def _write(
    record: identities.DiskIdentity,
    replica: StoppedReplica,
    machine: Machine,
    members: tuple[str, ...],
    directory: str,
    out: str,
) -> None:
    files = InlineFiles()
    try:
        clock = read_checked(ReadOnlyFiles(), os.path.join(directory, CLOCK_FILE), record.owner)
    except (StorageError, OSError) as error:
        print(f"{words_of(error)}: the time in which no node ran will not count for delays")
        clock = None
    jobs = len(machine.queue.jobs)
    last = begin_anew(machine, replica.last)
    if left_out := jobs - len(machine.queue.jobs):
        print(
            f"{left_out} jobs of Gearman are left out: those in the foreground, whose clients are "
            "gone, and those that have used up the attempts of a policy"
        )
    founded = identities.found_offline(
        record.cluster, members, lambda: os.urandom(identities.DISK_ID_BYTES)
    )
    # A term in which no node of the old cluster can have had this log.
    header = SnapshotHeader(last, replica.term + 1, replica.last_term, founded[0].birth)
    for fresh in founded:
        target = os.path.join(out, fresh.node)
        base = write_replica(target, fresh.owner, machine, header)
        if clock is not None:
            write_atomic(files, os.path.join(target, CLOCK_FILE), fresh.owner, clock)
        # Last, because a directory is valid only with its identity.
        identities.write(files, target, fresh._replace(log_base=base))


def _what_next(members: tuple[str, ...], out: str) -> str:
    copies = "\n".join(f"  {out}/{name}  ->  data_dir of {name}" for name in members)
    return f"""
Done. Keep the old directories until the new cluster works. Then:
1. On each machine move the old data_dir away, and copy the new one in its place:
{copies}
2. Start all of them as always, without --rejoin."""
