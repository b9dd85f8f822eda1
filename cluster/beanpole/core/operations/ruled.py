"""Puts where there are policies or quotas: defaults, equal puts, room in a queue and of a user.

Belongs here: the part of a put that only clusters with policies or quotas pay for. The rest is in
`changes` and `extended`; which policy counts is in `core.jobs.policies`, what counts for a user, in
`core.jobs.quotas`.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpole.core.jobs.job import ID_MASK, Tube
from beanpole.core.jobs.policies import DROP_OLDEST, Policy
from beanpole.core.jobs.quotas import Usage
from beanpole.core.operations.checks import (
    find_tube,
    has_room,
    make_tube,
    why_no_tube,
)
from beanpole.core.sessions import Session
from beanpole.core.state import MachineState
from beanpole.events import QUEUE_FULL

# Below it a put has a priority and a TTR, as the protocol of beanstalk demands.
DEFAULTS_SINCE: Final = 4
# By a negative TTR of a put its client says that it gave none, and how many seconds are usual.
USUAL_TTR_MAX_S: Final = 2**31
# By this priority, that it gave none; 0 is usual.
NO_PRIORITY: Final = -1
# The oldest ready job is looked for among those of the least urgent ranks: each of them is a look.
RANKS_MAX: Final = 16
# What a drop beyond the first of a put costs, in looks.
_DROP_LOOKS: Final = 4


def with_defaults(machine: MachineState, command: c.Command) -> c.Command | None:
    """Give a put what its client left to its queue; None if that is nothing."""
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
    """The policy that counts for the queue that a name means, which may be an alias."""
    queue = machine.queue
    if not queue.policies.rows:
        return None
    return queue.policies.of(queue.aliases.queue_of(name))


def ttr_us_of(machine: MachineState, name: bytes) -> int:
    """The TTR of jobs of a protocol that has none; 0 for none."""
    policy = policy_of(machine, name)
    return 0 if policy is None else policy.ttr_s * SECOND_US


def put(
    machine: MachineState,
    session: Session,
    name: bytes,
    priority: int,
    delay_s: int,
    ttr_s: int,
    body: bytes,
) -> tuple[int, int] | int:
    """A put of beanstalk whose numbers are legal.

    Returns:
        The id of the new job; (id, 1) of the job of an equal put; or why there is none: FULL if the
        queue or the user has as much as it may.
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
    # The user's room comes first: to make room in the queue is a change.
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
    """What the user of a session has, if that has a quota."""
    quotas = machine.queue.quotas
    if not quotas.usages:
        return None
    return quotas.of_user(machine.users.of(session.user, session.token).name)


def admits(machine: MachineState, session: Session, name: bytes, policy: Policy, size: int) -> bool:
    """Whether a queue takes one more job of a size; if need be, its oldest ready jobs go for it.

    A body that is larger than all bodies may be is refused in any case. The tube may have gone
    with its last job. Room is made once all else has been looked at: it is a change.
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
    # What is left over the limit, because no job is ready or the entry has done enough, is for the
    # next puts: each of them drops one at least.
    is_first = True
    while tube.ready_count and (is_first or machine.drops_left > 0):
        key = _oldest_ready(machine, tube)
        machine.queue.discard(machine.queue.ready_job(key), QUEUE_FULL)
        if not _is_over(tube, policy, size):
            break
        if not is_first:
            machine.drops_left -= _DROP_LOOKS
        is_first = False
    return True


def _is_over(tube: Tube, policy: Policy, size: int) -> bool:
    return 0 < policy.jobs_max <= tube.jobs_count() or 0 < policy.bytes_max < tube.body_bytes + size


def _oldest_ready(machine: MachineState, tube: Tube) -> int:
    """The key of the ready job with the smallest sequence among RANKS_MAX ranks from the last on.

    It looks at one rank when the entry has done enough. So it is never wrong where a queue has one
    rank, and exact where it has no more than RANKS_MAX.
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
