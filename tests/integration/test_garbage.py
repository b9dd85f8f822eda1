"""Send garbage to every port, plain and by TLS: it ends its own connection for a counted reason.

Also: no secret of a cluster appears in a log, an event, a metric or a backup. Refused certificates
are tested in `test_tls`, replayed proofs in `test_trust`, frames of the peer port in
`test_peer_port`.
"""

import random
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from beanpole.addresses import split_address
from beanpole.client.spoken import spoken_at
from beanpoled.config.protocols import PROTOCOLS
from tests.integration.support.authority import Authority
from tests.integration.support.nodes import Cluster, http_get
from tests.integration.support.processes import answers
from tests.integration.support.raw import Raw
from tests.integration.support.safe import SafeCluster
from tests.integration.support.waiting import wait_until

TIMEOUT_S: Final = 60.0
pytestmark = pytest.mark.usefixtures("patient_look")
SECRET: Final = "a secret that only nodes know"
TOKEN: Final = b"a-token-of-a-session-0001"
NAMES: Final = tuple(row.name for row in PROTOCOLS)
SEED: Final = 20

_chance = random.Random(SEED)
GARBAGE: Final = {
    "zeros": bytes(64),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    # The beginning of a TLS ClientHello, with garbage in place of the rest.
    "TLS": bytes.fromhex("16030100c8010000c40303") + _chance.randbytes(180),
    "random": _chance.randbytes(4096),
    "one line without an end": b"a" * 300_000,
    "empty lines": b"\r\n" * 50,
}
# The reply to HTTP on a client port, for the protocols that have an error reply.
WORDS: Final = {
    "beanstalk": b"UNKNOWN_COMMAND\r\n",
    "workq": b"-CLIENT-ERROR Unknown command\r\n",
    "gearman": b"ERR UNKNOWN_COMMAND ",
    "qless": b"-ERR unknown command 'GET'",
}
SPOKEN: Final = {"workq": "Workq", "gearman": "Gearman", "qless": "qless", "beanstalk": "beanstalk"}


def told(address: str, data: bytes) -> bytes:
    """Send data and an end of stream; return all bytes until the node closes the connection."""
    with socket.create_connection(split_address(address), TIMEOUT_S) as stranger:
        found = b""
        with suppress(ConnectionResetError, BrokenPipeError):
            stranger.sendall(data)
            with suppress(OSError):  # the node has already closed the connection
                stranger.shutdown(socket.SHUT_WR)
            while part := stranger.recv(65536):
                found += part
        return found


def goes_on(cluster: Cluster, number: int) -> None:
    """Check that the same process still serves each protocol and has logged no traceback."""
    node = cluster.nodes[number]
    for name, spoken in SPOKEN.items():
        assert spoken_at(node.speaks(name)) == spoken
    with Raw(node.beanstalk) as client:
        client.ask(b"delete %d" % client.put(b"still here"), b"DELETED")
    assert cluster.process(number).status() is None
    assert "Traceback" not in (node.directory / "output.log").read_text()


@pytest.mark.parametrize("kind", GARBAGE)
def test_on_plain_ports(shared: Cluster, kind: str) -> None:
    node = shared.nodes[0]
    clients = {name: node.speaks(name) for name in NAMES}
    log = (node.directory / "output.log").read_text()
    assert f"only this machine reaches the node, which listens at {node.beanstalk} (" in log
    wait_until(lambda: all(map(answers, clients.values())), TIMEOUT_S, "the ports of all protocols")
    for name, address in clients.items():
        answer = told(address, GARBAGE[kind])
        assert kind != "HTTP" or answer.startswith(WORDS[name])
        assert b"\r\nOK" not in answer and b"INSERTED" not in answer
    for address in (node.peer, node.grpc):
        told(address, GARBAGE[kind])
    if kind != "HTTP":
        answer = told(node.http, GARBAGE[kind])
        assert answer[:10] in (b"", b"HTTP/1.1 4"), answer
    goes_on(shared, 0)


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SafeCluster]:
    place = tmp_path_factory.mktemp("garbage")
    authority = Authority(place / "ca")
    for name in ("client", "revoked"):
        authority.make(name)
    secret = place / "secret"
    secret.touch(0o600)
    secret.write_text(SECRET + "\n")
    # Without the limit of failed handshakes, so that the node reads each piece of garbage.
    settings = {"peer_secret_file": str(secret), "failed_handshakes_per_second_max": 0}
    found = SafeCluster(place / "nodes", authority, authority.revoke("revoked"), settings)
    with found.running():
        yield found


@pytest.mark.parametrize("kind", GARBAGE)
def test_on_ports_with_tls(safe: SafeCluster, kind: str) -> None:
    node = safe.nodes[1]
    clients = [safe.speaks_tls(1, name) for name in NAMES]
    wait_until(lambda: all(map(answers, clients)), TIMEOUT_S, "the ports of all protocols")
    before = safe.refusals(1)
    for address in (*clients, node.peer):
        # At most a TLS alert, which begins with 21, and no reply of the protocol inside TLS.
        assert told(address, GARBAGE[kind])[:1] in (b"", b"\x15")
    told(node.grpc, GARBAGE[kind])

    def refused() -> int:
        now = safe.refusals(1)
        named = {"not_tls", "closed", "timed_out"}
        assert all(now[reason] == before.get(reason, 0) for reason in now.keys() - named)
        return sum(now.values()) - sum(before.values())

    wait_until(lambda: refused() >= len(clients) + 1, TIMEOUT_S, "a reason for each")
    goes_on(safe, 1)


def contents(file: Path) -> bytes:
    """Return the contents of a file, which a node may rename or remove at any time."""
    with suppress(FileNotFoundError):
        return file.read_bytes()
    return b""


def test_no_secret_can_be_read(safe: SafeCluster, tmp_path: Path) -> None:
    """Search all outputs after every secret was used, including the token of a kept session."""
    place = safe.authority.place
    context = safe.context()
    with safe.connect(0, context) as stream:
        stream.sendall(b"keep " + TOKEN + b" 60\r\nput 0 0 60 1\r\nx\r\n")
        with stream.makefile("rb") as lines:
            assert lines.readline() == b"KEPT\r\n"
            assert lines.readline().startswith(b"INSERTED ")
        stream.sendall(b"resume " + TOKEN[:-1] + b"2\r\n")
    for address in (safe.nodes[0].peer, safe.nodes[0].grpc):
        told(address, SECRET.encode())
    backup = tmp_path / "backup"
    commands = (
        ("backup", "--to", str(backup)),
        ("snapshot",),
        ("status", "--json"),
        ("node", "audit", "--json"),
        ("node", "connections", "--json"),
        ("events", "export", "--to", str(tmp_path / "export")),
    )
    shown = [safe.say(*words, "--addr", safe.nodes[1].grpc) for words in commands]
    assert [one.returncode for one in shown] == [0] * len(shown), shown
    texts = {
        " ".join(words): one.stdout + one.stderr for words, one in zip(commands, shown, strict=True)
    }
    files = [backup, *(tmp_path / "export").rglob("*.parquet")]
    for node in safe.nodes:
        texts[f"metrics of {node.id}"] = http_get(node.http, "/metrics")[1]
        files.append(node.directory / "output.log")
        data = node.directory / "data"
        files += [*(data / "events").rglob("*"), *data.glob("audit.jsonl*")]
    found = {name: text.encode() for name, text in texts.items()}
    found |= {str(file): contents(file) for file in files if file.is_file()}
    assert any("audit.jsonl" in name for name in found) and len(found) > len(commands) + 6
    keys = [path.read_bytes().splitlines()[1] for path in place.glob("*.key")]
    assert len(keys) > 3
    for secret in (SECRET.encode(), TOKEN, *keys):
        for name, data in found.items():
            assert secret not in data, (secret, name)
    shutil.rmtree(tmp_path / "export")
