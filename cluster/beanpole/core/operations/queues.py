"""The commands on sticky queues, which stay until they are dropped, and on aliases.

Like those of `core.operations.changes`, every handler is total, and has no effect when it refuses.
"""

from beanpole import commands as c
from beanpole.constants import U32_MAX
from beanpole.core.jobs.aliases import ALIASES_MAX
from beanpole.core.jobs.job import Job, Tube
from beanpole.core.jobs.transitions import TRANSITION_BITS, TUBE
from beanpole.core.operations.checks import find_tube, make_tube, why_no_tube
from beanpole.core.sessions import Origin, Session
from beanpole.core.state import MachineState


def create(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """CREATE_QUEUE: create a queue if it does not exist."""
    session = origin.sessions[command[1]]
    if not session.space.sticky:
        return c.BAD_COMMAND
    tube = make_tube(machine, session.space, command[2])
    if tube is None:
        return why_no_tube(machine, session.space, command[2])
    machine.queue.transitions.append(tube.number << TRANSITION_BITS | TUBE)
    machine.queue.drop_if_idle(tube)  # a queue with an alias here may be of a space without sticky
    return c.OK


def drop(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """DROP_QUEUE: remove a queue with its jobs, if no worker uses it.

    Jobs are deleted within this entry's budget of kicks.

    Returns:
        OK; NOT_FOUND; BUSY if it is used or watched, or has reserved or finished jobs; AGAIN if
        more jobs are to be deleted.
    """
    session = origin.sessions[command[1]]
    tube = find_tube(machine, session, command[2])
    if tube is None:
        return c.NOT_FOUND
    if not session.space.sticky:
        return c.BAD_COMMAND
    if tube.space is not session.space:
        return c.BUSY  # only its alias belongs to this space
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
    return tube.first_buried()


def limit(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """LIMIT_QUEUE: set the limits of a queue's jobs, by the rank of a further submitted job."""
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
    """SET_ALIAS: make a name of another space an alias of a queue; an empty queue removes it.

    Sessions that watch a queue by an alias continue to do so when it is removed.

    Returns:
        OK; NOT_FOUND for the removal of an alias that does not exist; BUSY if a queue of the
        alias's name is in use; EXISTS if the alias denotes another queue, if the queue has another
        alias in that space, or if the queue is itself an alias or the alias has aliases;
        OUT_OF_MEMORY if there are too many; BAD_COMMAND if the names are not of two spaces.
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
        machine.note_values(TUBE, alias, name)
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
    machine.note_values(TUBE, alias, name)
    if name in queue.tubes:
        queue.ready_tubes[name] = None  # clients that wait on the alias may get a job now
    return c.OK
