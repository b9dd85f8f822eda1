"""The commands on queues that stay until they are dropped (of sticky spaces), and on aliases.

Every function is as those of `core.operations.changes`: total, and without effect when it refuses.
"""

from crc32c import crc32c

from beanpole import commands as c
from beanpole.constants import U32_MAX
from beanpole.core.jobs.aliases import ALIASES_MAX
from beanpole.core.jobs.job import Job, Tube
from beanpole.core.jobs.transitions import TRANSITION_BITS, TUBE
from beanpole.core.operations.checks import find_tube, make_tube, why_no_tube
from beanpole.core.sessions import Origin, Session
from beanpole.core.state import MachineState


def create(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """CREATE_QUEUE: the queue is there from now on, if it was not."""
    session = origin.sessions[command[1]]
    if not session.space.sticky:
        return c.BAD_COMMAND
    tube = make_tube(machine, session.space, command[2])
    if tube is None:
        return why_no_tube(machine, session.space, command[2])
    machine.queue.transitions.append(tube.number << TRANSITION_BITS | TUBE)
    machine.queue.drop_if_idle(tube)  # one that has an alias here may be of a space without
    return c.OK


def drop(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """DROP_QUEUE: the queue goes, with its jobs, if no worker has to do with it.

    Jobs are deleted as far as this entry's share of kicks goes.

    Returns:
        OK; NOT_FOUND; BUSY if it is watched, or if it has jobs that are reserved or finished;
        AGAIN if more jobs are to be deleted.
    """
    session = origin.sessions[command[1]]
    tube = find_tube(machine, session, command[2])
    if tube is None:
        return c.NOT_FOUND
    if not session.space.sticky:
        return c.BAD_COMMAND
    if tube.space is not session.space:
        return c.BUSY  # only its alias is of this space
    if tube.watchers or tube.users or tube.reserved_count or tube.finished_count:
        return c.BUSY
    share = machine.kicks_left - machine.kicks_left // 2
    machine.kicks_left -= share
    for _ in range(share):
        job = _any_job(machine, tube)
        if job is None:
            machine.queue.drop_queue(tube)
            return c.OK
        machine.queue.delete(job, session)
    return c.AGAIN


def _any_job(machine: MachineState, tube: Tube) -> Job | None:
    queue = machine.queue
    if tube.ready_count:
        return queue.ready_job(tube.first_ready())
    if tube.delayed_count:
        return queue.jobs[tube.first_delayed()]
    return next(iter(tube.buried.values())) if tube.buried else None


def limit(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """LIMIT_QUEUE: how many jobs a queue may have for one more to be submitted, by its rank."""
    _, number, name, *limits = command
    session: Session = origin.sessions[number]
    if not session.space.sticky or not all(0 <= bound <= U32_MAX for bound in limits):
        return c.BAD_COMMAND
    tube = find_tube(machine, session, name)
    if tube is None:
        return c.NOT_FOUND
    high, normal, low = limits
    machine.queue.limit(tube, (high, normal, low))
    return c.OK


def set_alias(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_ALIAS: from here on the alias, of another space, means the queue; an empty queue ends it.

    Sessions that watch a queue by an alias go on when it is removed.

    Returns:
        OK; NOT_FOUND for an alias to remove that there is not; BUSY if a queue of the alias's name
        is in use; EXISTS if the alias means another queue, if the queue has another alias in that
        space, or if one of the two is used the other way round; OUT_OF_MEMORY if there are too
        many; BAD_COMMAND if the names are none of two spaces.
    """
    _, _, alias, name = command
    queue = machine.queue
    aliases = queue.aliases
    space = queue.space_of(alias)
    if space is None:
        return c.BAD_COMMAND
    if not name:
        if alias not in aliases.queues:
            return c.NOT_FOUND
        aliases.remove(alias, space.number)
        _note_alias(machine, alias, name)
        return c.OK
    home = queue.space_of(name)
    if home is None or home is space:
        return c.BAD_COMMAND
    if aliases.queues.get(alias) == name:
        return c.OK
    if (
        alias in aliases.queues
        or name in aliases.queues
        or aliases.names_of(alias)
        or aliases.name_of(name, space.number) is not None
    ):
        return c.EXISTS
    if len(aliases.queues) >= ALIASES_MAX:
        return c.OUT_OF_MEMORY
    there = queue.tubes.get(alias)
    if there is not None:
        if there is queue.default or there.is_used():
            return c.BUSY
        queue.drop_queue(there)
    aliases.add(alias, space.number, name)
    _note_alias(machine, alias, name)
    if name in queue.tubes:
        queue.ready_tubes[name] = None  # clients that wait for the alias may have something now
    return c.OK


def _note_alias(machine: MachineState, alias: bytes, name: bytes) -> None:
    """Let the running digest see an alias."""
    check = crc32c(name, crc32c(b"\0", crc32c(alias)))
    machine.queue.transitions.append(check << TRANSITION_BITS | TUBE)
