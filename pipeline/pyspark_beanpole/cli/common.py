"""What the commands of `beanpole pipeline` share: where Spark and events are, what errors say."""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from beanpole.addresses import listed
from beanpole.errors import ClientError
from pyspark_beanpole import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_beanpole.audit import Audit
    from pyspark_beanpole.exports import Opened
    from pyspark_beanpole.inputs import Input


def set_run(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    """Let a parser's command run, and turn Spark's errors, which fill a page, into one line."""
    parser.set_defaults(run=lambda arguments: _told(run, arguments))


def _told(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return run(arguments)
    except Exception as error:
        if type(error).__module__.startswith("pyspark.errors"):
            raise ClientError(gist(str(error))) from error
        raise


def gist(text: str) -> str:
    """Return what an error of Spark is about: our own words, those of Python, or its first line."""
    own = re.search(r"^\s*beanpole\.[\w.]+: (.+)$", text, re.MULTILINE)
    last = re.search(r"Traceback .*\n(?:  .*\n)+(\S.*)$", text, re.MULTILINE)
    found = own or last
    return found[1] if found else text.strip().partition("\n")[0]


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


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `events`."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--addresses", type=addresses, metavar="HOST:GRPC,...", help="gRPC addresses of nodes"
    )
    group.add_argument(
        "--from",
        dest="directory",
        metavar="DIR",
        help="events that `beanpole events export` wrote: a path or URI (s3a://BUCKET/PATH)",
    )
    add_allow_missing(parser)


def add_allow_missing(parser: argparse.ArgumentParser) -> None:
    """Add the argument that goes with --from."""
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="with --from: pass over events that are lost or damaged, and name them",
    )


def add_addresses(parser: argparse.ArgumentParser) -> None:
    """Add the addresses of nodes, which must be given."""
    parser.add_argument(
        "--addresses",
        type=addresses,
        required=True,
        metavar="HOST:GRPC,...",
        help="gRPC addresses of nodes; any of them may fail",
    )


def spark(arguments: argparse.Namespace) -> "SparkSession":
    """Return the session that the arguments ask for.

    Raises:
        ConfigurationError: Spark or Java is missing, or --from is no export.
        BadExport: the export of --from lacks events, or has a file that is damaged.
    """
    export(arguments)
    return session.start(
        "beanpole pipeline", arguments.master, arguments.remote, dict(arguments.conf)
    )


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
        for words in arguments.export.notes:
            print(f"passed over: {words}", file=sys.stderr)
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
    read = inputs.from_cluster(found, arguments.addresses)
    # They are read several times, and from the nodes only once.
    return replace(read, load=lambda: read.events.cache())


def audited(found: "Input", directory: Path | None = None) -> "Audit":
    """Audit events against what the cluster says of them, and write what is found if asked to."""
    from pyspark_beanpole.audit import run_audit

    return run_audit(
        found.events,
        directory,
        first=found.first,
        end=found.end,
        jobs=found.jobs,
        jobs_before=found.jobs_before,
    )


def addresses(text: str) -> tuple[str, ...]:
    """Read HOST:PORT,..."""
    try:
        return listed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: it must be {error}") from None


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
