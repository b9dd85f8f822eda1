"""A synchronous Workq client that fails over to another node when its own is lost.

The client has one connection at a time. The encoding is in `protocol.workq.client`, the connection
in `stream`. Names of queues, payloads and results are bytes; times are in milliseconds.

A request whose connection ends may have been done. The client then does the following:

    add, schedule            repeat: the id identifies the job
    result, inspect          repeat: they only read
    lease                    repeat: a job that was leased meanwhile is ready again after its TTR
    complete                 repeat: if the job has this result already, the request was done
    delete                   repeat: if the job is gone, the request was done
    run                      do not repeat, but ask for the result of the job, and end the job
    fail                     raise OutcomeUnknown: a second attempt would count as a second failure
"""

import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from beanpole.client.patience import PATIENCE_S, REPLY_TIMEOUT_S
from beanpole.client.stream import StreamClient
from beanpole.client.workq_replies import (
    DuplicateJob,
    DuplicateResult,
    Job,
    JobInfo,
    JobNotFound,
    QueueInfo,
    Result,
    ServerInfo,
    State,
    check,
    job_of,
    queue_of,
    result_of,
    time_of,
    time_text,
)
from beanpole.errors import ClientError, OutcomeUnknown, ProtocolError
from beanpole.protocol.workq.client import (
    BLOCKS,
    PLAIN,
    SIZED,
    Block,
    Reply,
    ReplyParser,
    encode,
    encode_with,
)

__all__ = [
    "Client",
    "DuplicateJob",
    "DuplicateResult",
    "Job",
    "JobInfo",
    "JobNotFound",
    "QueueInfo",
    "Result",
    "ServerInfo",
    "State",
]

TTR_DEFAULT_MS: Final = 60_000
# One day.
TTL_DEFAULT_MS: Final = 86_400_000
WAIT_DEFAULT_MS: Final = 60_000
PAGE_DEFAULT: Final = 100
# Refusals of one node, so that another is asked: of any request, and of one that adds a job.
_FULL: Final = (b"Too many clients",)
_CLOSED: Final = (*_FULL, b"Draining")


class Client(StreamClient):
    """A client connected to one of several nodes. Leases do not depend on the connection."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        patience_s: float = PATIENCE_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """See `StreamClient`: the first command connects."""
        super().__init__(addresses, patience_s=patience_s, reply_timeout_s=reply_timeout_s, tls=tls)
        self._parser = ReplyParser()
        self._shape = PLAIN  # of the expected reply

    # --- jobs -----------------------------------------------------------------------------------

    def add(
        self,
        name: bytes,
        payload: bytes,
        *,
        job: uuid.UUID | None = None,
        ttr_ms: int = TTR_DEFAULT_MS,
        ttl_ms: int = TTL_DEFAULT_MS,
        priority: int = 0,
        max_attempts: int = 0,
        max_fails: int = 0,
    ) -> uuid.UUID:
        """Add a job and return its id.

        Args:
            name: the name of the queue.
            payload: at most 1 MiB.
            job: the id, a UUID of version 4; None for a new one.
            ttr_ms: how long a worker may hold the job before it is leased again.
            ttl_ms: how long the cluster keeps the job and its result.
            priority: a signed 32-bit number; jobs with higher ones are leased first.
            max_attempts: the job fails after this number of leases without a result; 0 for no
                limit.
            max_fails: the job fails after this number of calls of `fail`, and is leased again
                before that; 0 for one.

        Raises:
            DuplicateJob: a job with this id exists.
            OutcomeUnknown: the connection ended, and no node takes the repetition.
            ClientError: the node refused the job and the message is the node's, or no node answers.
        """
        job = job or uuid.uuid4()
        flags = _flags(priority, max_attempts, max_fails)
        words = (b"add", _text(job), name, ttr_ms, ttl_ms)
        self._put(encode_with(payload, *words, flags=flags))
        return job

    def schedule(
        self,
        name: bytes,
        payload: bytes,
        at: datetime,
        *,
        job: uuid.UUID | None = None,
        ttr_ms: int = TTR_DEFAULT_MS,
        ttl_ms: int = TTL_DEFAULT_MS,
        priority: int = 0,
        max_attempts: int = 0,
        max_fails: int = 0,
    ) -> uuid.UUID:
        """Add a job that is ready at a time, to the second; its TTL begins then.

        The other arguments and the errors are those of `add`. `at` must have a time zone. It may
        be in the past if the TTL has not ended.
        """
        job = job or uuid.uuid4()
        flags = _flags(priority, max_attempts, max_fails)
        words = (b"schedule", _text(job), name, ttr_ms, ttl_ms, time_text(at))
        self._put(encode_with(payload, *words, flags=flags))
        return job

    def run(
        self,
        name: bytes,
        payload: bytes,
        *,
        wait_ms: int = WAIT_DEFAULT_MS,
        job: uuid.UUID | None = None,
        ttr_ms: int = TTR_DEFAULT_MS,
        priority: int = 0,
    ) -> Result | None:
        """Add a job and wait for its result; the cluster keeps the job only for this time.

        If a worker holds the job when `wait_ms` is over, the wait continues until its TTR ends.

        Returns:
            The result; None if none came in time, so that no worker can complete the job any more:
            it is gone, or a worker of another protocol has it. A worker that has leased it too late
            may still be at work.

        Raises:
            OutcomeUnknown: the connection ended, and no node answers or knows the job: it was
                never added, or it has ended and its result is lost. Or the job could not be ended
                for certain: that was refused, or its reply was lost, too.
            DuplicateJob, ClientError: see `add`.
        """
        job = job or uuid.uuid4()
        until = time.monotonic() + wait_ms / 1000
        words = (b"run", _text(job), name, ttr_ms, wait_ms)
        request = encode_with(payload, *words, flags={b"priority": priority})
        try:
            wait_s = (wait_ms + ttr_ms) / 1000
            reply = self._ask(request, SIZED, repeat=False, wait_s=wait_s, refusals=_CLOSED)
        except OutcomeUnknown as error:
            return self._run_result(job, ttr_ms, until, error)
        return result_of(reply)

    def _run_result(
        self, job: uuid.UUID, ttr_ms: int, until: float, error: OutcomeUnknown
    ) -> Result | None:
        """Return the result of a run whose connection has ended."""
        left_ms = max(0, round((until - time.monotonic()) * 1000))
        with _unknown_still(error):
            result = self.result(job, left_ms)
            if result is None and self.inspect_job(job).state == State.LEASED:
                result = self.result(job, ttr_ms)
            if result is None:
                result = self._end_run(job)
        with suppress(ClientError):  # otherwise the job stays until its TTL ends
            self.delete(job)
        return result

    def _end_run(self, job: uuid.UUID) -> Result | None:
        """End a job of a run without a result; if a worker was faster, return the worker's result.

        A deletion would also remove a result that has come since the last look at the job. `fail`
        is refused then, because the first end of a job counts.
        """
        try:
            self.fail(job)
        except DuplicateResult:
            return self.result(job, 0)
        return None

    def result(self, job: uuid.UUID, wait_ms: int = WAIT_DEFAULT_MS) -> Result | None:
        """Wait for the result of a job and return it; None if there is none within `wait_ms`.

        Raises:
            JobNotFound: there is no such job, or no longer.
        """
        words = (b"result", _text(job))
        return result_of(self._wait(lambda left_ms: encode(*words, left_ms), wait_ms))

    def delete(self, job: uuid.UUID) -> bool:
        """Delete a job in any state; return False if there is none.

        Raises:
            OutcomeUnknown: the connection ended, and no node answers the repetition.
        """
        reply, is_repeated = self._repeated(encode(b"delete", _text(job)))
        if reply.word == b"NOT-FOUND":
            return is_repeated  # the first attempt may have deleted it
        check(reply)
        return True

    # --- work -----------------------------------------------------------------------------------

    def lease(self, names: Sequence[bytes], wait_ms: int = WAIT_DEFAULT_MS) -> Job | None:
        """Wait for a job of any of these queues; return None if none is ready within `wait_ms`.

        Raises:
            ClientError: the node refuses it, for example a client without the right to a queue; the
                message is the node's. Or no node answers.
            ValueError: there is no name.
        """
        if not names:
            raise ValueError("a lease needs the name of a queue")
        reply = self._wait(lambda left_ms: encode(b"lease", *names, left_ms), wait_ms)
        if reply.word == b"TIMEOUT":
            return None
        check(reply)
        if len(reply.line) != 3:
            raise ProtocolError(f"no reply to a lease: {reply.line!r}")
        job, name, ttr_ms = reply.line
        return Job(uuid.UUID(job.decode()), name, int(ttr_ms), reply.body)

    def complete(self, job: uuid.UUID, result: bytes = b"") -> None:
        """Complete a job with a result. The first result counts, whether the job is leased or not.

        Raises:
            DuplicateResult: the job has another result.
            JobNotFound: there is no such job, or no longer.
            OutcomeUnknown: the connection ended, and the second attempt found no node, or no such
                job: it may have been deleted since, as the job of a `run` is.
        """
        reply, is_repeated = self._repeated(encode_with(result, b"complete", _text(job)))
        try:
            check(reply)
        except JobNotFound as error:
            if is_repeated:
                raise OutcomeUnknown(f"job {job} is known no longer") from error
            raise
        except DuplicateResult as error:
            if not is_repeated:
                raise
            with _unknown_still(OutcomeUnknown(str(error))):
                found = self.result(job, 0)
            if found != Result(True, result):
                raise

    def fail(self, job: uuid.UUID, result: bytes = b"") -> None:
        """Report that a job has failed: for good, or once if it was added with `max_fails`.

        Raises:
            DuplicateResult, JobNotFound: see `complete`.
            OutcomeUnknown: the connection ended; a repetition may count as a second failure.
        """
        check(self._ask(encode_with(result, b"fail", _text(job)), repeat=False))

    # --- inspection -----------------------------------------------------------------------------

    def inspect_server(self) -> ServerInfo:
        """Return the state of the connected node."""
        keys = self._blocks(b"server")[0].keys
        return ServerInfo(
            int(keys[b"active-clients"]), int(keys[b"evicted-jobs"]), time_of(keys[b"started"])
        )

    def inspect_queues(self, offset: int = 0, limit: int = PAGE_DEFAULT) -> list[QueueInfo]:
        """Return up to `limit` queues in the order of their names, beginning at `offset`."""
        return [queue_of(block) for block in self._blocks(b"queues", offset, limit)]

    def inspect_queue(self, name: bytes) -> QueueInfo | None:
        """Return the numbers of jobs of a queue; None if no request has named the queue yet."""
        blocks = self._blocks(b"queue", name)
        return queue_of(blocks[0]) if blocks else None

    def inspect_job(self, job: uuid.UUID) -> JobInfo:
        """Return all fields of a job.

        Raises:
            JobNotFound: there is no such job, or no longer.
        """
        blocks = self._blocks(b"job", _text(job))
        if not blocks:
            raise JobNotFound(f"NOT-FOUND: job {job}")
        return job_of(blocks[0])

    def inspect_jobs(
        self, name: bytes, offset: int = 0, limit: int = PAGE_DEFAULT
    ) -> list[JobInfo]:
        """Return up to `limit` ready jobs in the order of leases; fewer if they are large."""
        return [job_of(block) for block in self._blocks(b"jobs", name, offset, limit)]

    def inspect_scheduled_jobs(
        self, name: bytes, offset: int = 0, limit: int = PAGE_DEFAULT
    ) -> list[JobInfo]:
        """Return up to `limit` scheduled jobs in the order of their times; fewer if large."""
        return [job_of(block) for block in self._blocks(b"scheduled-jobs", name, offset, limit)]

    def _blocks(self, *words: int | bytes) -> tuple[Block, ...]:
        reply = self._ask(encode(b"inspect", *words), BLOCKS)
        if reply.word != b"NOT-FOUND":
            check(reply)
        return reply.blocks

    # --- requests -------------------------------------------------------------------------------

    def _ask(
        self,
        request: bytes | Callable[[float], bytes],
        shape: int = PLAIN,
        *,
        repeat: bool = True,
        wait_s: float = 0,
        refusals: Sequence[bytes] = _FULL,
    ) -> Reply:
        """Send a request to one node after the other until one answers without a refusal."""
        self._shape, ends_s = shape, time.monotonic() + wait_s
        encoded = (lambda _: request) if isinstance(request, bytes) else request
        asked = 0
        while True:
            reply = self._request(encoded, self._next_reply, repeat=repeat, wait_s=wait_s)
            wait_s = max(0.0, ends_s - time.monotonic())
            asked += 1
            if reply.text not in refusals:
                return reply
            self._leave()  # also the last one: a full node closes
            if asked >= self.address_count:
                return reply

    def _wait(self, request: Callable[[int], bytes], wait_ms: int) -> Reply:
        """Repeat a request that waits; `request` encodes it for a number of milliseconds."""
        return self._ask(lambda left_s: request(round(left_s * 1000)), SIZED, wait_s=wait_ms / 1000)

    def _repeated(self, request: bytes) -> tuple[Reply, bool]:
        """Return the reply, and whether the request may have been done twice."""
        try:
            return self._ask(request, repeat=False), False
        except OutcomeUnknown as lost:
            with _unknown_still(lost):
                return _accepted(self._ask(request)), True

    def _put(self, request: bytes) -> None:
        try:
            check(self._ask(request, repeat=False, refusals=_CLOSED))
        except OutcomeUnknown as lost:
            with _unknown_still(lost):
                reply = _accepted(self._ask(request, refusals=_CLOSED))
            if (reply.word, reply.text) != (b"CLIENT-ERROR", b"Duplicate job"):
                check(reply)

    def _begin(self) -> None:
        self._parser = ReplyParser()

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)

    def _next_reply(self) -> Reply | None:
        return self._parser.next(self._shape)


@contextmanager
def _unknown_still(lost: OutcomeUnknown) -> Iterator[None]:
    """Raise that the outcome of an earlier attempt is unknown if the block cannot tell it."""
    try:
        yield
    except ClientError as error:
        raise OutcomeUnknown(f"{lost}; then: {error}") from error


def _accepted(reply: Reply) -> Reply:
    """Return the reply; raise ClientError if it tells nothing of an earlier attempt."""
    if reply.word == b"SERVER-ERROR" or reply.text == b"Denied":
        check(reply)
    return reply


def _text(job: uuid.UUID) -> bytes:
    return str(job).encode()


def _flags(priority: int, max_attempts: int, max_fails: int) -> dict[bytes, int]:
    return {b"priority": priority, b"max-attempts": max_attempts, b"max-fails": max_fails}
