"""Reading an export: complete files are read in order, and problems are reported by name."""

import json
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.errors import BeanpoleError, ConfigurationError
from beanpole.exporting import compaction, files
from beanpole.exporting.directory import held, listed
from beanpole.exports import MANIFEST, BadExport, File, file_name
from beanpole.places import resolved
from pyspark_beanpole import exports
from pyspark_beanpole.exports import Opened, opened
from tests.unit.exporting.made import DAMAGES, batch, damaged, exported, offsets

PARTS = [(10, 30, 0), (40, 20, 0), (60, 25, 1), (85, 40, 1), (125, 5, 2)]


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Path, list[File]]:
    """Make an export of five files on three dates."""
    return tmp_path / "out", exported(tmp_path / "out", PARTS)


Whole = tuple[Path, list[File]]


def test_a_whole_export_is_read_in_order(whole: Whole) -> None:
    export = opened(str(whole[0]))
    assert (export.cluster, export.spans, export.missing) == ("c", ((10, 130),), ())
    assert (export.first, export.end, export.rows) == (10, 130, 120)
    assert dict(export.jobs_before) == {"ready": 3}
    assert offsets(export) == list(range(10, 130))
    assert offsets(export, 39, 86) == list(range(39, 86))
    assert offsets(export, 130, 200) == []
    export.verify_all()
    assert opened(f"file:{whole[0]}").files == export.files


@pytest.mark.slow  # it takes seconds
def test_slices_are_cut_from_large_files_too(tmp_path: Path) -> None:
    place = resolved(str(tmp_path / "out"))
    rows = 2 * files.GROUP_ROWS + 17
    parts = [batch(first, 20_000) for first in range(0, rows - 20_000, 20_000)]
    end = parts[-1].column("offset")[-1].as_py() + 1
    [file] = files.write_range(place, "c", [*parts, batch(end, rows - end)])
    metadata = pq.read_metadata(place.at(file.name))
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert groups == [files.GROUP_ROWS, files.GROUP_ROWS, 17]
    for first, end in ((0, rows), (5, 6), (files.GROUP_ROWS, rows - 1), (131_000, 131_080)):
        found = files.read_file(place, file, "c", first, end)
        assert [row for one in found for row in one.column("offset").to_pylist()] == list(
            range(first, end)
        )


def test_the_same_events_are_the_same_file_however_they_come(tmp_path: Path) -> None:
    """A repeated task of Spark must write the file that the manifest of the first attempt lists."""
    whole = batch(0, 1000)
    found = [
        files.write_range(resolved(str(tmp_path / str(size))), "c", cut(whole, size))
        for size in (1000, 7, 300)
    ]
    assert found[0] == found[1] == found[2]


def cut(rows: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
    return [rows.slice(first, size) for first in range(0, rows.num_rows, size)]


def test_changes_of_the_counts_of_jobs_are_added_up_from_metadata(whole: Whole) -> None:
    export = opened(str(whole[0]))
    for before in (40, 85, 130):
        expected: dict[str, dict[str, int]] = {}
        for rows in export.read(end=before):
            for row in rows.to_pylist():
                change = expected.setdefault(
                    row["tube"], dict.fromkeys(("ready", "reserved", "delayed", "buried"), 0)
                )
                for state, by in ((row["state"], 1), (row["state_before"], -1)):
                    if state in change:
                        change[state] += by
        found = export.changes(before)
        assert found is not None
        assert {t: c for t, c in found.items() if any(c.values())} == {
            t: c for t, c in expected.items() if any(c.values())
        }
    assert export.changes(10) == {}


@pytest.mark.parametrize("what", DAMAGES)
def test_each_damage_is_one_line_that_names_the_file(what: str, whole: Whole) -> None:
    name = damaged(*whole, what)
    with pytest.raises(BadExport) as raised:
        opened(str(whole[0])).verify_all()
    assert name in str(raised.value) and "\n" not in str(raised.value)
    with pytest.raises(BadExport):
        offsets(opened(str(whole[0])))
    export = opened(str(whole[0]), allow_missing=True)
    lost = what not in ("doubled", "on another date", "unknown")
    assert export.missing == (((40, 60),) if lost else ())
    assert len(export.notes) == 1 and name in export.notes[0]
    assert offsets(export) == [n for n in range(10, 130) if not (lost and 40 <= n < 60)]


def test_holes_between_the_events_are_an_error_unless_they_are_allowed(tmp_path: Path) -> None:
    exported(tmp_path / "out", [(0, 10, 0), (20, 10, 0)])
    with pytest.raises(BadExport, match=r"out has no events 10 to 19: they were gone when"):
        opened(str(tmp_path / "out"))
    export = opened(str(tmp_path / "out"), allow_missing=True)
    assert (export.spans, export.missing) == (((0, 10), (20, 30)), ((10, 20),))
    assert offsets(export) == [*range(10), *range(20, 30)]


def test_what_is_no_export_is_refused(tmp_path: Path, whole: Whole) -> None:
    for text, words in (
        (None, "it has no _manifest.json"),
        ("{", "is not what `beanpole events export` wrote"),
        ('{"version": 3}', "is of version 3; this program knows 1 and 2"),
        ('{"version": "2"}', "is of version '2'; this program knows 1 and 2"),
        ('{"version": true}', "is of version True; this program knows 1 and 2"),
        (f'{{"version": "{99 * "2"}"}}', f"is of version '{39 * '2'}; this program knows"),
        ('{"version": 1, "cluster": "c"}', "is not what `beanpole events export` wrote"),
    ):
        if text is not None:
            (whole[0] / MANIFEST).write_text(text)
        directory = tmp_path / "none" if text is None else whole[0]
        with pytest.raises(ConfigurationError, match=words):
            opened(str(directory))
    with pytest.raises(ConfigurationError, match="ftp://x/y is not allowed: it must be a path or"):
        opened("ftp://x/y")


# --- directories that change at that moment -------------------------------------------------------


def test_a_file_that_is_not_listed_yet_does_not_count_yet(whole: Whole) -> None:
    directory, _ = whole
    files.write_range(resolved(str(directory)), "c", [batch(130, 10, 2)])
    assert offsets(opened(str(directory))) == list(range(10, 130))


def compacted(directory: Path) -> None:
    with held(resolved(str(directory))) or pytest.fail("there is none") as out:
        for group in compaction.groups(out.manifest.files):
            compaction.merge(out, group)


def test_a_reader_that_began_before_a_compaction_reads_each_event_once(whole: Whole) -> None:
    export = opened(str(whole[0]))
    reading = export.read()
    found = next(reading).column("offset").to_pylist()
    compacted(whole[0])
    assert not any((whole[0] / file.name).exists() for file in export.files[:4])
    for rows in reading:
        found += rows.column("offset").to_pylist()
    assert found == list(range(10, 130))
    assert offsets(export, 55, 90) == list(range(55, 90))
    export.verify_all()
    assert export.changes(60) == opened(str(whole[0])).changes(60)
    assert export.changes(40) is None


def test_a_compaction_between_manifest_and_listing_is_looked_at_again(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = listed

    def late(place: Any) -> dict[str, int]:
        monkeypatch.setattr(exports, "listed", real)
        compacted(whole[0])
        return real(place)

    monkeypatch.setattr(exports, "listed", late)
    assert offsets(opened(str(whole[0]))) == list(range(10, 130))


def test_a_file_that_vanishes_for_good_is_an_error(whole: Whole) -> None:
    export = opened(str(whole[0]))
    (whole[0] / export.files[3].name).unlink()
    with pytest.raises(BadExport, match=r"events-0*85-0*125\.parquet is not there"):
        offsets(export)


def test_readers_beside_an_export_that_compacts_read_each_event_once(tmp_path: Path) -> None:
    """Threads in any order: a reader finds a prefix of the events, and no less than before."""
    place = resolved(str(tmp_path / "out"))
    done = threading.Event()
    exported(tmp_path / "out", [(0, 10, 0)])

    def export() -> None:
        try:
            with held(place) or pytest.fail("there is none") as out:
                for first in range(10, 600, 10):
                    out.add(files.write_range(place, "c", [batch(first, 10)]))
                    if group := compaction.due(out.manifest.files, 4):
                        compaction.merge(out, group)
        finally:
            done.set()

    thread = threading.Thread(target=export)
    thread.start()
    seen = looks = 0
    while not done.is_set() or not looks:
        found = offsets(opened(str(tmp_path / "out")))
        assert found == list(range(len(found))) and len(found) >= seen
        seen = len(found)
        looks += 1
    thread.join()
    assert offsets(opened(str(tmp_path / "out"))) == list(range(600))


# --- anything may happen --------------------------------------------------------------------------


def damage(directory: Path, dice: random.Random) -> None:
    """Do one kind of random damage to a directory."""
    paths = sorted(directory.glob("date=*/*"))
    if not paths:
        return
    path = dice.choice(paths)
    content = bytearray(path.read_bytes())
    manifest = directory / MANIFEST
    match dice.randrange(8):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(content[: dice.randrange(len(content) + 1)])
        case 2:
            for _ in range(dice.randint(1, 4)):
                if content:
                    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
            path.write_bytes(content)
        case 3:
            first = dice.randrange(140)
            name = file_name("1970-01-01", first, first + dice.randint(1, 40))
            (directory / name).write_bytes(content)
        case 4:
            path.write_bytes(b"")
        case 5:
            pq.write_table(pa.table({"offset": [1, 2, 3]}), dice.choice([path, directory / "x"]))
        case 6:
            text = bytearray(manifest.read_bytes())
            text[dice.randrange(len(text))] = dice.choice(b'0123456789{}[],"ax')
            manifest.write_bytes(text)
        case 7:
            said = json.loads(manifest.read_bytes())
            del said["files"][dice.randrange(len(said["files"]))]
            manifest.write_text(json.dumps(said))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an export to copy."""
    directory = tmp_path_factory.mktemp("template") / "out"
    exported(directory, PARTS)
    return directory


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 3), allowed=st.booleans())
def test_never_fewer_events_than_the_manifest_says_without_an_error(
    seed: int,
    count: int,
    allowed: bool,
    template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    dice = random.Random(seed)
    directory = tmp_path_factory.mktemp("any") / "out"
    shutil.copytree(template, directory)
    for _ in range(count):
        try:
            damage(directory, dice)
        except (ValueError, KeyError):
            break  # the manifest is no longer JSON, or lists its files under another key
    try:
        export: Opened | None = opened(str(directory), allow_missing=allowed)
        found = offsets(export) if export is not None else []
    except BeanpoleError as error:
        assert "\n" not in str(error)
        return
    assert export is not None
    missing = [n for first, end in export.missing for n in range(first, end)]
    assert sorted(found + missing) == list(range(10, 130))
    assert found == sorted(found)
    assert allowed or not missing
    assert bool(missing) <= bool(export.notes)
