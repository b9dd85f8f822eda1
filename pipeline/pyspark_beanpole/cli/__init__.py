"""`beanpole pipeline`: report, job, stream, audit, qless, redrive, each in a module of its own.

This module only builds the parsers; a command imports Spark when it runs.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from beanpole.client.printing import drop_output, parse, print_lines
from beanpole.client.spoken import hint
from beanpole.errors import BeanpoleError, ConfigurationError
from pyspark_beanpole.cli import audit, job, qless, redrive, report, stream

EXIT_REFUSED: Final = 2
EXIT_NO_ANSWER: Final = 3


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
    parser = argparse.ArgumentParser(
        prog="beanpole pipeline",
        description="What happened to every job, by Spark.",
        allow_abbrev=False,
    )
    add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    try:
        arguments = parse(parser, argv)
        status: int = arguments.run(arguments)
        print_lines(())
    except ConfigurationError as error:
        print(f"beanpole pipeline: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except BeanpoleError as error:
        print(f"beanpole pipeline: {error}", file=sys.stderr)
        if words := hint(arguments):
            print(words, file=sys.stderr)
        return EXIT_NO_ANSWER
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has closed it.
        drop_output()
        return 0
    except OSError as error:
        print(f"beanpole pipeline: {error}", file=sys.stderr)
        return EXIT_NO_ANSWER
    return status
