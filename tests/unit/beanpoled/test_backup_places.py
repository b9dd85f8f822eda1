"""Where `beanpole backup --to` writes: places that are refused, and those that take no more."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from beanpoled import cli
from beanpoled.cli import backup as command
from beanpoled.cli import exits
from tests.unit.beanpoled.backup_scene import Image

TIMEOUT_S: Final = 60.0
# The recorded backup without end: it is larger than what a pipe holds.
ENDLESS: Final = """
import itertools, sys
from beanpoled import cli
from beanpoled.cli import backup
from tests.unit.beanpoled.backup_scene import Image

class Endless(Image):
    def chunks(self):
        return itertools.repeat(bytes(65536))

class Contents(backup.Contents):
    def take(self, chunk):
        pass

backup.Stream, backup.Contents = Endless, Contents
sys.exit(cli.main(["backup", "--addr", "127.0.0.1:1", "--to", "-"]))
"""


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Stream", Image)


def backup(to: Path, *words: str) -> int:
    return cli.main(["backup", "--addr", "127.0.0.1:1", "--to", str(to), *words])


def test_a_reader_that_goes_away_makes_a_backup_fail() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as program:
        assert program.stdout is not None and program.stderr is not None
        assert len(program.stdout.read(1000)) == 1000
        program.stdout.close()
        said = program.stderr.read().decode()
        assert program.wait(TIMEOUT_S) == exits.EXIT_NO_ANSWER, said
    assert said.splitlines()[0] == (
        "beanpole: --to -: the reader closed the pipe; the backup is not complete"
    )
    assert "BrokenPipe" not in said


@pytest.mark.parametrize("words", [(), ("--replace",)])
def test_what_is_no_regular_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "fifo")
    before = sorted(os.listdir(tmp_path))
    for name, what in (("folder", "a folder"), ("link", "a folder"), ("fifo", "no regular file")):
        assert backup(tmp_path / name, *words) == exits.EXIT_REFUSED
        told = capsys.readouterr().err
        assert told == f"beanpole: --to {tmp_path / name}: it is {what}; name a file\n"
    assert sorted(os.listdir(tmp_path)) == before


def test_a_link_to_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    (tmp_path / "link").symlink_to("file")
    assert backup(tmp_path / "link") == exits.EXIT_REFUSED
    assert backup(tmp_path / "link", "--replace") == 0
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "before"


def test_a_folder_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backup(tmp_path / "a" / "file") == exits.EXIT_REFUSED
    assert f"the folder {tmp_path / 'a'} does not exist\n" in capsys.readouterr().err
    (tmp_path / "a").touch()
    assert backup(tmp_path / "a" / "file") == exits.EXIT_REFUSED
    assert f"the folder {tmp_path / 'a'} is no folder\n" in capsys.readouterr().err


def test_a_full_disk_is_named_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert backup(tmp_path / "file") == exits.EXIT_NO_ANSWER
    assert capfd.readouterr().err == f"beanpole: {tmp_path / 'file'}.partial: the disk is full\n"
    assert os.listdir(tmp_path) == []


def test_nothing_stays_where_the_file_cannot_get_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(21, "Is a directory", source, None, target)

    monkeypatch.setattr(os, "rename", refuse)
    assert backup(tmp_path / "file") == exits.EXIT_NO_ANSWER
    assert os.listdir(tmp_path) == []
