"""Producers that repeat every put with its key while leaders are killed: no duplicate jobs.

Three kills are part of `make test`; `make test-kills` has twenty and prints the number of puts. The
single cases are in `test_client_sessions`.
"""

import operator
import os
import sys
import threading
from collections import Counter
from types import ModuleType
from typing import Final

import pytest

from beanpole.client import aio, blocking
from tests.integration.support.drop_in import maker
from tests.integration.support.nodes import Cluster
from tests.integration.support.waiting import wait_until

KILLS: Final = int(os.environ.get("KILLS", "3"))
TUBE: Final = "kills"
# Fewer puts than a producer makes in a second.
PROGRESS_PUTS: Final = 50
TIMEOUT_S: Final = 60.0


class Producer(threading.Thread):
    """Puts jobs in sequence, every tenth twice; its client repeats puts without a reply.

    Attributes:
        ids: the ids of the jobs by their keys.
    """

    def __init__(self, module: ModuleType, addresses: list[str], over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._module = module
        self._addresses = addresses
        self._over = over
        self.ids: dict[str, int] = {}
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            named = {"use": TUBE, "spread": False, "patience_s": TIMEOUT_S}
            with maker(self._module)(self._addresses, **named) as client:
                while not self._over.is_set():
                    key = f"key-{len(self.ids)}"
                    self.ids[key] = client.put(key, key=key)
                    if len(self.ids) % 10 == 0:
                        assert client.put(key, key=key) == self.ids[key]
        except BaseException as error:
            self.failure = error


@pytest.mark.timeout(240 + 15 * KILLS)
def test_no_job_is_put_twice(cluster: Cluster) -> None:
    """Two producers use the same keys at different nodes: each key has one job and one id."""
    over = threading.Event()
    addresses = [node.beanstalk for node in cluster.nodes]
    producers = [
        Producer(blocking, addresses, over),
        Producer(aio, addresses[1:] + addresses[:1], over),
    ]

    def counts() -> list[int]:
        for one in producers:
            assert one.failure is None, one.failure
        return [len(one.ids) for one in producers]

    def progress() -> None:
        before = counts()
        wait_until(
            lambda: min(map(operator.sub, counts(), before)) >= PROGRESS_PUTS,
            TIMEOUT_S,
            "puts of both",
        )

    for one in producers:
        one.start()
    for _ in range(KILLS):
        progress()
        leader = cluster.leader()
        cluster.kill(leader)
        progress()
        cluster.start(leader)
        cluster.wait_until_serving(leader)
    over.set()
    for one in producers:
        one.join(TIMEOUT_S)
        assert not one.is_alive()
    counts()
    first, second = (one.ids for one in producers)
    both = first.keys() & second.keys()
    assert [first[key] for key in both] == [second[key] for key in both]
    keys = first.keys() | second.keys()
    sys.stdout.write(f"{KILLS} kills, {len(keys)} keys, {len(first) + len(second)} puts\n")
    with blocking.Client(addresses, use=TUBE, watch=TUBE, patience_s=TIMEOUT_S) as client:
        assert client.stats_tube(TUBE)["total-jobs"] == len(keys)
        found: Counter[str] = Counter()
        while len(found) < len(keys):
            jobs = client.reserve_many(1000, timeout=5)
            for job in jobs:
                assert job.id == first.get(job.body, second.get(job.body))
            found.update(job.body for job in jobs)
            client.delete_many(jobs)
        assert found == Counter(keys)
