"""The commands on policies of queues. What a policy does is in `core.jobs.attempts`."""

from typing import Final

from crc32c import crc32c

from beanpole import commands as c
from beanpole.constants import TUBE_NAME_MAX_BYTES, U32_MAX
from beanpole.core.jobs.policies import ANY, POLICIES_MAX, Policy
from beanpole.core.jobs.transitions import TRANSITION_BITS, TUBE
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState

# A cluster works at it when policies are known.
POLICIES_SINCE: Final[int] = 4


def set_policy(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_POLICY: from here on the queues of a pattern have this policy, whatever they had.

    Jobs that were reserved more often already are looked at when they come back the next time.

    Returns:
        OK; OUT_OF_MEMORY if there are too many; BAD_COMMAND if a name or the number cannot be.
    """
    _, _, pattern, attempts_max, dead = command
    policies = machine.queue.policies
    fits = may_be_pattern(pattern) and (not dead or _may_be_queue(dead))
    if not (fits and 1 <= attempts_max <= U32_MAX):
        return c.BAD_COMMAND
    if pattern not in policies.rows and len(policies.rows) >= POLICIES_MAX:
        return c.OUT_OF_MEMORY
    policies.put(pattern, Policy(attempts_max, dead))
    _note(machine, pattern, dead, attempts_max)
    return c.OK


def drop_policy(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """DROP_POLICY: its queues have none any more, or that of a shorter pattern.

    Returns:
        OK; NOT_FOUND if there is none of this very pattern.
    """
    _, _, pattern = command
    policies = machine.queue.policies
    if pattern not in policies.rows:
        return c.NOT_FOUND
    policies.drop(pattern)
    _note(machine, pattern, b"", 0)
    return c.OK


def may_be_pattern(pattern: bytes) -> bool:
    """Whether this is the name of a tube, or the beginning of one before `ANY`."""
    return pattern == ANY or _may_be_queue(pattern.removesuffix(ANY))


def _may_be_queue(name: bytes) -> bool:
    """A name of beanstalk: those of other spaces begin with a byte of theirs."""
    return 0 < len(name) <= TUBE_NAME_MAX_BYTES and name[0] >= 0x20 and ANY not in name


def _note(machine: MachineState, pattern: bytes, dead: bytes, attempts_max: int) -> None:
    """Let the running digest see a policy."""
    check = crc32c(b"\0%d" % attempts_max, crc32c(dead, crc32c(b"\0", crc32c(pattern))))
    machine.queue.transitions.append(check << TRANSITION_BITS | TUBE)
