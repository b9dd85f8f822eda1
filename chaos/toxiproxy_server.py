"""A toxiproxy server for runs: a running one, an installed one, or our double.

The client, toxiproxy-python, supports one server per process and has no timeouts; this adds them.
"""

import os
import shutil
import sys
import urllib.parse
from pathlib import Path
from typing import Any, Final

import requests
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer

from tests.integration.support.ports import free_block
from tests.integration.support.processes import Process

ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAM: Final = "toxiproxy-server"
URL: Final = "TOXIPROXY_URL"
CALL_TIMEOUT_S: Final = 10.0


class Server:
    """The server and its client.

    Attributes:
        words: the server in words, for reports.
        api: the client.
    """

    def __init__(self, directory: Path) -> None:
        # The client honours the environment's proxies, which must not carry local traffic.
        os.environ["NO_PROXY"] = "127.0.0.1,localhost"
        self.api: Any = Toxiproxy()
        self._process: Process | None = None
        _limit_calls()
        if url := os.environ.get(URL):
            place = urllib.parse.urlsplit(url)
            self.api.update_api_consumer(place.hostname, place.port)
            self.words = f"toxiproxy {self._version()} at {url}"
            return
        port = str(free_block())
        real = shutil.which(PROGRAM)
        command = [real] if real else [sys.executable, "-m", "chaos.toxiproxy_double"]
        log = directory / "toxiproxy.log"
        self._process = Process([*command, "-host", "127.0.0.1", "-port", port], log, cwd=ROOT)
        self._process.wait_until_serving(f"127.0.0.1:{port}")
        self.api.update_api_consumer("127.0.0.1", int(port))
        self.words = f"toxiproxy {self._version()}" if real else "our double of toxiproxy"

    def _version(self) -> str:
        return str(APIConsumer.get("/version").json()["version"])

    def close(self) -> None:
        """Remove all proxies, and end the server if it was started here."""
        if self._process is None:
            self.api.destroy_all()
        else:
            self._process.kill()


def _limit_calls() -> None:
    """Give each request of the client a timeout."""
    for method in ("get", "post", "delete"):
        call = getattr(requests, method)

        def limited(*given: Any, _call: Any = call, **named: Any) -> Any:
            return _call(*given, **{"timeout": CALL_TIMEOUT_S, **named})

        setattr(requests, method, limited)
