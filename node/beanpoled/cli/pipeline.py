"""`beanpole pipeline`: the commands of the Spark side, which are in `pyspark_beanpole.cli`."""

from typing import Any

from pyspark_beanpole.cli import add_commands


def add_command(commands: Any) -> None:
    """Add `pipeline` and its commands to the parser."""
    parser = commands.add_parser("pipeline", help="the events of every job, by Spark")
    add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
