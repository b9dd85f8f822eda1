"""A bit of a snapshot flips while its node runs: the node makes the snapshot again."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.nodes import Cluster, Node
from tests.integration.support.program import ran
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

# Files so small that a member without a disk needs a snapshot.
SMALL = {
    "snapshot_bytes_min": 64 * 1024,
    "wal_segment_bytes": 256 * 1024,
    "log_memory_bytes": 64 * 1024,
    "log_retain_bytes": 64 * 1024,
    "events": "off",
}
JOBS = 300
BODY_BYTES = 4000
TIMEOUT_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", settings=SMALL).running() as found:
        yield found


def flip_in_snapshot(node: Node) -> None:
    """Flip a bit in the middle of the newest snapshot of a node."""
    path = max((node.directory / "data" / "snapshots").glob("*.snapshot"))
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def test_a_member_catches_up_although_the_leaders_snapshot_was_damaged(cluster: Cluster) -> None:
    """It fetched the snapshot twice a second for ever, and neither node said why that failed."""
    number, (lost, _) = cluster.roles()
    leader = cluster.nodes[number]
    with Raw(leader.beanstalk) as client:
        jobs = [client.put(b"x" * BODY_BYTES) for _ in range(JOBS)]
    done = ran("snapshot", "--addr", leader.grpc)
    assert done.status == 0, done
    cluster.kill(lost)
    shutil.rmtree(cluster.nodes[lost].directory / "data")
    flip_in_snapshot(leader)
    member = cluster.start(lost, ["--rejoin"])
    cluster.wait_until_serving(lost)
    told = member.log.read_text()
    assert told.count(f"of {leader.id} is given up: {leader.id}: DATA_LOSS: ") == 1, told
    told = cluster.process(number).log.read_text()
    assert told.count("cannot be read, and is made again: ") == 1, told
    # The leader refused its snapshot at its next start.
    cluster.kill(number)
    cluster.start(number)
    cluster.wait_until_serving(number)
    with Raw(leader.beanstalk) as client:
        for job in jobs:
            client.ask(b"delete %d" % job, b"DELETED")


def test_a_damaged_snapshot_is_not_reported_as_a_good_one(cluster: Cluster) -> None:
    node = cluster.nodes[cluster.followers()[0]]
    with Raw(node.beanstalk) as client:
        client.put(b"x" * BODY_BYTES)

    def refused() -> str:
        """Damage the newest snapshot; an entry that comes before the answer makes another one."""
        assert ran("snapshot", "--addr", node.grpc).status == 0
        flip_in_snapshot(node)
        done = ran("snapshot", "--addr", node.grpc)
        return done.errors if done.status == 3 else ""

    errors = wait_until(refused, TIMEOUT_S, "it is found out")
    assert "DATA_LOSS: " in errors and ".snapshot: " in errors, errors
    again = ("snapshot", "--addr", node.grpc)
    wait_until(lambda: ran(*again).status == 0, TIMEOUT_S, "it is made again")
