"""The handlers of the leader's own commands: `handler(machine, applied, command)`.

Like the handlers of client operations they are total: an invalid command changes nothing.
"""

from beanpole import commands as c
from beanpole.core.applied import GRANTED, LATER, NONE_READY, VOID, Applied
from beanpole.core.jobs.job import Job
from beanpole.core.jobs.transitions import RAISED, TRANSITION_BITS
from beanpole.core.operations.choosing import may_look, reserve_best
from beanpole.core.state import MachineState


def begin_epoch(machine: MachineState, applied: Applied, command: c.Command) -> None:
    """EPOCH: begin a term in its first entry. Limits follow the leader's configuration."""
    _, term, expiry_floor_us, jobs, tubes, sessions, body_bytes = command
    machine.term = term
    machine.jobs_max = jobs
    machine.tubes_max = tubes
    machine.sessions_max = sessions
    machine.queue_bytes_max = body_bytes
    machine.queue.begin_epoch(machine.queue.now_us, expiry_floor_us)
    applied.epoch = term


def node_down(machine: MachineState, applied: Applied, command: c.Command) -> None:
    """NODE_DOWN: end an incarnation, if it is the present one."""
    _, index, incarnation = command
    origin = machine.origins.get(index)
    if origin is not None and origin.alive and origin.incarnation == incarnation:
        machine.end_incarnation(origin)
        applied.downs.append((index, incarnation))


def grant(machine: MachineState, applied: Applied, command: c.Command) -> None:
    """GRANT: reserve the best ready job of the session's watched tubes that are not closed."""
    _, index, incarnation, number, request, behind = command
    origin = machine.origins.get(index)
    job: Job | None = None
    outcome = VOID
    if (
        origin is not None
        and origin.alive
        and origin.incarnation == incarnation
        and origin.next_number > behind
    ):
        session = origin.sessions.get(number)
        if session is not None and request > session.request_granted:
            outcome = LATER
            if may_look(machine, session):
                job = reserve_best(machine, session)
                outcome = NONE_READY
                if job is not None:
                    session.request_granted = request
                    outcome = GRANTED
    applied.grants.append((index, incarnation, number, request, outcome, job))


def digest(machine: MachineState, applied: Applied, command: c.Command) -> None:
    """DIGEST: make every node compute the digest of the whole machine at this index."""
    applied.digest = True


def raise_version(machine: MachineState, applied: Applied, command: c.Command) -> None:
    """RAISE: raise the machine's version, which never goes back."""
    version = command[1]
    if machine.version < version <= c.VERSION_MAX:
        machine.activate(version)
        machine.queue.transitions.append(version << TRANSITION_BITS | RAISED)
        applied.raised = True
