"""The page's numbers for programs: the period, the findings, and the numbers of the queues."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark_beanpole.report.figures import Figures, Numbers, Outside, Queue, Row
from pyspark_beanpole.report.findings import Finding
from pyspark_beanpole.report.page import Audited
from pyspark_beanpole.report.period import Period
from pyspark_beanpole.statistics.keys import SECOND_US


def empty_summary(
    audited: Audited | None, period: Period | None, outside: Outside
) -> dict[str, Any]:
    """Return the content of `summary.json` for a period, or a log, without events."""
    return {
        "events": 0,
        "period": _period(period),
        **_outside(outside),
        "audit": _audit(audited),
    }


def summary(figures: Figures, found: Sequence[Finding], audited: Audited | None) -> dict[str, Any]:
    """Return the content of `summary.json`."""
    covered = figures.covered
    return {
        "cluster": covered.cluster,
        "events": figures.events,
        "period": _period(figures.period),
        "previous": _period(figures.before),
        "comparable": figures.comparable,
        "asked": list(figures.asked),
        "log": {
            "first": covered.first,
            "end": covered.end,
            "begin": _time(covered.begin_us),
            "last": _time(covered.last_us),
        },
        **_outside(covered.outside),
        "missing": [list(gap) for gap in covered.missing],
        "limits": {"wait_s": figures.wait_limit_s, "run_s": figures.run_limit_s},
        "findings": [
            {"kind": one.kind, "pressing": one.pressing, "queue": one.queue, "words": one.words}
            for one in found
        ],
        **_queue(figures.whole),
        "queues": {queue.name: _queue(queue) for queue in figures.queues},
        "queues_total": figures.queues_total,
        "workers_total": figures.workers_total,
        "buried_total": figures.buried_total,
        "audit": _audit(audited),
    }


def _audit(audited: Audited | None) -> Any:
    return None if audited is None else audited.as_json()


def _outside(outside: Outside) -> dict[str, Any]:
    return {"outside": {"events": outside.events, "at_least": outside.is_least}}


def _queue(queue: Queue) -> dict[str, Any]:
    return {
        "now": _numbers(queue.now),
        "before": None if queue.before is None else _numbers(queue.before),
        "at_begin": dict(queue.begin),
        "at_end": dict(queue.end),
        "drain_s": queue.drain_s,
        "oldest": None if queue.oldest is None else queue.oldest._asdict(),
    }


def _numbers(numbers: Numbers) -> dict[str, Any]:
    return {
        "counts": _bare(numbers.counts),
        "failed_share": numbers.failed_share,
        "times": {kind: _bare(row) for kind, row in numbers.times.items()},
        "within_limits": {kind: row["share"] for kind, row in numbers.levels.items()},
    }


def _bare(row: Row) -> Mapping[str, Any]:
    return {name: value for name, value in row.items() if name not in ("tube", "kind")}


def _period(period: Period | None) -> dict[str, str] | None:
    if period is None:
        return None
    return {"since": _time(period.since_us), "until": _time(period.until_us)}


def _time(time_us: int) -> str:
    seconds, micros = divmod(time_us, SECOND_US)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros).isoformat()
