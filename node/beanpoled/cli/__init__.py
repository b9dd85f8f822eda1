"""The command `beanpole`: run a local cluster, inspect a cluster, use the queue by hand.

This file only dispatches to a command. The exit statuses are in `exits`;
`beanpole.client.exiting` turns errors into them.
"""

import argparse
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

# First, because gRPC reads its settings when it is imported.
import beanpoled.quiet  # noqa: F401
from beanpole import VERSION
from beanpole.client import exiting
from beanpole.client.printing import Parser
from beanpoled import program
from beanpoled.cli import (
    alias,
    backup,
    certs,
    cluster,
    completion,
    doctor,
    events,
    import_qless,
    inspect,
    job,
    jobs,
    node,
    outputs,
    pipeline,
    policy,
    queue,
    recover,
    restore,
    snapshot,
    status,
    top,
    up,
    user,
    work,
)
from beanpoled.cli.exits import EXIT_WORDS


# Making it takes 20 ms, and the scripts of completion want it again.
@cache
def parser() -> Parser:
    """Return the parser of all commands: for `main`, shells and the manual."""
    made = Parser(
        prog="beanpole",
        description="A replicated work queue that speaks beanstalk, Workq, Gearman and qless.",
        epilog=EXIT_WORDS,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"beanpole {program.words()}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_version(commands)
    up.add_command(commands)
    status.add_command(commands)
    top.add_command(commands)
    doctor.add_command(commands)
    cluster.add_command(commands)
    node.add_command(commands)
    alias.add_command(commands)
    policy.add_command(commands)
    user.add_command(commands)
    snapshot.add_command(commands)
    backup.add_command(commands)
    restore.add_command(commands)
    certs.add_command(commands)
    inspect.add_command(commands)
    recover.add_command(commands)
    import_qless.add_command(commands)
    events.add_command(commands)
    queue.add_command(commands)
    job.add_command(commands)
    jobs.add_commands(commands)
    work.add_command(commands)
    pipeline.add_command(commands)
    completion.add_command(commands, parser)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    outputs.escape_unwritable()
    return exiting.run("beanpole", parser, argv)


def _add_version(commands: Any) -> None:
    def run(arguments: argparse.Namespace) -> int:
        if arguments.json:
            print(json.dumps({"version": VERSION, "compiled": program.is_compiled()}))
        else:
            print(f"beanpole {program.words()}")
        return 0

    parser = commands.add_parser("version", help="show the version, and whether it is compiled")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
