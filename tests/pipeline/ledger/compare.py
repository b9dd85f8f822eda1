"""Compare a table that the pipeline wrote with the naive one, by rows and columns."""

import math
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as parquet

from tests.pipeline.ledger.naive import Row

# The key columns of each table; the other columns are values.
KEYS: Final = {
    "throughput": ("day", "tube", "protocol"),
    "times": ("day", "tube", "protocol", "kind"),
    "histogram": ("day", "tube", "protocol", "kind", "slot"),
    "attempts": ("day", "tube", "protocol", "outcome", "attempts"),
    "failures": ("day", "tube", "protocol", "event", "reason"),
    "slo": ("day", "tube", "protocol", "kind", "limit_s"),
    "workers": ("worker",),
    "dead_letters": ("job_id",),
    "depth": ("tube", "minute"),
    "whole_depth": ("minute",),
    "backlog": ("tube", "begin"),
    "oldest": ("tube", "begin"),
}
PERCENTILES: Final = ("p50_s", "p90_s", "p95_s", "p99_s")
# The documented error of percentiles, and the rounding error of sums in another order.
PERCENTILE_ERROR: Final = 0.01
SUM_ERROR: Final = 1e-9
# `ready_since` is a cluster time, from which the wall clock drifts at most this far in a run.
DRIFT: Final = timedelta(seconds=1)


def read(directory: Path, name: str) -> list[Row]:
    """Return the rows of a table that `report` wrote."""
    rows: list[Row] = parquet.read_table(directory / "tables" / name).to_pylist()
    return rows


def differences(name: str, found: Sequence[Row], expected: Sequence[Row]) -> list[str]:
    """Return the differences between two tables, in words."""
    keys = KEYS[name]
    columns = {column for row in (*found[:1], *expected[:1]) for column in row}
    ours = {tuple(row[key] for key in keys): row for row in expected}
    theirs = {tuple(row[key] for key in keys): row for row in found}
    said = [] if len(theirs) == len(found) else [f"{name}: rows that have the same keys"]
    said += [f"{name}: {key} is not there: {ours[key]}" for key in ours.keys() - theirs.keys()]
    said += [f"{name}: {key} is too many: {theirs[key]}" for key in theirs.keys() - ours.keys()]
    for key in ours.keys() & theirs.keys():
        one, other = ours[key], theirs[key]
        for column in sorted(columns):
            if column not in one or column not in other:
                said.append(f"{name}: column {column} is in one of the tables only")
            elif not alike(column, other[column], one[column]):
                said.append(f"{name}: {key} {column} is {other[column]} and not {one[column]}")
    return sorted(set(said))


def alike(column: str, found: Any, expected: Any) -> bool:
    if column == "ready_since":
        return bool(abs(found - expected) <= DRIFT)
    if isinstance(found, float) and isinstance(expected, float):
        share = PERCENTILE_ERROR if column in PERCENTILES else SUM_ERROR
        return math.isclose(found, expected, rel_tol=share, abs_tol=SUM_ERROR)
    return bool(found == expected)
