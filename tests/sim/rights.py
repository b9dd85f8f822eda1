"""Rights of users, computed a second time: a small model of tokens, rules and patterns.

Belongs here: docs/security.md as plain code, over the commands of a log in their order. It shares
nothing with `core.users` but the form of the commands. `verdicts_users` compares the product with
it.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgpack

from beanpole import commands as c
from beanpole.events import GRPC

PUT, WORK, ADMIN, EVENTS = 1, 2, 4, 8
ALL: Final = PUT | WORK | ADMIN | EVENTS
EVERYWHERE: Final = b"\0*"
ANONYMOUS: Final = b"anonymous"
TOKENS_MAX: Final = 4
# Names of queues of other protocols than beanstalk begin with a lower byte.
FIRST_NAME: Final = b" "

QUEUE, JOB, UNIQUE = "queue", "job", "unique"
# The right that a command needs, and the items that name its queues; without items, in all queues.
NEEDS: Final[dict[int, tuple[int, tuple[tuple[str, int], ...]]]] = {
    c.PUT: (PUT, ((QUEUE, 2),)),
    c.PUT_KEYED: (PUT, ((QUEUE, 2),)),
    c.ADD: (PUT, ((QUEUE, 2),)),
    c.SUBMIT: (PUT, ((QUEUE, 2), (UNIQUE, 5))),
    c.WATCH: (WORK, ((QUEUE, 2),)),
    c.RESERVE_JOB: (WORK, ((JOB, 2),)),
    c.RELEASE: (WORK, ((JOB, 2),)),
    c.BURY: (WORK, ((JOB, 2),)),
    c.TOUCH: (WORK, ((JOB, 2),)),
    c.NOTIFY: (WORK, ((JOB, 2),)),
    c.FINISH: (WORK, ((JOB, 2),)),
    c.PROGRESS: (WORK, ((JOB, 2),)),
    c.SET_TTR: (WORK, ((JOB, 2),)),
    c.DELETE: (WORK | ADMIN, ((JOB, 2),)),
    c.KICK: (ADMIN, ((QUEUE, 2),)),
    c.KICK_JOB: (ADMIN, ((JOB, 2),)),
    c.PAUSE_TUBE: (ADMIN, ((QUEUE, 2),)),
    c.PAUSE_QUEUE: (ADMIN, ((QUEUE, 2),)),
    c.CREATE_QUEUE: (ADMIN, ((QUEUE, 2),)),
    c.DROP_QUEUE: (ADMIN, ((QUEUE, 2),)),
    c.LIMIT_QUEUE: (ADMIN, ((QUEUE, 2),)),
    c.CHANGE_JOB: (ADMIN, ((JOB, 2), (QUEUE, 6))),
    c.USE: (ALL, ((QUEUE, 2),)),
    c.PEEK: (ALL, ((JOB, 2),)),
    c.PEEK_READY: (ALL, ((QUEUE, 2),)),
    c.PEEK_DELAYED: (ALL, ((QUEUE, 2),)),
    c.PEEK_BURIED: (ALL, ((QUEUE, 2),)),
    c.STATS_JOB: (ALL, ((JOB, 2),)),
    c.STATS_TUBE: (ALL, ((QUEUE, 2),)),
    c.RESULT: (ALL, ((JOB, 2),)),
    c.SET_ALIAS: (ADMIN, ()),
    c.SET_POLICY: (ADMIN, ()),
    c.DROP_POLICY: (ADMIN, ()),
    c.SET_USER: (ADMIN, ()),
    c.DROP_USER: (ADMIN, ()),
    c.SET_TOKEN: (ADMIN, ()),
    c.SET_RULES: (ADMIN, ()),
}
# Commands that concern only their session, or only show the whole.
FREE: Final = frozenset(
    {
        *(c.OPEN, c.OPEN_FROM, c.CLOSE, c.SET_PROTOCOL, c.IGNORE, c.RETURN, c.TAKE),
        *(c.KEEP, c.RESUME, c.STATS, c.LIST_TUBES),
    }
)
CHANGES: Final = frozenset({c.SET_USER, c.DROP_USER, c.SET_TOKEN, c.SET_RULES})


class Person(NamedTuple):
    """A user.

    Attributes:
        tokens: digests, the oldest first.
        rights: bits by pattern.
        birth: what sessions by a rule have for a token; no two users, ever, have the same.
    """

    tokens: tuple[bytes, ...]
    rights: dict[bytes, int]
    birth: bytes


class Who(NamedTuple):
    """The identity of a session: a user's name, empty for anonymous, and the token's digest.

    For a user by a rule, the token is its birth.
    """

    name: bytes = b""
    token: bytes = b""


NO_NAME: Final = Who()
# All users at one time; a table is never changed in place.
Table = dict[bytes, Person]
Rules = tuple[tuple[int, bytes, bytes, bytes], ...]


def is_in(pattern: bytes, queue: bytes) -> bool:
    """Whether a pattern covers a queue."""
    if pattern in (EVERYWHERE, queue):
        return True
    of_one_protocol = (pattern < FIRST_NAME) == (queue < FIRST_NAME)
    return of_one_protocol and pattern[-1:] == b"*" and queue.startswith(pattern[:-1])


def rights(table: Table, who: Who, queue: bytes) -> int:
    """Return the rights of an identity in a queue; with EVERYWHERE, in all of them."""
    if not table:
        return ALL
    person = table.get(who.name or ANONYMOUS)
    if person is None:
        return 0 if who.name else ALL
    if who.name and who.token not in (person.birth, *person.tokens):
        return 0
    bits = 0
    for pattern, some in person.rights.items():
        if pattern == EVERYWHERE or (queue != EVERYWHERE and is_in(pattern, queue)):
            bits |= some
    return bits


def rights_somewhere(table: Table, who: Who, space: bytes) -> int:
    """Return the rights of an identity in any queue of a space, which is the prefix of names."""
    person = table.get(who.name or ANONYMOUS)
    names = [space] if person is None else [EVERYWHERE, *person.rights]
    bits = 0
    for name in names:
        if name == EVERYWHERE or name.startswith(space):
            bits |= rights(table, who, name.removesuffix(b"*"))
    return bits


class Model:
    """All users and rules.

    Attributes:
        table: the users; each change makes a new table.
        rules: the rules, in their order.
    """

    def __init__(self) -> None:
        self.table: Table = {}
        self.rules: Rules = ()

    def allows(
        self,
        who: Who,
        command: c.Command,
        queue_of: Callable[[int], bytes],
        own_name: Callable[[bytes], bytes],
        queue_of_unique: Callable[[bytes], bytes],
    ) -> bool | None:
        """Whether an identity may execute a command; None if this model does not know it.

        Args:
            who: the identity of the session.
            command: the session's command.
            queue_of: maps a job to the queue it is in; empty if there is none.
            own_name: maps any name of a queue to its own name.
            queue_of_unique: maps the unique of a job of Gearman to the queue it is in; empty if
                there is none.
        """
        if command[0] in FREE:
            return True
        if command[0] not in NEEDS:
            return None
        bits, items = NEEDS[command[0]]
        if rights(self.table, who, EVERYWHERE) & bits:
            return True
        for kind, place in items:
            value: Any = command[place]
            if kind == UNIQUE:
                queue = queue_of_unique(value)
            else:
                queue = queue_of(value) if kind == JOB else own_name(value)
            if queue and not rights(self.table, who, queue) & bits:
                return False
        return bool(items)

    def becomes(self, name: bytes, token: bytes) -> Who | None:
        """Return the identity of a session after an AS_USER; None if that is refused."""
        for owner, person in self.table.items():
            if token in person.tokens or (token == person.birth and owner != ANONYMOUS):
                return Who(owner, token) if name in (b"", owner) else None
        return None

    def change(self, command: c.Command, birth: bytes) -> int:
        """Apply an administrator's command; returns the result that it must have.

        Args:
            command: the command.
            birth: of the user that the command names, if there is one now.
        """
        if command[0] == c.SET_RULES:
            return self._set_rules(command[2])
        name = command[2]
        person = self.table.get(name)
        if command[0] == c.SET_USER:
            found = dict(msgpack.unpackb(command[3], use_list=False, strict_map_key=False))
            tokens = person.tokens if person else ()
            return self._replace(name, Person(tokens, found, person.birth if person else birth))
        if person is None:
            return c.NOT_FOUND
        if command[0] == c.DROP_USER:
            if any(rule[3] == name for rule in self.rules):
                return c.BUSY
            return self._replace(name, None)
        return self._set_token(name, person, command[3], bool(command[4]))

    def _set_token(self, name: bytes, person: Person, token: bytes, keeps: bool) -> int:
        owners = [one for one, other in self.table.items() if token in other.tokens]
        if not keeps:
            if owners != [name]:
                return c.NOT_FOUND
            left = tuple(one for one in person.tokens if one != token)
            return self._replace(name, person._replace(tokens=left))
        if owners:
            return c.OK if owners == [name] else c.EXISTS
        if len(person.tokens) == TOKENS_MAX:
            return c.FULL
        return self._replace(name, person._replace(tokens=(*person.tokens, token)))

    def _set_rules(self, packed: bytes) -> int:
        rules: Rules = msgpack.unpackb(packed, use_list=False)
        if any(rule[3] not in self.table and rule[3] != ANONYMOUS for rule in rules):
            return c.NOT_FOUND
        if _locks_out(self.table, rules):
            return c.LOCKED_OUT
        self.rules = rules
        return c.OK

    def _replace(self, name: bytes, person: Person | None) -> int:
        table = dict(self.table)
        if person is None:
            del table[name]
        else:
            table[name] = person
        if _locks_out(table, self.rules):
            return c.LOCKED_OUT
        self.table = table
        return c.OK


def _locks_out(table: Table, rules: Rules) -> bool:
    """Whether no administrator has a token, and not all callers of gRPC without one may change."""
    may = {name for name, one in table.items() if one.rights.get(EVERYWHERE, 0) & ADMIN}
    if ANONYMOUS not in table:
        may.add(ANONYMOUS)  # sessions without a token may do everything
    if any(table[name].tokens for name in may if name in table):
        return False
    concerned = [rule for rule in rules if rule[0] in (0, GRPC)]
    for place, (_, network, certificate, _) in enumerate(concerned):
        if not network and not certificate:
            return any(rule[3] not in may for rule in concerned[: place + 1])
    return ANONYMOUS not in may or any(rule[3] not in may for rule in concerned)


def rule_of(rules: Rules, protocol: int, names: tuple[bytes, ...]) -> bytes:
    """Return the user of a new client with a certificate; empty for none. No rule has a network."""
    for number, _, certificate, user in rules:
        if number in (0, protocol) and (not certificate or certificate in names):
            return b"" if user == ANONYMOUS else user
    return b""
