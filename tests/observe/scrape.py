"""Measure the cost of a metrics page for its node: `python -m tests.observe.scrape QUEUES...`.

There are three nodes, and one ready job in each queue. One node serves the pages in sequence, while
a client at the same node sends a command that needs no other node, so that it waits for the loop
alone. The times are those of this machine, and nothing passes or fails.
"""

import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from tests.integration.support.nodes import Cluster, Node, http_get
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_for_time

SCRAPES: Final = 200
# The duration of the measurement without pages.
QUIET_S: Final = 3.0
# The number of puts that are sent together to fill the queues.
TOGETHER: Final = 250
SETTINGS: Final = {"tubes_max": 200_000}


class Bystander(threading.Thread):
    """A client that repeats a command that its node answers alone."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self.waits_s: list[float] = []
        self._client = Raw(node.beanstalk)
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.wait(0.001):
            began = time.perf_counter()
            self._client.command(b"list-tube-used")
            self.waits_s.append(time.perf_counter() - began)

    def end(self) -> str:
        """Return its waits in milliseconds."""
        self._ends.set()
        self.join()
        self._client.close()
        return words(self.waits_s)


def words(times_s: list[float]) -> str:
    ordered = sorted(times_s)
    high = ordered[int(len(ordered) * 0.99)]
    middle = statistics.median(ordered)
    return f"median {middle * 1e3:.1f} ms, p99 {high * 1e3:.1f}, worst {ordered[-1] * 1e3:.1f}"


def fill(node: Node, queues: int) -> None:
    with Raw(node.beanstalk) as client:
        for begin in range(0, queues, TOGETHER):
            count = min(TOGETHER, queues - begin)
            lines = (b"use q%d\r\nput 0 0 60 1\r\nx\r\n" % (begin + n) for n in range(count))
            client.send(b"".join(lines))
            for _ in range(count):
                client.reply()
                client.reply()


def cpu_s(page: str) -> float:
    [line] = [one for one in page.splitlines() if one.startswith("process_cpu_seconds_total ")]
    return float(line.split()[1])


def measure(queues: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="beanpole-scrape-") as directory,
        Cluster(Path(directory), settings=SETTINGS).running() as cluster,
    ):
        node = cluster.nodes[cluster.leader()]
        fill(node, queues)
        quiet = Bystander(node)
        quiet.start()
        used_s = cpu_s(http_get(node.http, "/metrics")[1])
        wait_for_time(QUIET_S)
        page = http_get(node.http, "/metrics")[1]
        idle_rate = (cpu_s(page) - used_s) / QUIET_S
        alone = quiet.end()
        beside = Bystander(node)
        beside.start()
        times_s: list[float] = []
        began, used_s = time.perf_counter(), cpu_s(http_get(node.http, "/metrics")[1])
        for _ in range(SCRAPES):
            start = time.perf_counter()
            page = http_get(node.http, "/metrics")[1]
            times_s.append(time.perf_counter() - start)
        spent_s = cpu_s(page) - used_s - idle_rate * (time.perf_counter() - began)
        sys.stdout.write(
            f"{queues} queues, {len(page)} bytes: a page {words(times_s)}; "
            f"processor {spent_s / SCRAPES * 1e3:.1f} ms a page\n"
            f"  a client beside it: {beside.end()}; without pages: {alone}\n"
        )


def main() -> None:
    for count in sys.argv[1:]:
        measure(int(count))


if __name__ == "__main__":
    main()
