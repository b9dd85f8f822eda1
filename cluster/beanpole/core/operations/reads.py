"""Commands that only read. Their origin answers them in place; they change no state."""

from typing import Any

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpole.core.jobs.emitter import seconds
from beanpole.core.jobs.job import DELAYED, RESERVED, STATE_NAMES, Job
from beanpole.core.jobs.spaces import Space
from beanpole.core.operations.checks import find_job, find_tube
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState

Found = tuple[int, bytes] | int


def _found(job: Job | None) -> Found:
    return c.NOT_FOUND if job is None else (job.id, job.body)


def _seconds_left(due_us: int, now_us: int) -> int:
    """Return the whole seconds until a time, never below 0 (beanstalkd shows negative ones)."""
    return max(0, due_us - now_us) // SECOND_US


def peek(machine: MachineState, origin: Origin, command: c.Command) -> Found:
    return _found(find_job(machine, origin, command))


def peek_ready(machine: MachineState, origin: Origin, command: c.Command) -> Found:
    tube = find_tube(machine, origin.sessions[command[1]], command[2])
    key = 0 if tube is None else tube.first_ready()
    return _found(machine.queue.ready_job(key) if key else None)


def peek_delayed(machine: MachineState, origin: Origin, command: c.Command) -> Found:
    tube = find_tube(machine, origin.sessions[command[1]], command[2])
    first = 0 if tube is None else tube.first_delayed()
    return _found(machine.queue.jobs.get(first))


def peek_buried(machine: MachineState, origin: Origin, command: c.Command) -> Found:
    tube = find_tube(machine, origin.sessions[command[1]], command[2])
    return _found(None if tube is None else tube.first_buried())


def stats(machine: MachineState, origin: Origin, command: c.Command) -> tuple[int, ...]:
    """Return the cluster's part of `stats`, for the session's space.

    Returns:
        (urgent, ready, reserved, delayed, buried, timeouts, total jobs, tubes)
    """
    space = origin.sessions[command[1]].space
    return (
        space.urgent,
        space.ready,
        space.reserved,
        space.delayed,
        space.buried,
        space.timeouts,
        space.jobs_total,
        space.tubes,
    )


def stats_job(machine: MachineState, origin: Origin, command: c.Command) -> tuple[Any, ...] | int:
    """Return the 14 values of `stats-job`, in the protocol's order."""
    queue = machine.queue
    job = find_job(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    left_s = 0
    if job.state == RESERVED:
        left_s = _seconds_left(queue.deadline_us(job), queue.now_us)
    elif job.state == DELAYED:
        left_s = _seconds_left(job.due_us, queue.now_us)
    return (
        job.id,
        queue.name_in(origin.sessions[command[1]].space, job.tube),
        STATE_NAMES[job.state],
        job.rank,
        (queue.now_us - job.created_us) // SECOND_US,
        seconds(job.delay_us),
        seconds(job.ttr_us),
        left_s,
        0,
        job.reserves,
        job.timeouts,
        job.releases,
        job.buries,
        job.kicks,
    )


def stats_tube(machine: MachineState, origin: Origin, command: c.Command) -> tuple[Any, ...] | int:
    """Return the 14 values of `stats-tube`, in the protocol's order; the origin fills `waiting`."""
    queue = machine.queue
    tube = find_tube(machine, origin.sessions[command[1]], command[2])
    if tube is None:
        return c.NOT_FOUND
    return (
        queue.name_in(origin.sessions[command[1]].space, tube),
        tube.urgent_count,
        tube.ready_count,
        tube.reserved_count,
        tube.delayed_count,
        len(tube.buried),
        tube.jobs_total,
        tube.users,
        tube.watchers,
        0,
        tube.deletes,
        tube.pauses,
        tube.pause_s,
        _seconds_left(tube.paused_until_us, queue.now_us),
    )


def list_tubes(machine: MachineState, origin: Origin, command: c.Command) -> tuple[bytes, ...]:
    """Return the names of all queues in which the session's user has a right."""
    session = origin.sessions[command[1]]
    names, aliases = _own_names(machine, session.space), _alias_names(machine, session.space)
    if machine.users.rows:
        user = machine.users.of(session.user, session.token)
        queue_of = machine.queue.aliases.queue_of
        names = user.among(names)
        aliases = [alias for alias in aliases if user.on(queue_of(alias))]  # it gives no right
    return (*names, *aliases)


def _own_names(machine: MachineState, space: Space) -> list[bytes]:
    tubes = machine.queue.tubes
    if space.tubes == len(tubes):
        return list(tubes)
    return [name for name, tube in tubes.items() if tube.space is space]


def _alias_names(machine: MachineState, space: Space) -> list[bytes]:
    """Return the aliases in a space of queues that exist, by name: an image has no other order."""
    tubes = machine.queue.tubes
    if space.tubes == len(tubes):
        return []
    aliases = sorted(machine.queue.aliases.queues.items())
    return [alias for alias, name in aliases if name in tubes and space.may_name(alias)]
