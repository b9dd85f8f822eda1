"""Exceptions of a handler, and the worker after them; the client is a fake without sockets."""

import asyncio
import functools
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from queue import Queue
from typing import Any, cast

import pytest

from beanpole.client import worker as workers
from beanpole.client.backoff import Backoff
from beanpole.client.blocking import (
    Client,
    DeadlineSoonError,
    DeniedError,
    Job,
    MayBeDoneError,
    NoNodeError,
    NotAvailableError,
    NotFoundError,
    OutOfMemoryError,
    TimedOutError,
)
from beanpole.client.outcome import note_failure
from beanpole.client.worker import Bury, Retry, Task, Worker

JOB = 7
DONE_S = 60


class FakeClient:
    """A tube with one job, which is gone once it is released or buried."""

    def __init__(self, ended: "Queue[str]", kicks: int, reserves: int) -> None:
        self.ended = ended
        self.is_there = True
        self.held: tuple[int, ...] = (JOB,)
        self.is_kept = True
        self.notes: list[bytes] = []
        self.limits: list[float] = []
        self.counters = {"reserves": reserves, "kicks": kicks, "ttr": 60}
        self.counters |= {"time-left": 60, "pri": 1}

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def reserve(self, _: int) -> Job[bytes]:
        if not self.is_there:
            raise TimedOutError
        self.is_there = False
        return Job(JOB, b"x")

    def stats_job(self, _: Job[bytes]) -> dict[str, int]:
        return self.counters

    def delete(self, _: Job[bytes], *, wait_s: float) -> None:
        self.ended.put("deleted")

    def release(self, _: Job[bytes], __: int, delay: int, *, wait_s: float) -> None:
        assert isinstance(delay, int)
        self.ended.put("released")

    def bury(self, _: Job[bytes], __: int, *, wait_s: float) -> None:
        self.ended.put("buried")

    def limit_waits(self, wait_s: float) -> None:
        self.limits.append(wait_s)

    def holds(self, _: int) -> bool:
        return bool(self.held)

    def on_lost(self, _: Any) -> None:
        pass

    def use(self, _: str) -> None:
        pass

    def put(self, note: bytes) -> int:
        self.notes.append(note)
        return JOB + 1


def outcome(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, reserves: int = 1, kicks: int = 0
) -> str:
    """Work on one job whose handler raises; return what came first: its end, or that of `run`."""

    def handle(_: Task) -> None:
        raise error

    return outcome_of(monkeypatch, handle, reserves, kicks)


def outcome_of(
    monkeypatch: pytest.MonkeyPatch,
    handle: Callable[[Task], object],
    reserves: int = 1,
    kicks: int = 0,
) -> str:
    """Work on one job; return what came first: its end, or that of `run`."""
    ended: Queue[str] = Queue()
    monkeypatch.setattr(workers, "Client", lambda *_, **__: FakeClient(ended, kicks, reserves))
    worker = Worker("127.0.0.1:1")
    worker.handles("mail", backoff=Backoff(tries=2, first_s=0))(handle)

    def run() -> None:
        try:
            worker.run(handle_signals=False)
        except BaseException as failure:
            ended.put(f"run raised {failure!r}")
        ended.put("run returned")

    thread = threading.Thread(target=run)
    thread.start()
    first = ended.get(timeout=DONE_S)
    worker.stop()
    thread.join(DONE_S)
    assert ended.get(timeout=DONE_S) == "run returned"
    return first


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
def test_whatever_a_handler_raises_fails_its_job(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert outcome(monkeypatch, error) == "released"
    assert outcome(monkeypatch, error, reserves=2) == "buried"
    assert outcome(monkeypatch, error, reserves=3, kicks=1) == "released", "kicked"


@pytest.mark.parametrize("delay_s", [1.5, -1, "soon"])
def test_a_delay_that_a_handler_changed(monkeypatch: pytest.MonkeyPatch, delay_s: Any) -> None:
    again = Retry()
    again.delay_s = delay_s
    assert outcome(monkeypatch, again) == "released"


def test_any_end_of_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(BaseException):
        pass

    def refuse(*_: Any, **__: Any) -> None:
        raise Odd

    monkeypatch.setattr(workers, "Client", refuse)
    worker = Worker("127.0.0.1:1")
    worker.handles("mail", concurrency=2)(lambda task: None)
    with pytest.raises(Odd):
        worker.run(handle_signals=False)


@pytest.mark.parametrize("error", [DeniedError(), NotAvailableError("it has no users")])
@pytest.mark.parametrize("when", ["at the start", "while it waits"])
def test_a_refusal_ends_the_worker(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    when: str,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    if when == "at the start":
        monkeypatch.setattr(workers, "Client", refuse)
    else:
        monkeypatch.setattr(workers, "Client", lambda *_, **__: FakeClient(Queue(), 0, 0))
        monkeypatch.setattr(FakeClient, "reserve", refuse)
    worker = Worker("127.0.0.1:1", token="dropped")
    worker.handles("mail", concurrency=2)(lambda task: None)
    with pytest.raises(type(error)):
        worker.run(handle_signals=False)
    assert "Traceback" not in caplog.text


def test_a_job_whose_reservation_is_lost_before_it_runs_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lost(FakeClient):
        """The connection is lost, and the statistics are read on another."""

        def stats_job(self, job: Job[bytes]) -> dict[str, int]:
            self.held = ()
            worker.stop()
            return super().stats_job(job)

    monkeypatch.setattr(workers, "Client", lambda *_, **__: Lost(Queue(), 0, 1))
    worker = Worker("127.0.0.1:1")
    ran: list[Task] = []
    worker.handles("mail")(ran.append)
    worker.run(handle_signals=False)
    assert not ran
    assert worker.counts == {"deleted": 0, "released": 0, "buried": 0, "lost": 1}


def test_a_touch_that_finds_no_reservation_tells_the_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Expired(FakeClient):
        """The TTR has ended."""

        def touch(self, _: int, *, wait_s: float) -> None:
            raise NotFoundError

    fake = Expired(Queue(), 0, 1)
    fake.counters["ttr"] = 4
    monkeypatch.setattr(workers, "Client", lambda *_, **__: fake)
    worker = Worker("127.0.0.1:1")
    told: list[bool] = []

    @worker.handles("mail")
    def handle(task: Task) -> None:
        told.append(task.lost.wait(3.5))  # before the worker's own clock tells it
        worker.stop()

    worker.run(handle_signals=False)
    assert told == [True]
    assert worker.counts["lost"] == 1


def test_a_job_in_hand_is_finished_when_the_worker_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted: Queue[int] = Queue()
    begun, refused = threading.Event(), threading.Event()

    class Two(FakeClient):
        """One thread works on a job while the other is refused."""

        def reserve(self, timeout: int) -> Job[bytes]:
            if threading.current_thread().name == "mail-0":
                return super().reserve(timeout)
            assert begun.wait(DONE_S)
            refused.set()
            raise DeniedError

        def delete(self, job: Job[bytes], *, wait_s: float) -> None:
            deleted.put(job.id)

    monkeypatch.setattr(workers, "Client", lambda *_, **__: Two(Queue(), 0, 1))
    worker = Worker("127.0.0.1:1")

    @worker.handles("mail", concurrency=2)
    def handle(_: Task) -> None:
        begun.set()
        assert refused.wait(DONE_S)

    with pytest.raises(DeniedError):
        worker.run(handle_signals=False)
    assert deleted.get_nowait() == JOB


def test_a_note_goes_to_its_queue_after_one_that_met_no_node() -> None:
    class Noted:
        """A client whose cluster answers nothing once its first note is on the way."""

        def __init__(self) -> None:
            self.used = "mail"
            self.is_lost = False
            self.notes: list[str] = []

        def use(self, tube: str) -> None:
            if self.is_lost:
                raise NoNodeError
            self.used = tube

        def put(self, _: bytes) -> int:
            if not self.notes:
                self.is_lost = True
            self.notes.append(self.used)
            return JOB + 1

    noted = Noted()
    client = cast("Client[bytes]", noted)
    with pytest.raises(NoNodeError):
        note_failure(client, "mail", JOB, "why")
    noted.is_lost = False
    note_failure(client, "mail", JOB, "why")
    assert noted.notes == ["mail.failures"] * 2
    assert noted.used == "mail"


def test_a_job_that_is_still_held_does_not_make_a_worker_ask_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Queue[int] = Queue()

    class Refused(FakeClient):
        """A limit of the cluster is reached when the job is done, and the job's TTR ends soon."""

        def delete(self, _: Job[bytes], *, wait_s: float) -> None:
            raise OutOfMemoryError

        def reserve(self, timeout: int) -> Job[bytes]:
            if self.is_there:
                return super().reserve(timeout)
            asked.put(timeout)
            raise DeadlineSoonError

    monkeypatch.setattr(workers, "Client", lambda *_, **__: Refused(Queue(), 0, 1))
    worker = Worker("127.0.0.1:1")
    worker.handles("mail")(lambda task: None)
    thread = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
    thread.start()
    asked.get(timeout=DONE_S)
    thread.join(workers.AGAIN_S / 4)
    worker.stop()
    thread.join(DONE_S)
    assert asked.qsize() <= 1


async def asynchronous(_: object) -> None:
    """Do nothing, once it is awaited."""


def generating(_: object) -> Iterator[None]:
    """Do nothing, once it is iterated."""
    yield


async def generating_asynchronously(_: object) -> AsyncIterator[None]:
    """Do nothing, once it is iterated."""
    yield


class Called:
    """An object with an asynchronous call."""

    async def __call__(self, _: Task) -> None:
        """Do nothing, once it is awaited."""


UNRUN = [asynchronous, generating, generating_asynchronously]


@pytest.mark.parametrize("handler", [*UNRUN, functools.partial(asynchronous), Called()])
def test_a_handler_that_a_call_does_not_run_is_refused(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"(asynchronous|generating|Called).* a plain function"):
        Worker("127.0.0.1:1").handles("mail")(handler)


@pytest.mark.parametrize("function", UNRUN)
def test_a_result_that_would_never_run_fails_its_job(
    monkeypatch: pytest.MonkeyPatch, function: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outcome_of(monkeypatch, lambda task: function(task)) == "released"
        assert outcome_of(monkeypatch, lambda task: function(task), reserves=2) == "buried"


def test_a_job_that_may_be_buried_gets_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[tuple[str, bytes]] = []

    class Unanswered(FakeClient):
        """The reply to the burial is lost."""

        def bury(self, job: Job[bytes], priority: int, *, wait_s: float) -> None:
            worker.stop()
            raise MayBeDoneError

        def use(self, tube: str) -> None:
            self.used = tube

        def put(self, body: bytes) -> int:
            notes.append((self.used, body))
            return super().put(body)

    monkeypatch.setattr(workers, "Client", lambda *_, **__: Unanswered(Queue(), 0, 1))
    worker = Worker("127.0.0.1:1")

    @worker.handles("mail")
    def handle(_: Task) -> None:
        raise Bury("an empty mail")

    worker.run(handle_signals=False)
    ((queue, note),) = notes
    assert queue == "mail.failures"
    assert note.startswith(b"job %d\n\n" % JOB)
    assert b"an empty mail" in note
    assert worker.counts["buried"] == 0, "its outcome is unknown"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"addresses": []}, "needs an address"),
        ({"addresses": "h:1", "keep": 301}, "keep must be from 0 to 300 seconds"),
        ({"addresses": "h:1", "token": "two words"}, "a token has 1 to 128 printable bytes"),
    ],
)
def test_wrong_settings_are_refused_before_a_thread_begins(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Worker(**settings)
