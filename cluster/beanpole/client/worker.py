"""A worker: it reserves jobs, runs a handler for each, and deletes, releases or buries the job.

    worker = Worker("127.0.0.1:11300,127.0.0.1:11301")

    @worker.handles("mail", concurrency=4)
    def send(job): ...

    worker.run()

Each running job has a thread and a client of its own. The client's session is kept (`keep`), so
that the job is not given to another worker when a node dies. See docs/clients.md.
"""

import inspect
import logging
import math
import signal
import ssl
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Final

from beanpole.client.backoff import Backoff, whole_seconds
from beanpole.client.blocking import (
    Addresses,
    BeanstalkdError,
    Client,
    DeadlineSoonError,
    DeniedError,
    InternalError,
    Job,
    MayBeDoneError,
    NoNodeError,
    NotAvailableError,
    NotFoundError,
    TimedOutError,
)
from beanpole.client.lease import Lease
from beanpole.client.pickling import reduced
from beanpole.errors import ClientError
from beanpole.protocol.beanstalk.requests import is_tube_name

log = logging.getLogger("beanpole.worker")

# The time-out of one reserve, after which a worker checks whether it should stop.
WAIT_S: Final = 1
KEEP_DEFAULT_S: Final = 60
# The pause after a cluster did not answer; the client has looked for a node for `patience_s`, ten
# seconds by default.
AGAIN_S: Final = 1.0
# Tracebacks go to the queue with the name of the job's own queue and this suffix.
FAILURES_SUFFIX: Final = ".failures"
TRACEBACK_MAX_BYTES: Final = 16 * 1024
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
# The main thread runs the handlers of signals. One that the system gives to another thread, or that
# arrives just before the main thread begins to wait, does not wake it.
SIGNAL_WAIT_S: Final = 0.2


class Bury(Exception):
    """Raised by a handler to bury the job without another attempt."""


class Retry(Exception):
    """Raised by a handler to retry the job after `delay_s`, however often it was tried.

    Attributes:
        delay_s: whole seconds; a fraction is rounded up.
    """

    __reduce__ = reduced

    def __init__(self, delay_s: float = 0) -> None:
        """Set the delay.

        Raises:
            ValueError: it is not from 0 to U32_MAX.
        """
        self.delay_s = whole_seconds(delay_s, "delay_s")
        super().__init__(f"again in {self.delay_s} s")


@dataclass(slots=True)
class Task:
    """A job that a handler works on.

    Attributes:
        id: the id of the job.
        body: the body of the job.
        queue: the queue from which the job came.
        tried: how often the job was reserved, this time included.
        lost: set when this worker has lost the job: its TTR or its session ended, and another
            worker may have the job. It is also set, whatever the connection does, once a TTR has
            passed without a confirmed touch. A handler that runs long should check this event. The
            outcome of one that goes on counts if the cluster still holds the job for this worker.
    """

    id: int
    body: bytes
    queue: str
    tried: int
    lost: threading.Event = field(default_factory=threading.Event)


Handler = Callable[[Task], object]


@dataclass(slots=True)
class _Consumer:
    """A handler with its queue and its settings."""

    queue: str
    handler: Handler
    concurrency: int
    backoff: Backoff


class Worker:
    """Runs handlers for the jobs of queues until it is stopped."""

    def __init__(
        self,
        addresses: Addresses,
        *,
        keep: int = KEEP_DEFAULT_S,
        patience_s: float = 10.0,
        spread: bool = True,
        token: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Store the settings; `run` connects.

        Args:
            addresses: see `Client`.
            keep: how many seconds the cluster keeps a job for this worker when its node is lost.
            patience_s: how long to look for a node before the worker logs the failure and starts
                over.
            spread: see `Client`.
            token: see `Client`.
            tls: see `Client`.
        """
        self._addresses = addresses
        self._token = token
        self._tls = tls
        self._keep = keep
        self._patience_s = patience_s
        self._spread = spread
        self._consumers: list[_Consumer] = []
        self._stopping = threading.Event()
        self.counts = {"deleted": 0, "released": 0, "buried": 0, "lost": 0}
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._interrupted: list[threading.Thread] = []  # those that a run left behind
        self._is_stop_asked = False  # since the end of the last run

    def handles(
        self, queue: str, *, concurrency: int = 1, backoff: Backoff | None = None
    ) -> Callable[[Handler], Handler]:
        """Return a decorator that makes a function the handler of a queue.

        The job is deleted when the handler returns. When the handler raises, the job is released
        with a delay of `backoff`, or buried when it was tried often enough. `Bury` buries the job
        at once, `Retry` sets the delay.

        Args:
            queue: the queue whose jobs the handler takes.
            concurrency: how many jobs the handler works on at the same time.
            backoff: the delays and the number of attempts; None for the defaults.

        Raises:
            TypeError: the function is an `async def` or a generator, by the decorator.
            ValueError: the queue can be no tube, or the concurrency is below 1.
        """
        if not is_tube_name(queue.encode(errors="replace")):
            raise ValueError(f"{queue!r} is not the name of a tube")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, and is {concurrency}")

        def decorate(handler: Handler) -> Handler:
            _check_runs_when_called(handler)
            self._consumers.append(_Consumer(queue, handler, concurrency, backoff or Backoff()))
            return handler

        return decorate

    def stop(self) -> None:
        """Reserve no more jobs; `run` returns when the running handlers have ended."""
        self._is_stop_asked = True
        self._stopping.set()

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop`, SIGTERM or SIGINT.

        It may be called again after it has ended, however it did. A `stop` before it begins counts.
        The `counts` are those of all runs.

        Args:
            handle_signals: install the signal handlers; only the main thread may do that.

        Raises:
            DeniedError: no user has the token, or the user lacks the right to a queue, also if
                that was taken away meanwhile. All threads have ended as by `stop`.
            NotAvailableError: there is a token, and the server does not support users.
            BaseException: a thread ended by another error that belongs to no job. All others have
                ended as by `stop`.
        """
        before = {}
        if handle_signals:
            before = {number: signal.signal(number, self._signalled) for number in STOPPING}
        threads = [
            threading.Thread(target=self._guard, args=(consumer,), name=f"{consumer.queue}-{place}")
            for consumer in self._consumers
            for place in range(consumer.concurrency)
        ]
        try:
            self._await_interrupted()
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(SIGNAL_WAIT_S)
        finally:
            self._stopping.set()
            for number, handler in before.items():
                signal.signal(number, handler)
            left = (*self._interrupted, *threads)
            self._interrupted = [thread for thread in left if thread.is_alive()]
            failure, self._failure = self._failure, None
            self._is_stop_asked = False
            if not self._interrupted:
                # At the end of a run: cleared at its begin, a `stop` from another thread that comes
                # just before that would be lost.
                self._stopping.clear()
        if failure is not None:
            raise failure

    def _await_interrupted(self) -> None:
        """Wait for the threads of a run that an exception interrupted, and forget its stop.

        A stop that is asked for since that run has ended counts for this one.
        """
        if not self._interrupted:
            return
        for thread in self._interrupted:
            while thread.is_alive():
                thread.join(SIGNAL_WAIT_S)
        self._interrupted.clear()
        self._failure = None
        if not self._is_stop_asked:
            self._stopping.clear()

    def _signalled(self, number: int, _: FrameType | None) -> None:
        log.info("%s: no more jobs are taken", signal.Signals(number).name)
        self.stop()

    # --- one thread -----------------------------------------------------------------------------

    def _guard(self, consumer: _Consumer) -> None:
        """Work; an unexpected error stops the whole worker, so that its supervisor notices."""
        try:
            self._work(consumer)
        except BaseException as error:
            if isinstance(error, (DeniedError, NotAvailableError)):
                log.error("%s: the worker stops: %s", consumer.queue, error)
            else:
                log.exception("%s: the worker stops", consumer.queue)
            self._failure = error
            self._stopping.set()

    def _work(self, consumer: _Consumer) -> None:
        while not self._stopping.is_set():
            try:
                with Client(
                    self._addresses,
                    None,
                    consumer.queue,
                    consumer.queue,
                    keep=self._keep,
                    patience_s=self._patience_s,
                    spread=self._spread,
                    token=self._token,
                    tls=self._tls,
                ) as client:
                    while not self._stopping.is_set():
                        self._take(consumer, client)
            except (DeniedError, NotAvailableError):
                raise  # every node would answer the same, for as long as the rights are these
            except (OSError, ClientError) as error:
                log.warning("%s: %s", consumer.queue, error)
                self._stopping.wait(AGAIN_S)

    def _take(self, consumer: _Consumer, client: Client[bytes]) -> None:
        try:
            job = client.reserve(WAIT_S)
        except TimedOutError:
            return
        except DeadlineSoonError:
            # The cluster did not do what was to end a job, which is held until its TTR ends. It
            # answers at once, and would be asked without a pause.
            self._stopping.wait(AGAIN_S)
            return
        reserved_at = time.monotonic()
        stats = client.stats_job(job)
        if job.id not in client.held:
            # The connection was lost between the two, before a lease was there to be told.
            log.warning("%s: job %d was lost before it ran", consumer.queue, job.id)
            self._count("lost")
            return
        task = Task(job.id, job.body, consumer.queue, stats["reserves"])
        # The reply of the reserve may be old, and the statistics tell what is left: rounded down,
        # and a TTR up, so that a TTR in milliseconds seems to end up to a second later.
        ttr_s = stats["ttr"]
        since = reserved_at + min(stats["time-left"] + 1 - ttr_s, 0) if ttr_s else reserved_at
        keep_s = self._keep if client.is_kept else 0
        with Lease(client, task, ttr_s, since, keep_s) as lease:
            outcome = _outcome(consumer, task, stats["kicks"])
            if lease.is_gone:
                log.warning("%s: job %d was lost while it ran", consumer.queue, task.id)
                self._count("lost")
                return
            if outcome.failed and task.lost.is_set():
                # The clock alone has told the handler, which gave up: the job has not failed.
                outcome = _Outcome(rest_s=0, words=outcome.words)
            outcome.tell(task)
            try:
                apply = partial(outcome.apply, client, consumer.queue, job, stats["pri"])
                self._count(self._end(lease, apply))
            except NotFoundError:
                log.warning("%s: job %d was lost when it was done", consumer.queue, task.id)
                self._count("lost")
            except BeanstalkdError as error:
                log.warning("%s: job %d: %s", consumer.queue, task.id, error)

    def _end(self, lease: Lease, apply: Callable[[float], str]) -> str:
        """Apply an outcome, again and again while no majority or node answers and the job is held.

        Given up earlier, a finished job would run once more. A worker that stops tries for
        `patience_s` only.

        Raises:
            NotFoundError: the job was lost.
            MayBeDoneError: an attempt without an answer has succeeded, or the job was lost.
            BeanstalkdError: the outcome was refused.
        """
        until = math.inf
        unknown: MayBeDoneError | None = None
        while True:
            try:
                return lease.end(apply, is_repeated=unknown is not None)
            except NotFoundError:
                if unknown is None:
                    raise
                raise unknown from None
            except (InternalError, NoNodeError, MayBeDoneError) as error:
                if isinstance(error, MayBeDoneError):
                    unknown = error
                if self._stopping.is_set():
                    until = min(until, time.monotonic() + self._patience_s)
                if time.monotonic() >= until:
                    raise
                log.warning("job %d is not ended yet: %s", lease.task.id, error)
            # No event: that of the stop or of the loss would make no pause once it is set.
            time.sleep(AGAIN_S)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


@dataclass(slots=True)
class _Outcome:
    """What becomes of a job: it is deleted, released after `rest_s`, or buried.

    Attributes:
        rest_s: the delay of a release; None for a job that is deleted or buried.
        words: the traceback of a handler that raised; empty for one that returned.
        failed: the handler raised something else than `Bury` and `Retry`.
        is_noted: there is a note of the burial.
    """

    rest_s: int | None = None
    words: str = ""
    failed: bool = False
    is_noted: bool = False

    def tell(self, task: Task) -> None:
        """Log why a job failed, and what becomes of it."""
        if self.words:
            then = "is buried" if self.rest_s is None else f"is tried again in {self.rest_s} s"
            place = task.queue, task.id, task.tried
            log.warning("%s: job %d failed (%d) and %s:\n%s", *place, then, self.words)

    def apply(
        self, client: Client[bytes], queue: str, job: Job[bytes], priority: int, wait_s: float
    ) -> str:
        """Delete, release or bury the job; return which of these was done.

        Args:
            client: the client that holds the job.
            queue: the job's queue.
            job: the job.
            priority: for a job that is released or buried.
            wait_s: how long to wait for the first node; see `Client.touch`.
        """
        if self.rest_s is not None:
            client.release(job, priority, self.rest_s, wait_s=wait_s)
            return "released"
        if not self.words:
            client.delete(job, wait_s=wait_s)
            return "deleted"
        try:
            client.bury(job, priority, wait_s=wait_s)
        except MayBeDoneError:
            # Most likely it is buried, and this worker alone has the reason. If it is not, it comes
            # back, and the note does no harm. As after a delete, an unknown outcome is not counted.
            self._note(client, queue, job.id, "may be buried")
            raise
        self._note(client, queue, job.id, "is buried")
        return "buried"

    def _note(self, client: Client[bytes], queue: str, job: int, state: str) -> None:
        if self.is_noted:  # by an attempt without an answer
            return
        try:
            note_failure(client, queue, job, self.words)
            self.is_noted = True
        except (OSError, ClientError) as error:
            log.warning("job %d %s, and there is no note of it: %s", job, state, error)


def _check_runs_when_called(handler: Handler) -> None:
    """Refuse a function whose call runs nothing: its jobs would be deleted without being done."""
    # An object with such a `__call__` is found through its class, as a call finds it.
    for function in (handler, type(handler).__call__):
        if (
            inspect.iscoroutinefunction(function)
            or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise TypeError(
                f"{handler!r} cannot be a handler: a handler is a plain function, "
                "without `async` and `yield`"
            )


def _check_has_run(result: object) -> None:
    """Refuse the result of such a function, which a wrapper returned: it would never run."""
    if isinstance(result, Coroutine):
        result.close()  # else Python warns that it was never awaited
    if isinstance(result, (Awaitable, Generator, AsyncGenerator)):
        raise TypeError(f"the handler returned {result!r}, which the worker does not run")


def _outcome(consumer: _Consumer, task: Task, kicks: int) -> _Outcome:
    """Run the handler, and decide the fate of its job; `kicks`: how often that was kicked."""
    try:
        try:
            _check_has_run(consumer.handler(task))
        except Retry as again:
            # A handler may have changed the delay since it was checked.
            return _Outcome(whole_seconds(again.delay_s, "delay_s"))
    except BaseException as error:
        # Signals reach the main thread only: whatever a handler raises is a failure of its job,
        # SystemExit, KeyboardInterrupt and asyncio's CancelledError included.
        words = traceback.format_exc()
        if isinstance(error, Bury):
            return _Outcome(words=words)
        return _Outcome(consumer.backoff.rest_s(task.tried, kicks), words, failed=True)
    return _Outcome()


def note_failure(client: Client[bytes], queue: str, job: int, words: str) -> None:
    """Put the reason why a job is buried into the queue with the suffix `.failures`.

    A beanstalk job has no field for the reason. The note is an ordinary job: "job ID", an empty
    line, and the last `TRACEBACK_MAX_BYTES` bytes of the words.

    Args:
        client: uses the job's queue again afterwards, unless no node answers.
        queue: the job's queue; the client may still use that of an earlier note.
        job: the id of the job.
        words: the reason.
    """
    note = words.encode(errors="replace")[-TRACEBACK_MAX_BYTES:]
    client.use(queue + FAILURES_SUFFIX)
    try:
        client.put(b"job %d\n\n%b" % (job, note))
    finally:
        client.use(queue)
