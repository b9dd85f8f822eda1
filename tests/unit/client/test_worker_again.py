"""A worker that runs again after its run has ended."""

import threading
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest

from beanpole.client import worker as workers
from beanpole.client.blocking import DeniedError
from beanpole.client.worker import Task, Worker
from tests.unit.client.test_worker import FakeClient

DONE_S = 60


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator["Queue[str]"]:
    ends: Queue[str] = Queue()
    monkeypatch.setattr(workers, "Client", lambda *_, **__: FakeClient(ends, 0, 1))
    yield ends


def stopping(worker: Worker) -> None:
    """Let the worker stop at each job."""

    @worker.handles("mail")
    def handle(_: Task) -> None:
        worker.stop()


def test_a_worker_that_was_stopped_runs_again(ended: "Queue[str]") -> None:
    worker = Worker("127.0.0.1:1")
    stopping(worker)
    worker.run(handle_signals=False)
    worker.run(handle_signals=False)
    assert ended.qsize() == 2
    assert worker.counts["deleted"] == 2


def test_a_stop_before_the_run_counts(ended: "Queue[str]") -> None:
    worker = Worker("127.0.0.1:1")
    stopping(worker)
    worker.stop()
    worker.run(handle_signals=False)
    assert ended.empty()


def test_a_stop_while_an_interrupted_run_ends_counts(ended: "Queue[str]") -> None:
    """The next run waits for the threads of the one before, and forgets that one's stop."""
    worker = Worker("127.0.0.1:1")
    stopping(worker)
    go_on = threading.Event()
    left = threading.Thread(target=go_on.wait, args=(DONE_S,))
    left.start()
    worker._interrupted = [left]
    worker._stopping.set()
    run = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
    run.start()
    worker.stop()
    go_on.set()
    run.join(DONE_S)
    assert not run.is_alive()
    assert ended.empty()


def test_a_worker_that_was_refused_asks_again(
    monkeypatch: pytest.MonkeyPatch, ended: "Queue[str]"
) -> None:
    worker = Worker("127.0.0.1:1")
    stopping(worker)
    with monkeypatch.context() as patch:

        def refuse(*_: Any, **__: Any) -> None:
            raise DeniedError

        patch.setattr(workers, "Client", refuse)
        with pytest.raises(DeniedError):
            worker.run(handle_signals=False)
    worker.run(handle_signals=False)
    assert worker.counts["deleted"] == 1


def test_a_run_that_was_interrupted_ends_before_the_next_begins(
    monkeypatch: pytest.MonkeyPatch, ended: "Queue[str]"
) -> None:
    """An exception in the main thread, as of Ctrl-C, leaves handlers behind that still run."""
    worker = Worker("127.0.0.1:1")
    begun, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    @worker.handles("mail")
    def handle(_: Task) -> None:
        begun.set()
        assert go_on.wait(DONE_S)
        seen.append("done")
        if len(seen) == 2:
            worker.stop()

    class Interrupting(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            if not go_on.is_set():
                assert begun.wait(DONE_S)
                raise KeyboardInterrupt
            super().join(timeout)

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Interrupting)
        with pytest.raises(KeyboardInterrupt):
            worker.run(handle_signals=False)
    assert not seen
    go_on.set()
    worker.run(handle_signals=False)
    assert seen == ["done", "done"]
    assert worker.counts["deleted"] == 2
