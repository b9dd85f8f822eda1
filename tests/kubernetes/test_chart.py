"""The chart: its manifests, its refusals, and the kustomize base that is rendered from it.

The base is committed. `BEANPOLE_BASE=rewrite` renders it again after a change of the chart.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.support import BASE, CHART, ROOT, TOOLS, manifests, one_of, render, run

VALIDATE: Final = TOOLS / "kubernetes-validate"
# From the oldest version with all used fields to the newest that the package knows.
VERSIONS: Final = ("1.27", "1.29", "1.31", "1.33", "1.35", "1.37")
# Kinds of the Prometheus operator, whose schemas are not Kubernetes' own.
FOREIGN: Final = {"ServiceMonitor", "PrometheusRule"}
MONITORED: Final = ("--set", "serviceMonitor.enabled=true", "--set", "prometheusRule.enabled=true")
EVERYTHING: Final = """
replicas: 5
cluster: production
image: {tag: "1", pullPolicy: Always, pullSecrets: [{name: registry}]}
settings: {durability: memory, jobs_max: 1000000, log_format: text}
extraEnvFrom: [{configMapRef: {name: more}}]
storage: {size: 100Gi, className: fast}
service: {type: LoadBalancer, annotations: {a: b}}
networkPolicy:
  clientsFrom: [{namespaceSelector: {matchLabels: {team: a}}}]
  operatorsFrom: [{podSelector: {matchLabels: {role: operator}}}]
nodeSelector: {disk: ssd}
tolerations: [{key: queue, operator: Exists, effect: NoSchedule}]
affinity: {nodeAffinity: {}}
priorityClassName: high
podAnnotations: {c: d}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true}
tls:
  secretName: clients-tls
  clientCertificates: true
  revokedConfigMap: revoked-clients
  peerSecretName: nodes-tls
  peerRevokedConfigMap: revoked-nodes
report:
  enabled: true
  image: "report:1"
  existingClaim: reports
  extraEnvFrom: [{secretRef: {name: more}}]
backup:
  enabled: true
  className: slow
  encryptTo: [age1x]
  tlsSecret: operator-tls
  extraEnvFrom: [{secretRef: {name: more}}]
"""
ALONE: Final = """
replicas: 1
podDisruptionBudget: {enabled: false}
networkPolicy: {enabled: false}
"""
HEAD: Final = "# Rendered from ../beanpole by tests/kubernetes: change the chart, not this file.\n"


@pytest.fixture(params=["", EVERYTHING, ALONE], ids=["default", "everything", "alone"])
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    values = tmp_path / "values.yaml"
    values.write_text(request.param)
    return render("--values", str(values))


def test_helm_finds_nothing_to_complain_about() -> None:
    done = run("helm", "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_what_kubernetes_knows(
    rendered: str, version: str, tmp_path: Path
) -> None:
    known = [one for one in manifests(rendered) if one["kind"] not in FOREIGN]
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(known))
    done = run(VALIDATE.name, "--kubernetes-version", version, "--strict", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed for resource") == len(known) >= 4


def test_a_misspelt_field_is_found(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(render().replace("minReadySeconds", "minReadySecondz"))
    done = run(VALIDATE.name, "--kubernetes-version", VERSIONS[0], "--strict", str(path))
    assert done.returncode != 0 and "minReadySecondz" in done.stdout + done.stderr


def foreign(text: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Check the custom resources in a text against the schemas of their operator."""
    kinds = [one for one in manifests(text) if one["kind"] in FOREIGN]
    assert {one["kind"] for one in kinds} == FOREIGN
    path.write_text(yaml.safe_dump_all(kinds))
    return run("python", str(Path(__file__).with_name("operators.py")), str(path))


def test_every_custom_resource_is_what_its_operator_knows(tmp_path: Path) -> None:
    done = foreign(render(*MONITORED), tmp_path / "foreign.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 checked" in done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("interval: 15s", "interval: fifteen", "should match pattern"),
        ("interval: 15s", "intervall: 15s", "unknown field .spec.endpoints[0].intervall"),
        ("      expr:", "      exprr:", "Field required"),
        ("coreos.com/v1", "coreos.com/v1beta1", "Input should be 'monitoring.coreos.com/v1'"),
    ],
)
def test_a_wrong_custom_resource_is_found(
    right: str, wrong: str, words: str, tmp_path: Path
) -> None:
    text = render(*MONITORED)
    assert right in text
    done = foreign(text.replace(right, wrong), tmp_path / "foreign.yaml")
    assert done.returncode == 1 and words in done.stdout, done.stdout + done.stderr


def test_the_page_names_the_versions_that_are_checked() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text()
    (named,) = re.findall(r"schemas of Kubernetes ((?:[\d.]+,? (?:and )?)+)", page)
    assert tuple(re.findall(r"\d+\.\d+", named)) == VERSIONS
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"
    assert f"Kubernetes {VERSIONS[0]} or newer" in page


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("replicas=2", "value must be one of 1, 3, 5"),
        ("replica=3", "'replica' not allowed"),
        ("storage.size=lots", "does not match pattern"),
        ("settings.node_id=x", "additional properties 'node_id' not allowed"),
        ("settings.jobs_maximum=1", "additional properties 'jobs_maximum' not allowed"),
        ("serviceMonitor.interval=often", "does not match pattern"),
        ("image.digest=latest", "does not match pattern"),
        ("report.enabled=true", "minLength"),
        ("backup.keep=0", "minimum"),
        ("backup.encryptTo[0]=bob", "does not match pattern"),
        ("peerSecret.existingSecret=", "minLength"),
    ],
)
def test_wrong_values_are_refused(value: str, words: str) -> None:
    done = run("helm", "template", "beanpole", str(CHART), "--set", value)
    assert done.returncode != 0 and words in done.stderr, done.stderr


def test_a_large_number_stays_one(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("settings: {jobs_max: 1000000, queue_bytes_max: 4294967296, events: 'off'}\n")
    found = environment(one_of("StatefulSet", render("--values", str(values))))
    assert found["BEANPOLE_JOBS_MAX"] == "1000000"
    assert found["BEANPOLE_QUEUE_BYTES_MAX"] == "4294967296"
    assert found["BEANPOLE_EVENTS"] == "off"


def test_a_release_with_a_dot_is_refused() -> None:
    done = run("helm", "template", "a.b", str(CHART))
    assert done.returncode != 0 and "has a dot" in done.stderr, done.stdout


def test_the_base_is_the_chart() -> None:
    text = re.sub(r"(?m)^ *(helm.sh/chart|app.kubernetes.io/managed-by): .*\n", "", render())
    if os.environ.get("BEANPOLE_BASE") == "rewrite":
        (BASE / "beanpole.yaml").write_text(HEAD + text)
    assert (BASE / "beanpole.yaml").read_text() == HEAD + text
    done = run("kubectl", "kustomize", str(BASE))
    assert done.returncode == 0, done.stderr
    names = {(one["kind"], one["metadata"]["name"]) for one in manifests(done.stdout)}
    assert names == {(one["kind"], one["metadata"]["name"]) for one in manifests(text)}


def test_an_overlay_may_have_another_namespace(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        f"namespace: queues\nresources: [{os.path.relpath(BASE, tmp_path)}]\n"
        "replicas: [{name: beanpole, count: 3}]\n"
    )
    done = run("kubectl", "kustomize", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = manifests(done.stdout)
    assert {one["metadata"]["namespace"] for one in found} == {"queues"}
    assert "default" not in str(environment(one_of("StatefulSet", done.stdout)))


def environment(manifest: dict[str, Any]) -> dict[str, str]:
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_the_alerts_are_those_of_every_other_deployment() -> None:
    rendered = one_of("PrometheusRule", render("--set", "prometheusRule.enabled=true"))
    wanted = (ROOT / "deploy" / "prometheus" / "beanpole.rules.yml").read_text()
    assert rendered["spec"] == yaml.safe_load(wanted)


def test_members_are_the_pods(rendered: str) -> None:
    manifest = one_of("StatefulSet", rendered)
    members = environment(manifest)["BEANPOLE_MEMBERS"].split(",")
    assert [member.split("=")[0] for member in members] == [
        f"{manifest['metadata']['name']}-{number}" for number in range(manifest["spec"]["replicas"])
    ]
    services = {one["metadata"]["name"] for one in manifests(rendered) if one["kind"] == "Service"}
    assert manifest["spec"]["serviceName"] in services
    sys.stdout.write(f"{members}\n")


def test_no_pod_has_rights(rendered: str) -> None:
    for one in manifests(rendered):
        assert one["kind"] not in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
        templates = {
            "StatefulSet": lambda spec: spec["template"]["spec"],
            "CronJob": lambda spec: spec["jobTemplate"]["spec"]["template"]["spec"],
        }
        if one["kind"] in templates:
            pod = templates[one["kind"]](one["spec"])
            assert pod["automountServiceAccountToken"] is False
            assert pod["securityContext"]["runAsNonRoot"] is True
            for container in pod["containers"]:
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
