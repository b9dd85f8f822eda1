"""Checks that operations share, before they change anything: queues, room, reservations.

A session sees the queues and jobs of its own space, and those of other spaces with an alias there.
Names in commands include the prefix of their space. Up to machine version 2 there is one space.
"""

from beanpole import commands as c
from beanpole.core.accounts import JOB_BYTES, jobs_bytes, jobs_count
from beanpole.core.jobs import display_names
from beanpole.core.jobs.job import RESERVED, Job, Tube
from beanpole.core.jobs.spaces import SPACES_SINCE, Space
from beanpole.core.sessions import Origin, Session
from beanpole.core.state import MachineState
from beanpole.events import WORKQ


def find_tube(machine: MachineState, session: Session, name: bytes) -> Tube | None:
    """Return the existing tube of a name or an alias in the session's space; None if none."""
    tube = machine.queue.tubes.get(name)
    if tube is None:
        aliases = machine.queue.aliases
        if aliases.queues and session.space.may_name(name):
            return machine.queue.tubes.get(aliases.queue_of(name))
        return None
    return tube if tube.space is session.space else None


def make_tube(machine: MachineState, space: Space, name: bytes) -> Tube | None:
    """Return the tube of a name, created if needed; None if the limits or the name forbid it."""
    tube = machine.queue.tubes.get(name)
    if tube is not None:
        return tube if tube.space is space else None
    queue = machine.queue
    if queue.aliases.queues and name in queue.aliases.queues:
        return _make_aliased(machine, space, name)
    if not _may_name(machine, space, name) or len(machine.queue.tubes) >= machine.tubes_max:
        return None
    return machine.queue.tube(name, space)


def _make_aliased(machine: MachineState, space: Space, alias: bytes) -> Tube | None:
    queue = machine.queue
    name = queue.aliases.queue_of(alias)
    tube, home = queue.tubes.get(name), queue.space_of(name)
    if not space.may_name(alias) or home is None:
        return None
    if tube is None and len(queue.tubes) < machine.tubes_max:
        return queue.tube(name, home)
    return tube


def _may_name(machine: MachineState, space: Space, name: bytes) -> bool:
    if machine.version >= SPACES_SINCE:
        return space.may_name(name)
    return 0 < len(name) <= space.name_max_bytes


def why_no_tube(machine: MachineState, space: Space, name: bytes) -> int:
    """Return the result of a command for which `make_tube` returned None."""
    if machine.version >= SPACES_SINCE and (
        name in machine.queue.tubes or not space.may_name(name)
    ):
        return c.BAD_COMMAND
    return c.OUT_OF_MEMORY


def has_room(machine: MachineState, size: int) -> bool:
    """Whether one more job fits that takes `size` bytes in addition to JOB_BYTES."""
    return (
        not machine.puts_refused
        and jobs_count(machine) < machine.jobs_max
        and has_bytes(machine, JOB_BYTES + size)
    )


def has_bytes(machine: MachineState, size: int) -> bool:
    """Whether the limit of bytes leaves room for this many more."""
    return jobs_bytes(machine) + size + machine.beside_jobs_bytes <= machine.queue_bytes_max


def find_job(machine: MachineState, origin: Origin, command: c.Command) -> Job | None:
    """Return the job that a command names, if the command's session may see it."""
    job = machine.queue.jobs.get(command[2])
    if job is None:
        return None
    session = origin.sessions[command[1]]
    if job.tube.space is session.space or _reaches(machine, session.space, job):
        return job
    return session.reserved.get(job.id)


def _reaches(machine: MachineState, space: Space, job: Job) -> bool:
    """Whether a job in a queue of another space is also visible in this space."""
    if job.ext is not None and job.ext.home is space:
        return True
    if job.state == RESERVED and job.holder is None and not space.leased and job.tube.space.leased:
        # It was leased by an alias, which may be gone: only such a session can end the lease.
        return True
    return machine.queue.sees(space, job.tube)


def find_named(machine: MachineState, space: Space, external_id: bytes) -> Job | None:
    """Return the job with this external id in a space; some ids are derived from job ids."""
    jobs = machine.queue.jobs
    job_id = space.external_ids.get(external_id, 0)
    if job_id:
        return jobs.get(job_id)
    if space.number != WORKQ:
        return None
    job = jobs.get(display_names.job_of(external_id))
    if job is None or (job.ext is not None and job.ext.home is space):
        return None
    return job if _reaches(machine, space, job) else None


def find_held(machine: MachineState, origin: Origin, command: c.Command) -> Job | None:
    """Return the reserved job that a command names, if the command's session may act as its holder.

    These are the jobs that it holds, and for a session without leases, all jobs without a holder.
    """
    session = origin.sessions[command[1]]
    job = session.reserved.get(command[2])
    if job is not None or session.leased:
        return job
    job = find_job(machine, origin, command)
    return job if job is not None and job.state == RESERVED and job.holder is None else None
