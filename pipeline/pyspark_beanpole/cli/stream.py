"""`beanpole pipeline stream`: keeps tables of events and statistics, each event exactly once."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark_beanpole.cli import common
from pyspark_beanpole.progress import StreamLine

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# A batch leaves some files behind; statistics are by the minute anyway.
TRIGGER_S: Final = 60
# A batch stays in the memory of small machines, and is soon done again after a crash.
ROWS_PER_BATCH: Final = 1_000_000
POLL_S: Final = 1
# Statistics are of all batches: writing them takes longer the more there are.
REFRESH_S: Final = 300.0


def add_command(commands: Any) -> None:
    """Add `stream` to the parser."""
    parser = commands.add_parser(
        "stream",
        help="keep tables of events and statistics as events come",
        description="Goes on where it was, from its checkpoint. Ctrl-C or SIGTERM ends it.",
    )
    common.add_addresses(parser)
    parser.add_argument("--to", required=True, metavar="DIR", help="where the tables are")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where the stream is (default: _checkpoint in --to)"
    )
    parser.add_argument(
        "--start",
        default="earliest",
        metavar="earliest|latest|OFFSET",
        help="where a new checkpoint begins (default: earliest)",
    )
    parser.add_argument(
        "--every",
        type=_whole,
        default=TRIGGER_S,
        metavar="SECONDS",
        help=f"a batch at most so often (default {TRIGGER_S})",
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
    """Write tables until there are no more events (--once), or until a signal."""
    spark = common.spark(arguments)
    from pyspark_beanpole import streamed

    reader = (
        spark.readStream.format("beanpole")
        .option("addresses", ",".join(arguments.addresses))
        .option("startingOffsets", arguments.start)
        .option("maxRowsPerTrigger", arguments.rows)
        .option("failOnDataLoss", not arguments.skip_lost)
    )
    checkpoint = arguments.checkpoint or f"{arguments.to.rstrip('/')}/_checkpoint"
    writer = reader.load().writeStream.option("checkpointLocation", checkpoint)
    if arguments.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{arguments.every} seconds")
    statistics = not arguments.no_statistics
    query = writer.foreachBatch(streamed.writer(arguments.to, statistics)).start()

    def refresh() -> None:
        if statistics:
            streamed.refresh(spark, arguments.to)

    _follow(query, refresh)
    return 0


def _follow(query: "StreamingQuery", refresh: Callable[[], None]) -> None:
    """Show a query's progress, and refresh now and then, until it ends or a signal tells it to."""
    ending = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ending.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    line = StreamLine(sys.stderr)
    refreshed_s = time.monotonic()
    try:
        while not ending.is_set() and not query.awaitTermination(POLL_S):
            line.show(query.lastProgress)
            if query.lastProgress and time.monotonic() - refreshed_s >= REFRESH_S:
                refresh()
                refreshed_s = time.monotonic()
        line.show(query.lastProgress)
        query.stop()
        if query.lastProgress:
            refresh()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        query.stop()
        line.end()


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999999999")
    return int(text)
