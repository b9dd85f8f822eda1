"""The chart's job for backups: its command as a real process, with a real node and real files."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.integration.support.nodes import BEANPOLE, Cluster
from tests.integration.support.raw import Raw
from tests.kubernetes.support import manifests, one_of, render
from tests.unit.releases.backup import FIXTURE

COMMAND_TIMEOUT_S: Final = 60.0
ENABLED: Final = ("--set", "backup.enabled=true")
KEY: Final = FIXTURE.with_suffix(".age-key")


def pod(*words: str) -> dict[str, Any]:
    found = one_of("CronJob", render(*ENABLED, *words))
    template: dict[str, Any] = found["spec"]["jobTemplate"]["spec"]["template"]
    return template


def run(
    container: dict[str, Any], directory: Path, **changed: str
) -> subprocess.CompletedProcess[str]:
    """Run the container's command, with the container's environment only."""
    directory.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    environment = {one["name"]: one["value"] for one in container["env"]}
    return subprocess.run(
        [*container["command"], *container.get("args", [])],
        env={"PATH": path, **environment, "BACKUPS": str(directory), **changed},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def test_it_is_off_unless_wanted() -> None:
    assert [one for one in manifests(render()) if one["kind"] == "CronJob"] == []


def test_it_backs_up_a_cluster_to_a_key(tmp_path: Path) -> None:
    public = KEY.read_text().splitlines()[0].rpartition(" ")[2]
    (container,) = pod("--set", f"backup.encryptTo[0]={public}")["spec"]["containers"]
    folder = tmp_path / "backups"
    with Cluster(tmp_path / "nodes", count=1).running() as cluster:
        with Raw(cluster.nodes[0].beanstalk) as client:
            client.put(b"a body")
        done = run(container, folder, BEANPOLE_GRPC_ADDR=cluster.nodes[0].grpc)
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    assert made.name.startswith("beanpole-20") and made.suffix == ".beanpole"
    told = subprocess.run(
        [*BEANPOLE, "backup", "verify", str(made), "--identity", str(KEY)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 jobs of cluster" in told.stdout


def test_the_newest_are_kept_and_only_its_own_are_removed(tmp_path: Path) -> None:
    (container,) = pod("--set", "backup.keep=2")["spec"]["containers"]
    stub = tmp_path / "programs"
    stub.mkdir()
    (stub / "beanpole").write_text('#!/bin/sh\n[ "$2" = --to ] && : >"$3"\n')
    (stub / "beanpole").chmod(0o755)
    folder = tmp_path / "backups"
    folder.mkdir()
    old = [f"beanpole-2026010{day}T000000Z.beanpole" for day in range(1, 5)]
    others = ["beanpole-b-20260101T000000Z.beanpole", "notes", "beanpole-queue.beanpole"]
    partial = "beanpole-20260105T000000Z.beanpole.partial"
    for name in (*old, *others, partial):
        (folder / name).touch()
    done = run(container, folder, PATH=f"{stub}:{os.defpath}")
    assert done.returncode == 0, done.stderr
    found = set(os.listdir(folder))
    (made,) = found - {*old, *others}
    assert found == {old[-1], made, *others}


def test_a_failure_removes_nothing(tmp_path: Path) -> None:
    (container,) = pod("--set", "backup.keep=1")["spec"]["containers"]
    stub = tmp_path / "programs"
    stub.mkdir()
    (stub / "beanpole").write_text("#!/bin/sh\nexit 3\n")
    (stub / "beanpole").chmod(0o755)
    folder = tmp_path / "backups"
    folder.mkdir()
    old = {f"beanpole-2026010{day}T000000Z.beanpole" for day in range(1, 5)}
    for name in old:
        (folder / name).touch()
    done = run(container, folder, PATH=f"{stub}:{os.defpath}")
    assert done.returncode == 3
    assert set(os.listdir(folder)) == old


def test_secrets_are_mounted_if_they_are_given() -> None:
    plain = pod()["spec"]
    assert {one["name"] for one in plain["volumes"]} == {"backups"}
    found = pod("--set", "backup.tlsSecret=operator,backup.existingClaim=mine")["spec"]
    (container,) = found["containers"]
    volumes = {one["name"]: one for one in found["volumes"]}
    assert volumes["tls"]["secret"] == {"secretName": "operator", "defaultMode": 0o440}
    assert volumes["backups"]["persistentVolumeClaim"] == {"claimName": "mine"}
    environment = {one["name"]: one["value"] for one in container["env"]}
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "tls"]
    assert mount["readOnly"] is True
    for name in ("BEANPOLE_TLS_CA", "BEANPOLE_TLS_CERTIFICATE", "BEANPOLE_TLS_KEY"):
        assert environment[name].startswith(mount["mountPath"] + "/")


def test_the_claim_outlives_the_release() -> None:
    claim = one_of("PersistentVolumeClaim", render(*ENABLED))
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    (volume,) = pod()["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    kinds = {one["kind"] for one in manifests(render(*ENABLED, "--set", "backup.existingClaim=a"))}
    assert "PersistentVolumeClaim" not in kinds


def test_its_pods_reach_grpc_and_no_other_port() -> None:
    policy = one_of("NetworkPolicy", render(*ENABLED))
    labels = pod()["metadata"]["labels"]
    ports = [
        rule["ports"]
        for rule in policy["spec"]["ingress"]
        for one in rule.get("from", [])
        if one["podSelector"]["matchLabels"] == labels
    ]
    assert ports == [[{"port": "grpc"}]]
