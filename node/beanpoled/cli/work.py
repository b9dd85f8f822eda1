"""`beanpole work QUEUE -- COMMAND`: run a command for each job of a queue.

The body is its standard input; its exit status decides the fate of the job. Workers and their
retries are in `client.worker`.
"""

import argparse
import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from tempfile import TemporaryFile
from typing import Any, Final

from beanpole.client import tls_files, where
from beanpole.client.backoff import FIRST_S, TRIES_DEFAULT, Backoff
from beanpole.client.blocking import DeniedError
from beanpole.client.printing import print_lines
from beanpole.client.worker import KEEP_DEFAULT_S, Bury, Retry, Task, Worker
from beanpole.errors import ClientError, ConfigurationError
from beanpole.protocol.beanstalk.requests import KEEP_MAX_S, TUBE_NAME_WORDS, is_tube_name
from beanpoled.cli import values
from beanpoled.cli.exits import EXIT_NO_ANSWER

# As in sysexits.h: the job itself is wrong (EX_DATAERR), or a temporary failure (EX_TEMPFAIL).
EXIT_BURY: Final = 65
EXIT_AGAIN: Final = 75
# The period for checking whether a running command has lost its job.
LOOK_S: Final = 0.2
# A command that is terminated, and what it has started, have this long to end before the kill.
END_S: Final = 10.0
CONCURRENCY_MAX: Final = 256
# A program with one of these errors cannot be run for any job; ENOEXEC is a script without #!.
NOT_STARTED: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC)


class CommandFailed(Exception):
    """The command ended with a status other than 0."""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "work",
        help="run a command for each job of a queue",
        description="Run COMMAND for each job, with the body as its standard input and "
        f"{where.JOB}, {where.QUEUE} and {where.TRIED} in its environment. Status 0 deletes the "
        f"job, {EXIT_AGAIN} releases it at once, {EXIT_BURY} buries it; another one releases it "
        "with a growing delay, and buries it after --tries. SIGTERM: no more jobs are taken.",
    )
    where.add_options(parser, where.BEANSTALK)
    parser.add_argument("queue", help="a tube")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="behind --")
    parser.add_argument(
        "--concurrency",
        type=values.number(1, CONCURRENCY_MAX),
        default=1,
        metavar="N",
        help="jobs that run at a time (default 1)",
    )
    parser.add_argument(
        "--tries",
        type=values.number(1, 10**6),
        default=TRIES_DEFAULT,
        metavar="N",
        help=f"reservations after which a job that fails is buried (default {TRIES_DEFAULT})",
    )
    parser.add_argument(
        "--first-delay",
        type=values.number(0, 86_400),
        default=FIRST_S,
        metavar="SECONDS",
        help=f"delay after the first try, doubled at each try (default {FIRST_S:g})",
    )
    parser.add_argument(
        "--keep",
        type=values.number(0, KEEP_MAX_S),
        default=KEEP_DEFAULT_S,
        metavar="SECONDS",
        help="how long jobs in hand wait for this worker when its node is lost (default "
        f"{KEEP_DEFAULT_S})",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    command: list[str] = arguments.command
    if not is_tube_name(arguments.queue.encode(errors="replace")):
        raise ConfigurationError(
            f"work: {arguments.queue!r} is not a tube's name: {TUBE_NAME_WORDS}"
        )
    if shutil.which(command[0]) is None:
        raise ConfigurationError(f"work: there is no program {command[0]!r} that can be run")
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.INFO)
    addresses, tls = tls_files.encryption(where.addresses(arguments, where.BEANSTALK))
    worker = Worker(addresses, keep=arguments.keep, token=where.token(), tls=tls)
    backoff = Backoff(arguments.tries, arguments.first_delay)
    handles = worker.handles(arguments.queue, concurrency=arguments.concurrency, backoff=backoff)
    missing: list[OSError] = []

    @handles
    def run(task: Task) -> None:
        try:
            _run_command(command, task)
        except OSError as error:
            if error.errno not in NOT_STARTED:
                raise
            # It was there at the start. The jobs are not to blame, and no try would fare better.
            missing.append(error)
            worker.stop()
            raise Retry from error

    with _counts_printed(worker):
        try:
            worker.run()
        except DeniedError as error:
            raise ClientError(
                f"work: DENIED: no user has this token, or the user of the token, or of clients "
                f"without one, lacks the right to work on {arguments.queue!r}"
            ) from error
        if missing:
            raise ClientError(f"work: {command[0]} cannot be run any more: {missing[0].strerror}")
    if worker.given_up:
        # No error, whose hint would ask the nodes once more: a supervisor waits for this end.
        words = f"beanpole: work: jobs that were given up, and may run again: {worker.given_up}"
        print(words, file=sys.stderr)
        return EXIT_NO_ANSWER
    return 0


@contextmanager
def _counts_printed(worker: Worker) -> Iterator[None]:
    """Print what became of the jobs, whatever ends the worker.

    Raises:
        OSError: nothing else went wrong, but the counts cannot be written. An error of the worker
            is more important: a supervisor judges by it whether to start the worker again.
    """
    try:
        yield
    except BaseException:
        with suppress(OSError):
            print_lines((_counts(worker),))
        raise
    print_lines((_counts(worker),))


def _counts(worker: Worker) -> str:
    return " ".join(f"{what}={count}" for what, count in worker.counts.items())


def _run_command(command: list[str], task: Task) -> None:
    """Run the command for one job, and end it when the job is lost.

    Raises:
        Bury: the command reports that the job is wrong.
        Retry: the command reports a temporary failure.
        CommandFailed: it failed otherwise, or was ended.
    """
    environment = {
        **os.environ,
        where.JOB: str(task.id),
        where.QUEUE: task.queue,
        where.TRIED: str(task.tried),
    }
    # A process group of its own: Ctrl-C and SIGTERM are for the worker, which lets it finish.
    with (
        _file_of(task.body) as body,
        subprocess.Popen(command, stdin=body, env=environment, process_group=0) as process,
    ):
        while True:
            try:
                process.wait(LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if task.lost.is_set():
                    _end(process)
                    # Whatever its status is: many programs end with 0 at SIGTERM.
                    words = f"{command[0]}: it was ended, because the job was lost"
                    raise CommandFailed(words) from None
    status = process.returncode
    if status == EXIT_BURY:
        raise Bury(f"status {status}")
    if status == EXIT_AGAIN:
        raise Retry
    if status:
        raise CommandFailed(f"{command[0]}: status {status}")


@contextmanager
def _file_of(body: bytes) -> Iterator[FileIO]:
    """Make a file, at its beginning.

    A pipe holds 64 KiB, so this process would have to write the rest while the command runs, and a
    command that outlives this process would take the part before for the whole body.

    Raises:
        CommandFailed: there is no room for it, or no temporary file can be made. That is not
            the OSError of a command that cannot be run, which ends the worker: without a
            descriptor to spare, for instance, `tempfile` finds "no usable directory" for a moment.
    """
    with ExitStack() as stack:
        try:
            # Without a buffer: close() would fail at the rest once more, and outside of this `try`.
            file = stack.enter_context(TemporaryFile(buffering=0))
            rest = memoryview(body)
            while rest:
                rest = rest[file.write(rest) :]
            file.seek(0)
        except OSError as error:
            words = f"no temporary file for its body (see TMPDIR): {error.strerror or error}"
            raise CommandFailed(words) from error
        yield file


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command whose job is now another worker's, with all of its process group.

    What the command has started would go on with the job otherwise. The command itself is reaped
    only after the first signal, and the group's number goes to no other process while the group
    has a member, so no signal reaches a stranger.
    """
    until = time.monotonic() + END_S
    exists = _signal(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    while exists and time.monotonic() < until:
        exists = _signal(process.pid, 0)
        time.sleep(LOOK_S if exists else 0)
    if exists:
        _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; return False if it has no member that may get it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # PermissionError: all run as another user
        return False
    return True
