"""A stream into a directory without Spark: its tasks run here, and it may be killed at any step."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest

from beanpole.client.events import Events, EventsLost
from beanpole.errors import ClientError, ConfigurationError
from beanpole.exporting import steps
from beanpole.exporting.directory import listed
from beanpole.exports import BadExport
from beanpole.places import resolved
from pyspark_beanpole.exports import opened
from pyspark_beanpole.packing import packed
from pyspark_beanpole.statistics.answers import finished
from pyspark_beanpole.statistics.parts import reduced
from pyspark_beanpole.streaming import batches, pieces, tables
from pyspark_beanpole.streaming.batches import Batch, Written
from pyspark_beanpole.streaming.pieces import Piece, Pieces, chain
from pyspark_beanpole.streaming.stream import Settings, Stream
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log, event
from tests.pipeline.histories import History
from tests.shares import one_in

# No step of these tests uses the Spark session.
NO_SPARK: Any = None


def run_here(spark: object, batch: Batch) -> Written:
    """Run the tasks of a batch in this process, in place of Spark."""
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(batch.ranges)))})
    return batches.gathered(pa.Table.from_batches(batch(iter([numbers]))), batch)


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "run", run_here)
    # Small, so that a few events are several tasks.
    monkeypatch.setattr(batches, "TASK_ROWS_MIN", 20)


Open = Callable[..., Stream]


@pytest.fixture
def open_stream(tmp_path: Path) -> Iterator[Open]:
    streams: list[Stream] = []

    def opened_stream(node: Double, **changes: Any) -> Stream:
        settings = Settings(str(tmp_path), (node.address,), 1, "earliest", 100, False, True)
        found = Stream(settings._replace(**changes), Events([node.address], 1))
        streams.append(found)
        found.open()
        found.restore(NO_SPARK)
        return found

    yield opened_stream
    for one in streams:
        one.close()


def catch_up(stream: Stream) -> int:
    """Run batches until there are no more events; return the number of batches."""
    count = 0
    while stream.position < stream.end_now():
        stream.step(NO_SPARK, stream.end_now())
        count += 1
    return count


def offsets(directory: Path) -> list[int]:
    """Return the offsets that a reader without the manifest finds in the folder."""
    table = dataset.dataset(directory / "events", partitioning="hive").to_table(["offset"])
    return sorted(table["offset"].to_pylist())


def numbers(directory: Path) -> dict[str, pa.Table]:
    """Return the tables from the files."""
    found = (directory / "tables").iterdir()
    return {
        path.name: pq.read_table(path / "data.parquet").replace_schema_metadata() for path in found
    }


def of_batch(log: Log) -> dict[str, pa.Table]:
    """Return the tables that a report makes of the same events in one pass."""
    rows = pa.RecordBatch.from_pylist(log.events, pa.ipc.open_stream(log.batch(0, 1)).schema)
    return finished(reduced([rows], put_from=0))


def same(found: dict[str, pa.Table], wanted: dict[str, pa.Table]) -> bool:
    """Compare tables; only fractions may differ, by the order of their sums."""
    assert set(found) == set(wanted)
    for name, table in wanted.items():
        assert found[name].schema == table.schema, name
        for column in table.schema:
            one, other = (there[column.name].to_pylist() for there in (found[name], table))
            wanted_values = pytest.approx(other) if column.type == pa.float64() else other
            assert one == wanted_values, (name, column.name)
    return True


def test_batches_make_an_export_and_the_statistics_of_a_report(
    open_stream: Open, start: Start, tmp_path: Path
) -> None:
    log = Log(events=History(5).run(700).events)
    stream = open_stream(start(log))
    assert catch_up(stream) == 7
    stream.refresh()
    export = opened(str(tmp_path / "events"))
    export.verify_all()
    assert export.spans == ((0, 700),)
    assert offsets(tmp_path) == list(range(700))
    assert same(numbers(tmp_path), of_batch(log))
    assert not list(tmp_path.glob("events/_tries/*"))


def test_it_goes_on_where_the_directory_ends(
    open_stream: Open, start: Start, tmp_path: Path
) -> None:
    log = Log(events=History(6).run(650).events)
    later = log.events[420:]
    del log.events[420:]
    node = start(log)
    first = open_stream(node)
    catch_up(first)
    first.close()
    log.events += later
    log.batches.clear()
    second = open_stream(node, rows_max=1000)
    assert second.position == 420
    assert not second.is_fresh()
    assert catch_up(second) == 1
    second.refresh()
    assert offsets(tmp_path) == list(range(650))
    assert same(numbers(tmp_path), of_batch(log))


class Died(Exception):
    """Simulates the end of the process at this step."""


@pytest.mark.parametrize("survived", one_in(3, range(30)))
def test_it_may_die_at_any_step(
    survived: int,
    open_stream: Open,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each creation, removal and rename of a file is a step."""
    log = Log(events=History(8).run(500).events)
    node = start(log)
    stream = open_stream(node)
    stream.step(NO_SPARK, 100)
    left = [survived]

    def counted(step: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            if not left[0]:
                raise Died
            left[0] -= 1
            step(*arguments)

        return run

    with monkeypatch.context() as patch:
        for name in ("rename", "remove", "put"):
            patch.setattr(steps, name, counted(getattr(steps, name)))
        try:
            for _ in range(3):
                stream.step(NO_SPARK, 500)
                stream.compact()
        except Died:
            pass
    stream.close()
    again = open_stream(node, rows_max=70)
    assert again.position in (100, 200, 300, 400)
    catch_up(again)
    again.refresh()
    opened(str(tmp_path / "events")).verify_all()
    assert offsets(tmp_path) == list(range(500))
    assert same(numbers(tmp_path), of_batch(log))


def test_a_batch_that_fails_leaves_no_files(
    open_stream: Open, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would fill the disk of a stream that waits for nodes."""
    stream = open_stream(start(Log(), 300))

    def half(spark: object, batch: Batch) -> Written:
        run_here(spark, batch)
        assert list(tmp_path.glob("events/_tries/*/date=*/*"))
        raise ClientError("no node answers")

    with monkeypatch.context() as patch:
        patch.setattr(batches, "run", half)
        with pytest.raises(ClientError, match="no node answers"):
            stream.step(NO_SPARK, 300)
    assert not list(tmp_path.glob("events/_tries/*"))
    assert catch_up(stream) == 3
    assert offsets(tmp_path) == list(range(300))


def test_a_directory_in_an_object_store_may_have_options(
    open_stream: Open, start: Start, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"s3a://test:test@events/dir/?{bucket}"
    files = resolved(f"{name}&allow_bucket_creation=1").files
    files.create_dir("events")
    log = Log(events=History(5).run(250).events)
    node = start(log)
    first = open_stream(node, directory=name)
    catch_up(first)
    first.refresh()
    first.close()
    found = {path.partition("/date=")[0] for path in listed(resolved(name))}
    assert {one for one in found if one[0] == "e"} == {"events", "events/_manifest.json"}
    export = opened(f"s3a://test:test@events/dir/events?{bucket}")
    assert export.spans == ((0, 250),)
    # Lost parts are made anew from the events there.
    files.delete_dir_contents("events/dir/_parts")
    asked: list[str] = []

    def again(spark: object, directory: str, put_from: int | None) -> Any:
        asked.append(directory)
        return reduced(opened(directory).read(), put_from=put_from)

    monkeypatch.setattr("pyspark_beanpole.streaming.stream._all_reduced", again)
    open_stream(node, directory=name).refresh()
    assert asked == [f"s3a://test:test@events/dir/events?{bucket}"]
    table = resolved(f"s3a://test:test@events/dir/tables/throughput?{bucket}")
    assert pq.read_table(table.at("data.parquet"), filesystem=files)["puts"].to_pylist()


def test_an_empty_name_is_no_directory(open_stream: Open, start: Start) -> None:
    with pytest.raises(ConfigurationError, match="'' is no directory"):
        open_stream(start(Log()), directory="")


def test_small_files_are_compacted(open_stream: Open, start: Start, tmp_path: Path) -> None:
    node = start(Log(), 1000)
    stream = open_stream(node, rows_max=10)
    for _ in range(100):
        stream.step(NO_SPARK, 1000)
        stream.compact()
    assert len(list(tmp_path.glob("events/date=*/*.parquet"))) < 32
    assert offsets(tmp_path) == list(range(1000))
    opened(str(tmp_path / "events")).verify_all()


def test_pieces_of_hours_become_one_of_a_day(
    open_stream: Open, start: Start, tmp_path: Path
) -> None:
    # An event every ten minutes, from noon on.
    log = Log(events=[event(number * 600) | {"offset": number} for number in range(300)])
    stream = open_stream(start(log), rows_max=5)
    catch_up(stream)
    stream.refresh()
    spans = sorted(path.stem.split("-") for path in (tmp_path / "_parts").iterdir())
    assert [int(first) for first, _ in spans[1:]] == [int(end) for _, end in spans[:-1]]
    # Files of two complete days, and of the hours of the third.
    assert len(spans) <= 2 + 24
    assert same(numbers(tmp_path), of_batch(log))


def test_statistics_are_made_anew_where_they_lack(
    open_stream: Open, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(events=History(9).run(300).events)
    node = start(log)
    without = open_stream(node, statistics=False)
    catch_up(without)
    without.refresh()
    without.close()
    assert not (tmp_path / "tables").exists()
    monkeypatch.setattr(
        "pyspark_beanpole.streaming.stream._all_reduced",
        lambda spark, place, put_from: reduced(opened(place).read(), put_from=put_from),
    )
    stream = open_stream(node)
    stream.refresh()
    assert same(numbers(tmp_path), of_batch(log))
    stream.close()
    [piece] = (tmp_path / "_parts").iterdir()
    piece.write_bytes(b"of another version")
    again = open_stream(node)
    # The tables have all events, but maybe by the rules of that version.
    assert not again.is_fresh()
    again.refresh()
    assert same(numbers(tmp_path), of_batch(log))


def test_another_cluster_is_refused(open_stream: Open, start: Start) -> None:
    stream = open_stream(start(Log(), 50))
    catch_up(stream)
    stream.close()
    with pytest.raises(ConfigurationError, match="events of cluster double, not of other"):
        open_stream(start(Log("other"), 70))
    with pytest.raises(ConfigurationError, match=r"offset 50 lies beyond .* which end at 20"):
        open_stream(start(Log(), 20))


def test_a_cluster_that_was_begun_anew_ends_a_stream(open_stream: Open, start: Start) -> None:
    """Its events would be added behind those of the earlier one, once it has as many."""
    node = start(log := Log(), 200)
    stream = open_stream(node)
    catch_up(stream)
    del log.events[50:]
    with pytest.raises(ConfigurationError, match="offset 200 lies beyond the events of cluster"):
        stream.end_now()


def test_a_cluster_of_the_same_name_is_refused(open_stream: Open, start: Start) -> None:
    stream = open_stream(node := start(log := Log(), 90))
    log.birth = "0a"  # the last node of release 0.3.0 is upgraded
    assert catch_up(stream) == 1
    log.birth = "0b"
    with pytest.raises(ConfigurationError, match="0b, not of the one with 0a"):
        stream.end_now()
    stream.close()
    with pytest.raises(ConfigurationError, match=r"the birth id 0a.* the birth id 0b"):
        open_stream(node)


def test_two_streams_do_not_share_a_directory(open_stream: Open, start: Start) -> None:
    node = start(Log(), 50)
    open_stream(node)
    with pytest.raises(ConfigurationError, match="another export runs in"):
        open_stream(node)


@pytest.mark.parametrize("name", ["partials", "_checkpoint"])
def test_a_directory_of_release_0_3_0_is_refused(
    name: str, open_stream: Open, start: Start, tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigurationError, match=r"of release 0\.3\.0, which .*: give a new dir"):
        open_stream(start(Log(), 50))


def test_a_file_that_is_lost_is_named(open_stream: Open, start: Start, tmp_path: Path) -> None:
    node = start(Log(), 50)
    stream = open_stream(node)
    catch_up(stream)
    stream.close()
    lost = next(tmp_path.glob("events/date=*/*.parquet"))
    lost.unlink()
    with pytest.raises(BadExport, match=f"{lost.name} is not there"):
        open_stream(node)


def test_where_a_new_directory_begins(open_stream: Open, start: Start, tmp_path: Path) -> None:
    log = Log(events=History(10).run(300).events)
    node = start(log)
    with pytest.raises(ConfigurationError, match="--start = 301 is not allowed"):
        open_stream(node, start="301")
    stream = open_stream(node, start="120")
    catch_up(stream)
    assert offsets(tmp_path) == list(range(120, 300))
    before = stream.directory.manifest.jobs_before
    states: dict[object, object] = {}
    for one in log.events[:120]:
        states[one["job_id"]] = one["state"]
    assert before == {state: list(states.values()).count(state) for state in before}
    stream.close()
    shutil.rmtree(tmp_path / "events")
    latest = open_stream(node, start="latest")
    assert latest.position == 300


@pytest.mark.parametrize("begin", ["latest", "120"])
def test_a_directory_begins_where_it_was_made_also_before_its_first_batch(
    open_stream: Open, start: Start, tmp_path: Path, begin: str
) -> None:
    log = Log(events=History(10).run(300).events)
    later, log.events = log.events[200:], log.events[:200]
    node = start(log)
    first = open_stream(node, start=begin)
    wanted, before = first.position, first.directory.manifest.jobs_before
    assert wanted == (200 if begin == "latest" else 120)
    first.close()
    log.events += later
    second = open_stream(node, start="latest")
    assert second.position == wanted
    assert second.directory.manifest.jobs_before == before
    catch_up(second)
    assert offsets(tmp_path) == list(range(wanted, 300))
    second.close()
    assert open_stream(node, start="latest").position == 300


def test_a_directory_is_opened_again_after_an_outage(open_stream: Open, start: Start) -> None:
    node = start(log := Log(), 100)
    first = open_stream(node)
    catch_up(first)
    first.close()
    node.behind = 50
    settings = first._settings
    # The other node, which does not answer, may have the rest.
    addresses = [node.address, "127.0.0.1:1"]
    second = Stream(settings, Events(addresses, 0, 0))
    with pytest.raises(ClientError, match="the nodes that answer only to 50"):
        second.open()
    node.behind = 0
    assert len(log.events) == 100
    second.open()
    assert second.position == 100
    second.close()


def test_a_directory_without_files_of_an_earlier_release_begins_now(
    open_stream: Open, start: Start
) -> None:
    node = start(log := Log(), 100)
    stream = open_stream(node, start="latest")
    stream.directory.change(stream.directory.manifest._replace(begin=None))
    stream.close()
    log.grow(50)
    assert open_stream(node, start="latest").position == 150


def test_a_directory_that_begins_behind_the_cluster_is_refused(
    open_stream: Open, start: Start
) -> None:
    node = start(log := Log(), 100)
    open_stream(node, start="latest").close()
    del log.events[50:]
    with pytest.raises(ConfigurationError, match="offset 100 lies beyond the events"):
        open_stream(node, start="latest")


def test_events_that_are_gone(open_stream: Open, start: Start, tmp_path: Path) -> None:
    node = start(log := Log(), 100)
    stream = open_stream(node)
    catch_up(stream)
    stream.close()
    log.grow(100)
    node.first = 150
    stopped = open_stream(node)
    with pytest.raises(EventsLost, match="from offset 100 on are gone"):
        catch_up(stopped)
    stopped.close()
    stream = open_stream(node, skip_lost=True, rows_max=40)
    assert catch_up(stream) == 2
    stream.refresh()
    stream.close()
    assert offsets(tmp_path) == [*range(100), *range(150, 200)]
    # The table can be opened again despite its gap.
    again = open_stream(node)
    assert again.is_fresh()


def test_a_reader_always_finds_a_table(tmp_path: Path) -> None:
    place = resolved(str(tmp_path))
    for end in (5, 7):
        tables.write(place, {"throughput": pa.table({"n": [end]})}, end)
        assert tables.end_of(place) == end
        assert [path.name for path in (tmp_path / "throughput").iterdir()] == ["data.parquet"]
    (tmp_path / "throughput" / "data.parquet").write_bytes(b"")
    assert tables.end_of(place) is None


def test_the_chain_of_pieces() -> None:
    whole = [Piece(0, 10), Piece(10, 15), Piece(10, 20), Piece(0, 15), Piece(20, 30)]
    assert chain(whole, 0, 20) == [Piece(0, 10), Piece(10, 20)]
    assert chain(whole, 0, 15) == [Piece(0, 15)]
    assert chain(whole, 5, 20) is None
    assert chain([], 0, 1) is None
    assert chain([], 0, 0) == []


def test_parts_of_another_version_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = dict(reduced([]))
    own = pieces.packed_parts(parts)
    assert pieces.unpacked_parts(own) == parts
    with monkeypatch.context() as patch:
        patch.setattr(pieces, "RULES", None)  # as releases up to 0.3.0 have written them
        earlier = pieces.packed_parts(parts)
    with pytest.raises(ValueError, match="another version"):
        pieces.unpacked_parts(earlier)
    del parts["ready"]
    with pytest.raises(ValueError, match="another version"):
        pieces.unpacked_parts(pieces.packed_parts(parts))
    assert Pieces(resolved(str(tmp_path))).load([(0, 10)]) is False
    (tmp_path / Piece(0, 10).name).write_bytes(packed(pa.table({"of": ["another program"]})))
    assert Pieces(resolved(str(tmp_path))).load([(0, 10)]) is False
