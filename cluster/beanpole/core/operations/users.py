"""The commands on users, their tokens, and rules. The rights of users are in `core.users`.

Like those of `core.operations.changes`, every handler is total, and has no effect when it refuses.
"""

from beanpole import commands as c
from beanpole.core.jobs.transitions import SESSION
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from beanpole.core.users import (
    ANONYMOUS,
    NO_LIMITS,
    TOKEN_DIGEST_BYTES,
    TOKENS_MAX,
    USERS_MAX,
    Rule,
    User,
    limits_of,
    locks_out,
    may_be_name,
    rights_of,
    rules_of,
)
from beanpole.events import PROTOCOL_NAMES


def as_user(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """AS_USER: set the user of a session.

    With the digest of a token, the user is the token's owner, whose name is optional. A node that
    has determined the user by a rule gives its birth instead, so that a later user of this name is
    not meant.

    Returns:
        OK; DENIED for an unknown token or birth, one of another user, or an unknown user.
    """
    _, number, name, token = command
    users = machine.users
    user = users.owner(token) if token else users.rows.get(name)
    if user is None or user.name == ANONYMOUS or (name and user.name != name):
        return c.DENIED
    session = origin.sessions[number]
    machine.queue.keep_holder(session)
    session.user = user.name
    # The user's own bytes object, which thousands of sessions may share.
    is_token = token in user.tokens
    session.token = user.tokens[user.tokens.index(token)] if is_token else user.birth
    machine.note_session(session)
    machine.note_values(SESSION, b"as", session.user, session.token)
    return c.OK


def set_user(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_USER: set the rights and limits of a user; a new user has no token.

    Existing jobs count for the user as before: those that were put while the user had a quota.

    Returns:
        OK; OUT_OF_MEMORY if there are too many; LOCKED_OUT if perhaps no client could change
        users any more; BAD_COMMAND if the name, the rights or the limits are invalid.
    """
    _, _, name, packed, *numbers = command
    rights = rights_of(c.unpack_tuple(packed))
    limits = limits_of(tuple(numbers))
    if rights is None or limits is None or not may_be_name(name):
        return c.BAD_COMMAND
    rows = machine.users.rows
    before = rows.get(name)
    if before is None and len(rows) >= USERS_MAX:
        return c.OUT_OF_MEMORY
    tokens: tuple[bytes, ...] = () if before is None else before.tokens
    birth = machine.users.new_birth() if before is None else before.birth
    value = packed if limits == NO_LIMITS else b"%b %d %d %d" % (packed, *limits)
    user = User(name, tokens, rights, limits, birth)
    result = _change(machine, {**rows, name: user}, machine.users.rules, b"set", name, value)
    if result == c.OK:
        machine.queue.quotas.limit(name, limits.jobs_max, limits.bytes_max)
    return result


def drop_user(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """DROP_USER: remove a user; its sessions lose all rights.

    Returns:
        OK; NOT_FOUND; BUSY if a rule names the user; LOCKED_OUT as for SET_USER.
    """
    _, _, name = command
    users = machine.users
    if name not in users.rows:
        return c.NOT_FOUND
    if any(rule.user == name for rule in users.rules):
        return c.BUSY
    rows = {other: user for other, user in users.rows.items() if other != name}
    result = _change(machine, rows, users.rules, b"drop", name, b"")
    if result == c.OK:
        machine.queue.quotas.limit(name, 0, 0)
    return result


def set_token(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_TOKEN: add or drop a token of a user; sessions of a dropped token lose all rights.

    Returns:
        OK; NOT_FOUND for an unknown user, or a token to drop that is not the user's; EXISTS if
        another user has the token; FULL if the user has TOKENS_MAX tokens; LOCKED_OUT as for
        SET_USER; BAD_COMMAND if the token is invalid, or the user is `anonymous`.
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
    rows = {**users.rows, name: User(name, tokens, user.rights, user.limits, user.birth)}
    return _change(machine, rows, users.rules, b"token %d" % keeps, name, token)


def set_rules(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """SET_RULES: replace all rules. Existing sessions keep their users.

    Returns:
        OK; NOT_FOUND if a rule names an unknown user; LOCKED_OUT as for SET_USER; BAD_COMMAND if a
        rule is invalid.
    """
    _, _, packed = command
    rules = rules_of(c.unpack_tuple(packed), PROTOCOL_NAMES)
    if rules is None:
        return c.BAD_COMMAND
    users = machine.users
    if not all(rule.user in users.rows or rule.user == ANONYMOUS for rule in rules):
        return c.NOT_FOUND
    return _change(machine, users.rows, rules, b"rules", b"", packed)


def _change(
    machine: MachineState,
    rows: dict[bytes, User],
    rules: tuple[Rule, ...],
    what: bytes,
    name: bytes,
    value: bytes,
) -> int:
    """Make every change of users and rules, unless it locks out all administrators."""
    users = machine.users
    if locks_out(rows, rules):
        return c.LOCKED_OUT
    if rows is not users.rows:
        users.change(rows)
    else:
        users.set_rules(rules)
    machine.note_values(SESSION, what, name, value)
    return c.OK
