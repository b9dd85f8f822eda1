"""gRPC writes nothing to the log of a node."""

import subprocess
import sys
from pathlib import Path

from beanpoled.cli.certs import make_ca, make_certificate

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
