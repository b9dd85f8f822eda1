"""TLS at three real nodes: clients, peer links and gRPC, and the reasons of refusals.

The certificates are made by openssl. No secret may appear in a log.
"""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import greenstalk
import pytest

from beanpole.addresses import split_address
from beanpole.client import aio, blocking, workq
from beanpole.client.redis import Redis
from beanpole.errors import ClientError
from beanpoled.trust.handshakes import OF_ANOTHER
from tests.integration.support.authority import Authority
from tests.integration.support.drop_in import maker
from tests.integration.support.nodes import BEANPOLE, http_get
from tests.integration.support.safe import SafeCluster
from tests.integration.support.waiting import wait_until

TIMEOUT_S = 60.0
HALF_OPEN = 1000
# Three times the failures that an address may have in a second.
FAILURES = 30
STAY = "the certificates that were read before stay in use"


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SafeCluster]:
    place = tmp_path_factory.mktemp("tls")
    authority = Authority(place / "ca")
    for name, days in (("client", "30"), ("expired", "-1"), ("revoked", "30")):
        authority.make(name, days)
    crl = authority.revoke("revoked")
    cluster = SafeCluster(place / "nodes", authority, crl)
    with cluster.running():
        yield cluster


def test_a_stock_client_by_tls_through_a_follower_while_the_leader_dies(safe: SafeCluster) -> None:
    follower = safe.followers()[0]
    context = safe.context()
    with greenstalk.Client(safe.connect(follower, context)) as client:
        job = client.put("x" * 5000)
        assert client.reserve(timeout=5).body == "x" * 5000
        wait_until(lambda: tells_the_leader(safe, follower), TIMEOUT_S, "it tells the leader")
        leader = safe.leader()
        safe.kill(leader)
        client.delete(greenstalk.Job(job, ""))
        assert client.put("y") > job
    safe.start(leader)
    safe.wait_until_serving(leader)
    moved = safe.say("snapshot", "--addr", safe.nodes[follower].grpc)
    assert moved.returncode == 0, moved.stderr
    audit = safe.say("node", "audit", "--json", "--addr", safe.nodes[follower].grpc)
    calls = [json.loads(line) for line in audit.stdout.splitlines()]
    found = [(one["node"], one["certificate"]) for one in calls if "Snapshot" in one["method"]]
    assert (safe.nodes[follower].id, "client") in found, audit.stderr


def tells_the_leader(safe: SafeCluster, number: int) -> bool:
    """Whether a node tells by gRPC which node leads; not during an election."""
    status = safe.say("status", "--json", "--addr", safe.nodes[number].grpc)
    assert status.returncode == 0, status.stderr
    found: str | None = json.loads(status.stdout)["leader"]
    return found == safe.nodes[safe.leader()].id


@pytest.mark.parametrize("module", [blocking, aio], ids=lambda one: one.__name__)
def test_our_clients_by_tls_go_to_another_node(safe: SafeCluster, module: ModuleType) -> None:
    tls = safe.context()
    addresses = [f"localhost:{port}" for _, port in safe.safe]
    with maker(module)(addresses, tls=tls, spread=False, patience_s=30) as client:
        before = client.put("x")
        number = addresses.index(client.node.replace("127.0.0.1", "localhost"))
        safe.kill(number)
        assert client.peek(before).body == "x"
        client.delete(client.reserve(timeout=5))
    safe.start(number)
    safe.wait_until_serving(number)
    strangers = ssl.create_default_context()
    with pytest.raises(ConnectionError), maker(module)(addresses, tls=strangers, patience_s=0.1):
        pass


def test_clients_of_other_protocols_by_tls(safe: SafeCluster) -> None:
    tls = safe.context()
    addresses = [safe.speaks_tls(number, "workq") for number in range(3)]
    with workq.Client(addresses, tls=tls) as client:
        job = client.add(b"encrypted", b"x")
        leased = client.lease([b"encrypted"])
        assert leased is not None and (leased.id, leased.payload) == (job, b"x")
        client.complete(job, b"done")
        assert client.result(job) == (True, b"done")
    with Redis([safe.speaks_tls(number, "qless") for number in range(3)], tls=tls) as redis:
        assert redis.ask(b"PING") == b"PONG"
    plain = workq.Client(addresses, patience_s=0.1)
    with plain, pytest.raises(ClientError):
        plain.add(b"encrypted", b"x")


def test_commands_for_jobs_by_tls(safe: SafeCluster) -> None:
    addresses = ",".join(f"tls:localhost:{port}" for _, port in safe.safe)
    for body in ("a", "b"):
        put = safe.say("put", "--tube", "encrypted", "--addr", addresses, body)
        assert put.returncode == 0, put.stderr
    taken = safe.say("reserve", "--tube", "encrypted", "--delete", "--addr", addresses)
    assert taken.stdout.splitlines()[1:] == ["a", "DELETED"], taken
    work = [*BEANPOLE, "work", "--addr", addresses, "encrypted", "--", "cat"]
    with subprocess.Popen(work, env=safe.environment(), stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.read(1) == b"b"
        worker.send_signal(signal.SIGTERM)
        counts = worker.stdout.read().decode()
    assert "deleted=1" in counts and worker.returncode == 0
    refused = safe.say("tubes", "--addr", addresses, shown=())
    assert refused.returncode == 3 and "certificate required" in refused.stderr, refused.stderr
    assert (
        "BEANPOLE_TLS_CERTIFICATE, BEANPOLE_TLS_KEY, which it may ask for, are not set"
        in refused.stderr
    )


def test_a_node_that_refuses_a_certificate_has_done_nothing(safe: SafeCluster) -> None:
    """With TLS 1.3 its alert comes after the client's first command."""
    tls = safe.authority.client(safe.authority.make("suspect"))
    safe.authority.revoke("suspect")
    os.kill(safe.pid(0), signal.SIGHUP)  # the second one keeps the list of the start
    wait_until(lambda: not lets_in(safe, 0, tls), TIMEOUT_S, "the list is in use")
    assert lets_in(safe, 1, tls)
    before, jobs = Counter(safe.refusals(0)), jobs_put(safe)
    addresses = [f"localhost:{port}" for _, port in safe.safe[:2]]
    for module in (blocking, aio):
        with maker(module)(addresses, tls=tls, spread=False) as client:
            assert client.put("x")
        with maker(module)(addresses, tls=tls, spread=False) as client:
            assert client.kick(1) == 0
        alone = maker(module)(addresses[0], tls=tls, patience_s=0.1)
        with alone as client, pytest.raises(blocking.NoNodeError, match="CERTIFICATE_REVOKED"):
            client.put("x")
    other = workq.Client([safe.speaks_tls(number, "workq") for number in range(2)], tls=tls)
    with other, pytest.raises(workq.JobNotFound):
        other.fail(uuid.uuid4())
    shown = ("suspect.pem", "suspect.key")
    put = safe.say("put", "--addr", ",".join(f"tls:{one}" for one in addresses), "x", shown=shown)
    assert put.returncode == 0, put.stderr
    put = safe.say("put", "--addr", f"tls:{addresses[0]}", "x", shown=shown)
    told = f"beanpole: no node answers: {addresses[0]}: [SSL: SSLV3_ALERT_CERTIFICATE_REVOKED]"
    assert put.returncode == 3 and put.stderr.startswith(told), put.stderr
    assert len(put.stderr.splitlines()) == 1, "no hint"
    after = Counter(safe.refusals(0))
    assert after["certificate_revoked"] > before["certificate_revoked"]
    assert after["not_tls"] == before["not_tls"], "no probe for a hint"
    assert jobs_put(safe) == jobs + 3


def jobs_put(safe: SafeCluster) -> int:
    """Return the number of jobs that were ever put into the default tube."""
    with greenstalk.Client(split_address(safe.nodes[1].beanstalk)) as client:
        return int(client.stats_tube("default")["total-jobs"])


def lets_in(safe: SafeCluster, number: int, context: ssl.SSLContext) -> bool:
    """Whether a node answers a client with this certificate."""
    try:
        with safe.connect(number, context) as stream:
            stream.sendall(b"list-tube-used\r\n")
            return stream.recv(100) == b"USING default\r\n"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "no_certificate"),
        ("expired", "certificate_expired"),
        ("revoked", "certificate_revoked"),
        ("stranger", "certificate_unknown"),
    ],
)
def test_a_client_without_a_right_certificate(
    safe: SafeCluster, tmp_path: Path, name: str, reason: str
) -> None:
    place = safe.authority.place
    shown = (str(place / f"{name}.pem"), str(place / f"{name}.key")) if name else None
    if name == "stranger":
        shown = Authority(tmp_path / "other").make(name)
    before = safe.refusals(0).get(reason, 0)
    with pytest.raises((ssl.SSLError, ConnectionError)), ExitStack() as stack:
        stream = stack.enter_context(safe.connect(0, safe.authority.client(shown)))
        stream.sendall(b"stats\r\n")
        # With TLS 1.3 a client learns of the refusal only when it first reads.
        if not stream.recv(100):
            raise ConnectionError("closed")
    wait_until(lambda: safe.refusals(0).get(reason, 0) > before, TIMEOUT_S, reason)
    safe.process(0).wait_for_words(f"({reason})")


def test_callers_of_grpc_without_a_right_certificate(safe: SafeCluster, tmp_path: Path) -> None:
    address = safe.nodes[0].grpc
    for shown, words in (
        ((), "are not set"),
        (Authority(tmp_path / "other").make("client"), "it may be of another CA"),
        (("expired.pem", "expired.key"), "has expired, and the node refuses it"),
    ):
        refused = safe.say("status", "--addr", address, shown=shown)
        assert (refused.returncode, words in refused.stderr) == (3, True), refused.stderr
    plain = subprocess.run(
        [*BEANPOLE, "status", "--addr", address], capture_output=True, check=False, timeout=60
    )
    assert plain.returncode == 3


def test_a_node_with_the_certificate_of_another_is_refused(safe: SafeCluster) -> None:
    follower = safe.followers()[0]
    assert safe.process(follower).terminate() == 0
    line = safe.nodes[follower].directory / "cmdline"
    own = line.read_text()
    files = [str(safe.authority.place / f"client.{kind}") for kind in ("pem", "key")]
    name = f"{safe.nodes[follower].directory}/certificates/{safe.nodes[follower].id}"
    line.write_text(own.replace(f"{name}.pem", files[0]).replace(f"{name}.key", files[1]))
    try:
        process = safe.start(follower)
        others = [number for number in range(3) if number != follower]
        wait_until(
            lambda: (
                any(f"({OF_ANOTHER})" in safe.process(at).log.read_text() for at in others)
                and not safe.is_ready(follower)
            ),
            TIMEOUT_S,
            "a refusal",
        )
        process.kill()
    finally:
        line.write_text(own)
    safe.start(follower)
    safe.wait_until_serving(follower)


def test_garbage_and_half_open_handshakes_do_not_stop_the_service(safe: SafeCluster) -> None:
    node = safe.nodes[0]
    ports = [safe.safe[0], *(split_address(at) for at in (node.peer, node.grpc))]
    with ExitStack() as stack:
        for port in ports:
            for garbage in (b"\x00" * 64, b"GET / HTTP/1.1\r\n\r\n", os.urandom(512)):
                stream = stack.enter_context(socket.create_connection(port, TIMEOUT_S))
                stream.sendall(garbage)
        wait_until(lambda: safe.refusals(0).get("not_tls", 0) >= 3, TIMEOUT_S, "not_tls")
        for _ in range(HALF_OPEN):
            stack.enter_context(socket.create_connection(safe.safe[0], TIMEOUT_S))
        reason = "too_many_of_address"
        wait_until(lambda: safe.refusals(0).get(reason, 0) >= 1, TIMEOUT_S, reason)
        # Other clients are still served: by TLS from another address, and on the plain port.
        context = safe.context()
        plain = socket.create_connection(safe.safe[0], TIMEOUT_S, source_address=("127.0.0.2", 0))
        with context.wrap_socket(plain, server_hostname="localhost") as stream:
            stream.sendall(b"list-tube-used\r\n")
            assert stream.recv(100) == b"USING default\r\n"
        with greenstalk.Client(split_address(node.beanstalk)) as client:
            for _ in range(50):
                client.put("x", ttr=60)
            assert client.reserve(timeout=5).body
    wait_until(lambda: "beanpole_tls_handshakes 0" in metrics(safe), TIMEOUT_S, "none in progress")
    ends = 'beanpole_tls_expiry_timestamp_seconds{setting="tls_certificate_file"} '
    assert float(metrics(safe).split(ends)[1].split()[0]) > time.time()


def test_an_address_whose_handshakes_fail_is_refused_before_they_cost_anything(
    safe: SafeCluster,
) -> None:
    reason, number = "too_many_failed", 2
    before = Counter(safe.refusals(number))
    context = safe.context()

    def connect(words: bytes) -> None:
        with socket.create_connection(safe.safe[number], TIMEOUT_S) as stream:
            if words:
                stream.sendall(words)
                with suppress(ConnectionResetError):
                    stream.recv(100)

    def fail_once_more() -> bool:
        for _ in range(FAILURES):
            connect(b"GET / HTTP/1.1\r\n\r\n")
        return more(reason) > 0

    def more(reason: str) -> int:
        return safe.refusals(number).get(reason, 0) - before[reason]

    def is_served(address: str) -> bool:
        plain = socket.create_connection(safe.safe[number], TIMEOUT_S, source_address=(address, 0))
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as stream:
                stream.sendall(b"list-tube-used\r\n")
                return stream.recv(100) == b"USING default\r\n"
        except OSError:
            return False

    for _ in range(FAILURES):
        connect(b"")  # like the health check of a load balancer
    wait_until(lambda: more("closed") >= FAILURES, TIMEOUT_S, "closed")
    assert is_served("127.0.0.1") and not more(reason)
    wait_until(fail_once_more, TIMEOUT_S, reason)
    assert is_served("127.0.0.2"), "another address"
    wait_until(lambda: is_served("127.0.0.1"), TIMEOUT_S, "its next handshake")
    safe.process(number).wait_for_words(" at 127.0.0.1: failed_handshakes_per_second_max")


def metrics(safe: SafeCluster) -> str:
    return http_get(safe.nodes[0].http, "/metrics")[1]


def serial(safe: SafeCluster, number: int) -> int:
    """Return the serial number of the certificate that a node presents to clients."""
    context = safe.context()
    with safe.connect(number, context) as stream:
        certificate: Any = stream.getpeercert()
        return int(certificate["serialNumber"], 16)


def test_other_files_are_taken_without_a_restart(safe: SafeCluster) -> None:
    node = safe.nodes[1]
    before = serial(safe, 1)
    place = node.directory / "certificates"
    # An invalid certificate first: the node keeps the old one.
    good = (place / f"{node.id}.pem").read_bytes()
    (place / f"{node.id}.pem").write_text("nothing")
    wait_until(lambda: "stay in use" in safe.process(1).log.read_text(), TIMEOUT_S, "that it stays")
    assert serial(safe, 1) == before
    (place / f"{node.id}.pem").write_bytes(good)
    for file in safe.authority.make(node.id):
        fresh = place / f".{Path(file).name}"
        shutil.copy(file, fresh)
        fresh.replace(place / Path(file).name)
    os.kill(safe.pid(1), 1)
    wait_until(lambda: serial(safe, 1) != before, TIMEOUT_S, "another certificate")
    # gRPC redials a node that an earlier test has restarted only after a pause.
    wait_until(lambda: reaches_all(safe, 1), TIMEOUT_S, "the node reaches the others")


def reaches_all(safe: SafeCluster, number: int) -> bool:
    """Whether a node reaches all nodes by gRPC."""
    status = safe.say("status", "--json", "--addr", safe.nodes[number].grpc)
    if status.returncode != 0:
        return False
    return all(one["reachable"] for one in json.loads(status.stdout)["nodes"])


def test_a_reload_refuses_the_list_of_another_ca(safe: SafeCluster, tmp_path: Path) -> None:
    """It said that the files were read again, and no client was let in from then on."""
    crl = safe.authority.place / "crl.pem"
    good, call = crl.read_bytes(), ("node", "reload", safe.nodes[2].id)
    other = Authority(tmp_path / "other", "Other CA").revoke()
    try:
        crl.write_bytes(Path(other).read_bytes())
        reload = safe.say(*call, "--addr", safe.nodes[2].grpc)
        told = reload.stdout + reload.stderr
        assert reload.returncode == 1, told
        assert f" tls_crl_file = '{crl}' is of no CA in tls_client_ca_file = " in told
        assert f"; {STAY}: peer_tls_crl_file = '{crl}': with it other nodes would refuse" in told
        with safe.connect(2, safe.context()) as stream:
            stream.sendall(b"list-tube-used\r\n")
            assert stream.recv(100) == b"USING default\r\n"
    finally:
        crl.write_bytes(good)
    reload = safe.say(*call, "--addr", safe.nodes[2].grpc)
    assert reload.returncode == 0, reload.stdout + reload.stderr


def test_a_revoked_certificate_ends_what_it_has_connected(safe: SafeCluster) -> None:
    context = safe.authority.client(safe.authority.make("leaver"))
    # The links of node 1 may have begun with the certificate before its present one.
    follower = next(number for number in safe.followers() if number != 1)
    others = [number for number in range(3) if number != follower]
    with ExitStack() as stack:
        clients = [stack.enter_context(safe.connect(number, context)) for number in others]
        for client in clients:
            client.sendall(b"list-tube-used\r\n")
            assert client.recv(100) == b"USING default\r\n"
        crl = safe.authority.revoke("leaver", safe.nodes[follower].id)
        shutil.copy(crl, safe.kept)
        for number in others:
            os.kill(safe.pid(number), signal.SIGHUP)
        for client in clients:
            client.settimeout(TIMEOUT_S)
            with suppress(ConnectionResetError):
                assert client.recv(100) == b""
    wait_until(lambda: not safe.is_ready(follower), TIMEOUT_S, "it is cut off")
    files = [Path(file) for file in safe.authority.make(safe.nodes[follower].id)]
    for file in files:
        shutil.copy(file, safe.nodes[follower].directory / "certificates" / file.name)
    os.kill(safe.pid(follower), signal.SIGHUP)
    wait_until(lambda: safe.is_ready(follower), TIMEOUT_S, "it is back with another certificate")
    for number in others:
        safe.process(number).wait_for_words("with a certificate that is revoked now")


def test_no_secret_stands_in_any_log(safe: SafeCluster) -> None:
    keys = [path.read_text().splitlines()[1] for path in safe.authority.place.glob("*.key")]
    assert len(keys) > 3, "those of three nodes, and of clients"
    for number in range(3):
        story = (safe.nodes[number].directory / "output.log").read_text()
        assert "Traceback" not in story
        assert not [key for key in keys if key in story]
