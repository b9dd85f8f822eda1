"""Administer jobs and queues over gRPC, at any node that answers.

Belongs here: the choice of the node, the recognition of a refusal, and the continuation of a long
call at another node. proto/beanpole/pb/jobs.proto documents the calls.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import grpc

from beanpole.client.pickling import reduced
from beanpole.client.rpc import (
    TOO_OLD,
    Nodes,
    detail_of,
    details_of,
    is_refused,
    told,
    was_sent,
    words_of,
)
from beanpole.errors import ClientError
from beanpole.pb import jobs_pb2, jobs_pb2_grpc

# Longer than `command_timeout_ms`, after which a node gives up itself, plus the time of a search.
CALL_TIMEOUT_S: Final = 30.0
# The ids of jobs in one call. A node makes as many changes at a time; the ids of a call whose reply
# is lost are asked again, so that fewer mean that less is unsure afterwards.
PART_IDS: Final = 256
# A stream that lasts longer, or stalls, is continued by another one.
STREAM_TIMEOUT_S: Final = 60.0
# With these a node refuses a change before it begins: nothing of it is done. So it is with every
# reason that a node gives, but for the ends of a right and of a token, which it may meet within a
# change.
_NOT_BEGUN: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
_BEGUN: Final = ("", "RIGHT_ENDED", "TOKEN_ENDED")
# Of a change that was asked for twice, these may be the effect of the first time.
_MAY_BE_EFFECT: Final = (
    jobs_pb2.JOB_OUTCOME_NOT_FOUND,
    jobs_pb2.JOB_OUTCOME_WRONG_STATE,
    jobs_pb2.JOB_OUTCOME_ALREADY_THERE,
)
# The state of the cluster forbids the change, as it would at every other node.
_FORBIDDEN: Final = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)

T = TypeVar("T")


class AdminRefused(ClientError):
    """A node refuses a request that every other node would refuse, too.

    Attributes:
        code: the status.
        reason: the machine-readable reason, one word; empty if the node gave none.
        field: the field of the request that is wrong; empty if none is.
    """

    __reduce__ = reduced

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(details_of(error) or error.code().name)
        self.code = error.code()
        detail = detail_of(error)
        self.reason = detail.reason
        self.field = detail.field


class Admin:
    """The calls of `JobAdmin`. Lost calls are repeated at another node; changes allow that, too.

    Attributes:
        asked_again: the ids of jobs whose change was repeated, or broken off; see `unsure`.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.asked_again: set[int] = set()
        self._nodes = nodes

    def ask(self, method: str, request: Any) -> Any:
        """Call a method at the first node that answers, and return its reply.

        Raises:
            AdminRefused: the node refuses the request.
            ClientError: no node answers.
        """
        return self._any(lambda stub: getattr(stub, method)(request, timeout=CALL_TIMEOUT_S))

    def pages(self, request: jobs_pb2.ListJobsRequest) -> Iterator[jobs_pb2.ListJobsReply]:
        """Yield all pages of a list of jobs. Raises the exceptions of `ask`."""
        while True:
            reply = self.ask("ListJobs", request)
            yield reply
            if reply.complete:
                return
            request.after_id = reply.next_after_id

    def queues(self, oldest: bool = False) -> Iterator[jobs_pb2.AdminQueue]:
        """Yield all queues. Raises the exceptions of `ask`."""
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
        look: Callable[[jobs_pb2.ChangeProgress], None] = lambda _: None,
    ) -> jobs_pb2.ChangeProgress:
        """Change jobs; if a node is lost, continue at another one.

        A part whose reply was lost is not counted, although it may be done. Ids are sent in parts:
        those of the part in which a node was lost are in `asked_again`.

        Args:
            request: if it has a filter, `after_id` and `up_to_id` are updated with the progress.
            look: the callback for the total so far.

        Returns:
            The total.

        Raises:
            AdminRefused: a node refuses the request.
            ClientError: no node answers.
        """
        if request.job_ids:
            return self._change_ids(request, look)
        total = jobs_pb2.ChangeProgress()
        bound = request.count_max

        def act(stub: jobs_pb2_grpc.JobAdminStub) -> bool:
            """Continue at a node; return False if the node did a part and then ended, or was lost.

            A node that has done nothing counts as one that does not answer: the error is raised,
            so that `_any` tries the next node, and pauses after each round.
            """
            before = jobs_pb2.ChangeProgress()
            before.CopyFrom(total)
            begun_at = request.after_id
            try:
                for now in stub.Change(request, timeout=STREAM_TIMEOUT_S):
                    _join(total, before, now)
                    request.after_id, request.up_to_id = now.after_id, now.up_to_id
                    look(total)
            except grpc.RpcError as error:
                if total.complete:
                    return True  # all is done; only the end of the stream is missing
                if request.after_id == begun_at or is_refused_by_all(error):
                    raise
                return False
            # A node ends a long call between two parts.
            return total.complete or bool(total.stopped_by) or request.after_id == begun_at

        while not self._any(act):
            if bound:
                if total.changed >= bound:
                    break
                request.count_max = bound - total.changed
        return total

    def unsure(self, told: jobs_pb2.ChangeProgress) -> list[int]:
        """Return the jobs that a lost node may have changed, although a later one could not.

        Such a job is not there, or not in the right state: perhaps the effect of the first attempt.
        """
        return [
            one.id
            for one in told.results
            if one.outcome in _MAY_BE_EFFECT and one.id in self.asked_again
        ]

    def _change_ids(
        self, request: jobs_pb2.ChangeRequest, look: Callable[[jobs_pb2.ChangeProgress], None]
    ) -> jobs_pb2.ChangeProgress:
        job_ids = tuple(request.job_ids)
        total = jobs_pb2.ChangeProgress(to_scan=len(job_ids))
        part = jobs_pb2.ChangeRequest()
        for first in range(0, len(job_ids), PART_IDS):
            part.CopyFrom(request)
            part.job_ids[:] = job_ids[first : first + PART_IDS]
            told = self._change_part(part)
            total.scanned += len(part.job_ids)
            total.matched += told.matched
            total.changed += told.changed
            total.results.extend(told.results)
            look(total)
        total.complete = True
        return total

    def _change_part(self, part: jobs_pb2.ChangeRequest) -> jobs_pb2.ChangeProgress:
        is_lost = False  # a call that may have changed jobs has no answer

        def act(stub: jobs_pb2_grpc.JobAdminStub) -> jobs_pb2.ChangeProgress:
            nonlocal is_lost
            was_lost, is_lost = is_lost, True  # also if Ctrl-C ends this call
            told = jobs_pb2.ChangeProgress()
            try:
                for now in stub.Change(part, timeout=STREAM_TIMEOUT_S):
                    told = now
            except grpc.RpcError as error:
                if not told.complete:
                    is_lost = was_lost or _may_be_done(error)
                    raise
            is_lost = was_lost
            return told

        try:
            return self._any(act)
        finally:
            if is_lost and not part.dry_run:
                self.asked_again.update(part.job_ids)

    def _any(self, act: Callable[[jobs_pb2_grpc.JobAdminStub], T]) -> T:
        """Call `act` with one node after the other until it succeeds."""
        failures: dict[str, str] = {}
        unknown: set[str] = set()
        for _ in self._nodes.rounds(failures):
            for address in self._nodes.in_turn():
                try:
                    return act(jobs_pb2_grpc.JobAdminStub(self._nodes.channel(address)))
                except grpc.RpcError as error:
                    if is_refused_by_all(error):
                        raise AdminRefused(error) from None
                    failures[address] = words_of(error)
                    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                        unknown.add(address)
                    self._nodes.defer(address)
            if unknown.issuperset(self._nodes.addresses):
                raise ClientError(f"{TOO_OLD}: {told(failures)}")
        raise ClientError(f"no node answers: {told(failures)}")


def _may_be_done(error: grpc.RpcError) -> bool:
    """Whether a node may have done some of a change that failed."""
    is_begun = error.code() not in _NOT_BEGUN and detail_of(error).reason in _BEGUN
    return was_sent(error) and is_begun


def is_refused_by_all(error: grpc.RpcError) -> bool:
    """Whether every other node would refuse the request, too."""
    return is_refused(error) or error.code() in _FORBIDDEN


def _join(
    total: jobs_pb2.ChangeProgress, before: jobs_pb2.ChangeProgress, now: jobs_pb2.ChangeProgress
) -> None:
    """Set a total to the progress of earlier calls plus the progress of this one."""
    total.CopyFrom(now)
    total.scanned += before.scanned
    total.matched += before.matched
    total.changed += before.changed
    del total.results[:]
    total.results.extend(before.results)
    total.results.extend(now.results)
