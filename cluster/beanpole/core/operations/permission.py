"""The permission check of commands: the rights of a session's user against the table's entry.

This module maps a command to the queues that it concerns. The rights that an operation needs are in
`core.operations.table`, those of calls of qless in `qless_permission`, the rights of users in
`core.users`. A missing job needs no right: the operation itself reports that it is missing.
"""

from typing import Any

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpole.core.operations.checks import find_named
from beanpole.core.operations.operation import EXTERNAL_ID, JOB, ClientOperation, Field
from beanpole.core.sessions import Origin, Session
from beanpole.core.state import MachineState


def allows(
    machine: MachineState, origin: Origin, operation: ClientOperation, command: c.Command
) -> bool:
    """Whether a session may execute its command, which has the shape of the operation."""
    rights = operation.rights
    session = origin.sessions[command[1]]
    user = machine.users.of(session.user, session.token)
    if user.everywhere & rights:
        return True
    for field, place in operation.guarded:
        queue = _queue_of(machine, session, field, command[place])
        if queue is not None and not user.on(queue) & rights:
            return False
    return bool(operation.guarded)  # an operation on no queue needs its right everywhere


def _queue_of(machine: MachineState, session: Session, field: Field, value: Any) -> bytes | None:
    """Return the queue that a field's value names, or that of its job; None if there is none."""
    job: Job | None
    if field is JOB:
        job = machine.queue.jobs.get(value)
    elif field is EXTERNAL_ID:
        job = find_named(machine, session.space, value)
    else:
        # An empty name is that of no queue: nothing is moved.
        return machine.queue.aliases.queue_of(value) if value else None
    return None if job is None else job.tube.name
