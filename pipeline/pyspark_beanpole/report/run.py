"""Compute the statistics of a log once, and write them for programs and for people.

DIR/index.html             the page
DIR/summary.json           its numbers
DIR/tables/NAME/           each table as Parquet, described in docs/pipeline-statistics.md

Only `run_report` uses Spark, to reduce the events; `write_report` writes.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_beanpole.report import windows
from pyspark_beanpole.report.collect import Read, collect
from pyspark_beanpole.report.figures import Covered, Figures, Outside
from pyspark_beanpole.report.findings import Finding, findings
from pyspark_beanpole.report.outside import outside
from pyspark_beanpole.report.page import Audited, empty_page, page
from pyspark_beanpole.report.period import ANY, Asked, Period, chosen
from pyspark_beanpole.report.reading import part_of
from pyspark_beanpole.report.summary import empty_summary, summary
from pyspark_beanpole.statistics import answers, parts
from pyspark_beanpole.statistics.keys import DEFAULT_LIMITS, Limits
from pyspark_beanpole.tables import replace_file, write_tables

if TYPE_CHECKING:
    from pyspark_beanpole.inputs import Input

PAGE: Final = "index.html"
SUMMARY: Final = "summary.json"
TABLES: Final = "tables"


class Report(NamedTuple):
    """The input and the result of a report; None for parts that a log without events lacks."""

    covered: Covered | None
    period: Period | None
    figures: Figures | None
    findings: Sequence[Finding]


def run_report(
    found: "Input",
    directory: Path,
    *,
    asked: Asked = ANY,
    queues: Sequence[str] = (),
    limits: Limits = DEFAULT_LIMITS,
    audited: Audited | None = None,
    source: str = "",
    progress: Callable[[str], None] = lambda name: None,
) -> Report:
    """Write the report of a log into a directory, and replace an earlier one.

    Args:
        found: the events.
        directory: a local directory.
        asked: the time that the page covers; by default, the last day of the log.
        queues: only these; empty for all.
        limits: the service level.
        audited: the result of an audit of the same events, to be shown on the page.
        source: the option that names the events on a command line, which the page repeats.
        progress: called with the name of each step.
    """
    from pyspark_beanpole.ranges import put_from

    edges = found.source.edges()
    if edges is None:
        return write_report(None, directory, audited, found.cluster)
    period = chosen(asked, edges.begin_us, edges.last_us)
    progress("events")
    cuts = windows.cuts_of(found.source, period)
    reducer = partial(
        windows.reduced,
        period=period,
        limits=limits,
        cuts=cuts,
        tubes=tuple(queues) or None,
        put_from=put_from(found.source),
    )
    part = part_of(found.source, period, queues)
    kept = windows.merged(found.reduce(reducer, part.first, part.end))
    log = found.with_oldest(kept.log)
    passed_over_us = period.before.since_us if part.first is not None else None
    covered = Covered(
        found.cluster, found.first, found.end, edges.begin_us, edges.last_us, found.missing, source,
        passed_over_us, outside(found.source, period, cuts.now),
    )  # fmt: skip
    start = part.start
    if start is None and not queues:
        # Jobs from before the log that had no event are known only by number.
        start = answers.started(log, found.jobs_before)
    before = kept.before if edges.begin_us < period.since_us else None
    progress("page")
    read = Read(covered, period, kept.now, before, log, limits, start, tuple(queues), kept.waits)
    return write_report(read, directory, audited)


def write_report(
    read: Read | None, directory: Path, audited: Audited | None = None, cluster: str = ""
) -> Report:
    """Write tables, page and summary of reduced events; None stands for a log without events."""
    if read is None:
        write_tables(directory / TABLES, answers.finished(parts.merged([])))
        content = empty_summary(audited, None, Outside())
        _write(directory, empty_page(cluster, None, None, ()), content)
        return Report(None, None, None, [])
    write_tables(directory / TABLES, answers.finished(read.log, read.start, read.end_min))
    figures = collect(read)
    if not figures.events and not figures.queues:
        text = empty_page(read.covered.cluster, read.covered, read.period, read.asked)
        _write(directory, text, empty_summary(audited, read.period, read.covered.outside))
        return Report(read.covered, read.period, None, [])
    found = findings(figures)
    _write(directory, page(figures, found, audited), summary(figures, found, audited))
    return Report(read.covered, read.period, figures, found)


def _write(directory: Path, text: str, said: object) -> None:
    """Replace the page and the summary atomically, each on its own."""
    for name, content in ((PAGE, text), (SUMMARY, json.dumps(said, indent=2) + "\n")):
        replace_file(directory / name, content.encode())
