"""Data directories in which something else has the name of a file: `inspect`, `doctor`, `recover`.

Damaged files are in `test_offline` and `test_checking`.
"""

import os
from pathlib import Path

import pytest

from beanpole.storage.readonly import ReadOnlyFiles
from beanpoled.cli import main
from beanpoled.eventlog.segment import SUFFIX
from tests.unit.beanpoled.test_offline import new_disk

Capture = pytest.CaptureFixture[str]
# Much longer than any of these commands takes; only one that waits for the other end of a pipe is
# ended by it.
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    directory = tmp_path / "n2"
    directory.mkdir()
    new_disk(directory)
    (directory / "events").mkdir()
    return directory


def commands(disk: Path) -> list[list[str]]:
    return [
        ["inspect", str(disk)],
        ["doctor", str(disk)],
        ["recover", str(disk), "--to", str(disk.parent / "out")],
    ]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_pipe_among_the_files_of_events_is_named(
    number: int, disk: Path, capsys: Capture
) -> None:
    pipe = disk / "events" / f"0{SUFFIX}"
    os.mkfifo(pipe)
    line = commands(disk)[number]
    assert main(line) == (0 if line[0] == "recover" else 1)
    assert f"events: {pipe}: it is no regular file" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["identity", "clock"])
def test_a_pipe_in_place_of_a_record_is_named(name: str, disk: Path, capsys: Capture) -> None:
    (disk / name).unlink(missing_ok=True)
    os.mkfifo(disk / name)
    assert main(["doctor", str(disk)]) == 1
    assert f"{disk / name}: it is no regular file" in capsys.readouterr().out


def test_recover_goes_on_without_a_clock_that_is_a_pipe(disk: Path, capfd: Capture) -> None:
    """It waited for ever; a damaged clock does not end it either."""
    os.mkfifo(disk / "clock")
    out = disk.parent / "out"
    assert main(["recover", str(disk), "--to", str(out), "--yes"]) == 0
    words = f"{disk / 'clock'}: it is no regular file: the time in which no node ran will not count"
    assert words in capfd.readouterr().out
    assert out.exists()


def test_a_directory_in_place_of_a_file_is_told_without_its_number(
    disk: Path, capsys: Capture
) -> None:
    folder = disk / "events" / f"0{SUFFIX}"
    folder.mkdir()
    (disk / "clock").mkdir()
    words = f"{folder}: Is a directory"
    for line in (["inspect", str(disk)], ["inspect", str(disk), "--json"], ["doctor", str(disk)]):
        assert main(line) == 1
        told = capsys.readouterr().out
        assert f"events: {words}" in told and "Errno" not in told
    assert f"clock: {disk / 'clock'}: Is a directory" in told
    (disk / "identity").unlink()
    (disk / "identity").mkdir()
    assert main(["doctor", str(disk)]) == 1
    assert f": {disk / 'identity'}: Is a directory" in capsys.readouterr().out


def test_a_log_that_cannot_be_opened_is_told_without_its_number(
    disk: Path, capsys: Capture
) -> None:
    (segment,) = (disk / "log").iterdir()
    segment.unlink()
    segment.mkdir()
    assert main(["inspect", str(disk)]) == 1
    told = capsys.readouterr().out
    assert f"{segment}: Is a directory" in told and "Errno" not in told


def test_only_regular_files_are_open_afterwards(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = os.listdir("/proc/self/fd")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(OSError):
            ReadOnlyFiles().open(str(path))
    assert len(os.listdir("/proc/self/fd")) == len(before)
