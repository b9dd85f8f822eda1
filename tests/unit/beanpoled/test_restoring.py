"""`beanpole restore` beside a node, or another restore, that takes a directory meanwhile."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beanpole.errors import StorageError
from beanpole.replication.consensus import ReplicaConfig
from beanpole.replication.pysyncobj.journal import LogJournal
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpole.storage.files import InlineFiles
from beanpole.storage.format import Identity
from beanpole.storage.locks import LOCK, DirectoryLock
from beanpoled import cli
from beanpoled.disk import backups
from beanpoled.disk import identity as identities
from tests.unit.releases.backup import FIXTURE

FILES = InlineFiles()


def restore(*directories: Path) -> int:
    members = ",".join(f"n{number}" for number in range(len(directories)))
    return cli.main(["restore", str(FIXTURE), "--to", *map(str, directories), "--members", members])


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def start_node(directory: Path, cluster: str, node: str) -> DirectoryLock:
    """Write what a node writes at its first start."""
    lock = FILES.hold(str(directory))
    (record,) = identities.found_offline(cluster, [node], lambda: os.urandom(16))
    identities.write(FILES, str(directory), record._replace(incarnation=1, log_base=0))
    owner = Identity(cluster, node)
    config = ReplicaConfig(node, (node,), str(directory), owner)
    LogJournal(config, FILES, ALL_REPAIRS).setCurrentTerm(1, node)
    return lock


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Run something between the verification of the backup and the first write."""
    locks: list[DirectoryLock] = []
    read_whole = backups.read_whole

    def plan(work: Callable[..., DirectoryLock], *arguments: Any) -> None:
        def read(*given: Any) -> backups.Backup:
            found = read_whole(*given)
            locks.append(work(*arguments))
            return found

        monkeypatch.setattr(backups, "read_whole", read)

    yield plan
    for lock in locks:
        lock.release()


# A restore writes a log of this cluster and node, too, where the names are the same.
@pytest.mark.parametrize("owner", [("test", "n1"), ("other", "try")])
def test_a_node_that_was_started_meanwhile_keeps_its_data(
    owner: tuple[str, str],
    tmp_path: Path,
    meanwhile: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before: list[dict[str, bytes]] = []

    def start() -> DirectoryLock:
        lock = start_node(tmp_path / "b", *owner)
        before.append(contents(tmp_path / "b"))
        return lock

    (tmp_path / "a").mkdir()
    meanwhile(start)
    assert restore(tmp_path / "a", tmp_path / "b") == 2
    assert f"--to {tmp_path / 'b'}: it is not empty" in capsys.readouterr().err
    assert {"identity", LOCK} < set(before[0])
    assert contents(tmp_path / "b") == before[0]
    assert os.listdir(tmp_path / "a") == [], "as it was"


def test_a_directory_that_is_held_and_still_empty_is_refused(
    tmp_path: Path, meanwhile: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    meanwhile(FILES.hold, str(tmp_path / "a"))
    assert restore(tmp_path / "a") == 2
    error = capsys.readouterr().err
    assert f"--to {tmp_path / 'a'}: it is in use by another process" in error
    assert os.listdir(tmp_path / "a") == [LOCK]


def test_a_node_that_is_quicker_than_the_lock_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It wrote, and ended, between the look at the directory and the lock."""
    hold = InlineFiles.hold

    def late(files: InlineFiles, directory: str) -> DirectoryLock:
        with monkeypatch.context() as patch:
            patch.setattr(InlineFiles, "hold", hold)
            start_node(Path(directory), "test", "n0").release()
        return hold(files, directory)

    monkeypatch.setattr(InlineFiles, "hold", late)
    assert restore(tmp_path / "a") == 2
    assert "a: it is not empty" in capsys.readouterr().err
    assert {"identity", LOCK} < set(contents(tmp_path / "a"))


def test_all_directories_are_held_until_the_last_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    make_directory, made = backups.make_directory, []

    def make(directory: str, *arguments: Any) -> None:
        for one in directories:
            with pytest.raises(StorageError):
                FILES.hold(str(one))
        make_directory(directory, *arguments)
        made.append(directory)

    monkeypatch.setattr(backups, "make_directory", make)
    assert restore(*directories) == 0
    assert made == list(map(str, directories))
    for one in directories:
        FILES.hold(str(one)).release()


def test_only_what_was_begun_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of another program that came into the second folder stays."""

    def fail(directory: str, *_: Any) -> None:
        (Path(directory) / "half").touch()
        (tmp_path / "b" / "foreign").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backups, "make_directory", fail)
    assert restore(tmp_path / "a", tmp_path / "b") == 3
    assert os.listdir(tmp_path / "a") == []
    assert os.listdir(tmp_path / "b") == ["foreign"]


def test_a_folder_with_nothing_but_a_lock_is_free(tmp_path: Path) -> None:
    FILES.hold(str(tmp_path / "a")).release()
    assert restore(tmp_path / "a") == 0
