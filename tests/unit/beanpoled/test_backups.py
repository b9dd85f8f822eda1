"""`beanpole backup verify`, `show` and `restore` on files, without any node."""

import contextlib
import io
import json
import os
import pty
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from beanpole.core.image.contents import Contents
from beanpole.core.machine import Machine
from beanpole.errors import Damaged
from beanpole.storage.backups import Reader, Writer
from beanpole.storage.files import InlineFiles
from beanpole.storage.readonly import ReadOnlyFiles
from beanpoled import cli
from beanpoled.cli import backup as command
from beanpoled.cli import progress
from beanpoled.cli.progress import Progress, words
from beanpoled.disk import identity as identities
from beanpoled.disk.backups import load, read_whole, summary
from beanpoled.disk.offline import look
from tests.unit.core.cluster import image_of
from tests.unit.releases.backup import FIXTURE

Fields = dict[str, Any]
DIGEST = "c5323f2b46dd6734"
MEMBERS = ("n0", "n1", "n2")


def restore(source: Path, *directories: Path, members: str = "") -> int:
    more = ["--members", members] if members else []
    return cli.main(["restore", str(source), "--to", *map(str, directories), *more])


def ignore(_bytes: int) -> None:
    """Ignore the progress."""


def machine_in(directory: Path) -> Machine:
    files = ReadOnlyFiles()
    found = look(files, str(directory), identities.read_stopped(files, str(directory)))
    assert found.damage == []
    assert found.machine is not None
    return found.machine


@pytest.mark.parametrize("way", ["verify", "show"])
@pytest.mark.parametrize("option", [["--to", "new"], ["--replace"], ["--encrypt-to", "age1x"]])
def test_no_backup_is_made_by_a_command_that_reads_one(
    way: str, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["backup", *option, way, str(FIXTURE)]) == 2
    assert f"{option[0]} makes a backup, and this command reads one" in capsys.readouterr().err


def test_the_recorded_backup_is_shown_and_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["backup", "show", str(FIXTURE), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["digest"].startswith(DIGEST)
    assert found["counts"] == {"beanstalk": {"buried": 1, "delayed": 1, "ready": 4, "reserved": 1}}
    assert (found["cluster"], found["members"]) == ("test", list(MEMBERS))
    assert cli.main(["backup", "show", str(FIXTURE)]) == 0
    page = capsys.readouterr().out
    assert "1 buried, 1 delayed, 4 ready, 1 reserved" in page
    assert "machine version 3" in page
    assert cli.main(["backup", "verify", "--load", str(FIXTURE)]) == 0
    assert capsys.readouterr().out.endswith(f"digest {DIGEST}: right\n")


def test_no_name_of_a_queue_steers_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["backup", "show", str(FIXTURE), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    about["queues"] = [["gearman", "gearman:caf\u00e9\x1b[2J\n", {"ready": 1}]]
    about["digest"] = bytes.fromhex(about["digest"])
    lines = list(command._page("file", about))
    assert "  gearman:caf\u00e9\\x1b[2J\\n 1 ready (gearman)" in "\n".join(lines)
    assert all(line.isprintable() for line in lines)


def test_every_member_begins_with_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directories = [tmp_path / name for name in MEMBERS]
    directories[1].mkdir()
    (directories[1] / "lost+found").mkdir()  # an unused volume has this directory
    assert restore(FIXTURE, *directories) == 0
    assert "7 jobs restored into the new cluster test" in capsys.readouterr().out
    machines = [machine_in(directory) for directory in directories]
    assert image_of(machines[0]) == image_of(machines[1]) == image_of(machines[2])
    assert (machines[0].queue.ready, machines[0].queue.reserved) == (5, 0)
    files = InlineFiles()
    records = [identities.read(files, str(directory)) for directory in directories]
    births = {record.birth for record in records if record is not None}
    assert len(births) == 1
    assert births != {bytes(16)}
    assert [record.node for record in records if record is not None] == list(MEMBERS)


def test_one_node_may_come_of_three(tmp_path: Path) -> None:
    assert restore(FIXTURE, tmp_path / "one", members="only") == 0
    assert len(machine_in(tmp_path / "one").queue.jobs) == 7


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directories = [tmp_path / name for name in MEMBERS]
    directories[2].mkdir()
    (directories[2] / "identity").write_bytes(b"of a cluster")
    assert restore(FIXTURE, *directories) == 2
    assert f"--to {directories[2]}: it is not empty" in capsys.readouterr().err
    assert not directories[0].exists()
    (tmp_path / "file").touch()
    assert restore(FIXTURE, tmp_path / "file", members="one") == 2
    assert "file: it is no folder; nothing is overwritten" in capsys.readouterr().err
    (tmp_path / "link").symlink_to("nowhere")
    assert restore(FIXTURE, tmp_path / "link", members="one") == 2
    assert "it is a symbolic link to nowhere, which does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("directories", "members", "message"),
    [
        (["a"], "", "names 1 folders for 3 members"),
        (["a", "b"], "x,x", "an id stands twice"),
        (["a", "b"], "plumless,buckeroo", "plumless and buckeroo have the same CRC-32"),
        (["a", "a"], "x,y", "a folder stands twice"),
        (["a", "a/sub"], "x,y", "a/sub: it is inside of"),
        (["a/../b/sub", "b"], "x,y", "sub: it is inside of"),
        (["a"], "not/a/name", "is not allowed"),
    ],
)
def test_wrong_words_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    directories: list[str],
    members: str,
    message: str,
) -> None:
    assert restore(FIXTURE, *(tmp_path / name for name in directories), members=members) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_leaves_the_folders_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(identities, "write", refuse)
    (tmp_path / "a").mkdir()
    assert restore(FIXTURE, tmp_path / "a", members="n0") == 3
    assert capfd.readouterr().err == f"beanpole: {tmp_path / 'a'}: the disk is full\n"
    assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.slow  # it takes seconds
def test_whatever_has_changed_is_refused_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = FIXTURE.read_bytes()
    dice = random.Random(20)
    changed = tmp_path / "changed"
    for place in dice.sample(range(len(data)), 60):
        made = bytearray(data)
        made[place] ^= 1 << dice.randrange(8)
        changed.write_bytes(made)
        assert cli.main(["backup", "verify", str(changed)]) == 1, place
        assert f"beanpole: {changed}" in capsys.readouterr().err
        assert restore(changed, tmp_path / "a", tmp_path / "b", tmp_path / "c") == 3
        assert not (tmp_path / "a").exists()
    changed.write_bytes(data[:-1])
    assert cli.main(["backup", "verify", str(changed)]) == 1
    assert "cut off" in capsys.readouterr().err


def rewritten(header: Fields | None = None, footer: Fields | None = None) -> io.BytesIO:
    """Return the recorded backup with other fields and valid checksums."""
    with FIXTURE.open("rb") as stream:
        reader = Reader(stream, "FILE")
        chunks = list(reader.chunks())
    contents = Contents()
    for chunk in chunks:
        contents.take(chunk)
    made = io.BytesIO()
    writer = Writer(made, {**reader.about, **(header or {})})
    for chunk in chunks:
        writer.add(chunk)
    writer.finish({**summary(contents), **(footer or {})})
    made.seek(0)
    return made


def test_contents_have_to_fit_what_the_file_says_of_them() -> None:
    assert read_whole(rewritten(), "FILE", ignore).contents.jobs == 7
    with pytest.raises(Damaged, match="do not have the digest"):
        read_whole(rewritten(footer={"digest": bytes(32)}), "FILE", ignore)
    with pytest.raises(Damaged, match="another index"):
        read_whole(rewritten(header={"index": 1}), "FILE", ignore)


@pytest.mark.parametrize(
    ("header", "footer", "field"),
    [
        ({"created_s": "yesterday"}, {}, "header does not have a valid created_s"),
        ({"members": ["n0", 1]}, {}, "header does not have a valid members"),
        ({"term": 2**64 - 1}, {}, "header does not have a valid term"),
        ({"cluster": None}, {}, "header does not have a valid cluster"),
        ({}, {"digest": "text"}, "footer does not have a valid digest"),
        ({}, {"counts": {"beanstalk": {"ready": "1"}}}, "footer does not have a valid counts"),
        ({}, {"queues": [["beanstalk", "a"]]}, "footer does not have a valid queues"),
        ({}, {"jobs": True}, "footer does not have a valid jobs"),
    ],
)
def test_a_field_of_another_type_is_named(
    header: Fields, footer: Fields, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(rewritten(header, footer).getvalue())
    for options, status in (("show",), 3), (("verify",), 1), (("verify", "--load"), 1):
        assert cli.main(["backup", *options, str(file)]) == status
        assert capsys.readouterr().err == f"beanpole: {file}: its {field}\n"
    assert restore(file, tmp_path / "a", members="n0") == 3
    assert capsys.readouterr().err == f"beanpole: {file}: its {field}\n"


def test_names_in_a_file_do_not_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of a stranger is looked at before anybody knows what is in it."""
    file, erase = tmp_path / "file", "\x1b[2J"
    names = dict.fromkeys(("cluster", "node", "birth", "program"), erase)
    file.write_bytes(rewritten({**names, "members": [erase]}).getvalue())
    for options in ("show",), ("verify",):
        assert cli.main(["backup", *options, str(file)]) == 0
        said = capsys.readouterr().out
        assert "of cluster \\x1b[2J" in said and "\x1b" not in said
    assert restore(file, tmp_path / "a", members="n0") != 0
    assert "\x1b" not in "".join(capsys.readouterr())


def test_a_file_that_changes_between_two_readings_is_noticed() -> None:
    found = read_whole(rewritten(), "FILE", ignore)
    other = found._replace(end={**found.end, "digest": bytes(32)})
    with pytest.raises(Damaged, match="was changed"):
        load(rewritten(), "FILE", other)


def test_standard_input_is_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert restore(Path("-"), Path("nowhere")) == 2
    assert cli.main(["backup", "verify", "--load", "-"]) == 2
    assert "twice" in capsys.readouterr().err


@contextlib.contextmanager
def piped(fifo: Path | None) -> Iterator[str]:
    """Yield the name of a pipe that has a backup in it: a named pipe, or one as /dev/stdin is."""
    data = FIXTURE.read_bytes()
    if fifo is not None:
        os.mkfifo(fifo)
        with ThreadPoolExecutor(1) as threads:
            written = threads.submit(fifo.write_bytes, data)  # waits for the reader
            yield str(fifo)
            assert written.result() == len(data)
        fifo.unlink()
        return
    reader, writer = os.pipe()
    try:
        assert os.write(writer, data) == len(data)
        os.close(writer)
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)


@pytest.mark.parametrize("named", [True, False])
def test_a_pipe_with_a_name_is_read_once(
    named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line was `File or stream is not seekable.`"""
    fifo = tmp_path / "fifo" if named else None
    with piped(fifo) as name:
        assert restore(Path(name), tmp_path / "a", members="n0") == 2
    assert capsys.readouterr().err == (
        f"beanpole: restore reads the backup several times, and {name} is a pipe: name a file\n"
    )
    with piped(fifo) as name:
        assert cli.main(["backup", "verify", "--load", name]) == 2
    assert capsys.readouterr().err == (
        f"beanpole: verify --load reads the backup twice, and {name} is a pipe: name a file\n"
    )
    with piped(fifo) as name:
        assert cli.main(["backup", "verify", name]) == 0
    assert os.listdir(tmp_path) == []


def test_a_standard_input_that_is_closed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert cli.main(["backup", "verify", "-"]) == 2
    assert capsys.readouterr().err == "beanpole: standard input is closed; give a file\n"


def test_backup_wants_a_place_and_does_not_take_one_that_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = ["--addr", "127.0.0.1:1"]
    assert cli.main(["backup", *address]) == 2
    (tmp_path / "file").touch()
    assert cli.main(["backup", *address, "--to", str(tmp_path / "file")]) == 2
    assert "--replace" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["file"]


def test_progress_is_shown_on_a_terminal_only() -> None:
    assert words("backup", 0, 0, 0.0) == "backup 0 B, 0 B/s, 0:00"
    half = words("backup", 1 << 20, 1 << 21, 2.0)
    assert half == "backup [############------------]  50% 1.0 MiB, 512.0 KiB/s, 0:02 left"
    output = io.StringIO()
    progress = Progress("backup", 10, output)
    progress.at(5)
    progress.end()
    assert output.getvalue() == ""


@pytest.mark.constants
@pytest.mark.parametrize(("name", "count"), [("dumb", 0), ("xterm", 2)])
def test_progress_is_not_shown_where_no_cursor_moves(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PERIOD_S", 0.0)
    monkeypatch.setenv("TERM", name)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        line = Progress("moved", 1000, terminal)
        line.at(250)
        line.end()
        terminal.write("end")
        terminal.flush()
        shown = ""
        while not shown.endswith("end"):  # a terminal may give it in parts
            shown += os.read(ours, 1000).decode()
    os.close(ours)
    assert shown.count("\r\x1b[2K") == count
    assert (shown == "end") == (not count)
