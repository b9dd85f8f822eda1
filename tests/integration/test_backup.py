"""Back up real clusters under load, and restore clusters from the backups.

The restored contents of an image are tested in tests/unit/core/test_contents.py, damaged backups
in tests/unit/beanpoled/test_backups.py.
"""

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from beanpole.client.rpc import Nodes
from beanpole.protocol.gearman import packets as p
from tests.integration.support.backups import (
    TAKES,
    TIMEOUT_S,
    Packets,
    Producer,
    all_of,
    ports_of,
    producing,
)
from tests.integration.support.nodes import BEANPOLE, Cluster
from tests.integration.support.program import ran
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until
from tests.unit.releases.backup import FIXTURE

COMMAND_TIMEOUT_S = 60.0
# Jobs of each protocol that exist before a backup begins; more are put during the backup.
JOBS = 200
# The patience of a command that must find no node, in place of the default of half a minute.
PATIENCE_S = 2.0
# Together the jobs exceed all buffers between a node and a program that reads nothing.
BIG_BYTES = 60_000
BIG_JOBS = 250


def beanpole(*arguments: str | Path, status: int = 0) -> str:
    """Run a command and return its output, with standard error if a failure is expected."""
    done = ran(*arguments)
    assert done.status == status, done
    return done.said + (done.errors if status else "")


def backup(addresses: list[str], path: Path) -> dict[str, Any]:
    """Take a backup and return the command's JSON report."""
    told = beanpole("backup", "--addr", ",".join(addresses), "--to", path, "--json")
    found: dict[str, Any] = json.loads(told)
    return found


def restored(path: Path, directory: Path, count: int = 3) -> Cluster:
    """Return a cluster of new nodes with disks restored from a backup; no node is started."""
    cluster = Cluster(directory, count=count)
    disks = [node.directory / "data" for node in cluster.nodes]
    members = ",".join(node.id for node in cluster.nodes)
    beanpole("restore", path, "--to", *disks, "--members", members)
    return cluster


def names_in(disk: Path) -> set[str]:
    """Return the names of a running node's files, without temporary files that will be renamed."""
    return {name for name in os.listdir(disk) if not name.endswith(".tmp")}


@pytest.fixture
def producers(cluster: Cluster) -> Iterator[dict[str, Producer]]:
    with producing(cluster) as made:
        yield made


def wait_for_jobs(producers: dict[str, Producer]) -> None:
    wait_until(
        lambda: all(one.acknowledged >= JOBS or one.failure for one in producers.values()),
        TIMEOUT_S,
        "jobs of all protocols",
    )


def check_all_jobs(cluster: Cluster, number: int, least: dict[str, int]) -> None:
    """Take every job at a node: in order, without gaps, at least the given number of each kind."""
    addresses = ports_of(cluster, number)
    for name, take in TAKES.items():
        with ExitStack() as stack:
            found = list(all_of(take(addresses[name], stack)))
        assert found == list(range(len(found))), name
        assert len(found) >= least[name], name


def test_all_jobs_of_all_protocols_come_back_in_order(
    cluster: Cluster, producers: dict[str, Producer], tmp_path: Path
) -> None:
    wait_for_jobs(producers)
    follower = cluster.followers()[0]
    path = tmp_path / "backup"
    with ExitStack() as stack:
        for name, take in TAKES.items():  # each worker holds the first job
            assert take(ports_of(cluster, follower)[name], stack)() == 0
        waiting = stack.enter_context(closing(Packets(ports_of(cluster, follower)["gearman"])))
        assert waiting.ask(p.SUBMIT_JOB, b"other", b"", b"in foreground")[0] == p.JOB_CREATED
        before = {name: one.acknowledged for name, one in producers.items()}
        taken = backup([cluster.nodes[follower].grpc], path)
    assert taken["node"] == cluster.nodes[follower].id
    assert taken["dropped"] == 1
    held = {name: counts.get("reserved", 0) for name, counts in taken["counts"].items()}
    assert held == {"beanstalk": 1, "workq": 1, "gearman": 1, "qless": 0}
    assert taken["counts"]["qless"]["running"] == 1
    assert path.stat().st_mode & 0o077 == 0
    assert "right" in beanpole("backup", "verify", "--load", path)
    export = ("events", "export", "--to", tmp_path / "events", "--addr")
    beanpole(*export, cluster.nodes[follower].grpc)
    with restored(path, tmp_path / "new").running() as new:
        again = backup([new.nodes[0].grpc], tmp_path / "again")
        assert again["digest"] == taken["digest"]
        assert again["birth"] != taken["birth"]
        # The new cluster has the name of the old one, and other events.
        refused = beanpole(*export, new.nodes[0].grpc, status=2)
        assert taken["birth"] in refused and again["birth"] in refused
        check_all_jobs(new, 1, before)


@pytest.mark.long
def test_the_leader_dies_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    leader, (follower, _) = cluster.roles()
    with Raw(cluster.nodes[follower].beanstalk, TIMEOUT_S) as client:
        jobs = [client.put(b"%d " % n + b"x" * BIG_BYTES) for n in range(BIG_JOBS)]
    path = tmp_path / "backup"
    partial = tmp_path / "backup.partial"
    addresses = f"{cluster.nodes[leader].grpc},{cluster.nodes[follower].grpc}"
    command = [*BEANPOLE, "backup", "--addr", addresses, "--to", str(path), "--json"]
    with ExitStack() as stack:
        program = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(program.kill)
        wait_until(
            lambda: partial.exists() and partial.stat().st_size > 0, TIMEOUT_S, "the first bytes"
        )
        program.send_signal(signal.SIGSTOP)  # before it has received the whole backup
        cluster.kill(leader)
        program.send_signal(signal.SIGCONT)
        told = program.communicate(timeout=COMMAND_TIMEOUT_S)[0]
    assert program.returncode == 0
    taken = json.loads(told)
    assert taken["node"] == cluster.nodes[follower].id
    assert not partial.exists()
    with restored(path, tmp_path / "new", count=1).running() as new:
        assert backup([new.nodes[0].grpc], tmp_path / "again")["digest"] == taken["digest"]
        with Raw(new.nodes[0].beanstalk, TIMEOUT_S) as client:
            for number, job in enumerate(jobs):
                line, body = client.command(b"reserve-with-timeout 0")
                assert line.startswith(b"RESERVED %d " % job)
                assert body is not None
                assert body.startswith(b"%d " % number)


def test_a_pipe_carries_it_and_nothing_is_overwritten(cluster: Cluster, tmp_path: Path) -> None:
    with Raw(cluster.nodes[0].beanstalk) as client:
        client.put(b"a body")
    address = cluster.nodes[1].grpc
    path = tmp_path / "backup"
    with path.open("wb") as stream:
        subprocess.run(
            [*BEANPOLE, "backup", "--addr", address, "--to", "-"],
            stdout=stream,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT_S,
            check=True,
        )
    beanpole("backup", "verify", path)
    assert "it exists" in beanpole("backup", "--addr", address, "--to", path, status=2)
    beanpole("backup", "--addr", address, "--to", path, "--replace")
    sealed, key = tmp_path / "backup.age", FIXTURE.with_suffix(".age-key")
    public = key.read_text().splitlines()[0].rpartition(" ")[2]
    beanpole("backup", "--addr", address, "--to", sealed, "--encrypt-to", public)
    assert b"a body" not in sealed.read_bytes() and b"a body" in path.read_bytes()
    said = beanpole("backup", "verify", "--load", sealed, "--identity", key)
    assert said.split("digest")[1] == beanpole("backup", "verify", path).split("digest")[1]
    disks = [node.directory / "data" for node in cluster.nodes]
    before = [names_in(disk) for disk in disks]
    told = beanpole("restore", path, "--to", *disks, status=2)
    assert "it is not empty" in told
    assert [names_in(disk) for disk in disks] == before


def test_a_damaged_backup_is_refused_with_its_reason(cluster: Cluster, tmp_path: Path) -> None:
    with Raw(cluster.nodes[0].beanstalk) as client:
        for number in range(JOBS):
            client.put(b"body %d" % number)
    path, changed = tmp_path / "backup", tmp_path / "changed"
    backup([cluster.nodes[0].grpc], path)
    data = path.read_bytes()
    dice = random.Random(20)
    places = dice.sample(range(len(data)), 6)
    for made in [
        *(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :] for place in places),
        data[: len(data) // 2],
        data + b"more",
    ]:
        changed.write_bytes(made)
        said = beanpole("backup", "verify", changed, status=1)
        assert f"beanpole: {changed}" in said
        beanpole(
            "restore", changed, "--to", tmp_path / "a", tmp_path / "b", tmp_path / "c", status=3
        )
        assert not (tmp_path / "a").exists()


def test_without_a_majority_there_is_none(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node alone cannot know what the others have acknowledged; `recover` is for this case."""
    monkeypatch.setattr(Nodes.__init__, "__defaults__", (PATIENCE_S,))
    for number in (0, 1):
        cluster.kill(number)
    path = tmp_path / "backup"
    said = beanpole("backup", "--addr", cluster.nodes[2].grpc, "--to", path, status=3)
    assert "no node gave a whole image" in said
    assert list(tmp_path.glob("backup*")) == []
