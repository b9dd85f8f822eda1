"""A worker that a signal stops, and a log that blocks; handlers are in `test_worker`."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest

from beanpole.client import worker as workers
from beanpole.client.backoff import Backoff
from beanpole.client.blocking import DeniedError
from beanpole.client.worker import Worker
from tests.unit.client.test_worker import FakeClient


class Logs(logging.Handler):
    """Calls a function at each line."""

    def __init__(self, at: Callable[[str], None]) -> None:
        super().__init__()
        self._at = at

    def emit(self, record: logging.LogRecord) -> None:
        self._at(record.getMessage())


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> "Queue[str]":
    ends: Queue[str] = Queue()
    monkeypatch.setattr(workers, "Client", lambda *_, **__: FakeClient(ends, 0, 1))
    return ends


@pytest.fixture
def logged() -> Iterator[Callable[[Callable[[str], None]], None]]:
    """Return a function that has another one called at each line of a worker's log."""
    log = logging.getLogger("beanpole.worker")
    added: list[Logs] = []

    def add(at: Callable[[str], None]) -> None:
        added.append(Logs(at))
        log.addHandler(added[-1])

    level = log.level
    log.setLevel(logging.INFO)
    yield add
    log.setLevel(level)
    for one in added:
        log.removeHandler(one)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_does_not_wake_the_main_thread_stops_the_worker(
    ended: "Queue[str]", number: signal.Signals
) -> None:
    """The system may give it to any thread, and a wait without an end was not interrupted.

    At SIGHUP, of a terminal that is closed, a worker ended and its command ran on, beside the
    command of the next worker that got the job.
    """
    worker = Worker("127.0.0.1:1")

    @worker.handles("mail")
    def work(_: object) -> None:
        signal.pthread_kill(threading.get_ident(), number)

    before = signal.getsignal(number)
    worker.run()
    assert ended.get_nowait() == "deleted"
    assert signal.getsignal(number) is before


def test_a_hangup_that_nohup_ignores_stays_ignored(ended: "Queue[str]") -> None:
    worker = Worker("127.0.0.1:1")
    seen: list[object] = []

    @worker.handles("mail")
    def work(_: object) -> None:
        seen.append(signal.getsignal(signal.SIGHUP))
        worker.stop()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        worker.run()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == [signal.SIG_IGN] and ended.get_nowait() == "deleted"


def test_a_worker_stops_before_it_logs_the_signal(
    ended: "Queue[str]", logged: Callable[[Callable[[str], None]], None]
) -> None:
    """The log blocked on a full pipe, and the worker did not stop."""
    worker = Worker("127.0.0.1:1")
    seen: list[bool] = []
    logged(lambda line: seen.append(worker._stopping.is_set()) if "SIGTERM" in line else None)

    @worker.handles("mail")
    def work(_: object) -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    worker.run()
    assert seen == [True]


def test_a_job_is_ended_before_its_failure_is_logged(
    ended: "Queue[str]", logged: Callable[[Callable[[str], None]], None]
) -> None:
    """The log blocked on a full pipe: the touches went on, and no other worker got the job."""
    worker = Worker("127.0.0.1:1")
    seen: list[tuple[str, int, bool]] = []

    def look(line: str) -> None:
        if "failed" in line:
            touches = any(one.name.startswith("touch-") for one in threading.enumerate())
            seen.append((line.partition(":\n")[0], ended.qsize(), touches))
            worker.stop()

    logged(look)

    @worker.handles("mail", backoff=Backoff(tries=1))
    def work(_: object) -> None:
        raise RuntimeError("the reason")

    worker.run(handle_signals=False)
    assert seen == [("mail: job 7 failed (1) and is buried", 1, False)]


def test_all_threads_stop_before_the_error_of_one_is_logged(
    monkeypatch: pytest.MonkeyPatch, logged: Callable[[Callable[[str], None]], None]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DeniedError

    monkeypatch.setattr(workers, "Client", refuse)
    worker = Worker("127.0.0.1:1")
    seen: list[bool] = []
    logged(lambda line: seen.append(worker._stopping.is_set()) if "stops" in line else None)
    worker.handles("mail")(lambda _: None)
    with pytest.raises(DeniedError):
        worker.run(handle_signals=False)
    assert seen == [True]
