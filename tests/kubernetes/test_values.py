"""Values of the chart, one by one: the effect of each on the manifests, and on an upgrade.

The validity of the manifests, and the base, are checked in test_chart.
"""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from beanpoled.config.node import SETTINGS
from tests.integration.support.processes import children
from tests.integration.support.waiting import wait_until
from tests.kubernetes.api import cluster_with
from tests.kubernetes.support import CHART, manifests, one_of, render, run

TIMEOUT_S: Final = 20.0
DIGEST: Final = "sha256:" + 64 * "a"
# A release's name has at most 53 characters.
LONG: Final = 53 * "a"
LONG_TOO: Final = "beanpole-" + 44 * "a"
# Limits of Kubernetes that are not in its schemas.
CRON_JOB_NAME_MAX: Final = 52
LABEL_MAX: Final = 63
# "-" and a hash, which the controller adds to a StatefulSet's name in a label of its pods.
REVISION_LENGTH: Final = 11
REPORT: Final = (
    "--set",
    "report.enabled=true",
    "--set",
    "report.image=report:1",
    "--set",
    "report.existingClaim=reports",
)
BACKUP: Final = ("--set", "backup.enabled=true")


def container(text: str) -> dict[str, Any]:
    (found,) = one_of("StatefulSet", text)["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("word", ["on", "off"])
def test_a_switch_that_yaml_reads_as_true_or_false_stays_one(word: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(f"settings: {{events: {word}, qless_flush: '{word}'}}\n")
    environment = container(render("--values", str(values)))["env"]
    assert {"name": "BEANPOLE_EVENTS", "value": word} in environment
    assert {"name": "BEANPOLE_QLESS_FLUSH", "value": word} in environment


# Names that YAML reads as another type where they are not quoted.
ODD: Final = "20261124"
NAMES: Final = (
    *("peerSecret.existingSecret", "tls.secretName", "tls.peerSecretName", "priorityClassName"),
    *("storage.className", "report.existingClaim", "backup.existingClaim", "backup.tlsSecret"),
)


def texts(found: Any) -> list[tuple[str, Any]]:
    """Return all names with their values in a manifest, however deep."""
    if isinstance(found, list):
        return [pair for one in found for pair in texts(one)]
    if not isinstance(found, dict):
        return []
    return [pair for name, one in found.items() for pair in ((name, one), *texts(one))]


@pytest.mark.parametrize("release", ["no", "on", "true", "null", "beanpole-" + 34 * "b" + "--c"])
def test_names_that_yaml_reads_as_another_type_stay_names(release: str) -> None:
    words = [word for name in NAMES for word in ("--set-string", f"{name}={ODD}")]
    done = run("helm", "template", release, str(CHART), *REPORT, *BACKUP, *words)
    assert done.returncode == 0, done.stderr
    rendered = manifests(done.stdout)
    found = [pair for one in rendered for pair in texts(one)]
    assert all(isinstance(value, str) for name, value in found if name.endswith("/instance"))
    odd = [value for _, value in found if str(value) == ODD]
    assert len(odd) >= len(NAMES) - 1  # tls.secretName is that of clients and of backups
    assert all(isinstance(value, str) for value in odd)
    assert not [one for one in rendered if one["metadata"]["name"].endswith("-")]


def test_the_schema_knows_the_settings_of_a_node() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    allowed = set(schema["properties"]["settings"]["properties"])
    manifest = container(render())
    of_the_chart = {one["name"].removeprefix("BEANPOLE_").lower() for one in manifest["env"]} - {
        "log_format"
    }
    # The chart has no proxies between nodes, mounts the secret as a file, and has separate values
    # for certificates.
    elsewhere = {"dial", "peer_secret"} | {
        setting.name for setting in SETTINGS if setting.name.startswith(("tls_", "peer_tls_"))
    }
    assert allowed == {setting.name for setting in SETTINGS} - of_the_chart - elsewhere


def test_the_shared_secret_may_have_another_key() -> None:
    text = render("--set", "peerSecret.existingSecret=mine,peerSecret.key=words")
    pod = one_of("StatefulSet", text)["spec"]["template"]["spec"]
    (volume,) = [one["secret"] for one in pod["volumes"] if one["name"] == "peer-secret"]
    assert volume["secretName"] == "mine"
    assert volume["items"] == [{"key": "words", "path": "value"}]
    (mount,) = [one for one in container(text)["volumeMounts"] if one["name"] == "peer-secret"]
    file = {"name": "BEANPOLE_PEER_SECRET_FILE", "value": f"{mount['mountPath']}/value"}
    assert file in container(text)["env"]


def test_a_digest_counts_before_the_tag() -> None:
    text = render("--set-string", f"image.digest={DIGEST},image.tag=1")
    assert container(text)["image"] == f"beanpole@{DIGEST}"
    assert container(render("--set-string", "image.tag=1"))["image"] == "beanpole:1"


def test_pods_are_the_same_with_a_chart_that_only_has_another_version() -> None:
    """A label with the version on pods would restart all nodes without need."""
    template = one_of("StatefulSet", render())["spec"]["template"]
    assert set(template["metadata"]["labels"]) == {
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
    }


def test_a_drain_leaves_time_for_a_stop_in_order() -> None:
    words = ("--set", "drainSeconds=60,terminationGracePeriodSeconds=89")
    done = run("helm", "template", "beanpole", str(CHART), *words)
    assert done.returncode != 0 and "must be at least 90" in done.stderr, done.stderr
    longer = ("--set", "settings.drain_timeout_ms=40500,terminationGracePeriodSeconds=65")
    done = run("helm", "template", "beanpole", str(CHART), *longer)
    assert done.returncode != 0 and "must be at least 66" in done.stderr, done.stderr
    found = one_of(
        "StatefulSet", render("--set", "drainSeconds=60,terminationGracePeriodSeconds=90")
    )
    assert found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 90


@pytest.mark.parametrize("given", ["--set", "--set-string"])
def test_no_drain_takes_no_time(given: str) -> None:
    """The chart took 0 for no value, and asked for the default's 10 s."""
    words = (given, "settings.drain_timeout_ms=0", "--set", "terminationGracePeriodSeconds=30")
    pod = one_of("StatefulSet", render(*words))["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 30
    longer = "settings.drain_timeout_ms=0,drainSeconds=11,terminationGracePeriodSeconds=30"
    done = run("helm", "template", "beanpole", str(CHART), "--set", longer)
    assert done.returncode != 0 and "must be at least 31" in done.stderr, done.stderr


def test_two_elections_do_not_empty_the_service() -> None:
    probe = container(render())["readinessProbe"]
    (longest_ms,) = [setting.default for setting in SETTINGS if setting.name == "raft_max_ms"]
    assert isinstance(longest_ms, int)
    # The first failure may happen at the very beginning of an election.
    away_s = (probe["failureThreshold"] - 1) * probe["periodSeconds"]
    assert away_s > 2 * longest_ms / 1000


@pytest.mark.parametrize("release", [LONG, LONG_TOO])
def test_no_name_is_too_long(release: str) -> None:
    done = run("helm", "template", release, str(CHART), *REPORT, *BACKUP)
    assert done.returncode == 0, done.stderr
    for one in manifests(done.stdout):
        name = one["metadata"]["name"]
        longest = CRON_JOB_NAME_MAX if one["kind"] == "CronJob" else LABEL_MAX
        if one["kind"] == "StatefulSet":
            longest -= REVISION_LENGTH
        assert len(name) <= longest and re.fullmatch("[a-z0-9]([a-z0-9-]*[a-z0-9])?", name), name


def test_clusters_of_one_name_are_two_jobs_for_the_alerts() -> None:
    words = ("--set", "serviceMonitor.enabled=true")
    jobs = set()
    for namespace in ("a", "b"):
        monitor = one_of("ServiceMonitor", render(*words, "--namespace", namespace))
        (endpoint,) = monitor["spec"]["endpoints"]
        (relabeling,) = endpoint["relabelings"]
        assert relabeling["targetLabel"] == "job"
        jobs.add(relabeling["replacement"])
    # The alerts select jobs with "beanpole" in their names.
    assert jobs == {"a/beanpole", "b/beanpole"}


@pytest.mark.parametrize("release", [LONG, LONG_TOO, LONG[:45] + "beanpole", "queue", "beanpole"])
def test_the_alerts_select_the_job_of_any_release(release: str) -> None:
    done = run("helm", "template", release, str(CHART), "--set", "serviceMonitor.enabled=true")
    assert done.returncode == 0, done.stderr
    (endpoint,) = one_of("ServiceMonitor", done.stdout)["spec"]["endpoints"]
    (relabeling,) = endpoint["relabelings"]
    assert re.fullmatch("default/.*beanpole.*", relabeling["replacement"])


def upgrade(there: int, ready: int, *more: str) -> subprocess.CompletedProcess[str]:
    """Render the chart for a cluster that has a release of it."""
    with cluster_with("beanpole", there, ready) as address:
        words = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", address)
        return run("helm", "template", "beanpole", str(CHART), *words, *more)


@pytest.mark.parametrize(("there", "refused"), [(5, True), (1, True), (3, False), (0, False)])
def test_an_upgrade_does_not_change_the_number_of_nodes(there: int, refused: bool) -> None:
    done = upgrade(there, there)
    assert (done.returncode != 0) is refused, done.stderr
    if refused:
        assert f"replicas is 3, and the cluster has {there}" in done.stderr
    else:
        assert one_of("StatefulSet", done.stdout)["spec"]["replicas"] == 3


@pytest.mark.parametrize("ready", [0, 2])
def test_an_upgrade_does_not_begin_while_a_pod_is_away(ready: int) -> None:
    """The controller stops the highest old pod then, and with it the majority."""
    done = upgrade(3, ready)
    assert done.returncode != 0 and f"{ready} of 3 pods are ready" in done.stderr, done.stderr
    done = upgrade(3, ready, "--set", "upgradeWhileAway=true")
    assert done.returncode == 0, done.stderr


def test_pods_for_maintenance_have_the_volume_and_no_node() -> None:
    node, pod = container(render()), container(render("--set", "maintenance=true"))
    assert "beanpoled" not in str(pod["command"])
    assert {*node} - {*pod} == {"startupProbe", "livenessProbe", "readinessProbe", "lifecycle"}
    same = {*pod} - {"command"}
    assert {name: pod[name] for name in same} == {name: node[name] for name in same}


def test_a_pod_for_maintenance_stays_until_it_is_told_to_stop() -> None:
    """As process 1 of a container it would ignore a SIGTERM that it does not handle."""
    command = container(render("--set", "maintenance=true"))["command"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        wait_until(lambda: bool(children(process.pid)), TIMEOUT_S, "it sleeps")
        process.terminate()
        assert process.wait(TIMEOUT_S) != -signal.SIGTERM, "the shell handles it"
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_load_balancer_may_be_restricted() -> None:
    (before,) = (one for one in manifests(render()) if is_for_clients(one))
    assert set(before["spec"]) == {"type", "selector", "ports"}
    given = {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "loadBalancerClass": "inside",
    }
    words = [word for name, to in given.items() for word in ("--set", f"service.{name}={to}")]
    text = render(*words, "--set", "service.loadBalancerSourceRanges={10.0.0.0/8,fd00::/8}")
    (after,) = (one for one in manifests(text) if is_for_clients(one))
    ranges = {"loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"]}
    assert after["spec"] == before["spec"] | given | ranges
    done = run("helm", "template", str(CHART), "--set", "service.loadBalancerSourceRanges={any}")
    assert done.returncode != 0 and "loadBalancerSourceRanges" in done.stderr


def is_for_clients(manifest: dict[str, Any]) -> bool:
    """Whether a manifest is the service for clients."""
    name: str = manifest["metadata"]["name"]
    return manifest["kind"] == "Service" and name == "beanpole"


@pytest.mark.parametrize(("job", "values"), [("backup", BACKUP), ("report", REPORT)])
def test_jobs_have_the_pull_secrets_and_more_variables(job: str, values: tuple[str, ...]) -> None:
    """A private registry, and a cluster with users, whose commands need a token."""
    given = ["--set", "image.pullSecrets[0].name=registry"]
    given += ["--set", f"{job}.extraEnvFrom[0].secretRef.name=token"]
    manifest = one_of("CronJob", render(*values, *given))
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    (only,) = pod["containers"]
    assert only["envFrom"] == [{"secretRef": {"name": "token"}}]
