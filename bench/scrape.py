"""Measure pages of metrics with many queues: their latency, and that of a client's put beside them.

One cluster of three compiled nodes has a ready job in each queue. A client, in a process of its
own, puts and deletes at one node, in turns with and without a scrape of that node once a second.
"""

import json
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

from bench.bystanders import Connection, bystander, p99_ms
from bench.servers import beanpole

QUEUES: Final = 1000
PERIOD_S: Final = 1.0
# The duration of each turn.
TURN_S: Final = 15.0
TURNS: Final = 4
# Puts per batch when the queues are filled.
TOGETHER: Final = 250


class Scraped(NamedTuple):
    """The results."""

    queues: int
    page_bytes: int
    promtool: str  # its verdict on the page
    page_ms: list[float]  # of each page, from the request to its last byte
    put_quiet_ms: list[float]  # all puts without scrapes
    put_ms: list[float]  # and with one scrape a second


def measure(queues: int, directory: Path) -> Scraped:
    """Fill the queues of a fresh cluster and scrape one of its followers."""
    with tempfile.TemporaryDirectory(prefix="scrape-", dir=directory) as name:
        folder = Path(name)
        with beanpole(3)(folder):
            node = json.loads((folder / "data/cluster.json").read_text())["nodes"][1]
            fill(node["beanstalk"], queues)
            quiet, beside, pages = [], [], []
            url = f"http://{node['http']}/metrics"
            _page(url)
            with bystander(node["beanstalk"]) as looked:
                for _ in range(TURNS):
                    looked()
                    time.sleep(TURN_S)
                    quiet += looked()
                    pages += _scrape(url)
                    beside += looked()
            page = _page(url)[1]
    quiet_ms, beside_ms = ([wait_s * 1e3 for wait_s in waits] for waits in (quiet, beside))
    return Scraped(queues, len(page), promtool(page), pages, quiet_ms, beside_ms)


def promtool(page: bytes) -> str:
    """Return the verdict of Prometheus's own tool on a page."""
    if shutil.which("promtool") is None:
        return "not asked: apt-get install prometheus"
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, check=False)
    return (done.stdout + done.stderr).decode() or "nothing to complain about"


def fill(address: str, queues: int) -> None:
    """Put one job into each queue."""
    client = Connection(address)
    for begin in range(0, queues, TOGETHER):
        numbers = range(begin, min(begin + TOGETHER, queues))
        client.send(b"".join(b"use q%d\r\nput 0 0 60 1\r\nx\r\n" % number for number in numbers))
        for _ in numbers:
            client.line()
            assert client.line().startswith(b"INSERTED")


def _scrape(url: str) -> list[float]:
    took_ms = []
    ends = threading.Event()
    for _ in range(int(TURN_S / PERIOD_S)):
        ends.wait(PERIOD_S)
        took_ms.append(_page(url)[0])
    return took_ms


def _page(url: str) -> tuple[float, bytes]:
    begun_s = time.monotonic()
    with urllib.request.urlopen(url, timeout=10) as reply:
        page: bytes = reply.read()
    return (time.monotonic() - begun_s) * 1e3, page


def table(found: Scraped) -> list[list[str]]:
    """Return the rows of a table, its head first."""
    return [
        ["of a node of three", "measured"],
        ["queues", f"{found.queues:,}"],
        ["a page", f"{found.page_bytes:,} bytes"],
        ["`promtool check metrics`", found.promtool],
        ["a page, median and longest", f"{_middle(found.page_ms)}, {max(found.page_ms):.1f} ms"],
        ["p99 of a put without pages", f"{p99_ms(_s(found.put_quiet_ms)):.1f} ms"],
        ["p99 of a put with a page each second", f"{p99_ms(_s(found.put_ms)):.1f} ms"],
        ["median of both", f"{_middle(found.put_quiet_ms)}, {_middle(found.put_ms)} ms"],
        ["longest of both", f"{max(found.put_quiet_ms):.1f}, {max(found.put_ms):.1f} ms"],
    ]


def _middle(values: list[float]) -> str:
    return f"{statistics.median(values):.1f}"


def _s(values_ms: list[float]) -> list[float]:
    return [value / 1e3 for value in values_ms]
