"""Users: their rights in queues, and the tokens and rules by which clients are authenticated.

This module holds the tables and computes the rights of a user in a queue. The right that an
operation needs, and the queue in which it needs it, are in `core.operations.table`; the check is in
`core.operations.permission`.

Tokens are stored as SHA-256 digests only. A token is 256 random bits, so that its digest cannot be
inverted by guessing, and no slow hash is needed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from beanpole.constants import QUEUE_NAME_MAX_BYTES, U32_MAX
from beanpole.core.jobs.prefixes import ANY, NONE, ranges_of
from beanpole.core.jobs.spaces import PREFIX_END, SPACES, prefix_of
from beanpole.events import GRPC

# The machine version from which there are users.
USERS_SINCE: Final = 4

# --- rights, one bit each -------------------------------------------------------------------------
PUT: Final = 1
WORK: Final = 2  # watch a queue, reserve its jobs and end them
ADMIN: Final = 4  # maintenance: kick, pause, move, clear; with EVERYWHERE also settings
EVENTS: Final = 8
ANY_RIGHT: Final = PUT | WORK | ADMIN | EVENTS  # one is enough to read a queue
RIGHT_NAMES: Final = {PUT: "put", WORK: "work", ADMIN: "admin", EVENTS: "events"}

# --- limits: an image copies all users in one step, and every node has them in memory -------------
USERS_MAX: Final = 1024
RIGHTS_MAX: Final = 64  # of one user
TOKENS_MAX: Final = 4  # of one user: an old one, a new one, and two that were never revoked
RULES_MAX: Final = 64  # matched one by one for each new client
TOKEN_DIGEST_BYTES: Final = 32
BIRTH_BYTES: Final = 8
USER_NAME_MAX_BYTES: Final = 64
# The longest host name in a certificate.
CERTIFICATE_NAME_MAX_BYTES: Final = 253
# More bytes than any cluster has, and still a signed number of 64 bits.
USER_BYTES_MAX: Final = 2**62
# A user with its tables and four tokens: 0.8 KB; one right with a pattern of 15 bytes and its two
# boundaries: 220 bytes. The rest covers the dict of all users, and its copy while a change is made.
USER_BYTES: Final = 1536
RIGHT_BYTES: Final = 256
RULE_BYTES: Final = 512

# The user of all unauthenticated sessions. Such a session has an empty user name.
ANONYMOUS: Final = b"anonymous"
# The pattern that matches every queue of every protocol. No space has this prefix.
EVERYWHERE: Final = b"\0*"

_NAME_BYTES: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.@"
)
_BIRTH: Final = Struct(">Q")
assert _BIRTH.size == BIRTH_BYTES
_PREFIXES: Final = frozenset([rules.prefix for rules in SPACES.values()])
# The lengths of the addresses in the networks of rules; the prefix length in bits precedes them.
_ADDRESS_BYTES: Final = (4, 16)

# (pattern, bits), in the order of the patterns.
Rights = tuple[tuple[bytes, int], ...]


class Limits(NamedTuple):
    """The limits of a user. A field is 0 for no limit.

    Attributes:
        jobs_max: of the existing jobs that the user has put.
        bytes_max: of the total size of their bodies.
        commands_per_second_max: at each node. The nodes enforce it, not the machine.
    """

    jobs_max: int = 0
    bytes_max: int = 0
    commands_per_second_max: int = 0


NO_LIMITS: Final = Limits()


class User:
    """One user. Instances are immutable: a change replaces the instance.

    Attributes:
        name: 1 to USER_NAME_MAX_BYTES bytes.
        tokens: digests, the oldest first.
        birth: its number among all users that were ever made, in BIRTH_BYTES bytes: a later user
            of this name has another one. It is the token of sessions by a rule.
        rights: patterns with bits.
        limits: of the jobs that it puts, and of its rate of commands.
        everywhere: its rights in every queue, and to operations that belong to no queue.
        bytes: an estimate of its memory.
    """

    __slots__ = (
        "_bare",
        "_bits",
        "_boundaries",
        "_names",
        "_spaces",
        "birth",
        "bytes",
        "everywhere",
        "limits",
        "name",
        "rights",
        "tokens",
    )

    def __init__(
        self,
        name: bytes,
        tokens: tuple[bytes, ...],
        rights: Rights,
        limits: Limits = NO_LIMITS,
        birth: bytes = b"",
    ) -> None:
        self.name = name
        self.birth = birth
        self.limits = limits
        self.tokens = tokens
        self.rights = rights
        self.everywhere = 0
        self._bare = 0  # in all queues whose names have no prefix: beanstalk's
        self._names: dict[bytes, int] = {}
        self._spaces: dict[bytes, int] = {}  # in all queues of a space with this prefix
        prefixes: list[tuple[bytes, int]] = []
        for pattern, bits in rights:
            if pattern == EVERYWHERE:
                self.everywhere = bits
            elif pattern == ANY:
                self._bare = bits
            elif pattern.endswith(ANY):
                prefix = pattern[:-1]
                prefixes.append((prefix, bits))
                if prefix == prefix_of(pattern):
                    self._spaces[prefix] = bits
            else:
                self._names[pattern] = bits
        self._boundaries: list[bytes] = []
        self._bits = b"\0"  # by the number of the range; a list would take 8 times the memory
        if prefixes:
            self._divide(prefixes)
        self.bytes = USER_BYTES + sum([RIGHT_BYTES + len(pattern) for pattern, _ in rights])

    def _divide(self, prefixes: list[tuple[bytes, int]]) -> None:
        """Add up the rights in each range of names.

        A lookup has to be as cheap with many patterns as with one, because the budget of an entry
        counts the queues that are looked at, not the patterns.
        """
        prefixes.sort()  # not the order of the patterns: `a!*` is before `a*`
        boundaries, longest_prefix, parents = ranges_of([prefix for prefix, _ in prefixes])
        sums = [bits for _, bits in prefixes]
        for number, parent in enumerate(parents):
            if parent != NONE:
                sums[number] |= sums[parent]
        self._boundaries = boundaries
        self._bits = bytes([0 if number == NONE else sums[number] for number in longest_prefix])

    def on(self, queue: bytes) -> int:
        """Return the rights in a queue, by its own name: the union of all matching patterns."""
        bits = self.everywhere | self._names.get(queue, 0)
        if self._bare and queue and queue[0] >= PREFIX_END:
            bits |= self._bare
        if self._boundaries:
            bits |= self._bits[bisect_right(self._boundaries, queue)]
        return bits

    def among(self, names: Iterable[bytes]) -> list[bytes]:
        """Return the queues in which the user has any right, by their own names, in their order.

        There may be 100,000: asking `on` for each would take twice as long.
        """
        if self.everywhere:
            return list(names)
        exact, bare, boundaries, bits = self._names, self._bare, self._boundaries, self._bits
        return [
            name
            for name in names
            if (bare and name[0] >= PREFIX_END)
            or bits[bisect_right(boundaries, name)]
            or name in exact
        ]

    def on_all_of(self, prefix: bytes) -> int:
        """Return the rights in every queue of a space."""
        return self.everywhere | (self._spaces.get(prefix, 0) if prefix else self._bare)

    def on_some_of(self, prefix: bytes) -> int:
        """Return the rights in any queue of a space with a prefix."""
        bits = self.everywhere
        for pattern, some in self.rights:
            if pattern.startswith(prefix):
                bits |= some
        return bits


# The user of an unauthenticated session while there is no user `anonymous`, and that of a session
# whose user or token is gone.
OPEN: Final = User(b"", (), ((EVERYWHERE, ANY_RIGHT),))
NOBODY: Final = User(b"", (), ())


class Rule(NamedTuple):
    """A rule that assigns a user to the sessions of matching clients when they connect.

    Attributes:
        protocol: its number in `events`; 0 for any.
        network: the prefix length in bits, one byte, and the address; empty for any.
        certificate: a name in the client's certificate; empty for any or no certificate.
        user: the name of the assigned user.
    """

    protocol: int
    network: bytes
    certificate: bytes
    user: bytes

    def fits(self, protocol: int, address: bytes, names: Sequence[bytes]) -> bool:
        """Whether the rule matches a client of this protocol, address and certificate."""
        return (
            self.protocol in (0, protocol)
            and (not self.network or contains(self.network, address))
            and (not self.certificate or self.certificate in names)
        )


class Users:
    """All users and rules.

    Attributes:
        rows: users by their names. It is empty in many clusters, so callers test it first. Each
            change makes another dict: a caller that keeps a reference detects changes by identity.
        rules: in order; the first match applies.
        anonymous: the user of unauthenticated sessions.
        births: the number of users that were ever made.
        bytes: an estimate of the memory of users and rules.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, User] = {}
        self.rules: tuple[Rule, ...] = ()
        self.anonymous: User = OPEN
        self.births = 0
        self.bytes = 0
        self._by_token: dict[bytes, User] = {}

    def new_birth(self) -> bytes:
        """Return the birth of a user that is being made."""
        self.births += 1
        return _BIRTH.pack(self.births)

    def is_born(self, birth: bytes) -> bool:
        """Whether this is the birth of a user that was ever made."""
        return len(birth) == BIRTH_BYTES and 0 < _BIRTH.unpack(birth)[0] <= self.births

    def change(self, rows: dict[bytes, User]) -> None:
        """Replace all users."""
        self.rows = rows
        self.anonymous = rows.get(ANONYMOUS, OPEN)
        self._by_token = {
            token: user for user in rows.values() for token in (*user.tokens, user.birth)
        }
        self._count()

    def set_rules(self, rules: tuple[Rule, ...]) -> None:
        """Replace all rules; they apply to clients that connect from now on."""
        self.rules = rules
        self._count()

    def _count(self) -> None:
        self.bytes = sum([user.bytes for user in self.rows.values()])
        self.bytes += RULE_BYTES * len(self.rules)

    def of(self, name: bytes, token: bytes) -> User:
        """Return the effective user of a session with this user name and this token.

        A session that authenticated with a token loses all rights when the token is dropped, and
        one by a rule when the user is: a later user of this name has another birth.
        """
        if not name:
            return self.anonymous
        user = self.rows.get(name)
        if user is None or (token != user.birth and token not in user.tokens):
            return NOBODY
        return user

    def owner(self, token: bytes) -> User | None:
        """Return the owner of a token, by its digest or as a birth; None if there is none."""
        return self._by_token.get(token)

    def by_rule(self, protocol: int, address: bytes, names: Sequence[bytes]) -> bytes:
        """Return the name of a new client's user; empty if no rule matches, or for anonymous.

        Args:
            protocol: the number of the client's protocol.
            address: 4 or 16 bytes; empty for a client without an address.
            names: the names in the client's certificate.
        """
        for rule in self.rules:
            if rule.fits(protocol, address, names):
                return b"" if rule.user == ANONYMOUS else rule.user
        return b""


def locks_out(rows: dict[bytes, User], rules: Iterable[Rule]) -> bool:
    """Whether these users and rules might leave no client that may change users.

    An administrator with a token is enough. Without one, all callers of gRPC, by which users are
    changed, have to be administrators: no node knows from which networks and with which
    certificates operators call, so a rule that is limited to some is not relied on, and one that
    takes the right from some may take it from all.
    """
    if any(user.tokens and user.everywhere & ADMIN for user in rows.values()):
        return False
    for rule in rules:
        if rule.protocol not in (0, GRPC):
            continue
        user = rows.get(rule.user, OPEN if rule.user == ANONYMOUS else NOBODY)
        if not user.everywhere & ADMIN:
            return True
        if not rule.network and not rule.certificate:
            return False  # it fits all callers, so that later rules, and anonymous, fit none
    return not rows.get(ANONYMOUS, OPEN).everywhere & ADMIN


def contains(network: bytes, address: bytes) -> bool:
    """Whether an address is in a network, which `may_be_network` has accepted."""
    if len(address) != len(network) - 1:
        return False
    whole, bits = divmod(network[0], 8)
    if address[:whole] != network[1 : 1 + whole]:
        return False
    return not bits or (address[whole] ^ network[1 + whole]) >> 8 - bits == 0


# --- validation of values from the log ------------------------------------------------------------


def may_be_name(name: bytes) -> bool:
    """Whether this is a valid user name."""
    return 0 < len(name) <= USER_NAME_MAX_BYTES and _NAME_BYTES.issuperset(name)


def may_be_pattern(pattern: bytes) -> bool:
    """Whether this is EVERYWHERE, the name of a queue, or a prefix of names before ANY."""
    if pattern == EVERYWHERE:
        return True
    prefix = prefix_of(pattern)
    return (
        prefix in _PREFIXES
        and len(prefix) < len(pattern) <= QUEUE_NAME_MAX_BYTES
        and ANY not in pattern[:-1]
    )


def may_be_network(network: bytes) -> bool:
    """Whether this is a valid network of a rule: no bit of its address is set after the prefix."""
    if not network:
        return True
    address, length = network[1:], network[0]
    if len(address) not in _ADDRESS_BYTES or length > 8 * len(address):
        return False
    behind = 8 * len(address) - length
    return int.from_bytes(address, "big") & ((1 << behind) - 1) == 0


def rights_of(value: Any) -> Rights | None:
    """Return the rights that a value encodes, in order; None if the value is invalid."""
    if type(value) is not tuple or len(value) > RIGHTS_MAX:
        return None
    found: dict[bytes, int] = {}
    for item in value:
        if type(item) is not tuple or len(item) != 2:
            return None
        pattern, bits = item
        if type(pattern) is not bytes or type(bits) is not int:
            return None
        if not may_be_pattern(pattern) or not 0 < bits <= ANY_RIGHT or pattern in found:
            return None
        found[pattern] = bits
    return tuple(sorted(found.items()))


def limits_of(value: Any) -> Limits | None:
    """Return the limits that a tuple of numbers encodes; None if the value is invalid.

    Limits that the tuple omits are 0.
    """
    if type(value) is not tuple or len(value) > len(NO_LIMITS):
        return None
    for number in value:
        if type(number) is not int or number < 0:
            return None
    limits = Limits(*value)
    if (
        limits.jobs_max > U32_MAX
        or limits.bytes_max > USER_BYTES_MAX
        or limits.commands_per_second_max > U32_MAX
    ):
        return None
    return limits


def rules_of(value: Any, protocols: Iterable[int]) -> tuple[Rule, ...] | None:
    """Return the rules that a value encodes; None if the value is invalid.

    Args:
        value: tuples of the fields of a Rule.
        protocols: the numbers of the known protocols.
    """
    if type(value) is not tuple or len(value) > RULES_MAX:
        return None
    rules: list[Rule] = []
    for item in value:
        if type(item) is not tuple or len(item) != 4:
            return None
        protocol, network, certificate, user = item
        if type(protocol) is not int or (protocol and protocol not in protocols):
            return None
        if not (type(network) is type(certificate) is type(user) is bytes):
            return None
        if (
            not may_be_network(network)
            or len(certificate) > CERTIFICATE_NAME_MAX_BYTES
            or not may_be_name(user)
        ):
            return None
        rules.append(Rule(protocol, network, certificate, user))
    return tuple(rules)
