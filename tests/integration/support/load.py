"""Clients that put, reserve and delete while something goes wrong, and record what they see.

They never repeat a command; a client whose connection ends opens another one. Their histories are
judged in `history`.
"""

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Final

from tests.integration.support.history import (
    DELETED,
    INSERTED,
    UNKNOWN,
    Delete,
    Delivery,
    History,
    Put,
)
from tests.integration.support.raw import Address, Raw
from tests.integration.support.waiting import wait_until

# Longer than any pause that a client may see; a later reply is an error.
REPLY_TIMEOUT_S: Final = 30.0
JOIN_TIMEOUT_S: Final = 60.0
PROGRESS_TIMEOUT_S: Final = 60.0
EMPTY_TIMEOUT_S: Final = 60.0
# A job whose delete is unknown must come back by the end of its session, never by its TTR.
TTR_S: Final = 3600

# Loads that were started and have not finished.
_running: "set[Load]" = set()


class Worker(threading.Thread):
    """One client: put, reserve, delete, again and again until stopped."""

    def __init__(
        self, number: int, address: Address, stop: threading.Event, pause_s: float = 0
    ) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.history = History()
        self._number = number
        self._address = address
        self._ending = stop
        self._pause_s = pause_s

    def run(self) -> None:
        bodies = (b"%d/%d" % (self._number, count) for count in itertools.count())
        while not self._ending.is_set():
            try:
                with Raw(self._address, REPLY_TIMEOUT_S) as connection:
                    while not self._ending.is_set():
                        self._put(connection, next(bodies))
                        self._finish_one(connection, b"reserve-with-timeout 1")
                        if self._pause_s:
                            self._ending.wait(self._pause_s)
            except (OSError, AssertionError, ValueError) as error:
                self.history.errors.append(f"{self._address}: {type(error).__name__}: {error}")
                # Do not hammer a node that is down; the test decides how long the load runs.
                self._ending.wait(0.05)

    def empty(self) -> None:
        """Reserve and delete everything in the queue, as the last client."""
        with Raw(self._address, REPLY_TIMEOUT_S) as connection:

            def is_empty() -> bool:
                while self._finish_one(connection, b"reserve-with-timeout 0"):
                    pass
                stats = connection.dictionary(b"stats")
                return stats["current-jobs-ready"] == stats["current-jobs-reserved"] == "0"

            wait_until(is_empty, EMPTY_TIMEOUT_S, "an empty queue")

    def _put(self, connection: Raw, body: bytes) -> None:
        # Recorded before the outcome is known, so that no exception loses it.
        self.history.puts.append(Put(body, UNKNOWN, 0))
        command = b"put 0 0 %d %d\r\n%b" % (TTR_S, len(body), body)
        word, _, rest = connection.command(command)[0].partition(b" ")
        self._note_time()
        if word == b"INSERTED":
            self.history.puts[-1] = Put(body, INSERTED, int(rest))
        else:
            self.history.puts[-1] = Put(body, word.decode(), 0)
            self.history.errors.append(f"put: {word!r} {rest!r}")

    def _finish_one(self, connection: Raw, command: bytes) -> bool:
        """Reserve a job and delete it; False if there is none."""
        line, body = connection.command(command)
        self._note_time()
        if body is None:
            if line != b"TIMED_OUT":
                self.history.errors.append(f"reserve: {line!r}")
            return False
        job = int(line.split(b" ")[1])
        self.history.deliveries.append(Delivery(job, body))
        self.history.deletes.append(Delete(job, UNKNOWN))
        outcome, _ = connection.command(b"delete %d" % job)
        self._note_time()
        self.history.deletes[-1] = Delete(job, outcome.decode())
        if outcome.decode() != DELETED:
            self.history.errors.append(f"delete {job}: {outcome!r}")
        return True

    def _note_time(self) -> None:
        now = time.monotonic()
        times = self.history.reply_times_s
        if times:
            self.history.longest_wait_s = max(self.history.longest_wait_s, now - times[-1])
        times.append(now)


class Load:
    """Some clients at some addresses, each as fast as possible or with a pause after each job."""

    def __init__(self, addresses: Sequence[Address], count: int, pause_s: float = 0) -> None:
        self._ending = threading.Event()
        self._addresses = addresses
        self.workers = [
            Worker(number, addresses[number % len(addresses)], self._ending, pause_s)
            for number in range(count)
        ]

    def start(self) -> None:
        _running.add(self)
        for worker in self.workers:
            worker.start()

    def stop(self) -> None:
        """Stop the clients; a client that does not end is a failure."""
        self._ending.set()
        _running.discard(self)
        for worker in self.workers:
            worker.join(JOIN_TIMEOUT_S)
            assert not worker.is_alive(), f"{worker.name} got no reply"

    def deleted(self) -> int:
        """Return the number of jobs finished so far."""
        return sum(len(worker.history.deletes) for worker in self.workers)

    def wait_for_progress(self, jobs: int, timeout_s: float = PROGRESS_TIMEOUT_S) -> None:
        """Wait until the given number of jobs, and one by each client, are finished in addition."""
        total = self.deleted() + jobs
        each = [len(worker.history.deletes) + 1 for worker in self.workers]

        def done() -> bool:
            counts = [len(worker.history.deletes) for worker in self.workers]
            return sum(counts) >= total and all(
                count >= wanted for count, wanted in zip(counts, each, strict=True)
            )

        wait_until(done, timeout_s, f"{jobs} more jobs by all clients: {self.errors()}")

    def errors(self) -> list[str]:
        return [error for worker in self.workers for error in worker.history.errors]

    def finish(self) -> History:
        """Stop the clients, empty the queue, and return the history of all."""
        self.stop()
        last = Worker(len(self.workers), self._addresses[0], self._ending)
        last.empty()
        history = last.history
        # The last client's replies come long after the others': that gap means nothing.
        history.reply_times_s.clear()
        history.longest_wait_s = 0.0
        for worker in self.workers:
            history.join(worker.history)
        return history


def stop_all() -> None:
    """Stop loads of failed tests: their clients would go on with the next cluster at the ports."""
    for load in list(_running):
        load.stop()
