"""Values that the chart refuses, each by the line of its schema or of a template that names it."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from beanpoled.config.node import SETTINGS
from beanpoled.config.settings import Choice, Integer, Size
from tests.kubernetes.support import CHART, one_of, render, run
from tests.kubernetes.test_values import BACKUP, REPORT

SWITCHES: Final = tuple(
    f"{name}.enabled" for name in ("serviceMonitor", "prometheusRule", "backup", "report")
)
ALL: Final = (*REPORT, *BACKUP, "--set", "serviceMonitor.enabled=true")
# Values that are empty or off by default, which null is, too; and those of them that `ALL` sets, or
# that templates look into.
EMPTY: Final[tuple[object, ...]] = ("", [], {}, False)
NEEDED: Final = ("settings", "report.image", "report.existingClaim", *SWITCHES)


def template(*words: str) -> subprocess.CompletedProcess[str]:
    return run("helm", "template", "beanpole", str(CHART), *words)


def test_the_schema_has_the_limits_of_a_node() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    settings = schema["properties"]["settings"]["properties"]
    kinds = {setting.name: setting.kind for setting in SETTINGS}
    for name, found in settings.items():
        kind = kinds[name]
        if isinstance(kind, Choice):
            # YAML reads `on` as true.
            switch = [True, False] if set(kind.words) == {"on", "off"} else []
            assert found == {"enum": [*kind.words, *switch]}, name
        else:
            assert isinstance(kind, Integer), name
            assert (found["minimum"], found["maximum"]) == (kind.low, kind.high), name
            assert ("KiB" in found["pattern"]) is isinstance(kind, Size), name


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("settings.durability=most", "'/settings/durability': value must be one of 'sync'"),
        ("settings.log_format=xml", "'/settings/log_format': value must be one of 'text'"),
        ("settings.raft_min_ms=49", "'/settings/raft_min_ms': minimum: got 49, want 50"),
        ("settings.jobs_max=1.5", "'/settings/jobs_max'"),
        ("settings.jobs_max=-1", "'/settings/jobs_max': minimum: got -1, want 1"),
        ("settings.jobs_max=true", "'/settings/jobs_max': got boolean"),
        ("settings.queue_bytes_max=2GB", "'/settings/queue_bytes_max': '2GB' does not match"),
        *[
            (f"settings.drain_timeout_ms={text}", "'/settings/drain_timeout_ms': '")
            for text in ("5e4", "60s", " 50000", "050000", "0x7", "")
        ],
        ("storage.size=0Gi", "'/storage/size': '0Gi' does not match"),
        ("storage.size=0.0Gi", "'/storage/size': '0.0Gi' does not match"),
        ("backup.size=0Mi", "'/backup/size': '0Mi' does not match"),
        ("nodeSelector.ssd=true", "'/nodeSelector/ssd': got boolean, want string"),
        ("podAnnotations.x=1", "'/podAnnotations/x': got number, want string"),
        ("service.annotations.x=1", "'/service/annotations/x': got number, want string"),
    ],
)
def test_a_wrong_value_is_named(value: str, words: str) -> None:
    done = template("--set", value)
    assert done.returncode != 0
    assert words in done.stderr, done.stderr


@pytest.mark.parametrize(
    "value",
    [
        "settings.queue_bytes_max=2 GiB",
        "settings.queue_bytes_max=2147483648",
        "storage.size=0.5Ti",
        "storage.size=10Gi",
        "settings.drain_timeout_ms=9000",
        "settings.events=off",
    ],
)
def test_a_good_value_is_accepted(value: str) -> None:
    for given in ("--set", "--set-string"):
        done = template(given, value)
        assert done.returncode == 0, done.stderr


def test_a_name_that_begins_with_a_digit_is_refused() -> None:
    """A Service may not have it, and the others would be installed by then."""
    done = run("helm", "template", "9queues", str(CHART))
    assert done.returncode != 0
    assert 'the release\'s name "9queues" begins with a digit' in done.stderr
    done = run("helm", "template", "queues9", str(CHART))
    assert done.returncode == 0, done.stderr


def test_a_job_that_hangs_does_not_keep_the_next_ones_away() -> None:
    for values in (BACKUP, REPORT):
        job = one_of("CronJob", render(*values))["spec"]
        assert job["concurrencyPolicy"] == "Forbid"
        assert job["startingDeadlineSeconds"] > 0
        assert job["jobTemplate"]["spec"]["activeDeadlineSeconds"] >= 3600
    job = one_of("CronJob", render(*REPORT, "--set", "report.secondsMax=60"))["spec"]
    assert job["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 60


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values with their paths, those of objects, too, but not those of resources."""
    for name, value in values.items():
        yield prefix + name, value
        if isinstance(value, dict) and name != "resources":
            yield from leaves(value, f"{prefix}{name}.")


VALUES: Final = dict(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))


@pytest.mark.parametrize("path", VALUES)
def test_null_is_refused_or_means_empty(path: str) -> None:
    """Helm removes a value that is null; then a template that reads it prints a trace."""
    done = template(*ALL, "--set", f"{path}=null")
    if VALUES[path] in EMPTY and path not in NEEDED:
        assert done.returncode == 0, done.stderr
        assert done.stdout == template(*ALL).stdout
    else:
        assert f"missing property '{path.rpartition('.')[2]}'" in done.stderr, done.stderr
