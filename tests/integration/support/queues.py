"""The servers that the restated protocol tests run against, each behind the same small interface.

Fresh single nodes come from a pool that starts the next one while a test uses the current one.
"""

import os
import signal
from pathlib import Path
from typing import Final

from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Address, Raw
from tests.integration.support.reference import Beanstalkd
from tests.integration.support.waiting import wait_until

SETTLE_TIMEOUT_S: Final = 60.0
# With TEST_SERVER=beanstalkd the tests run against Debian's beanstalkd, to check the tests.
# Beanpole quotes the strings in statistics as beanstalkd 1.13 does; Debian's 1.12 does not.
AGAINST_REFERENCE: Final = os.environ.get("TEST_SERVER") == "beanstalkd"
QUOTE: Final = "" if AGAINST_REFERENCE else '"'
JOB_SIZE_DEFAULT_BYTES: Final = 65535


class Queue:
    """One server under test.

    Attributes:
        address: the address for its clients.
        base: the last job id that was given before the test: ids are relative to it.
        job_size_max: its limit of a body, in bytes.
        pid: its process, for signals.
    """

    def __init__(self, address: Address, base: int, job_size_max: int, pid: int) -> None:
        self.address = address
        self.base = base
        self.job_size_max = job_size_max
        self.pid = pid
        self._connections: list[Raw] = []

    def connect(self) -> Raw:
        """Open a connection that is closed after the test."""
        connection = Raw(self.address)
        self._connections.append(connection)
        return connection

    def id(self, number: int) -> int:
        """Return the id of the test's job with the given number, from 1."""
        return self.base + number

    def drain(self, wanted: bool = True) -> None:
        """Tell the node to refuse jobs, or to accept them again, and wait until it does."""
        os.kill(self.pid, signal.SIGUSR1 if wanted else signal.SIGUSR2)
        with Raw(self.address) as client:
            expected = "true" if wanted else "false"
            wait_until(
                lambda: client.dictionary(b"stats")["draining"] == expected,
                SETTLE_TIMEOUT_S,
                "drain mode",
            )

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()


def is_clean(connection: Raw) -> bool:
    """Delete every job that is not reserved; returns whether nothing is left of earlier tests."""
    for tube in connection.names(b"list-tubes"):
        connection.ask(b"use " + tube.encode(), b"USING " + tube.encode())
        for peek in (b"peek-ready", b"peek-delayed", b"peek-buried"):
            while (reply := connection.command(peek)[0]).startswith(b"FOUND"):
                # NOT_FOUND: it was given to a client whose end the cluster does not know yet.
                deleted = connection.command(b"delete " + reply.split(b" ")[1])[0]
                assert deleted in (b"DELETED", b"NOT_FOUND"), deleted
    connection.ask(b"use default", b"USING default")
    # A paused tube would vanish without its clients, except this one.
    connection.ask(b"pause-tube default 0", b"PAUSED")
    counts = connection.dictionary(b"stats-tube default")
    stats = connection.dictionary(b"stats")
    jobs = sum(int(stats[f"current-jobs-{state}"]) for state in ("ready", "reserved", "delayed"))
    alone = counts["current-using"] == counts["current-watching"] == "1"
    return (
        jobs == 0
        and alone
        and counts["pause"] == "0"
        and connection.names(b"list-tubes") == ["default"]
    )


def settle(address: Address) -> int:
    """Wait until nothing of earlier tests is left; returns the last id that was given."""
    with Raw(address) as connection:
        wait_until(lambda: is_clean(connection), SETTLE_TIMEOUT_S, "no trace of earlier tests")
        last = connection.put(b"")
        connection.ask(b"delete %d" % last, b"DELETED")
    return last


class Singles:
    """Fresh single nodes."""

    def __init__(self, directory: Path, settings: dict[str, object] | None = None) -> None:
        self.directory = directory
        self.settings = settings or {}
        self._made = 0
        self._next: Cluster | None = None

    def take(self) -> Cluster:
        """Return a fresh node that serves, and start the next one."""
        node = self._next or self._start()
        node.wait_until_serving(0)
        self._next = self._start()
        return node

    def close(self) -> None:
        if self._next:
            self._next.close()

    def _start(self) -> Cluster:
        self._made += 1
        node = Cluster(
            self.directory / f"single{self._made}",
            count=1,
            settings=self.settings,
            unix=True,
        )
        node.start_all(wait=False)
        return node


class ReferenceQueue(Queue):
    """A fresh beanstalkd, aged by a few jobs where a test expects a used server."""

    def __init__(self, directory: Path, job_size_max: int, aged: bool) -> None:
        self.server = Beanstalkd(directory, ["-z", str(job_size_max)])
        base = settle(self.server.address) if aged else 0
        super().__init__(self.server.address, base, job_size_max, self.server.process.pid)

    def close(self) -> None:
        super().close()
        self.server.close()
