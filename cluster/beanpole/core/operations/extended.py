"""The commands that need a job's extension: none of them is beanstalk's.

Every function is as those of `core.operations.changes`: total, and without effect when it refuses.
A space without external ids has none of these operations.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import (
    EXTERNAL_ID_MAX_BYTES,
    JOB_ID_MAX,
    JOB_SIZE_MAX_BYTES,
    PROGRESS_MAX_BYTES,
    RESULT_MAX_BYTES,
    SECOND_US,
    TTL_MAX_US,
    U32_MAX,
)
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.job import DONE, FAILED, Job
from beanpole.core.jobs.spaces import NO_EXTERNAL_IDS, REFUSE, REPLACE
from beanpole.core.operations.checks import (
    find_held,
    find_job,
    has_bytes,
    has_room,
    make_tube,
    why_no_tube,
)
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState

# The longest delay and TTR, as in commands that give them in seconds.
_LONGEST_US: Final = U32_MAX * SECOND_US


def _numbers_fit(
    rank: int, delay_us: int, ttr_us: int, ttl_us: int, attempts_max: int, failures_max: int
) -> bool:
    return (
        0 <= rank <= U32_MAX
        and 0 <= delay_us <= _LONGEST_US
        and 0 <= ttr_us <= _LONGEST_US
        and 0 <= ttl_us <= TTL_MAX_US
        and 0 <= attempts_max <= U32_MAX
        and 0 <= failures_max <= U32_MAX
    )


def add(machine: MachineState, origin: Origin, command: c.Command) -> tuple[int, int] | int:
    """ADD: a job with an extension. What a taken external id means is its space's rule.

    Returns:
        (job id, 1 if it is that of an earlier job), or why no job is made; EXISTS where the rule is
        to refuse.
    """
    (
        _,
        number,
        name,
        rank,
        delay_us,
        ttr_us,
        ttl_us,
        external_id,
        attempts_max,
        failures_max,
        body,
    ) = command
    session = origin.sessions[number]
    space, queue = session.space, machine.queue
    if (
        space.conflict == NO_EXTERNAL_IDS
        or not _numbers_fit(rank, delay_us, ttr_us, ttl_us, attempts_max, failures_max)
        or len(external_id) > EXTERNAL_ID_MAX_BYTES
        or len(body) > JOB_SIZE_MAX_BYTES
        or queue.next_id > JOB_ID_MAX
    ):
        return c.BAD_COMMAND
    known = space.external_ids.get(external_id, 0)
    if known and space.conflict != REPLACE:
        return c.EXISTS if space.conflict == REFUSE else (known, 1)
    expires_us = queue.now_us + ttl_us if ttl_us else 0
    ext = Extension(0, external_id, expires_us, attempts_max, failures_max)
    if not has_room(machine, len(body) + ext.memory_bytes()):
        return c.OUT_OF_MEMORY
    tube = make_tube(machine, space, name)
    if tube is None:
        return why_no_tube(machine, space, name)
    if known:
        queue.delete(queue.jobs[known], session)
        tube = queue.tube(name, space)  # it may have gone with its last job
    return queue.put(tube, rank, delay_us, ttr_us, body, session, ext).id, 0


def finish(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """FINISH: a job is done, or an attempt at it has failed (`Queue.finish`).

    A reserved job is its holder's to finish. Where a space has no leases, any session finishes
    any job, whatever its state; the first one wins, the next has EXISTS.
    """
    _, number, _, state, result = command
    session = origin.sessions[number]
    space = session.space
    if (
        space.conflict == NO_EXTERNAL_IDS
        or state not in (DONE, FAILED)
        or len(result) > RESULT_MAX_BYTES
    ):
        return c.BAD_COMMAND
    if space.leased:
        job = find_held(machine, origin, command)
    else:
        job = find_job(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    if job.state in (DONE, FAILED):
        return c.EXISTS
    if result and not _has_room_for(machine, job, len(result)):
        return c.OUT_OF_MEMORY
    machine.queue.finish(job, state, result, session)
    return c.OK


def _has_room_for(machine: MachineState, job: Job, size: int) -> bool:
    """Whether a job's result can be kept, if it is to be kept."""
    return job.ext is None or not job.ext.expires_us or has_bytes(machine, size)


def set_progress(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """PROGRESS: how far a reserved job is, in its protocol's own words."""
    job = find_held(machine, origin, command)
    progress = command[3]
    if job is None:
        return c.NOT_FOUND
    if job.ext is None or len(progress) > PROGRESS_MAX_BYTES:
        return c.BAD_COMMAND
    machine.queue.set_progress(job, job.ext, progress)
    return c.OK


def find(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """FIND: the id of the job that has this external id in the session's space."""
    return origin.sessions[command[1]].space.external_ids.get(command[2], c.NOT_FOUND)


def result_of(
    machine: MachineState, origin: Origin, command: c.Command
) -> tuple[int, bytes, bytes] | int:
    """RESULT: the state of a job, its progress, and what it ended with."""
    job = find_job(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    ext = job.ext
    return (job.state, b"", b"") if ext is None else (job.state, ext.progress, ext.result)
