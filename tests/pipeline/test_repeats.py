"""A real Spark cluster that runs tasks twice, concurrently and one after the other."""

import sys
from pathlib import Path

from tests.integration.support.nodes import Cluster
from tests.integration.support.ports import free_block
from tests.integration.support.raw import Raw
from tests.pipeline import repeated
from tests.pipeline.conftest import PYTHONPATH
from tests.pipeline.test_submit import Servers, run, standalone
from tests.pipeline.test_submit import servers as servers

ROWS = 100_000


def test_speculated_and_repeated_tasks_make_one_job_of_each_row(
    servers: Servers, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    # Spark only speculates on another host.
    hosts = ("127.0.0.1", "127.0.0.2")
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PYTHONPATH}
    with Cluster(tmp_path / "cluster").running() as cluster:
        master = standalone(servers, free_block(), sys.executable, hosts)
        addresses = ",".join(node.grpc for node in cluster.nodes)
        command = [sys.executable, "-m", repeated.__name__, master, addresses, str(ROWS)]
        done = run([*command, str(notes)], environment)
        assert done.returncode == 0, done.stdout + done.stderr
        with Raw(cluster.nodes[0].beanstalk) as connection:
            stats = connection.dictionary(b"stats-tube rows")
    assert stats["total-jobs"] == stats["current-jobs-ready"] == str(ROWS)
    attempts = {path.name for path in notes.iterdir()}
    # The straggler had a concurrent attempt, and failed tasks were repeated.
    assert {"0-0", "0-1", "1-0", "1-1", "7-0", "7-1", "2-0"} <= attempts
