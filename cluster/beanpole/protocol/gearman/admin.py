"""The administrative text commands of the Gearman protocol: parse lines, encode replies.

A line has words separated by spaces; the first ones are the command, which is case-insensitive. The
rows of lists do not belong here.
"""

import re
from typing import Final

from beanpole.constants import U32_MAX
from beanpole.protocol.gearman.packets import FUNCTION_MAX_BYTES

# Kinds of commands: (kind, arguments).
WRONG: Final = 0  # (WRONG, (reply,))
STATUS: Final = 1
PRIORITY_STATUS: Final = 2
WORKERS: Final = 3
VERSION: Final = 4
PID: Final = 5
VERBOSE: Final = 6
MAX_QUEUE: Final = 7  # (MAX_QUEUE, (function, number, number, number)): see `limits`
CREATE_FUNCTION: Final = 8  # function
DROP_FUNCTION: Final = 9  # function
SHOW_JOBS: Final = 10
SHOW_UNIQUE_JOBS: Final = 11
CANCEL_JOB: Final = 12  # handle
SHUTDOWN: Final = 13
AUTH: Final = 14  # (AUTH, (token,)): the token of a user; an extension of gearmand's commands

Command = tuple[int, tuple[bytes, ...]]

OK: Final = b"OK\r\n"
END: Final = b".\n"
# The version of gearmand that is implemented. Clients compare it, so it has no suffix.
VERSION_REPLY: Final = b"OK 1.1.20\n"
# The reply of gearmand with its default log level.
VERBOSE_REPLY: Final = b"OK ERROR\n"
NO_FUNCTION: Final = b"ERR function not found\r\n"
FUNCTION_BUSY: Final = b"ERR there are still connected workers or executing clients\r\n"
NO_JOB: Final = b"ERR UNKNOWN_JOB\r\n"
JOB_RUNS: Final = b"ERR JOB_IS_RUNNING\r\n"
# The user lacks the right, or the token is unknown; gearmand has no users.
DENIED: Final = b"ERR ACCESS_DENIED The+user+may+not+do+this\r\n"
# The same for a command that takes several steps, after its first.
HALF_DENIED: Final = b"ERR ACCESS_DENIED The+right+has+ended,+and+some+jobs+are+deleted\r\n"
BAD_TOKEN: Final = b"ERR ACCESS_DENIED Unknown+token\r\n"
TOKEN_MAX_BYTES: Final = 128
_UNKNOWN_SHOW: Final = b"ERR UNKNOWN_SHOW_ARGUMENTS\r\n"
_UNKNOWN_ERROR: Final = b"ERR UNKNOWN_ERROR\r\n"

_PLAIN: Final[dict[bytes, int]] = {
    b"status": STATUS,
    b"prioritystatus": PRIORITY_STATUS,
    b"workers": WORKERS,
    b"version": VERSION,
    b"getpid": PID,
    b"verbose": VERBOSE,
    b"shutdown": SHUTDOWN,
}
_ABOUT_FUNCTIONS: Final[dict[bytes, int]] = {b"create": CREATE_FUNCTION, b"drop": DROP_FUNCTION}
# A number at the beginning of a word, after white space, as C's atoi reads it.
_match_number = re.compile(rb"[ \t\n\v\f\r]*([+-]?[0-9]{1,20})").match


def error(code: bytes, text: bytes = b"") -> bytes:
    """Encode an error; spaces in its text become plus signs."""
    return b"ERR %b %b\r\n" % (code, text.replace(b" ", b"+")) if text else b"ERR %b\r\n" % code


def unknown(word: bytes) -> bytes:
    """Return the reply to an unknown command."""
    return b"ERR UNKNOWN_COMMAND Unknown+server+command%b\r\n" % word


_FUNCTION_TOO_LARGE: Final = error(
    b"INVALID_ARGUMENTS", b"A function name has %d bytes at most" % FUNCTION_MAX_BYTES
)


def _incomplete(word: bytes) -> Command:
    text = b"An incomplete set of arguments was sent to this command " + word
    return (WRONG, (error(b"INVALID_ARGUMENTS", text),))


def _until_nul(word: bytes) -> bytes:
    return word.partition(b"\0")[0]


def read(line: bytes) -> Command:
    """Parse a line without its end.

    As in gearmand, a word ends at a NUL, so no name has one, and spaces at the end of the line
    precede an empty word.
    """
    word, _, rest = line.partition(b" ")
    word = _until_nul(word)
    arguments = tuple([_until_nul(item) for item in rest.split(b" ") if item])
    if line.endswith(b" "):
        arguments += (b"",)
    command = word.lower()
    kind = _PLAIN.get(command, 0)
    if kind:
        return (kind, ())
    kind = _ABOUT_FUNCTIONS.get(command, 0)
    if kind:
        if len(arguments) != 2 or arguments[0].lower() != b"function":
            return _incomplete(word)
        if len(arguments[1]) > FUNCTION_MAX_BYTES:
            return (WRONG, (_FUNCTION_TOO_LARGE,))
        return (kind, arguments[1:])
    if command == b"maxqueue":
        return (MAX_QUEUE, arguments[:4]) if arguments else _incomplete(word)
    if command == b"show" and arguments:
        return _read_show(tuple([item.lower() for item in arguments]))
    if command == b"auth":
        token = rest.strip(b" ")
        if 0 < len(token) <= TOKEN_MAX_BYTES and b" " not in token:
            return (AUTH, (token,))
    if command == b"cancel" and len(arguments) > 1:
        if len(arguments) == 2 and arguments[0].lower() == b"job":
            return (CANCEL_JOB, arguments[1:])
        return (WRONG, (_UNKNOWN_ERROR,))
    return (WRONG, (unknown(word),))


def _read_show(what: tuple[bytes, ...]) -> Command:
    if what == (b"jobs",):
        return (SHOW_JOBS, ())
    if what == (b"unique", b"jobs"):
        return (SHOW_UNIQUE_JOBS, ())
    return (WRONG, (_UNKNOWN_SHOW,))


def number(word: bytes) -> int:
    """Parse a number as C's atoi does: text without digits is 0."""
    found = _match_number(word)
    return int(found[1]) if found else 0


def limits(numbers: tuple[bytes, ...]) -> tuple[int, int, int]:
    """Return the limits of high, normal and low jobs that `maxqueue` sets; 0 for no limit.

    A single number sets all three. A missing number, or one below 1, is no limit.
    """
    given = [min(max(0, number(word)), U32_MAX) for word in numbers[:3]]
    if len(given) == 1:
        return (given[0], given[0], given[0])
    given += [0, 0, 0]
    return (given[0], given[1], given[2])
