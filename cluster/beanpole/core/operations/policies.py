"""The commands on policies of queues, and their validation. `core.jobs` enforces policies."""

from typing import Final

from beanpole import commands as c
from beanpole.constants import DEDUP_WINDOW_US, DURATION_MAX_US, U32_MAX
from beanpole.core.jobs.policies import DROP_OLDEST, POLICIES_MAX, REFUSE, Policy
from beanpole.core.jobs.prefixes import ANY
from beanpole.core.jobs.rates import RATE_MAX, RATE_PERIOD_MAX_US, RATE_PERIOD_MIN_US
from beanpole.core.jobs.spaces import NO_EXTERNAL_IDS, Space
from beanpole.core.jobs.transitions import TUBE
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState

# The machine version from which there are policies.
POLICIES_SINCE: Final[int] = 4
# More bytes than any cluster has, and still a signed number of 64 bits.
BYTES_MAX: Final[int] = 2**62
# The same as the longest delay.
RETAIN_MAX_US: Final[int] = DURATION_MAX_US
# Equal puts are remembered for as long as clients' keys.
UNIQUE_WINDOW_MAX_US: Final[int] = DEDUP_WINDOW_US
# The cost of a bucket in looks when a policy changes: its policy is looked up again.
_LOOKS_PER_BUCKET: Final = 8


def set_policy(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_POLICY: set or replace the policy of the queues of a pattern.

    Attempts, limits, defaults and rates apply at once, also to existing jobs; retention applies to
    jobs that are buried or delayed from now on.

    Returns:
        OK; OUT_OF_MEMORY if there are too many policies; AGAIN if this entry's budget of looks is
        spent; BAD_COMMAND if a name or a number is invalid.
    """
    pattern = command[2]
    policy = Policy(*command[3:])
    policies = machine.queue.policies
    space = space_of(machine, pattern)
    if space is None or not fits(policy, space):
        return c.BAD_COMMAND
    if pattern not in policies.rows and len(policies.rows) >= POLICIES_MAX:
        return c.OUT_OF_MEMORY
    if not _may_look(machine):
        return c.AGAIN
    policies.put(pattern, policy)
    machine.queue.look_at_rates(pattern)
    _note(machine, pattern, policy)
    return c.OK


def drop_policy(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """DROP_POLICY: remove a policy; its queues then have that of a shorter pattern, or none.

    Returns:
        OK; NOT_FOUND if there is no policy of exactly this pattern; AGAIN as for SET_POLICY.
    """
    _, _, pattern = command
    policies = machine.queue.policies
    if pattern not in policies.rows:
        return c.NOT_FOUND
    if not _may_look(machine):
        return c.AGAIN
    policies.drop(pattern)
    machine.queue.look_at_rates(pattern)
    _note(machine, pattern, Policy())
    return c.OK


def _may_look(machine: MachineState) -> bool:
    """Whether this entry's budget allows a look at all buckets; deducts them from it."""
    buckets = len(machine.queue.rates.buckets)
    if buckets:
        machine.looks_left -= buckets * _LOOKS_PER_BUCKET
    return not buckets or machine.looks_left >= 0


def space_of(machine: MachineState, pattern: bytes) -> Space | None:
    """Return the space of a pattern: a name, or a prefix of names before `ANY`."""
    name = pattern.removesuffix(ANY)
    if ANY in name or not pattern:
        return None
    if pattern == ANY:
        return machine.queue.beanstalk
    return machine.queue.space_of(name)


def fits(policy: Policy, space: Space) -> bool:
    """Whether a policy is valid for queues of a space.

    Jobs of protocols other than beanstalk have external ids for deduplication, and priorities that
    are never omitted. Those of Workq have their own bounds of attempts, those of Gearman fail after
    their last one.
    """
    if space.conflict != NO_EXTERNAL_IDS and (
        (policy.attempts_max and not space.to_end)
        or policy.dead
        or policy.unique_window_us
        or policy.priority
    ):
        return False
    has_rate = (
        1 <= policy.rate <= RATE_MAX
        and RATE_PERIOD_MIN_US <= policy.rate_period_us <= RATE_PERIOD_MAX_US
    )
    return (
        (not policy.dead or (policy.attempts_max > 0 and space.may_name(policy.dead)))
        and ANY not in policy.dead
        and 0 <= policy.attempts_max <= U32_MAX
        and 0 <= policy.jobs_max <= U32_MAX
        and 0 <= policy.bytes_max <= BYTES_MAX
        and policy.when_full in (REFUSE, DROP_OLDEST)
        and 0 <= policy.ttr_s <= U32_MAX
        and 0 <= policy.priority <= U32_MAX
        and 0 <= policy.retain_buried_us <= RETAIN_MAX_US
        and 0 <= policy.retain_delayed_us <= RETAIN_MAX_US
        and 0 <= policy.unique_window_us <= UNIQUE_WINDOW_MAX_US
        and (has_rate or policy.rate == policy.rate_period_us == 0)
    )


def _note(machine: MachineState, pattern: bytes, policy: Policy) -> None:
    """Record a policy in the state hash."""
    attempts_max, dead, *numbers = policy
    words = b" ".join([b"%d" % number for number in (attempts_max, *numbers)])
    machine.note_values(TUBE, pattern, dead, words)
