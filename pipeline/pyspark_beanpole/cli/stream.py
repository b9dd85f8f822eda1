"""`beanpole pipeline stream`: keep tables of events and statistics, each event exactly once."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from beanpole.client.events import Events, EventsLost, OtherCluster
from beanpole.client.rpc import Refused
from beanpole.errors import ClientError, ConfigurationError
from beanpole.exports import OFFSET_MAX, BadExport
from beanpole.numbers import whole_within
from beanpole.places import resolved, shown
from pyspark_beanpole.cli import common, failures
from pyspark_beanpole.cli.running import Running
from pyspark_beanpole.options import EARLIEST, LATEST
from pyspark_beanpole.progress import Progress, StreamLine
from pyspark_beanpole.session import check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_beanpole.streaming.stream import Stream

# Statistics have a resolution of one minute.
TRIGGER_S: Final = 60
# A batch of this size fits into the memory of small machines and is soon repeated after a crash.
ROWS_PER_BATCH: Final = 1_000_000
POLL_S: Final = 1.0
# The most that the options which are whole numbers allow: nine digits, 31 years in seconds.
WHOLE_MAX: Final = 999_999_999
# The cost of refreshing the tables grows slowly with the days that they cover.
REFRESH_S: Final = 300.0
# An outage is reported when it begins, when its reason changes, and at this interval.
SAY_AGAIN_S: Final = 60.0


def add_command(commands: Any) -> None:
    """Add `stream` to the parser."""
    parser = commands.add_parser(
        "stream",
        help="keep tables of events and statistics as events come",
        description="Goes on where --to ends. Ctrl-C or SIGTERM ends it, with exit status 0.",
    )
    common.add_addresses(parser)
    parser.add_argument("--to", required=True, metavar="DIR", help="where the tables are")
    parser.add_argument(
        "--start",
        default=EARLIEST,
        metavar="earliest|latest|OFFSET",
        help="where a new directory begins (default: earliest)",
    )
    parser.add_argument(
        "--every",
        type=_whole,
        default=TRIGGER_S,
        metavar="SECONDS",
        help=f"a batch at most so often, unless it is far behind (default {TRIGGER_S})",
    )
    parser.add_argument(
        "--rows",
        type=_whole,
        default=ROWS_PER_BATCH,
        metavar="N",
        help=f"events of a batch at most (default {ROWS_PER_BATCH})",
    )
    parser.add_argument("--once", action="store_true", help="end when all is written that is there")
    parser.add_argument(
        "--skip-lost", action="store_true", help="pass over events that no node has any more"
    )
    parser.add_argument(
        "--no-statistics", action="store_true", help="only the events: a batch takes less time"
    )
    common.add_spark(parser)
    common.set_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Write events and tables until there are no more events (--once), or until a signal."""
    start = _start(arguments.start)
    _check_place(arguments.to)
    check_spark()
    from pyspark_beanpole.streaming.stream import Settings, Stream

    running: Running = arguments.running
    running.status_when_ended = 0
    settings = Settings(
        directory=arguments.to,
        addresses=arguments.addresses,
        patience_s=arguments.patience,
        start=start,
        rows_max=arguments.rows,
        skip_lost=arguments.skip_lost,
        statistics=not arguments.no_statistics,
    )
    stream = Stream(settings, Events(arguments.addresses, arguments.patience))
    line = StreamLine(sys.stderr)
    outage = Outage(line)
    try:
        if arguments.once:
            stream.open()
        else:
            outage.waited(stream.open)
        spark = common.spark(arguments, quick=True)
        stream.restore(spark)
        try:
            _Run(stream, spark, line, outage, arguments).run()
        finally:
            line.end()
        stream.refresh()
    except BaseException:
        if running.ended is not None:
            # The batch in progress is dropped; the tables hold every committed batch.
            running.java.end()
            stream.refresh_if_whole()
        raise
    finally:
        stream.close()
    return 0


class _Run:
    """Schedules batches and reports progress."""

    def __init__(
        self,
        stream: "Stream",
        spark: "SparkSession",
        line: StreamLine,
        outage: "Outage",
        arguments: argparse.Namespace,
    ) -> None:
        self._stream = stream
        self._spark = spark
        self._line = line
        self._outage = outage
        self._once: bool = arguments.once
        self._every_s: float = arguments.every
        self._rows_max: int = arguments.rows
        self._batches = 0
        self._rate = 0.0
        self._damage = ""
        self._due_s = self._refresh_due_s = 0.0

    def run(self) -> None:
        """Run batches up to the end that is found at the start (--once), or for ever."""
        end = self._stream.end_now() if self._once else self._polled()
        self._show(end)
        while not self._once or self._stream.position < end:
            if not self._tried(end):
                time.sleep(POLL_S)
            if not self._once:
                end = self._polled()
                self._show(end)
            self._stream.touch()

    def _polled(self) -> int:
        """Return the cluster's end, once a node answers."""
        while True:
            try:
                return self._stream.end_now()
            except ClientError as error:
                if not _is_outage(error):
                    raise
                self._wait(error)
                self._stream.touch()
                time.sleep(POLL_S)

    def _tried(self, end: int) -> bool:
        """Run a batch if one is due; return whether it ran, because the next may be due at once."""
        behind = end - self._stream.position
        now_s = time.monotonic()
        is_due = self._once or behind >= self._rows_max or now_s >= self._due_s
        if behind > 0 and is_due:
            self._due_s = now_s + self._every_s
            try:
                rows = self._stream.step(self._spark, end)
            except Exception as error:
                if self._once or not _is_outage(error):
                    raise
                self._wait(error)
                return False
            self._outage.is_over()
            self._batches += 1
            self._rate = rows / (time.monotonic() - now_s)
            self._show(end)
            self._compact()
        if now_s >= self._refresh_due_s and not self._stream.is_fresh():
            self._stream.refresh()
            self._refresh_due_s = time.monotonic() + REFRESH_S
        return behind > 0 and is_due

    def _compact(self) -> None:
        """Merge small files; a failed merge is reported, and the stream goes on."""
        try:
            self._stream.compact()
        except (BadExport, OSError) as error:
            if str(error) != self._damage:
                self._damage = str(error)
                self._line.say(f"not compacted: {error}")

    def _show(self, end: int) -> None:
        self._line.show(Progress(self._batches, self._stream.position, end, self._rate))

    def _wait(self, error: Exception) -> None:
        self._outage.say(error)
        # A batch is due as soon as nodes answer again.
        self._due_s = 0.0


class Outage:
    """Reports that nodes do not answer, when it begins and again at intervals."""

    def __init__(self, line: StreamLine) -> None:
        self._line = line
        self._problem = ""
        self._said_s = 0.0

    def say(self, error: Exception) -> None:
        """Report the cause of a wait when it is new, and again at intervals."""
        words = str(error) if isinstance(error, ClientError) else failures.gist(str(error))
        now_s = time.monotonic()
        if words != self._problem or now_s - self._said_s >= SAY_AGAIN_S:
            self._problem, self._said_s = words, now_s
            self._line.say(f"waiting: {words}")

    def is_over(self) -> None:
        """Report the next one, also if it has the same cause."""
        self._problem = ""

    def waited(self, begin: Callable[[], None]) -> None:
        """Begin, once nodes answer.

        Raises:
            ClientError: nodes have answered, and no waiting would help.
        """
        while True:
            try:
                begin()
            except ClientError as error:
                # A running stream outlives the former: an operator may be changing the cluster.
                if isinstance(error, OtherCluster) or not _is_outage(error):
                    raise
                self.say(error)
                time.sleep(POLL_S)
            else:
                return


def _is_outage(error: Exception) -> bool:
    """Whether to wait: nodes do not answer, or may return with the missing events.

    A refusal is no outage: the token is read once, so one that was dropped never works again.
    """
    if isinstance(error, EventsLost):
        return not error.certain
    if isinstance(error, Refused):
        return False
    return isinstance(error, ClientError) or failures.is_of_nodes(str(error))


def _check_place(name: str) -> None:
    """Refuse what cannot be a directory, by its own name and before nodes are asked.

    The names of the folders in it would not do: that of `s3://` is `s3:/events`, a bucket.

    Raises:
        ConfigurationError: it names no bucket, is a file, or cannot be reached.
    """
    place = resolved(name)
    if not place.is_local:
        return
    try:
        Path(place.path, "_").lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(f"--to {shown(name)}: {error.strerror}") from None


def _start(text: str) -> str:
    """Check --start.

    Raises:
        ConfigurationError: it is not a position in a stream.
    """
    if text in (EARLIEST, LATEST) or whole_within(text, 0, OFFSET_MAX) is not None:
        return text
    raise ConfigurationError(
        f"--start {text!r} is not allowed: it must be {EARLIEST}, {LATEST}, or an offset from 0 "
        f"to {OFFSET_MAX}"
    )


def _whole(text: str) -> int:
    found = whole_within(text, 1, WHOLE_MAX)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {WHOLE_MAX}")
    return found
