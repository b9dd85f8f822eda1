"""A worker that is told to stop by a signal; its handlers are in `test_worker`."""

import signal
import threading
from queue import Queue

import pytest

from beanpole.client import worker as workers
from beanpole.client.worker import Worker
from tests.unit.client.test_worker import FakeClient


def test_a_signal_that_does_not_wake_the_main_thread_stops_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system may give it to any thread, and a wait without an end was not interrupted."""
    ended: Queue[str] = Queue()
    monkeypatch.setattr(workers, "Client", lambda *_, **__: FakeClient(ended, 0, 1))
    worker = Worker("127.0.0.1:1")

    @worker.handles("mail")
    def work(_: object) -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    worker.run()
    assert ended.get_nowait() == "deleted"
    assert signal.getsignal(signal.SIGTERM) is before
