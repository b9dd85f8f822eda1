"""Certificates from Secrets: the mounts and messages, and three nodes that use them.

The pods are processes that run as the rendered manifest describes (`chaos.statefulset`); the tests
write the files of a Secret to its mount path.
"""

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from beanpole.client import where
from beanpoled.cli.certs import make_certificate
from chaos.statefulset import NETWORK, Pod, StatefulSet
from tests.integration.support.authority import Authority
from tests.integration.support.nodes import BEANPOLE
from tests.integration.support.releases import this_program
from tests.kubernetes.support import CHART, manifests, one_of, render, run
from tests.kubernetes.test_rolling import program

PEERS: Final = ("--set", "tls.peerSecretName=nodes")
CLIENTS: Final = ("--set", "tls.secretName=clients")
SHOWN: Final = ("--set", "tls.clientCertificates=true")
REVOKED: Final = ("--set", "tls.revokedConfigMap=left")
PEERS_REVOKED: Final = ("--set", "tls.peerRevokedConfigMap=gone")
TIMEOUT_S: Final = 60.0


def pod_of(kind: str, *words: str) -> dict[str, Any]:
    spec = one_of(kind, render(*words))["spec"]
    spec = spec["jobTemplate"]["spec"] if kind == "CronJob" else spec
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def said(pod: dict[str, Any]) -> dict[str, str]:
    (container,) = pod["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def mounted(pod: dict[str, Any]) -> dict[str, str]:
    """Return the Secrets with certificates of a pod by their mount paths."""
    (container,) = pod["containers"]
    secrets = {
        one["name"]: one["secret"]["secretName"]
        for one in pod["volumes"]
        if "secret" in one and one["name"] != "peer-secret"
    }
    places = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    return {places[name]: secret for name, secret in secrets.items()}


def test_it_is_off_unless_wanted() -> None:
    pod = pod_of("StatefulSet")
    assert mounted(pod) == {}
    assert not [name for name in said(pod) if "TLS" in name]
    assert "tls:" not in render()


def test_a_ca_of_clients_needs_a_certificate() -> None:
    done = run("helm", "template", "beanpole", str(CHART), *SHOWN)
    assert done.returncode != 0 and "minLength" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [(*CLIENTS, *REVOKED), PEERS_REVOKED], ids=["clients", "nodes"])
def test_a_list_of_revoked_ones_needs_a_ca(words: tuple[str, ...]) -> None:
    done = run("helm", "template", "beanpole", str(CHART), *words)
    assert done.returncode != 0 and "tls" in done.stderr, done.stderr


def test_a_list_of_revoked_ones_for_each() -> None:
    pod = pod_of("StatefulSet", *CLIENTS, *SHOWN, *REVOKED, *PEERS, *PEERS_REVOKED)
    (container,) = pod["containers"]
    volumes = {
        one["name"]: one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one
    }
    places = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    found = {places[name]: volumes[name] for name in volumes if name != "rejoin"}
    assert found == {"/etc/beanpole/revoked": "left", "/etc/beanpole/peer-revoked": "gone"}
    assert said(pod)["BEANPOLE_TLS_CRL_FILE"] == "/etc/beanpole/revoked/ca.crl"
    assert said(pod)["BEANPOLE_PEER_TLS_CRL_FILE"] == "/etc/beanpole/peer-revoked/ca.crl"
    assert "CRL" not in str(said(pod_of("StatefulSet", *CLIENTS, *SHOWN, *PEERS)))


def test_one_secret_each() -> None:
    assert mounted(pod_of("StatefulSet", *CLIENTS)) == {"/etc/beanpole/tls": "clients"}
    assert "BEANPOLE_TLS_CLIENT_CA_FILE" not in said(pod_of("StatefulSet", *CLIENTS))
    assert mounted(pod_of("StatefulSet", *PEERS)) == {"/etc/beanpole/peer-tls": "nodes"}
    assert "tls:" not in said(pod_of("StatefulSet", *PEERS))["BEANPOLE_LISTEN"]


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "backup.enabled=true"),
        ("--set", "report.enabled=true,report.image=a,report.existingClaim=b"),
    ],
    ids=["backup", "report"],
)
def test_jobs_call_with_the_certificate_of_the_nodes(words: tuple[str, ...]) -> None:
    assert mounted(pod_of("CronJob", *words)) == {}
    pod = pod_of("CronJob", *words, *PEERS)
    assert mounted(pod) == {"/etc/beanpole/tls": "nodes"}
    told = said(pod)
    assert told[where.TLS_CA] == "/etc/beanpole/tls/ca.crt"
    assert told[where.TLS_KEY] == "/etc/beanpole/tls/tls.key"


def test_a_backup_may_have_another_one() -> None:
    words = ("--set", "backup.enabled=true,backup.tlsSecret=operators", *PEERS)
    (found,) = [one for one in manifests(render(*words)) if one["kind"] == "CronJob"]
    assert "operators" in str(found) and "'nodes'" not in str(found)


# --- nodes ----------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def pods(tmp_path: Path, authority: Authority) -> Iterator[StatefulSet]:
    """Three pods with all kinds of certificates, which they share and which have all names."""
    words = (*PEERS, *CLIENTS, *SHOWN, *REVOKED, "--set", "settings.disk_reserve_bytes=0")
    found = StatefulSet(one_of("StatefulSet", render(*words)), tmp_path / "pods")
    names = [pod.name for pod in found.pods] + [pod.address for pod in found.pods]
    make_certificate(authority.place, "pods", names, "30")
    authority.make("left")
    revoked = authority.revoke("left")
    for pod in found.pods:
        for folder in ("etc/beanpole/tls", "etc/beanpole/peer-tls"):
            for made, name in (("pods.pem", "tls.crt"), ("pods.key", "tls.key")):
                shutil.copy(authority.place / made, pod.directory / folder / name)
            shutil.copy(authority.ca, pod.directory / folder / "ca.crt")
        shutil.copy(revoked, pod.directory / "etc/beanpole/revoked/ca.crl")
    path = ":".join(entry for entry in sys.path if entry)
    started = program(["env", f"PYTHONPATH={path}", *this_program({}).words], tmp_path / "new")
    try:
        found.start(started)
        yield found
    finally:
        found.close()


def client(pod: Pod, context: ssl.SSLContext) -> Any:
    plain = socket.create_connection((pod.address, 11300), timeout=TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname=pod.address)


@pytest.mark.timeout(180)
def test_nodes_talk_by_tls_alone(pods: StatefulSet, authority: Authority) -> None:
    first, second, third = pods.pods
    context = authority.client(authority.make("worker"))
    with client(first, context) as putter, client(second, context) as taker:
        putter.sendall(b"put 1 0 60 1\r\nx\r\n")
        assert putter.recv(100).startswith(b"INSERTED")
        taker.sendall(b"reserve\r\n")
        assert taker.recv(100).startswith(b"RESERVED")
    # Clients without a valid certificate and in plain text are refused.
    nameless = authority.client(None)
    with pytest.raises((ssl.SSLError, ConnectionError)), client(third, nameless) as stranger:
        assert stranger.recv(100)
    left = authority.client((str(authority.place / "left.pem"), str(authority.place / "left.key")))
    with pytest.raises((ssl.SSLError, ConnectionError)), client(third, left) as stranger:
        assert stranger.recv(100)
    with socket.create_connection((third.address, 11300), timeout=TIMEOUT_S) as plain:
        plain.sendall(b"stats\r\n")
        with contextlib.suppress(ConnectionError):
            assert not plain.recv(100).startswith(b"OK"), "an alert, or the end"
    # As with `kubectl exec`, except for the name, which no resolver knows here.
    folder = first.directory / "etc/beanpole/peer-tls"
    variables = {
        where.TLS_CA: str(folder / "ca.crt"),
        where.TLS_CERTIFICATE: str(folder / "tls.crt"),
        where.TLS_KEY: str(folder / "tls.key"),
    }
    line = [*BEANPOLE, "status", "--json", "--addr", f"{NETWORK}.1:11320"]
    done = subprocess.run(
        line,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["nodes"]) == 3
