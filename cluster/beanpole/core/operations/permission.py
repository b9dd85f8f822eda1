"""Whether a session may do what a command says: the rights of its user against the table's entry.

Belongs here: from a command to the queues that it is about. Which rights an operation needs is in
`core.operations.table`, which a call of qless needs, in `qless_permission`; what a user may do, in
`core.users`. A job that is not there needs no right: the operation itself says that it is not.
"""

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpole.core.operations.checks import find_named
from beanpole.core.operations.operation import EXTERNAL_ID, JOB, ClientOperation
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState


def allows(
    machine: MachineState, origin: Origin, operation: ClientOperation, command: c.Command
) -> bool:
    """Whether the command's session may do it. The command has the shape of its operation."""
    rights = operation.rights
    session = origin.sessions[command[1]]
    user = machine.users.of(session.user, session.token)
    if user.everywhere & rights:
        return True
    queue = machine.queue
    for field, place in operation.guarded:
        value = command[place]
        job: Job | None
        if field is JOB:
            job = queue.jobs.get(value)
        elif field is EXTERNAL_ID:
            job = find_named(machine, session.space, value)
        elif value:
            if not user.on(queue.aliases.queue_of(value)) & rights:
                return False
            continue
        else:
            continue  # it names no queue: nothing is moved
        if job is not None and not user.on(job.tube.name) & rights:
            return False
    return bool(operation.guarded)  # what is about no queue needs its right everywhere
