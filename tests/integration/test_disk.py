"""A disk that fails: the node logs one line and stops; the others continue and lose nothing.

A full disk, which is not a failure, is in test_beanstalkd_suite_restart.
"""

import resource

import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw

FILE_BYTES_MAX = 64 * 1024
BODY_BYTES = 1000
JOBS_BEFORE = 100
JOBS_MAX = 2000


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_failed_write_stops_only_its_node(cluster: Cluster, role: str) -> None:
    leader, (follower, other) = cluster.roles()
    victim = leader if role == "leader" else follower
    process = cluster.process(victim)
    with Raw(cluster.nodes[other].beanstalk, timeout_s=30) as client:
        jobs = [client.put(b"x" * BODY_BYTES) for _ in range(JOBS_BEFORE)]
        process.wait_for_words("state: serving")  # a thread writes the log
        said = process.log.read_text()
        # From here on every write of the node beyond the first 64 KiB of a file fails.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
        while process.status() is None and len(jobs) < JOBS_MAX:
            jobs.append(client.put(b"x" * BODY_BYTES))
        assert process.wait() != 0
        news = process.log.read_text().removeprefix(said).strip().splitlines()
        # On a slow machine there may be an election meanwhile.
        lines = [line for line in news if " leader is " not in line]
        assert len(lines) == 1, process.story()
        jobs += [client.put(b"x" * BODY_BYTES) for _ in range(10)]
        # The limit belonged to the process: a restarted node can write again and catches up.
        cluster.start(victim)
        cluster.wait_until_serving(victim)
        with Raw(cluster.nodes[victim].beanstalk) as again:
            for job in jobs:
                again.ask(b"delete %d" % job, b"DELETED")
