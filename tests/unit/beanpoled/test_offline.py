"""`beanpole inspect` and `beanpole recover` on directories made here, without any node."""

import errno
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.image.image import Image
from beanpole.core.machine import Machine
from beanpole.replication.consensus import ReplicaConfig
from beanpole.replication.pysyncobj.journal import LogJournal
from beanpole.replication.pysyncobj.messages import OURS
from beanpole.replication.pysyncobj.offline import StoppedReplica
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from beanpole.storage.files import InlineFiles
from beanpole.storage.format import Identity
from beanpole.storage.readonly import ReadOnlyFiles
from beanpole.storage.snapshots import SnapshotStore
from beanpoled import cli
from beanpoled import main as daemon
from beanpoled.cli import main, recover
from beanpoled.cli.inspect import _of_qless
from beanpoled.disk import identity
from beanpoled.disk.offline import look
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import EventBatch
from beanpoled.view import JobCounts
from tests.unit.core.qless.test_events import Scene
from tests.unit.eventlog.made import chance

CLUSTER = "test"
MEMBERS = ("n0", "n1", "n2")
NODE = Identity(CLUSTER, "n2")
TERM = 7
ORIGIN = 2
INCARNATION = 3


def entry(number: int, *commands: c.Command) -> bytes:
    return c.encode_entry(
        0, number, number, [(ORIGIN, INCARNATION, number, c.pack_commands(commands))]
    )


# Three jobs are put; job 2 is buried, job 3 stays with a session whose node is lost.
ENTRIES = (
    entry(1),
    entry(2, (c.OPEN, 1), *((c.PUT, 1, b"default", 5, 0, 60, b"body %d" % n) for n in range(3))),
    entry(3, (c.RESERVE_JOB, 1, 2), (c.BURY, 1, 2, 9), (c.RESERVE_JOB, 1, 3)),
)


def new_disk(directory: Path, entries: Sequence[bytes] = ENTRIES) -> identity.DiskIdentity:
    """Make the data directory of a node that was part of a cluster of three."""
    files = InlineFiles()
    founded = identity.found_offline(CLUSTER, MEMBERS, lambda: os.urandom(16))
    record = next(item for item in founded if item.node == NODE.node)
    config = ReplicaConfig(NODE.node, MEMBERS, str(directory), NODE)
    journal = LogJournal(config, files, ALL_REPAIRS)
    journal.setCurrentTerm(TERM, "n1")
    for index, payload in enumerate(entries, 1):
        journal.add(OURS + payload, index, TERM)
    journal.wal.close()
    record = record._replace(incarnation=INCARNATION, log_base=0)
    identity.write(files, str(directory), record)
    return record


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    directory = tmp_path / "n2"
    directory.mkdir()
    new_disk(directory)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def inspect(capsys: pytest.CaptureFixture[str], directory: Path) -> tuple[int, dict[str, object]]:
    status = cli.main(["inspect", str(directory), "--json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return status, found


def test_inspect_says_what_a_disk_holds_and_changes_nothing(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(disk)
    status, found = inspect(capsys, disk)
    assert status == 0
    assert found["damage"] == []
    assert (found["node"], found["cluster"], found["standing"]) == ("n2", CLUSTER, "voter")
    assert found["members"] == list(MEMBERS)
    assert (found["term"], found["voted_for"]) == (TERM, "n1")
    log = found["log"]
    assert isinstance(log, dict)
    assert (log["first"], log["last"], log["last_term"]) == (1, 3, TERM)
    assert found["jobs"] == {"ready": 1, "reserved": 1, "delayed": 0, "buried": 1, "kept": 0}
    assert contents(disk) == before


def test_inspect_for_people_names_the_last_entry_and_the_damage(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", str(disk)]) == 0
    assert "last entry index 3 of term 7" in capsys.readouterr().out
    segment = next((disk / "log").iterdir())
    data = bytearray(segment.read_bytes())
    place = data.index(b"body 1")
    data[place] ^= 1
    segment.write_bytes(data)
    assert cli.main(["inspect", str(disk)]) == 1
    assert f"damage     {segment}" in capsys.readouterr().out


def test_a_directory_of_something_else_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", str(tmp_path)]) == 3
    assert "is no data directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("inspect",), ("recover", "--to", "out")])
def test_a_directory_that_does_not_exist_is_a_wrong_argument(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, file = tmp_path / "missing", tmp_path / "file"
    file.touch()
    for path in (missing, file):
        assert cli.main([*command, str(path)]) == 2
        told = f"beanpole: DIR = '{path}' is not allowed: there is no such directory\n"
        assert capsys.readouterr().err == told


def test_recover_without_yes_writes_nothing(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(disk)
    assert cli.main(["recover", str(disk), "--to", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert "Nothing was written" in told
    assert "entries 1 to 3: on this disk, but perhaps never acknowledged" in told
    assert contents(disk) == before
    assert not (tmp_path / "out").exists()


def recovered(directory: Path, node: str) -> tuple[identity.DiskIdentity, Machine]:
    record = identity.read_stopped(InlineFiles(), str(directory))
    assert record.node == node
    found = look(ReadOnlyFiles(), str(directory), record)
    assert found.damage == []
    assert found.machine is not None
    return record, found.machine


def test_recover_makes_a_whole_directory_for_every_member(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(disk)
    old = identity.read_stopped(InlineFiles(), str(disk))
    out = tmp_path / "out"
    assert cli.main(["recover", str(disk), "--to", str(out), "--yes"]) == 0
    assert "Start all of them as always" in capsys.readouterr().out
    assert contents(disk) == before
    made = {name: recovered(out / name, name) for name in MEMBERS}
    records = [record for record, _ in made.values()]
    assert {record.birth for record in records} == {records[0].birth}
    assert records[0].birth != old.birth
    assert identity.birth_of(CLUSTER, records[0].founders) == records[0].birth
    assert len({record.disk_id for record in records}) == len(MEMBERS)
    assert all(record.standing == identity.VOTER and record.log_base >= 0 for record in records)
    for _, machine in made.values():
        queue = machine.queue
        bodies = [job.body for job in map(queue.jobs.get, (1, 2, 3)) if job is not None]
        assert bodies == [b"body 0", b"body 1", b"body 2"]
        # The session that had reserved job 3 ended with its node.
        assert (queue.ready, queue.reserved, queue.buried) == (2, 0, 1)
        assert machine.origins == {}
    heads = [
        StoppedReplica(ReadOnlyFiles(), str(out / name), Identity(CLUSTER, name), records[0].birth)
        for name in MEMBERS
    ]
    assert {(head.term, head.last, head.last_term) for head in heads} == {(TERM + 1, 4, TERM + 1)}


def test_recover_says_nothing_of_unsure_entries_where_none_are(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["recover", str(disk), "--to", str(out), "--yes"]) == 0
    assert "unsure   entries 1 to 3" in capsys.readouterr().out
    again = ["recover", str(out / MEMBERS[0]), "--to", str(tmp_path / "again")]
    assert cli.main(again) == 0
    told = capsys.readouterr().out
    assert "lost     every change" in told and "unsure" not in told


def test_the_log_of_a_data_directory_is_dumped(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for directory in (disk, disk / "log"):
        monkeypatch.setattr("sys.argv", ["beanpoled", "--dump-wal", str(directory)])
        daemon.main()
        told.append(capsys.readouterr().out)
    assert "end of the records" in told[0] and told[0] == told[1]
    monkeypatch.setattr("sys.argv", ["beanpoled", "--dump-wal", str(disk / "none")])
    with pytest.raises(SystemExit) as caught:
        daemon.main()
    assert caught.value.code == daemon.EXIT_CONFIGURATION
    assert f"--dump-wal {disk / 'none'}: it is no folder" in capsys.readouterr().err


def test_recover_changes_the_members(disk: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["recover", str(disk), "--to", str(out), "--members", "b,a", "--yes"]
    assert cli.main(arguments) == 0
    assert sorted(path.name for path in out.iterdir()) == ["a", "b"]
    record, machine = recovered(out / "a", "a")
    assert record.members == ("a", "b")
    assert len(machine.queue.jobs) == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--to", "."], "it exists; name a new folder"),
        (["--to", "out", "--members", "a,a"], "each once"),
        (["--to", "out", "--members", "a,b c"], "each id must be"),
        (["--to", "out", "--members", "plumless,buckeroo"], "have the same CRC-32"),
    ],
)
def test_wrong_arguments_are_refused(
    disk: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["recover", str(disk), *arguments, "--yes"]) == 2
    assert reason in capsys.readouterr().err


def test_recover_writes_nothing_into_the_directory_that_it_reads(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next step of an operator is to move that directory away."""
    before = contents(disk)
    assert cli.main(["recover", str(disk), "--to", str(disk / "out"), "--yes"]) == 2
    assert f"it is in '{disk}'" in capsys.readouterr().err
    assert contents(disk) == before


def test_recover_that_fails_leaves_nothing(
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(identity, "write", fail)
        assert cli.main(["recover", str(disk), "--to", str(out), "--yes"]) == 3
    assert f"{out}: File too large" in capfd.readouterr().err
    assert not out.exists()
    assert cli.main(["recover", str(disk), "--to", str(out), "--yes"]) == 0


def test_recover_writes_no_folder_that_another_program_makes_meanwhile(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two recovers into one OUT: the second, when it was ended, removed what the first had made."""
    out = tmp_path / "out"

    def look_slowly(*of: Any) -> object:
        found = look(*of)
        monkeypatch.undo()
        assert cli.main(["recover", str(other), "--to", str(out), "--yes"]) == 0
        return found

    other = tmp_path / "other"
    shutil.copytree(disk, other)
    monkeypatch.setattr(recover, "look", look_slowly)
    assert cli.main(["recover", str(disk), "--to", str(out), "--yes"]) == 2
    assert f"--to = '{out}' is not allowed: it exists" in capsys.readouterr().err
    assert [recovered(out / name, name)[0].node for name in MEMBERS] == list(MEMBERS)


def test_recover_that_fails_leaves_files_of_others(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def fail(*_: object) -> None:
        (out / "precious").touch()
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(identity, "write", fail)
    assert cli.main(["recover", str(disk), "--to", str(out), "--yes"]) == 3
    assert os.listdir(out) == ["precious"]


def test_jobs_of_qless_are_counted_too() -> None:
    scene = Scene()
    for jid in (b"a", b"b", b"c"):
        scene.put(jid)
    scene.pop(count=1)
    assert _of_qless(scene.cluster.machine) == {"waiting": 2, "running": 1}


def test_a_disk_in_use_is_refused(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = InlineFiles().hold(str(disk))
    try:
        assert cli.main(["recover", str(disk), "--to", str(tmp_path / "out")]) == 3
    finally:
        lock.release()
    assert "in use by another process" in capsys.readouterr().err


def test_a_disk_without_entries_has_nothing_to_recover(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (disk / "log").iterdir():
        path.unlink()
    journal = LogJournal(
        ReplicaConfig(NODE.node, MEMBERS, str(disk), NODE), InlineFiles(), ALL_REPAIRS
    )
    journal.wal.close()
    assert cli.main(["recover", str(disk), "--to", str(tmp_path / "out")]) == 3
    assert "there is nothing to recover" in capsys.readouterr().err


def test_what_a_snapshot_overruled_is_not_read(disk: Path) -> None:
    """A follower fetched a snapshot, and failed before its log started again after the snapshot."""
    record = identity.read_stopped(InlineFiles(), str(disk))
    machine = Machine()
    for index, payload in enumerate(ENTRIES[:2], 1):
        flags, time_us, wall_us, sections = c.decode_entry(payload)
        machine.apply(index, flags, time_us, wall_us, sections)
    store = SnapshotStore(InlineFiles(), str(disk / "snapshots"), NODE)
    writer = store.create(2, TERM + 1)
    writer.write(SnapshotHeader(2, TERM + 1, TERM + 1, record.birth).encode())
    for chunk in iter(Image(machine).next_chunk, None):
        writer.write(chunk)
    errors: list[OSError | None] = []
    writer.finish(errors.append)
    assert errors == [None]
    found = look(ReadOnlyFiles(), str(disk), record)
    assert found.damage == []
    assert found.replica is not None
    assert (found.replica.last, found.replica.last_term) == (2, TERM + 1)
    assert found.machine is not None
    # Entry 3, of the replaced history, buried a job and reserved another one.
    assert (found.machine.queue.ready, found.machine.queue.buried) == (3, 0)
    foreign = look(ReadOnlyFiles(), str(disk), record._replace(birth=bytes(16)))
    assert (
        f"of another life of the cluster (birth id {record.birth.hex()[:8]})" in foreign.damage[0]
    )


def test_a_log_that_lost_its_newest_segment_is_damaged(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = identity.read_stopped(InlineFiles(), str(disk))
    identity.write(InlineFiles(), str(disk), record._replace(log_base=4096))
    status, found = inspect(capsys, disk)
    assert status == 1
    assert "are gone" in str(found["damage"])
    assert cli.main(["recover", str(disk), "--to", str(tmp_path / "out"), "--yes"]) == 3
    assert "cannot be read as a whole" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_log_that_is_gone_leaves_the_identity_to_see(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(disk / "log")
    status, found = inspect(capsys, disk)
    assert status == 1
    assert found["node"] == "n2"
    assert "the log is gone" in str(found["damage"])


def test_a_disk_that_never_ran_is_not_damaged(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = identity.read_stopped(InlineFiles(), str(disk))
    fresh = identity.DiskIdentity(record.cluster, record.node, record.disk_id, MEMBERS)
    shutil.rmtree(disk / "log")
    identity.write(InlineFiles(), str(disk), fresh)
    status, found = inspect(capsys, disk)
    assert (status, found["damage"]) == (0, [])
    assert cli.main(["recover", str(disk), "--to", str(tmp_path / "out")]) == 3
    assert "was never part of a cluster" in capsys.readouterr().err


def test_a_damaged_clock_does_not_stop_a_recovery(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (disk / "clock").write_bytes(b"nonsense")
    assert cli.main(["recover", str(disk), "--to", str(tmp_path / "out"), "--yes"]) == 0
    assert "will not count for delays" in capsys.readouterr().out
    assert not (tmp_path / "out" / "n0" / "clock").exists()


def test_a_disk_that_is_mounted_read_only_can_be_recovered_from(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: InlineFiles, directory: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(InlineFiles, "hold", refuse)
    assert cli.main(["recover", str(disk), "--to", str(tmp_path / "out"), "--yes"]) == 0


def test_the_doctor_of_a_directory(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(disk)]) == 0
    names = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [f"ok {disk} {what}" for what in ("identity", "log", "snapshot", "jobs")]
    clock = disk / "clock"
    clock.write_bytes(b"")
    assert main(["doctor", str(disk)]) == 1
    assert f"error {disk} clock: {clock}: " in capsys.readouterr().out
    clock.unlink()
    snapshot = next(disk.rglob("*.snapshot"), None) or next((disk / "log").iterdir())
    raw = bytearray(snapshot.read_bytes())
    raw[600] ^= 255
    snapshot.write_bytes(raw)
    assert main(["doctor", str(disk)]) == 1
    assert f"error {disk} damage: " in capsys.readouterr().out


def test_damaged_files_of_events_are_named_and_cost_no_disk(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the newest file was looked at, and the doctor advised a new disk for it."""
    folder = disk / "events"
    folder.mkdir()
    paths = []
    for first in (0, 3, 6):
        about = segments.about(chance(1, 3, first), JobCounts(0, 0, 0, 0))
        batch = EventBatch(first, 3, 50, b"three events")
        made = segments.write(InlineFiles(), str(folder), NODE, first, first + 3, about, [batch])
        paths.append(Path(made.path))
    assert inspect(capsys, disk)[0] == 0
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    paths[2].write_bytes(b"")
    status, found = inspect(capsys, disk)
    assert status == 1
    damage = found["damage"]
    assert isinstance(damage, list)
    assert [line.split(": ")[:2] for line in damage] == [
        ["events", str(paths[0])],
        ["events", str(paths[2])],
    ]
    assert main(["doctor", str(disk)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(f"warning {disk} damage: events: ") for line in lines) == 2
    assert not any("--rejoin" in line for line in lines)
    assert any(line.startswith(f"ok {disk} log") for line in lines)
    assert cli.main(["recover", str(disk), "--to", str(tmp_path / "out"), "--yes"]) == 0


def test_the_doctor_of_a_directory_with_a_damaged_identity_names_the_remedy(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It advised to stop the node, or to name a data directory."""
    record = disk / "identity"
    record.write_bytes(record.read_bytes()[:-1])
    assert main(["doctor", str(disk)]) == 1
    line = capsys.readouterr().out
    assert line.startswith(f"error {disk} damage: {record}: ") and "--rejoin" in line
