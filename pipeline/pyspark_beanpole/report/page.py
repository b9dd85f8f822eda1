"""The page for people: one file of HTML that needs nothing else, readable in light and dark."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Any, Final

from pyspark.sql import Row

from pyspark_beanpole.audit import Audit
from pyspark_beanpole.report.figures import LISTED_MAX, Figures, Tube
from pyspark_beanpole.report.plots import charts
from pyspark_beanpole.report.scales import duration
from pyspark_beanpole.statistics.durations import RUN, WAIT

_NOTES: Final = """
<h2>What the words mean</h2>
<p class="faint"><b>Wait</b> is the time from ready to reserved, without a deliberate delay; it is
booked on the day of the reservation. <b>Run</b> is the time from reserved to deleted by the worker,
booked on the day of its end. Reservations that ended otherwise (released, buried, timed out,
returned) are not in it. <b>Done</b>: deleted by the worker that held the job. <b>Removed</b>:
deleted while nobody held it. <b>Failed</b>: timed out, returned because its worker was gone, or
buried. Days and times are those of the leader's wall clock in UTC; lengths of time come from
cluster time. Percentiles come from sketches: exact for up to 1,000 values, then the rank is off
by less than 0.5 points. The histogram has the 148 slots of qless; its
height is divided by the width of the slot. Tables for machines are beside this page in
<code>tables/</code>, as Parquet.</p>
"""

# What a cell says that has no value.
NONE: Final = "-"


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    if value is None:
        return NONE
    # What is not nothing, or not all, is not to be rounded to it.
    if 0 < value < 0.0001:
        return "&lt; 0.01 %"
    return f"{min(value * 100, 99.99):.2f} %" if value < 1 else f"{value * 100:.0f} %"


def _seconds(row: Row | None, name: str) -> str:
    return NONE if row is None or row[name] is None else duration(row[name])


def _share(value: float | None) -> str:
    """A share in words, with a bar beside it."""
    if value is None:
        return NONE
    width = min(max(value, 0.0), 1.0) * 100
    return f'{_percent(value)} <span class="share"><i style="width:{width:.1f}%"></i></span>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> str:
    """Return a table whose first `names` columns are words; cells are HTML already."""
    kinds = [' class="name"' if place < names else "" for place in range(len(head))]
    parts = ['<div class="wide"><table><thead><tr>']
    parts += [f"<th{kind}>{escape(word)}</th>" for kind, word in zip(kinds, head, strict=True)]
    parts.append("</tr></thead><tbody>")
    for row in rows:
        cells = "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True))
        parts.append(f"<tr>{cells}</tr>")
    return "".join([*parts, "</tbody></table></div>"])


_TIMES_HEAD: Final = tuple(
    f"{kind} {name}" for kind in (WAIT, RUN) for name in ("p50", "p95", "p99", "max")
)


def _times_cells(times: Mapping[str, Row]) -> list[str]:
    names = ("p50_s", "p95_s", "p99_s", "max_s")
    return [_seconds(times.get(kind), name) for kind in (WAIT, RUN) for name in names]


def _failed(counts: Row) -> int:
    return int(counts["timed_out"] + counts["returned"] + counts["buried"])


def _counts_cells(counts: Row) -> list[str]:
    return [
        *[_number(counts[name]) for name in ("puts", "done", "removed", "growth")],
        _number(_failed(counts)),
    ]


_COUNTS_HEAD: Final = ("put", "done", "removed", "growth", "failed")


def _tiles(figures: Figures, audited: Audit | None) -> str:
    whole = figures.whole
    tiles = [
        ("jobs put", _number(whole["puts"])),
        ("done", _number(whole["done"])),
        ("failed reservations", _number(_failed(whole))),
        ("wait, p95", _seconds(figures.whole_times.get(WAIT), "p95_s")),
        ("run, p95", _seconds(figures.whole_times.get(RUN), "p95_s")),
        ("buried now", _number(figures.buried_total)),
        ("workers", _number(figures.workers_total)),
    ]
    if audited is not None:
        word = (
            '<span class="bad">fails</span>'
            if audited.findings
            else '<span class="good">adds up</span>'
        )
        tiles.append(("conservation audit", word))
    parts = [f'<div class="tile"><b>{value}</b>{escape(name)}</div>' for name, value in tiles]
    return f'<div class="tiles">{"".join(parts)}</div>'


def _tubes_table(figures: Figures) -> str:
    rows = []
    for tube in figures.tubes:
        levels = [tube.levels.get(kind) for kind in (WAIT, RUN)]
        rows.append(
            [
                escape(tube.name),
                *_counts_cells(tube.counts),
                *_times_cells(tube.times),
                *[_percent(level["share"]) if level else NONE for level in levels],
            ]
        )
    limits = figures.limits
    head = (
        "tube",
        *_COUNTS_HEAD,
        *_TIMES_HEAD,
        f"wait ≤ {duration(limits.wait_s)}",
        f"run ≤ {duration(limits.run_s)}",
    )
    return table(head, rows)


def _days_table(figures: Figures) -> str:
    rows = [
        [str(day["day"]), *_counts_cells(day), *_times_cells(figures.day_times.get(day["day"], {}))]
        for day in figures.days
    ]
    return table(("day", *_COUNTS_HEAD, *_TIMES_HEAD), rows)


def _tube_section(figures: Figures, tube: Tube) -> str:
    drawn = "".join(f'<div class="card">{chart}</div>' for chart in charts(figures, tube))
    failures = [
        [
            escape(row["event"].replace("_", " ")),
            escape(row["reason"].replace("_", " ")),
            _number(row["count"]),
            _share(row["count"] / tube.counts["reserved"] if tube.counts["reserved"] else None),
        ]
        for row in tube.failures
    ]
    jobs = sum(row["jobs"] for row in tube.attempts)
    attempts = [
        [str(row["attempts"]), row["outcome"], _number(row["jobs"]), _share(row["jobs"] / jobs)]
        for row in tube.attempts[:LISTED_MAX]
    ]
    return (
        f"<h2>Tube {escape(tube.name)}</h2>"
        f'<div class="charts">{drawn}'
        '<div class="card"><h3>Reservations that did not end the job</h3>'
        f"{table(('event', 'reason', 'times', 'of reservations'), failures, names=2)}</div>"
        '<div class="card"><h3>Reservations that jobs needed until their end</h3>'
        f"{table(('attempts', 'outcome', 'jobs', 'of ended jobs'), attempts, names=2)}</div>"
        "</div>"
    )


def _workers(figures: Figures) -> str:
    rows = [
        [
            escape(row["worker"]),
            *[_number(row[name]) for name in ("reservations", "done", "failed", "lost_leases")],
            _percent(row["failed_share"]),
            _share(row["utilisation"]),
            duration(row["busy_s"]),
        ]
        for row in figures.workers
    ]
    fleet = figures.workers[0]["fleet_failed_share"] if figures.workers else None
    head = (
        "worker (node:incarnation:session)", "reservations", "done", "failed", "lost leases",
        "failed share", "utilisation", "busy",
    )  # fmt: skip
    return (
        f"<h2>Workers</h2><p class='faint'>{_of(len(rows), figures.workers_total)} by "
        f"reservations. Of all reservations {_percent(fleet)} failed. Utilisation is how many "
        "jobs a worker held on average between its first and its last event; with several at once "
        f"it is above 100 %.</p>{table(head, rows)}"
    )


def _of(shown: int, total: int) -> str:
    return f"All {total:,}" if shown == total else f"The first {shown:,} of {total:,}"


def _stuck(figures: Figures) -> str:
    backlog = [
        [escape(row["tube"]), _clock(row["from"]), _clock(row["until"]), _number(row["minutes"]),
         _number(row["ready"])]
        for row in figures.backlog
    ]  # fmt: skip
    buried = [
        [escape(row["tube"]), _number(row["job_id"]), _clock(row["buried_at"]),
         _number(row["attempt"]), _number(row["timeouts"]), _number(row["buries"]),
         _number(row["body_bytes"]), escape(row["worker"] or NONE)]
        for row in figures.buried
    ]  # fmt: skip
    stretches = table(("tube", "from", "until", "minutes", "ready at most"), backlog, names=3)
    letters = table(
        ("tube", "job", "buried at", "attempts", "timeouts", "buries", "bytes", "worker"), buried
    )
    return (
        "<h2>Jobs that nobody took</h2><p class='faint'>The longest stretches of whole minutes "
        f"with ready jobs and without a reservation.</p>{stretches}"
        f"<h2>Dead letters</h2><p class='faint'>{_of(len(buried), figures.buried_total)}, the "
        f"latest first: jobs that are buried now.</p>{letters}"
    )


def _audit(audited: Audit | None) -> str:
    if audited is None:
        return ""
    return f"<h2>Conservation audit</h2><pre>{escape(chr(10).join(audited.lines()))}</pre>"


def _document(title: str, body: str) -> str:
    style = files("pyspark_beanpole.report").joinpath("style.css").read_text()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>{body}</body></html>\n"
    )


def empty_page(cluster: str) -> str:
    """Return the page of a log without events."""
    title = f"Beanpole {cluster}".strip()
    return _document(title, f"<h1>{escape(title)}</h1><p>There are no events.</p>")


def page(figures: Figures, audited: Audit | None) -> str:
    """Return the page."""
    covered = figures.covered
    title = f"Beanpole {covered.cluster}: what happened to the jobs".replace(" :", ":")
    shown = [tube for tube in figures.tubes if not tube.name.startswith("(")]
    some = (
        ""
        if len(shown) == figures.tubes_total
        else (
            f" The {len(shown)} busiest of {figures.tubes_total:,} tubes are shown by themselves, "
            "the others together."
        )
    )
    head = (
        f"<h1>{escape(title)}</h1><p class='faint'>{covered.events:,} events, offsets "
        f"{covered.first:,} to {covered.end - 1:,}, from {_clock(covered.begin.timestamp())} to "
        f"{_clock(covered.until.timestamp())} UTC.{some}</p>"
    )
    head += "".join(f"<p class='bad'>{escape(words)}</p>" for words in covered.warnings())
    sections: list[Any] = [
        head,
        _tiles(figures, audited),
        "<h2>Tubes</h2>",
        _tubes_table(figures),
        "<h2>Days</h2>",
        _days_table(figures),
        *[_tube_section(figures, tube) for tube in figures.tubes],
        _workers(figures),
        _stuck(figures),
        _audit(audited),
        _NOTES,
    ]
    return _document(title, "".join(sections))
