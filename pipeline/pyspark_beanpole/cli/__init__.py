"""`beanpole pipeline`: report, job, stream, audit, qless, redrive, each in a module of its own.

This module only builds the parsers; a command imports Spark when it runs.
"""

from collections.abc import Sequence
from typing import Any

from beanpole.client import exiting
from beanpole.client.printing import Parser
from pyspark_beanpole.cli import audit, job, qless, redrive, report, stream


def add_commands(commands: Any) -> None:
    """Add the commands to a parser's subparsers."""
    report.add_command(commands)
    job.add_command(commands)
    audit.add_command(commands)
    qless.add_command(commands)
    stream.add_command(commands)
    redrive.add_command(commands)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, as under spark-submit; return the exit status."""
    return exiting.run("beanpole pipeline", _parser, argv)


def _parser() -> Parser:
    parser = Parser(
        prog="beanpole pipeline",
        description="The events of every job, by Spark.",
        allow_abbrev=False,
    )
    add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    return parser
