"""The report: a self-contained page, tables that can be read back, a summary."""

import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from bench import pipeline_events
from pyspark_beanpole.cli.report import say
from pyspark_beanpole.inputs import from_directory
from pyspark_beanpole.report import scales
from pyspark_beanpole.report.charts import (
    LABEL_PX,
    TITLE_PX,
    Area,
    Bar,
    Drawing,
    Line,
    Mark,
    Panel,
    width_of,
)
from pyspark_beanpole.report.page import source_words
from pyspark_beanpole.report.period import Asked
from pyspark_beanpole.report.run import run_report, write_report
from pyspark_beanpole.statistics.keys import Limits
from pyspark_beanpole.tables import replace_file, write_tables
from tests.pipeline import naive
from tests.pipeline.histories import SECOND_US, History, Pace
from tests.pipeline.made import made, read_of, table_of

SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
NASTY = '<script>alert("1")</script> & co'
# 200 bytes is beanstalk's limit of names; other protocols allow any characters.
LONG = "orders-" + "x" * 193
WIDE = "äöü漢字🙂" * 12
# fmt: off
TABLES = {
    "throughput", "times", "histogram", "attempts", "failures", "workers", "dead_letters", "depth",
    "whole_depth", "backlog", "slo", "oldest",
}
# fmt: on


def named(events: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rename the busiest tubes."""
    old = [kind.name for kind in pipeline_events.KINDS]
    new = dict(zip(old, [*names, *old[len(names) :]], strict=True))
    tubes = pa.array([new[name] for name in events["tube"].to_pylist()])
    return events.set_column(events.schema.get_field_index("tube"), "tube", tubes)


@cache
def pages() -> dict[str, str]:
    """The pages under test: busy, hostile names, one queue, one event, a month."""
    busy = pipeline_events.make(60_000, hours=72, seed=3)
    return {
        "busy": made(busy).html,
        "names": made(named(busy, [NASTY, LONG, WIDE])).html,
        "one": made(busy, queues=["reports"]).html,
        "event": made(table_of(History(32).run(1).events)).html,
        "month": made(
            pipeline_events.make(30_000, hours=24 * 31, seed=4), Asked(since_us=BEGIN_US)
        ).html,
    }


BEGIN_US = round(pipeline_events.BEGIN.timestamp()) * SECOND_US
each_page = pytest.mark.parametrize("name", ["busy", "names", "one", "event", "month"])


class Document(HTMLParser):
    """A parser that checks the nesting of elements and collects ids, links and tags."""

    VOID = frozenset({"meta"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = dict(attrs)
        if tag not in self.VOID and not self.rawdata_is_closed():
            self.open.append(tag)
        self.ids += [value for value in [found.get("id")] if value]
        self.links += [value for value in [found.get("href")] if value]
        assert not [name for name, _ in attrs if name.startswith("on")], "no script in attributes"

    def rawdata_is_closed(self) -> bool:
        return (self.get_starttag_text() or "").endswith("/>")

    def handle_endtag(self, tag: str) -> None:
        if not (self.get_starttag_text() or "").endswith("/>") or self.open[-1:] == [tag]:
            assert self.open.pop() == tag


@each_page
def test_a_page_is_one_file_without_scripts(name: str) -> None:
    html = pages()[name]
    for outside in ("http:", "https:", "src=", "url(", "@import", "<script", "<link"):
        assert outside not in html, "the page is one file"
    document = Document(html)
    assert document.tags <= {
        *("html", "head", "meta", "title", "style", "body", "section", "nav", "div", "span"),
        *("h1", "h2", "h3", "p", "a", "b", "i", "ul", "li", "code", "details", "summary", "pre"),
        *("table", "thead", "tbody", "tr", "th", "td"),
        *("svg", "text", "path", "rect", "line"),
    }
    assert len(document.ids) == len(set(document.ids))
    assert document.links and {link[0] for link in document.links} == {"#"}
    assert {link[1:] for link in document.links} <= set(document.ids), "each link leads somewhere"
    assert "prefers-color-scheme: dark" in html


class Text:
    """A text of a chart and its bounding box, by the widths of a wide font."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.words = element.text or ""
        self.kind = element.get("class", "")
        size_px = TITLE_PX if self.kind == "title" else LABEL_PX
        width = width_of(self.words, size_px, bold=self.kind == "title")
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        shift = {"start": 0.0, "middle": width / 2, "end": width}[element.get("text-anchor", "")]
        self.left, self.right = x - shift, x - shift + width
        self.top, self.bottom = y - size_px, y + 0.3 * size_px

    def touches(self, other: "Text") -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)


@each_page
def test_labels_never_overlap_and_stay_inside(name: str) -> None:
    html = pages()[name]
    found = SVG.findall(html)
    assert len(found) >= 6
    for svg in found:
        drawing = ElementTree.fromstring(svg)
        _, _, width, height = map(float, drawing.get("viewBox", "").split())
        texts = [Text(element) for element in drawing.iter("text")]
        assert {"title", "label", "tick"} <= {text.kind for text in texts}
        for place, text in enumerate(texts):
            assert text.left >= -0.1 and text.right <= width + 0.1, text.words
            assert text.top >= 0 and text.bottom <= height, text.words
            for other in texts[place + 1 :]:
                assert not text.touches(other), (text.words, other.words)


@each_page
def test_what_is_drawn_stays_inside_its_chart(name: str) -> None:
    html = pages()[name]
    for svg in SVG.findall(html):
        drawing = ElementTree.fromstring(svg)
        _, _, width, height = map(float, drawing.get("viewBox", "").split())
        for path in drawing.iter("path"):
            numbers = re.findall(r"([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?", path.get("d", ""))
            assert numbers
            for letter, one, other in numbers:
                across = [float(one)] if letter in "MLH" else []
                up = [float(other)] if letter in "ML" else [float(one)] if letter == "V" else []
                assert all(57 <= x <= width - 13 for x in across), path.get("d")
                assert all(0 <= y <= height for y in up)
        for bar in drawing.iter("rect"):
            left, wide = float(bar.get("x", 0)), float(bar.get("width", 0))
            assert left >= 0 and left + wide <= width - 13 + 1


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    html = pages()["names"]
    assert "<script" not in html and "&lt;script&gt;alert(" in html
    assert LONG in html and WIDE in html


def test_all_charts_are_there() -> None:
    titles = [
        [text.text for text in ElementTree.fromstring(svg).iter("text")]
        for svg in SVG.findall(pages()["busy"])
    ]
    assert len(titles) == 3 * 9, "each of 8 queues, and all together"
    over_time = titles[0]
    assert {"ready", "reserved", "delayed", "buried"} <= set(over_time)
    assert {"arrivals", "departures", "failures", "p50", "p99", "time (UTC)"} <= set(over_time)
    assert any(words.startswith("Age of the oldest ready job") for words in over_time if words)


def test_what_is_drawn_into_a_panel() -> None:
    drawing = Drawing(460, 250, "t")
    area = Area(58, 40, 446, 200)
    panel = Panel(drawing, area, "t", scales.times(0, 100, 6), scales.from_zero(7))
    panel.line(Line(0, [(0, 0), (50, 7), (50, 7), (100, 3)], steps=True))
    panel.bars(1, [Bar(10, 20, 7, "<7>")])
    panel.marks([Mark(50, "half"), Mark(50, "half too"), Mark(1000, "outside")])
    svg = ElementTree.fromstring(drawing.done())
    path = svg.find("path")
    assert path is not None and path.get("d") == "M58 200H252V88H446V152H446"
    [title] = svg.iter("title")
    assert title.text == "<7>"
    texts = [element.text for element in svg.iter("text")]
    assert "half" in texts and "half too" in texts and "outside" not in texts


def test_words_without_room_are_left_out() -> None:
    drawing = Drawing(200, 50, "t")
    assert drawing.write(10, 20, "first", "start", "tick")
    assert not drawing.write(30, 22, "over it", "start", "tick")
    assert not drawing.write(195, 40, "outside", "start", "tick")
    assert drawing.write(190, 40, "below", "end", "tick")
    assert drawing.done().count("<text") == 2


@settings(deadline=None)
@given(low=st.floats(1e-6, 1e6), factor=st.floats(1.0, 1e9))
def test_axes_go_from_0_to_1_and_upwards(low: float, factor: float) -> None:
    high = low * factor
    axes = [
        scales.from_zero(high),
        scales.from_zero(high, whole=True),
        scales.durations_from_zero(high),
        scales.counts(high),
        scales.log_durations(low, max(high, low * 10)),
        scales.times(round(low), round(low) + round(min(factor, 1e6)) + 1, 12),
    ]
    for axis in axes:
        assert len(axis.ticks) >= 2 or axis in axes[-2:]
        places = [axis.place(value) for value, _ in axis.ticks]
        assert places == sorted(places)
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
        assert len({words for _, words in axis.ticks}) == len(axis.ticks) or axis is axes[-1]
    assert axes[0].place(high) <= 1.001 and axes[3].place(high) <= 1.001


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (2e-5, "20 µs"),
        (0.25, "250 ms"),
        (59, "59 s"),
        (90, "1.5 min"),
        (172_800, "2 d"),
        (86_400 * 12_345, "12,345 d"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert scales.duration(seconds) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0 %"), (1e-9, "< 0.01 %"), (0.0123, "1.23 %"), (0.99999999, "99.99 %"), (1, "100 %")],
)
def test_shares_in_words(share: float, words: str) -> None:
    assert scales.percent(share) == words


def test_the_report_of_a_history(spark: SparkSession, tmp_path: Path) -> None:
    events = History(31, Pace(longest_us=61 * SECOND_US)).run(900).events
    pipeline_events.write(tmp_path / "in", table_of(events), cluster="a<b")
    out = tmp_path / "out"
    report = run_report(
        from_directory(spark, str(tmp_path / "in")),
        out,
        asked=Asked(0),
        limits=Limits(wait_s=5.0, run_s=0.5),
        source="--from 'in'",
    )
    assert report.figures is not None and report.figures.queues_total == 3
    page = (out / "index.html").read_text()
    assert "a&lt;b" in page and "--from &#x27;in&#x27;" in page
    assert {path.name for path in (out / "tables").iterdir()} == TABLES
    puts = sum(event["event"] == "put" for event in events)
    throughput = spark.read.parquet(str(out / "tables" / "throughput"))
    assert throughput.groupBy().sum("puts").collect()[0][0] == puts

    summary = json.loads((out / "summary.json").read_text())
    assert summary["events"] == 900 and summary["now"]["counts"]["puts"] == puts
    waits = [found.seconds for found in naive.durations(events) if found.kind == "wait"]
    assert summary["now"]["times"]["wait"]["count"] == len(waits)
    exact = naive.percentile(waits, 95)
    assert summary["now"]["times"]["wait"]["p95_s"] == pytest.approx(exact, rel=0.01)
    assert summary["period"]["since"] == "1970-01-01T00:00:00+00:00"
    assert [one["words"] for one in summary["findings"]] == [one.words for one in report.findings]
    queues = summary["queues"].values()
    assert sum(queue["now"]["counts"]["puts"] for queue in queues) == puts


def test_the_report_of_an_empty_log(tmp_path: Path) -> None:
    assert write_report(None, tmp_path, cluster="x").figures is None
    assert "There are no events" in (tmp_path / "index.html").read_text()
    assert json.loads((tmp_path / "summary.json").read_text())["events"] == 0
    assert pq.read_table(tmp_path / "tables" / "depth").num_rows == 0


def test_the_report_of_a_range_without_events(tmp_path: Path) -> None:
    events = pipeline_events.make(3_000, hours=24, seed=1)
    noon_us = BEGIN_US - 36 * 3600 * SECOND_US
    asked = Asked(noon_us, noon_us + 3600 * SECOND_US)
    report = write_report(read_of(events, asked, queues=["emails"]), tmp_path)
    assert report.figures is None and report.period is not None
    page = (tmp_path / "index.html").read_text()
    assert "There are no events of queue emails from 2026-02-28 12:00 to 2026-02-28 13:00" in page
    assert "The log has events from 2026-03-02" in page
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["period"]["until"] == "2026-02-28T13:00:00+00:00"


def test_a_queue_that_is_not_there_has_no_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = pipeline_events.make(3_000, hours=24, seed=1)
    report = write_report(read_of(events, queues=["<no>"]), tmp_path)
    assert report.figures is None
    assert "no events of queue &lt;no&gt;" in (tmp_path / "index.html").read_text()
    say(report, "example", ["<no>"], tmp_path)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("no events of <no> of cluster example, 2026-03-02 ")
    assert second.startswith("the log has events from 2026-03-02 ")


def test_tables_replace_what_was_there(tmp_path: Path) -> None:
    old = tmp_path / "depth"
    old.mkdir()
    (old / "part-00000.snappy.parquet").write_bytes(b"of release 0.3.0")
    for numbers in ([1, 2], [3]):
        write_tables(tmp_path, {"depth": pa.table({"n": numbers})})
    assert [path.name for path in old.iterdir()] == ["data.parquet"]
    assert pq.read_table(old)["n"].to_pylist() == [3]


def test_two_reports_at_once_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process replaces the file while this one writes it."""
    real = os.fsync

    def another(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        replace_file(tmp_path / "page", b"the other one, which is longer")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", another)
    replace_file(tmp_path / "page", b"this one")
    assert (tmp_path / "page").read_bytes() == b"this one"
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_a_file_is_durable_before_it_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page").write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_tables(tmp_path, {"depth": pa.table({"n": [1]})})
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "page", b"new")
    assert (tmp_path / "page").read_bytes() == b"old"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["page"]


def test_keys_of_an_object_store_are_not_on_the_page() -> None:
    words = source_words(None, "s3://KEY:SECRET@bucket/my log?endpoint_override=x")
    assert words == "--from 's3://bucket/my log'"
    assert source_words(["n0:1", "n1:2"], None) == "--addresses n0:1,n1:2"


def test_days_are_shown_where_there_are_several() -> None:
    assert 'id="days"' in pages()["month"]
    day = datetime(2026, 3, 3, tzinfo=UTC)
    events = pipeline_events.make(20_000, hours=72, seed=3)
    one = [round(moment.timestamp()) * SECOND_US for moment in (day, day + timedelta(hours=23))]
    assert 'id="days"' not in made(events, Asked(*one)).html
