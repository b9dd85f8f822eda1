"""The end of a job whose outcome is refused, unanswered, or meets no node: it is repeated."""

import threading
from queue import Queue

import pytest

from beanpole.client import worker as workers
from beanpole.client.backoff import Backoff
from beanpole.client.blocking import (
    InternalError,
    Job,
    MayBeDoneError,
    NoNodeError,
)
from beanpole.client.worker import STOP_WAIT_S, Bury, Retry, Task, Worker
from tests.unit.client.test_worker import DONE_S, JOB, FakeClient


class Minority(FakeClient):
    """A cluster without a majority, or without a node, until `has_majority` is set."""

    def __init__(self, refusal: Exception | None = None) -> None:
        super().__init__(Queue(), 0, 1)
        self.refusal = refusal or InternalError()
        self.has_majority = threading.Event()
        self.refused = threading.Event()
        self.touched = threading.Event()

    def check(self) -> None:
        if not self.has_majority.is_set():
            self.refused.set()
            if isinstance(self.refusal, MayBeDoneError):
                self.held = ()
            raise self.refusal

    def reserve(self, timeout: int) -> Job[bytes]:
        if not self.is_there:
            self.ended.put("reserved")
        return super().reserve(timeout)

    def delete(self, job: Job[bytes], *, wait_s: float) -> None:
        self.check()
        super().delete(job, wait_s=wait_s)

    def release(self, job: Job[bytes], priority: int, delay: int, *, wait_s: float) -> None:
        self.check()
        super().release(job, priority, delay, wait_s=wait_s)

    def bury(self, job: Job[bytes], priority: int, *, wait_s: float) -> None:
        self.check()
        super().bury(job, priority, wait_s=wait_s)

    def holds(self, _: int) -> bool:
        self.held = (JOB,)
        return True

    def touch(self, _: int, *, wait_s: float) -> None:
        if self.refused.is_set():
            self.touched.set()


def started(
    monkeypatch: pytest.MonkeyPatch, fake: FakeClient, worker: Worker, error: Exception | None
) -> threading.Thread:
    """Start a worker whose handler raises the error, or returns."""
    monkeypatch.setattr(workers, "Client", lambda *_, **__: fake)

    @worker.handles("mail", backoff=Backoff(tries=2, first_s=0))
    def handle(_: Task) -> None:
        if error is not None:
            raise error

    thread = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
    thread.start()
    return thread


def ended_with_a_majority(fake: "Minority", worker: Worker, thread: threading.Thread) -> str:
    """Let the cluster answer, stop the worker, and return how its job ended."""
    fake.has_majority.set()
    ended = fake.ended.get(timeout=DONE_S)
    worker.stop()
    thread.join(DONE_S)
    return ended


@pytest.mark.parametrize("refusal", [NoNodeError(), MayBeDoneError()], ids=["unsent", "unanswered"])
@pytest.mark.parametrize(
    ("error", "end"), [(None, "deleted"), (Retry(), "released"), (Bury(), "buried")]
)
def test_an_outcome_without_a_node_is_repeated(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, error: Exception | None, end: str
) -> None:
    fake = Minority(refusal)
    worker = Worker("127.0.0.1:1")
    thread = started(monkeypatch, fake, worker, error)
    was_refused = fake.refused.wait(DONE_S)
    ended = ended_with_a_majority(fake, worker, thread)
    assert was_refused
    assert ended == end
    assert worker.counts == {"deleted": 0, "released": 0, "buried": 0, "lost": 0} | {end: 1}
    assert len(fake.notes) == (end == "buried")


def test_an_outcome_without_an_answer_that_was_done_is_not_counted_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Done(Minority):
        """The delete succeeds without an answer, or the session ends meanwhile."""

        def holds(self, _: int) -> bool:
            return False

    fake = Done(MayBeDoneError())
    worker = Worker("127.0.0.1:1")
    thread = started(monkeypatch, fake, worker, None)
    was_refused = fake.refused.wait(DONE_S)
    fake.has_majority.set()
    # The id may belong to another job by now, of which no second delete would be told.
    assert fake.ended.get(timeout=DONE_S) == "reserved", "the next job is asked for"
    worker.stop()
    thread.join(DONE_S)
    assert was_refused
    assert worker.counts == {"deleted": 0, "released": 0, "buried": 0, "lost": 0}
    assert worker.given_up == 0


def test_a_job_is_touched_after_an_outcome_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unsure(Minority):
        """The first reply is lost, and then there is no majority."""

        def holds(self, _: int) -> bool:
            self.refusal = InternalError()
            return super().holds(JOB)

    fake = Unsure(MayBeDoneError())
    fake.counters["ttr"] = 1
    worker = Worker("127.0.0.1:1")
    thread = started(monkeypatch, fake, worker, None)
    was_touched = fake.touched.wait(DONE_S)
    ended = ended_with_a_majority(fake, worker, thread)
    assert was_touched
    assert ended == "deleted"


@pytest.mark.parametrize(
    ("error", "end"), [(None, "deleted"), (Retry(), "released"), (Bury(), "buried")]
)
def test_an_outcome_without_a_majority_is_repeated_and_the_job_touched_meanwhile(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, end: str
) -> None:
    fake = Minority()
    fake.counters["ttr"] = 1
    worker = Worker("127.0.0.1:1")
    thread = started(monkeypatch, fake, worker, error)
    was_touched = fake.touched.wait(DONE_S / 6)
    worker.stop()  # which does not end it at once, either
    fake.has_majority.set()
    thread.join(DONE_S)
    assert was_touched
    assert fake.ended.get_nowait() == end
    assert worker.counts == {"deleted": 0, "released": 0, "buried": 0, "lost": 0} | {end: 1}


def test_a_worker_that_stops_gives_up_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Minority()
    worker = Worker("127.0.0.1:1", patience_s=0)
    thread = started(monkeypatch, fake, worker, None)
    assert fake.refused.wait(DONE_S)
    worker.stop()
    thread.join(DONE_S)
    assert not thread.is_alive()
    assert set(fake.limits) == {STOP_WAIT_S}
    assert fake.ended.empty(), "no other job was taken"
    assert worker.counts == {"deleted": 0, "released": 0, "buried": 0, "lost": 0}
    assert worker.given_up == 1


def test_a_refused_outcome_of_a_job_that_is_lost_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lost(Minority):
        """The session has ended when the outcome is refused."""

        def delete(self, job: Job[bytes], *, wait_s: float) -> None:
            self.held = ()
            super().delete(job, wait_s=wait_s)

    fake = Lost()
    worker = Worker("127.0.0.1:1")
    thread = started(monkeypatch, fake, worker, None)
    assert fake.ended.get(timeout=DONE_S) == "reserved"
    worker.stop()
    thread.join(DONE_S)
    assert worker.counts["lost"] == 1
