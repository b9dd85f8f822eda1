"""A worker: it reserves jobs, runs a handler for each, and deletes, releases or buries the job.

    worker = Worker("127.0.0.1:11300,127.0.0.1:11301")

    @worker.handles("mail", concurrency=4)
    def send(job): ...

    worker.run()

Each running job has a thread and a client of its own. The client's session is kept (`keep`), so
that the job is not given to another worker when a node dies. See docs/clients.md.
"""

import logging
import math
import signal
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Final

from beanpole.client.backoff import Backoff
from beanpole.client.blocking import (
    Addresses,
    BeanstalkdError,
    Client,
    DeadlineSoonError,
    DeniedError,
    InternalError,
    MayBeDoneError,
    NoNodeError,
    NotAvailableError,
    NotFoundError,
    TimedOutError,
)
from beanpole.client.lease import Lease
from beanpole.client.outcome import (
    Bury,
    Handler,
    Outcome,
    Retry,
    Task,
    check_runs_when_called,
    outcome_of,
)
from beanpole.client.sansio.faults import ClosedError
from beanpole.client.sansio.nodes import endpoints_of
from beanpole.client.sansio.settings import check_settings
from beanpole.errors import ClientError
from beanpole.protocol.beanstalk.requests import is_tube_name

__all__ = ["KEEP_DEFAULT_S", "Bury", "Retry", "Task", "Worker"]

log = logging.getLogger("beanpole.worker")

# The time-out of one reserve, after which a worker checks whether it should stop.
WAIT_S: Final = 1
KEEP_DEFAULT_S: Final = 60
# The pause after a cluster did not answer; the client has looked for a node for `patience_s`, ten
# seconds by default.
AGAIN_S: Final = 1.0
# A worker that stops waits for each node for at most this long, so that nodes that hang do not use
# up the time that a supervisor gives it. A healthy node answers sooner.
STOP_WAIT_S: Final = 3.0
STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# The main thread runs the handlers of signals. One that the system gives to another thread, or that
# arrives just before the main thread begins to wait, does not wake it.
SIGNAL_WAIT_S: Final = 0.2


@dataclass(slots=True)
class _Consumer:
    """A handler with its queue and its settings."""

    queue: str
    handler: Handler
    concurrency: int
    backoff: Backoff


class Worker:
    """Runs handlers for the jobs of queues until it is stopped.

    Attributes:
        counts: the jobs of all runs, by what became of them.
        given_up: those of all runs that a stop left without an end, so that they may run again.
    """

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

        Raises:
            ValueError: there is no address, `keep` is not from 0 to 300, or no user can have the
                token.
        """
        endpoints_of(addresses)
        check_settings(keep, token.encode())
        self._addresses = addresses
        self._token = token
        self._tls = tls
        self._keep = keep
        self._patience_s = patience_s
        self._spread = spread
        self._consumers: list[_Consumer] = []
        self._stopping = threading.Event()
        self.counts = {"deleted": 0, "released": 0, "buried": 0, "lost": 0}
        self.given_up = 0
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._clients: list[Client[bytes]] = []
        self._ending: list[Lease] = []  # whose handlers have ended
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
            check_runs_when_called(handler)
            self._consumers.append(_Consumer(queue, handler, concurrency, backoff or Backoff()))
            return handler

        return decorate

    def stop(self) -> None:
        """Reserve no more jobs; `run` returns when the running handlers have ended."""
        self._is_stop_asked = True
        self._stopping.set()
        for client in tuple(self._clients):
            if not client.held:  # a handler that runs may take as long as it likes
                client.limit_waits(STOP_WAIT_S)
        for lease in tuple(self._ending):
            lease.hurry(STOP_WAIT_S)

    def run(self, *, handle_signals: bool = True) -> None:
        """Work until `stop`, SIGTERM, SIGINT or SIGHUP.

        It may be called again after it has ended, however it did. A `stop` before it begins counts.

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
            before = {
                number: signal.signal(number, self._signalled)
                for number in STOPPING
                # `nohup` ignores SIGHUP, and the worker leaves it so.
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
            }
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
        self.stop()  # before the log, which may block on a full pipe
        log.info("%s: no more jobs are taken", signal.Signals(number).name)

    # --- one thread -----------------------------------------------------------------------------

    def _guard(self, consumer: _Consumer) -> None:
        """Work; an unexpected error stops the whole worker, so that its supervisor notices."""
        try:
            self._work(consumer)
        except BaseException as error:
            self._failure = error
            self._stopping.set()
            if isinstance(error, (DeniedError, NotAvailableError)):
                log.error("%s: the worker stops: %s", consumer.queue, error)
            else:
                log.exception("%s: the worker stops", consumer.queue)

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
                    self._clients.append(client)
                    try:
                        while not self._stopping.is_set():
                            self._take(consumer, client)
                    finally:
                        self._clients.remove(client)
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
        reply_s = time.monotonic() - reserved_at
        if job.id not in client.held:
            # The connection was lost between the two, before a lease was there to be told.
            log.warning("%s: job %d was lost before it ran", consumer.queue, job.id)
            self._count("lost")
            return
        task = Task(job.id, job.body, consumer.queue, stats["reserves"])
        # The reply of the reserve may be old; the statistics tell what is left, rounded down. `ttr`
        # is rounded up, so a TTR in milliseconds may end up to a second before this clock says so.
        ttr_s = stats["ttr"]
        since = reserved_at + min(stats["time-left"] + 1 - ttr_s, 0) if ttr_s else reserved_at
        outcome, fate = Outcome(), "lost"
        # Nothing is logged while touches hold the job: the log may block on a full pipe.
        try:
            with Lease(client, task, ttr_s, since, self._keep, reply_s) as lease:
                ran = outcome_of(consumer.handler, consumer.backoff, task, stats["kicks"])
                if not lease.is_gone:
                    outcome, fate = _weighed(ran, task, lease), ""
                    apply = partial(outcome.apply, client, consumer.queue, job, stats["pri"])
                    fate = self._finish(lease, apply)
            if fate == "lost":
                log.warning("%s: job %d was lost while it ran", consumer.queue, task.id)
            self._count(fate)
        except NotFoundError:
            log.warning("%s: job %d was lost when it was done", consumer.queue, task.id)
            self._count("lost")
        except BeanstalkdError as error:
            log.warning("%s: job %d: %s", consumer.queue, task.id, error)
        finally:
            outcome.tell(task, fate)

    def _finish(self, lease: Lease, apply: Callable[[float], str]) -> str:
        """Apply an outcome, such that a stop hurries it. See `_end`."""
        self._ending.append(lease)
        try:
            return self._end(lease, apply)
        finally:
            self._ending.remove(lease)

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
            if self._stopping.is_set():
                until = min(until, time.monotonic() + self._patience_s)
                lease.hurry(STOP_WAIT_S)
            try:
                if unknown is None or lease.is_held_still():
                    return lease.end(apply)
            except ClosedError:
                raise
            except (InternalError, NoNodeError, MayBeDoneError) as error:
                if isinstance(error, MayBeDoneError):
                    unknown = error
                if time.monotonic() >= until:
                    with self._lock:
                        self.given_up += 1
                    log.warning("job %d is given up, and may run again", lease.task.id)
                    raise
                log.warning("job %d is not ended yet: %s", lease.task.id, error)
            else:
                # Done, or lost: its id may belong to another job by now.
                raise unknown
            # No event: that of the stop or of the loss would make no pause once it is set.
            time.sleep(AGAIN_S)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


def _weighed(outcome: Outcome, task: Task, lease: Lease) -> Outcome:
    """Return what becomes of a job that a handler may have taken for lost."""
    if outcome.failed and lease.is_lost:
        # The clock alone has told the handler, which gave up: the job has not failed.
        return Outcome(rest_s=0, words=outcome.words)
    if outcome.is_done and task.lost.is_told:
        return Outcome(rest_s=0, is_unsure=True)
    return outcome
