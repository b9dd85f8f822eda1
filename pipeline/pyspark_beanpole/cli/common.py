"""What the commands of `beanpole pipeline` share: where Spark and events are, what errors say."""

import argparse
import importlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from beanpole.client import where
from beanpole.client.events import Events
from beanpole.client.rpc import PATIENCE_S
from pyspark_beanpole import session
from pyspark_beanpole.cli.running import Running, run_command
from pyspark_beanpole.options import PATIENCE_MAX_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_beanpole.audit import Audit
    from pyspark_beanpole.exports import Opened
    from pyspark_beanpole.inputs import Input

# Lines about an export's damages; the page and the summary have all ranges.
NOTES_SHOWN_MAX: Final = 20
# Up to here a Java that starts soon is done sooner than one that runs fast.
QUICK_EVENTS_MAX: Final = 2_000_000


def set_run(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """Let a parser's command run; all errors become one line (see `running`)."""
    parser.set_defaults(
        run=lambda arguments: run_command(lambda given: run(find_nodes(given)), arguments)
    )


def find_nodes(arguments: argparse.Namespace) -> argparse.Namespace:
    """Set `addresses`: those of the nodes, unless events come from an export alone."""
    exported = getattr(arguments, "directory", None) is not None
    arguments.addresses = None
    if "addr" in arguments and ("asks_nodes" in arguments or not exported):
        arguments.addresses = tuple(where.addresses(arguments, where.GRPC))
    return arguments


def say(text: str) -> None:
    """Print the result of a command whose exit status says more than its reader may wait for.

    As in `audit | head`: a reader who has seen enough does not make the status 0.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What is left in the buffer must not fail again when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def add_spark(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `spark`."""
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
    """Add the arguments of `events`."""
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


def add_allow_missing(parser: argparse.ArgumentParser) -> None:
    """Add the argument that goes with --from."""
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="with --from: pass over events that are lost or damaged, and name them",
    )


def add_addresses(parser: argparse.ArgumentParser) -> None:
    """Add where the nodes are, for a command that asks them in any case."""
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
    """Return the session that the arguments ask for.

    Args:
        arguments: of a command that `set_run` runs.
        quick: there is little for Java to do, however many events there are.

    Raises:
        ConfigurationError: Spark or Java is missing, or does not take what it was given; --from is
            no export.
        BadExport: the export of --from lacks events, or has a file that is damaged.
        ClientError: no node answers, so that a session would be for nothing.
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
    """Let the logger with which Spark repeats errors as JSON have no way to the terminal."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").handlers.clear()


def _import_ahead() -> None:
    """Import while Java starts what will be needed behind it."""
    for name in ("pandas", "pyarrow.parquet", "pyspark.sql.pandas.types"):
        importlib.import_module(name)


def _counted(arguments: argparse.Namespace) -> int:
    """Return how many events there are, which takes milliseconds."""
    found = export(arguments)
    if found is not None:
        return found.rows
    with Events(arguments.addresses, arguments.patience) as nodes:
        extent = nodes.extent()
    return extent.end - extent.first


def export(arguments: argparse.Namespace) -> "Opened | None":
    """Return the export of --from, looked at once, before Spark is started; None without --from.

    Raises:
        ConfigurationError: it is none of ours.
        BadExport: it lacks events, or has a file that is damaged, and that is not allowed.
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
    """Return the events that the arguments ask for.

    Raises:
        ConfigurationError: the directory is none of ours.
        ClientError: no node answers.
    """
    from pyspark_beanpole import inputs

    exported = export(arguments)
    if exported is not None:
        return inputs.from_export(found, exported)
    read = inputs.from_cluster(found, arguments.addresses, arguments.patience)
    # They are read several times, and from the nodes only once.
    return replace(read, load=lambda: read.events.cache())


def audited(found: "Input", directory: Path | None = None) -> "Audit":
    """Audit events against what the cluster says of them, and write what is found if asked to."""
    from pyspark_beanpole.audit import run_audit

    return run_audit(
        found.events,
        directory,
        # With what is missing at both ends, so that it does not add up without it.
        first=min([found.first, *(first for first, _ in found.missing)]),
        end=max([found.end, *(end for _, end in found.missing)]),
        jobs=found.jobs,
        jobs_before=found.jobs_before,
    )


def _patience(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text[:9]) <= PATIENCE_MAX_S):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of seconds from 0 to {PATIENCE_MAX_S}"
        )
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
