"""A lease: the touches of a job while its handler runs, and the clock that tells of its loss."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, Self

from beanpole.client.blocking import Client, NotFoundError
from beanpole.errors import ClientError

log = logging.getLogger("beanpole.worker")

# A job is touched whenever half of its TTR has passed, so that one touch may fail, or half of the
# time for which the cluster keeps its session: a touch resumes it after the loss of a node.
TOUCHES_PER_TTR: Final = 2
# A job is touched at least this often: the loss of a connection shows with a command.
TOUCH_MAX_S: Final = 30.0
# A touch that failed is repeated after this time: half of a TTR later would be too late.
AGAIN_S: Final = 1.0
# A touch, and what ends the job, waits for a reply for this part of the time that is left, of the
# TTR or for the session, and for twice as long at the next node: two silent nodes leave time for a
# connection to a third one, for the session to be resumed there, and for the command.
WAITS_PER_REST: Final = 5
# It waits no shorter than that: the commit of a healthy cluster may take as long over a slow link
# or disk, and a new connection would take longer.
WAIT_MIN_S: Final = 1.0
# It waits at least this many times as long as the slowest reply so far: a distant node is not
# silent.
REPLIES_PER_WAIT: Final = 3


class Held(Protocol):
    """The job that is held, as far as the lease knows it."""

    id: int

    @property
    def lost(self) -> threading.Event:
        """Set once it is lost."""


class Lease:
    """Touches a job through the client that reserved it, until it is ended.

    A touch may hang with its node, so a thread of its own watches the clock.
    """

    def __init__(
        self,
        client: Client[bytes],
        task: Held,
        ttr_s: int,
        since: float,
        keep_s: int,
        reply_s: float,
    ) -> None:
        """Begin without a touch.

        Args:
            client: the client that has reserved the job.
            task: the job.
            ttr_s: its TTR; 0 if it has none, as a job of another protocol may.
            since: when the TTR began, in seconds of the monotonic clock.
            keep_s: how long the cluster keeps the client's session; 0 if it does not.
            reply_s: how long the last reply took.
        """
        self.task = task
        self._client = client
        self._ttr_s = ttr_s
        self._since = since
        self._keep_s = keep_s
        self._reply_s = reply_s  # the longest so far
        halves_s = [limit_s / TOUCHES_PER_TTR for limit_s in (ttr_s, keep_s) if limit_s]
        self._period_s = min([TOUCH_MAX_S, *halves_s])
        self._is_gone = False  # as the cluster told, or the end of the session
        self.is_lost = False  # so, or by the clock
        self._done = threading.Event()
        self._has_run = threading.Event()
        # A client is for one thread at a time: the handler's is the other, when it ends the job.
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._touch, name=f"touch-{task.id}")]
        if ttr_s:
            watch = threading.Thread(target=self._watch, name=f"watch-{task.id}")
            self._threads.append(watch)

    def __enter__(self) -> Self:
        self._client.on_lost(self._lost)
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # the system may have no thread left for the second one
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._has_run.set()
        self._done.set()
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join()
        self._client.on_lost(lambda jobs: None)

    @property
    def _until(self) -> float:
        """When the TTR ends."""
        return self._since + self._ttr_s if self._ttr_s else math.inf

    @property
    def is_gone(self) -> bool:
        """Whether the job is lost for sure: not only by the worker's clock."""
        return self._is_gone or self.task.id not in self._client.held

    def is_held_still(self) -> bool:
        """Ask whether the job is reserved for this client, after an outcome without an answer.

        Raises:
            NoNodeError: no node answers.
        """
        with self._lock:
            return self._client.holds(self.task.id)

    def hurry(self, wait_s: float) -> None:
        """Touch the job no more, and wait no longer than this for each node.

        The touches would take turns with what ends the job, each for a while. Where the session is
        not kept, the job ends with the connection, so the node is waited for.
        """
        self._done.set()
        if self._client.is_kept:
            self._client.limit_waits(wait_s)

    def end(self, apply: Callable[[float], str]) -> str:
        """Apply an outcome while the job is not touched, and touch it no more if that succeeds.

        The cluster alone tells whether the job is lost, not the clock that told the handler: a
        cluster without a majority holds a job for longer than its TTR, and a late touch may have
        restarted the TTR. Left alone, such a job would be held for nobody.

        Args:
            apply: applies the outcome, with a time to wait for the first node.

        Raises:
            NotFoundError: the job was lost.
            BeanstalkdError: the outcome was refused.
        """
        self._has_run.set()
        with self._lock:
            if self.is_gone:
                raise NotFoundError
            ended = apply(self._wait_s())
            self._done.set()
        return ended

    def _wait_s(self) -> float:
        """Return how long to wait for the first node that is asked.

        Where the session is not kept, the job ends with the connection, so nothing is gained by
        another one.
        """
        rest_s = self._until - time.monotonic()
        if not self._client.is_kept:
            return max(rest_s, WAIT_MIN_S)
        rest_s = min(rest_s, self._keep_s or math.inf)
        return max(rest_s / WAITS_PER_REST, WAIT_MIN_S, REPLIES_PER_WAIT * self._reply_s)

    def _lost(self, jobs: Sequence[int]) -> None:
        if self.task.id in jobs:
            self._is_gone = self.is_lost = True
            self.task.lost.set()

    def _watch(self) -> None:
        """Tell the handler once the TTR has ended without a confirmed touch."""
        while not self._has_run.wait(max(self._until - time.monotonic(), 0)):
            if time.monotonic() >= self._until:
                if not self.is_lost:
                    words = "job %d is taken for lost: no touch was confirmed in time (TTR %d s)"
                    log.warning(words, self.task.id, self._ttr_s)
                self.is_lost = True
                self.task.lost.set()
                return

    def _touch(self) -> None:
        pause_s = 0.0
        while True:
            next_at = self._since + self._period_s
            if self._done.wait(max(next_at - time.monotonic(), pause_s)):
                return
            failure: Exception | None = None
            with self._lock:
                if self._done.is_set() or self._is_gone:
                    return
                if self.is_gone:  # as far as the client knows, by an end without an answer
                    pause_s = AGAIN_S
                    continue
                # Before the request: the TTR at the cluster begins at its arrival, or later.
                began = time.monotonic()
                try:
                    self._client.touch(self.task.id, wait_s=self._wait_s())
                    self._since, pause_s = began, 0.0
                    self._reply_s = max(self._reply_s, time.monotonic() - began)
                except NotFoundError:
                    self._lost([self.task.id])
                    return
                except (OSError, ClientError) as error:
                    failure, pause_s = error, min(AGAIN_S, self._period_s)
            # Without the lock, which the end of the job needs: the log may block on a full pipe.
            if failure is not None:
                log.warning("job %d is not touched: %s", self.task.id, failure)
