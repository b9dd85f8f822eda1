"""beanstalkd's own tests of its binlog (55 to 57, 60 to 62), restated: restarts and full disks.

The servers are all killed with SIGKILL and restarted from their folders. Tests 58, 59 and 63 are
about the format of beanstalkd's own files and have no counterpart.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

MIB = 1024**2
# Other programs may meanwhile use up to this much of the disk.
DISK_MARGIN_BYTES = 2048 * MIB
DISK_TIMEOUT_S = 60.0


class Restartable:
    """A cluster that can lose power; clients use its node 0."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cluster.start_all()

    def connect(self) -> Raw:
        return Raw(self.cluster.nodes[0].beanstalk)

    def restart(self) -> Raw:
        """Kill all nodes, start them again, and return a new connection."""
        for number in range(len(self.cluster.nodes)):
            self.cluster.kill(number)
        self.cluster.start_all()
        return self.connect()


@pytest.fixture(params=[1, 3], ids=["single", "cluster"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    cluster = Cluster(tmp_path / "cluster", request.param)
    try:
        yield Restartable(cluster)
    finally:
        cluster.close()


def test_binlog_empty_exit(server: Restartable) -> None:
    client = server.restart()
    client.ask(b"put 0 0 0 0\r\n", b"INSERTED 1")
    client.close()


def test_binlog_bury(server: Restartable) -> None:
    client = server.connect()
    client.ask(b"put 0 0 100 0\r\n", b"INSERTED 1")
    client.ask(b"reserve", b"RESERVED 1 0", b"")
    client.ask(b"bury 1 0", b"BURIED")
    client.close()
    client = server.restart()
    client.ask(b"peek-buried", b"FOUND 1 0", b"")
    client.ask(b"put 0 0 100 0\r\n", b"INSERTED 2")
    client.close()


def test_binlog_basic(server: Restartable) -> None:
    client = server.connect()
    client.ask(b"put 0 0 100 0\r\n", b"INSERTED 1")
    client.close()
    client = server.restart()
    client.ask(b"delete 1", b"DELETED")
    client.close()


def test_binlog_read(server: Restartable) -> None:
    client = server.connect()
    client.ask(b"use test", b"USING test")
    for number in (1, 2, 3):
        client.ask(b"put 0 0 120 4\r\ntst%d" % number, b"INSERTED %d" % number)
    client.ask(b"watch test", b"WATCHING 2")
    client.ask(b"reserve", b"RESERVED 1 4", b"tst1")
    client.ask(b"release 1 1 1", b"RELEASED")
    client.ask(b"reserve", b"RESERVED 2 4", b"tst2")
    client.ask(b"delete 2", b"DELETED")
    client.close()
    client = server.restart()
    client.ask(b"watch test", b"WATCHING 2")
    client.ask(b"peek 2", b"NOT_FOUND")
    client.ask(b"reserve", b"RESERVED 3 4", b"tst3")
    client.ask(b"reserve", b"RESERVED 1 4", b"tst1")
    stats = client.dictionary(b"stats-job 1")
    # beanstalkd forgets reservations; Beanpole keeps them. The delay of the release counts too.
    assert {key: stats[key] for key in ("pri", "delay", "reserves", "releases")} == {
        "pri": "1",
        "delay": "1",
        "reserves": "2",
        "releases": "1",
    }
    client.close()


class Disk:
    """A file that fills the disk into the nodes' reserve."""

    def __init__(self, directory: Path) -> None:
        space = os.statvfs(directory)
        self.free_bytes = space.f_bavail * space.f_frsize
        self.reserve_bytes = self.free_bytes - DISK_MARGIN_BYTES
        assert self.reserve_bytes > 0, "these tests need some gigabytes of free disk"
        self._path = directory / "filler"

    def fill(self) -> None:
        with self._path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 2 * DISK_MARGIN_BYTES)

    def empty(self) -> None:
        self._path.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    found = Disk(tmp_path)
    try:
        yield found
    finally:
        found.empty()


@pytest.fixture(params=[1, 3], ids=["single", "cluster"])
def filling(request: pytest.FixtureRequest, tmp_path: Path, disk: Disk) -> Iterator[Restartable]:
    settings = {"disk_reserve_bytes": disk.reserve_bytes}
    cluster = Cluster(tmp_path / "cluster", request.param, settings)
    try:
        yield Restartable(cluster)
    finally:
        cluster.close()


def try_put(client: Raw, inserted: list[int]) -> bytes:
    """Put a job, record its id if it was accepted, and return the reply's first word."""
    reply, _ = client.command(b"put 0 0 100 4\r\nfull")
    word, _, number = reply.partition(b" ")
    if word == b"INSERTED":
        inserted.append(int(number))
    return word


def test_binlog_disk_full(filling: Restartable, disk: Disk) -> None:
    client = filling.connect()
    inserted: list[int] = []
    assert try_put(client, inserted) == b"INSERTED"
    disk.fill()
    wait_until(lambda: try_put(client, inserted) == b"OUT_OF_MEMORY", DISK_TIMEOUT_S)
    assert try_put(client, inserted) == b"OUT_OF_MEMORY"
    client.ask(b"use still-works", b"USING still-works")
    disk.empty()
    wait_until(lambda: try_put(client, inserted) == b"INSERTED", DISK_TIMEOUT_S)
    client.ask(b"watch still-works", b"WATCHING 2")
    for job in inserted:
        client.ask(b"delete %d" % job, b"DELETED")
    client.ask(b"reserve-with-timeout 0", b"TIMED_OUT")
    client.close()


def test_binlog_disk_full_delete(filling: Restartable, disk: Disk) -> None:
    client = filling.connect()
    inserted: list[int] = []
    for _ in range(3):
        assert try_put(client, inserted) == b"INSERTED"
    disk.fill()
    wait_until(lambda: try_put(client, inserted) == b"OUT_OF_MEMORY", DISK_TIMEOUT_S)
    client.ask(b"reserve", b"RESERVED %d 4" % inserted[0], b"full")
    client.ask(b"release %d 7 0" % inserted[0], b"RELEASED")
    for job in inserted:
        client.ask(b"delete %d" % job, b"DELETED")
    client.close()
