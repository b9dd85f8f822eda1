"""A report of a period that lacks events with its times: a clock was ahead before. Without Spark.

The log: a put a second for 100 s, then the clock is a day ahead for 20 s, and then right again.
"""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from pyspark_beanpole.cli.report import say
from pyspark_beanpole.exports import opened
from pyspark_beanpole.ranges import ClusterSource, ExportSource, Source
from pyspark_beanpole.report import outside as module
from pyspark_beanpole.report.figures import Outside
from pyspark_beanpole.report.outside import outside
from pyspark_beanpole.report.period import ANY, Asked, Period, chosen
from pyspark_beanpole.report.windows import cuts_of
from pyspark_beanpole.statistics.keys import SECOND_US
from tests.pipeline.conftest import Start
from tests.pipeline.double import BEGAN, Log
from tests.pipeline.exported import write_export
from tests.pipeline.test_reading import report

BEGAN_US = round(BEGAN.timestamp()) * SECOND_US


@pytest.fixture
def log() -> Log:
    found = Log()
    found.grow(1000)
    for one in found.events[100:120]:
        one["wall_time"] += timedelta(days=1)  # type: ignore[operator]
    return found


def period(since_s: int, until_s: int) -> Period:
    """Return a period in seconds after the first event."""
    return Period(BEGAN_US + since_s * SECOND_US, BEGAN_US + until_s * SECOND_US)


def found_in(source: Source, asked: Period) -> Outside:
    return outside(source, asked, cuts_of(source, asked).now)


def sources_of(log: Log, directory: Path, start: Start) -> tuple[Source, Source]:
    end = len(log.events)
    write_export(directory, log.events, rows_max=70)
    return ExportSource(opened(str(directory))), ClusterSource((start(log).address,), 0, end, 1)


def test_events_that_a_period_lacks_are_counted(log: Log, tmp_path: Path, start: Start) -> None:
    for source in sources_of(log, tmp_path, start):
        # Before the clock was ahead; from before that to behind it; behind it; to the end.
        assert found_in(source, period(10, 50)) == Outside()
        assert found_in(source, period(50, 300)) == Outside(180)
        assert found_in(source, period(300, 337)) == Outside(37)
        assert found_in(source, period(300, 80_000)) == Outside(700)
        assert found_in(source, period(300, 90_000)) == Outside()
        edges = source.edges()
        assert edges is not None
        assert found_in(source, chosen(ANY, *edges)) == Outside()


def test_of_many_events_some_are_looked_at(
    log: Log, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_MAX", 10)
    export, nodes = sources_of(log, tmp_path, start)
    # Offset 999 is the last one; 100 + 2^n - 1 are 131, 163, 227, 355 and 611.
    assert found_in(nodes, period(121, 980)) == Outside(5, is_least=True)
    assert found_in(nodes, period(980, 2000)) == Outside(1, is_least=True)
    assert found_in(nodes, period(50, 80)) == Outside(0, is_least=True)
    # An export's metadata tells of whole groups of rows that they are in the period.
    found = found_in(export, period(121, 980))
    assert found.is_least and 770 <= found.events <= 859


def test_the_report_says_that_it_lacks_events(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_export(tmp_path / "export", log.events)
    words = "700 events have a time in this period but are not in it: a clock was set back (docs/"
    for until_s, expected in ((80_000, 700), (90_000, 0)):
        asked = Asked(*period(300, until_s))
        made, _ = report(tmp_path / "export", tmp_path / "out", asked)
        say(made, "double", (), tmp_path / "out")
        assert (words in capsys.readouterr().out) == bool(expected)
        assert (words in (tmp_path / "out" / "index.html").read_text()) == bool(expected)
        said = json.loads((tmp_path / "out" / "summary.json").read_text())
        assert said["outside"] == {"events": expected, "at_least": False}
        # Jobs wait, but those that took them may be outside.
        kinds = {one.kind for one in made.findings}
        assert bool(kinds & {"unserved", "oldest"}) == (not expected)


def test_a_queue_without_events_in_the_period_says_it_too(log: Log, tmp_path: Path) -> None:
    write_export(tmp_path / "export", log.events)
    asked = Asked(*period(300, 400))
    made, _ = report(tmp_path / "export", tmp_path / "out", asked, queues=["other"])
    assert made.figures is None
    said = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert said["outside"] == {"events": 100, "at_least": False}
    page = (tmp_path / "out" / "index.html").read_text()
    assert "100 events have a time in this period" in page


def test_one_event() -> None:
    [line] = Outside(1, is_least=True).warnings()
    assert line.startswith("at least 1 event has a time in this period but is not in it: ")
