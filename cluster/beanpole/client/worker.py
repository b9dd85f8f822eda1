"""A worker: it takes jobs, runs a function or a command for each, and ends them by the outcome.

    worker = Worker("127.0.0.1:11300,127.0.0.1:11301")

    @worker.handles("mail", concurrency=4)
    def send(job): ...

    worker.run()

Each job that runs has a thread and a client of its own, whose session is kept (`keep`), so that the
death of a node does not give the job to another. docs/clients.md.
"""

import logging
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from beanpole.client.backoff import Backoff
from beanpole.client.blocking import (
    Addresses,
    BeanstalkdError,
    Client,
    DeadlineSoonError,
    Job,
    NotFoundError,
    TimedOutError,
)
from beanpole.errors import ClientError

log = logging.getLogger("beanpole.worker")

# How long a worker waits for a job before it looks whether it is to stop.
WAIT_S: Final = 1
# A job is touched when half of its TTR is over, so that one touch may fail.
TOUCHES_PER_TTR: Final = 2
KEEP_DEFAULT_S: Final = 60
# After a cluster that does not answer; a client has been patient for ten seconds by then.
AGAIN_S: Final = 1.0
# The queue of a traceback is the job's own with this behind it.
FAILURES_SUFFIX: Final = ".failures"
TRACEBACK_MAX_BYTES: Final = 16 * 1024
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class Bury(Exception):
    """Raised by a handler: this job is to be buried, without another try."""


class Retry(Exception):
    """Raised by a handler: this job is to be tried again after `delay_s`, whatever was tried."""

    def __init__(self, delay_s: int = 0) -> None:
        super().__init__(f"again in {delay_s} s")
        self.delay_s = delay_s


@dataclass(slots=True)
class Task:
    """A job in the hands of a handler.

    Attributes:
        id: of the job.
        body: of the job.
        queue: from which it came.
        tried: how often it was given out, this time included.
        lost: set when the job is not this worker's any more: its TTR or its session ended, and
            another may have it. A handler that takes long looks at it, or waits for it.
    """

    id: int
    body: bytes
    queue: str
    tried: int
    lost: threading.Event = field(default_factory=threading.Event)


Handler = Callable[[Task], object]


@dataclass(slots=True)
class _Line:
    """A handler, and what it takes."""

    queue: str
    handler: Handler
    concurrency: int
    backoff: Backoff


class Worker:
    """Takes jobs of queues until it is told to stop."""

    def __init__(
        self,
        addresses: Addresses,
        *,
        keep: int = KEEP_DEFAULT_S,
        patience_s: float = 10.0,
        spread: bool = True,
        token: str = "",
    ) -> None:
        """Remember where the nodes are.

        Args:
            addresses: as of a `Client`.
            keep: for how many seconds a job waits for this worker when its node is lost.
            patience_s: how long to look for a node before that is logged, and begun again.
            spread: as of a `Client`.
            token: as of a `Client`.
        """
        self._addresses = addresses
        self._token = token
        self._keep = keep
        self._patience_s = patience_s
        self._spread = spread
        self._lines: list[_Line] = []
        self._stopping = threading.Event()
        self.counts = {"deleted": 0, "released": 0, "buried": 0, "lost": 0}
        self._lock = threading.Lock()

    def handles(
        self, queue: str, *, concurrency: int = 1, backoff: Backoff | None = None
    ) -> Callable[[Handler], Handler]:
        """Return a decorator: the function takes jobs of this queue, so many at a time.

        It returns: the job is deleted. It raises: the job is released with `backoff`, and buried
        when it was tried often enough, or at once for `Bury`; `Retry` names the delay.
        """

        def decorate(handler: Handler) -> Handler:
            self._lines.append(_Line(queue, handler, concurrency, backoff or Backoff()))
            return handler

        return decorate

    def stop(self) -> None:
        """Take no more jobs; `run` returns when those in hand are done."""
        self._stopping.set()

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop`, SIGTERM or SIGINT.

        Args:
            handle_signals: only the main thread may.
        """
        before = {}
        if handle_signals:
            before = {number: signal.signal(number, self._signalled) for number in STOPPING}
        threads = [
            threading.Thread(target=self._work, args=(line,), name=f"{line.queue}-{place}")
            for line in self._lines
            for place in range(line.concurrency)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._stopping.set()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        log.info("%s: no more jobs are taken", signal.Signals(number).name)
        self._stopping.set()

    # --- one thread -----------------------------------------------------------------------------

    def _work(self, line: _Line) -> None:
        while not self._stopping.is_set():
            try:
                with Client(
                    self._addresses,
                    None,
                    line.queue,
                    line.queue,
                    keep=self._keep,
                    patience_s=self._patience_s,
                    spread=self._spread,
                    token=self._token,
                ) as client:
                    while not self._stopping.is_set():
                        self._take(line, client)
            except (OSError, ClientError) as error:
                log.warning("%s: %s", line.queue, error)
                self._stopping.wait(AGAIN_S)

    def _take(self, line: _Line, client: Client[bytes]) -> None:
        try:
            job = client.reserve(WAIT_S)
        except (TimedOutError, DeadlineSoonError):
            return
        stats = client.stats_job(job)
        task = Task(job.id, job.body, line.queue, stats["reserves"])
        with _Lease(client, task, stats["ttr"]):
            outcome = _outcome(line, task)
        if task.lost.is_set():
            log.warning("%s: job %d was lost while it ran", line.queue, task.id)
            self._count("lost")
            return
        try:
            self._count(outcome.apply(client, job, stats["pri"]))
        except NotFoundError:
            log.warning("%s: job %d was lost when it was done", line.queue, task.id)
            self._count("lost")
        except BeanstalkdError as error:
            log.warning("%s: job %d: %s", line.queue, task.id, error)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


@dataclass(slots=True)
class _Outcome:
    """What becomes of a job: deleted, released (`rest_s` is not None), or buried with words."""

    done: bool
    rest_s: int | None = None
    words: str = ""

    def apply(self, client: Client[bytes], job: Job[bytes], priority: int) -> str:
        """Tell the node; return what was done."""
        if self.done:
            client.delete(job)
            return "deleted"
        if self.rest_s is not None:
            client.release(job, priority, self.rest_s)
            return "released"
        client.bury(job, priority)
        try:
            note_failure(client, job.id, self.words)
        except (OSError, ClientError) as error:
            log.warning("job %d is buried, and there is no note of it: %s", job.id, error)
        return "buried"


def _outcome(line: _Line, task: Task) -> _Outcome:
    try:
        line.handler(task)
    except Retry as again:
        return _Outcome(done=False, rest_s=again.delay_s)
    except Exception as error:
        words = traceback.format_exc()
        rest_s = None if isinstance(error, Bury) else line.backoff.rest_s(task.tried)
        then = "is buried" if rest_s is None else f"is tried again in {rest_s} s"
        log.warning(
            "%s: job %d failed (%d) and %s:\n%s", line.queue, task.id, task.tried, then, words
        )
        return _Outcome(done=False, rest_s=rest_s, words=words)
    return _Outcome(done=True)


def note_failure(client: Client[bytes], job: int, words: str) -> None:
    """Put why a job is buried beside it: into the queue with `.failures` behind its name.

    A beanstalk job has no room for that. The note is a job like others: "job ID", an empty line,
    and the end of the words.
    """
    queue = client.using()
    note = words.encode(errors="replace")[-TRACEBACK_MAX_BYTES:]
    client.use(queue + FAILURES_SUFFIX)
    try:
        client.put(b"job %d\n\n%b" % (job, note))
    finally:
        client.use(queue)


class _Lease:
    """Touches a job while its handler runs, by the client that reserved it."""

    def __init__(self, client: Client[bytes], task: Task, ttr_s: int) -> None:
        self._client = client
        self._task = task
        self._every_s = ttr_s / TOUCHES_PER_TTR
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._touch, name=f"touch-{task.id}")

    def __enter__(self) -> None:
        self._client.on_lost(self._lost)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._client.on_lost(lambda jobs: None)

    def _lost(self, jobs: Sequence[int]) -> None:
        if self._task.id in jobs:
            self._task.lost.set()

    def _touch(self) -> None:
        while not self._done.wait(self._every_s):
            try:
                self._client.touch(self._task.id)
            except (OSError, ClientError) as error:
                log.warning("job %d is not touched: %s", self._task.id, error)
