"""The checks that operations share, before they change anything: queues, room, reservations.

A session sees the queues and jobs of its own space only. Names in commands have their space's
prefix. Up to machine version 2 there is one space.
"""

from beanpole import commands as c
from beanpole.core.accounts import JOB_BYTES, jobs_bytes
from beanpole.core.jobs.job import RESERVED, Job, Tube
from beanpole.core.jobs.spaces import SPACES_SINCE, Space
from beanpole.core.sessions import Origin, Session
from beanpole.core.state import MachineState


def find_tube(machine: MachineState, session: Session, name: bytes) -> Tube | None:
    """The tube of this name, if it is there and of the session's space."""
    tube = machine.queue.tubes.get(name)
    return tube if tube is not None and tube.space is session.space else None


def make_tube(machine: MachineState, space: Space, name: bytes) -> Tube | None:
    """The tube of this name, created if the limits allow; None if not."""
    tube = machine.queue.tubes.get(name)
    if tube is not None:
        return tube if tube.space is space else None
    if not _may_name(machine, space, name) or len(machine.queue.tubes) >= machine.tubes_max:
        return None
    return machine.queue.tube(name, space)


def _may_name(machine: MachineState, space: Space, name: bytes) -> bool:
    if machine.version >= SPACES_SINCE:
        return space.may_name(name)
    return 0 < len(name) <= space.name_max_bytes


def why_no_tube(machine: MachineState, space: Space, name: bytes) -> int:
    """The result of a command for which `make_tube` has no tube."""
    if machine.version >= SPACES_SINCE and (
        name in machine.queue.tubes or not space.may_name(name)
    ):
        return c.BAD_COMMAND
    return c.OUT_OF_MEMORY


def has_room(machine: MachineState, size: int) -> bool:
    """Whether one more job fits that takes `size` bytes beside what every job takes."""
    return (
        not machine.puts_refused
        and len(machine.queue.jobs) < machine.jobs_max
        and has_bytes(machine, JOB_BYTES + size)
    )


def has_bytes(machine: MachineState, size: int) -> bool:
    """Whether the limit of bytes leaves room for this many more."""
    return jobs_bytes(machine) + size + machine.beside_jobs_bytes <= machine.queue_bytes_max


def find_job(machine: MachineState, origin: Origin, command: c.Command) -> Job | None:
    """The job that the command names, if it is of the space of the command's session."""
    job = machine.queue.jobs.get(command[2])
    if job is None or job.tube.space is not origin.sessions[command[1]].space:
        return None
    return job


def find_held(machine: MachineState, origin: Origin, command: c.Command) -> Job | None:
    """The reserved job that the command names, if the command's session may act for its holder.

    Those are its own jobs, and where a space has no leases, all of that space.
    """
    session = origin.sessions[command[1]]
    job = session.reserved.get(command[2])
    if job is not None or session.space.leased:
        return job
    job = find_job(machine, origin, command)
    return job if job is not None and job.state == RESERVED else None
