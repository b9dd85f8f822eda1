"""Every panel of the board shows data of a live cluster, queried from a real Prometheus."""

import json
import re
import urllib.parse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest

from tests.integration.support.load import Load
from tests.integration.support.nodes import Cluster
from tests.integration.support.ports import free_block
from tests.integration.support.processes import Process
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
BOARD: Final = ROOT / "deploy" / "grafana" / "beanpole.json"
JOB: Final = "beanpole"
# `rate` over a minute needs two samples; here there is one each second.
TIMEOUT_S: Final = 60.0
JOBS: Final = 200
CONFIGURATION: Final = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs: [{job_name: %s, static_configs: [{targets: %s}]}]
"""


def queries() -> dict[str, str]:
    """Return every query of the board by its panel, as Grafana would send it."""
    board = json.loads(BOARD.read_text())
    return {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$job", JOB)
        for panel in board["panels"]
        for target in panel.get("targets", [])
    }


class Prometheus:
    """A server that scrapes a cluster with our rules.

    Attributes:
        provoke: makes a node reply with an error, as there are no errors otherwise.
    """

    provoke: Callable[[], None]

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        targets = json.dumps([node.http for node in cluster.nodes])
        rules = ROOT / "deploy" / "prometheus" / "beanpole.rules.yml"
        configuration = directory / "prometheus.yml"
        configuration.write_text(CONFIGURATION % (rules, JOB, targets))
        self.address = f"127.0.0.1:{free_block()}"
        options = [f"--config.file={configuration}", f"--web.listen-address={self.address}"]
        options.append(f"--storage.tsdb.path={directory / 'data'}")
        self.process = Process(["prometheus", *options], directory / "prometheus.log")
        self.process.wait_until_serving(self.address)

    def ask(self, expression: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": expression})
        url = f"http://{self.address}/api/v1/query?{query}"
        answer = json.loads(urlopen(url, timeout=5).read())
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def series(self, expression: str) -> list[dict[str, Any]]:
        """Ask for what there may be after an error."""
        self.provoke()
        return self.ask(expression)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("board")
    with Cluster(directory / "cluster").running() as cluster:
        server = Prometheus(cluster, directory)
        load = Load([node.beanstalk for node in cluster.nodes], 3, pause_s=0.01)
        load.start()
        try:
            load.wait_for_progress(JOBS)
            with Raw(cluster.nodes[0].beanstalk) as client:
                server.provoke = lambda: client.ask(b"delete 4294967295", b"NOT_FOUND")
                yield server
        finally:
            load.stop()
            server.process.kill()


@pytest.mark.parametrize("name", queries())
def test_the_query_of_a_panel_has_data(prometheus: Prometheus, name: str) -> None:
    expression = queries()[name]

    def numbers() -> list[float]:
        # Before the second sample a rate is empty, and a quantile of it is NaN.
        found = [float(one["value"][1]) for one in prometheus.series(expression)]
        return [number for number in found if number == number]

    wait_until(numbers, TIMEOUT_S, f"data for {expression}")


def test_a_healthy_cluster_raises_no_alert(prometheus: Prometheus) -> None:
    wait_until(lambda: prometheus.ask("count(up == 1) == 3"), TIMEOUT_S, "three nodes are scraped")
    assert prometheus.ask("ALERTS") == []


def test_legends_name_labels_that_there_are(prometheus: Prometheus) -> None:
    board = json.loads(BOARD.read_text())
    found = queries()
    seen = 0
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            names = re.findall(r"{{(\w+)}}", target["legendFormat"])
            if not names:
                continue
            expression = found[f"{panel['title']} {target['refId']}"]
            series = partial(prometheus.series, expression)
            for one in wait_until(series, TIMEOUT_S, expression):
                assert set(names) <= set(one["metric"]), (panel["title"], one["metric"])
                seen += 1
    assert seen
