"""Run one command: handle signals, keep the log, and turn any error into one line and a status.

The exit status is that of the command, or 130 and 143 after SIGINT and SIGTERM. `main` turns the
errors that are raised here into 2 and 3. `failures` interprets errors.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from beanpole.errors import BeanpoleError, ClientError, ConfigurationError
from pyspark_beanpole import logs  # noqa: F401  (it looks for handlers before ours are there)
from pyspark_beanpole.cli import failures
from pyspark_beanpole.session import Java
from pyspark_beanpole.sparklog import SparkLog

# The work is dropped this long after a signal; service managers wait at least ten seconds.
DROP_S: Final = 4.0
# Spark's own code waits for Java when it exits, so Java gets less time.
JAVA_DROP_S: Final = 0.5
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Ended(BaseException):
    """A signal asked the command to end. Not an `Exception`, which libraries would catch."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Running:
    """The resources of a running command, and the state that outlives it."""

    def __init__(self, wanted_log: Path | None, conf: dict[str, str]) -> None:
        self.java = Java()
        # The exit status after a signal; None for 128 plus its number.
        self.status_when_ended: int | None = None
        # The signal that was received.
        self.ended: int | None = None
        self._wanted_log = wanted_log
        self._conf = conf
        self._log: SparkLog | None = None
        self._is_log_named = False

    def log(self) -> SparkLog:
        """Return the log, which is opened at first use.

        Raises:
            ConfigurationError: the file of --log cannot be written.
        """
        if self._log is None:
            try:
                self._log = SparkLog(self._wanted_log)
            except OSError as error:
                raise ConfigurationError(f"--log: {error}") from None
        return self._log

    def listen(self) -> None:
        """Let signals end the command within `DROP_S`; Spark replaces the handler of SIGINT."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self.ended is not None:
            # It ends already, at the latest by the timers of the first signal.
            return
        self.ended = number
        drop = threading.Timer(JAVA_DROP_S, self.java.end)
        leave = threading.Timer(DROP_S, self._leave, (number,))
        for timer in (drop, leave):
            timer.daemon = True
            timer.start()
        raise Ended(number)

    def _leave(self, number: int) -> None:
        """End this process although a part of it does not end."""
        self.java.end()
        os._exit(self.status_after(number))

    def status_after(self, number: int) -> int:
        """Return the exit status after a signal."""
        return 128 + number if self.status_when_ended is None else self.status_when_ended

    def write(self, text: str) -> None:
        """Append to the log, if there is one."""
        if self._log is not None:
            self._log.write(text)

    def failed(self, error: Exception) -> BeanpoleError:
        """Return the error to show for any other error; write its stack to the log."""
        self.write(_stack(error))
        found = self._translated(error)
        if isinstance(found, ConfigurationError) or found is error or self._log is None:
            return found
        self._is_log_named = True
        return ClientError(f"{found} (all of it is in {self._log.path})")

    def _translated(self, error: Exception) -> BeanpoleError:
        if isinstance(error, BeanpoleError):
            return error
        text = _text(error)
        if "JAVA_GATEWAY_EXITED" in text:
            return failures.java_never_ran(self._last())
        if self.java.has_ended():
            return failures.java_ended(self.java.status or 0, self._last())
        if type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc"):
            return failures.from_spark(text, self._conf)
        if isinstance(error, MemoryError):
            return ClientError("out of memory")
        if isinstance(error, OSError):
            return ClientError(str(error))
        if isinstance(error, UnicodeEncodeError):
            # A name on the command line is not UTF-8.
            part = ascii(error.object[error.start : error.end])
            return ConfigurationError(f"{part} cannot be written as {error.encoding}")
        return ClientError(f"a defect of Beanpole: {type(error).__name__}: {failures.gist(text)}")

    def _last(self) -> Sequence[str]:
        return self._log.last() if self._log is not None else []

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close(self._is_log_named)


def run_command(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Run a command; return its exit status.

    Raises:
        ConfigurationError: the request is wrong.
        BeanpoleError: any other failure, in one line.
        BrokenPipeError: the reader of standard output has closed it.
    """
    running = Running(arguments.log, dict(arguments.conf))
    arguments.running = running
    try:
        with _quiet(running), _ended_by_signals(running):
            try:
                return run(arguments)
            except (KeyboardInterrupt, Ended) as ended:
                # The work may be dropped: every write replaces its target as a whole, or is
                # repeated. Further signals change nothing meanwhile.
                running.java.end()
                number = ended.number if isinstance(ended, Ended) else signal.SIGINT
                return running.status_after(number)
    except BrokenPipeError as error:
        if running.ended is not None:
            return running.status_after(running.ended)
        if not running.java.has_ended():
            raise
        raise running.failed(error) from error
    except Exception as error:
        if running.ended is not None:
            # The error comes from the Java that was ended.
            return running.status_after(running.ended)
        raise running.failed(error) from error
    finally:
        running.close()


@contextmanager
def _ended_by_signals(running: Running) -> Iterator[None]:
    """Handle signals in the body, and restore the previous handlers after it."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    running.listen()
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _quiet(running: Running) -> Iterator[None]:
    """Send what libraries log about errors to the log: the error that is shown has it all."""
    handler = _ToLog(running)
    root = logging.getLogger()
    level, thread_hook, ignored_hook = root.level, threading.excepthook, sys.unraisablehook
    root.addHandler(handler)
    threading.excepthook = lambda told: running.write(_stack(told.exc_value))
    sys.unraisablehook = lambda told: running.write(_stack(told.exc_value))
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        threading.excepthook, sys.unraisablehook = thread_hook, ignored_hook
        root.setLevel(level)


class _ToLog(logging.Handler):
    """Writes log records into the log of a command."""

    def __init__(self, running: Running) -> None:
        super().__init__(logging.INFO)
        self._running = running

    def emit(self, record: logging.LogRecord) -> None:
        self._running.write(self.format(record))


def _stack(error: Any) -> str:
    """Return an error with its stack; Spark's errors ask Java for a part of it, which may fail."""
    with suppress(Exception):
        return "".join(traceback.format_exception(error))
    return type(error).__name__


def _text(error: Exception) -> str:
    with suppress(Exception):
        return str(error)
    return type(error).__name__
