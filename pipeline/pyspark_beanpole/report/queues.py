"""The section of one queue, or of all together: figures, charts, attempts, failures."""

from html import escape
from typing import Final

from pyspark_beanpole.report import blocks, scales
from pyspark_beanpole.report.figures import FAILED, Figures, Queue, Row
from pyspark_beanpole.report.plots import charts
from pyspark_beanpole.statistics.keys import RUN, WAIT

# Attempts beyond these are only in the tables; jobs that need more are rare.
ATTEMPTS_LISTED_MAX: Final = 10
FAILURES_LISTED_MAX: Final = 12
# A share of failures is meaningful from this many ended reservations on.
ENDED_MIN: Final = 20
# The number of queues in the two short tables.
WORST_MAX: Final = 5
_LENGTHS: Final = ("p50_s", "p99_s", "max_s")


def drain(queue: Queue) -> str:
    """Return how long the queue needs until it is empty."""
    seconds = queue.drain_s
    if not queue.end["ready"]:
        return "empty"
    if seconds is None:
        return '<span class="bad">grows</span>'
    return "keeps up" if seconds == 0 else scales.duration(seconds)


def _name(queue: Queue) -> str:
    return blocks.link(queue.anchor, queue.name) if queue.course is not None else escape(queue.name)


def overview(figures: Figures) -> str:
    """Return the table of all queues."""
    head = (
        "queue", "put", "done", "removed", "failed", "ready now", "oldest", "drains in", "buried",
        *[f"{kind} {name}" for kind in (WAIT, RUN) for name in ("p50", "p99", "max")],
        f"wait ≤ {scales.duration(figures.wait_limit_s)}",
        f"run ≤ {scales.duration(figures.run_limit_s)}",
    )  # fmt: skip
    rows = []
    for queue in figures.queues:
        now = queue.now
        lengths = [now.seconds(kind, name) for kind in (WAIT, RUN) for name in _LENGTHS]
        late = [now.late_share(kind) for kind in (WAIT, RUN)]
        rows.append(
            [
                _name(queue),
                *[blocks.number(now.counts[name]) for name in ("puts", "done", "removed")],
                blocks.percent(now.failed_share),
                blocks.number(queue.end["ready"]),
                blocks.duration(queue.oldest.age_s if queue.oldest is not None else None),
                drain(queue),
                blocks.number(queue.end["buried"]),
                *[blocks.duration(seconds) for seconds in lengths],
                *[blocks.percent(None if share is None else 1 - share) for share in late],
            ]
        )
    return blocks.table(head, rows)


def slowest(figures: Figures) -> str:
    """Return the queues whose jobs wait longest."""
    found = [queue for queue in figures.queues if queue.now.seconds(WAIT, "p99_s") is not None]
    found.sort(key=lambda queue: -(queue.now.seconds(WAIT, "p99_s") or 0.0))
    rows = []
    for queue in found[:WORST_MAX]:
        p50_s, p99_s = (queue.now.seconds(WAIT, name) for name in ("p50_s", "p99_s"))
        before_s = queue.before.seconds(WAIT, "p99_s") if queue.before is not None else None
        rows.append(
            [
                _name(queue),
                blocks.duration(p50_s),
                blocks.duration(p99_s),
                blocks.duration(before_s),
                blocks.percent(queue.now.late_share(WAIT)),
            ]
        )
    limit = scales.duration(figures.wait_limit_s)
    return blocks.table(("queue", "wait p50", "p99", "p99 before", f"above {limit}"), rows)


def most_failing(figures: Figures) -> str:
    """Return the queues with the highest shares of failed reservations."""
    found = [queue for queue in figures.queues if queue.now.failed and queue.now.ended >= ENDED_MIN]
    found.sort(key=lambda queue: -(queue.now.failed_share or 0.0))
    rows = []
    for queue in found[:WORST_MAX]:
        reason = next((row for row in queue.failures if row["event"] in FAILED), None)
        rows.append(
            [
                _name(queue),
                blocks.number(queue.now.failed),
                blocks.percent(queue.now.failed_share),
                blocks.percent(queue.before.failed_share if queue.before is not None else None),
                _reason(reason),
            ]
        )
    return blocks.table(("queue", "failed", "share", "share before", "most often"), rows)


def _reason(row: Row | None) -> str:
    if row is None:
        return blocks.NONE
    words = [str(row[name]).replace("_", " ") for name in ("event", "reason")]
    return escape(words[0] if words[1] == "unsaid" else ", ".join(words))


def facts(figures: Figures, queue: Queue) -> str:
    """Return the figures of a queue, each with the earlier value."""
    now, before = queue.now, queue.before
    ready, buried = queue.end["ready"], queue.end["buried"]
    found = [
        _count(figures, queue, "jobs put", "puts"),
        _count(figures, queue, "done", "done"),
        _tile(
            "of reservations failed",
            blocks.percent(now.failed_share),
            blocks.percent(before.failed_share) if before is not None else None,
        ),
        *[
            _tile(
                f"{kind}, {percentile}",
                blocks.duration(now.seconds(kind, f"{percentile}_s")),
                blocks.duration(before.seconds(kind, f"{percentile}_s")) if before else None,
            )
            for kind in (WAIT, RUN)
            for percentile in ("p50", "p99")
        ],
        ("ready at the end", blocks.number(ready), f"began with {queue.begin['ready']:,}"),
        ("until they are gone", drain(queue), _age(queue)),
        ("buried at the end", blocks.number(buried), f"began with {queue.begin['buried']:,}"),
    ]
    return blocks.tiles(found)


def _tile(name: str, now: str, before: str | None) -> tuple[str, str, str]:
    return name, now, "" if before in (None, blocks.NONE) else f"before: {before}"


def _count(figures: Figures, queue: Queue, title: str, name: str) -> tuple[str, str, str]:
    """Return a number of events, with the earlier value and the difference."""
    now = queue.now.counts[name]
    if queue.before is None or not figures.comparable:
        return title, blocks.number(now), ""
    before = queue.before.counts[name]
    differs = blocks.difference(now, before)
    words = f"before: {before:,}{f' ({differs})' if differs else ''}"
    return title, blocks.number(now), words


def _age(queue: Queue) -> str:
    return "" if queue.oldest is None else f"oldest: {scales.duration(queue.oldest.age_s)}"


def drawn(figures: Figures, queue: Queue) -> str:
    """Return the charts of a queue in their frames."""
    over_time, wait, run = charts(figures, queue)
    anchor = queue.anchor
    return (
        f'<div class="drawn">{blocks.card(f"{anchor}-time", over_time)}<div class="stacked">'
        f"{blocks.card(f'{anchor}-wait', wait)}{blocks.card(f'{anchor}-run', run)}</div></div>"
    )


def tables(queue: Queue) -> str:
    """Return the reasons of failed reservations, and the reservations that jobs needed."""
    reserved = queue.now.counts["reserved"]
    failures = [
        [
            _reason(row),
            blocks.number(row["count"]),
            blocks.share(row["count"] / reserved if reserved else None),
            blocks.duration(row["run_s"]),
        ]
        for row in queue.failures[:FAILURES_LISTED_MAX]
    ]
    jobs = sum(row["jobs"] for row in queue.attempts)
    attempts = [
        [str(row["attempts"]), escape(row["outcome"]), blocks.number(row["jobs"]),
         blocks.share(row["jobs"] / jobs)]
        for row in queue.attempts[:ATTEMPTS_LISTED_MAX]
    ]  # fmt: skip
    return (
        '<div class="pair">'
        + blocks.card(
            f"{queue.anchor}-failures",
            "<h3>Reservations that did not end the job</h3>",
            blocks.table(("reason", "times", "of reservations", "time spent"), failures),
        )
        + blocks.card(
            f"{queue.anchor}-attempts",
            "<h3>Reservations that jobs needed until their end</h3>",
            blocks.table(("reservations", "outcome", "jobs", "of ended jobs"), attempts, names=2),
        )
        + "</div>"
    )


def section(figures: Figures, queue: Queue) -> str:
    """Return the complete section of one queue."""
    return blocks.section(
        queue.anchor,
        f"Queue {queue.name}",
        facts(figures, queue),
        drawn(figures, queue),
        tables(queue),
    )
