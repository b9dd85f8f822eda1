"""Three nodes on disks of 120 MB: a client fills them, and only puts are refused.

Each disk is a bound on the size of a node's folder (`support/small_disk.py`), because a file system
of that size would need root.
"""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.support import small_disk
from tests.integration.support.nodes import QUICK, Cluster, http_get
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

DISK_BYTES: Final = 120 * 1024 * 1024
BODY_BYTES: Final = 60_000
# Commands that are sent together: one by one the test took minutes on a loaded machine.
ROW: Final = 10
SETTINGS: Final = {
    "disk_reserve_bytes": "16 MiB",
    "snapshot_bytes_min": "8 MiB",
    "wal_segment_bytes": "4 MiB",
    "log_memory_bytes": "8 MiB",
    "log_retain_bytes": "8 MiB",
}
TIMEOUT_S: Final = 60.0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on small disks."""
    cluster = Cluster(tmp_path / "cluster", settings={**SETTINGS, **QUICK})
    for node in cluster.nodes:
        script = [sys.executable, small_disk.__file__, str(DISK_BYTES), f"{node.directory}/data"]
        options = ["--config", str(node.directory / "node.toml")]
        (node.directory / "cmdline").write_text(shlex.join([*script, *options]) + "\n")
    cluster.start_all()
    try:
        yield cluster
    finally:
        cluster.close()


def fill(client: Raw) -> int:
    """Put until puts are refused; return the number of accepted puts."""
    jobs = 0
    while jobs * BODY_BYTES < DISK_BYTES:
        client.send((b"put 0 0 600 %d\r\n%b\r\n" % (BODY_BYTES, b"x" * BODY_BYTES)) * ROW)
        words = [client.line().split()[0] for _ in range(ROW)]
        assert set(words) <= {b"INSERTED", b"OUT_OF_MEMORY"}
        jobs += words.count(b"INSERTED")
        if b"OUT_OF_MEMORY" in words:
            return jobs
    raise AssertionError(f"{jobs} jobs of {BODY_BYTES} bytes fit into {DISK_BYTES} bytes")


def work_off(client: Raw) -> int:
    """Reserve and delete all jobs; return their number."""
    jobs = 0
    while True:
        client.send(b"reserve-with-timeout 0\r\n" * ROW)
        numbers = []
        for _ in range(ROW):
            word, *about = client.line().split()
            if word == b"RESERVED":
                client.body(int(about[1]))
                numbers.append(about[0])
            else:
                assert word == b"TIMED_OUT"
        client.send(b"".join(b"delete %b\r\n" % number for number in numbers))
        assert [client.line() for _ in numbers] == [b"DELETED"] * len(numbers)
        jobs += len(numbers)
        if len(numbers) < ROW:
            return jobs


def is_taken(client: Raw) -> bool:
    client.send(b"put 0 0 600 5\r\nagain\r\n")
    return client.line().startswith(b"INSERTED ")


def test_full_disks_end_puts_and_nothing_else(small: Cluster) -> None:
    with Raw(small.nodes[small.leader()].beanstalk, TIMEOUT_S) as client:
        jobs = fill(client)
    assert jobs * BODY_BYTES > DISK_BYTES // 5
    for number in range(3):
        assert small.process(number).status() is None, small.story()
        small.terminate(number)
    small.start_all()
    with Raw(small.nodes[1].beanstalk, TIMEOUT_S) as client:
        found = work_off(client)
        # A put with the reply OUT_OF_MEMORY left no job, and every accepted put left one.
        assert found == jobs
        wait_until(lambda: is_taken(client), TIMEOUT_S, "puts go on on disks that were emptied")
        assert fill(client) > 0
        # A disk that was filled beyond the reserve lost its ballast, which returns with free space.
        work_off(client)
    for number in range(3):
        assert small.process(number).status() is None, small.story()
        ballast = small.nodes[number].directory / "data" / "ballast"
        wait_until(ballast.exists, TIMEOUT_S, f"{ballast} again")


def test_a_node_without_any_room_sends_its_clients_away(small: Cluster) -> None:
    """It answered each command with an error after its time-out, and said that it was ready."""
    victim, other = small.followers()
    node = small.nodes[victim]
    foreign = node.directory / "data" / "foreign"
    with Raw(node.beanstalk, TIMEOUT_S) as client, Raw(small.nodes[other].beanstalk) as elsewhere:
        client.put(b"first")
        client.command(b"reserve")
        with foreign.open("wb") as file:
            file.truncate(2 * DISK_BYTES)
        wait_until(
            lambda: small.process(victim).log.read_text().count("the disk is full"),
            TIMEOUT_S,
            "the log stops",
        )
        elsewhere.put(b"second")
        with pytest.raises(ConnectionError):
            client.line()
        text = http_get(node.http, "/readyz")[1]
        assert "[-]state: cut off, waiting for room on the full disk" in text
        assert "[-]room: the disk is full: remove other files" in text
        # The jobs of the clients that were sent away are not held back.
        wait_until(
            lambda: b"jobs-ready: 2" in (elsewhere.command(b"stats-tube default")[1] or b""),
            TIMEOUT_S,
            "the first job is ready again, which the leader decides",
        )
        assert elsewhere.command(b"reserve")[1] == b"first"
        foreign.unlink()
        wait_until(lambda: small.is_ready(victim), TIMEOUT_S, "the node goes on")
        with Raw(node.beanstalk, TIMEOUT_S) as again:
            assert again.command(b"reserve")[1] == b"second"
