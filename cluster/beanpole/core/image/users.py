"""The part of an image with users and rules: writing, and reading with validation.

The tables are in `core.users`.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

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
    may_be_name,
    rights_of,
    rules_of,
)
from beanpole.events import PROTOCOL_NAMES

# The first item of a chunk names its contents. A chunk of users is at most half a megabyte, with
# the longest patterns.
BIRTHS: Final = "births"
USERS: Final = "users"
RULES: Final = "rules"
CHUNK_USERS: Final = 16
_BIRTHS_MAX: Final = 2**63


def write(machine: MachineState) -> Iterable[Any]:
    """Return the number of births, the chunks of all users by their names, then the rules."""
    users = machine.users
    born = [[BIRTHS, users.births]] if users.births else []
    return chain(born, _listed(sorted(users.rows.items()), users.rules))


def _listed(found: list[tuple[bytes, User]], rules: tuple[Rule, ...]) -> Iterator[Any]:
    for first in range(0, len(found), CHUNK_USERS):
        part = found[first : first + CHUNK_USERS]
        yield [USERS, [_row(name, user) for name, user in part]]
    if rules:
        yield [RULES, rules]


def _row(name: bytes, user: User) -> list[Any]:
    row: list[Any] = [name, user.birth, user.tokens, user.rights]
    if user.limits != NO_LIMITS:
        row.append(user.limits)
    return row


def read(machine: MachineState, value: Any) -> None:
    """Load one chunk of users or rules into a machine."""
    users = machine.users
    kind, rows = value
    if kind == BIRTHS:
        if users.births or users.rows or type(rows) is not int or not 0 < rows <= _BIRTHS_MAX:
            raise ValueError(f"{rows!r} births")
        users.births = rows
        return
    if kind == RULES:
        rules = rules_of(rows, PROTOCOL_NAMES)
        if not rules or users.rules or not all(_is_known(machine, rule) for rule in rules):
            raise ValueError(f"the rules {rows!r}")
        users.set_rules(rules)
        return
    if kind != USERS or users.rules:
        raise ValueError(f"users have no {kind!r} here")
    found = dict(users.rows)
    for name, birth, tokens, packed, *more in rows:
        rights = rights_of(packed)
        limits = limits_of(more[0]) if more else NO_LIMITS
        if limits is None or len(more) > 1 or (more and limits == NO_LIMITS):
            raise ValueError(f"the limits of {name!r}")
        if rights is None or type(name) is not bytes or not may_be_name(name) or name in found:
            raise ValueError(f"the user {name!r}")
        if len(tokens) > TOKENS_MAX or (tokens and name == ANONYMOUS):
            raise ValueError(f"the tokens of {name!r}")
        if type(birth) is not bytes or not users.is_born(birth):
            raise ValueError(f"the birth of {name!r}")
        found[name] = User(name, tokens, rights, limits, birth)
        machine.queue.quotas.limit(name, limits.jobs_max, limits.bytes_max)
    if len(found) > USERS_MAX:
        raise ValueError(f"more than {USERS_MAX} users")
    users.change(found)


def _is_known(machine: MachineState, rule: Rule) -> bool:
    return rule.user in machine.users.rows or rule.user == ANONYMOUS


def end(machine: MachineState) -> None:
    """Check that every token is valid and has one owner, and every birth is of one user."""
    births = {user.birth for user in machine.users.rows.values()}
    if len(births) != len(machine.users.rows):
        raise ValueError("two users have one birth")
    tokens: set[bytes] = set()
    for user in machine.users.rows.values():
        for token in user.tokens:
            if type(token) is not bytes or len(token) != TOKEN_DIGEST_BYTES or token in tokens:
                raise ValueError(f"a token of {user.name!r}")
            tokens.add(token)
