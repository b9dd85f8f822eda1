"""Administers jobs and queues over gRPC, at whichever node answers.

Belongs here: which node is asked, what a refusal is, and how a long call goes on at another node.
What the calls mean is in proto/beanpole/pb/jobs.proto.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import grpc

from beanpole.client.rpc import Nodes, detail_of, is_refused, pauses, told, words_of
from beanpole.errors import ClientError
from beanpole.pb import jobs_pb2, jobs_pb2_grpc

# Above `command_timeout_ms`, after which a node gives up itself, and the seconds of a search.
CALL_TIMEOUT_S: Final = 30.0
# A stream that lasts longer, or stands still, is continued by another one.
STREAM_TIMEOUT_S: Final = 60.0
# Every node would say the same.
_REFUSALS: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
)

T = TypeVar("T")


class AdminRefused(ClientError):
    """A node says no, and every other one would.

    Attributes:
        code: the status.
        reason: why, in a word for programs; empty if the node gave none.
        field: of the request, if that is wrong.
    """

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(error.details() or error.code().name)
        self.code = error.code()
        detail = detail_of(error)
        self.reason = detail.reason
        self.field = detail.field


class Admin:
    """Calls of `JobAdmin`. Reading is repeated at other nodes; so are changes, which allow it."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def ask(self, method: str, request: Any) -> Any:
        """Return what the first node answers.

        Raises:
            AdminRefused: it says no.
            ClientError: no node answers.
        """
        return self._any(lambda stub: getattr(stub, method)(request, timeout=CALL_TIMEOUT_S))

    def pages(self, request: jobs_pb2.ListJobsRequest) -> Iterator[jobs_pb2.ListJobsReply]:
        """Go through all pages of a list of jobs. Raises what `ask` raises."""
        while True:
            reply = self.ask("ListJobs", request)
            yield reply
            if reply.complete:
                return
            request.after_id = reply.next_after_id

    def queues(self, oldest: bool = False) -> Iterator[jobs_pb2.AdminQueue]:
        """Return all queues. Raises what `ask` raises."""
        request = jobs_pb2.ListQueuesRequest(oldest=oldest)
        while True:
            reply = self.ask("ListQueues", request)
            yield from reply.queues
            if reply.complete:
                return
            request.after = reply.next_after

    def change(
        self,
        request: jobs_pb2.ChangeRequest,
        look: Callable[[jobs_pb2.ChangeProgress], None] = lambda told: None,
    ) -> jobs_pb2.ChangeProgress:
        """Change jobs; go on at another node where one went away.

        A part whose answer was lost is not counted: it may be done.

        Args:
            request: for a filter, `after_id` and `up_to_id` follow the progress.
            look: called with what was done so far.

        Returns:
            What was done in all.

        Raises:
            AdminRefused: a node says no.
            ClientError: no node answers.
        """
        total = jobs_pb2.ChangeProgress()
        bound = request.count_max

        def act(stub: jobs_pb2_grpc.JobAdminStub) -> bool:
            """Go on at a node; False if it did a part and went away.

            One that has done nothing is as one that does not answer: the next is asked, and after
            all of them there is a pause.
            """
            before = jobs_pb2.ChangeProgress()
            before.CopyFrom(total)
            begun_at = request.after_id
            try:
                for told in stub.Change(request, timeout=STREAM_TIMEOUT_S):
                    _join(total, before, told)
                    if not request.job_ids:
                        request.after_id, request.up_to_id = told.after_id, told.up_to_id
                    look(total)
            except grpc.RpcError as error:
                if total.complete:
                    return True  # all was done, and only the end of the stream is missing
                if request.after_id == begun_at or (error.code() in _REFUSALS or is_refused(error)):
                    raise
                return False
            return True

        while not self._any(act):
            if bound:
                if total.changed >= bound:
                    break
                request.count_max = bound - total.changed
        return total

    def _any(self, act: Callable[[jobs_pb2_grpc.JobAdminStub], T]) -> T:
        """Do it at one node after the other until one can."""
        failures: dict[str, str] = {}
        unknown: set[str] = set()
        for _ in pauses(self._nodes.patience_s):
            for address in tuple(self._nodes.addresses):
                try:
                    return act(jobs_pb2_grpc.JobAdminStub(self._nodes.channel(address)))
                except grpc.RpcError as error:
                    if error.code() in _REFUSALS or is_refused(error):
                        raise AdminRefused(error) from None
                    failures[address] = words_of(error)
                    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                        unknown.add(address)
                    self._nodes.defer(address)
            if unknown.issuperset(self._nodes.addresses):
                raise ClientError(f"the nodes run a release without this call: {told(failures)}")
        raise ClientError(f"no node answers: {told(failures)}")


def _join(
    total: jobs_pb2.ChangeProgress, before: jobs_pb2.ChangeProgress, told: jobs_pb2.ChangeProgress
) -> None:
    """Set a total to what earlier calls did and this one has done so far."""
    total.CopyFrom(told)
    total.scanned += before.scanned
    total.matched += before.matched
    total.changed += before.changed
    del total.results[:]
    total.results.extend(before.results)
    total.results.extend(told.results)
