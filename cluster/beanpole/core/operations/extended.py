"""The handlers of commands that need a job's extension; the beanstalk protocol has none of them.

Like those of `core.operations.changes`, every handler is total, and has no effect when it refuses.
In a space without external ids, none of these operations is available.
"""

from beanpole import commands as c
from beanpole.constants import (
    ATTACHED_MAX,
    CLIENTS_OF_JOB_MAX,
    DURATION_MAX_US,
    EXTERNAL_ID_MAX_BYTES,
    EXTRA_MAX_BYTES,
    JOB_ID_MAX,
    JOB_SIZE_MAX_BYTES,
    PROGRESS_MAX_BYTES,
    RESULT_MAX_BYTES,
    SECOND_US,
    TTL_MAX_US,
    U32_MAX,
)
from beanpole.core.jobs.aliases import ALIASES_SINCE
from beanpole.core.jobs.extension import ATTACHMENT_BYTES, Extension
from beanpole.core.jobs.job import BURIED, DONE, FAILED, Job
from beanpole.core.jobs.spaces import ATTACH, NO_EXTERNAL_IDS, REFUSE
from beanpole.core.operations import policy_puts
from beanpole.core.operations.checks import (
    find_held,
    find_job,
    find_named,
    find_tube,
    has_bytes,
    has_room,
    make_tube,
    why_no_tube,
)
from beanpole.core.sessions import Origin, Session
from beanpole.core.state import MachineState


def _numbers_fit(
    rank: int, delay_us: int, ttr_us: int, ttl_us: int, attempts_max: int, failures_max: int
) -> bool:
    return (
        0 <= rank <= U32_MAX
        and 0 <= delay_us <= DURATION_MAX_US
        and 0 <= ttr_us <= DURATION_MAX_US
        and 0 <= ttl_us <= TTL_MAX_US
        and 0 <= attempts_max <= U32_MAX
        and 0 <= failures_max <= U32_MAX
    )


def add(machine: MachineState, origin: Origin, command: c.Command) -> tuple[int, int] | int:
    """ADD: create a job with an extension. The space's rule applies to a taken external id.

    Returns:
        (job id, 1 if it is that of an earlier job), or an error result; EXISTS if the id is taken
        and the rule is REFUSE.
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
    if known:
        return c.EXISTS if space.conflict == REFUSE else (known, 1)
    expires_us = queue.now_us + ttl_us if ttl_us else 0
    ext = Extension(0, external_id, expires_us, attempts_max, failures_max, space)
    job = _make(machine, session, name, rank, delay_us, ttr_us, ext, body)
    return job if isinstance(job, int) else (job.id, 0)


def _make(
    machine: MachineState,
    session: Session,
    name: bytes,
    rank: int,
    delay_us: int,
    ttr_us: int,
    ext: Extension,
    body: bytes,
    also_bytes: int = 0,
) -> Job | int:
    """Make a job as far as the room, the quota and the policy allow; or return an error result.

    A `ttr_us` of 0 is that of the policy. `also_bytes` are needed beside the job.
    """
    queue, size = machine.queue, len(body)
    if not has_room(machine, size + ext.memory_bytes() + also_bytes):
        return c.OUT_OF_MEMORY
    usage = policy_puts.usage_of(machine, session)
    if usage is not None and not usage.admits(size):
        return c.FULL
    policy = policy_puts.policy_of(machine, name)
    if policy is not None:
        ttr_us = ttr_us or policy.ttr_s * SECOND_US
        if not policy_puts.admits(machine, session, name, policy, size):
            return c.FULL
    tube = make_tube(machine, session.space, name)
    if tube is None:
        return why_no_tube(machine, session.space, name)
    job = queue.put(tube, rank, delay_us, ttr_us, body, session, ext)
    if usage is not None:
        queue.quotas.count(job.id, size, usage)
    return job


def submit(machine: MachineState, origin: Origin, command: c.Command) -> tuple[int, int] | int:
    """SUBMIT: create or find a job, and in the foreground attach the session to it.

    Clients of the job are notified of its end. A job that was submitted only in the foreground is
    deleted when its last client goes; one submission in the background keeps it.

    Returns:
        (job id, 1 if it is that of an earlier job), or an error result; FULL if a limit of its
        queue or of its user is reached.
    """
    _, number, name, rank, delay_us, external_id, attempts_max, foreground, extra, body = command
    session = origin.sessions[number]
    space, queue = session.space, machine.queue
    if (
        space.conflict != ATTACH
        or not _numbers_fit(rank, delay_us, 0, 0, attempts_max, foreground)
        or len(external_id) > EXTERNAL_ID_MAX_BYTES
        or len(extra) > EXTRA_MAX_BYTES
        or len(body) > JOB_SIZE_MAX_BYTES
        or queue.next_id > JOB_ID_MAX
    ):
        return c.BAD_COMMAND
    known = space.external_ids.get(external_id, 0)
    if known:
        why = _join(machine, queue.jobs[known], session, foreground != 0)
        return (known, 1) if why == c.OK else why
    tube = find_tube(machine, session, name)
    if tube is not None and tube.is_full(rank):
        return c.FULL
    if foreground and len(session.attached) >= ATTACHED_MAX:
        return c.OUT_OF_MEMORY
    ext = Extension(0, external_id, 0, attempts_max, 0, space)
    ext.extra = extra
    ext.background = not foreground
    job = _make(machine, session, name, rank, delay_us, 0, ext, body, ATTACHMENT_BYTES)
    if isinstance(job, int):
        return job
    if foreground:
        queue.attach(job, ext, session)
        queue.effects.asked_for[job.id] = None
    return job.id, 0


def _join(machine: MachineState, job: Job, session: Session, foreground: bool) -> int:
    """Submit an existing job once more."""
    queue, ext = machine.queue, job.ext
    assert ext is not None, "a job with an external id has an extension"
    if not foreground:
        if not ext.background:
            queue.keep_without_clients(job, ext)
        return c.OK
    if session.serial not in ext.clients:
        if (
            len(ext.clients) >= CLIENTS_OF_JOB_MAX
            or len(session.attached) >= ATTACHED_MAX
            or not has_bytes(machine, ATTACHMENT_BYTES)
        ):
            return c.OUT_OF_MEMORY
        queue.attach(job, ext, session)
    queue.effects.asked_for[job.id] = None
    return c.OK


def finish(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """FINISH: end a job, or an attempt at it that has failed (`Queue.finish`).

    With leases, only the holder of a reserved job may finish it. In a space without leases, any
    session may finish any job in any state; the first one wins, later ones get EXISTS.
    """
    session = origin.sessions[command[1]]
    if session.leased:
        job = find_held(machine, origin, command)
    else:
        job = find_job(machine, origin, command)
    return _finish(machine, session, job, command)


def finish_named(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """FINISH_NAMED: FINISH for the job with this external id in the session's space."""
    session = origin.sessions[command[1]]
    job = find_named(machine, session.space, command[2])
    if job is not None and session.leased and job.holder is not session:
        job = None
    return _finish(machine, session, job, command)


def _finish(machine: MachineState, session: Session, job: Job | None, command: c.Command) -> int:
    _, _, _, state, result = command
    if (
        session.space.conflict == NO_EXTERNAL_IDS
        or state not in (DONE, FAILED)
        or len(result) > RESULT_MAX_BYTES
    ):
        return c.BAD_COMMAND
    why = why_not_finished(machine, job, state, len(result))
    if why != c.OK:
        return why
    assert job is not None, "it is found"
    if _is_buried_by(machine, job, state):
        machine.queue.bury(job, job.rank, session, result)
    else:
        machine.queue.finish(job, state, result, session)
    return c.OK


def why_not_finished(machine: MachineState, job: Job | None, state: int, size: int) -> int:
    """Return why a result of this size does not end a job that was found; OK if it does.

    This changes nothing: a node asks before it writes the result to the log.
    """
    if job is None:
        return c.NOT_FOUND
    if job.state in (DONE, FAILED):
        return c.EXISTS
    if _is_buried_by(machine, job, state):
        return c.EXISTS if job.state == BURIED else c.OK
    if size and not _has_room_for(machine, job, size):
        return c.OUT_OF_MEMORY
    return c.OK


def _is_buried_by(machine: MachineState, job: Job, state: int) -> bool:
    """Whether this end buries a job: one of beanstalk stays until it is kicked or deleted."""
    return job.ext is None and state == FAILED and machine.version >= ALIASES_SINCE


def delete_named(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """DELETE_NAMED: delete the job with this external id in the session's space.

    A job that another session holds is not deleted.
    """
    session = origin.sessions[command[1]]
    job = find_named(machine, session.space, command[2])
    if job is None or (job.holder is not None and job.holder is not session):
        return c.NOT_FOUND
    machine.queue.delete(job, session)
    return c.OK


def set_ttr(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_TTR: set the remaining time of a job's reservation; 0 for no end."""
    job = find_held(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    if not 0 <= command[3] <= DURATION_MAX_US or not origin.sessions[command[1]].space.sticky:
        return c.BAD_COMMAND
    machine.queue.set_ttr(job, command[3])
    return c.OK


def _has_room_for(machine: MachineState, job: Job, size: int) -> bool:
    """Whether there is room for a job's result; a job without a TTL does not keep it."""
    return job.ext is None or not job.ext.expires_us or has_bytes(machine, size)


def set_progress(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """PROGRESS: set the progress of a reserved job, in the format of its protocol."""
    job = find_held(machine, origin, command)
    progress = command[3]
    if job is None:
        return c.NOT_FOUND
    if len(progress) > PROGRESS_MAX_BYTES:
        return c.BAD_COMMAND
    if job.ext is None:
        # A Gearman worker may report progress of any job that it holds. A beanstalk job cannot
        # store it, and has no listeners.
        return c.OK if machine.version >= ALIASES_SINCE else c.BAD_COMMAND
    machine.queue.set_progress(job, job.ext, progress)
    return c.OK


def find(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """FIND: return the id of the job with this external id in the session's space."""
    job = find_named(machine, origin.sessions[command[1]].space, command[2])
    return c.NOT_FOUND if job is None else job.id


def result_of(
    machine: MachineState, origin: Origin, command: c.Command
) -> tuple[int, bytes, bytes] | int:
    """RESULT: return the state of a job, its progress and its result."""
    job = find_job(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    ext = job.ext
    return (job.state, b"", b"") if ext is None else (job.state, ext.progress, ext.result)
