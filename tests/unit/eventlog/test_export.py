"""Reading a cluster's events from the nodes that have them, and exporting each event once."""

import errno
import json
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beanpole.client.events import EventsLost
from beanpole.core.machine import Machine
from beanpole.errors import ClientError, ConfigurationError
from beanpole.exporting import directory as directories
from beanpole.exporting import files, steps
from beanpole.exports import BadExport
from beanpoled import cli
from beanpoled.cli import events, exits
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import EventBatch
from beanpoled.eventlog.export import Export, begin_export, open_export
from beanpoled.eventlog.source import Source
from beanpoled.rpc.events import EventsServicer
from beanpoled.rpc.server import Context
from beanpoled.view import JobCounts
from tests.unit.eventlog.made import Driver
from tests.unit.eventlog.served import Server, life_of, serving
from tests.unit.eventlog.test_service import history
from tests.unit.eventlog.test_store import Life, image_of
from tests.unit.exporting.made import batch
from tests.unit.node.stage import config


def life_from(entries: list[tuple[Any, ...]], covered: int) -> Life:
    """Return a node that got a snapshot of the first `covered` entries, and applied the others."""
    machine = Machine()
    for entry in entries[:covered]:
        machine.apply(*entry)
    life = life_of([])
    life.log.attach(image_of(machine))
    life.driver = Driver(life.log, life.log._machine)
    for entry in entries[covered:]:
        life.driver.apply(entry)
    life.settle()
    return life


def offsets(directory: Path) -> list[int]:
    """Return all offsets in an export directory, file by file, as a reader of Parquet sees them."""
    found: list[int] = []
    for path in sorted(directory.glob("date=*/events-*.parquet"), key=lambda path: path.name):
        rows = pq.ParquetFile(path).read()
        assert rows.schema == columns.schema()
        assert (
            f"{rows['offset'][0].as_py():020d}-{rows['offset'][-1].as_py() + 1:020d}" in path.name
        )
        dates = {value.date().isoformat() for value in rows["wall_time"].to_pylist()}
        assert {f"date={date}" for date in dates} == {path.parent.name}
        found += rows["offset"].to_pylist()
    return found


def manifest(directory: Path) -> Any:
    return json.loads((directory / "_manifest.json").read_text())


# --- the source -----------------------------------------------------------------------------------


def read(source: Source, start: int, end: int) -> list[int]:
    batches = list(source.read(start, end))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_gap_of_one_node_is_filled_from_another() -> None:
    entries = history()
    whole, late = life_of(entries[:9]), life_from(entries, 7)
    assert (whole.log.spans(), late.log.spans()) == ([(0, 240)], [(180, 360)])
    with serving(Server(whole), Server(late)) as addresses, Source(addresses) as source:
        assert read(source, 0, 360) == list(range(360))
        assert read(source, 100, 200) == list(range(100, 200))
        ranges = source.ranges()
        extent = source.extent(ranges)
        assert (extent.first, extent.end) == (0, 360)
        for offset in (0, 100, 180, 200, 360):
            assert source.jobs_at(offset, ranges) == JobCounts(ready=offset)


def test_an_export_that_follows_ends_where_the_cluster_is_begun_anew(tmp_path: Path) -> None:
    """It would have waited in silence, and then mixed the events of both."""
    entries = history()
    with serving(Server(life_of(entries)), Server(life_of(entries[:9]))) as (old, new):
        with Source([old]) as source:
            run = events._Run(source, str(tmp_path / "out"), None, 1.0, threading.Event())
            run.catch_up()
        with Source([new, "127.0.0.1:1", "127.0.0.1:2"]) as source:
            run._source = source
            run.follow()  # the nodes that do not answer may have more
        with Source([new]) as source, pytest.raises(ConfigurationError, match="an earlier life"):
            run._source = source
            run.follow()
        run.close()
    assert offsets(tmp_path / "out") == list(range(360))


class Dying(Server):
    """A node that fails after its first batch."""

    def servicer(self) -> EventsServicer:
        class Servicer(EventsServicer):
            async def _batches(
                self, start: int, end: int, context: Context
            ) -> AsyncIterator[EventBatch]:
                async for found in super()._batches(start, end, context):
                    yield found
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "it dies")

        return Servicer(config(), self.life.host, self.life.log, str)


def test_a_node_that_dies_is_passed_over_where_it_stood() -> None:
    entries = history()
    with (
        serving(Dying(life_of(entries)), Server(life_of(entries))) as addresses,
        Source([*addresses, "127.0.0.1:1"]) as source,
    ):
        assert read(source, 10, 360) == list(range(10, 360))


def test_events_that_nobody_has_are_named() -> None:
    with (
        serving(Server(life_from(history(), 7))) as addresses,
        Source([*addresses, "127.0.0.1:1"]) as source,
        pytest.raises(EventsLost, match="events from offset 5 on are gone") as raised,
    ):
        read(source, 5, 360)
    assert (raised.value.kept, raised.value.certain) == (180, False)
    assert "127.0.0.1:1: UNAVAILABLE" in str(raised.value)


def test_nobody_and_strangers_are_told_apart() -> None:
    with Source(["127.0.0.1:1"]) as source, pytest.raises(ClientError, match="no node answers"):
        source.ranges()
    other = Server(life_of([]), config(cluster="other"))
    with (
        serving(Server(life_of([])), other) as addresses,
        Source(addresses) as source,
        pytest.raises(ClientError, match="a node of cluster 'other', others are of 'stage'"),
    ):
        source.ranges()


# --- the directory --------------------------------------------------------------------------------


def test_files_end_with_dates_gaps_and_flushes(tmp_path: Path) -> None:
    out = begin_export(str(tmp_path / "out"), "c", JobCounts(ready=3))
    for rows in (batch(10, 5), batch(15, 5), batch(20, 5, 1), batch(40, 5, 1)):
        out.write(rows)
    mixed = pa.concat_batches([batch(45, 2, 1), batch(47, 2, 0), batch(49, 2, 1)])
    out.write(mixed)
    out.flush()
    out.flush()
    out.close()
    names = sorted(
        f"{path.parent.name} {int(path.name[7:27])}-{int(path.name[28:48])}"
        for path in (tmp_path / "out").glob("date=*/*")
    )
    assert names == [
        "date=1970-01-01 10-20",
        "date=1970-01-01 47-49",
        "date=1970-01-02 20-25",
        "date=1970-01-02 40-47",
        "date=1970-01-02 49-51",
    ]
    said = manifest(tmp_path / "out")
    rows = {file["name"]: (file["first"], file["end"], file["bytes"]) for file in said["files"]}
    assert rows == {
        str(path.relative_to(tmp_path / "out")): (
            int(path.name[7:27]),
            int(path.name[28:48]),
            path.stat().st_size,
        )
        for path in (tmp_path / "out").glob("date=*/*")
    }
    assert (said["version"], said["cluster"], said["spans"]) == (2, "c", [[10, 25], [40, 51]])
    assert said["jobs_before"] == {"ready": 3, "reserved": 0, "delayed": 0, "buried": 0}
    assert offsets(tmp_path / "out") == [*range(10, 25), *range(40, 51)]


class Killed(BaseException):
    """SIGKILL: no handler runs."""


def export_some(directory: Path, parts: list[pa.RecordBatch]) -> None:
    """Continue an export, and flush after every other part."""
    out = open_export(str(directory), "c") or begin_export(str(directory), "c", JobCounts())
    done = out.end
    for place, rows in enumerate(parts):
        if rows.column("offset")[0].as_py() >= done:
            out.write(rows)
        if place % 2:
            out.flush()
    out.flush()
    out.close()


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(80))
def test_killed_at_any_step_it_goes_on_without_loss_and_without_a_double(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the export at every sync, rename, directory creation and write of rows."""
    parts = [batch(10 * place, 10, place // 3) for place in range(8)]
    left = [steps]

    def mortal(real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(*arguments, **named)

        return call

    held: list[Any] = []

    def holding(real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            held.append(real(*arguments))
            return held[-1]

        return call

    with monkeypatch.context() as patched:
        patched.setattr(directories, "_locked", holding(directories._locked))
        patched.setattr(files, "_open", holding(files._open))
        for name in ("fsync", "rename", "makedirs", "unlink"):
            patched.setattr(os, name, mortal(getattr(os, name)))
        patched.setattr(Export, "write", mortal(Export.write))
        try:
            export_some(tmp_path / "out", parts)
        except Killed:
            assert steps < 79, "there are more steps than this test tries"
    for file in held:
        file.close()  # as the system does for a killed process
    export_some(tmp_path / "out", parts)
    assert offsets(tmp_path / "out") == list(range(80))
    assert manifest(tmp_path / "out")["spans"] == [[0, 80]]
    assert not list((tmp_path / "out").glob("date=*/.*"))


def test_directories_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    assert open_export(str(tmp_path / "none"), "c") is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ConfigurationError, match=r"is not empty and has no _manifest\.json"):
        open_export(str(tmp_path / "other"), "c")
    begin_export(str(tmp_path / "out"), "c", JobCounts()).close()
    with pytest.raises(ConfigurationError, match="holds events of cluster c, not of d"):
        open_export(str(tmp_path / "out"), "d")
    held = open_export(str(tmp_path / "out"), "c")
    assert held is not None
    with pytest.raises(ConfigurationError, match="another export runs in"):
        open_export(str(tmp_path / "out"), "c")
    held.close()
    for text, words in (("{", "is not what"), ('{"version": 3}', "is of version 3; this pro")):
        (tmp_path / "out" / "_manifest.json").write_text(text)
        with pytest.raises(ConfigurationError, match=words):
            open_export(str(tmp_path / "out"), "c")


def test_the_same_events_in_two_files_are_noticed(tmp_path: Path) -> None:
    export_some(tmp_path / "out", [batch(0, 10)])
    folder = next((tmp_path / "out").glob("date=*"))
    pq.write_table(
        pa.Table.from_batches([batch(5, 10)]), folder / f"events-{5:020d}-{15:020d}.parquet"
    )
    with pytest.raises(BadExport, match=r"has events of .* again: it was not written by one"):
        open_export(str(tmp_path / "out"), "c")


def test_small_files_are_merged_while_it_runs(tmp_path: Path) -> None:
    out = begin_export(str(tmp_path / "out"), "c", JobCounts())
    for first in range(0, 40 * 10, 10):
        out.write(batch(first, 10))
        out.flush()
        out.tidy()
    out.close()
    said = manifest(tmp_path / "out")
    # Sixteen files became one, it and the next sixteen became one, and eight followed.
    assert [(file["first"], file["end"]) for file in said["files"][:2]] == [(0, 320), (320, 330)]
    assert said["spans"] == [[0, 400]]
    # Replaced files stay for readers that have listed them.
    assert len(said["uncounted"]) == 16 + 16 + 1
    assert len(list((tmp_path / "out").glob("date=*/*"))) == 33 + 9


# --- the command ----------------------------------------------------------------------------------


def command(addresses: list[str], directory: Path, *more: str) -> int:
    places = ["--addresses", ",".join(addresses), "--to", str(directory)]
    return cli.main(["events", "export", *places, *more])


def test_the_command_goes_on_where_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = life_of(history(5))
    with serving(Server(life)) as addresses:
        assert command(addresses, tmp_path / "out") == 0
        assert command(addresses, tmp_path / "out") == 0
        assert offsets(tmp_path / "out") == list(range(150))
        life.driver.number = len(life.driver.entries)
        life.driver.put(25)
        assert command(addresses, tmp_path / "out") == 0
        assert cli.main(["events", "range", "--addresses", addresses[0], "--json"]) == 0
    assert offsets(tmp_path / "out") == list(range(175))
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == f"150 events written; {tmp_path / 'out'} has 0 to 150"
    assert said.err.splitlines()[1].startswith("0 events written")
    assert json.loads(said.out)["nodes"][0]["spans"] == [[0, 175]]


def test_a_place_that_cannot_be_made_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with serving(Server(life_of(history(5)))) as addresses:
        assert command(addresses, Path("/proc/x")) == exits.EXIT_NO_ANSWER
        # Here: gRPC may log that the server, when it ends, tells the command's channel.
        assert capfd.readouterr().err == "beanpole: /proc/x: No such file or directory\n"


def test_a_range_names_the_nodes_that_do_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Server(life_of(history(5)))) as addresses:
        for more in ([], ["--json"]):
            line = ["events", "range", "--addr", f"{addresses[0]},127.0.0.1:1", *more]
            assert cli.main(line) == exits.EXIT_NO
            said = capsys.readouterr()
            assert said.err.startswith("beanpole: no answer of 127.0.0.1:1: UNAVAILABLE")
            assert "150" in said.out


def test_the_command_compacts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Server(life_of(history(5)))) as addresses:
        assert command(addresses, tmp_path / "out") == 0
    export_some_more = open_export(str(tmp_path / "out"), "stage")
    assert export_some_more is not None
    for first in (150, 160):
        export_some_more.write(batch(first, 10))
        export_some_more.flush()
    compact = ["events", "compact", str(tmp_path / "out")]
    assert cli.main(compact) == exits.EXIT_REFUSED
    assert "another export runs in" in capsys.readouterr().err
    export_some_more.close()
    assert cli.main([*compact, "--older-than", "30000"]) == 0
    assert capsys.readouterr().out == "3 files before, 3 now\n"
    assert cli.main([*compact, "--older-than", "0"]) == 0
    assert capsys.readouterr().out == "3 files before, 2 now\n"
    assert offsets(tmp_path / "out") == list(range(170))
    assert cli.main([*compact, "--older-than", "-1"]) == exits.EXIT_REFUSED
    assert "--older-than = -1 is not allowed: it must be from 0 to" in capsys.readouterr().err
    assert cli.main(["events", "compact", str(tmp_path / "none")]) == exits.EXIT_REFUSED
    assert "none has no events: `beanpole events export` writes them" in capsys.readouterr().err


def test_the_command_merges_what_it_left_when_it_was_called_again_and_again(
    tmp_path: Path,
) -> None:
    life = life_of(history(1))
    life.driver.number = len(life.driver.entries)
    with serving(Server(life)) as addresses:
        for _ in range(16):
            assert command(addresses, tmp_path / "out") == 0
            life.driver.put(10)
    said = manifest(tmp_path / "out")
    assert [(file["first"], file["end"]) for file in said["files"]] == [(0, 180)]


def test_an_empty_cluster_is_an_empty_export(tmp_path: Path) -> None:
    with serving(Server(life_of([]))) as addresses:
        assert command(addresses, tmp_path / "out") == 0
    assert manifest(tmp_path / "out")["spans"] == []


def test_a_start_in_the_middle_counts_the_jobs_before_it(tmp_path: Path) -> None:
    with serving(Server(life_of(history()))) as addresses:
        assert command(addresses, tmp_path / "out", "--start", "77") == 0
        assert command(addresses, tmp_path / "no", "--start", "361") == exits.EXIT_REFUSED
        assert command(addresses, tmp_path / "no", "--start", "soon") == exits.EXIT_REFUSED
        assert command(addresses, tmp_path / "no", "--every", "0") == exits.EXIT_REFUSED
    assert offsets(tmp_path / "out") == list(range(77, 360))
    assert manifest(tmp_path / "out")["jobs_before"]["ready"] == 77


def test_an_export_that_is_still_empty_counts_the_jobs_before_its_new_start(tmp_path: Path) -> None:
    with serving(Server(life_of(history()))) as addresses:
        assert command(addresses, tmp_path / "out", "--start", "360") == 0
        assert manifest(tmp_path / "out")["jobs_before"]["ready"] == 360
        assert command(addresses, tmp_path / "out", "--start", "77") == 0
    assert offsets(tmp_path / "out") == list(range(77, 360))
    assert manifest(tmp_path / "out")["jobs_before"]["ready"] == 77


def test_a_node_that_may_have_earlier_events_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Server(life_from(history(), 7))) as addresses:
        assert command([*addresses, "127.0.0.1:1"], tmp_path / "out") == 0
        words = "begins at offset 180; nodes that did not answer may have earlier events: 127.0.0.1"
        assert words in capsys.readouterr().err
        assert command([*addresses, "127.0.0.1:1"], tmp_path / "out") == 0
        assert words not in capsys.readouterr().err
    assert offsets(tmp_path / "out") == list(range(180, 360))


def test_events_that_are_gone_stop_it_until_it_is_told_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = history()
    with serving(Server(life_of(entries[:4]))) as addresses:
        assert command(addresses, tmp_path / "out") == 0
    with serving(Server(life_from(entries, 7))) as addresses:
        assert command(addresses, tmp_path / "out") == exits.EXIT_NO_ANSWER
        assert "from offset 90 on are gone" in (words := capsys.readouterr().err)
        assert "--start 180" in words
        # The same with --follow, because every node was asked.
        assert command(addresses, tmp_path / "out", "--follow") == exits.EXIT_NO_ANSWER
        assert command(addresses, tmp_path / "out", "--start", "earliest") == 0
    assert manifest(tmp_path / "out")["spans"] == [[0, 90], [180, 360]]
    assert offsets(tmp_path / "out") == [*range(90), *range(180, 360)]


def test_a_cluster_that_begins_anew_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Server(life_of(history()))) as addresses:
        assert command(addresses, tmp_path / "out") == 0
    with serving(Server(life_of(history(2)))) as addresses:
        assert command(addresses, tmp_path / "out") == exits.EXIT_REFUSED
    assert "has events to 360, and the cluster has only 60" in capsys.readouterr().err
    assert command(["127.0.0.1:1"], tmp_path / "out") == exits.EXIT_NO_ANSWER
    start = ("--start", "9" * 5000)
    assert command(["127.0.0.1:1"], tmp_path / "out", *start) == exits.EXIT_REFUSED
    assert "it must be earliest or an offset from 0" in capsys.readouterr().err
    assert command(["nowhere"], tmp_path / "out") == exits.EXIT_REFUSED
    assert "it must be HOST:PORT,...; 'nowhere' is not HOST:PORT" in capsys.readouterr().err


def test_no_event_is_passed_over_when_a_full_file_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next file would be listed without the one before it."""
    out = str(tmp_path / "out")
    export = begin_export(out, "c", JobCounts())
    export.write(batch(0, 10))
    with monkeypatch.context() as once:
        once.setattr(steps, "write_whole", refused)
        with pytest.raises(OSError, match="No space"):
            export.write(pa.concat_batches([batch(10, 5), batch(15, 5, 1)]))
    export.flush()
    assert export.end == 0
    export.close()
    again = open_export(out, "c")
    assert again is not None
    assert again.spans == ((0, 15),)
    again.close()


def refused(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
