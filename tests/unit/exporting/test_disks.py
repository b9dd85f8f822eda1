"""Export directories on disks that are full, or that lose what was not synced."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beanpole.errors import ConfigurationError
from beanpole.exporting import compaction, files, steps
from beanpole.exporting.directory import begun, held, listed, read_manifest
from beanpole.exports import MANIFEST, Manifest, written
from beanpole.places import resolved
from beanpoled.eventlog.export import open_export
from pyspark_beanpole.exports import opened
from tests.unit.exporting.made import batch, exported, offsets

FULL = OSError(28, "No space left on device")
FOR_EVER = 1 << 30


class Full:
    """A file that refuses some writes."""

    def __init__(self, file: Any, before: int, refused: int) -> None:
        self._file = file
        self._before = before
        self._refused = refused

    def write(self, data: Any) -> int:
        self._before -= 1
        if self._before < 0 and self._refused:
            self._refused -= 1
            raise FULL
        written: int = self._file.write(data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "Full":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def filling(before: int, refused: int) -> Callable[..., Full]:
    real = files._open
    return lambda place, name: Full(real(place, name), before, refused)


def test_a_file_that_a_disk_does_not_sync_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export ended with `Input/output error` and nothing else."""
    exported(tmp_path / "out", [(0, 10, 0)])

    def refuse(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    place = resolved(str(tmp_path / "out"))
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/out/{MANIFEST}'"):
        steps.write_whole(place, MANIFEST, b"{}")
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/out'"):
        steps.sync_folder(str(tmp_path / "out"))
    with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/out/date=.*/"):
        files.write_range(place, "c", [batch(10, 20, 0)])


@pytest.mark.parametrize("refused", [1, FOR_EVER])
@pytest.mark.parametrize("before", [0, 1, 2, 7, 20])
def test_a_file_that_a_full_disk_cut_off_gets_no_name(
    before: int, refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(tmp_path / "out", [(0, 10, 0)])
    monkeypatch.setattr(files, "GROUP_ROWS", 20)
    out = open_export(str(tmp_path / "out"), "c")
    assert out is not None
    with monkeypatch.context() as patched:
        patched.setattr(files, "_open", filling(before, refused))
        with pytest.raises(OSError, match="No space left"):
            for first in (10, 30, 50):
                out.write(batch(first, 20))
        # As the command does after any error.
        out.flush()
        out.close()
    assert [name for name in listed(resolved(str(tmp_path / "out"))) if "events-" in name] == [
        file.name for file in opened(str(tmp_path / "out")).files
    ]
    again = open_export(str(tmp_path / "out"), "c")
    assert again is not None and again.end == 10
    again.write(batch(10, 30))
    again.flush()
    again.close()
    assert offsets(opened(str(tmp_path / "out"))) == list(range(40))


def test_a_file_that_cannot_be_finished_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = files.Writer(resolved(str(tmp_path)), "c")
    writer.write(batch(0, 10))

    def refuse(*_: object) -> None:
        raise FULL

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space left"):
            writer.finish()
    assert writer.finish() == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_merge_on_a_full_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = exported(tmp_path / "out", [(0, 10, 0), (10, 10, 0)])
    with held(resolved(str(tmp_path / "out"))) or pytest.fail("there is none") as out:
        monkeypatch.setattr(files, "_open", filling(3, FOR_EVER))
        with pytest.raises(OSError, match="No space left"):
            compaction.merge(out, made)
    assert sorted(path.name for path in (tmp_path / "out").glob("date=*/*")) == sorted(
        Path(file.name).name for file in made
    )


def test_a_merged_file_counts_although_the_write_of_its_manifest_failed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest was renamed, and then its folder could not be synced."""
    exported(tmp_path, [(0, 10, 0), (10, 10, 0)])
    place = resolved(str(tmp_path))
    out = held(place)
    assert out is not None

    def fail(path: str) -> None:
        manifest = read_manifest(place)
        if path == place.path and manifest is not None and len(manifest.files) == 1:
            raise FULL

    def fail_at_once(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(steps, "sync_folder", fail)
    with pytest.raises(OSError, match="No space left"):
        compaction.merge(out, out.manifest.files)
    assert offsets(opened(str(tmp_path))) == list(range(20))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(steps, "write_whole", fail_at_once)
        out.clean()
    # A process that is killed here leaves all events.
    assert offsets(opened(str(tmp_path))) == list(range(20))
    for _ in range(2):
        out.clean()
        assert offsets(opened(str(tmp_path))) == list(range(20))
    assert len(listed(place)) == len(out.manifest.files) + len({"_manifest.json", "_lock"})
    out.close()


def test_replaced_files_are_gone_for_good_before_the_manifest_forgets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could bring back files whose events another file has."""
    made = exported(tmp_path / "out", [(0, 10, 0), (10, 10, 0)])
    done: list[str] = []
    unlink, rename, sync = os.unlink, os.rename, steps.sync_folder

    def unlinked(path: str) -> None:
        done.append("unlink")
        unlink(path)

    def renamed(before: str, after: str) -> None:
        done.append(f"rename {Path(after).name}")
        rename(before, after)

    def synced(path: str) -> None:
        done.append(f"sync {Path(path).name}")
        sync(path)

    with held(resolved(str(tmp_path / "out"))) or pytest.fail("there is none") as out:
        monkeypatch.setattr(os, "unlink", unlinked)
        monkeypatch.setattr(os, "rename", renamed)
        monkeypatch.setattr(steps, "sync_folder", synced)
        compaction.merge(out, made)
    last = done.index("unlink")
    assert done[last:] == [
        "unlink", "unlink", "sync date=1970-01-01", f"rename {MANIFEST}", "sync out",
    ]  # fmt: skip


def test_all_folders_of_a_new_directory_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(steps, "sync_folder", synced.append)
    begun(resolved(str(tmp_path / "a" / "b")), "c", {}).close()
    assert {str(tmp_path), str(tmp_path / "a")} <= set(synced)


def test_a_directory_that_another_export_has_begun_meanwhile_is_kept(tmp_path: Path) -> None:
    place = resolved(str(tmp_path / "out"))
    assert held(place) is None
    exported(tmp_path / "out", [(0, 10, 0)])
    with pytest.raises(ConfigurationError, match=r"has begun in .*/out: start again"):
        begun(place, "c", {})
    assert offsets(opened(str(tmp_path / "out"))) == list(range(10))
    # It is not locked after that.
    with held(place) or pytest.fail("there is none"):
        pass


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "_manifest.json", ""])
def test_a_manifest_removes_files_of_events_only(name: str, tmp_path: Path) -> None:
    place = resolved(str(tmp_path / "out"))
    exported(tmp_path / "out", [(0, 10, 0)])
    (tmp_path / "outside").touch()
    found = read_manifest(place) or Manifest("c", {})
    (tmp_path / "out" / MANIFEST).write_text(written(found._replace(uncounted={name: 0})))
    with pytest.raises(ConfigurationError, match="is not the name of a file of events"):
        held(place)
    assert (tmp_path / "outside").exists()
