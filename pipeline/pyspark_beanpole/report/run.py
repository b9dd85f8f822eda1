"""Computes the statistics of a log once, and writes them for machines and for people.

DIR/index.html         the page
DIR/summary.json       its numbers
DIR/tables/NAME/       each table as Parquet: docs/pipeline-statistics.md says what is in it
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.audit import Audit
from pyspark_beanpole.report.figures import SHOWN, Covered, Figures, collect
from pyspark_beanpole.report.page import empty_page, page
from pyspark_beanpole.report.summary import summary
from pyspark_beanpole.statistics import depth
from pyspark_beanpole.statistics.keys import DEFAULT_LIMITS, Limits
from pyspark_beanpole.statistics.oldest import oldest
from pyspark_beanpole.statistics.tables import finished, partials

PAGE: Final = "index.html"
SUMMARY: Final = "summary.json"
TABLES: Final = "tables"
# So many tubes have charts of their own; a page with hundreds of charts is read by nobody.
BUSIEST: Final = 6


def _covered(events: DataFrame, cluster: str, missing: Sequence[tuple[int, int]]) -> Covered | None:
    wall_us = F.unix_micros("wall_time")
    row = events.agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count("*").alias("events"),
        (F.min(wall_us) / 1e6).alias("begin"),
        (F.max(wall_us) / 1e6).alias("until"),
    ).collect()[0]
    if not row["events"]:
        return None
    begin, until = (datetime.fromtimestamp(row[name], UTC) for name in ("begin", "until"))
    return Covered(cluster, row["first"], row["last"] + 1, row["events"], begin, until, missing)


def run_report(
    events: DataFrame,
    directory: Path,
    *,
    cluster: str = "",
    missing: Sequence[tuple[int, int]] = (),
    limits: Limits = DEFAULT_LIMITS,
    busiest: int = BUSIEST,
    audited: Audit | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Figures | None:
    """Write the report of a log into a directory; what an earlier one wrote there is replaced.

    Args:
        events: with the columns of docs/pipeline.md. They are read about ten times: cache what does
            not come from Parquet.
        directory: on a disk that Spark's executors see too.
        cluster: what the page calls the cluster.
        missing: ranges of offsets that are not in the log, each first <= offset < end.
        limits: the service level.
        busiest: how many tubes have charts of their own; the others have them together.
        audited: the result of an audit of the same events, to be shown with them.
        progress: told the name of each table that is about to be computed.

    Returns:
        What the page shows; None if there are no events.
    """
    directory.mkdir(parents=True, exist_ok=True)
    covered = _covered(events, cluster, missing)
    start = depth.before(events).cache() if covered is not None and covered.first else None
    parts = {name: part.cache() for name, part in partials(events, limits).items()}
    tables = {**finished(parts, start), "oldest": oldest(events)}
    for name in tables:
        progress(name)
        if name in SHOWN:
            tables[name] = tables[name].cache()
        tables[name].write.mode("overwrite").parquet(str(directory / TABLES / name))
    figures = None
    if covered is not None:
        progress("page")
        figures = collect(covered, limits, parts, tables, start, busiest)
    shown = [tables[name] for name in SHOWN]
    for cached in (*parts.values(), *shown, *([start] if start is not None else [])):
        cached.unpersist()
    text = empty_page(cluster) if figures is None else page(figures, audited)
    (directory / PAGE).write_text(text)
    said = json.dumps(summary(figures, audited), indent=2) + "\n"
    (directory / SUMMARY).write_text(said)
    return figures
