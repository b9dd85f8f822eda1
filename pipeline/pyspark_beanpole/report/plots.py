"""Choose and compose the charts of the page from its figures; `charts` has the drawing itself."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from pyspark_beanpole.report import scales
from pyspark_beanpole.report.charts import (
    FOOT_PX,
    HEAD_PX,
    Area,
    Bar,
    Drawing,
    Line,
    Mark,
    Panel,
    Point,
)
from pyspark_beanpole.report.figures import Bins, Course, Figures, Numbers, Queue
from pyspark_beanpole.report.series import Steps
from pyspark_beanpole.statistics.keys import MINUTE_US, RUN, STATES, WAIT

COLOURS: Final = {"ready": 0, "reserved": 2, "delayed": 4, "buried": 1, WAIT: 0, RUN: 2}
_FLOWS: Final = (("arrivals", 0), ("departures", 2), ("failures", 1))
# The colour of the previous period.
GREY: Final = 5

WIDE_PX: Final = 890
SLIM_PX: Final = 430
_LEFT_PX: Final = 58
_RIGHT_PX: Final = 14
_PANEL_PX: Final = 130
_BETWEEN_PX: Final = 30
# If ready jobs stay below the highest line divided by this, a linear axis cannot show them.
FLAT: Final = 15
# The most time labels below a wide chart.
_WIDE_TIMES: Final = 12


def over_time(figures: Figures, queue: Queue) -> str:
    """Draw depth, arrivals and departures, and the age of the oldest job, one below the other."""
    course, steps = queue.course, figures.steps
    assert course is not None, "a queue without charts has no drawing"
    x = _time_axis(figures)
    each = f"most in each {steps.words}"
    count = _panels(figures, queue)
    name = f"queue {queue.name}" if queue.name else "all queues"
    height = _height(count)
    drawing = Drawing(WIDE_PX, height, f"Over time: {name}")
    areas = [_area(place, WIDE_PX) for place in range(count)]
    y, kind = _depth_axis(course)
    depth = Panel(drawing, areas[0], f"Jobs by state, {each}{kind}", x, y)
    depth.legend([(state, COLOURS[state]) for state in STATES])
    for state in STATES:
        depth.line(Line(COLOURS[state], _points(steps, course.depth[state]), steps=True))
    flows = (course.puts, course.ends, course.failed)
    high = max(float(flow.max(initial=0)) for flow in flows)
    flow = Panel(drawing, areas[1], "Jobs per minute", x, scales.from_zero(high))
    flow.legend(_FLOWS)
    for values, (_, colour) in zip(flows, _FLOWS, strict=True):
        flow.line(Line(colour, _points(steps, values), steps=True))
    y = scales.durations_from_zero(float(course.age_s.max(initial=0)))
    age = Panel(drawing, areas[2], f"Age of the oldest ready job, {each}", x, y)
    age.line(Line(0, _points(steps, course.age_s), steps=True))
    last = age
    if count > 3:
        last = _waits(drawing, areas[3], x, figures.waits)
    last.ticks_below("time (UTC)")
    return drawing.done()


def _panels(figures: Figures, queue: Queue) -> int:
    """Return the number of stacked panels: only all queues together have waits over time."""
    return 4 if figures.waits and not queue.name else 3


def _height(panels: int) -> int:
    return panels * (_PANEL_PX + HEAD_PX) + FOOT_PX


def _depth_axis(course: Course) -> tuple[scales.Scale, str]:
    """Return the axis of depths: logarithmic where a linear one would flatten the ready jobs."""
    high = {state: float(course.depth[state].max(initial=0)) for state in STATES}
    if 0 < high["ready"] * FLAT < max(high.values()) > scales.LINEAR_MAX:
        return scales.counts(max(high.values())), ", logarithmic"
    return scales.from_zero(max(high.values()), whole=True), ""


def _area(place: int, width: float) -> Area:
    top = HEAD_PX + place * (_PANEL_PX + HEAD_PX)
    return Area(_LEFT_PX, top, width - _RIGHT_PX, top + _PANEL_PX)


def _time_axis(figures: Figures) -> scales.Scale:
    steps = figures.steps
    end = steps.first_min + steps.step_min * steps.number
    return scales.times(steps.first_min, end, _WIDE_TIMES)


def _points(steps: Steps, values: Any) -> list[Point]:
    points = list(zip(steps.minutes.tolist(), values.tolist(), strict=True))
    return [*points, (points[-1][0] + steps.step_min, points[-1][1])]


def _waits(drawing: Drawing, area: Area, x: scales.Scale, waits: Sequence[Any]) -> Panel:
    """Draw percentiles of waits: a level for each stretch of time."""
    values = [max(row[name], 1e-6) for row in waits for name in ("p50_s", "p99_s")]
    panel = Panel(
        drawing, area, "Wait, logarithmic", x, scales.log_durations(min(values), max(values))
    )
    panel.legend((("p50", 2), ("p99", 1)))
    for name, colour in (("p50_s", 2), ("p99_s", 1)):
        # A stretch without a reservation has no wait: the line is interrupted there.
        for stretch in _joined(waits):
            points: list[Point] = [(row["begin_us"] / MINUTE_US, row[name]) for row in stretch]
            end: Point = (stretch[-1]["until_us"] / MINUTE_US, stretch[-1][name])
            panel.line(Line(colour, [*points, end], steps=True))
    return panel


def _joined(rows: Sequence[Any]) -> list[list[Any]]:
    found = [[rows[0]]]
    for before, row in pairwise(rows):
        if row["begin_us"] == before["until_us"]:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def histogram(figures: Figures, queue: Queue, kind: str) -> str:
    """Draw the distribution of waits or runs, logarithmic; the period before as a line."""
    now = queue.now.bins.get(kind, Bins((), (), ()))
    total = sum(now.jobs)
    before = _before(queue.before, kind)
    low, high = _ends((now, before))
    x = scales.log_durations(low, high)
    y = scales.counts(max((*now.jobs, *before.jobs), default=1))
    # Two histograms and the gap between them are as high as the chart beside them.
    height = (_height(_panels(figures, queue)) - _BETWEEN_PX) // 2
    name = f"queue {queue.name}" if queue.name else "all queues"
    drawing = Drawing(SLIM_PX, height, f"{kind.capitalize()} time: {name}")
    area = Area(_LEFT_PX, HEAD_PX + 6, SLIM_PX - _RIGHT_PX, height - FOOT_PX)
    jobs = "1 job" if total == 1 else f"{total:,} jobs"
    panel = Panel(drawing, area, f"{kind.capitalize()} time of {jobs}", x, y)
    if before.jobs:
        panel.legend((("before", GREY),))
    bars = [
        Bar(
            max(begin, low),
            end,
            count,
            f"{scales.duration(begin)} to {scales.duration(end)}: {count:,} jobs",
        )
        for begin, end, count in zip(*now, strict=True)
    ]
    panel.bars(COLOURS[kind], bars)
    if before.jobs:
        panel.line(Line(GREY, _outline(before, low), steps=True))
    panel.marks(_marks(queue.now, kind))
    panel.ticks_below(f"{kind} time, logarithmic, and number of jobs")
    return drawing.done()


def _before(numbers: Numbers | None, kind: str) -> Bins:
    return Bins((), (), ()) if numbers is None else numbers.bins.get(kind, Bins((), (), ()))


def _ends(all_bins: Sequence[Bins]) -> tuple[float, float]:
    """Return the ends of an axis from the shortest to the longest; around 1 s without values."""
    highs = [high for bins in all_bins for high in bins.high_s]
    lows = [low for bins in all_bins for low in bins.low_s]
    if not highs:
        return 0.1, 10.0
    low = min(lows)
    # Lengths of zero are drawn at the left end.
    return (low if low > 0 else min(highs) / 2), max(highs)


def _outline(bins: Bins, low: float) -> list[Point]:
    points: list[Point] = [(max(bins.low_s[0], low), 0.0)]
    end = bins.low_s[0]
    for begin, high, count in zip(*bins, strict=True):
        if begin > end:
            points.append((end, 0.0))
        points.append((max(begin, low), float(count)))
        end = high
    return [*points, (end, 0.0)]


def _marks(numbers: Numbers, kind: str) -> list[Mark]:
    found = []
    for percent in (50, 95, 99):
        seconds = numbers.seconds(kind, f"p{percent}_s")
        if seconds is not None:
            found.append(Mark(max(seconds, 1e-6), f"p{percent} {scales.duration(seconds)}"))
    return found


def charts(figures: Figures, queue: Queue) -> tuple[str, str, str]:
    """Return the charts of a queue: over time, waits, runs."""
    return (
        over_time(figures, queue),
        histogram(figures, queue, WAIT),
        histogram(figures, queue, RUN),
    )
