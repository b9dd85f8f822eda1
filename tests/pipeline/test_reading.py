"""The parts of a log that a report reads, which yield the same page as the whole log; no Spark."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beanpole.exports import BadExport
from beanpoled.eventlog.export import compact
from bench import pipeline_events
from pyspark_beanpole.exports import opened
from pyspark_beanpole.ranges import ExportSource
from pyspark_beanpole.report.page import page
from pyspark_beanpole.report.period import ANY, Asked, chosen
from pyspark_beanpole.report.reading import Part, part_of
from pyspark_beanpole.report.run import Report, run_report
from pyspark_beanpole.statistics import answers, parts, reigns
from pyspark_beanpole.statistics.chunks import COLUMNS
from pyspark_beanpole.statistics.keys import SECOND_US, Parts
from pyspark_beanpole.statistics.lives import COVERED

HOUR_US = 3600 * SECOND_US
BEGIN_US = round(pipeline_events.BEGIN.timestamp()) * SECOND_US
Tables = Mapping[str, pa.Table]


class Here:
    """A replacement of `inputs.Input` that reduces the ranges of an export in this process."""

    def __init__(self, directory: Path) -> None:
        export = opened(str(directory))
        self.source = ExportSource(export)
        self.cluster, self.first, self.end = export.cluster, export.first, export.end
        self.missing, self.jobs_before = export.missing, export.jobs_before
        self.read = 0

    def reduce(
        self, reducer: Callable[[Iterator[pa.RecordBatch]], Tables], first: int | None,
        end: int | None,
    ) -> list[Tables]:  # fmt: skip
        found = []
        for begin, stop in self.source.ranges(first, end):
            self.read += stop - begin
            found.append(reducer(self.source.read(begin, stop, COLUMNS)))
        return found

    def with_oldest(self, kept: Parts) -> Parts:
        spans = kept["covered"].to_pylist()
        cells = answers.unresolved(kept)
        batches = self.source.read(spans[0]["first"], spans[-1]["end"], COLUMNS)
        looked = reigns.looked(batches, cells)
        return parts.merged([kept, {"covered": COVERED.empty_table(), "looked": looked}])


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of sixty hours, with a file for each day and each 5,000 events."""
    directory = tmp_path_factory.mktemp("export")
    events = pipeline_events.make(40_000, hours=60, seed=6)
    pipeline_events.write(directory, events, rows_max=5_000)
    return directory


def report(export: Path, out: Path, asked: Asked, **more: Any) -> tuple[Report, Here]:
    here = Here(export)
    return run_report(here, out, asked=asked, **more), here  # type: ignore[arg-type]


LATE = Asked(BEGIN_US + 50 * HOUR_US, BEGIN_US + 53 * HOUR_US)


def test_a_long_log_is_not_read_from_its_beginning(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, all_of_it = report(export, tmp_path / "whole", LATE)
    monkeypatch.setattr("pyspark_beanpole.report.reading.EARLIER_ROWS_MAX", 0)
    short, some = report(export, tmp_path / "short", LATE)
    assert some.read < all_of_it.read / 2
    assert whole.figures is not None and short.figures is not None
    assert "were not read" in (tmp_path / "short" / "index.html").read_text()
    assert "were not read" not in (tmp_path / "whole" / "index.html").read_text()
    one, other = (
        {queue.name: queue for queue in [made.figures.whole, *made.figures.queues]}
        for made in (whole, short)
        if made.figures is not None
    )
    assert one.keys() == other.keys()
    for name, queue in one.items():
        again = other[name]
        assert (queue.now, queue.before) == (again.now, again.before), name
        assert (queue.begin, queue.end) == (again.begin, again.end), name
        assert queue.course is not None and again.course is not None
        for state, depth in queue.course.depth.items():
            assert depth.tolist() == again.course.depth[state].tolist(), (name, state)
    assert sum(queue.begin["buried"] for queue in one.values()) > 0, "there is something to know"
    depths = pq.read_table(tmp_path / "short" / "tables" / "depth")
    assert depths["kept"].null_count == depths.num_rows > 0


def test_a_chosen_queue_of_a_long_log(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = report(export, tmp_path, LATE, queues=["webhooks"])
    monkeypatch.setattr("pyspark_beanpole.report.reading.EARLIER_ROWS_MAX", 0)
    short, _ = report(export, tmp_path, LATE, queues=["webhooks"])
    assert whole.figures is not None and short.figures is not None
    assert [queue.name for queue in short.figures.queues] == ["webhooks"]
    assert short.figures.whole.begin == whole.figures.whole.begin
    assert short.figures.whole.begin["buried"] == short.figures.queues[0].begin["buried"] > 0


def test_what_is_behind_the_period_is_not_read(export: Path, tmp_path: Path) -> None:
    early = Asked(BEGIN_US + 2 * HOUR_US, BEGIN_US + 4 * HOUR_US)
    found, here = report(export, tmp_path, early)
    assert found.figures is not None and found.figures.events > 0
    assert here.read < (here.end - here.first) / 2


def test_the_part_of_a_small_log_is_all_of_it(export: Path) -> None:
    source = ExportSource(opened(str(export)))
    edges = source.edges()
    assert edges is not None
    period = chosen(ANY, edges.begin_us, edges.last_us)
    assert part_of(source, period) == Part(None, source.export.end)


def test_a_report_without_spark_is_whole(export: Path, tmp_path: Path) -> None:
    found, _ = report(export, tmp_path, Asked(BEGIN_US), source="--from x")
    assert found.figures is not None
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["events"] == found.figures.events == summary["log"]["end"]
    since = datetime.fromtimestamp(BEGIN_US / SECOND_US, UTC).isoformat()
    assert summary["period"]["since"] == since
    html = page(found.figures, found.findings, None)
    assert (tmp_path / "index.html").read_text() == html


def test_files_that_a_compaction_replaced_tell_their_times(export: Path, tmp_path: Path) -> None:
    """A report looks at the times of all files after it has listed them."""
    shutil.copytree(export, tmp_path / "log")
    source = ExportSource(opened(str(tmp_path / "log")))
    fresh = ExportSource(opened(str(tmp_path / "log")))
    walls = range(BEGIN_US, BEGIN_US + 70 * HOUR_US, HOUR_US)
    wanted = [fresh.offset_at(wall_us) for wall_us in walls]
    before, after = compact(str(tmp_path / "log"), "")
    assert after < before
    assert source.edges() == fresh.edges()
    assert all(source.offset_at(wall_us) <= at for wall_us, at in zip(walls, wanted, strict=True))
    assert source.offset_at(BEGIN_US + 100 * HOUR_US) == fresh.export.end


def test_a_file_whose_times_cannot_be_read_is_named(export: Path, tmp_path: Path) -> None:
    """Larger exports are not checked before their times are read."""
    shutil.copytree(export, tmp_path / "log")
    source = ExportSource(opened(str(tmp_path / "log")))
    path = tmp_path / "log" / source.export.files[0].name
    path.write_bytes(b"?" * path.stat().st_size)
    with pytest.raises(BadExport, match=f"{path.name} cannot be read: "):
        source.edges()
