"""Puts under policies or quotas: defaults, equal puts, limits of queues and of users.

This is the part of a put that only clusters with policies or quotas pay for. The rest is in
`changes` and `extended`; the selection of a policy is in `core.jobs.policies`, the usage of a user
in `core.jobs.quotas`.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpole.core.jobs.job import ID_MASK, Tube
from beanpole.core.jobs.policies import DROP_OLDEST, Policy
from beanpole.core.jobs.quotas import Usage
from beanpole.core.operations.checks import find_tube, has_room, make_tube, why_no_tube
from beanpole.core.sessions import Session
from beanpole.core.state import MachineState
from beanpole.events import QUEUE_FULL

# Before this machine version, every put has a priority and a TTR, as the beanstalk protocol
# requires.
DEFAULTS_SINCE: Final = 4
# A negative TTR of a put means that its client gave none; without a policy, its negation is used.
USUAL_TTR_MAX_S: Final = 2**31
# This priority of a put means that its client gave none; without a policy, 0 is used.
NO_PRIORITY: Final = -1
# The oldest ready job is searched among this many least urgent ranks, each of which is a look.
RANKS_MAX: Final = 16
# The cost of each drop of a put beyond the first, in looks.
_DROP_LOOKS: Final = 4


def with_defaults(machine: MachineState, command: c.Command) -> c.Command | None:
    """Return a put with its queue's defaults filled in; None if no default applies."""
    _, _, name, priority, _, ttr_s, *_ = command
    if machine.version < DEFAULTS_SINCE or not (
        priority == NO_PRIORITY or -USUAL_TTR_MAX_S <= ttr_s < 0
    ):
        return None
    policy = policy_of(machine, name)
    if priority == NO_PRIORITY:
        priority = 0 if policy is None else policy.priority
    if -USUAL_TTR_MAX_S <= ttr_s < 0:
        ttr_s = policy.ttr_s if policy is not None and policy.ttr_s else -ttr_s
    return (*command[:3], priority, command[4], ttr_s, *command[6:])


def policy_of(machine: MachineState, name: bytes) -> Policy | None:
    """Return the policy of the queue that a name or an alias denotes; None if there is none."""
    queue = machine.queue
    if not queue.policies.rows:
        return None
    return queue.policies.of(queue.aliases.queue_of(name))


def put(
    machine: MachineState,
    session: Session,
    name: bytes,
    priority: int,
    delay_s: int,
    ttr_s: int,
    body: bytes,
) -> tuple[int, int] | int:
    """Execute a put of beanstalk with legal numbers.

    Returns:
        The id of the new job; (id, 1) of the job of an equal put; or an error result: FULL if a
        limit of the queue or of the user is reached.
    """
    queue, space = machine.queue, session.space
    tube_name = queue.aliases.queue_of(name)
    policy = queue.policies.of(tube_name)
    key = b""
    if policy is not None and policy.unique_window_us:
        known, key = machine.equal_puts.find_equal(
            tube_name, body, policy.unique_window_us, queue.now_us
        )
        if known:
            return known, 1
    if not has_room(machine, len(body)):
        return c.OUT_OF_MEMORY
    # The user's quota is checked first, because making room in the queue is a change.
    usage = usage_of(machine, session)
    if usage is not None and not usage.admits(len(body)):
        return c.FULL
    if policy is not None and not admits(machine, session, name, policy, len(body)):
        return c.FULL
    tube = make_tube(machine, space, name)
    if tube is None:
        return why_no_tube(machine, space, name)
    job = queue.put(tube, priority, delay_s * SECOND_US, ttr_s * SECOND_US, body, session)
    if key:
        machine.equal_puts.remember_equal(key, job.id, queue.now_us)
    if usage is not None:
        queue.quotas.count(job.id, len(body), usage)
    return job.id


def usage_of(machine: MachineState, session: Session) -> Usage | None:
    """Return the usage of a session's user, if the user has a quota; else None."""
    quotas = machine.queue.quotas
    if not quotas.usages:
        return None
    return quotas.of_user(machine.users.of(session.user, session.token).name)


def admits(machine: MachineState, session: Session, name: bytes, policy: Policy, size: int) -> bool:
    """Whether a queue admits one more job of a size; may drop its oldest ready jobs to make room.

    A body larger than the limit of all bodies is always refused. Call this after all other checks,
    because making room is a change, and put the job if this returns True: until then the tube may
    be idle. It stays, because its pause must outlive the jobs that are dropped.
    """
    if not policy.jobs_max and not policy.bytes_max:
        return True
    if 0 < policy.bytes_max < size:
        return False
    tube = find_tube(machine, session, name)
    if tube is None or not _is_over(tube, policy, size):
        return True
    if policy.when_full != DROP_OLDEST:
        return False
    # If the queue stays over the limit, because no job is ready or the entry's budget is spent, the
    # next puts make room: each of them drops at least one job.
    is_first = True
    while tube.ready_count and (is_first or machine.drops_left > 0):
        key = _oldest_ready(machine, tube)
        machine.queue.discard(machine.queue.ready_job(key), QUEUE_FULL, keeps_tube=True)
        if not _is_over(tube, policy, size):
            break
        if not is_first:
            machine.drops_left -= _DROP_LOOKS
        is_first = False
    return True


def _is_over(tube: Tube, policy: Policy, size: int) -> bool:
    return 0 < policy.jobs_max <= tube.jobs_count() or 0 < policy.bytes_max < tube.body_bytes + size


def _oldest_ready(machine: MachineState, tube: Tube) -> int:
    """Return the key of the ready job with the smallest sequence among the last RANKS_MAX ranks.

    Once the entry's budget is spent, only one rank is searched. So the result is always exact for a
    queue with one rank, and within the budget for a queue with at most RANKS_MAX ranks.
    """
    ready = tube.ready
    last: int = ready.last()
    oldest = 0
    for _ in range(RANKS_MAX):
        of_rank = last & ~ID_MASK
        first: int = ready.first_from(of_rank)
        if not oldest or first & ID_MASK < oldest & ID_MASK:
            oldest = first
        before = ready.last_below(of_rank)
        if before is None or machine.drops_left <= 0:
            break
        last = before
        machine.drops_left -= 1
    return oldest
