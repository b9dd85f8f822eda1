"""The commands on users, their tokens, and rules. What a user may do is in `core.users`.

Every function is as those of `core.operations.changes`: total, and without effect when it refuses.
"""

from typing import Any

import msgpack
from crc32c import crc32c

from beanpole import commands as c
from beanpole.core.jobs.transitions import SESSION, TRANSITION_BITS
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from beanpole.core.users import (
    ANONYMOUS,
    NO_LIMITS,
    TOKEN_DIGEST_BYTES,
    TOKENS_MAX,
    USERS_MAX,
    User,
    limits_of,
    locks_out,
    may_be_name,
    rights_of,
    rules_of,
)
from beanpole.events import PROTOCOL_NAMES


def as_user(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """AS_USER: from here on the session is a user's.

    With the digest of a token it is that token's owner, whose name may be given or not. Without
    one, its node says by a rule which user it is.

    Returns:
        OK; DENIED for an unknown token, a token of another user, or an unknown user.
    """
    _, number, name, token = command
    users = machine.users
    user = users.owner(token) if token else users.rows.get(name)
    if user is None or user.name == ANONYMOUS or (name and user.name != name):
        return c.DENIED
    session = origin.sessions[number]
    machine.queue.keep_holder(session)
    session.user = user.name
    # The user's own object: thousands of sessions share it.
    session.token = user.tokens[user.tokens.index(token)] if token else b""
    machine.note_session(session)
    _note(machine, b"as", session.user, session.token)
    return c.OK


def set_user(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_USER: a user has these rights and limits from here on; a new one has no token.

    Jobs that are there count for a user as they did before: those that it put while it had a quota.

    Returns:
        OK; OUT_OF_MEMORY if there are too many; LOCKED_OUT if nobody could change users any more;
        BAD_COMMAND if there can be no such name, rights or limits.
    """
    _, _, name, packed, *numbers = command
    rights = rights_of(_unpacked(packed))
    limits = limits_of(tuple(numbers))
    if rights is None or limits is None or not may_be_name(name):
        return c.BAD_COMMAND
    rows = machine.users.rows
    before = rows.get(name)
    if before is None and len(rows) >= USERS_MAX:
        return c.OUT_OF_MEMORY
    tokens: tuple[bytes, ...] = () if before is None else before.tokens
    value = packed if limits == NO_LIMITS else b"%b %d %d %d" % (packed, *limits)
    user = User(name, tokens, rights, limits)
    result = _change(machine, {**rows, name: user}, b"set", name, value)
    if result == c.OK:
        machine.queue.quotas.limit(name, limits.jobs_max, limits.bytes_max)
    return result


def drop_user(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """DROP_USER: sessions of the user may do nothing from here on.

    Returns:
        OK; NOT_FOUND; BUSY if a rule names it; LOCKED_OUT as for SET_USER.
    """
    _, _, name = command
    users = machine.users
    if name not in users.rows:
        return c.NOT_FOUND
    if any(rule.user == name for rule in users.rules):
        return c.BUSY
    rows = {other: user for other, user in users.rows.items() if other != name}
    result = _change(machine, rows, b"drop", name, b"")
    if result == c.OK:
        machine.queue.quotas.limit(name, 0, 0)
    return result


def set_token(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_TOKEN: a user has this token, or not any more, and with it go its sessions' rights.

    Returns:
        OK; NOT_FOUND for an unknown user, or no such token of it to drop; EXISTS if another user
        has it; FULL if the user has as many as it may; LOCKED_OUT as for SET_USER; BAD_COMMAND if
        there can be no such token, or `anonymous` is to have one.
    """
    _, _, name, token, keeps = command
    users = machine.users
    if name == ANONYMOUS or len(token) != TOKEN_DIGEST_BYTES or keeps not in (0, 1):
        return c.BAD_COMMAND
    user = users.rows.get(name)
    if user is None:
        return c.NOT_FOUND
    owner = users.owner(token)
    if keeps:
        if owner is not None:
            return c.OK if owner is user else c.EXISTS
        if len(user.tokens) >= TOKENS_MAX:
            return c.FULL
        tokens = (*user.tokens, token)
    else:
        if owner is not user:
            return c.NOT_FOUND
        tokens = tuple([one for one in user.tokens if one != token])
    rows = {**users.rows, name: User(name, tokens, user.rights, user.limits)}
    return _change(machine, rows, b"token %d" % keeps, name, token)


def set_rules(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_RULES: these are all rules from here on. Sessions that there are stay whose they are.

    Returns:
        OK; NOT_FOUND if one names an unknown user; BAD_COMMAND if one cannot be.
    """
    _, _, packed = command
    rules = rules_of(_unpacked(packed), PROTOCOL_NAMES)
    if rules is None:
        return c.BAD_COMMAND
    users = machine.users
    if not all(rule.user in users.rows or rule.user == ANONYMOUS for rule in rules):
        return c.NOT_FOUND
    users.set_rules(rules)
    _note(machine, b"rules", b"", packed)
    return c.OK


def _change(
    machine: MachineState, rows: dict[bytes, User], what: bytes, name: bytes, value: bytes
) -> int:
    if locks_out(rows):
        return c.LOCKED_OUT
    machine.users.change(rows)
    _note(machine, what, name, value)
    return c.OK


def _note(machine: MachineState, what: bytes, name: bytes, value: bytes) -> None:
    """Let the running digest see a change."""
    check = crc32c(value, crc32c(b"\0", crc32c(name, crc32c(b"\0", crc32c(what)))))
    machine.queue.transitions.append(check << TRANSITION_BITS | SESSION)


def _unpacked(packed: bytes) -> Any:
    """What was packed, which may be anything; None for what is nothing."""
    try:
        return msgpack.unpackb(packed, use_list=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException):
        return None
