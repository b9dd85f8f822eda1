"""Run the commands of a program: parse its command line, and turn errors into an exit status.

The status of a command that ends without an error is its own: `beanpoled.cli.exits` has them.
"""

import errno
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from beanpole.client.printing import Parser, drop_output, messages_may_be_lost, print_lines
from beanpole.client.spoken import hint
from beanpole.client.stream import refused_by
from beanpole.errors import BeanpoleError, ConfigurationError

# The request is wrong.
EXIT_REFUSED: Final = 2
# No node answers, it refuses, or the outcome is unknown.
EXIT_NO_ANSWER: Final = 3
EXIT_INTERRUPTED: Final = 130

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def run(program: str, make: Callable[[], Parser], argv: Sequence[str] | None) -> int:
    """Run one command; return the exit status.

    Args:
        program: the name before each error.
        make: makes the parser; what it parses has the function `run`.
        argv: the command line; None for that of the process.
    """
    with messages_may_be_lost():
        status = _status(program, make, argv)
        with suppress(OSError):
            print_lines(())  # the output before an error, whose status stays
    return status


def _status(program: str, make: Callable[[], Parser], argv: Sequence[str] | None) -> int:
    try:
        arguments = make().parse_args(argv)
        if sys.stdout is None:
            return _say(program, "standard output is closed", EXIT_REFUSED)
        status: int = arguments.run(arguments)
        print_lines(())  # flushes; a closed pipe does not change the status
    except ConfigurationError as error:
        return _say(program, str(error), EXIT_REFUSED)
    except UnicodeEncodeError as error:
        # A name on the command line is not UTF-8.
        part = ascii(error.object[error.start : error.end])
        return _say(program, f"{part} cannot be written as {error.encoding}", EXIT_REFUSED)
    except BeanpoleError as error:
        _say(program, str(error), EXIT_NO_ANSWER)
        try:
            words = hint(arguments, refused_by(error))  # asks servers, which may take seconds
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        if words:
            sys.stderr.write(f"{words}\n")
        return EXIT_NO_ANSWER
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it (`beanpole stats | head`).
        drop_output()
        return 0
    except OSError as error:
        # Standard output is on a full disk, or a file of ours cannot be written.
        _say(program, os_error_words(error), EXIT_NO_ANSWER)
        drop_output()
        return EXIT_NO_ANSWER
    return status


def _say(program: str, words: str, status: int) -> int:
    sys.stderr.write(f"{program}: {words}\n")
    return status


def os_error_words(error: OSError, path: str = "") -> str:
    """Return the file and the reason of an error, without the number that Python puts before.

    Args:
        error: what failed.
        path: the file, for an error that does not name it.
    """
    if error.errno is None:  # it has a message of ours
        return str(error)
    reason = "the disk is full" if error.errno in _FULL else error.strerror or str(error)
    named = error.filename if error.filename is not None else path
    return f"{named}: {reason}" if named else reason
