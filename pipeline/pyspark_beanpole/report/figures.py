"""The numbers that the page shows, collected from Spark: few, however many events there were."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pyspark_beanpole.report import series
from pyspark_beanpole.statistics import attempts, depth, histogram, slo, times
from pyspark_beanpole.statistics.failures import failures
from pyspark_beanpole.statistics.keys import Limits
from pyspark_beanpole.statistics.throughput import throughput

# So many workers, stretches and buried jobs are listed; the tables have all.
LISTED_MAX: Final = 20
# The ranks, in percent, between which the curve of a distribution is drawn.
RANKS: Final = (0.0, 0.1, 0.5, 1, 2, *range(5, 100, 5), 98, 99, 99.5, 99.9, 100)

# The tables of which rows are shown as they are; the rest is added up again, from partials.
SHOWN: Final = ("workers", "dead_letters", "backlog", "oldest")

Rows = list[Row]


class Covered(NamedTuple):
    """Which events a report is about; times are in UTC."""

    cluster: str
    first: int
    end: int
    events: int
    begin: datetime
    until: datetime
    # Ranges of offsets that are not among them, each first <= offset < end.
    missing: Sequence[tuple[int, int]]

    def warnings(self) -> list[str]:
        """Say what is not to be believed of numbers that need every event."""
        if not self.missing:
            return []
        gaps = ", ".join(f"{first:,} to {end - 1:,}" for first, end in self.missing)
        return [
            f"The events of offsets {gaps} are missing: depths behind them are only relative, and "
            "times and counts lack what happened there."
        ]


class Tube(NamedTuple):
    """All about one tube, or about the others together."""

    name: str
    counts: Row
    times: Mapping[str, Row]  # by kind
    curves: Mapping[str, Sequence[float]]  # by kind: seconds at RANKS
    bars: Mapping[str, Rows]  # by kind: the slots of the histogram
    levels: Mapping[str, Row]  # by kind: service level
    depth: Rows
    flows: Rows
    ages: Rows
    failures: Rows
    attempts: Rows


class Figures(NamedTuple):
    """All that the page shows."""

    covered: Covered
    limits: Limits
    step_min: int
    tubes: Sequence[Tube]
    tubes_total: int
    whole: Row
    whole_times: Mapping[str, Row]
    days: Rows
    day_times: Mapping[Any, Mapping[str, Row]]
    workers: Rows
    workers_total: int
    buried: Rows
    buried_total: int
    backlog: Rows


def others_name(count: int) -> str:
    """What the tubes are called that are not shown by themselves."""
    return "(1 other tube)" if count == 1 else f"({count:,} other tubes)"


def _busiest(cube: DataFrame, count: int) -> tuple[list[str], int]:
    counts = throughput(cube, ("tube",))
    busy = counts.orderBy((F.col("puts") + F.col("reserved")).desc(), "tube").limit(count)
    return [row["tube"] for row in busy.collect()], counts.count()


def _per_tube(table: DataFrame) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(list)
    for row in table.collect():
        found[row["tube"]].append(row)
    return found


def _by_kind(rows: Rows) -> dict[str, Row]:
    return {row["kind"]: row for row in rows}


def _curves(parts: DataFrame) -> DataFrame:
    ranks = F.array(*[F.lit(rank / 100) for rank in RANKS])
    return times.merge(parts, ("tube",)).select(
        "tube", "kind", F.kll_sketch_get_quantile_double("sketch", ranks).alias("seconds")
    )


def _bars(parts: DataFrame) -> DataFrame:
    return histogram.finish(parts, ("tube",)).orderBy("slot")


def _epoch(column: str) -> Column:
    return (F.unix_micros(column) / 1e6).alias(column)


def _tubes(
    parts: Mapping[str, DataFrame],
    start: DataFrame | None,
    oldest: DataFrame,
    step: int,
    shown: Callable[[DataFrame], DataFrame],
) -> list[Tube]:
    cube = shown(parts["transitions"])
    begun = None
    if start is not None:
        begun = (
            shown(start)
            .groupBy("tube")
            .agg(*[F.sum(state).alias(state) for state in start.columns if state != "tube"])
        )
    depths = depth.finish(shown(parts["minutes"]), begun).cache()
    rows = {
        "counts": throughput(cube, ("tube",)),
        "times": times.finish(shown(parts["times"]), ("tube",)),
        "curves": _curves(shown(parts["times"])),
        "bars": _bars(shown(parts["histogram"])),
        "levels": slo.finish(shown(parts["slo"]), ("tube",)),
        "depth": series.depth_points(depths, step).orderBy("minute"),
        "flows": series.flow_points(depths, step).orderBy("minute"),
        "ages": series.age_points(shown(oldest), step).orderBy("minute"),
        "failures": failures(cube, ("tube",)).orderBy(F.col("count").desc()),
        "attempts": attempts.merge(shown(parts["attempts"]), ("tube",)).orderBy("attempts"),
    }
    found = {name: _per_tube(table) for name, table in rows.items()}
    depths.unpersist()
    tubes = []
    for name, counts in found["counts"].items():
        of = {kind: found[kind].get(name, []) for kind in rows}
        bars: dict[str, Rows] = defaultdict(list)
        for row in of["bars"]:
            bars[row["kind"]].append(row)
        tubes.append(
            Tube(
                name,
                counts[0],
                _by_kind(of["times"]),
                {row["kind"]: row["seconds"] for row in of["curves"]},
                bars,
                _by_kind(of["levels"]),
                of["depth"],
                of["flows"],
                of["ages"],
                of["failures"],
                of["attempts"],
            )
        )
    return tubes


def collect(
    covered: Covered,
    limits: Limits,
    parts: Mapping[str, DataFrame],
    tables: Mapping[str, DataFrame],
    start: DataFrame | None,
    busiest: int,
) -> Figures:
    """Collect what the page shows.

    Args:
        covered: of which events.
        limits: the service level that `parts` were made with.
        parts: from `tables.partials`, better cached.
        tables: those of SHOWN, better cached.
        start: the depths before the first event, if they were not zero.
        busiest: how many tubes are shown by themselves.
    """
    names, total = _busiest(parts["transitions"], busiest)
    others = others_name(total - len(names))

    def shown(table: DataFrame) -> DataFrame:
        known = F.when(F.col("tube").isin(names), F.col("tube"))
        return table.withColumn("tube", known.otherwise(F.lit(others)))

    step = series.step_of(covered.begin, covered.until)
    tubes = _tubes(parts, start, tables["oldest"], step, shown)
    order = {name: place for place, name in enumerate([*names, others])}
    cube, workers, buried = parts["transitions"], tables["workers"], tables["dead_letters"]
    day_times: dict[Any, dict[str, Row]] = defaultdict(dict)
    for row in times.finish(parts["times"], ("day",)).collect():
        day_times[row["day"]][row["kind"]] = row
    return Figures(
        covered,
        limits,
        step,
        sorted(tubes, key=lambda tube: order[tube.name]),
        total,
        throughput(cube, ()).collect()[0],
        _by_kind(times.finish(parts["times"], ()).collect()),
        throughput(cube, ("day",)).orderBy("day").collect(),
        day_times,
        workers.orderBy(F.col("reservations").desc(), "worker").limit(LISTED_MAX).collect(),
        workers.count(),
        buried.orderBy(F.col("offset").desc())
        .withColumn("buried_at", _epoch("buried_at"))
        .limit(LISTED_MAX)
        .collect(),
        buried.count(),
        tables["backlog"]
        .orderBy(F.col("minutes").desc(), "tube", "from")
        .withColumns({"from": _epoch("from"), "until": _epoch("until")})
        .limit(LISTED_MAX)
        .collect(),
    )
