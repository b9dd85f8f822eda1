"""`beanpole pipeline report`: statistics as a page for people and tables for machines."""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from pyspark_beanpole.cli import common

SLO_DEFAULT_S: Final = 60.0


def add_command(commands: Any) -> None:
    """Add `report` to the parser."""
    parser = commands.add_parser(
        "report", help="write statistics: a page for people, tables for machines"
    )
    common.add_input(parser)
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="where to write")
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
    """Write the report; with --audit the exit status is the audit's."""
    spark = common.spark(arguments)
    from pyspark_beanpole.report.run import PAGE, run_report
    from pyspark_beanpole.statistics.keys import Limits

    found = common.events(arguments, spark)
    audited = common.audited(found) if arguments.audit else None
    terminal = sys.stderr.isatty()

    def show(table: str) -> None:
        if terminal:
            sys.stderr.write(f"\r\x1b[2K{table}")
            sys.stderr.flush()

    figures = run_report(
        found.events,
        arguments.to,
        cluster=found.cluster,
        missing=found.missing,
        limits=Limits(arguments.wait_slo, arguments.run_slo),
        audited=audited,
        progress=show,
    )
    if terminal:
        sys.stderr.write("\r\x1b[2K")
    events = f"{figures.covered.events:,} events" if figures is not None else "no events"
    print(f"{events} of cluster {found.cluster}: {arguments.to / PAGE}")
    for words in figures.covered.warnings() if figures is not None else ():
        print(words)
    return audited.exit_code if audited is not None else 0


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found
