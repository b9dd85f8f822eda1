"""`beanpole backup`: write an image of a running cluster to a file; verify and show such a file.

This file has the life cycle of the file and the output. Backups are described in docs/backup.md,
their format is in `beanpole.storage.backups`, opening one in `backup_files`. `beanpole restore` is
in `restore`.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar

from beanpole.client import where
from beanpole.client.backup import Broken, Stream, TooOld
from beanpole.client.exiting import os_error_words
from beanpole.client.printing import drop_output, print_lines
from beanpole.client.rpc import Nodes
from beanpole.client.terminals import visible
from beanpole.core.image.contents import Contents
from beanpole.errors import BeanpoleError, ClientError, ConfigurationError, Damaged, StorageError
from beanpole.exporting.steps import sync_folder
from beanpole.storage.backups import Reader, Sink, Writer
from beanpoled.cli.backup_files import PIPE, Opened, add_identities, identities, opened
from beanpoled.cli.exits import EXIT_NO
from beanpoled.cli.inspect import age
from beanpoled.cli.outputs import naming, removing
from beanpoled.cli.progress import Progress, size
from beanpoled.disk.age_keys import RECIPIENTS_MAX, check_pair, recipients
from beanpoled.disk.age_streams import Encrypting
from beanpoled.disk.backups import descriptions, load, read_whole, summary

if TYPE_CHECKING:
    from beanpoled.disk.age_keys import Identity, Recipient

PARTIAL: Final = ".partial"
# The file contains the bodies of jobs.
MODE: Final = 0o600
# The number of queues on the page of `show`; --json has all of them.
QUEUES_SHOWN: Final = 20
READ_BYTES: Final = 1024 * 1024
TWICE: Final = "verify --load reads the backup twice"

T = TypeVar("T")


class Keys(NamedTuple):
    """The keys of an encrypted backup; both lists are empty for a plain one.

    Attributes:
        recipients: the keys that the backup is encrypted to.
        identities: the keys that decrypt it again for verification.
    """

    recipients: "list[Recipient]"
    identities: "list[Identity]"


class Written(NamedTuple):
    """A backup that was written.

    Attributes:
        end: its description of itself.
        sha256: the digest of the bytes of an encrypted file; empty for a plain one.
    """

    end: dict[str, Any]
    sha256: bytes


def add_command(commands: Any) -> None:
    """Add `backup` to the parser."""
    parser = commands.add_parser(
        "backup",
        help="write a backup of a running cluster; verify and show one",
        description="Asks one node, whichever answers, for all that the cluster has acknowledged "
        "so far, and reads the file again to see that it is right. Clients go on meanwhile.",
    )
    parser.add_argument("--to", metavar="FILE|-", help="where to; - is standard output")
    parser.add_argument(
        "--replace", action="store_true", help="FILE may exist; it is kept till then"
    )
    parser.add_argument(
        "--encrypt-to",
        action="append",
        default=[],
        metavar="RECIPIENT",
        help="encrypt, in the format of age, to this public key: age1..., ssh-ed25519 ... or "
        f"ssh-rsa ...; may be repeated, {RECIPIENTS_MAX} times",
    )
    parser.add_argument(
        "--recipients-file",
        action="append",
        default=[],
        metavar="FILE",
        help="encrypt to each public key in FILE, one on a line",
    )
    add_identities(parser)
    parser.add_argument("--json", action="store_true", help="say what was written as JSON")
    where.add_options(parser, where.GRPC)
    parser.set_defaults(run=_backup)
    ways = parser.add_subparsers(title="commands", metavar="COMMAND")
    # They have no defaults of their own, so that an option in front of the command counts as well.
    unset = argparse.SUPPRESS
    words = "read a whole backup, and see that nothing has changed"
    way = ways.add_parser("verify", help=words, argument_default=unset)
    way.add_argument("file", metavar="FILE|-", help="the backup; - is standard input")
    way.add_argument(
        "--load",
        action="store_true",
        default=False,
        help="also make the queue of it in memory, as the start of a node does (not from a pipe)",
    )
    way.add_argument("--json", action="store_true", help="print JSON")
    add_identities(way, dest="more_identities")
    way.set_defaults(run=_verify)
    words = "say of which cluster and when a backup is, and its counts"
    way = ways.add_parser("show", help=words, argument_default=unset)
    way.add_argument("file", metavar="FILE|-", help="the backup; - is standard input")
    way.add_argument("--json", action="store_true", help="print JSON")
    add_identities(way, dest="more_identities")
    way.set_defaults(run=_show)


# --- writing -------------------------------------------------------------------------------------


def _backup(arguments: argparse.Namespace) -> int:
    if not arguments.to:
        raise ConfigurationError("backup: --to FILE says where to; - is standard output")
    keys = _keys(arguments)
    addresses = where.addresses(arguments, where.GRPC)
    with Nodes(addresses) as nodes:
        if arguments.to == PIPE:
            if sys.stdout.isatty():
                raise ConfigurationError("--to -: standard output is a terminal")
            end = _to_pipe(nodes, sys.stdout.buffer, keys)
        else:
            with removing():
                end = _to_file(nodes, arguments.to, arguments.replace, keys)
    words = json.dumps(_plain(end)) if arguments.json else f"{arguments.to}: {_line(end)}"
    if arguments.to == PIPE:
        print(words, file=sys.stderr)
    else:
        # An error must not read as if the backup were not there.
        with naming(f"{arguments.to} is complete; standard output"):
            print_lines((words,))
    return 0


def _keys(arguments: argparse.Namespace) -> Keys:
    found = Keys(recipients(arguments.encrypt_to, arguments.recipients_file), identities(arguments))
    if found.identities and not found.recipients:
        raise ConfigurationError(
            "--identity decrypts what was encrypted: --encrypt-to or --recipients-file is missing"
        )
    if found.identities and arguments.to == PIPE:
        raise ConfigurationError("--to - is not read again: --identity has no effect there")
    if found.identities:
        check_pair(found.recipients, found.identities)
    return found


def _of_any(nodes: Nodes, act: Callable[[str], T], words: str) -> T:
    """Run `act` at the first node that can; if a node fails meanwhile, try the next one."""
    failures: dict[str, str] = {}
    for _ in nodes.rounds(failures):
        old = 0
        for address in nodes.in_turn():
            try:
                return act(address)
            except Broken as error:
                failures[address] = str(error)
                old += isinstance(error, TooOld)
                nodes.defer(address)
        if old == len(nodes.addresses):
            break  # no node learns this call within the patience
    raise ClientError(f"{words}: " + "; ".join(failures.values()))


def _to_pipe(nodes: Nodes, stream: BinaryIO, keys: Keys) -> dict[str, Any]:
    """Write to standard output: its bytes cannot be taken back, so one node must send them all."""
    source = _of_any(
        nodes, lambda address: Stream(address, nodes.channel(address)), "no node gives an image"
    )
    try:
        end = _write(source, stream, keys).end
        stream.flush()
    except BrokenPipeError:
        # A listing that is cut short is what `| head` wants, a backup is not.
        drop_output()
        raise ClientError(
            "--to -: the reader closed the pipe; the backup is not complete"
        ) from None
    return end


def _to_file(nodes: Nodes, path: str, replace: bool, keys: Keys) -> dict[str, Any]:
    _check_place(path, replace)
    partial = path + PARTIAL
    with naming(partial), _begun(path, partial) as stream:
        try:
            _check_place(path, replace)  # another backup may have made it meanwhile
            written = _written(nodes, stream, keys)
            stream.flush()
            os.fsync(stream.fileno())
            # So that the file is read from the disk below, not from the page cache.
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            _read_again(stream, path, written, keys)
            _check_place(path, replace)  # by now another program may have
            _rename(stream, partial, path)
        except BaseException:
            if _is_at(stream, partial):  # not a file of another backup
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial)
            raise
    _make_durable(path)
    return written.end


def _rename(stream: BinaryIO, partial: str, path: str) -> None:
    """Give the verified file its name, and no other file that has taken the place of it.

    The system renames names, not open files, so another program can still come in between the
    first check and the rename; the second check makes that an error.

    Raises:
        StorageError: the file that was written is not there any more.
    """
    if not _is_at(stream, partial):
        raise StorageError(
            f"{partial}: another program has removed or replaced it while it was written; {path} "
            "is not written. Run the backup again"
        )
    os.rename(partial, path)
    if not _is_at(stream, path):
        raise StorageError(
            f"{path} is not the backup that was written: another program has replaced it, or "
            f"{partial}, at the last moment. Run the backup again"
        )


def _make_durable(path: str) -> None:
    """Sync the name of a backup that is complete; an error must not read as if it were not."""
    try:
        sync_folder(os.path.dirname(path) or ".")
    except OSError as error:
        raise OSError(
            f"{path} is the new and complete backup, in place of any earlier one, but a loss of "
            f"power may undo that: {os_error_words(error)}"
        ) from error


def _check_place(path: str, replace: bool) -> None:
    """Refuse a path that no file can get, before a whole backup is made for it."""
    if os.path.exists(path) and not os.path.isfile(path):
        what = "a folder" if os.path.isdir(path) else "no regular file"
        raise ConfigurationError(f"--to {path}: it is {what}; name a file")
    if os.path.lexists(path) and not replace:
        raise ConfigurationError(f"--to {path}: it exists; --replace replaces it")


def _begun(path: str, partial: str) -> BinaryIO:
    """Open and lock the file that is written, which a killed backup may have left."""
    while True:
        stream = open(_descriptor(path, partial), "r+b")  # noqa: SIM115 - it is returned
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(stream, partial):
                os.fchmod(stream.fileno(), MODE)  # what was left may have another mode
                return stream
        except BlockingIOError:
            stream.close()
            raise ConfigurationError(f"{partial} is being written by another backup") from None
        except BaseException:
            stream.close()
            raise
        # Another backup ended between the two calls, and this is now its finished file.
        stream.close()


def _is_at(stream: BinaryIO, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


def _descriptor(path: str, partial: str) -> int:
    try:
        # A symbolic link of this name may point to a file of another program.
        return os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE)
    except (FileNotFoundError, NotADirectoryError):
        folder = os.path.dirname(path) or "."
        what = "is no folder" if os.path.exists(folder) else "does not exist"
        raise ConfigurationError(f"--to {path}: the folder {folder} {what}") from None


def _written(nodes: Nodes, stream: BinaryIO, keys: Keys) -> Written:
    """Write the file; if a node fails in the middle, start over with the next one."""

    def begin_anew(address: str) -> Written:
        stream.seek(0)
        stream.truncate()
        return _write(Stream(address, nodes.channel(address)), stream, keys)

    return _of_any(nodes, begin_anew, "no node gave a whole image")


def _write(source: Stream, stream: BinaryIO, keys: Keys) -> Written:
    """Write one image as a backup, encrypted if there are recipients."""
    try:
        if not keys.recipients:
            return Written({**_write_plain(source, stream), "encrypted": False}, b"")
        with Encrypting(stream, keys.recipients) as sealed:
            end = _write_plain(source, sealed)
        return Written({**end, "bytes": sealed.written, "encrypted": True}, sealed.digest)
    finally:
        source.close()


def _write_plain(source: Stream, sink: Sink) -> dict[str, Any]:
    """Write one image; return its description."""
    about = source.about
    header = {
        "cluster": about.cluster,
        "node": about.node,
        "birth": about.birth,
        "members": list(about.members),
        "index": about.index,
        "term": about.term,
        "program": about.version,
        "created_s": int(time.time()),
    }
    progress = Progress("backup", about.bytes)
    contents = Contents()
    try:
        writer = Writer(sink, header)
        for chunk in source.chunks():
            contents.take(chunk)
            writer.add(chunk)
            progress.at(writer.written)
        if contents.index != about.index:
            raise Damaged(f"{about.node} sent the image at {contents.index}, not at {about.index}")
        end = summary(contents)
        writer.finish(end)
    finally:
        progress.end()
    return {**header, **end, "bytes": writer.written}


def _read_again(stream: BinaryIO, path: str, written: Written, keys: Keys) -> None:
    """Verify the file: by its own checksums, or by the digest of the written bytes.

    An encrypted file has no checksums outside the encryption. It is also decrypted if a key is
    given.
    """
    progress = Progress("verify", os.fstat(stream.fileno()).st_size)
    stream.seek(0)
    try:
        if written.sha256:
            _compare(stream, path, written, progress)
            stream.seek(0)
        if keys.identities or not written.sha256:
            with Opened(stream, path, keys.identities).reading() as plain:
                read_whole(plain, path, progress.at)
    finally:
        progress.end()


def _compare(stream: BinaryIO, path: str, written: Written, progress: Progress) -> None:
    found = hashlib.sha256()
    count = 0
    while data := stream.read(READ_BYTES):
        found.update(data)
        count += len(data)
        progress.at(count)
    if (count, found.digest()) != (written.end["bytes"], written.sha256):
        raise Damaged(f"{path}: the disk does not give the bytes that were written")


# --- reading -------------------------------------------------------------------------------------


def _check_reads_only(arguments: argparse.Namespace) -> None:
    """Refuse options of a backup that is made: a script that gave them would believe it has one."""
    given = {
        "--to": arguments.to,
        "--replace": arguments.replace,
        "--encrypt-to": arguments.encrypt_to,
        "--recipients-file": arguments.recipients_file,
    }
    if wrong := next((option for option, value in given.items() if value), None):
        raise ConfigurationError(
            f"{wrong} makes a backup, and this command reads one: leave it out"
        )


def _verify(arguments: argparse.Namespace) -> int:
    _check_reads_only(arguments)
    name = arguments.file
    if arguments.load and name == PIPE:
        raise ConfigurationError(f"{TWICE}: name a file")
    with opened(name, identities(arguments)) as source:
        if arguments.load:
            source.check_repeats(TWICE)
        progress = Progress("verify", source.total)
        try:
            with source.reading() as stream:
                found = read_whole(stream, name, progress.at)
            if arguments.load:
                with source.reading() as stream:
                    load(stream, name, found)
        except ConfigurationError:
            raise  # the command is wrong, not the file
        except BeanpoleError as error:
            progress.end()
            print(f"beanpole: {error}", file=sys.stderr)
            if arguments.json:
                print(json.dumps({"right": False, "why": str(error)}))
            return EXIT_NO
        progress.end()
    about = {**found.about, **found.end}
    if arguments.json:
        print(json.dumps({"right": True, **_plain(about)}))
    else:
        print(f"{name}: {_line(about)}: right")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    _check_reads_only(arguments)
    name = arguments.file
    with opened(name, identities(arguments)) as source, source.reading() as stream:
        progress = Progress("read", source.total)
        reader = Reader(stream, name)
        for _ in reader.chunks():
            progress.at(reader.offset)
        progress.end()
    header, footer = descriptions(reader, name)
    about = {**header, **footer}
    about |= {"bytes": source.total or reader.offset, "encrypted": source.encrypted}
    print(json.dumps(_plain(about)) if arguments.json else "\n".join(_page(name, about)))
    return 0


def _plain(about: dict[str, Any]) -> dict[str, Any]:
    return {**about, "digest": about["digest"].hex()}


def _line(about: dict[str, Any]) -> str:
    # The author of the file chose the name, which may have control characters.
    cluster = visible(about["cluster"])
    jobs = f"{about['jobs']} jobs of cluster {cluster} at index {about['index']}"
    return f"{jobs}, digest {about['digest'].hex()[:16]}"


def _page(name: str, about: dict[str, Any]) -> Iterator[str]:
    yield f"{name}: a backup of cluster {visible(about['cluster'])}"
    rows = [
        ("created", age(about["created_s"])),
        ("last entry", age(about["wall_us"] / 1e6)),
        ("of", f"birth id {about['birth']}, index {about['index']}, by node {about['node']}"),
        ("members", ", ".join(about["members"])),
        ("program", f"{about['program']}, machine version {about['machine_version']}"),
        ("size", f"{size(about['bytes'])} in {about['chunks']} chunks"),
        ("encrypted", "yes" if about["encrypted"] else "no"),
        ("digest", about["digest"].hex()),
        ("jobs", f"{about['jobs']} to be restored"),
    ]
    if about["dropped"]:
        words = f"{about['dropped']}: a client waited for each, and goes with the cluster"
        rows.append(("not kept", words))
    for protocol, counts in about["counts"].items():
        rows.append((protocol, _counts(counts)))
    for protocol, queue, counts in about["queues"][:QUEUES_SHOWN]:
        rows.append((f"  {queue}", f"{_counts(counts)} ({protocol})"))
    more = about["queue_count"] - len(about["queues"][:QUEUES_SHOWN])
    if more > 0:
        rows.append(("  ...", f"{more} smaller queues"))
    for title, value in rows:
        # Names of queues come from clients, and all others from the author of the file.
        yield f"  {visible(title):<11} {visible(str(value))}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())
