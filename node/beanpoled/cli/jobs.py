"""Small commands to use the queue by hand: put, reserve, delete, peek, stats and the like.

A reserved job belongs to its connection, and each of these commands has its own: `reserve` returns
its job to the queue when it ends, unless it deletes it; `release` and `bury` reserve the job first.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from beanpole.client import tls_files, where
from beanpole.client.beanstalk import TTR_DEFAULT_S, Client, Job
from beanpole.client.printing import print_lines
from beanpole.client.terminals import visible
from beanpole.constants import DEFAULT_TUBE, PRIORITY_DEFAULT, U32_MAX
from beanpole.errors import ConfigurationError
from beanpole.protocol.beanstalk.requests import (
    TIMEOUT_MAX_S,
    TUBE_NAME_WORDS,
    is_tube_name,
)
from beanpoled.cli import values
from beanpoled.cli.columns import LINES
from beanpoled.cli.exits import EXIT_NO, say_no

# More than the digits of the protocol's largest number.
DIGITS_MAX: Final = 40
# The values in statistics that are numbers; float() also takes what JSON has not, such as NaN.
_is_number = re.compile(rf"-?[0-9]{{1,{DIGITS_MAX}}}(\.[0-9]{{1,{DIGITS_MAX}}})?").fullmatch
# The statistics that are no numbers, though a tube may be named 1e5; the id of a job is one.
TEXTS: Final = frozenset({"name", "tube", "version", "hostname", "os", "platform"})
TEXTS_OF_SERVER: Final = TEXTS | {"id"}

_u32: Final = values.number(0, U32_MAX)
_timeout: Final = values.number(0, TIMEOUT_MAX_S)
Run = Callable[[Client, argparse.Namespace], int]
_JOB_HELP: Final = "its id"
_BODY: Final = (
    "Prints the body as it is to a pipe or a file. On a terminal, control characters are escaped, "
    "as \\x1b."
)
_TUBE_HELP: Final = f"name of the tube (default: {DEFAULT_TUBE.decode()})"


def add_commands(commands: Any) -> None:
    """Add all job commands to the parser."""
    put = _add(commands, "put", _put, "put a job and print its id")
    put.add_argument("body", nargs="?", default="-", help="the body; - or nothing: standard input")
    put.add_argument("--tube", type=_tube, default=DEFAULT_TUBE, help=_TUBE_HELP)
    put.add_argument("--priority", type=_u32, default=PRIORITY_DEFAULT, help="0 is the most urgent")
    _add_delay(put)
    put.add_argument(
        "--ttr",
        type=_u32,
        default=TTR_DEFAULT_S,
        metavar="SECONDS",
        help="how long a worker may have the job (default %(default)s)",
    )

    reserve = _add(commands, "reserve", _reserve, "take a job and print it", _BODY)
    reserve.add_argument("--tube", type=_tube, action="append", help="may be given several times")
    reserve.add_argument(
        "--timeout", type=_timeout, metavar="SECONDS", help="default: wait for ever"
    )
    reserve.add_argument("--delete", action="store_true", help="delete the job once it is printed")

    delete = _add(commands, "delete", _delete, "delete jobs")
    delete.add_argument("job", type=values.whole, nargs="+", help="ids of jobs")

    release = _add(commands, "release", _release, "make a job ready again, or delayed")
    release.add_argument("job", type=values.whole, help=_JOB_HELP)
    release.add_argument("--priority", type=_u32, help="default: as it is")
    _add_delay(release)

    bury = _add(commands, "bury", _bury, "put a job aside until it is kicked")
    bury.add_argument("job", type=values.whole, help=_JOB_HELP)
    bury.add_argument("--priority", type=_u32, help="default: as it is")

    kick = _add(commands, "kick", _kick, "make buried jobs ready, or else delayed ones")
    kick.add_argument("bound", type=_u32, nargs="?", help="how many (default 1)")
    kick.add_argument("--tube", type=_tube, help=_TUBE_HELP)
    kick.add_argument("--job", type=values.whole, help="kick this job instead")

    peek = _add(commands, "peek", _peek, "look at a job", _BODY)
    peek.add_argument("what", help="a job's id, or ready, delayed or buried")
    peek.add_argument("--tube", type=_tube, default=DEFAULT_TUBE, help=_TUBE_HELP)

    stats = _add(commands, "stats", _stats, "show the statistics of the queue")
    stats_tube = _add(commands, "stats-tube", _stats_tube, "show the statistics of a tube")
    stats_tube.add_argument("tube", type=_tube, help="its name")
    stats_job = _add(commands, "stats-job", _stats_job, "show the statistics of a job")
    stats_job.add_argument("job", type=values.whole, help=_JOB_HELP)
    tubes = _add(commands, "tubes", _tubes, "list the tubes")
    for parser in (stats, stats_tube, stats_job, tubes):
        parser.add_argument("--json", action="store_true", help="print JSON")


def _add(
    commands: Any, name: str, run: Run, words: str, description: str | None = None
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=words, description=description)
    where.add_options(parser, where.BEANSTALK)
    parser.set_defaults(run=lambda arguments: _connected(run, arguments))
    return parser


def _add_delay(parser: argparse.ArgumentParser) -> None:
    words = "the job is not ready before this time is over (default %(default)s)"
    parser.add_argument("--delay", type=_u32, default=0, metavar="SECONDS", help=words)


def _connected(run: Run, arguments: argparse.Namespace) -> int:
    addresses, tls = tls_files.encryption(where.addresses(arguments, where.BEANSTALK))
    with Client(addresses, token=where.token(), tls=tls, asks_first=True) as client:
        return run(client, arguments)


def _tube(text: str) -> bytes:
    name = text.encode(errors="replace")
    if not is_tube_name(name):
        raise argparse.ArgumentTypeError(f"{text!r} is not a tube's name: {TUBE_NAME_WORDS}")
    return name


def _say(words: str, done: bool = True) -> int:
    print(words)
    return 0 if done else EXIT_NO


def _show(job: Job | None, word: str, absent: str) -> int:
    """Print a job: a line with id and size, then the body; only a program gets it as it is."""
    if job is None:
        return _say(absent, False)
    print(f"{word} {job.id} {len(job.body)}", flush=True)
    if sys.stdout.isatty():
        # A client chose it, and its escapes would steer the terminal of the operator.
        print(visible(job.body.decode(errors="backslashreplace"), kept=LINES), flush=True)
        return 0
    sys.stdout.buffer.write(job.body + b"\n")
    sys.stdout.buffer.flush()
    return 0


def _show_text(text: str | None, as_json: bool, texts: frozenset[str] = TEXTS) -> int:
    if text is None:
        return say_no("NOT_FOUND", as_json)
    shown = text.removeprefix("---\n")
    if as_json:
        pairs = (line.partition(": ") for line in shown.splitlines())
        print(json.dumps({name: _value(value, name in texts) for name, _, value in pairs}))
    else:
        sys.stdout.write(shown)
    return 0


def _value(text: str, is_text: bool) -> int | float | str:
    """Parse a value of the simple YAML that beanstalk servers write."""
    if is_text or not _is_number(text):
        return text.strip('"')
    return float(text) if "." in text else int(text)


def _put(client: Client, arguments: argparse.Namespace) -> int:
    body = arguments.body.encode(errors="surrogateescape")
    if arguments.body == "-":
        if sys.stdin is None:
            raise ConfigurationError("put: standard input is closed; give the body as an argument")
        body = sys.stdin.buffer.read()
    if arguments.tube != DEFAULT_TUBE:
        client.use(arguments.tube)
    job = client.put(body, arguments.priority, arguments.delay, arguments.ttr)
    return _say(f"INSERTED {job}")


def _reserve(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.tube:
        client.watch(arguments.tube)
    job = client.reserve(arguments.timeout)
    shown = _show(job, "RESERVED", "TIMED_OUT")
    if job is not None and arguments.delete:
        done = client.delete(job.id)
        return _say("DELETED" if done else "NOT_FOUND", done)
    if job is not None:
        # Not on standard output, which programs read.
        words = "goes back to the queue now: a command has it only while it runs; --delete deletes"
        print(f"job {job.id} {words} it", file=sys.stderr)
    return shown


def _delete(client: Client, arguments: argparse.Namespace) -> int:
    status = 0
    for job in arguments.job:
        done = client.delete(job)
        # Each is told before the next is asked for, which may fail. A closed pipe (`| head`) does
        # not keep the others from being deleted.
        print_lines(["DELETED" if done else "NOT_FOUND"])
        status = status if done else EXIT_NO
    return status


def _priority(client: Client, arguments: argparse.Namespace) -> int:
    """Return the requested priority, else the present one of the job.

    It is read before the job is reserved: a command that may be repeated at another node must
    not come in between, because the reservation stays with its connection.
    """
    if arguments.priority is not None:
        return int(arguments.priority)
    for line in (client.text(b"stats-job", arguments.job) or "").splitlines():
        if line.startswith("pri: "):
            return int(line.removeprefix("pri: "))
    return PRIORITY_DEFAULT


def _release(client: Client, arguments: argparse.Namespace) -> int:
    priority = _priority(client, arguments)
    done = client.reserve_job(arguments.job) is not None and client.release(
        arguments.job, priority, arguments.delay
    )
    return _say("RELEASED" if done else "NOT_FOUND", done)


def _bury(client: Client, arguments: argparse.Namespace) -> int:
    priority = _priority(client, arguments)
    done = client.reserve_job(arguments.job) is not None and client.bury(arguments.job, priority)
    return _say("BURIED" if done else "NOT_FOUND", done)


def _kick(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.job is not None:
        if arguments.bound is not None:
            raise ConfigurationError(
                f"--job {arguments.job} is one job: leave out the number {arguments.bound}"
            )
        if arguments.tube is not None:
            words = f"--job {arguments.job} is one job, whatever its tube: leave out --tube"
            raise ConfigurationError(words)
        done = client.kick_job(arguments.job)
        return _say("KICKED" if done else "NOT_FOUND", done)
    if arguments.tube is not None:
        client.use(arguments.tube)
    return _say(f"KICKED {client.kick(1 if arguments.bound is None else arguments.bound)}")


def _peek(client: Client, arguments: argparse.Namespace) -> int:
    what = arguments.what
    by_id = what not in ("ready", "delayed", "buried")
    try:
        wanted = values.whole(what) if by_id else what.encode()
    except argparse.ArgumentTypeError:
        raise ConfigurationError(
            f"peek {what!r}: give a job's id, or ready, delayed or buried"
        ) from None
    if arguments.tube != DEFAULT_TUBE:
        client.use(arguments.tube)
    job = client.peek(wanted)
    return _show(job, "FOUND", "NOT_FOUND")


def _stats(client: Client, arguments: argparse.Namespace) -> int:
    return _show_text(client.text(b"stats"), arguments.json, TEXTS_OF_SERVER)


def _stats_tube(client: Client, arguments: argparse.Namespace) -> int:
    return _show_text(client.text(b"stats-tube", arguments.tube), arguments.json)


def _stats_job(client: Client, arguments: argparse.Namespace) -> int:
    return _show_text(client.text(b"stats-job", arguments.job), arguments.json)


def _tubes(client: Client, arguments: argparse.Namespace) -> int:
    lines = (client.text(b"list-tubes") or "").splitlines()
    names = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    if arguments.json:
        print(json.dumps(names))
    for name in () if arguments.json else names:
        print(name)
    return 0
