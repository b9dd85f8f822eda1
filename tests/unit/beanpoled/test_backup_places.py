"""Where `beanpole backup --to` writes: places that are refused, and those that take no more."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

import grpc
import pytest

from beanpole.client import rpc
from beanpole.client.backup import Stream
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


# A restore that stands still in the middle of the first folder.
STUCK: Final = """
import itertools, select, sys
from beanpoled import cli
from beanpoled.disk import backups

begin = backups.restored

def restored(*given):
    yield from itertools.islice(begin(*given), 1)
    print("half", flush=True)
    # `signal.pause` would miss a signal that comes just before it. A loop that never waits would
    # miss one that a thread of gRPC takes: Python 3.11 tells the main thread when it next does.
    while True:
        select.select([], [], [], 0.1)

backups.restored = restored
sys.exit(cli.main(["restore", *sys.argv[1:]]))
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


def test_nodes_without_backups_are_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "Stream", Stream)
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    rounds: list[int] = []

    def pauses(_: float) -> Iterator[None]:
        while len(rounds) < 3:
            rounds.append(1)
            yield

    monkeypatch.setattr(rpc, "pauses", pauses)
    try:
        told = cli.main(["backup", "--addr", address, "--to", str(tmp_path / "b")])
    finally:
        server.stop(None)
    assert told == exits.EXIT_NO_ANSWER and len(rounds) == 1
    assert "its program is too old: it does not have this call" in capsys.readouterr().err


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


def test_standard_output_without_room_is_told_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    with open("/dev/full", "w") as output, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        assert backup(path) == exits.EXIT_NO_ANSWER
    words = f"beanpole: {path} is complete; standard output: the disk is full\n"
    assert capsys.readouterr().err == words
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("words", [(), ("--replace",)])
def test_the_file_of_a_backup_that_ends_meanwhile_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """The other backup gives its file the final name between our opening and our lock."""
    path, kept = tmp_path / "file", tmp_path / "kept"
    flock = fcntl.flock

    def late(stream: BinaryIO, operation: int) -> None:
        if not kept.exists():
            (tmp_path / "file.partial").write_text("of the other backup")
            os.rename(tmp_path / "file.partial", path)
            os.link(path, kept)
        flock(stream, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert backup(path, *words) == (0 if words else exits.EXIT_REFUSED)
    assert kept.read_text() == "of the other backup"
    assert path.samefile(kept) == (not words)
    assert sorted(os.listdir(tmp_path)) == ["file", "kept"]


def test_a_file_that_was_left_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "file.partial").write_text("left by a killed backup")
    (tmp_path / "file.partial").chmod(0o644)
    assert backup(tmp_path / "file") == 0
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("of another program")
    (tmp_path / "file.partial").symlink_to("other")
    assert backup(tmp_path / "file") == exits.EXIT_NO_ANSWER
    assert (tmp_path / "other").read_text() == "of another program"


def started(program: str, *words: object) -> "subprocess.Popen[str]":
    """Start a program that has `beanpole` in it."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_nothing_stays_of_a_backup_that_a_signal_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = ENDLESS.replace('"-"', repr(str(tmp_path / "file")))
    program = program.replace("itertools.repeat(bytes(65536))", "stuck()")
    stuck = """
import select, signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it is ignored where the tests run under `nohup`

def stuck():
    yield bytes(65536)
    print("half", flush=True)
    # `signal.pause` would miss a signal that comes just before it. A loop that never waits would
    # miss one that a thread of gRPC takes: Python 3.11 tells the main thread when it next does.
    while True:
        select.select([], [], [], 0.1)
"""
    with started(stuck + program) as ending:
        assert ending.stdout is not None and ending.stdout.readline() == "half\n"
        assert os.listdir(tmp_path) == ["file.partial"]
        ending.send_signal(number)
        assert ending.wait(TIMEOUT_S) == -number
    assert os.listdir(tmp_path) == []


def test_a_thread_can_run_a_backup(tmp_path: Path) -> None:
    """Only the main thread may handle signals, and a program runs the command where it likes."""
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(backup, tmp_path / "file").result(TIMEOUT_S) == 0


def test_nothing_stays_of_a_restore_that_a_signal_ends(tmp_path: Path) -> None:
    assert backup(tmp_path / "file") == 0
    with started(STUCK, tmp_path / "file", "--to", tmp_path / "a") as ending:
        assert ending.stdout is not None and ending.stdout.readline() == "half\n"
        assert os.listdir(tmp_path / "a") != []
        ending.send_signal(signal.SIGTERM)
        assert ending.wait(TIMEOUT_S) == -signal.SIGTERM
    assert os.listdir(tmp_path / "a") == []


def test_nothing_stays_where_the_file_cannot_get_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(21, "Is a directory", source, None, target)

    monkeypatch.setattr(os, "rename", refuse)
    assert backup(tmp_path / "file") == exits.EXIT_NO_ANSWER
    assert os.listdir(tmp_path) == []


def test_a_backup_whose_name_cannot_be_synced_is_told_to_be_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The line was `Input/output error`, and FILE was replaced."""
    to, syncing = tmp_path / "file", os.fsync
    to.write_text("an earlier one")

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        syncing(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    assert backup(to, "--replace") == exits.EXIT_NO_ANSWER
    told = capfd.readouterr().err
    assert told.startswith(f"beanpole: {to} is the new and complete backup, in place of any ")
    assert told.endswith(f": {tmp_path}: Input/output error\n")
    assert to.read_bytes().startswith(b"Bean") and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("way", ["verify", "show"])
def test_a_backup_that_cannot_be_read_is_named(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The line was `Input/output error`, also beside the folder that `restore` writes."""
    unreadable = "/proc/self/mem"  # the first page of a process is not there
    assert cli.main(["backup", way, unreadable]) == exits.EXIT_NO_ANSWER
    assert capfd.readouterr().err == f"beanpole: {unreadable}: Input/output error\n"


@pytest.mark.parametrize("replaces", [True, False])
def test_a_file_that_appears_meanwhile_is_replaced_only_on_request(
    replaces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup of many jobs takes minutes."""
    to, read_again = tmp_path / "new", command._read_again

    def beside(*given: object) -> None:
        read_again(*given)  # type: ignore[arg-type]
        to.write_text("of another program")

    monkeypatch.setattr(command, "_read_again", beside)
    assert backup(to, *["--replace"] * replaces) == (0 if replaces else exits.EXIT_REFUSED)
    assert to.read_bytes().startswith(b"Bean") == replaces
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("words", [(), ("--replace",)])
@pytest.mark.parametrize("takes", [True, False])
def test_a_file_that_loses_its_name_meanwhile_becomes_no_backup(
    takes: bool,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The empty file of a second backup replaced the last good one, with status 0."""
    to, partial, read_again = tmp_path / "file", tmp_path / "file.partial", command._read_again
    if words:
        to.write_text("the last good one")

    def beside(*given: object) -> None:
        read_again(*given)  # type: ignore[arg-type]
        partial.unlink()
        if takes:
            partial.write_text("of a second backup")

    monkeypatch.setattr(command, "_read_again", beside)
    assert backup(to, *words) == exits.EXIT_NO_ANSWER
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err == (
        f"beanpole: {partial}: another program has removed or replaced it while it was written; "
        f"{to} is not written. Run the backup again\n"
    )
    assert to.exists() == bool(words)
    assert not words or to.read_text() == "the last good one"
    assert partial.exists() == takes
    assert not takes or partial.read_text() == "of a second backup"


def test_a_file_that_loses_its_name_at_the_last_moment_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    to, rename = tmp_path / "file", os.rename

    def late(source: str, target: str) -> None:
        os.unlink(source)
        Path(source).write_text("of a second backup")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert backup(to) == exits.EXIT_NO_ANSWER
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"beanpole: {to} is not the backup that was written: another ")


def test_a_backup_that_fails_leaves_the_file_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = tmp_path / "file.partial"

    def fail(*_: object) -> None:
        partial.unlink()
        partial.write_text("of a second backup")
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(command, "_read_again", fail)
    assert backup(tmp_path / "file") == exits.EXIT_NO_ANSWER
    assert partial.read_text() == "of a second backup"
