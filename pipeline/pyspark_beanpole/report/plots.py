"""Which charts a tube has, from its figures."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import Row

from pyspark_beanpole.report import scales
from pyspark_beanpole.report.charts import Bar, Chart, Line, Mark, Point
from pyspark_beanpole.report.figures import RANKS, Figures, Tube
from pyspark_beanpole.statistics.durations import RUN, WAIT
from pyspark_beanpole.statistics.histogram import place
from pyspark_beanpole.statistics.keys import STATES

COLOURS: Final = {"ready": 0, "reserved": 2, "delayed": 4, "buried": 1, WAIT: 0, RUN: 2}
_TIME: Final = "time (UTC)"


def _span(figures: Figures) -> tuple[int, int]:
    """The first and the last minute of the time axis."""
    first = int(figures.covered.begin.timestamp() // 60)
    return first, max(int(figures.covered.until.timestamp() // 60) + 1, first + 1)


def _per(figures: Figures) -> str:
    step = figures.step_min
    return "minute" if step == 1 else f"{step} minutes" if step < 60 else f"{step / 60:g} h"


def _most(rows: Iterable[Row], names: Sequence[str]) -> float:
    return max((float(row[name]) for row in rows for name in names), default=0.0)


def _filled(rows: Sequence[Row], name: str, step: int, span: tuple[int, int]) -> list[Point]:
    """The points of a series in which a stretch without a row means 0."""
    known = {row["minute"]: float(row[name]) for row in rows}
    first = span[0] // step * step
    points = [(minute, known.get(minute, 0.0)) for minute in range(first, span[1], step)]
    points = [(max(minute, span[0]), value) for minute, value in points]
    return [*points, (span[1], points[-1][1])]


def depth_chart(figures: Figures, tube: Tube) -> str:
    """How many jobs were in each state."""
    span = _span(figures)
    chart = Chart(
        "Depth",
        scales.times(*span),
        scales.from_zero(_most(tube.depth, STATES)),
        _TIME,
        f"jobs, most in each {_per(figures)}",
    )
    for state in STATES:
        points = _filled(tube.depth, state, figures.step_min, span)
        chart.line(Line(state, COLOURS[state], points, steps=True))
    return chart.done()


def flow_chart(figures: Figures, tube: Tube) -> str:
    """What went in and out."""
    span = _span(figures)
    names = {"puts": 0, "ends": 2, "failed": 1}
    chart = Chart(
        "Throughput",
        scales.times(*span),
        scales.from_zero(_most(tube.flows, list(names))),
        _TIME,
        "jobs per minute",
    )
    for name, colour in names.items():
        points = _filled(tube.flows, name, figures.step_min, span)
        chart.line(Line(name, colour, points, steps=True))
    return chart.done()


def age_chart(figures: Figures, tube: Tube) -> str:
    """How long the oldest ready job had been waiting."""
    span = _span(figures)
    chart = Chart(
        "Age of the oldest ready job",
        scales.times(*span),
        scales.durations_from_zero(_most(tube.ages, ["age_s"])),
        _TIME,
        f"at full minutes, most in each {_per(figures)}",
    )
    chart.line(Line("age", 0, _filled(tube.ages, "age_s", figures.step_min, span), steps=True))
    return chart.done()


def share_chart(figures: Figures, tube: Tube) -> str:
    """Which share of waits and runs was over after how long."""
    curves = {kind: tube.curves[kind] for kind in (WAIT, RUN) if kind in tube.curves}
    values = [seconds for curve in curves.values() for seconds in curve]
    low = max(min(values, default=0.001), 1e-6)
    chart = Chart(
        "Wait and run time: share of jobs",
        scales.log_durations(low, max(max(values, default=1.0), low * 10)),
        scales.percents(),
        "time, logarithmic",
        "jobs that took at most this long",
    )
    for kind, curve in curves.items():
        points = [(seconds, float(rank)) for seconds, rank in zip(curve, RANKS, strict=True)]
        chart.line(Line(kind, COLOURS[kind], points))
    return chart.done()


def histogram_chart(tube: Tube, kind: str) -> str:
    """The histogram of qless, as density: slots differ in width."""
    rows: Sequence[Any] = tube.bars.get(kind, [])
    bars = []
    for row in rows:
        label, from_s, width_s = place(row["slot"])
        words = f"{label}: {row['count']:,} jobs, {row['count_per_s']:.3g} per second of {kind}"
        bars.append(Bar(from_s, from_s + width_s, row["count_per_s"], words))
    high_s = max((bar.high for bar in bars), default=60)
    values = [bar.value for bar in bars] or [1.0]
    chart = Chart(
        f"{kind.capitalize()} time: histogram of {sum(row['count'] for row in rows):,} jobs",
        scales.slot_durations(max(high_s, 10)),
        scales.logarithmic(min(values) / 2, max(values)),
        f"{kind} time, in slots of seconds, minutes, hours and days",
        f"jobs per second of {kind} time, logarithmic",
    )
    chart.bars(kind, COLOURS[kind], bars)
    times = tube.times.get(kind)
    if times is not None:
        chart.marks(
            [
                Mark(
                    times[f"p{percent}_s"], f"p{percent} {scales.duration(times[f'p{percent}_s'])}"
                )
                for percent in (50, 95, 99)
            ]
        )
    return chart.done()


def charts(figures: Figures, tube: Tube) -> list[str]:
    """Return all charts of a tube."""
    return [
        depth_chart(figures, tube),
        flow_chart(figures, tube),
        age_chart(figures, tube),
        share_chart(figures, tube),
        histogram_chart(tube, WAIT),
        histogram_chart(tube, RUN),
    ]
