"""Calls of qless as commands: their encoding, and the room for the jobs that they create.

The calls themselves are in `core.qless.calls`.
"""

from struct import Struct
from typing import Any, Final

import msgpack
from crc32c import crc32c

from beanpole import commands as c
from beanpole.core.accounts import jobs_bytes, jobs_count
from beanpole.core.jobs.transitions import QLESS, TRANSITION_BITS
from beanpole.core.operations.checks import has_bytes
from beanpole.core.operations.policy_puts import usage_of
from beanpole.core.operations.qless_permission import allows_call, may_time
from beanpole.core.qless import calls, shapes, sizes
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from beanpole.qless import ARGS_MAX_BYTES, DENIED, FIRST_READ, Result

_FLOAT: Final = Struct("<d")
_BITS: Final = Struct("<Q")
_U64_MAX: Final = 2**64 - 1
_DENIED: Final[Result] = (DENIED, ())
# The fields in the state hash beside the arguments and the changes: call, flavour, time, result.
_HASHED: Final = Struct("<QQQQ")


def command(session: int, call: int, flavour: int, now: float, args: tuple[Any, ...]) -> c.Command:
    """Return the command of a call. Lists in its arguments become tuples, -0.0 becomes 0.0.

    Every machine refuses arguments of more than ARGS_MAX_BYTES, and numbers beyond NUMBER_MAX; see
    `fits`.
    """
    packed: bytes = msgpack.packb(shapes.plain(args), use_bin_type=True)
    code = c.QLESS if call < FIRST_READ else c.QLESS_READ
    return code, session, call, flavour, _BITS.unpack(_FLOAT.pack(now + 0.0))[0], packed


def fits(command: c.Command) -> bool:
    """Whether the arguments of a call fit into a command."""
    return len(command[-1]) <= ARGS_MAX_BYTES


def change(machine: MachineState, origin: Origin, command: c.Command) -> Result:
    """QLESS: execute a call that may change the state."""
    _, number, call, flavour, bits, packed = command
    decoded = _decoded(bits, packed)
    if decoded is None:
        return shapes.BAD
    now, args = decoded
    session = origin.sessions[number]
    if machine.users.rows and not allows_call(machine, session, call, args):
        return _DENIED
    t = machine.qless
    t.holder = session
    t.usage = usage_of(machine, session)
    t.may_time = may_time(machine, session) if machine.users.rows else None
    t.room = _room(machine, len(packed))
    t.room_bytes = machine.queue_bytes_max - jobs_bytes(machine) - machine.beside_jobs_bytes
    result = calls.apply(t, call, flavour, now, args)
    t.holder = t.usage = t.may_time = None
    check = crc32c(_HASHED.pack(call & _U64_MAX, flavour & _U64_MAX, bits, result[0]), 0)
    check = crc32c(t.trace, crc32c(packed, check))
    machine.queue.transitions.append(check << TRANSITION_BITS | QLESS)
    return result


def refusal_by_job(
    machine: MachineState, call: int, flavour: int, now: float, args: tuple[Any, ...], size: int
) -> Result | None:
    """Return why a call of a size, with the right to it, is in vain; None if it may not be.

    This changes nothing; see `calls.refusal_by_job`. A call that finds no room may be refused for
    that instead.
    """
    refused = calls.refusal_by_job(machine.qless, call, flavour, now, args)
    return refused if refused is None or _room(machine, size) >= 0 else None


def read(machine: MachineState, origin: Origin, command: c.Command) -> Result:
    """QLESS_READ: execute a call that changes nothing."""
    _, session, call, flavour, bits, packed = command
    decoded = _decoded(bits, packed)
    if decoded is None:
        return shapes.BAD
    now, args = decoded
    if machine.users.rows and not allows_call(machine, origin.sessions[session], call, args):
        return _DENIED
    return calls.read(machine.qless, call, flavour, now, args)


def unpacked(packed: bytes) -> tuple[Any, ...] | None:
    """Return a packed tuple, with its items not validated; None if it is invalid or too large."""
    return c.unpack_tuple(packed) if len(packed) <= ARGS_MAX_BYTES else None


def _decoded(bits: int, packed: bytes) -> tuple[float, tuple[Any, ...]] | None:
    """Return the time and the arguments of a call; None if they are invalid."""
    if not 0 <= bits <= _U64_MAX:
        return None
    args = unpacked(packed)
    return None if args is None else (_FLOAT.unpack(_BITS.pack(bits))[0], args)


def _room(machine: MachineState, size: int) -> int:
    """Return the number of jobs that a call with arguments of a size may create.

    It is negative if the call may store nothing.
    """
    if machine.puts_refused or not has_bytes(machine, sizes.JOB_BYTES + size):
        return -1
    return max(0, machine.jobs_max - jobs_count(machine))
