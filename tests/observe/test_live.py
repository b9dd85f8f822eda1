"""Live nodes export all metrics of the rules and pages, as Prometheus' own tools read them."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from tests.integration.support.authority import Authority
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.safe import SafeCluster
from tests.integration.support.waiting import wait_until
from tests.observe.test_rules import RULES

NAME: Final = re.compile(r"\b(?:beanpole|process)_[a-z0-9_]+")
TIMEOUT_S: Final = 5.0


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The metrics pages of three nodes with certificates that have had a job."""
    place = tmp_path_factory.mktemp("live")
    authority = Authority(place / "ca")
    authority.make("revoked")
    with SafeCluster(place / "nodes", authority, authority.revoke("revoked")).running() as cluster:
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
        missing = asked - names(page)
        assert not missing


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
        sorted(
            line
            for line in page.splitlines()
            # Ages depend on the time of the scrape.
            if 'scope="cluster"' in line and "_age_seconds" not in line
        )
        for page in pages
    ]
    assert marked[0] == marked[1] == marked[2]
    assert 'beanpole_jobs{state="ready",scope="cluster"} 1' in marked[0]
    state = 'protocol="beanstalk",queue="default",state="ready",scope="cluster"'
    assert f"beanpole_queue_jobs{{{state}}} 1" in marked[0]
    others = 'protocol="beanstalk",state="ready",scope="cluster"'
    assert f"beanpole_other_queues_jobs{{{others}}} 0" in marked[0]


def test_errors_are_counted_by_protocol_and_word(tmp_path: Path) -> None:
    asked = {
        "beanstalk": (b"delete 7\r\nnonsense\r\n", b"UNKNOWN_COMMAND\r\n"),
        "workq": (b"nonsense\r\n", b"-CLIENT-ERROR Unknown command\r\n"),
        "gearman": (b"\0REQ\0\0\0\x07\0\0\0\0", b"SUBMIT_JOB has 3 arguments, 0 came"),
    }
    wanted = {
        'protocol="beanstalk",error="NOT_FOUND"',
        'protocol="beanstalk",error="UNKNOWN_COMMAND"',
        'protocol="workq",error="CLIENT-ERROR Unknown command"',
        'protocol="gearman",error="INVALID_ARGUMENTS"',
    }
    with Cluster(tmp_path / "nodes", count=1).running() as cluster:
        (node,) = cluster.nodes
        for protocol, (sent, last) in asked.items():
            with Raw(node.speaks(protocol)) as client:
                client.send(sent)
                seen = b""
                while not seen.endswith(last):
                    seen += client.take(1)
        page = page_of(node.http)
    counted = re.findall(r"(?m)^beanpole_error_replies_total\{(.*)\} ([0-9]+)$", page)
    assert {labels for labels, count in counted if count != "0"} == wanted
    # At least one entry was committed, and each counts in a bucket of the histogram.
    (commits,) = re.findall(r"(?m)^beanpole_commit_duration_seconds_count ([0-9]+)", page)
    (last_class,) = re.findall(r'(?m)^beanpole_commit_.*le="\+Inf"\} ([0-9]+)', page)
    assert int(commits) == int(last_class) > 0
