"""Three nodes that use TLS among themselves, for gRPC and with clients of all protocols."""

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from beanpoled.config.protocols import FIRST, PROTOCOLS
from tests.integration.support.authority import Authority
from tests.integration.support.nodes import BEANPOLE, Cluster, Settings, http_get
from tests.integration.support.ports import free_block

TIMEOUT_S: Final = 60.0
# TLS ports are this number above the plain ones.
TLS_PORT: Final = 5
# The certificate of a client, and its key.
CLIENT: Final = ("client.pem", "client.key")


class SafeCluster(Cluster):
    """Three nodes with certificates of an authority, and its list of revoked ones.

    Attributes:
        kept: the list for the clients of the second node, which does not change with the others'.
    """

    def __init__(
        self, directory: Path, authority: Authority, crl: str, settings: Settings | None = None
    ) -> None:
        base = free_block()
        self.authority = authority
        tls = {"tls_client_ca_file": authority.ca, "tls_crl_file": crl}
        tls |= {"peer_tls_ca_file": authority.ca, "peer_tls_crl_file": crl}
        super().__init__(directory, settings={**(settings or {}), **tls}, base=base)
        for number, node in enumerate(self.nodes):
            place = node.directory / "certificates"
            place.mkdir()
            files = [Path(file) for file in authority.make(node.id)]
            certificate, key = (shutil.copy(file, place / file.name) for file in files)
            flags = []
            for prefix in ("tls", "peer-tls"):
                flags += [f"--{prefix}-certificate-file", certificate, f"--{prefix}-key-file", key]
            if number == 1:
                self.kept = place / "kept.crl"
                flags += ["--tls-crl-file", shutil.copy(crl, self.kept)]
            flags += ["--listen", f"{node.beanstalk},tls:127.0.0.1:{base + TLS_PORT + number}"]
            others = [row for row in PROTOCOLS if row.name != FIRST]
            given = [
                f"{row.name}={address}"
                for row in others
                for address in (node.speaks(row.name), "tls:" + self.speaks_tls(number, row.name))
            ]
            flags += ["--listeners", ",".join(given)]
            line = node.directory / "cmdline"
            line.write_text(f"{line.read_text().strip()} {' '.join(map(str, flags))}\n")
        self.safe = [("127.0.0.1", base + TLS_PORT + number) for number in range(3)]

    def speaks_tls(self, number: int, protocol: str) -> str:
        """Return a node's TLS address for clients of a protocol."""
        host, _, port = self.nodes[number].speaks(protocol).rpartition(":")
        return f"{host}:{int(port) + TLS_PORT}"

    def connect(self, number: int, context: ssl.SSLContext) -> ssl.SSLSocket:
        plain = socket.create_connection(self.safe[number], TIMEOUT_S)
        return context.wrap_socket(plain, server_hostname="localhost")

    def context(self) -> ssl.SSLContext:
        """Return the context of a client with its certificate."""
        place = self.authority.place
        return self.authority.client((str(place / CLIENT[0]), str(place / CLIENT[1])))

    def environment(self, shown: Sequence[str] = CLIENT) -> dict[str, str]:
        """Return the environment of a command that shows a certificate with its key, or none."""
        variables = ("BEANPOLE_TLS_CERTIFICATE", "BEANPOLE_TLS_KEY")
        files = [str(self.authority.place / name) for name in shown]
        own = {**os.environ, "BEANPOLE_TLS_CA": self.authority.ca}
        return own | dict(zip(variables, files, strict=False))

    def refusals(self, number: int) -> dict[str, int]:
        """Return the number of handshakes that a node refused, by reason."""
        page = http_get(self.nodes[number].http, "/metrics")[1]
        name = 'beanpole_tls_refused_total{reason="'
        found = [line.removeprefix(name) for line in page.splitlines() if line.startswith(name)]
        return {reason: int(n) for reason, _, n in (line.partition('"} ') for line in found)}

    def say(self, *words: str, shown: Sequence[str] = CLIENT) -> Any:
        """Run a command of `beanpole` with the client's certificate."""
        return subprocess.run(
            [*BEANPOLE, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.environment(shown),
        )
