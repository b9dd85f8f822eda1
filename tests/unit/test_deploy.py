"""The files in deploy/ agree with the program."""

from pathlib import Path
from typing import Final

import yaml

from beanpole import VERSION
from beanpoled.config.node import SETTINGS

KUBERNETES: Final = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"


def test_the_chart_is_for_this_version() -> None:
    chart = yaml.safe_load((KUBERNETES / "beanpole" / "Chart.yaml").read_text())
    assert chart["appVersion"] == VERSION
    assert f'image: "beanpole:{VERSION}"' in (KUBERNETES / "base" / "beanpole.yaml").read_text()


def test_the_chart_has_the_alerts() -> None:
    copy = KUBERNETES / "beanpole" / "files" / "beanpole.rules.yml"
    assert copy.read_text() == (KUBERNETES.parent / "prometheus" / copy.name).read_text()


def test_every_variable_of_the_base_is_a_setting() -> None:
    found = yaml.safe_load_all((KUBERNETES / "base" / "beanpole.yaml").read_text())
    (pods,) = (one for one in found if one["kind"] == "StatefulSet")
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    names = {one["name"] for one in container["env"]}
    assert names <= {f"BEANPOLE_{setting.name.upper()}" for setting in SETTINGS}
    assert len(names) >= 10


def test_nodes_leave_no_core_dumps() -> None:
    compose = yaml.safe_load((KUBERNETES.parent / "docker" / "compose.yaml").read_text())
    nodes = {name: one for name, one in compose["services"].items() if name in ("n1", "n2", "n3")}
    assert len(nodes) == 3 and all(one["ulimits"] == {"core": 0} for one in nodes.values())
    assert "\nLimitCORE=0\n" in (KUBERNETES.parent / "systemd" / "beanpoled.service").read_text()
