"""Continued and compacted export directories: each event counts once despite kills."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.errors import StorageError
from beanpole.exporting import compaction, directory, files
from beanpole.exporting.directory import held, listed, read_manifest
from beanpole.exports import BadExport, File, Manifest, file_name
from beanpole.places import resolved
from beanpoled.eventlog.export import compact
from pyspark_beanpole.exports import opened
from tests.unit.exporting.made import batch, exported, offsets

OLD = Path(__file__).resolve().parents[2] / "fixtures" / "export-0.3.0"


def manifest(path: Path) -> Manifest:
    found = read_manifest(resolved(str(path)))
    assert found is not None
    return found


def visible(path: Path) -> list[str]:
    return sorted(name for name in listed(resolved(str(path))) if name.startswith("date="))


def test_a_manifest_whose_path_the_system_refuses_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        read_manifest(resolved(str(tmp_path / ("x" * 300))))


def test_a_manifest_that_is_a_pipe_is_not_read(tmp_path: Path) -> None:
    """Nobody may ever write to it."""
    os.mkfifo(tmp_path / "_manifest.json")
    with pytest.raises(
        StorageError, match=r"_manifest\.json cannot be read: it is no regular file"
    ):
        read_manifest(resolved(str(tmp_path)))


# --- version 1 ------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Make a directory as release 0.3.0 wrote it."""
    shutil.copytree(OLD, tmp_path / "old")
    return tmp_path / "old"


def test_an_export_of_release_0_3_0_is_read(old: Path) -> None:
    export = opened(str(old))
    assert (export.cluster, export.spans) == ("c", ((10, 85),))
    assert offsets(export) == list(range(10, 85))
    assert offsets(export, 35, 65) == list(range(35, 65))
    assert export.changes(85) is None
    export.verify_all()


def test_what_names_and_counts_tell_of_damages_is_told(old: Path) -> None:
    names = visible(old)
    content = (old / names[1]).read_bytes()
    (old / names[1]).unlink()
    with pytest.raises(BadExport, match="old has no file with the events 40 to 59"):
        opened(str(old))
    assert offsets(opened(str(old), allow_missing=True)) == [*range(10, 40), *range(60, 85)]
    (old / names[1]).write_bytes((old / names[0]).read_bytes())
    with pytest.raises(BadExport, match=r"0040-0*60\.parquet has 30 events; its name says 20"):
        opened(str(old)).verify_all()
    (old / names[1]).write_bytes(content)
    (old / file_name("2024-10-04", 50, 70)).write_bytes(content)
    with pytest.raises(BadExport, match=r"0050-0*70\.parquet has events of .*0040-0*60.* again"):
        opened(str(old))


def test_an_export_of_release_0_3_0_is_raised_and_continued(old: Path) -> None:
    before = visible(old)
    with held(resolved(str(old)), "c") or pytest.fail("there is none") as out:
        assert manifest(old).version == 2
        out.add(files.write_range(out.place, "c", [batch(85, 5, 20001)]))
    assert [file.name for file in manifest(old).files][:3] == before
    assert manifest(old).jobs_before == {"ready": 3, "reserved": 0, "delayed": 0, "buried": 0}
    assert offsets(opened(str(old))) == list(range(10, 90))
    assert compact(str(old), "") == (4, 2)
    assert offsets(opened(str(old))) == list(range(10, 90))


def test_what_is_lost_when_it_is_raised_becomes_a_hole(old: Path) -> None:
    (old / visible(old)[1]).unlink()
    with held(resolved(str(old)), "c") or pytest.fail("there is none") as out:
        assert "has no file with the events 40 to 59" in out.lost[0]
    assert manifest(old).spans == ((10, 40), (60, 85))
    with pytest.raises(BadExport, match="has no events 40 to 59"):
        opened(str(old))


# --- compaction -----------------------------------------------------------------------------------

SMALL = [(0, 7, 0), (7, 3, 0), (10, 10, 0), (30, 10, 0), (40, 5, 0), (45, 5, 1), (50, 20, 1)]
EVENTS = [*range(20), *range(30, 70)]


def test_small_files_of_a_date_become_one(tmp_path: Path) -> None:
    exported(tmp_path / "out", SMALL)
    before = opened(str(tmp_path / "out"), allow_missing=True)
    rows = pa.Table.from_batches(before.read())
    assert compact(str(tmp_path / "out"), "1970-01-02") == (7, 4)
    assert compact(str(tmp_path / "out"), "") == (4, 3)
    assert compact(str(tmp_path / "out"), "") == (3, 3)
    assert visible(tmp_path / "out") == [
        file_name("1970-01-01", 0, 20),
        file_name("1970-01-01", 30, 45),
        file_name("1970-01-02", 45, 70),
    ]
    after = opened(str(tmp_path / "out"), allow_missing=True)
    assert pa.Table.from_batches(after.read()).equals(rows)
    assert after.changes(70) == before.changes(70)


def test_files_grow_no_larger_than_they_may(tmp_path: Path) -> None:
    made = exported(tmp_path / "out", [(first, 10, 0) for first in range(0, 100, 10)])
    groups = compaction.groups(made, rows_max=35)
    assert [[file.first for file in group] for group in groups] == [
        [0, 10, 20], [30, 40, 50], [60, 70, 80],
    ]  # fmt: skip


def test_files_of_other_columns_are_merged(tmp_path: Path) -> None:
    place = resolved(str(tmp_path / "out"))
    new = batch(10, 5).append_column("later", pa.array(["x"] * 5))
    exported(tmp_path / "out", [(0, 10, 0)])
    with held(place) or pytest.fail("there is none") as out:
        out.add(files.write_range(place, "c", [new]))
    assert compact(str(tmp_path / "out"), "") == (2, 1)
    [file] = manifest(tmp_path / "out").files
    assert pq.read_table(place.at(file.name))["later"].to_pylist() == [None] * 10 + ["x"] * 5


class Killed(BaseException):
    """SIGKILL: no handler runs."""


def mortal(left: list[int], real: Any) -> Any:
    def call(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(*arguments, **named)

    return call


def kept_in(found: list[Any], real: Any) -> Any:
    def call(*arguments: Any) -> Any:
        found.append(real(*arguments))
        return found[-1]

    return call


STEPS_MAX = 90


@pytest.mark.slow
def test_a_compaction_that_is_killed_at_any_step_leaves_what_reads_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(tmp_path / "out", SMALL)
    for steps in range(STEPS_MAX):
        path = tmp_path / f"{steps}"
        shutil.copytree(tmp_path / "out", path)
        left = [steps]
        locks: list[Any] = []
        with monkeypatch.context() as patched:
            patched.setattr(directory, "_locked", kept_in(locks, directory._locked))
            patched.setattr(files._Unfinished, "drop", lambda self: self._sink.close())
            for name in ("fsync", "rename", "unlink"):
                patched.setattr(os, name, mortal(left, getattr(os, name)))
            with contextlib.suppress(Killed):
                compact(str(path), "")
        for lock in locks:
            lock.close()  # as the system does for a killed process
        assert offsets(opened(str(path), allow_missing=True)) == EVENTS
        assert opened(str(path), allow_missing=True).missing == ((20, 30),)
        assert compact(str(path), "")[1] == 3
        assert len(visible(path)) == 3
        assert offsets(opened(str(path), allow_missing=True)) == EVENTS
        if left[0] >= 0:
            break
    assert 30 < steps < STEPS_MAX - 1


def test_a_damaged_file_is_not_merged(tmp_path: Path) -> None:
    made = exported(tmp_path / "out", SMALL)
    path = tmp_path / "out" / made[1].name
    content = path.read_bytes()
    path.write_bytes(content[:60] + b"?" + content[61:])
    with pytest.raises(BadExport, match=f"{path.name} is damaged"):
        compact(str(tmp_path / "out"), "")
    assert visible(tmp_path / "out") == [file.name for file in made]
    path.unlink()
    with pytest.raises(BadExport, match=f"{path.name} is not there"):
        compact(str(tmp_path / "out"), "")
    path.write_bytes(content)
    assert offsets(opened(str(tmp_path / "out"), allow_missing=True)) == EVENTS


def test_replaced_files_stay_for_a_while_and_do_not_count(tmp_path: Path) -> None:
    exported(tmp_path / "out", [(first, 10, 0) for first in range(0, 30, 10)])
    place = resolved(str(tmp_path / "out"))
    with held(place) or pytest.fail("there is none") as out:
        compaction.merge(out, out.manifest.files, grace_s=1000)
        out.clean()
    assert len(visible(tmp_path / "out")) == 4
    assert offsets(opened(str(tmp_path / "out"))) == list(range(30))
    with held(place) or pytest.fail("there is none") as out:
        assert len(visible(tmp_path / "out")) == 4
        out.manifest = out.manifest._replace(
            uncounted=dict.fromkeys(out.manifest.uncounted, 1)  # a thousand seconds later
        )
        out.clean()
    assert visible(tmp_path / "out") == [file_name("1970-01-01", 0, 30)]


# --- by itself ------------------------------------------------------------------------------------


def made_up(first: int, rows: int, date: str) -> File:
    return File(file_name(date, first, first + rows), first, first + rows, rows, 0)


def growing(sizes: list[int], dates: int, rows_max: int) -> tuple[list[File], int]:
    """Add files, with one compaction step each; return the final files, and the rows rewritten."""
    there: list[File] = []
    written = end = 0
    for number, rows in enumerate(sizes):
        date = f"2026-01-{1 + number * dates // len(sizes):02}"
        there.append(made_up(end, rows, date))
        end += rows
        group = compaction.due(there, 8, rows_max)
        if group:
            place = there.index(group[0])
            assert there[place : place + len(group)] == list(group) and len(group) > 1
            assert len({file.date for file in group}) == 1
            total = sum(file.rows for file in group)
            assert total <= rows_max
            written += total
            there[place : place + len(group)] = [made_up(group[0].first, total, group[0].date)]
        assert [file.first for file in there[1:]] == [file.end for file in there[:-1]]
    return there, written


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=400),
    dates=st.integers(1, 3),
    rows_max=st.sampled_from([500, 1_000_000]),
)
def test_a_running_export_keeps_few_files_with_bounded_work(
    sizes: list[int], dates: int, rows_max: int
) -> None:
    there, written = growing(sizes, dates, rows_max)
    logarithm = len(sizes).bit_length()
    # At most two runs that are not long enough, the growing runs, and full files.
    assert len(there) <= dates * (2 * 8 + logarithm) + 2 * sum(sizes) // rows_max
    assert written <= logarithm * sum(sizes)


def test_an_event_is_written_again_as_often_as_the_logarithm_of_the_files() -> None:
    there, written = growing([100] * 2880, 1, 1_000_000)
    assert len(there) <= 8 + 9
    assert written <= 6 * 288_000


def test_what_is_left_of_a_date_is_merged_when_the_next_has_begun() -> None:
    there = [made_up(10 * n, 10, "2026-01-01") for n in range(5)]
    assert compaction.due(there) == ()
    there.append(made_up(50, 10, "2026-01-02"))
    assert compaction.due(there) == tuple(there[:5])
