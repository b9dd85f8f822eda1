"""`beanpole pipeline report`: write statistics as a page for people and tables for programs."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from beanpole.client.terminals import moves_cursor, visible
from beanpole.errors import ConfigurationError
from beanpole.places import shown
from pyspark_beanpole.cli import common

if TYPE_CHECKING:
    from pyspark_beanpole.audit import Audit
    from pyspark_beanpole.inputs import Input
    from pyspark_beanpole.report.run import Report

SLO_DEFAULT_S: Final = 60.0
# A century: microseconds of it are exact.
SLO_MAX_S: Final = 3_153_600_000.0


def add_command(commands: Any) -> None:
    """Add `report` to the parser."""
    parser = commands.add_parser(
        "report", help="write statistics: a page for people, tables for machines"
    )
    common.add_input(parser)
    common.add_to(parser, required=True, help_="where to write")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="where the page begins: 2026-11-21T12:00 (UTC), or how long ago: 90m, 2h, 3d "
        "(default: a day before --until)",
    )
    parser.add_argument(
        "--until", metavar="TIME", help="where it ends (default: the end of the log)"
    )
    parser.add_argument(
        "--queue",
        nargs="+",
        type=common.text,
        action="extend",
        default=[],
        metavar="NAME",
        help="only these queues (tubes); may be given several times",
    )
    for name, what in (("wait", "wait for a worker"), ("run", "run")):
        parser.add_argument(
            f"--{name}-slo",
            type=_seconds,
            default=SLO_DEFAULT_S,
            metavar="SECONDS",
            help=f"a job should not {what} longer (default {SLO_DEFAULT_S:.0f})",
        )
    parser.add_argument("--audit", action="store_true", help="also prove that nothing was lost")
    common.add_spark(parser)
    common.set_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Write the report; with --audit, return the exit status of the audit."""
    from pyspark_beanpole.report.period import asked

    # Parsed before Spark starts, so that a wrong time is reported at once.
    wanted = asked(arguments.since, arguments.until, time.time_ns() // 1000)
    common.make_folder(arguments.to)
    _check_page(arguments.to)
    spark = common.spark(arguments)
    from pyspark_beanpole.report.page import source_words
    from pyspark_beanpole.report.run import run_report
    from pyspark_beanpole.statistics.keys import Limits

    terminal = moves_cursor(sys.stderr)

    def show(doing: str) -> None:
        if terminal:
            sys.stderr.write(f"\r\x1b[2K{doing}")
            sys.stderr.flush()

    def work(events: "Input") -> "tuple[str, Report, Audit | None]":
        audited = common.audited(events) if arguments.audit else None
        made = run_report(
            events,
            arguments.to,
            asked=wanted,
            queues=arguments.queue,
            limits=Limits(arguments.wait_slo, arguments.run_slo),
            audited=audited,
            source=source_words(arguments.addresses, arguments.directory),
            progress=show,
        )
        return events.cluster, made, audited

    cluster, made, audited = common.read(arguments, spark, work)
    if terminal:
        sys.stderr.write("\r\x1b[2K")
    say(made, cluster, arguments.queue, arguments.to)
    return audited.exit_code if audited is not None else 0


def _check_page(directory: Path) -> None:
    """Refuse to replace a page that is not of a report, such as that of a web server.

    Raises:
        ConfigurationError: there is one, or it cannot be read.
    """
    from pyspark_beanpole.report.page import is_page
    from pyspark_beanpole.report.run import PAGE

    try:
        with (directory / PAGE).open("rb") as file:
            is_ours = is_page(file)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f"--to {shown(str(directory))}: {PAGE} cannot be read: {error.strerror}"
        ) from None
    if not is_ours:
        raise ConfigurationError(
            f"--to {shown(str(directory))} has an {PAGE} that is not the page of a report: give "
            "another directory, or remove it"
        )


def say(made: "Report", cluster: str, queues: Sequence[str], directory: Path) -> None:
    """Print where the report is, and its findings."""
    from pyspark_beanpole.report.figures import clock
    from pyspark_beanpole.report.run import PAGE

    count = 0 if made.figures is None else made.figures.events
    events = "no events" if not count else "1 event" if count == 1 else f"{count:,} events"
    period = made.period
    when = "" if period is None else f", {clock(period.since_us)} to {clock(period.until_us)} UTC"
    only = f"{', '.join(queues)} of " if queues else ""
    said = [visible(f"{events} of {only}cluster {cluster}{when}: {directory / PAGE}")]
    if made.covered is not None:
        if not count:
            log = (clock(made.covered.begin_us), clock(made.covered.last_us))
            said.append(f"the log has events from {log[0]} to {log[1]} UTC")
        said += made.covered.warnings()
    said += [
        visible(f"{one.pressing}: {one.queue} {one.words}".replace(":  ", ": "))
        for one in made.findings
    ]
    common.say("\n".join(said))


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= SLO_MAX_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds above 0 and up to {SLO_MAX_S:.0f}"
        )
    return found
