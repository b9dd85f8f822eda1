"""The files in deploy/ agree with the program."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

from beanpole import VERSION
from beanpoled.config.node import SETTINGS
from beanpoled.readiness import readiness
from chaos.containers import STOP_TIMEOUT_S
from tests.unit.beanpoled.fakes import FakeView

ROOT: Final = Path(__file__).resolve().parents[2]
KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
# The longest time of a stop, beside the jobs in workers' hands (docs/operating.md), and the last
# writes.
STOP_S: Final = 15 + 3


def test_the_chart_is_for_this_version() -> None:
    chart = yaml.safe_load((KUBERNETES / "beanpole" / "Chart.yaml").read_text())
    assert chart["appVersion"] == VERSION
    assert f'image: "beanpole:{VERSION}"' in (KUBERNETES / "base" / "beanpole.yaml").read_text()


def test_the_chart_has_the_alerts() -> None:
    copy = KUBERNETES / "beanpole" / "files" / "beanpole.rules.yml"
    assert copy.read_text() == (KUBERNETES.parent / "prometheus" / copy.name).read_text()


def container_of_the_base() -> dict[str, Any]:
    found = yaml.safe_load_all((KUBERNETES / "base" / "beanpole.yaml").read_text())
    (pods,) = (one for one in found if one["kind"] == "StatefulSet")
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_every_variable_of_the_base_is_a_setting() -> None:
    names = {one["name"] for one in container_of_the_base()["env"]}
    assert names <= {f"BEANPOLE_{setting.name.upper()}" for setting in SETTINGS}
    assert len(names) >= 10


def test_nodes_leave_no_core_dumps() -> None:
    compose = yaml.safe_load((KUBERNETES.parent / "docker" / "compose.yaml").read_text())
    nodes = {name: one for name, one in compose["services"].items() if name in ("n1", "n2", "n3")}
    assert len(nodes) == 3 and all(one["ulimits"] == {"core": 0} for one in nodes.values())
    assert "\nLimitCORE=0\n" in (KUBERNETES.parent / "systemd" / "beanpoled.service").read_text()


def test_haproxy_has_a_number_of_connections_in_any_engine() -> None:
    """A limit of descriptors for the container ended its start in an engine without rights."""
    compose = yaml.safe_load((KUBERNETES.parent / "docker" / "compose.yaml").read_text())
    assert "ulimits" not in compose["services"]["haproxy"]
    text = (KUBERNETES.parent / "docker" / "haproxy.cfg").read_text()
    assert "\n  maxconn 30000\n  no strict-limits\n" in text


def test_a_leader_that_drains_stays_at_the_leaders_port() -> None:
    """HAProxy closed its clients, workers with jobs too, and had no other node for them."""
    text = (KUBERNETES.parent / "docker" / "haproxy.cfg").read_text()
    (pattern,) = re.findall("http-check expect rstring '(.*)'", text)
    view = FakeView()

    def is_up(**changed: Any) -> bool:
        vars(view).update({"role": "leader", "leader": "n0", "draining": False, **changed})
        page = "".join(
            f"[{'+' if one.passed else '-'}]{one.name}: {one.words}\n"
            for one in readiness(view, leader_only=True)
        )
        return re.search(pattern, page) is not None

    assert is_up() and is_up(draining=True)
    for draining in (False, True):
        assert not is_up(draining=draining, role="follower", leader="n1")
        assert not is_up(draining=draining, leader=None)
    assert not is_up(serving=False)


def test_supervisors_wait_for_the_longest_stop() -> None:
    drain_ms = next(one.default for one in SETTINGS if one.name == "drain_timeout_ms")
    least_s = int(str(drain_ms)) / 1000 + STOP_S
    compose = yaml.safe_load((KUBERNETES.parent / "docker" / "compose.yaml").read_text())
    for name in ("n1", "n2", "n3"):
        assert compose["services"][name]["stop_grace_period"] == f"{STOP_TIMEOUT_S}s"
    unit = (KUBERNETES.parent / "systemd" / "beanpoled.service").read_text()
    (of_unit,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", unit)
    values = yaml.safe_load((KUBERNETES / "beanpole" / "values.yaml").read_text())
    of_pod = values["terminationGracePeriodSeconds"] - values["drainSeconds"]
    assert min(STOP_TIMEOUT_S, int(of_unit), of_pod) > least_s


def test_a_node_that_loads_a_snapshot_is_not_killed() -> None:
    """Its loop stands still meanwhile: the probe is as patient as the watchdog of the unit."""
    unit = (KUBERNETES.parent / "systemd" / "beanpoled.service").read_text()
    (watchdog_s,) = re.findall(r"(?m)^WatchdogSec=(\d+)$", unit)
    probe = container_of_the_base()["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= int(watchdog_s)


def test_each_package_of_the_wheel_says_that_it_has_types() -> None:
    """Without the file, mypy takes all names of a package for Any, or refuses its import."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "Typing :: Typed" in project["project"]["classifiers"]
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert len(packages) == 3
    assert [one for one in packages if not (ROOT / one / "py.typed").is_file()] == []


def test_the_source_distribution_has_what_make_check_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    targets = project["tool"]["hatch"]["build"]["targets"]
    (typed,) = re.findall(r"(?m)^TYPED := ([a-z ]+) ", (ROOT / "Makefile").read_text())
    assert {f"/{name}" for name in typed.split()} <= set(targets["sdist"]["include"])
