"""gRPC writes nothing to the log of a node, and resumes no old sessions."""

import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from beanpoled.cli import certs
from beanpoled.cli.certs import make_ca, make_certificate
from beanpoled.rpc.caller import NAMES_KEY
from beanpoled.rpc.credentials import of_server
from beanpoled.trust.certificates import SESSIONS_S, Certificates, Files

# How a client of HTTP/2 begins: its preface and empty settings.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"

SERVER = """
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
import beanpoled.main
import grpc

key, certificate, ca = (open(path, "rb").read() for path in sys.argv[1:])
server = grpc.server(ThreadPoolExecutor(1))
shown = grpc.ssl_server_credentials([(key, certificate)], ca, True)
port = server.add_secure_port("127.0.0.1:0", shown)
server.start()
for _ in range(3):
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"no handshake")
        while stranger.recv(1000):
            pass
server.stop(None).wait()
"""


def test_failed_handshakes_write_no_lines(tmp_path: Path) -> None:
    make_ca(tmp_path, "1")
    make_certificate(tmp_path, "a", ["a"], "1")
    files = [str(tmp_path / name) for name in ("a.key", "a.pem", "ca.pem")]
    command = [sys.executable, "-c", SERVER, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_only_dns_names_of_a_certificate_are_names_of_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CA may look less closely at the other kinds, and the link and client ports ignore them."""
    monkeypatch.setattr(certs, "_entry", str)
    make_ca(tmp_path, "1")
    make_certificate(tmp_path, "a", ["DNS:a"], "1")
    make_certificate(tmp_path, "b", ["URI:n0", "email:n0@example.org", "DNS:b", "IP:10.0.0.1"], "1")

    def names(_: bytes, context: Any) -> bytes:
        return b" ".join(context.auth_context().get(NAMES_KEY, ()))

    def read(name: str) -> bytes:
        return (tmp_path / name).read_bytes()

    ca = read("ca.pem")
    server = grpc.server(ThreadPoolExecutor(1))
    handler: Any = grpc.unary_unary_rpc_method_handler(names)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("s", {"m": handler})])
    shown = grpc.ssl_server_credentials([(read("a.key"), read("a.pem"))], ca, True)
    port = server.add_secure_port("127.0.0.1:0", shown)
    server.start()
    mine = grpc.ssl_channel_credentials(ca, read("b.key"), read("b.pem"))
    named = (("grpc.ssl_target_name_override", "a"),)
    with grpc.secure_channel(f"127.0.0.1:{port}", mine, named) as channel:
        ask: Any = channel.unary_unary("/s/m")
        assert ask(b"", timeout=60) == b"b"
    server.stop(None).wait()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_cannot_be_resumed_for_longer_than_a_minute(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    make_ca(tmp_path, "1")
    make_certificate(tmp_path, "a", ["a"], "1")
    certificate, key, ca = (str(tmp_path / name) for name in ("a.pem", "a.key", "ca.pem"))
    now_s = 0.0
    trust: Any = SimpleNamespace(
        of_peers=Certificates(Files("peer_tls_", certificate, key, ca, "", "a"))
    )
    server = grpc.server(ThreadPoolExecutor(1))
    shown = of_server(trust, lambda: now_s)
    assert shown is not None
    port = server.add_secure_port("127.0.0.1:0", shown)
    server.start()
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(certificate, key)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    session = None

    def is_resumed() -> bool:
        nonlocal session
        plain = socket.create_connection(("127.0.0.1", port), 60)
        with context.wrap_socket(plain, server_hostname="a", session=session) as stream:
            stream.sendall(HELLO)
            assert stream.recv(100)  # TLS 1.3 sends its tickets before that
            session = stream.session
            return bool(stream.session_reused)

    assert [is_resumed() for _ in range(3)] == [False, True, True]
    now_s += SESSIONS_S  # a session that is renewed again and again ends, too
    assert [is_resumed() for _ in range(2)] == [False, True]
    server.stop(None).wait()
