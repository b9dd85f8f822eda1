"""`beanpole events`: the event stream as the nodes have it, and its export to Parquet files."""

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from beanpole.client import where
from beanpole.client.events import Behind, EventsLost, OtherCluster, Replies
from beanpole.client.exiting import os_error_words
from beanpole.client.rpc import Refused, told
from beanpole.errors import ClientError, ConfigurationError, StorageError
from beanpole.exporting.directory import OwnedByAnother
from beanpole.exporting.outages import may_heal
from beanpole.exports import BadExport
from beanpole.numbers import whole_within
from beanpoled.cli.ending import stopped_by_signals
from beanpoled.cli.exits import EXIT_NO, EXIT_NO_ANSWER
from beanpoled.cli.screen import Screen
from beanpoled.cli.values import NUMBER_MAX
from beanpoled.eventlog.export import Export, begin_export, compact, open_export
from beanpoled.eventlog.source import Source

POLL_S: Final = 1.0
PROGRESS_PERIOD_S: Final = 0.2
# A file each half minute is few enough for Spark, and soon enough for a report.
EVERY_S: Final = 30.0
# How long nodes may have fewer events than were read: after a start they read the end of their
# logs, tens of thousands of entries a second, and events of an hour are not in files yet.
BEHIND_PATIENCE_S: Final = 300.0
# The longest pause between two attempts where the place of the files takes no events; it begins
# with POLL_S and doubles. A short one, because an attempt at a store that is silent is long itself.
PLACE_PAUSE_MAX_S: Final = 10.0
# An owner of a store counts as dead by the store's clock, which tells whole seconds.
OWNER_SLACK_S: Final = 2
# A century: a longer time is a typing error.
DAYS_MAX: Final = 36_500
# Plus its number: the status that a shell gives a program which a signal has killed.
EXIT_SIGNAL: Final = 128
# Represents --start earliest among offsets.
EARLIEST: Final = -1


def add_command(commands: Any) -> None:
    """Add `events` to the parser."""
    parser = commands.add_parser("events", help="the events of every job: range and export")
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    ranges = ways.add_parser(
        "range",
        help="show which events each node has",
        description="Exit status 1 if a node did not answer; the ranges of the others are shown.",
    )
    where.add_options(ranges, where.GRPC)
    ranges.add_argument("--json", action="store_true", help="print JSON")
    ranges.set_defaults(run=run_range)
    export = ways.add_parser(
        "export",
        help="write events to a directory of Parquet files",
        description="Goes on where an earlier export to DIR ended; every event is written once.",
    )
    where.add_options(export, where.GRPC)
    export.add_argument(
        "--to", required=True, metavar="DIR", help="where to write: a path, or s3://BUCKET/PATH"
    )
    export.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    export.add_argument(
        "--start",
        metavar="earliest|OFFSET",
        help="where to begin; in a directory that has events: pass over those that are gone",
    )
    export.add_argument(
        "--every",
        type=float,
        default=EVERY_S,
        metavar="SECONDS",
        help=f"with --follow: finish a file at least so often (default {EVERY_S:.0f})",
    )
    export.set_defaults(run=run_export)
    compacting = ways.add_parser(
        "compact",
        help="merge the small files of an export into large ones",
        description="Not while an export writes to DIR: with --follow it does so by itself.",
    )
    compacting.add_argument("directory", metavar="DIR", help="what `export` wrote: a path or URI")
    compacting.add_argument(
        "--older-than",
        type=int,
        metavar="DAYS",
        help="only files of dates at least DAYS days ago (UTC); default: all",
    )
    compacting.set_defaults(run=run_compact)


def _source(arguments: argparse.Namespace) -> Source:
    return Source(where.addresses(arguments, where.GRPC))


def run_range(arguments: argparse.Namespace) -> int:
    """Print the range of events of each node; name the nodes that do not answer."""
    with _source(arguments) as source:
        ranges = source.ranges()
    if arguments.json:
        nodes = [
            {
                "id": reply.node,
                "address": address,
                "spans": [[span.first, span.end] for span in reply.spans],
                "end": reply.end,
                "applied_index": reply.applied_index,
            }
            for address, reply in ranges.items()
        ]
        print(json.dumps({"cluster": source.cluster, "nodes": nodes}))
    else:
        print(f"cluster {source.cluster}, {source.extent(ranges).end} events so far")
        for reply in ranges.values():
            spans = ", ".join(f"{span.first} to {span.end}" for span in reply.spans)
            print(f"{reply.node:<10} {spans or 'none'}")
    if source.failures:
        print(f"beanpole: no answer of {told(source.failures)}", file=sys.stderr)
    return EXIT_NO if source.failures else 0


def run_export(arguments: argparse.Namespace) -> int:
    """Write events until there are no more, or with --follow until a signal.

    Without --follow, a signal that left events unwritten gives the exit status of one that kills.
    Lost files of the directory give that of a damaged one, though all new events are written. So
    does a signal in an outage of the directory.
    """
    wanted = _start(arguments.start)
    if not 0 < arguments.every < math.inf:
        raise ConfigurationError(
            f"--every = {arguments.every} is not allowed: it must be above 0, and finite"
        )
    ended = threading.Event()
    is_whole = True
    with _source(arguments) as source, stopped_by_signals(ended) as signals:
        run = _begun(source, arguments, wanted, ended)
        if run is None:
            return 0
        try:
            if arguments.follow:
                run.patiently(run.catch_up)
                while not ended.wait(run.pause_s):
                    run.patiently(run.follow)
            else:
                is_whole = run.catch_up()
                # An export that is started repeatedly would leave many small files.
                run.finish_file()
        finally:
            run.close()
        run.end()
    if not is_whole:
        assert signals, "only a signal leaves events unwritten"
        return EXIT_SIGNAL + signals[0]
    return EXIT_NO_ANSWER if run.export.lost or run.is_stalled else 0


def _begun(
    source: Source, arguments: argparse.Namespace, wanted: int | None, ended: threading.Event
) -> "_Run | None":
    """Begin an export; None if it was ended before.

    With --follow it waits once for an owner that was killed, perhaps this export itself before a
    restart: its supervisor would take the refusal for a wrong command.

    Raises:
        ConfigurationError: for example, another export runs.
    """
    try:
        return _Run(source, arguments.to, wanted, arguments.every, ended)
    except OwnedByAnother as error:
        if not arguments.follow:
            raise
        Screen(sys.stderr).say(f"waiting: {error}")
        if ended.wait(error.left_s + OWNER_SLACK_S):
            return None
    return _Run(source, arguments.to, wanted, arguments.every, ended)


def run_compact(arguments: argparse.Namespace) -> int:
    """Merge small files, and print their number before and after."""
    days = arguments.older_than
    if days is not None and not 0 <= days <= DAYS_MAX:
        raise ConfigurationError(
            f"--older-than = {days} is not allowed: it must be from 0 to {DAYS_MAX}"
        )
    today = datetime.now(UTC).date()
    # Files of that date itself are old enough.
    before_date = "" if days is None else str(today - timedelta(days=days - 1))
    before, after = compact(arguments.directory, before_date)
    print(f"{before} files before, {after} now")
    return 0


def _start(text: str | None) -> int | None:
    """Parse --start; None means the end of the earlier export."""
    if text is None:
        return None
    if text == "earliest":
        return EARLIEST
    offset = whole_within(text, 0, NUMBER_MAX)
    if offset is None:
        raise ConfigurationError(
            f"--start = {text!r} is not allowed: it must be earliest or an offset from 0"
        )
    return offset


class _Run:
    """One export: its position, and its display on a terminal."""

    def __init__(
        self,
        source: Source,
        directory: str,
        wanted: int | None,
        every_s: float,
        ended: threading.Event,
    ) -> None:
        self._source = source
        self._every_s = every_s
        self._ended = ended
        # How long to wait until the next step of --follow.
        self.pause_s = POLL_S
        # While the place of the files has not taken what was read: the offset before which it is.
        self._stalled: int | None = None
        self._is_broken_off = False  # what the place has of the last step is not known
        self._screen = Screen(sys.stderr)
        ranges = source.ranges()
        found = open_export(directory, source.cluster, source.birth)
        if found is not None and not found.spans:
            # Start over: the counts in its manifest are those before another first event.
            found.close()
            found = None
        begin = self._begin(found, ranges, wanted)
        is_earliest = wanted == EARLIEST or (wanted is None and found is None)
        if begin and is_earliest and source.failures:
            self._screen.say(
                f"begins at offset {begin}; nodes that did not answer may have earlier events: "
                f"{told(source.failures)}"
            )
        self.export: Export = found or begin_export(
            directory, source.cluster, source.jobs_at(begin, ranges), source.birth
        )
        self._say_lost()
        self._position = self._begun = begin
        self._begun_s = self._shown_s = self._flushed_s = time.monotonic()
        self._problem = self._damage = ""
        self._behind_s: float | None = None  # since when the nodes have fewer events than we

    def _say_lost(self) -> None:
        if self.export.lost:
            more = f" (and {len(self.export.lost) - 1} more)" if len(self.export.lost) > 1 else ""
            self._screen.say(f"lost since it was written: {self.export.lost[0]}{more}")

    def _begin(self, found: Export | None, ranges: Replies, wanted: int | None) -> int:
        """Return the first offset to read."""
        extent = self._source.extent(ranges)
        earliest, end = extent.first, extent.end
        here = found.end if found is not None else 0
        try:
            if here > end:
                raise ConfigurationError(
                    f"{found and found.name} has events to {here}, and the cluster has only "
                    f"{end}: it is another cluster of the same name, or not all of it answers, or "
                    "its nodes have just started"
                )
            if wanted is None:
                return here if found is not None else earliest
            begin = max(here, earliest if wanted == EARLIEST else wanted)
            if begin > end:
                raise ConfigurationError(
                    f"--start = {wanted} is not allowed: the cluster has events to {end}"
                )
            return begin
        except ConfigurationError:
            if found is not None:
                found.close()
            raise

    def catch_up(self) -> bool:
        """Write everything up to the present end of the cluster's events.

        Returns:
            Whether it is written; False if `ended` was set before.
        """
        end = self._source.end(self._position)
        if end >= self._position:
            # Only now is it sure that the cluster has as many events. The birth id may be news:
            # nodes of release 0.3.0 do not tell it, nor those that wait for the others to found it.
            self.export.claim(self._source.birth, self._source.event_at)
        try:
            for batch in self._source.read(self._position, end):
                self.export.write(batch)
                self._position += batch.num_rows
                self._show(end)
                if self._ended.is_set():
                    break
        except EventsLost as error:
            raise ClientError(
                f"{error}; export with --start {error.kept} to go on behind them"
            ) from error
        return self._position >= end

    @property
    def is_stalled(self) -> bool:
        """Whether the place of the files has not taken events that were read."""
        return self._stalled is not None

    def patiently(self, step: Callable[[], object]) -> None:
        """Do a step of --follow, or wait: for a store that does not answer, or a disk with room.

        A step that has failed is done again by the next call, from the last event that counts.

        Raises:
            OSError: an error that does not end by itself; so does `StorageError`.
        """
        try:
            if self._is_broken_off:
                self._take_up()
            step()
            if self._stalled is not None:
                self.finish_file()
                if self._position >= self._stalled:
                    self._stalled = None
                    self._screen.say(f"goes on: {self.export.name} has events to {self.export.end}")
            self.pause_s = POLL_S
        except (OSError, StorageError) as error:
            if not may_heal(error):
                raise
            words = os_error_words(error) if isinstance(error, OSError) else str(error)
            self._break_off(words.partition("\n")[0])

    def _break_off(self, problem: str) -> None:
        if self._stalled is None:
            self._screen.say(f"waiting: {problem}")
        else:
            self.pause_s = min(2 * self.pause_s, PLACE_PAUSE_MAX_S)
        self._stalled = max(self._stalled or 0, self._position)
        self._is_broken_off = True
        # What does not count was dropped.
        self._position = max(self._begun, self.export.end)

    def _take_up(self) -> None:
        lost = self.export.lost
        self.export.take_up()
        self._is_broken_off = False
        self._position = max(self._begun, self.export.end)
        if self.export.lost != lost:
            self._say_lost()

    def follow(self) -> None:
        """Write new events; wait for nodes that do not answer.

        Raises:
            ConfigurationError: the cluster was begun anew.
            OtherCluster: the nodes are of several clusters.
            ClientError: events are gone.
            Refused: a node refuses the call, so that a later one would fail, too.
        """
        try:
            self.catch_up()
        except Behind as error:
            self._wait_for_logs(error)
        except (Refused, OtherCluster):
            raise
        except ClientError as error:
            if isinstance(error.__cause__, EventsLost) and error.__cause__.certain:
                raise
            self._wait(str(error))
        else:
            self._problem, self._behind_s = "", None
        self.export.touch()
        if time.monotonic() - self._flushed_s >= self._every_s:
            self._flushed_s = time.monotonic()
            self.finish_file()

    def _wait(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._screen.say(f"waiting: {problem}")

    def _wait_for_logs(self, error: Behind) -> None:
        """Wait for nodes that have started.

        Raises:
            ConfigurationError: they have had fewer events for too long; or they do not tell the
                birth id, by which a cluster that was begun anew would have been noticed.
        """
        now_s = time.monotonic()
        self._behind_s = self._behind_s or now_s
        if not self._source.birth or now_s - self._behind_s > BEHIND_PATIENCE_S:
            raise ConfigurationError(str(error)) from None
        self._wait(f"the nodes do not have the events before {self._position} yet")

    def finish_file(self) -> None:
        """Finish the file that is being written, and merge small ones.

        A failed merge is reported, and the export goes on.
        """
        self.export.flush()
        try:
            self.export.tidy()
        except (BadExport, OSError) as error:
            if str(error) != self._damage:
                self._damage = str(error)
                self._screen.say(f"not compacted: {error}")

    def _show(self, end: int) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s >= PROGRESS_PERIOD_S:
            self._shown_s = now_s
            rate = (self._position - self._begun) / (now_s - self._begun_s)
            share = 100 * self._position // end
            self._screen.show(
                [f"{self._position} of {end} events ({share} %), {rate:,.0f} a second"]
            )

    def close(self) -> None:
        """Finish the file, also after an error: events that were read need not be read again."""
        self._screen.end()
        try:
            self.export.flush()
        finally:
            self.export.close()

    def end(self) -> None:
        """Print a summary."""
        count = self._position - self._begun
        spans = ", ".join(f"{first} to {end}" for first, end in self.export.spans) or "none"
        lost = f"; {self.export.lost_rows} of them are lost" if self.export.lost_rows else ""
        self._screen.say(f"{count} events written; {self.export.name} has {spans}{lost}")
