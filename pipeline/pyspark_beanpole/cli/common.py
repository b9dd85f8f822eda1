"""The shared parts of the commands: arguments, the Spark session, and the input events."""

import argparse
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from beanpole.client import where
from beanpole.client.events import Events, EventsLost
from beanpole.client.printing import drop_output
from beanpole.client.rpc import PATIENCE_S
from beanpole.errors import ConfigurationError
from beanpole.exports import MANIFEST
from beanpole.numbers import whole_within
from beanpole.places import local_path, shown
from pyspark_beanpole import session
from pyspark_beanpole.cli import failures
from pyspark_beanpole.cli.running import Running, run_command
from pyspark_beanpole.options import PATIENCE_MAX_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_beanpole.audit import Audit
    from pyspark_beanpole.exports import Opened
    from pyspark_beanpole.inputs import Input

T = TypeVar("T")

# How often `read` begins at most. Nodes drop a segment of events at a time, which takes minutes to
# fill even on a busy cluster, and the oldest events are read in the first seconds.
BEGINNINGS_MAX: Final = 5

# Lines about an export's damage; the page and the summary have all ranges.
NOTES_SHOWN_MAX: Final = 20
# Up to this many events, a JVM tuned for startup finishes sooner than one tuned for throughput.
QUICK_EVENTS_MAX: Final = 2_000_000


def set_run(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """Set the function that a parser's command runs; its errors become one line (see `running`)."""
    parser.set_defaults(
        run=lambda arguments: run_command(lambda given: run(find_nodes(given)), arguments)
    )


def find_nodes(arguments: argparse.Namespace) -> argparse.Namespace:
    """Set `addresses` to those of the nodes, or to None if events come from an export alone."""
    exported = getattr(arguments, "directory", None) is not None
    arguments.addresses = None
    if "addr" in arguments and ("asks_nodes" in arguments or not exported):
        arguments.addresses = tuple(where.addresses(arguments, where.GRPC))
    return arguments


def say(text: str) -> None:
    """Print the result of a command whose exit status matters even if its output is cut off.

    In `audit | head`, a reader that closes the pipe early does not change the status to 0.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def add_spark(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `spark` reads."""
    group = parser.add_argument_group("Spark")
    place = group.add_mutually_exclusive_group()
    place.add_argument("--master", metavar="URL", help="default: all cores of this machine")
    place.add_argument("--remote", metavar="sc://HOST:PORT", help="a Spark Connect server")
    group.add_argument(
        "--conf",
        action="append",
        type=_setting,
        default=[],
        metavar="KEY=VALUE",
        help="a Spark setting; may be given several times",
    )
    group.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="where Spark's own messages go (default: a file that is removed if all goes well)",
    )


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `events` reads."""
    group = parser.add_mutually_exclusive_group()
    where.add_addresses(group, where.GRPC)
    group.add_argument(
        "--from",
        dest="directory",
        metavar="DIR",
        help="events that `beanpole events export` wrote: a path or URI (s3a://BUCKET/PATH)",
    )
    where.add_directory(parser)
    add_allow_missing(parser)
    _add_patience(parser)


def add_to(parser: argparse.ArgumentParser, *, required: bool, help_: str) -> None:
    """Add --to, a folder of this machine into which the command itself writes."""
    parser.add_argument("--to", type=_folder, required=required, metavar="DIR", help=help_)


def _folder(text: str) -> Path:
    try:
        path = local_path(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if path is None:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not allowed: it must be a path of this machine"
        )
    # A path is shown as it was given.
    return Path(text) if path == os.path.abspath(text) else Path(path)


def make_folder(directory: Path) -> None:
    """Make the folder of --to before events are read, so that an error comes at once.

    Raises:
        ConfigurationError: it cannot be made, or is an export: every reader would refuse the
            files that were added to it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_export = (directory / MANIFEST).exists()
    except OSError as error:
        raise ConfigurationError(f"--to {shown(str(directory))}: {error.strerror}") from None
    if is_export:
        raise ConfigurationError(
            f"--to {shown(str(directory))} has a {MANIFEST}, so it is an export of events: give "
            "another directory"
        )


def text(given: str) -> str:
    """Parse a text that is compared with those of events."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(
            f"{given!a} is not UTF-8: events show the bytes of such a name as \\xff"
        ) from None
    return given


def add_allow_missing(parser: argparse.ArgumentParser) -> None:
    """Add --allow-missing, which goes with --from."""
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="with --from: pass over events that are lost or damaged, and name them",
    )


def add_addresses(parser: argparse.ArgumentParser) -> None:
    """Add the addresses of the nodes, for a command that contacts them in any case."""
    where.add_options(parser, where.GRPC)
    parser.set_defaults(asks_nodes=True)
    _add_patience(parser)


def _add_patience(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--patience",
        type=_patience,
        default=PATIENCE_S,
        metavar="SECONDS",
        help=f"how long to look for a node that answers (default {PATIENCE_S})",
    )


def spark(arguments: argparse.Namespace, *, quick: bool = False) -> "SparkSession":
    """Return the session that the arguments describe.

    Args:
        arguments: of a command that `set_run` runs.
        quick: Java has little work to do, however many events there are.

    Raises:
        ConfigurationError: Spark or Java is missing, or rejects its settings; --from is not an
            export.
        BadExport: the export of --from lacks events, or has a damaged file.
        ClientError: no node answers, so a session would be useless.
    """
    session.check_spark()
    count = 0 if quick and export(arguments) is None else _counted(arguments)
    running: Running = arguments.running
    ahead = threading.Thread(target=_import_ahead, daemon=True)
    ahead.start()
    found = session.start(
        "beanpole pipeline",
        arguments.master,
        arguments.remote,
        dict(arguments.conf),
        quick=quick or count <= QUICK_EVENTS_MAX,
        log=running.log(),
        java=running.java,
    )
    running.listen()
    ahead.join()
    _silence_spark()
    return found


def _silence_spark() -> None:
    """Silence the logger that repeats Spark's errors, with their stacks, on the terminal.

    A logger without handlers would have Python print them: this one does not propagate.
    """
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").handlers[:] = [logging.NullHandler()]


def _import_ahead() -> None:
    """Import the modules that are needed later, while Java starts."""
    for name in ("pandas", "pyarrow.parquet", "pyspark.sql.pandas.types"):
        importlib.import_module(name)


def _counted(arguments: argparse.Namespace) -> int:
    """Return the number of events, which takes milliseconds."""
    found = export(arguments)
    if found is not None:
        return found.rows
    with Events(arguments.addresses, arguments.patience) as nodes:
        extent = nodes.extent()
    return extent.end - extent.first


def export(arguments: argparse.Namespace) -> "Opened | None":
    """Return the export of --from, opened once, before Spark starts; None without --from.

    Raises:
        ConfigurationError: the directory is not an export.
        BadExport: it lacks events, or has a damaged file, and --allow-missing is not given.
    """
    if getattr(arguments, "directory", None) is None:
        return None
    if "export" not in arguments:
        from pyspark_beanpole.exports import opened

        arguments.export = opened(arguments.directory, arguments.allow_missing).verified_ahead()
        notes = arguments.export.notes
        for words in notes[:NOTES_SHOWN_MAX]:
            print(f"passed over: {words}", file=sys.stderr)
        if len(notes) > NOTES_SHOWN_MAX:
            print(f"passed over: {len(notes) - NOTES_SHOWN_MAX} more", file=sys.stderr)
    found: Opened = arguments.export
    return found


def events(arguments: argparse.Namespace, found: "SparkSession") -> "Input":
    """Return the events that the arguments select.

    Raises:
        ConfigurationError: the directory is not an export.
        ClientError: no node answers.
    """
    from pyspark_beanpole import inputs

    exported = export(arguments)
    if exported is not None:
        return inputs.from_export(found, exported)
    read = inputs.from_cluster(found, arguments.addresses, arguments.patience)
    # The commands read these several times; the cache reads them from the nodes once.
    return replace(read, load=lambda: read.events.cache())


def read(arguments: argparse.Namespace, found: "SparkSession", work: "Callable[[Input], T]") -> T:
    """Return what `work` computes from the events that the arguments select.

    The work begins again, with the events that are there then, if the oldest ones went in the
    meantime. Spark itself reads the files of a local export, so it also begins again if a
    compaction has replaced some of them since they were listed.

    Raises:
        ConfigurationError: the directory is not an export.
        ClientError: no node answers.
        EventsLost: events are gone that are not the oldest, or it happened too often.
    """
    chosen = events(arguments, found)
    for _ in range(BEGINNINGS_MAX - 1):
        try:
            return work(chosen)
        except Exception as error:
            again = _again(arguments, found, chosen, error)
            if again is None:
                raise
            chosen = again
    return work(chosen)


def _again(
    arguments: argparse.Namespace, found: "SparkSession", before: "Input", error: Exception
) -> "Input | None":
    """Return the events with which the work can begin again; None if that would not help."""
    text = str(error)
    if export(arguments) is not None:
        if not failures.is_of_lost_file(text):
            return None
        del arguments.export
        return events(arguments, found)
    if not (isinstance(error, EventsLost) or failures.is_of_lost_events(text)):
        return None
    after = events(arguments, found)
    if after.first <= before.first:
        # The range still begins with the same event: those that are missing come later in it, and
        # a second attempt would need them, too.
        return None
    print(
        f"beanpole: the events {before.first} to {after.first - 1} went while they were read; "
        f"beginning again with {after.first}",
        file=sys.stderr,
    )
    return after


def audited(found: "Input", directory: Path | None = None) -> "Audit":
    """Audit events against the cluster's counts; write the findings into `directory` if given."""
    from pyspark_beanpole.audit import run_audit

    return run_audit(
        found.events,
        directory,
        # Include what is missing at both ends, so that the audit reports it.
        first=min([found.first, *(first for first, _ in found.missing)]),
        end=max([found.end, *(end for _, end in found.missing)]),
        jobs=found.jobs,
        jobs_before=found.jobs_before,
    )


def _patience(text: str) -> int:
    found = whole_within(text, 0, PATIENCE_MAX_S)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of seconds from 0 to {PATIENCE_MAX_S}"
        )
    return found


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
