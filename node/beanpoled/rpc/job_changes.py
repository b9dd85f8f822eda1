"""Changes of jobs by administrators: the parsed request, and its commands, part by part.

This file converts requests to CHANGE_JOB, and its results to outcomes. The stream of messages is in
`jobs`; the change itself is in `beanpole.core.operations.administering`.
"""

from collections.abc import Sequence
from typing import Final

from beanpole import commands as c
from beanpole.constants import SECOND_US, U32_MAX
from beanpole.core.jobs.job import BURIED, READY, RESERVED, Job
from beanpole.core.machine import Machine
from beanpole.core.operations import administering as a
from beanpole.pb import jobs_pb2
from beanpoled.rpc.call import Call
from beanpoled.rpc.job_scan import Filter
from beanpoled.rpc.queue_names import new_queue_name
from beanpoled.rpc.server import CallRefused

# Each is one command of the log and one step of every node: half a millisecond of an entry.
PART_JOBS: Final = 256
IDS_MAX: Final = 4096
# Unchanged jobs of a filter that are named in the reply.
NAMED_MAX: Final = 100

ACTIONS: Final = {
    jobs_pb2.JOB_ACTION_DELETE: a.DELETE,
    jobs_pb2.JOB_ACTION_KICK: a.KICK,
    jobs_pb2.JOB_ACTION_BURY: a.BURY,
    jobs_pb2.JOB_ACTION_SET_PRIORITY: a.SET_RANK,
    jobs_pb2.JOB_ACTION_SET_DELAY: a.SET_DELAY,
    jobs_pb2.JOB_ACTION_MOVE: a.MOVE,
}
_MOVED: Final = {
    jobs_pb2.MOVED_STATE_UNSPECIFIED: a.READY_IF_BURIED,
    jobs_pb2.MOVED_STATE_READY: READY,
    jobs_pb2.MOVED_STATE_BURIED: BURIED,
    jobs_pb2.MOVED_STATE_SAME: a.AS_IT_WAS,
}
OUTCOMES: Final = {
    c.OK: jobs_pb2.JOB_OUTCOME_DONE,
    c.NOT_FOUND: jobs_pb2.JOB_OUTCOME_NOT_FOUND,
    c.BUSY: jobs_pb2.JOB_OUTCOME_WRONG_STATE,
    c.EXISTS: jobs_pb2.JOB_OUTCOME_ALREADY_THERE,
    c.FULL: jobs_pb2.JOB_OUTCOME_QUEUE_FULL,
    c.OUT_OF_MEMORY: jobs_pb2.JOB_OUTCOME_TOO_MANY_QUEUES,
    # All other errors of a command are excluded by checks of its request.
    c.BAD_COMMAND: jobs_pb2.JOB_OUTCOME_OTHER_PROTOCOL,
}
# Outcomes after which every other job of a filter would fail, too.
STOPPING: Final = (
    jobs_pb2.JOB_OUTCOME_QUEUE_FULL,
    jobs_pb2.JOB_OUTCOME_TOO_MANY_QUEUES,
)


class Changes:
    """One change to be applied to some jobs.

    Attributes:
        job_ids: the jobs; empty if `wanted` selects them.
        wanted: the filter of the jobs; restricted to states that allow the change.
    """

    def __init__(self, request: jobs_pb2.ChangeRequest, machine: Machine) -> None:
        """Parse a request.

        Raises:
            CallRefused: it is wrong, with the field.
        """
        if request.action not in ACTIONS:
            words = "delete, kick, bury, set priority, set delay or move"
            raise CallRefused("BAD_ACTION", "action", f"{request.action} is no action: {words}")
        self._action = ACTIONS[request.action]
        self.job_ids = tuple(request.job_ids)
        self.wanted = Filter(request.filter, machine)
        _check_chosen(request)
        states = 0
        for state in a.FROM_STATES[self._action]:
            states |= 1 << state
        if not request.reserved:
            states &= ~(1 << RESERVED)
        self._states = self.wanted.states = self.wanted.states & states
        if not self._states:
            words = "this cannot be done to jobs of the states that are asked for"
            raise CallRefused("BAD_STATE", "filter.states", words)
        self._to = b""
        self._value = 0
        self._foretold = 0  # moves that take room in their queue
        if self._action == a.MOVE:
            self._read_move(request, machine)
        elif self._action == a.SET_RANK:
            self._value = request.priority
        elif self._action == a.SET_DELAY:
            if request.delay_s > U32_MAX:
                words = f"a delay of {request.delay_s} s; at most {U32_MAX}"
                raise CallRefused("BAD_DELAY", "delay_s", words)
            self._value = request.delay_s * SECOND_US

    def _read_move(self, request: jobs_pb2.ChangeRequest, machine: Machine) -> None:
        if not request.to_queue:
            raise CallRefused("BAD_NAME", "to_queue", "a move needs a queue to move to")
        if request.moved_state not in _MOVED:
            words = f"{request.moved_state} is no state of a moved job: ready, buried, same"
            raise CallRefused("BAD_STATE", "moved_state", words)
        queue = machine.queue
        self._to = queue.aliases.queue_of(new_queue_name(request.to_queue, "to_queue"))
        self._value = _MOVED[request.moved_state]
        source = self.wanted.queue
        if source and queue.space_of(source) is not queue.space_of(self._to):
            words = f"{request.filter.queue!r} and {request.to_queue!r} are of two protocols"
            raise CallRefused("OTHER_PROTOCOL", "to_queue", f"{words}; a job stays in its own")
        if source == self._to:
            words = f"jobs of {request.to_queue!r} are there already"
            raise CallRefused("SAME_QUEUE", "to_queue", words)
        space = queue.space_of(self._to)
        if space is not None and not self.job_ids:
            self.wanted.keep_to(space, request.to_queue)

    def give(self, job_ids: Sequence[int], call: Call) -> None:
        """Submit the commands for some jobs to a call."""
        queue = self.wanted.queue
        for job_id in job_ids:
            call.submit(
                c.CHANGE_JOB, job_id, self._action, self._states, queue, self._to, self._value
            )

    def foretell(self, machine: Machine, job_id: int) -> jobs_pb2.JobOutcome:
        """Return the outcome that the change would have for a job.

        A move counts those that this request has foretold before.
        """
        job = machine.queue.jobs.get(job_id)
        if job is None or (self.wanted.queue and job.tube.name != self.wanted.queue):
            return outcome(machine, job_id, c.NOT_FOUND)
        if not self._states >> job.state & 1:
            return jobs_pb2.JOB_OUTCOME_WRONG_STATE
        if self._action != a.MOVE:
            return jobs_pb2.JOB_OUTCOME_DONE
        return self._foretell_move(machine, job)

    def _foretell_move(self, machine: Machine, job: Job) -> jobs_pb2.JobOutcome:
        queue = machine.queue
        if queue.space_of(self._to) is not job.tube.space:
            return jobs_pb2.JOB_OUTCOME_OTHER_PROTOCOL
        tube = queue.tubes.get(self._to)
        if tube is job.tube:
            return jobs_pb2.JOB_OUTCOME_ALREADY_THERE
        if tube is None:
            full = len(queue.tubes) >= machine.tubes_max
            return jobs_pb2.JOB_OUTCOME_TOO_MANY_QUEUES if full else jobs_pb2.JOB_OUTCOME_DONE
        if a.state_after(job.state, self._value) != BURIED:
            if tube.is_full(job.rank, self._foretold):
                return jobs_pb2.JOB_OUTCOME_QUEUE_FULL
            self._foretold += 1
        return jobs_pb2.JOB_OUTCOME_DONE


def _check_chosen(request: jobs_pb2.ChangeRequest) -> None:
    """Refuse a request that names no jobs, or names them in two ways."""
    chosen = request.filter.ByteSize() > 0
    if request.job_ids:
        where = jobs_pb2.JobFilter(queue=request.filter.queue, states=request.filter.states)
        if request.filter != where:
            words = "beside ids of jobs, a filter has only a queue and states"
            raise CallRefused("BAD_CHOICE", "filter", words)
        if len(request.job_ids) > IDS_MAX:
            words = f"{len(request.job_ids)} ids of jobs; at most {IDS_MAX} in one call"
            raise CallRefused("TOO_MANY_JOBS", "job_ids", words)
    elif not chosen:
        words = "no jobs are named: give ids, or a filter; with a protocol it may mean all its jobs"
        raise CallRefused("BAD_CHOICE", "filter", words)


def outcome(machine: Machine, job_id: int, result: int) -> jobs_pb2.JobOutcome:
    """Convert the machine's result for a job to its outcome."""
    if result == c.NOT_FOUND and job_id in machine.qless.by_id:
        return jobs_pb2.JOB_OUTCOME_QLESS
    return OUTCOMES.get(result, jobs_pb2.JOB_OUTCOME_UNSPECIFIED)
