"""Findings of `beanpoled --check` on a disk; the rest is in the integration test `test_check`."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from beanpole.storage.files import INODES_MIN
from beanpoled import checking
from beanpoled.checking import GOOD, WRONG, Finding
from tests.unit.node.stage import config


@pytest.mark.parametrize(
    ("inodes", "free_inodes", "weight"),
    [
        (1000, INODES_MIN - 1, WRONG),
        (1000, INODES_MIN, GOOD),
        (0, 0, GOOD),  # they are made when they are needed
    ],
)
def test_a_disk_without_inodes_is_full(
    inodes: int, free_inodes: int, weight: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_bavail=1 << 30, f_frsize=4096, f_files=inodes, f_favail=free_inodes)
    monkeypatch.setattr(os, "statvfs", lambda _path: disk)
    (found,) = checking._disk(config(data_dir=str(tmp_path / "later")))
    assert found.weight == weight
    assert (f"{free_inodes} inodes are free" in found.words) == (weight == WRONG)


def test_a_disk_without_bytes_is_not_said_to_lack_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_bavail=0, f_frsize=4096, f_files=1000, f_favail=1000)
    monkeypatch.setattr(os, "statvfs", lambda _path: disk)
    (found,) = checking._disk(config(data_dir=str(tmp_path)))
    assert found.weight == WRONG and found.words.startswith("0 MiB are free")


def test_a_path_that_the_system_does_not_show_is_not_said_to_be_missing(tmp_path: Path) -> None:
    """Such as one in a folder of another user; root, who runs tests, may look into any."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    why = f"Too many levels of symbolic links, at {loop}/below"
    found = checking._directory(config(data_dir=f"{loop}/below"))
    assert found == Finding(WRONG, f"data_dir {loop}/below cannot be used: {why}")
    address = f"unix:{loop}/below/socket"
    assert checking._unix(address) == Finding(WRONG, f"{address}: {why}")


def test_a_path_without_anything_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file" / "below", tmp_path):
        assert checking.hidden(str(path)) == ""
