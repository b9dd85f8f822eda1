"""The handlers of the commands of a batch. The rights of sessions follow beanstalkd 1.13.

Every handler is `handler(machine, origin, command) -> result`, and total: it validates its numbers
before it changes anything, and returns an error result for an invalid command. The machine has
checked that the command's session exists. Handlers that only read are in `core.operations.reads`.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import (
    DEDUP_KEY_MAX_BYTES,
    DURATION_MAX_US,
    HOST_NAME_MAX_BYTES,
    JOB_ID_MAX,
    JOB_SIZE_MAX_BYTES,
    KICK_MAX,
    NOTIFY_MAX_BYTES,
    NOTIFY_MAX_BYTES_SINCE_4,
    SECOND_US,
    U32_MAX,
    WATCHED_TUBES_MAX,
)
from beanpole.core.hosts import UNKNOWN
from beanpole.core.jobs.effects import NOTIFIED_MAX, NOTIFIED_MIN
from beanpole.core.jobs.job import BURIED, DELAYED, DONE, FAILED, RESERVED
from beanpole.core.jobs.spaces import NO_EXTERNAL_IDS, SPACES_SINCE
from beanpole.core.operations import policy_puts
from beanpole.core.operations.checks import (
    find_held,
    find_job,
    find_tube,
    has_room,
    make_tube,
    why_no_tube,
)
from beanpole.core.operations.choosing import may_look, reserve_best
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from beanpole.events import NOBODY_WAITING, PROTOCOL_NAMES, PROTOCOL_SINCE

# A secret shorter than this could be guessed; the front ends draw 16 random bytes.
SECRET_MIN_BYTES: Final = 16
SECRET_MAX_BYTES: Final = 64
# The longest time for which a lost session is kept: the longest TTR.
GRACE_MAX_US: Final = DURATION_MAX_US
_LONG_NOTIFY_SINCE: Final = 4
# Session numbers count up within one incarnation; the state hash has 60 bits for them.
SESSION_NUMBER_MAX: Final = 2**48


def open_session(machine: MachineState, origin: Origin, command: c.Command) -> int:
    return _open(machine, origin, command[1], b"")


def open_session_from(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """OPEN_FROM: an OPEN with the client's host, which the session's events carry."""
    host = command[2]
    if not 0 < len(host) <= HOST_NAME_MAX_BYTES:
        return c.BAD_COMMAND
    return _open(machine, origin, command[1], host)


def _open(machine: MachineState, origin: Origin, number: int, host: bytes) -> int:
    if number in origin.sessions or not 0 < number <= SESSION_NUMBER_MAX:
        return c.BAD_COMMAND
    if machine.sessions >= machine.sessions_max:
        return c.OUT_OF_MEMORY
    machine.open_session(origin, number, machine.hosts.number(host) if host else UNKNOWN)
    return c.OK


def close_session(machine: MachineState, origin: Origin, command: c.Command) -> int:
    machine.end_session(origin.sessions[command[1]], lost=command[2] != 0)
    return c.OK


def put(machine: MachineState, origin: Origin, command: c.Command) -> tuple[int, int] | int:
    _, _, name, priority, delay_s, ttr_s, body = command
    queue = machine.queue
    if not (
        0 <= priority <= U32_MAX
        and 0 <= delay_s <= U32_MAX
        and 0 < ttr_s <= U32_MAX
        and len(body) <= JOB_SIZE_MAX_BYTES
        and queue.next_id <= JOB_ID_MAX
    ):
        filled = policy_puts.with_defaults(machine, command)
        return c.BAD_COMMAND if filled is None else put(machine, origin, filled)
    session = origin.sessions[command[1]]
    if queue.policies.rows or queue.quotas.usages:
        return policy_puts.put(machine, session, name, priority, delay_s, ttr_s, body)
    if not has_room(machine, len(body)):
        return c.OUT_OF_MEMORY
    space = session.space
    tube = make_tube(machine, space, name)
    if tube is None:
        return why_no_tube(machine, space, name)
    return queue.put(tube, priority, delay_s * SECOND_US, ttr_s * SECOND_US, body, session).id


def put_keyed(machine: MachineState, origin: Origin, command: c.Command) -> tuple[int, int] | int:
    """PUT_KEYED: a put that creates no job if its key is remembered, even if that job is gone.

    Returns:
        (job id, 1 if it is that of an earlier put), or the error result of `put`.
    """
    key = command[7]
    if not 0 < len(key) <= DEDUP_KEY_MAX_BYTES:
        return c.BAD_COMMAND
    if origin.sessions[command[1]].space is not machine.queue.beanstalk:
        return c.BAD_COMMAND  # the key could be that of a job in another space
    known = machine.keys.find(key)
    if known:
        return known, 1
    result = put(machine, origin, command[:7])
    job_id, is_known = (result, 0) if isinstance(result, int) else result
    if job_id > 0:
        machine.keys.remember(key, job_id, machine.queue.now_us)
        return job_id, is_known
    return job_id


def use(machine: MachineState, origin: Origin, command: c.Command) -> int:
    session = origin.sessions[command[1]]
    tube = make_tube(machine, session.space, command[2])
    if tube is None:
        return why_no_tube(machine, session.space, command[2])
    machine.queue.keep_holder(session)
    previous = session.used
    tube.users += 1
    session.used = tube
    if previous is not None:
        previous.users -= 1
        machine.queue.drop_if_idle(previous)
    machine.note_session(session)
    return c.OK


def watch(machine: MachineState, origin: Origin, command: c.Command) -> int:
    session = origin.sessions[command[1]]
    name = command[2]
    if name in session.watched:
        return c.OK
    if len(session.watched) >= WATCHED_TUBES_MAX:
        return c.OUT_OF_MEMORY
    tube = make_tube(machine, session.space, name)
    if tube is None:
        return why_no_tube(machine, session.space, name)
    machine.queue.keep_holder(session)
    tube.watchers += 1
    session.watched[name] = tube
    machine.watches += 1
    machine.note_session(session)
    return c.OK


def ignore(machine: MachineState, origin: Origin, command: c.Command) -> int:
    session = origin.sessions[command[1]]
    tube = session.watched.get(command[2])
    if tube is None:
        return c.OK
    if len(session.watched) == 1 and session.space.default:
        return c.NOT_FOUND
    machine.queue.keep_holder(session)
    del session.watched[command[2]]
    machine.watches -= 1
    tube.watchers -= 1
    machine.queue.drop_if_idle(tube)
    machine.note_session(session)
    return c.OK


def delete(machine: MachineState, origin: Origin, command: c.Command) -> int:
    job = find_job(machine, origin, command)
    session = origin.sessions[command[1]]
    if job is None or (
        job.state == RESERVED
        and job.holder is not session
        and (job.holder is not None or session.leased)
    ):
        return c.NOT_FOUND
    of_beanstalk = session.space.conflict == NO_EXTERNAL_IDS
    if of_beanstalk and job.state in (DONE, FAILED):
        # A worker whose reply was lost repeats its delete: the result is kept for Workq's clients.
        return c.NOT_FOUND
    if of_beanstalk and job.ext is not None and job.state == RESERVED:
        # A beanstalk worker reports success by delete; the job's clients, of another protocol, are
        # notified.
        machine.queue.finish(job, DONE, b"", session)
    else:
        machine.queue.delete(job, session)
    return c.OK


def release(machine: MachineState, origin: Origin, command: c.Command) -> int:
    job = find_held(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    priority, delay_s = command[3], command[4]
    if not (0 <= priority <= U32_MAX and 0 <= delay_s <= U32_MAX):
        return c.BAD_COMMAND
    machine.queue.release(job, priority, delay_s * SECOND_US, origin.sessions[command[1]])
    return c.OK


def give_back(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """RETURN: like a lost connection for a single job; no counter of the job changes."""
    job = find_held(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    machine.queue.give_back(job, origin.sessions[command[1]], NOBODY_WAITING)
    return c.OK


def bury(machine: MachineState, origin: Origin, command: c.Command) -> int:
    job = find_held(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    if not 0 <= command[3] <= U32_MAX:
        return c.BAD_COMMAND
    session = origin.sessions[command[1]]
    if job.ext is not None and session.space.conflict == NO_EXTERNAL_IDS:
        machine.queue.finish(job, FAILED, b"", session)
    else:
        machine.queue.bury(job, command[3], session)
    return c.OK


def touch(machine: MachineState, origin: Origin, command: c.Command) -> int:
    job = find_held(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    machine.queue.touch(job, origin.sessions[command[1]])
    return c.OK


def kick(machine: MachineState, origin: Origin, command: c.Command) -> tuple[int, int, int]:
    """KICK: kick buried jobs, or delayed ones if none is buried, within this entry's budget.

    A command with a state kicks only jobs in that state: the origin repeats a command that is not
    complete, and one client's kick never mixes the two states.

    Returns:
        (number of kicked jobs, their state: BURIED or DELAYED, 1 if more may be kicked)
    """
    queue = machine.queue
    session = origin.sessions[command[1]]
    _, _, name, bound, state = command
    tube = find_tube(machine, session, name)
    if tube is None:
        return 0, state, 0
    share = min(bound, KICK_MAX, machine.kicks_left - machine.kicks_left // 2)
    if share == 0 < bound:
        return 0, state, 1  # the state is decided when the first job is kicked
    if state not in (BURIED, DELAYED):
        state = BURIED if tube.buried else DELAYED
    kicked = 0
    while kicked < share:
        job = tube.first_buried() if state == BURIED else queue.jobs.get(tube.first_delayed())
        if job is None:
            return kicked, state, 0
        queue.kick(job, session)
        machine.kicks_left -= 1
        kicked += 1
    return kicked, state, int(kicked < bound)


def kick_job(machine: MachineState, origin: Origin, command: c.Command) -> int:
    job = find_job(machine, origin, command)
    if job is None or job.state not in (BURIED, DELAYED):
        return c.NOT_FOUND
    machine.queue.kick(job, origin.sessions[command[1]])
    return c.OK


def reserve_job(
    machine: MachineState, origin: Origin, command: c.Command
) -> tuple[int, bytes] | int:
    job = find_job(machine, origin, command)
    if job is None or job.state in (RESERVED, DONE, FAILED):
        return c.NOT_FOUND
    machine.queue.reserve(job, origin.sessions[command[1]])
    return job.id, job.body


def take(machine: MachineState, origin: Origin, command: c.Command) -> tuple[int, bytes] | int:
    """TAKE: reserve like a GRANT, at once or not at all.

    Returns:
        (job id, body); NOT_FOUND if no job is ready; AGAIN if this entry's budget of looks is
        spent.
    """
    session = origin.sessions[command[1]]
    if not may_look(machine, session):
        return c.AGAIN
    job = reserve_best(machine, session)
    return c.NOT_FOUND if job is None else (job.id, job.body)


def notify(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """NOTIFY: send data, such as progress, from a job's holder to the job's listeners."""
    _, _, _, kind, data = command
    data_max_bytes = NOTIFY_MAX_BYTES
    if machine.version >= _LONG_NOTIFY_SINCE:
        data_max_bytes = NOTIFY_MAX_BYTES_SINCE_4
    if not NOTIFIED_MIN <= kind <= NOTIFIED_MAX or len(data) > data_max_bytes:
        return c.BAD_COMMAND
    job = find_held(machine, origin, command)
    if job is None:
        return c.NOT_FOUND
    machine.queue.effects.record(job.id, kind, data)
    return c.OK


def pause_tube(machine: MachineState, origin: Origin, command: c.Command) -> int:
    tube = find_tube(machine, origin.sessions[command[1]], command[2])
    if tube is None:
        return c.NOT_FOUND
    if not 0 <= command[3] <= U32_MAX:
        return c.BAD_COMMAND
    machine.queue.pause(tube, command[3])
    return c.OK


def set_protocol(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_PROTOCOL: set the protocol of a session, which its events carry.

    If the protocol has another space, the session moves there, if it holds no job: it leaves its
    queues, and uses and watches the default queue of the new space, or none.
    """
    protocol = command[2]
    if PROTOCOL_SINCE.get(protocol, c.BASE_VERSION) > machine.version:
        return c.BAD_COMMAND
    if protocol not in PROTOCOL_NAMES:
        return c.BAD_COMMAND
    session = origin.sessions[command[1]]
    queue = machine.queue
    space = queue.spaces.get(protocol, queue.beanstalk)
    if space is session.space:
        queue.keep_holder(session)
    else:
        if session.reserved or machine.version < SPACES_SINCE:
            return c.BAD_COMMAND
        tube = make_tube(machine, space, space.default) if space.default else None
        if space.default and tube is None:
            return why_no_tube(machine, space, space.default)
        queue.keep_holder(session)
        machine.enter(session, space, tube)
    session.protocol = protocol
    machine.note_session(session)
    return c.OK


def make_resumable(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """KEEP: make a session resumable: a lost connection detaches it for `grace_us`."""
    session = origin.sessions[command[1]]
    _, _, secret, grace_us = command
    if session.secret or secret in machine.resumable:
        return c.BAD_COMMAND
    if not (0 < grace_us <= GRACE_MAX_US and SECRET_MIN_BYTES <= len(secret) <= SECRET_MAX_BYTES):
        return c.BAD_COMMAND
    machine.queue.keep_holder(session)
    session.secret = secret
    session.grace_us = grace_us
    machine.resumable[secret] = session
    machine.note_session(session)
    return c.OK


def resume_session(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """RESUME: move the session of a secret to this attachment and its host; its epoch grows.

    Commands that still arrive from the old attachment find no session there and are refused. The
    secret alone is not sufficient: both sessions must belong to the same user.
    """
    session = machine.resumable.get(command[2])
    fresh = origin.sessions[command[1]]
    if session is None or fresh is session or fresh.secret or session.space is not fresh.space:
        return c.NOT_FOUND
    if session.user != fresh.user:
        return c.NOT_FOUND
    machine.end_session(fresh, lost=False)
    machine.attach(session, origin, fresh)
    return c.OK
