"""Exports in an object store, here a local moto server: without renames and locks."""

import time
from typing import Any

import pyarrow as pa
import pytest

from beanpole.errors import ConfigurationError, StorageError
from beanpole.exporting import compaction, directory, files, steps
from beanpole.exporting.directory import begun, held, listed, read_manifest
from beanpole.exports import MANIFEST, BadExport, File, file_name
from beanpole.places import Place, resolved
from beanpoled import cli
from beanpoled.eventlog.export import Export, compact
from pyspark_beanpole.exports import opened
from tests.unit.eventlog.served import Server, life_of, serving
from tests.unit.eventlog.test_service import history
from tests.unit.exporting.made import batch, offsets

JOBS = dict.fromkeys(("ready", "reserved", "delayed", "buried"), 0)


def test_nodes_are_exported_and_read(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    life = life_of(history(5))
    with serving(Server(life)) as addresses:
        where = ["--addresses", ",".join(addresses), "--to", bucket]
        assert cli.main(["events", "export", *where]) == 0
        life.driver.number = len(life.driver.entries)
        life.driver.put(25)
        assert cli.main(["events", "export", *where]) == 0
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == "25 events written; s3a://events/out has 0 to 175"
    )
    assert offsets(opened(bucket)) == list(range(175))
    assert cli.main(["events", "compact", bucket]) == 0
    assert offsets(opened("s3://events/out/")) == list(range(175))


def test_an_endpoint_may_stand_in_the_name(
    bucket: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    name = f"{bucket}?endpoint_override={server}&scheme=http"
    with begun(resolved(name), "c", JOBS) as out:
        out.add(files.write_range(out.place, "c", [batch(0, 10)]))
    assert offsets(opened(name)) == list(range(10))


def test_damages_are_named(bucket: str) -> None:
    place = resolved(bucket)
    with begun(place, "c", JOBS) as out:
        for first in range(0, 30, 10):
            out.add(files.write_range(place, "c", [batch(first, 10)]))
    name = file_name("1970-01-01", 10, 20)
    whole = place.files.open_input_stream(place.at(name)).read()
    steps.put(place, name, whole[:50] + b"?" + whole[51:])
    with pytest.raises(BadExport, match="is damaged: its checksum is not that of the manifest"):
        offsets(opened(bucket))
    steps.remove(place, name)
    with pytest.raises(BadExport, match=f"{name} is not there"):
        opened(bucket)
    with pytest.raises(ConfigurationError, match=r"none is not a directory that .* wrote"):
        opened("s3://events/none")
    with pytest.raises(ConfigurationError, match="it has no _manifest"):
        opened("s3://nobucket/none")


@pytest.mark.slow  # it takes seconds
def test_a_store_that_does_not_answer_is_told_from_one_that_is_empty() -> None:
    with pytest.raises(StorageError, match=r"s3://events/out/_manifest.json cannot be read: .*"):
        opened("s3://test:test@events/out?endpoint_override=127.0.0.1:1&scheme=http&region=x")


def test_one_process_writes_at_a_time(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = resolved(bucket)
    out = begun(place, "c", JOBS)
    with pytest.raises(ConfigurationError, match=r"another export runs in s3a://events/out: on"):
        held(place)
    out.close()
    first = held(place)
    assert first is not None
    # After too long a silence the owner counts as dead, and must write nothing when it wakes up.
    monkeypatch.setattr(directory, "OWNER_SILENT_MAX_S", 0)
    second = held(place)
    assert second is not None
    with pytest.raises(BadExport, match="was taken by another export, on "):
        first.add(files.write_range(place, "c", [batch(0, 10)]))
    first.close()
    second.add(files.write_range(place, "c", [batch(0, 20)]))
    second.close()
    found = read_manifest(place)
    assert found is not None and found.owner is None and found.spans == ((0, 20),)


@pytest.mark.parametrize("off_s", [-400, 3600, 31_536_000])
def test_machines_whose_clocks_differ_tell_whether_an_export_runs(
    off_s: int, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = resolved(bucket)
    now = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + off_s)
        begun(place, "c", JOBS)
    with pytest.raises(ConfigurationError, match=r", \d+ s ago; .* wait for (2\d\d|300) s$"):
        held(place)
    monkeypatch.setattr(directory, "OWNER_SILENT_MAX_S", 0)
    second = held(place)
    assert second is not None
    second.close()
    assert list(listed(place)) == [MANIFEST]


@pytest.mark.parametrize("has_ended", [False, True])
def test_an_export_that_was_taken_over_leaves_no_file(
    has_ended: bool, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = resolved(bucket)
    suspended = begun(place, "c", JOBS)
    monkeypatch.setattr(directory, "OWNER_SILENT_MAX_S", 0)
    second = held(place)
    assert second is not None
    second.add(files.write_range(place, "c", [batch(0, 100)]))
    if has_ended:
        second.close()
    # It finds that out before it gives a file its name,
    export = Export(suspended)
    export.write(batch(0, 60))
    with pytest.raises(BadExport, match="was taken by another export, "):
        export.flush()
    assert offsets(opened(bucket)) == list(range(100))
    # or it was suspended behind that look, and removes what no other process counts.
    for rows in (60, 100):
        with pytest.raises(BadExport, match="was taken by another export, "):
            suspended.add(files.write_range(place, "c", [batch(0, rows)]))
        assert offsets(opened(bucket)) == list(range(100))
    export.close()
    second.close()


def test_an_export_that_is_taken_over_between_two_files_of_a_batch_leaves_none(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = resolved(bucket)
    suspended = begun(place, "c", JOBS)
    monkeypatch.setattr(directory, "OWNER_SILENT_MAX_S", 0)
    taken: list[directory.Directory] = []
    put = steps.put

    def put_last(place: Place, name: str, content: Any) -> None:
        put(place, name, content)
        if not taken and name != MANIFEST and not name.startswith(files.HIDDEN):
            # Before this file appears there.
            steps.remove(place, name)
            taken.append(held(place) or pytest.fail("there is none"))
            taken[0].add(files.write_range(place, "c", [batch(0, 100)]))
            put(place, name, content)

    export = Export(suspended)
    export.write(batch(0, 60))
    with monkeypatch.context() as patch:
        patch.setattr(steps, "put", put_last)
        with pytest.raises(BadExport, match="was taken by another export, "):
            # Two dates: the first file is finished by this batch, as is the second by the next.
            export.write(pa.concat_batches([batch(60, 20, 1), batch(80, 20, 2)]))
    assert offsets(opened(bucket)) == list(range(100))
    export.close()
    taken[0].close()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_merge_of_an_export_that_was_taken_over_changes_nothing(
    is_late: bool, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is taken before the look at its owner, or after it."""
    place = resolved(bucket)
    suspended = begun(place, "c", JOBS)
    for first in range(0, 30, 10):
        suspended.add(files.write_range(place, "c", [batch(first, 10)]))
    taken: list[directory.Directory] = []

    def write(*arguments: Any) -> list[File]:
        monkeypatch.setattr(directory, "OWNER_SILENT_MAX_S", 0)
        other = held(place)
        assert other is not None
        taken.append(other)
        return files.write_range(*arguments[: 4 if is_late else 5])

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "write_range", write)
        with pytest.raises(BadExport, match="was taken by another export, "):
            compaction.merge(suspended, suspended.manifest.files)
    assert offsets(opened(bucket)) == list(range(30))
    compaction.merge(taken[0], taken[0].manifest.files)
    assert offsets(opened(bucket)) == list(range(30))
    taken[0].close()


def test_a_running_export_says_that_it_lives(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = resolved(bucket)
    with begun(place, "c", JOBS) as out:
        steps.remove(place, MANIFEST)
        out.touch()
        assert read_manifest(place) is None
        monkeypatch.setattr(directory, "OWNER_PERIOD_S", -1)
        out.touch()
        found = read_manifest(place)
        assert found is not None and found.owner == out.manifest.owner is not None


def test_a_running_export_is_not_silent_because_its_clock_is_set_back(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = resolved(bucket)
    now_s = time.time()
    with begun(place, "c", JOBS) as out:
        for after_s in (-3600, -3540, -3480):
            monkeypatch.setattr(time, "time", lambda at_s=now_s + after_s: at_s)
            out.touch()
            found = read_manifest(place)
            assert found is not None and found.owner is not None
            assert found.owner.at_s == int(now_s + after_s)


def test_what_was_cut_off_is_removed_and_what_is_whole_counts(bucket: str) -> None:
    place = resolved(bucket)
    with begun(place, "c", JOBS):
        files.write_range(place, "c", [batch(0, 10)])
        steps.put(place, file_name("1970-01-01", 10, 20), b"PAR1")
    assert offsets(opened(bucket)) == []
    with held(place) or pytest.fail("there is none") as out:
        assert out.manifest.spans == ((0, 10),)
    assert sorted(name for name in listed(place) if name[0] == "d") == [
        file_name("1970-01-01", 0, 10)
    ]


def test_small_objects_become_large_ones(bucket: str) -> None:
    place = resolved(bucket)
    with begun(place, "c", JOBS) as out:
        for first in range(0, 50, 10):
            out.add(files.write_range(place, "c", [batch(first, 10, first // 30)]))
    assert compact(bucket, "") == (5, 2)
    assert offsets(opened(bucket)) == list(range(50))
    assert len(listed(place)) == 3
