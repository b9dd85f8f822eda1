"""The conservation audit: prove from the events that no job was lost and none was done twice.

The audit trusts no event: offsets must be dense, the events of each job must chain, counters and
times are computed again from the raw times, and the jobs that remain must match the cluster's own
counts. `chains` finds the faults of single events; this module combines them into a verdict.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from beanpole.client.terminals import visible
from pyspark_beanpole.chains import FAULTS, chained, defects, ends, went_last
from pyspark_beanpole.statistics.keys import STATES
from pyspark_beanpole.tables import replace_file

# The exit codes of `beanpole pipeline audit`; 2 is that of a wrong command line.
BALANCED: Final = 0
UNBALANCED: Final = 1
# Offsets are sorted in chunks of this many to find gaps.
_CHUNK: Final = 1 << 18
# Findings named per kind; the tables hold all of them.
NAMED_MAX: Final = 20


class Finding(NamedTuple):
    """One kind of discrepancy."""

    kind: str
    total: int
    named: tuple[str, ...]  # the first NAMED_MAX of them, in words


class Audit(NamedTuple):
    """The result of an audit.

    Events `first <= offset < end` were read. `puts` counts the jobs that were put in this range,
    `began_before` the jobs whose put is older than `first`. Of both together, `done` were ended by
    the worker that held them, `removed` were deleted in any other way, `given_up` failed for good,
    and `expired` reached the end of their TTL. `still` counts the jobs in each state at the end.
    `compared` is true if the cluster's own counts were available for comparison.
    """

    first: int
    end: int
    events: int
    puts: int
    began_before: int
    done: int
    removed: int
    given_up: int
    expired: int
    still: Mapping[str, int]
    compared: bool
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0 if there are no findings, else 1."""
        return UNBALANCED if self.findings else BALANCED

    def lines(self) -> list[str]:
        """Return the result as text for a terminal."""
        still = ", ".join(f"{count:,} {state}" for state, count in self.still.items())
        compared = "as the cluster says" if self.compared else "not compared with a cluster"
        ends = f"ends: {self.done:,} done, {self.removed:,} removed"
        if self.given_up or self.expired:  # beanstalk has neither
            ends += f", {self.given_up:,} given up, {self.expired:,} expired"
        found = [
            f"events {self.first} to {self.end}: {self.events:,}",
            f"jobs: {self.puts:,} put, {self.began_before:,} from before",
            ends,
            f"still there: {still} ({compared})",
        ]
        for finding in self.findings:
            found.append(f"{finding.kind}: {finding.total:,}")
            found += [f"  {words}" for words in finding.named]
            # A named range covers many offsets, so the total alone does not tell if any
            # are unnamed.
            if finding.total > len(finding.named) >= NAMED_MAX:
                found.append("  and more")
        return [*found, "does not add up" if self.findings else "everything adds up"]

    def as_json(self) -> dict[str, Any]:
        """Return the result as a dictionary for JSON."""
        return {
            **self._asdict(),
            "balanced": not self.findings,
            "findings": [finding._asdict() for finding in self.findings],
        }


def _divided(amount: Column, by: int) -> Column:
    """Return the whole part of a quotient of integers; `/` would go through floating point."""
    return F.call_function("div", amount, F.lit(by))


def gaps(rows: DataFrame, column: str, first: int, end: int) -> DataFrame:
    """Return the deviations of a column from exactly the numbers `first` to `end` - 1.

    Returns:
        Rows (kind, first, end) with the kind `missing` or `repeated`. A missing range that crosses
        a chunk boundary is reported in several rows.
    """
    number = F.col(column)
    chunks = rows.sparkSession.range(first // _CHUNK, -(-end // _CHUNK)).select(
        F.col("id").alias("chunk")
    )
    low = F.greatest(F.col("chunk") * _CHUNK, F.lit(first)) - 1
    high = F.least((F.col("chunk") + 1) * _CHUNK, F.lit(end))
    edges = chunks.select("chunk", F.explode(F.array(low, high)).alias("number"))
    inside = rows.where(number.between(first, end - 1)).select(
        _divided(number, _CHUNK).alias("chunk"), number.alias("number")
    )
    after = F.lead("number").over(Window.partitionBy("chunk").orderBy("number"))
    kind = F.when(F.col("after") == F.col("number"), "repeated").otherwise("missing")
    step = F.col("after") - F.col("number")
    return (
        edges.union(inside)
        .withColumn("after", after)
        .where(step != 1)
        .select(
            kind.alias("kind"),
            (F.col("number") + F.when(step == 0, 0).otherwise(1)).alias("first"),
            (F.col("after") + F.when(step == 0, 1).otherwise(0)).alias("end"),
        )
    )


def _gap_findings(rows: DataFrame, column: str, first: int, end: int, of: str) -> list[Finding]:
    table = gaps(rows, column, first, end)
    totals = table.groupBy("kind").agg(F.sum(F.col("end") - F.col("first")).alias("count"))
    found: list[Finding] = []
    for kind, count in sorted((row["kind"], row["count"]) for row in totals.collect()):
        ranges = table.where(F.col("kind") == kind).orderBy("first").limit(NAMED_MAX).collect()
        named = tuple(f"{row['first']} to {row['end'] - 1}" for row in ranges)
        found.append(Finding(f"{kind} {of}", count, named))
    return found


def _range_of(events: DataFrame, first: int | None, end: int | None) -> tuple[int, int]:
    found = events.agg(F.min("offset"), F.max("offset") + 1).collect()[0]
    low = (found[0] or 0) if first is None else first
    return low, (found[1] or low) if end is None else end


def _put_findings(events: DataFrame) -> list[Finding]:
    """Check that each id between the lowest and the highest put belongs to a job or to a requeue.

    A job that goes behind all others of its rank uses up a number, which no event records. So ids
    may be missing as often as jobs were requeued.
    """
    puts = events.where(F.col("event") == "put")
    low, high = puts.agg(F.min("job_id"), F.max("job_id")).collect()[0]
    if low is None:
        return []
    ids = puts.select("job_id").distinct()
    missing = _gap_findings(ids, "job_id", low, high + 1, "puts of jobs")
    total = sum(finding.total for finding in missing)
    return missing if total and total > events.where(went_last()).count() else []


def _fault_finding(links: DataFrame, kind: str, count: int) -> Finding:
    rows = defects(links).where(F.col("kind") == kind).orderBy("offset").limit(NAMED_MAX).collect()
    named = tuple(
        f"job {row['job_id']}, offset {row['offset']}: {visible(row['said'])}" for row in rows
    )
    return Finding(kind, count, named)


def _compared(
    kind: str, states: Iterable[str], by_events: Mapping[str, int], by_cluster: Mapping[str, int]
) -> list[Finding]:
    words = tuple(
        f"{state}: {by_events[state]:,} by the events, {by_cluster.get(state, 0):,} by the cluster"
        for state in states
    )
    return [Finding(kind, len(words), words)] if words else []


def _conserved(
    still: Mapping[str, int],
    seen_before: Mapping[str, int],
    jobs: Mapping[str, int] | None,
    jobs_before: Mapping[str, int],
) -> list[Finding]:
    """Compare the counts by state with the cluster's own, at both ends of the range."""
    more = [state for state in STATES if seen_before[state] > jobs_before.get(state, 0)]
    found = _compared("states before the first event", more, seen_before, jobs_before)
    if jobs is not None:
        apart = [state for state in STATES if still[state] != jobs.get(state, 0)]
        found += _compared("states at the end", apart, still, jobs)
    return found


def audit(
    events: DataFrame,
    *,
    first: int | None = None,
    end: int | None = None,
    jobs: Mapping[str, int] | None = None,
    jobs_before: Mapping[str, int] | None = None,
) -> Audit:
    """Audit the events of one cluster.

    Args:
        events: rows with the columns of docs/pipeline.md, in any order.
        first: the first offset of the range; None for the smallest offset in `events`.
        end: the offset after the range; None for the largest offset in `events` plus 1.
        jobs: the cluster's number of jobs by state at `end` (of `EventRangeReply`), or None if
            unknown; then jobs that were lost without an event are not noticed.
        jobs_before: the same before `first`. All zero for a range from offset 0; None if unknown.
    """
    first, end = _range_of(events, first, end)
    events = events.where(F.col("offset").between(first, end - 1))
    if first == 0 and jobs_before is None:
        jobs_before = dict.fromkeys(STATES, 0)
    links = chained(events, from_start=first == 0)
    totals = ends(links)
    findings = _gap_findings(events, "offset", first, end, "offsets")
    findings += _put_findings(events)
    findings += [_fault_finding(links, kind, totals[kind]) for kind in FAULTS if totals[kind]]
    still = {state: totals[f"{state}_still"] for state in STATES}
    if jobs_before is not None:
        # Include the jobs that had no event in this range.
        still = {state: jobs_before.get(state, 0) + totals[f"{state}_change"] for state in STATES}
        seen_before = {state: totals[f"{state}_before"] for state in STATES}
        findings += _conserved(still, seen_before, jobs, jobs_before)
    return Audit(
        first,
        end,
        totals["events"],
        totals["puts"],
        totals["began_before"],
        totals["done"],
        totals["removed"],
        totals["given_up"],
        totals["expired"],
        still,
        jobs is not None and jobs_before is not None,
        tuple(findings),
    )


def run_audit(
    events: DataFrame,
    directory: Path | None,
    *,
    first: int | None = None,
    end: int | None = None,
    jobs: Mapping[str, int] | None = None,
    jobs_before: Mapping[str, int] | None = None,
) -> Audit:
    """Run the audit, and write its results into `directory` if there is one.

    `audit.json` is the result for programs. The tables `defects` and `gaps` (Parquet) hold all
    findings, not only the first of each kind. The arguments are those of `audit`.
    """
    result = audit(events, first=first, end=end, jobs=jobs, jobs_before=jobs_before)
    if directory is not None:
        # Spark takes what is before a colon for the name of a file system.
        folder = f"file://{directory.absolute()}"
        inside = events.where(F.col("offset").between(result.first, result.end - 1))
        links = chained(inside, from_start=result.first == 0)
        tables = {
            "defects": defects(links),
            "gaps": gaps(inside, "offset", result.first, result.end),
        }
        for name, table in tables.items():
            table.write.mode("overwrite").parquet(f"{folder}/{name}")
        text = json.dumps(result.as_json(), indent=2) + "\n"
        replace_file(directory / "audit.json", text.encode())
    return result
