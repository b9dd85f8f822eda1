"""An unmodified public client (greenstalk) that works while pods are replaced.

It never reconnects: the end of its connection is an error. Clients that record each reply are in
tests/integration/support/load.
"""

import itertools
import threading
from collections.abc import Sequence
from typing import Final

import greenstalk

from tests.integration.support.waiting import wait_until

TUBE: Final = "unmodified"
# So long that a reserved job that is lost does not return by its TTR.
TTR_S: Final = 3600
RESERVE_S: Final = 1
PROGRESS_TIMEOUT_S: Final = 30.0
JOIN_TIMEOUT_S: Final = 60.0


class Client(threading.Thread):
    """A client that puts, reserves and deletes jobs on one connection until it is stopped."""

    def __init__(self, address: str, ending: threading.Event) -> None:
        super().__init__(name=f"greenstalk at {address}", daemon=True)
        host, _, port = address.partition(":")
        self._address = host, int(port)
        self._ending = ending
        self.acknowledged: list[str] = []
        self.deleted: list[str] = []
        self.error = ""

    def run(self) -> None:
        try:
            with greenstalk.Client(self._address, use=TUBE, watch=TUBE) as client:
                for count in itertools.count():
                    if self._ending.is_set():
                        return
                    body = f"{self._address[0]}/{count}"
                    client.put(body, ttr=TTR_S)
                    self.acknowledged.append(body)
                    try:
                        job = client.reserve(timeout=RESERVE_S)
                    except greenstalk.TimedOutError:
                        continue  # the other client took it
                    client.delete(job)
                    self.deleted.append(job.body)
        except (OSError, greenstalk.Error) as error:
            self.error = f"{self.name}: {type(error).__name__}: {error}"


class Clients:
    """One client at each address, all in one tube."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._ending = threading.Event()
        self._addresses = addresses
        self._clients = [Client(address, self._ending) for address in addresses]

    def start(self) -> None:
        for client in self._clients:
            client.start()

    def stop(self) -> None:
        self._ending.set()
        for client in self._clients:
            client.join(JOIN_TIMEOUT_S)
            assert not client.is_alive(), f"{client.name} got no reply"

    def wait_for_progress(self) -> None:
        """Wait until every client has deleted one more job."""
        for client in self._clients:
            before = len(client.deleted)

            def done(client: Client = client, before: int = before) -> bool:
                assert not client.error, client.error
                return len(client.deleted) > before

            wait_until(done, PROGRESS_TIMEOUT_S, f"one more job of {client.name}")

    def finish(self) -> int:
        """Stop, reserve the remaining jobs, and check that each job came once.

        Returns:
            The number of acknowledged jobs.
        """
        self.stop()
        errors = [client.error for client in self._clients if client.error]
        assert not errors, errors
        acknowledged = [body for client in self._clients for body in client.acknowledged]
        taken = [body for client in self._clients for body in client.deleted]
        host, _, port = self._addresses[0].partition(":")
        with greenstalk.Client((host, int(port)), watch=TUBE) as client:
            while True:
                try:
                    job = client.reserve(timeout=0)
                except greenstalk.TimedOutError:
                    break
                client.delete(job)
                taken.append(job.body)
        assert sorted(taken) == sorted(acknowledged), "a job was lost, or came twice"
        return len(acknowledged)
