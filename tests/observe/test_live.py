"""What rules and pages ask for is what live nodes export, as Prometheus' own tools read it."""

import re
import subprocess
from collections.abc import Iterator
from typing import Final
from urllib.request import urlopen

import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until
from tests.observe.test_rules import RULES

NAME: Final = re.compile(r"\b(?:beanpole|process)_[a-z0-9_]+")
TIMEOUT_S: Final = 5.0


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The pages of three nodes that have seen a job."""
    with Cluster(tmp_path_factory.mktemp("live")).running() as cluster:
        with Raw(cluster.nodes[0].beanstalk) as client:
            client.put(b"seen")

        def read() -> list[str]:
            found = [page_of(node.http) for node in cluster.nodes]
            applied = {re.findall("(?m)^beanpole_applied_index (.*)", page)[0] for page in found}
            return found if len(applied) == 1 else []

        yield wait_until(read, TIMEOUT_S, "all nodes have applied the same")


def page_of(address: str) -> str:
    text: bytes = urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S).read()
    return text.decode()


def names(page: str) -> set[str]:
    return {
        line.partition(" ")[0].partition("{")[0] for line in page.splitlines() if line[0] != "#"
    }


def test_every_name_of_the_rules_is_exported(pages: list[str]) -> None:
    asked = set(NAME.findall(RULES.read_text()))
    assert len(asked) > 20
    for page in pages:
        assert not asked - names(page)


def test_promtool_finds_nothing_to_complain_about(pages: list[str]) -> None:
    for page in pages:
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=page,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and not done.stdout + done.stderr, done.stdout + done.stderr


def test_what_is_of_the_cluster_is_marked_and_the_same(pages: list[str]) -> None:
    marked = [
        sorted(line for line in page.splitlines() if 'scope="cluster"' in line) for page in pages
    ]
    assert marked[0] == marked[1] == marked[2]
    assert 'beanpole_jobs{state="ready",scope="cluster"} 1' in marked[0]
    state = 'protocol="beanstalk",queue="default",state="ready",scope="cluster"'
    assert f"beanpole_queue_jobs{{{state}}} 1" in marked[0]
    others = 'protocol="beanstalk",state="ready",scope="cluster"'
    assert f"beanpole_other_queues_jobs{{{others}}} 0" in marked[0]
