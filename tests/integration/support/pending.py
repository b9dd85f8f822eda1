"""Workq jobs that wait for workers, and clients that wait for their results, while nodes die.

They record what they see, and `check` decides what must be true of it.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from beanpole.client.workq import Client, Job, Result
from beanpole.errors import ClientError
from tests.integration.support.raw import Address

QUEUE: Final = b"pending"
JOIN_TIMEOUT_S: Final = 60.0
WAIT_MS: Final = 60_000
# Long enough that no job is leased twice because its worker was slow.
TTR_MS: Final = 600_000
LEASE_WAIT_MS: Final = 200


def payload(number: int) -> bytes:
    """Return the payload of a job."""
    return b"payload %d" % number


def result(data: bytes) -> bytes:
    """Return the result that a worker makes of a payload."""
    return b"result of " + data


class Pending:
    """Jobs, workers and clients that wait for results; the same number of clients at each node.

    Attributes:
        jobs: the ids of the jobs, by their numbers.
        leased: every lease that a worker got.
        results: every result that a client got, with the number of its job.
        errors: the errors of clients.
    """

    def __init__(self, addresses: Sequence[Address], count: int, clients: int) -> None:
        self.jobs = [uuid.uuid4() for _ in range(count)]
        self.leased: list[Job] = []
        self.results: list[tuple[int, Result | None]] = []
        self.errors: list[Exception] = []
        self.some_done = threading.Event()
        self._places = [addresses[number % len(addresses)] for number in range(clients)]
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()

    def add(self) -> None:
        """Add all jobs; each is acknowledged."""
        self._run(self._add)
        self._join()

    def start(self) -> None:
        """Let clients wait for results, and start the workers."""
        self._run(self._wait_for_results)
        self._run(self._work)

    def finish(self) -> None:
        """Wait until every client has its results."""
        self._join()

    def check(self) -> None:
        """Check that every job was leased once, and that each result came once."""
        assert not self.errors, self.errors
        leases = Counter(job.id for job in self.leased)
        assert leases == Counter(self.jobs)
        assert {job.payload for job in self.leased} == {
            payload(number) for number in range(len(self.jobs))
        }
        assert sorted(self.results) == [
            (number, Result(True, result(payload(number)))) for number in range(len(self.jobs))
        ]

    def _run(self, act: Callable[[Client, int], None]) -> None:
        for number, place in enumerate(self._places):
            thread = threading.Thread(target=self._one, args=(act, place, number), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT_S)
            assert not thread.is_alive(), "a client waits for ever"
        self._threads.clear()

    def _one(self, act: Callable[[Client, int], None], place: Address, number: int) -> None:
        try:
            # With one address, a connection that ends is an error.
            with Client([place], patience_s=0) as client:
                act(client, number)
        except (ClientError, AssertionError) as error:
            self.errors.append(error)

    def _own(self, number: int) -> range:
        return range(number, len(self.jobs), len(self._places))

    def _add(self, client: Client, number: int) -> None:
        for job in self._own(number):
            client.add(QUEUE, payload(job), job=self.jobs[job], ttr_ms=TTR_MS)

    def _wait_for_results(self, client: Client, number: int) -> None:
        for job in self._own(number):
            self.results.append((job, client.result(self.jobs[job], WAIT_MS)))
            if len(self.results) == len(self.jobs):
                self._ended.set()

    def _work(self, client: Client, number: int) -> None:
        while not self._ended.is_set():
            job = client.lease([QUEUE], LEASE_WAIT_MS)
            if job is not None:
                self.leased.append(job)
                client.complete(job.id, result(job.payload))
                self.some_done.set()
