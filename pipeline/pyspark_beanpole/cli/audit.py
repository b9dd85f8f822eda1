"""`beanpole pipeline audit`: prove from events that no job was lost and none was done twice."""

import argparse
import json
from typing import Any

from pyspark_beanpole.cli import common


def add_command(commands: Any) -> None:
    """Add `audit` to the parser."""
    parser = commands.add_parser(
        "audit",
        help="prove from the events that no job was lost",
        description="Exit status 0: everything adds up; 1: it does not; each difference is named.",
    )
    common.add_input(parser)
    common.add_to(parser, required=False, help_="also write all that does not add up into tables")
    parser.add_argument("--json", action="store_true", help="print JSON")
    common.add_spark(parser)
    common.set_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; return 0 if there are none, else 1."""
    if arguments.to is not None:
        common.make_folder(arguments.to)
    spark = common.spark(arguments)
    found = common.read(arguments, spark, lambda events: common.audited(events, arguments.to))
    common.say(json.dumps(found.as_json()) if arguments.json else "\n".join(found.lines()))
    return found.exit_code
