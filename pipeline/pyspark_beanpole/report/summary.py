"""The numbers of the page for machines: a few totals, and percentiles for each tube."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Row

from pyspark_beanpole.audit import Audit
from pyspark_beanpole.report.figures import Figures


def summary(figures: Figures | None, audited: Audit | None) -> dict[str, Any]:
    """Return what `summary.json` says; with no events only that there are none."""
    found: dict[str, Any] = {"audit": None if audited is None else audited.as_json()}
    if figures is None:
        return {"events": 0, **found}
    covered = figures.covered
    return {
        **covered._asdict(),
        "begin": covered.begin.isoformat(),
        "until": covered.until.isoformat(),
        "limits": figures.limits._asdict(),
        "counts": figures.whole.asDict(),
        "times": _times(figures.whole_times),
        "tubes": {
            tube.name: {
                "counts": _numbers(tube.counts),
                "times": _times(tube.times),
                "within_limits": {kind: row["share"] for kind, row in tube.levels.items()},
            }
            for tube in figures.tubes
        },
        "tubes_total": figures.tubes_total,
        "workers_total": figures.workers_total,
        "buried_total": figures.buried_total,
        **found,
    }


def _numbers(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.asDict().items() if name not in ("tube", "kind")}


def _times(times: Mapping[str, Row]) -> dict[str, dict[str, Any]]:
    return {kind: _numbers(row) for kind, row in times.items()}
