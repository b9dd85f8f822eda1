"""Run the examples of docs/clients.md as written, against a cluster."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from beanpole.client.blocking import Client
from tests.integration.support.nodes import BEANPOLE, Cluster
from tests.integration.support.program import ran
from tests.integration.support.waiting import wait_until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def no_jobs_of_others(shared: Cluster) -> None:
    """Clear the queues: the examples take any job, and other tests may have left some."""
    for queue in ("default", "mail"):
        ran("queue", "clear", queue, "--yes", "--addr", shared.nodes[0].grpc)


def here(example: str, cluster: Cluster) -> str:
    """Return an example with the addresses of this cluster."""
    address = cluster.nodes[0].beanstalk
    host, _, port = address.rpartition(":")
    known = example.replace("127.0.0.1:11300", address)
    assert known.count("11300") <= 1
    return known.replace('("127.0.0.1", 11300)', f'("{host}", {port})')


def test_there_are_three() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("number", [0, 1])
def test_a_client(number: int, shared: Cluster) -> None:
    example = here(EXAMPLES[number], shared)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (b" hello\n" in done.stdout) is (number == 0)
    with Client(shared.nodes[0].beanstalk) as client:
        assert client.stats()["current-jobs-reserved"] == 0


def test_a_worker(shared: Cluster) -> None:
    with (
        Client(shared.nodes[0].beanstalk, use="mail") as client,
        subprocess.Popen(
            [sys.executable, "-c", here(EXAMPLES[2], shared)], stdout=subprocess.PIPE
        ) as worker,
    ):
        good, empty = client.put("to you"), client.put("")
        wait_until(lambda: client.stats_job(empty)["state"] == "buried", TIMEOUT_S)
        wait_until(lambda: client.stats_tube("mail")["current-jobs-reserved"] == 0, TIMEOUT_S)
        worker.terminate()
        output, _ = worker.communicate(timeout=TIMEOUT_S)
        assert output.decode().split(" ")[0] == str(good)
        assert worker.returncode == 0
        client.delete(empty)


def test_the_command_is_one() -> None:
    (line,) = re.findall(r"^beanpole work .*$", PAGE.read_text(), re.MULTILINE)
    options = re.findall(r"--[a-z-]+", line)
    said = subprocess.run(
        [*BEANPOLE, "work", "--help"], capture_output=True, timeout=TIMEOUT_S, check=True
    )
    assert all(option in said.stdout.decode() for option in options)
