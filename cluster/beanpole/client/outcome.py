"""A job in the hands of a worker's handler, and what becomes of it: deleted, released or buried.

The threads and clients of workers are in `worker`, the touches of a job in `lease`.
"""

import inspect
import logging
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Final

from beanpole.client.backoff import Backoff, whole_seconds
from beanpole.client.blocking import Client, Job, MayBeDoneError
from beanpole.client.pickling import reduced
from beanpole.errors import ClientError

log = logging.getLogger("beanpole.worker")

# Tracebacks go to the queue with the name of the job's own queue and this suffix.
FAILURES_SUFFIX: Final = ".failures"
TRACEBACK_MAX_BYTES: Final = 16 * 1024


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


class Loss(threading.Event):
    """The loss of a job, and whether its handler knows of it.

    A handler that was told and returns may have finished or given up: nothing says which.
    """

    is_told = False

    def is_set(self) -> bool:
        """See `threading.Event`."""
        found = super().is_set()
        self.is_told = self.is_told or found
        return found

    def wait(self, timeout: float | None = None) -> bool:
        """See `threading.Event`."""
        found = super().wait(timeout)
        self.is_told = self.is_told or found
        return found


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
            passed without a confirmed touch. A handler that runs long should check this event, and
            give up. If the cluster still holds the job for this worker, the job is then released.
            So is that of a handler that was told and returned: whether it has finished is unknown.
    """

    id: int
    body: bytes
    queue: str
    tried: int
    lost: Loss = field(default_factory=Loss)


Handler = Callable[[Task], object]


@dataclass(slots=True)
class Outcome:
    """What becomes of a job: it is deleted, released after `rest_s`, or buried.

    Attributes:
        rest_s: the delay of a release; None for a job that is deleted or buried.
        words: the traceback of a handler that raised; empty for one that returned.
        failed: the handler raised something else than `Bury` and `Retry`.
        is_unsure: the handler returned, and knew that it may have lost the job.
        is_noted: there is a note of the burial.
    """

    rest_s: int | None = None
    words: str = ""
    failed: bool = False
    is_unsure: bool = False
    is_noted: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the handler returned."""
        return self.rest_s is None and not self.words

    def tell(self, task: Task, fate: str) -> None:
        """Log why a job failed or was given up, and what became of it.

        Args:
            task: the job.
            fate: what `apply` has returned; another word if the job was lost, or if that is
                unknown.
        """
        if self.is_unsure:
            then = ": the job is released" if fate == "released" else ""
            log.warning("%s: the handler of job %d knew of its loss%s", task.queue, task.id, then)
        if self.words:
            again = f" and is tried again in {self.rest_s} s"
            then = {"buried": " and is buried", "released": again}.get(fate, "")
            place = task.queue, task.id, task.tried
            log.warning("%s: job %d failed (%d)%s:\n%s", *place, then, self.words)

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
        if self.is_done:
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


def check_runs_when_called(handler: Handler) -> None:
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


def outcome_of(handler: Handler, backoff: Backoff, task: Task, kicks: int) -> Outcome:
    """Run the handler, and decide the fate of its job; `kicks`: how often that was kicked."""
    try:
        try:
            _check_has_run(handler(task))
        except Retry as again:
            # A handler may have changed the delay since it was checked.
            return Outcome(whole_seconds(again.delay_s, "delay_s"))
    except BaseException as error:
        # Signals reach the main thread only: whatever a handler raises is a failure of its job,
        # SystemExit, KeyboardInterrupt and asyncio's CancelledError included.
        words = traceback.format_exc()
        if isinstance(error, Bury):
            return Outcome(words=words)
        return Outcome(backoff.rest_s(task.tried, kicks), words, failed=True)
    return Outcome()


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
