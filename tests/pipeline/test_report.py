"""The report: a page that needs nothing else, tables that can be read back, a summary."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pyspark_beanpole.audit import audit
from pyspark_beanpole.report import scales
from pyspark_beanpole.report.charts import HEIGHT, WIDTH, Bar, Chart, Line, Mark
from pyspark_beanpole.report.run import run_report
from pyspark_beanpole.report.series import POINTS_MAX, STEPS_MIN, step_of
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics.keys import Limits
from tests.pipeline import naive
from tests.pipeline.histories import SECOND_US, History, Pace, rows

pytestmark = pytest.mark.usefixtures("interpreted")
SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
NASTY = '<script>alert("1")</script> & co'
# fmt: off
TABLES = {
    "throughput", "times", "histogram", "attempts", "failures", "workers", "dead_letters", "depth",
    "backlog", "slo", "oldest",
}
# fmt: on


def words_of(svg: str) -> dict[str, list[str]]:
    """The texts of a chart, by their class."""
    found: dict[str, list[str]] = {}
    for element in ElementTree.fromstring(svg).iter("text"):
        found.setdefault(element.get("class", "").split()[0], []).append(element.text or "")
    return found


@pytest.mark.timeout(300)  # fifty queries, each of which Spark plans for longer than it runs
def test_the_report_of_a_history(spark: SparkSession, tmp_path: Path) -> None:
    events = History(31, Pace(longest_us=61 * SECOND_US)).run(900).events
    for event in events:
        event["tube"] = NASTY if event["tube"] == "default" else event["tube"]
    frame = spark.createDataFrame(rows(events), EVENTS).cache()
    told: list[str] = []
    figures = run_report(
        frame,
        tmp_path,
        cluster="a<b",
        limits=Limits(wait_s=5.0, run_s=0.5),
        busiest=2,
        audited=audit(frame),
        progress=told.append,
    )
    assert figures is not None and figures.tubes_total == 3
    assert told == [*[name for name in told if name in TABLES], "page"]

    page = (tmp_path / "index.html").read_text()
    for outside in ("http:", "https:", "src=", "href=", "url(", "@import", "<script"):
        assert outside not in page, "the page is one file"
    assert "The 2 busiest of 3 tubes are shown by themselves" in page
    assert "(1 other tube)" in page and "everything adds up" in page and "a&lt;b" in page
    assert "prefers-color-scheme: dark" in page
    charts = [words_of(svg) for svg in SVG.findall(page)]
    assert len(charts) == 3 * 6
    for chart in charts:
        assert len(chart["title"]) == 1 and chart["title"][0]
        assert len(chart["label"]) == 2 and all(chart["label"]), "both axes have a label"
        assert len(chart["tick"]) >= 4
    depth = next(chart for chart in charts if chart["title"] == ["Depth"])
    assert {"ready", "reserved", "delayed", "buried"} <= set(depth["tick"]), "there is a legend"

    assert {path.name for path in (tmp_path / "tables").iterdir()} == TABLES
    puts = sum(event["event"] == "put" for event in events)
    throughput = spark.read.parquet(str(tmp_path / "tables" / "throughput"))
    assert throughput.groupBy().sum("puts").collect()[0][0] == puts

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["counts"]["puts"] == puts
    assert summary["audit"]["balanced"] is True
    waits = [found.seconds for found in naive.durations(events) if found.kind == "wait"]
    assert summary["times"]["wait"]["count"] == len(waits)
    assert summary["times"]["wait"]["p95_s"] == naive.percentile(waits, 95)
    shown = summary["tubes"]
    assert sum(tube["counts"]["puts"] for tube in shown.values()) == puts
    assert all(
        0 <= share <= 1 for tube in shown.values() for share in tube["within_limits"].values()
    )


def test_the_report_of_an_empty_log(spark: SparkSession, tmp_path: Path) -> None:
    assert run_report(spark.createDataFrame([], EVENTS), tmp_path) is None
    assert "There are no events" in (tmp_path / "index.html").read_text()
    assert json.loads((tmp_path / "summary.json").read_text())["events"] == 0
    assert spark.read.parquet(str(tmp_path / "tables" / "depth")).collect() == []


def test_a_log_of_one_event_has_a_report(spark: SparkSession, tmp_path: Path) -> None:
    events = History(32).run(1).events
    assert run_report(spark.createDataFrame(rows(events), EVENTS), tmp_path) is not None
    assert len(SVG.findall((tmp_path / "index.html").read_text())) == 6


def test_what_is_drawn_stays_inside_the_frame() -> None:
    chart = Chart("t", scales.times(0, 100), scales.from_zero(7), "x", "y")
    chart.line(Line("a", 0, [(0, 0), (50, 7), (100, 3)], steps=True))
    chart.bars("b", 1, [Bar(10, 20, 7, "<7>")])
    chart.marks([Mark(50, "half"), Mark(1000, "outside")])
    svg = ElementTree.fromstring(chart.done())
    line = svg.find("polyline")
    assert line is not None
    places = [tuple(map(float, place.split(","))) for place in line.get("points", "").split()]
    assert len(places) == 5, "a step holds its value until the next"
    assert all(0 <= across <= WIDTH and 0 <= up <= HEIGHT for across, up in places)
    [title] = svg.iter("title")
    assert title.text == "<7>"
    texts = [element.text for element in svg.iter("text")]
    assert "half" in texts and "outside" not in texts


@given(low=st.floats(1e-6, 1e6), factor=st.floats(1.0, 1e9))
def test_axes_go_from_0_to_1_and_upwards(low: float, factor: float) -> None:
    high = low * factor
    axes = [
        scales.from_zero(high),
        scales.durations_from_zero(high),
        scales.logarithmic(low, high),
        scales.log_durations(low, max(high, low * 10)),
        scales.slot_durations(max(high, 10)),
        scales.times(round(low), round(low) + round(min(factor, 1e6)) + 1),
    ]
    for axis in axes:
        assert len(axis.ticks) >= 2 or axis is axes[-1] or axis is axes[3]
        places = [axis.place(value) for value, _ in axis.ticks]
        assert places == sorted(places)
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    assert axes[0].place(high) <= 1.001 and axes[2].place(high) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (2e-5, "20 µs"),
        (0.25, "250 ms"),
        (59, "59 s"),
        (90, "1.5 min"),
        (172_800, "2 d"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert scales.duration(seconds) == words


@given(minutes=st.integers(0, POINTS_MAX * STEPS_MIN[-1]))
def test_a_series_has_few_points(minutes: int) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    step = step_of(begin, begin + timedelta(minutes=minutes))
    assert minutes / step <= POINTS_MAX
    assert step == 1 or minutes / POINTS_MAX > STEPS_MIN[STEPS_MIN.index(step) - 1]
