"""Put jobs in bulk over gRPC, at any node that answers."""

import re
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, TypeAlias

import grpc

from beanpole.client.patience import REPLY_TIMEOUT_S
from beanpole.client.pickling import reduced
from beanpole.client.rpc import PATIENCE_S, Nodes, Refused, is_refused, pauses
from beanpole.errors import ClientError
from beanpole.pb import queue_pb2, queue_pb2_grpc

# The size of one call, far below the 4 MiB that a node accepts: large enough to amortize the fsync
# of the disks, small enough not to delay the commands of other clients.
CALL_JOBS_MAX: Final = 1000
CALL_BYTES_MAX: Final = 512 * 1024
# Pipelining: while one call waits for the disks, the next ones are on the wire.
CALLS_IN_FLIGHT: Final = 4

# Quoted, because the class is generic only in the type stubs of grpc.
_Call: TypeAlias = "grpc.Future[queue_pb2.PutReply]"
# A job, and its index among the puts.
_Numbered: TypeAlias = tuple[int, queue_pb2.PutJob]


class JobRefused(ClientError):
    """A job violates a limit of the cluster or a rule; `number` is its index among the puts."""

    __reduce__ = reduced

    def __init__(self, number: int, words: str) -> None:
        super().__init__(words)
        self.number = number


class Outcome:
    """The numbers of inserted jobs and of jobs that existed already."""

    def __init__(self) -> None:
        self.inserted = 0
        self.duplicates = 0


class Putter:
    """Puts jobs in batches. Every job must have a key, because unanswered calls are repeated."""

    def __init__(self, addresses: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        """Store the gRPC addresses; the first is preferred."""
        self._nodes = Nodes(addresses, patience_s)
        self._jobs: list[_Numbered] = []
        self._bytes = 0
        self._count = 0
        self._sent: deque[tuple[list[_Numbered], str, _Call]] = deque()
        self.outcome = Outcome()
        # Of the jobs that the last reply refused for lack of room: how many, by queue and outcome.
        self._refused: Counter[tuple[str, int]] = Counter()

    def __enter__(self) -> "Putter":
        return self

    def __exit__(self, *_: object) -> None:
        self._nodes.close()

    def put(self, job: queue_pb2.PutJob) -> None:
        """Buffer a job; it is put before `finish` returns.

        Raises:
            JobRefused: this job or an earlier one is not allowed.
            ClientError: no node answers, or the cluster or a queue stays full.
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
            JobRefused, ClientError: see `put`.
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
        address = next(self._nodes.in_turn())
        stub = queue_pb2_grpc.QueueStub(self._nodes.channel(address))
        call = stub.Put.future(_request(jobs), timeout=REPLY_TIMEOUT_S)
        self._sent.append((jobs, address, call))

    def _settle(self, jobs: list[_Numbered], address: str, call: _Call) -> None:
        try:
            left = self._counted(jobs, call.result())
        except grpc.RpcError as error:
            if is_refused(error):
                raise _refusal(jobs, Refused(address, error)) from None
            left = jobs
        for _ in pauses(self._nodes.patience_s):
            if not left:
                break
            try:
                reply = _put(self._nodes, _request(left))
            except Refused as error:
                raise _refusal(left, error) from None
            left = self._counted(left, reply)
        # The last attempt may have found room, or a node, after the patience was over.
        if left:
            raise ClientError(self._no_room(len(jobs)))

    def _no_room(self, total: int) -> str:
        """Say which limit the last reply named: another queue may have room."""
        found = []
        for (tube, outcome), count in sorted(self._refused.items()):
            if outcome == queue_pb2.PUT_OUTCOME_QUEUE_FULL:
                limit = f"the queue {tube!r} is full, or the user's quota is used up"
                name = "QUEUE_FULL"
            else:
                limit, name = "the cluster is full", "OUT_OF_MEMORY"
            found.append(f"{limit}: {count} of {total} jobs got {name}")
        return "; ".join(found)

    def _counted(self, jobs: list[_Numbered], reply: queue_pb2.PutReply) -> list[_Numbered]:
        """Count the results; return the jobs for which there was no room."""
        left = []
        self._refused.clear()
        for job, result in zip(jobs, reply.results, strict=True):
            if result.outcome == queue_pb2.PUT_OUTCOME_INSERTED:
                self.outcome.inserted += 1
            elif result.outcome == queue_pb2.PUT_OUTCOME_DUPLICATE:
                self.outcome.duplicates += 1
            else:
                left.append(job)
                is_queue = result.outcome == queue_pb2.PUT_OUTCOME_QUEUE_FULL
                # The cluster's limit has nothing to do with the queue.
                self._refused[job[1].tube if is_queue else "", result.outcome] += 1
        return left


def _request(jobs: list[_Numbered]) -> queue_pb2.PutRequest:
    return queue_pb2.PutRequest(jobs=[job for _, job in jobs])


def _refusal(jobs: list[_Numbered], error: Refused) -> ClientError:
    """Return a JobRefused if the error names a job, otherwise the error itself."""
    place = re.match(r"jobs\[(\d+)\]", error.field)
    return JobRefused(jobs[int(place[1])][0], error.words) if place else error


def _put(nodes: Nodes, request: queue_pb2.PutRequest) -> queue_pb2.PutReply:
    reply: queue_pb2.PutReply = nodes.first_answer(
        lambda channel: queue_pb2_grpc.QueueStub(channel).Put(request, timeout=REPLY_TIMEOUT_S)
    )
    return reply
