"""`beanpole restore FILE --to DIR...`: data directories of a new cluster from a backup.

It never changes a running cluster: it writes only into folders that are empty or do not exist.
Backups are made in `backup`.
"""

import argparse
import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any, Final

from beanpole.client.where import folder
from beanpole.errors import ConfigurationError, StorageError
from beanpole.storage.files import InlineFiles
from beanpoled.cli.backup_files import PIPE, Opened, add_identities, identities, opened
from beanpoled.cli.outputs import is_within, naming, removing
from beanpoled.cli.progress import Progress
from beanpoled.config.settings import MEMBERS_MAX, Name, alike
from beanpoled.disk import backups
from beanpoled.disk.backups import Backup
from beanpoled.disk.identity import DISK_ID_BYTES, DiskIdentity, found_offline

# It is read to verify it, and once for each folder.
TIMES: Final = "restore reads the backup several times"


def add_command(commands: Any) -> None:
    """Add `restore` to the parser."""
    parser = commands.add_parser(
        "restore",
        help="make the data directories of a new cluster from a backup",
        description="Each DIR becomes the data_dir of one member of a new cluster, whose birth id "
        "is new, too. All members have the same image. Copy each to its machine, and start all of "
        "them as always, without --rejoin.",
    )
    parser.add_argument("file", metavar="FILE", help="a file that `beanpole backup` wrote")
    parser.add_argument(
        "--to",
        type=folder,
        required=True,
        nargs="+",
        metavar="DIR",
        help="a folder for each member, empty or not there, in the order of --members",
    )
    parser.add_argument(
        "--members",
        metavar="ID,...",
        help="ids of the members of the new cluster (default: those of the old one, sorted)",
    )
    parser.add_argument("--cluster", metavar="NAME", help="(default: the name of the old one)")
    add_identities(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify the whole backup, then write one directory after the other."""
    name, given = arguments.file, [str(path) for path in arguments.to]
    directories = [os.path.abspath(path) for path in given]
    if name == PIPE:
        raise ConfigurationError(f"{TIMES}: name a file")
    _check_free(given)
    with opened(name, identities(arguments)) as source:
        source.check_repeats(TIMES)
        progress = Progress("verify", source.total)
        try:
            with source.reading() as stream:
                backup = backups.read_whole(stream, name, progress.at)
        finally:
            progress.end()
        members = _members(arguments.members, backup, len(directories))
        cluster = _name("--cluster", arguments.cluster or backup.about["cluster"])
        founded = found_offline(cluster, members, lambda: os.urandom(DISK_ID_BYTES))
        by_name = {record.node: record for record in founded}
        with removing():
            _make_all(list(zip(members, directories, strict=True)), by_name, backup, source)
    print(_what_next(cluster, by_name[members[0]].birth, members, given, backup))
    return 0


def _make_all(
    places: list[tuple[str, str]], by_name: dict[str, DiskIdentity], backup: Backup, source: Opened
) -> None:
    """Write the directory of each member, or none."""
    made: list[str] = []
    with contextlib.ExitStack() as locks:
        # All of them until the last is complete: no node runs in one that an error still clears.
        for _, directory in places:
            locks.enter_context(_held(directory))
        try:
            for member, directory in places:
                made.append(directory)
                with source.reading() as stream:
                    image = backups.restored(stream, source.name, backup)
                    _make(directory, by_name[member], backup, image, source)
        except BaseException:
            for directory in made:
                _clear(directory)
            raise


@contextlib.contextmanager
def _held(directory: str) -> Iterator[None]:
    """Keep nodes and other restores out of a folder, which is still free.

    A supervisor may have started a node there, or another restore run, while the backup was read.

    Raises:
        ConfigurationError: another process holds the folder, or has written to it.
    """
    _check_one_free(directory)  # a folder that is in use gets no file of ours
    with naming(directory):
        try:
            lock = InlineFiles().hold(directory)
        except StorageError:
            raise ConfigurationError(
                f"--to {directory}: it is in use by another process, a node or a restore; nothing "
                "is overwritten. Stop that, or name another folder"
            ) from None
    try:
        _check_one_free(directory)
    except BaseException:
        lock.release()
        raise
    try:
        yield
    except BaseException:
        lock.remove()  # the folder is as it was
        raise
    lock.release()


def _make(
    directory: str, record: DiskIdentity, backup: Backup, image: Iterator[bytes], source: Opened
) -> None:
    """Write one member's directory."""
    progress = Progress(f"restore {record.node}", source.total)
    header = backups.header_of(backup, record.birth)
    try:
        with naming(directory):
            chunks = _counted(image, source.name, progress)
            backups.make_directory(directory, record, header, chunks)
    finally:
        progress.end()


def _counted(image: Iterator[bytes], name: str, progress: Progress) -> Iterator[bytes]:
    done = 0
    with naming(name):  # an error of the backup is none of the folder
        for chunk in image:
            done += len(chunk)
            progress.at(done)
            yield chunk


def _check_free(directories: list[str]) -> None:
    if len(directories) > MEMBERS_MAX:
        raise ConfigurationError(f"--to: a cluster has at most {MEMBERS_MAX} members")
    if len(set(map(os.path.realpath, directories))) != len(directories):
        raise ConfigurationError("--to: a folder stands twice")
    _check_apart(directories)
    for directory in directories:
        _check_one_free(directory)


def _check_one_free(directory: str) -> None:
    try:
        free = backups.is_free(directory)
    except OSError as error:
        raise ConfigurationError(f"--to {directory}: {error.strerror}") from None
    if not free:
        raise ConfigurationError(
            f"--to {directory}: {_what_is_there(directory)}; nothing is overwritten. Move it "
            "away, or name another folder"
        )


def _check_apart(directories: list[str]) -> None:
    """Refuse a folder inside another one: the members of a cluster would share a disk's folder."""
    for path, other in itertools.permutations(directories, 2):
        if is_within(path, other):
            raise ConfigurationError(
                f"--to {path}: it is inside of {other}; each member needs a folder of its own"
            )


def _what_is_there(path: str) -> str:
    if not os.path.exists(path):
        return f"it is a symbolic link to {os.readlink(path)}, which does not exist"
    return "it is not empty" if os.path.isdir(path) else "it is no folder"


def _members(text: str | None, backup: Backup, count: int) -> list[str]:
    old = sorted(backup.about["members"])
    names = old if text is None else [name.strip() for name in text.split(",")]
    members = [_name("--members", name) for name in names]
    if len(set(members)) != len(members):
        raise ConfigurationError(f"--members = {text!r} is not allowed: an id stands twice")
    if same := alike(members):
        raise ConfigurationError(f"--members = {','.join(members)!r} is not allowed: {same}")
    if len(members) != count:
        raise ConfigurationError(
            f"--to names {count} folders for {len(members)} members ({', '.join(members)}); "
            "--members names others"
        )
    return members


def _name(option: str, text: str) -> str:
    try:
        return str(Name().check(text))
    except ValueError as error:
        raise ConfigurationError(
            f"{option} = {text!r} is not allowed: it must be {error}"
        ) from None


def _clear(directory: str) -> None:
    """Remove everything that was written into a folder that was free before, but the lock."""
    try:
        for name in set(os.listdir(directory)) - backups.IGNORED:
            path = os.path.join(directory, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    except OSError as error:
        words = f"{directory} is unusable and could not be removed: {error}"
        print(f"beanpole: {words}", file=sys.stderr)


def _what_next(
    cluster: str,
    birth: bytes,
    members: list[str],
    directories: list[str],
    backup: Backup,
) -> str:
    found = backup.contents
    copies = "\n".join(
        f"  {directory}  is the data_dir of {member}"
        for member, directory in zip(members, directories, strict=True)
    )
    dropped = f"; {found.dropped} of clients that are gone were left out" if found.dropped else ""
    return (
        f"{found.jobs} jobs restored into the new cluster {cluster}, birth id {birth.hex()}"
        f"{dropped}\n{copies}\n"
        "Start all members as always, without --rejoin. A cluster of which this is a copy goes on "
        "beside it: see to it that clients find only one of them."
    )
