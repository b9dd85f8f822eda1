"""Administrative commands on a single job or queue of any space.

Like those of `core.operations.changes`, every handler is total, and has no effect when it refuses.
The transitions are in `core.jobs.moving` and `core.jobs.queue`.
"""

from typing import Final

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import DURATION_MAX_US, U32_MAX
from beanpole.core.jobs import moving
from beanpole.core.jobs.job import BURIED, DELAYED, DONE, FAILED, READY, RESERVED, Job
from beanpole.core.operations.checks import make_tube, why_no_tube
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState

# --- actions: `ACTION` of a command ---------------------------------------------------------------
DELETE: Final[int] = 1
KICK: Final[int] = 2  # delayed or buried to ready
BURY: Final[int] = 3  # ready or delayed to buried
SET_RANK: Final[int] = 4  # `VALUE` is the rank
SET_DELAY: Final[int] = 5  # `VALUE` is the delay in microseconds; 0 makes the job ready
MOVE: Final[int] = 6  # to `TO`; `VALUE` is one of MOVED_STATES
# The state of a job after a move.
AS_IT_WAS: Final[int] = 0
READY_IF_BURIED: Final[int] = 16
MOVED_STATES: Final = (AS_IT_WAS, READY, BURIED, READY_IF_BURIED)

# The states in which each action is allowed. Only DELETE is allowed for a reserved job, because the
# job belongs to its worker.
FROM_STATES: Final[dict[int, tuple[int, ...]]] = {
    DELETE: (READY, RESERVED, DELAYED, BURIED, DONE, FAILED),
    KICK: (DELAYED, BURIED),
    BURY: (READY, DELAYED),
    SET_RANK: (READY, DELAYED, BURIED),
    SET_DELAY: (READY, DELAYED),
    MOVE: (READY, DELAYED, BURIED),
}


def change_job(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """CHANGE_JOB: apply one action to a job, if the job is still as the administrator saw it.

    `STATES` has a bit for each state (1 << state) in which the job may be, `FROM` is the queue in
    which it must be, empty for any. Both are checked here because the job may have changed since
    the administrator looked at it.

    Returns:
        OK; NOT_FOUND if there is no such job, or it is in another queue; BUSY if it is in another
        state, or in one in which the action is not allowed; EXISTS if it is to be moved to its own
        queue; FULL if the limit of jobs of the queue is reached; OUT_OF_MEMORY if the limit of
        queues is reached; BAD_COMMAND for an unknown action, and for a queue of another space.
    """
    _, number, job_id, action, states, queue_from, _, value = command
    leads_from = FROM_STATES.get(action)
    if leads_from is None or not _value_fits(action, value):
        return c.BAD_COMMAND
    queue = machine.queue
    job = queue.jobs.get(job_id)
    if job is None or (queue_from and job.tube.name != queue_from):
        return c.NOT_FOUND
    if job.state not in leads_from or not states >> job.state & 1:
        return c.BUSY
    session = origin.sessions[number]
    if action == DELETE:
        queue.delete(job, session, e.ADMIN)
    elif action == KICK:
        queue.kick(job, session)
    elif action == BURY:
        queue.bury(job, job.rank, session)
    elif action == SET_RANK:
        moving.set_rank(queue, job, value, session, e.ADMIN)
    elif action == SET_DELAY:
        moving.set_delay(queue, job, value, session, e.ADMIN)
    else:
        return _move(machine, origin, job, command)
    return c.OK


def _value_fits(action: int, value: int) -> bool:
    if action == SET_RANK:
        return 0 <= value <= U32_MAX
    if action == SET_DELAY:
        return 0 <= value <= DURATION_MAX_US
    return action != MOVE or value in MOVED_STATES


def _move(machine: MachineState, origin: Origin, job: Job, command: c.Command) -> int:
    """Move a job within its space: other protocols could not name it, and have other rules."""
    _, number, _, _, _, _, name, value = command
    queue = machine.queue
    space = job.tube.space
    name = queue.aliases.queue_of(name)
    if queue.space_of(name) is not space:
        return c.BAD_COMMAND
    tube = queue.tubes.get(name)
    if tube is job.tube:
        return c.EXISTS
    state = state_after(job.state, value)
    if tube is None:
        tube = make_tube(machine, space, name)
        if tube is None:
            return why_no_tube(machine, space, name)
    elif state != BURIED and tube.is_full(job.rank):
        return c.FULL
    moving.move(queue, job, tube, state, origin.sessions[number], e.ADMIN)
    return c.OK


def state_after(state: int, value: int) -> int:
    """Return the state of a job after its move, given its previous state and `VALUE`."""
    if value in (READY, BURIED):
        return value
    return READY if value == READY_IF_BURIED and state == BURIED else state


def pause_queue(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """PAUSE_QUEUE: give out no job of the queue for this many seconds; 0 ends a pause."""
    _, _, name, delay_s = command
    tube = machine.queue.find(name)
    if tube is None:
        return c.NOT_FOUND
    if not 0 <= delay_s <= U32_MAX:
        return c.BAD_COMMAND
    machine.queue.pause(tube, delay_s)
    return c.OK
