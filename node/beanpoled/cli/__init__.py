"""The command `beanpole`: run a local cluster, inspect a cluster, use the queue by hand.

This file only dispatches to a command. The exit statuses are in `exits`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

# First, because gRPC reads its settings when it is imported.
import beanpoled.quiet  # noqa: F401
from beanpole import VERSION
from beanpole.client.printing import drop_output, parse
from beanpole.client.spoken import hint
from beanpole.errors import BeanpoleError, ConfigurationError
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
from beanpoled.cli.exits import EXIT_NO_ANSWER, EXIT_REFUSED, EXIT_WORDS


# Making it takes 20 ms, and the scripts of completion want it again.
@cache
def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands: for `main`, shells and the manual."""
    made = argparse.ArgumentParser(
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
    try:
        arguments = parse(parser(), argv)
        if sys.stdout is None:
            print("beanpole: standard output is closed", file=sys.stderr)
            return EXIT_REFUSED
        exit_status: int = arguments.run(arguments)
        sys.stdout.flush()
    except ConfigurationError as error:
        print(f"beanpole: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except UnicodeEncodeError as error:
        # A name on the command line is not UTF-8.
        part = ascii(error.object[error.start : error.end])
        print(f"beanpole: {part} cannot be written as {error.encoding}", file=sys.stderr)
        return EXIT_REFUSED
    except BeanpoleError as error:
        print(f"beanpole: {error}", file=sys.stderr)
        if words := hint(arguments):
            print(words, file=sys.stderr)
        return EXIT_NO_ANSWER
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has closed it (`beanpole stats | head`).
        drop_output()
        return 0
    except OSError as error:
        # Standard output is on a full disk, or a file of ours cannot be written.
        print(f"beanpole: {outputs.words(error)}", file=sys.stderr)
        drop_output()
        return EXIT_NO_ANSWER
    return exit_status


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
