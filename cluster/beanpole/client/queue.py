"""Puts and kicks many jobs at once over gRPC, at whichever node answers."""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import grpc

from beanpole.client.rpc import PATIENCE_S, Nodes, Refused, is_refused, pauses
from beanpole.constants import KICK_MAX
from beanpole.errors import ClientError
from beanpole.pb import queue_pb2, queue_pb2_grpc

# Longer than a node needs to say that there is no majority (its command_timeout).
CALL_TIMEOUT_S: Final = 15.0
# One call, far below the 4 MiB that a node takes: large enough that the sync of the disks does not
# count, small enough that other clients' commands are not kept waiting behind it.
CALL_JOBS_MAX: Final = 1000
CALL_BYTES_MAX: Final = 512 * 1024
# While one call waits for the disks, the next ones travel.
CALLS_IN_FLIGHT: Final = 4


# Quoted: only the stubs of grpc know that it is generic.
_Call: TypeAlias = "grpc.Future[queue_pb2.PutReply]"


_Numbered: TypeAlias = tuple[int, queue_pb2.PutJob]


class JobRefused(ClientError):
    """A job that breaks a limit of the cluster or a rule; `number` counts the puts from 0."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(words)
        self.number = number


class Outcome:
    """How many jobs were made, and how many had been made before."""

    def __init__(self) -> None:
        self.inserted = 0
        self.duplicates = 0


class Putter:
    """Puts jobs in batches. Every job must have a key: what is unanswered is repeated."""

    def __init__(self, addresses: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        """Remember the gRPC addresses; the first is preferred."""
        self._nodes = Nodes(addresses, patience_s)
        self._jobs: list[_Numbered] = []
        self._bytes = 0
        self._count = 0
        self._sent: deque[tuple[list[_Numbered], _Call]] = deque()
        self.outcome = Outcome()

    def __enter__(self) -> "Putter":
        return self

    def __exit__(self, *_: object) -> None:
        self._nodes.close()

    def put(self, job: queue_pb2.PutJob) -> None:
        """Put a job, some time before `finish` returns.

        Raises:
            JobRefused: this job, or one before it, is not allowed.
            ClientError: no node answers, or the cluster stays full.
        """
        assert job.key, "a job without a key could be put twice"
        size = len(job.body)
        if self._jobs and self._bytes + size > CALL_BYTES_MAX:
            self._send()
        self._jobs.append((self._count, job))
        self._count += 1
        self._bytes += size
        if len(self._jobs) == CALL_JOBS_MAX:
            self._send()

    def finish(self) -> Outcome:
        """Wait until all jobs are put.

        Raises:
            ClientError: as `put`.
        """
        if self._jobs:
            self._send()
        while self._sent:
            self._settle(*self._sent.popleft())
        return self.outcome

    def _send(self) -> None:
        if len(self._sent) == CALLS_IN_FLIGHT:
            self._settle(*self._sent.popleft())
        jobs, self._jobs, self._bytes = self._jobs, [], 0
        stub = queue_pb2_grpc.QueueStub(self._nodes.channel(self._nodes.addresses[0]))
        self._sent.append((jobs, stub.Put.future(_request(jobs), timeout=CALL_TIMEOUT_S)))

    def _settle(self, jobs: list[_Numbered], call: _Call) -> None:
        try:
            left = self._counted(jobs, call.result())
        except grpc.RpcError as error:
            if is_refused(error):
                raise _refusal(jobs, Refused(self._nodes.addresses[0], error)) from None
            left = jobs
        for _ in pauses(self._nodes.patience_s):
            if not left:
                return
            try:
                reply = _call(self._nodes, "Put", _request(left))
            except Refused as error:
                raise _refusal(left, error) from None
            left = self._counted(left, reply)
        raise ClientError(f"the cluster is full: {len(left)} of {len(jobs)} jobs got OUT_OF_MEMORY")

    def _counted(self, jobs: list[_Numbered], reply: queue_pb2.PutReply) -> list[_Numbered]:
        """Count what is put; return the jobs for which there was no room."""
        left = []
        for job, result in zip(jobs, reply.results, strict=True):
            if result.outcome == queue_pb2.PUT_OUTCOME_INSERTED:
                self.outcome.inserted += 1
            elif result.outcome == queue_pb2.PUT_OUTCOME_DUPLICATE:
                self.outcome.duplicates += 1
            else:
                left.append(job)
        return left


def _request(jobs: list[_Numbered]) -> queue_pb2.PutRequest:
    return queue_pb2.PutRequest(jobs=[job for _, job in jobs])


def _refusal(jobs: list[_Numbered], error: Refused) -> ClientError:
    """Return which job it is about, if the node said that."""
    place = re.match(r"jobs\[(\d+)\]", error.field)
    return JobRefused(jobs[int(place[1])][0], error.words) if place else error


def kick(nodes: Nodes, jobs: Iterable[int]) -> int:
    """Make buried or delayed jobs ready; return how many of them were.

    A call that was not answered is repeated: what it had kicked does not count again then.

    Raises:
        ClientError: no node answers.
    """
    kicked = 0
    left = iter(jobs)
    while some := list(islice(left, KICK_MAX)):
        kicked += sum(_call(nodes, "Kick", queue_pb2.KickRequest(job_ids=some)).kicked)
    return kicked


def _call(nodes: Nodes, method: str, request: Any) -> Any:
    def ask(channel: grpc.Channel) -> Any:
        return getattr(queue_pb2_grpc.QueueStub(channel), method)(request, timeout=CALL_TIMEOUT_S)

    return nodes.first_answer(ask)
