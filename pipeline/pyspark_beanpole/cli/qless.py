"""`beanpole pipeline qless`: qless's `stats` of each queue and day, computed from the events."""

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark_beanpole.cli import common

if TYPE_CHECKING:
    from pyspark.sql import Row

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def add_command(commands: Any) -> None:
    """Add `qless` to the parser."""
    parser = commands.add_parser(
        "qless",
        help="waits and runs of qless's queues by day, as its own statistics",
        description="Days are those of the clocks of clients, in UTC. JSON has the histograms.",
    )
    common.add_input(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    common.add_spark(parser)
    common.set_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each queue, day and kind."""
    spark = common.spark(arguments)
    # Imported after `spark`, which reports a missing Spark in one line.
    from pyspark_beanpole.qless import stats

    cluster, rows = common.read(
        arguments, spark, lambda found: (found.cluster, stats(found.events).collect())
    )
    if arguments.json:
        queues = [row.asDict() for row in rows]
        common.say(json.dumps({"cluster": cluster, "queues": queues}))
    else:
        common.say("\n".join(_lines(rows)))
    return 0


def _lines(rows: "list[Row]") -> list[str]:
    if not rows:
        return ["no job of qless was popped"]
    names = [ascii(row["queue"])[1:-1] for row in rows]
    width = max(len("queue"), *map(len, names))
    head = f"{'queue':{width}}  {'day':10}  kind  {'count':>12}  {'mean s':>14}  {'std s':>14}"
    return [
        head,
        *[
            f"{name:{width}}  {_day(row['day_s']):10}  {row['kind']:4}  {row['count']:12,}  "
            f"{row['mean_s']:14,.6f}  {row['std_s']:14,.6f}"
            for name, row in zip(names, rows, strict=True)
        ],
    ]


def _day(day_s: int) -> str:
    """Return a date, or the number of its first second if it lies beyond the calendar."""
    try:
        return f"{_EPOCH + timedelta(seconds=day_s):%Y-%m-%d}"
    except OverflowError:
        return str(day_s)
