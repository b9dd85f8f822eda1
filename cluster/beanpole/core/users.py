"""Users: what each may do in which queues, and by which tokens and rules a client is one of them.

Belongs here: the tables, and the answers to "may this user". Which right an operation needs, and in
which queue, is in `core.operations.table`; when that is checked, in `core.machine`.

Tokens are known by their SHA-256 only. They are 256 random bits, so that nothing leads back from a
digest to its token, and no slow hash is needed.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from beanpole.constants import QUEUE_NAME_MAX_BYTES, U32_MAX
from beanpole.core.jobs.spaces import PREFIX_END, SPACES

# The machine version from which there are users.
USERS_SINCE: Final = 4

# --- rights, a bit each ---------------------------------------------------------------------------
PUT: Final = 1
WORK: Final = 2  # watch a queue, reserve its jobs and end them
ADMIN: Final = 4  # what no producer or worker does: kick, pause, move, clear; everywhere: settings
EVENTS: Final = 8
ANY_RIGHT: Final = PUT | WORK | ADMIN | EVENTS  # one is enough to read a queue
RIGHT_NAMES: Final = {PUT: "put", WORK: "work", ADMIN: "admin", EVENTS: "events"}

# --- limits: an image copies all of it in one step, and every node has it in memory ---------------
USERS_MAX: Final = 1024
RIGHTS_MAX: Final = 64  # of one user
TOKENS_MAX: Final = 4  # of one user: the old one, the new one, and two that were forgotten
RULES_MAX: Final = 64  # they are looked at one by one for each new client
TOKEN_DIGEST_BYTES: Final = 32
USER_NAME_MAX_BYTES: Final = 64
# The longest name of a host that a certificate may have.
CERTIFICATE_NAME_MAX_BYTES: Final = 253
# More bytes than a cluster has; it fits into a signed number of 64 bits.
USER_BYTES_MAX: Final = 2**62
# A user with its tables and four tokens: 0.8 KB; one right with a pattern of 15 bytes: 190. Half as
# much again is for the dicts that lead to it, and for those of the change that is being made.
USER_BYTES: Final = 1536
RIGHT_BYTES: Final = 256
RULE_BYTES: Final = 512

# The user of all sessions that did not say whose they are. A session of it has an empty name.
ANONYMOUS: Final = b"anonymous"
# At the end of a pattern: all names that begin with what is before it.
ANY: Final = b"*"
# The pattern of every queue of every protocol. No space has this prefix.
EVERYWHERE: Final = b"\0*"

_NAME_BYTES: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.@"
)
_PREFIXES: Final = frozenset([rules.prefix for rules in SPACES.values()])
# The networks of rules: the length of the prefix in bits, then the address.
_ADDRESS_BYTES: Final = (4, 16)

# (pattern, bits), in the order of the patterns.
Rights = tuple[tuple[bytes, int], ...]


class Limits(NamedTuple):
    """What a user may have and do at most. Each field is 0 for no limit.

    Attributes:
        jobs_max: how many jobs that it has put may exist for one more to be put.
        bytes_max: how many bytes of bodies they may have with that one.
        commands_per_second_max: at each node. The machine does not look at it.
    """

    jobs_max: int = 0
    bytes_max: int = 0
    commands_per_second_max: int = 0


NO_LIMITS: Final = Limits()


class User:
    """One user. It never changes: a change puts another one in its place.

    Attributes:
        name: of 1 to USER_NAME_MAX_BYTES bytes.
        tokens: digests, the oldest first.
        rights: patterns with bits.
        limits: of the jobs that it puts, and of its rate.
        everywhere: what it may do with every queue, and with what belongs to no queue.
        bytes: about what it takes in memory.
    """

    __slots__ = (
        "_bare",
        "_beginnings",
        "_lengths",
        "_names",
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
    ) -> None:
        self.name = name
        self.limits = limits
        self.tokens = tokens
        self.rights = rights
        self.everywhere = 0
        self._bare = 0  # in all queues whose names have no prefix: beanstalk's
        self._names: dict[bytes, int] = {}
        self._beginnings: dict[bytes, int] = {}
        for pattern, bits in rights:
            if pattern == EVERYWHERE:
                self.everywhere = bits
            elif pattern == ANY:
                self._bare = bits
            elif pattern.endswith(ANY):
                self._beginnings[pattern[:-1]] = bits
            else:
                self._names[pattern] = bits
        # All lengths, so that a look takes one step for each of them and not for each pattern.
        self._lengths: list[int] = sorted({len(beginning) for beginning in self._beginnings})
        self.bytes = USER_BYTES + sum([RIGHT_BYTES + len(pattern) for pattern, _ in rights])

    def on(self, queue: bytes) -> int:
        """Return the rights in a queue, by its own name: those of all patterns that fit."""
        bits = self.everywhere | self._names.get(queue, 0)
        if self._bare and queue and queue[0] >= PREFIX_END:
            bits |= self._bare
        for length in self._lengths:
            bits |= self._beginnings.get(queue[:length], 0)
        return bits

    def on_all_of(self, prefix: bytes) -> int:
        """Return the rights in every queue of a space."""
        return self.everywhere | (self._beginnings.get(prefix, 0) if prefix else self._bare)


# Who a session is while there is no user `anonymous`, and one whose user or token is gone.
OPEN: Final = User(b"", (), ((EVERYWHERE, ANY_RIGHT),))
NOBODY: Final = User(b"", (), ())


class Rule(NamedTuple):
    """Clients that this fits are sessions of a user from their beginning.

    Attributes:
        protocol: by its number in `events`; 0 for any.
        network: the length of its prefix in bits, one byte, and its address; empty for any.
        certificate: a name in the client's certificate; empty for any, or none.
        user: whose sessions they are.
    """

    protocol: int
    network: bytes
    certificate: bytes
    user: bytes

    def fits(self, protocol: int, address: bytes, names: Sequence[bytes]) -> bool:
        """Whether a client of this protocol, address and certificate is meant."""
        return (
            self.protocol in (0, protocol)
            and (not self.network or contains(self.network, address))
            and (not self.certificate or self.certificate in names)
        )


class Users:
    """All users and rules.

    Attributes:
        rows: by their names. Empty in many clusters, which is asked first. Each change makes
            another dict: whoever keeps one sees by it that something changed.
        rules: in their order; the first that fits counts.
        anonymous: the user of sessions that did not say whose they are.
        bytes: about what all of it takes in memory.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, User] = {}
        self.rules: tuple[Rule, ...] = ()
        self.anonymous: User = OPEN
        self.bytes = 0
        self._by_token: dict[bytes, User] = {}

    def change(self, rows: dict[bytes, User]) -> None:
        """Let these be the users from here on."""
        self.rows = rows
        self.anonymous = rows.get(ANONYMOUS, OPEN)
        self._by_token = {token: user for user in rows.values() for token in user.tokens}
        self._count()

    def set_rules(self, rules: tuple[Rule, ...]) -> None:
        """Let these be the rules from here on, for clients that come."""
        self.rules = rules
        self._count()

    def _count(self) -> None:
        self.bytes = sum([user.bytes for user in self.rows.values()])
        self.bytes += RULE_BYTES * len(self.rules)

    def of(self, name: bytes, token: bytes) -> User:
        """Return the user as whom a session acts that has this user and this digest of a token.

        A session that came with a token has nothing left when that is dropped.
        """
        if not name:
            return self.anonymous
        user = self.rows.get(name)
        if user is None or (token and token not in user.tokens):
            return NOBODY
        return user

    def owner(self, token: bytes) -> User | None:
        """Return whose token this is, by its digest."""
        return self._by_token.get(token)

    def by_rule(self, protocol: int, address: bytes, names: Sequence[bytes]) -> bytes:
        """Return the name of a new client's user; empty if it is no user's, or anonymous.

        Args:
            protocol: of the client, by its number.
            address: 4 or 16 bytes; none for a client that has none.
            names: in the client's certificate.
        """
        for rule in self.rules:
            if rule.fits(protocol, address, names):
                return b"" if rule.user == ANONYMOUS else rule.user
        return b""


def locks_out(rows: dict[bytes, User]) -> bool:
    """Whether with these users no client could change users again."""
    if rows.get(ANONYMOUS, OPEN).everywhere & ADMIN:
        return False
    return not any(user.tokens and user.everywhere & ADMIN for user in rows.values())


def contains(network: bytes, address: bytes) -> bool:
    """Whether an address is in a network that `may_be_network`."""
    if len(address) != len(network) - 1:
        return False
    whole, bits = divmod(network[0], 8)
    if address[:whole] != network[1 : 1 + whole]:
        return False
    return not bits or (address[whole] ^ network[1 + whole]) >> 8 - bits == 0


# --- what the log may hold ------------------------------------------------------------------------


def may_be_name(name: bytes) -> bool:
    """Whether a user may be called so."""
    return 0 < len(name) <= USER_NAME_MAX_BYTES and _NAME_BYTES.issuperset(name)


def may_be_pattern(pattern: bytes) -> bool:
    """Whether this is EVERYWHERE, the name of a queue, or the beginning of one before ANY."""
    if pattern == EVERYWHERE:
        return True
    prefix = pattern[:1] if pattern and pattern[0] < PREFIX_END else b""
    return (
        prefix in _PREFIXES
        and len(prefix) < len(pattern) <= QUEUE_NAME_MAX_BYTES
        and ANY not in pattern[:-1]
    )


def may_be_network(network: bytes) -> bool:
    """Whether this is the network of a rule: no bit of its address is behind the prefix."""
    if not network:
        return True
    address, length = network[1:], network[0]
    if len(address) not in _ADDRESS_BYTES or length > 8 * len(address):
        return False
    behind = 8 * len(address) - length
    return int.from_bytes(address, "big") & ((1 << behind) - 1) == 0


def rights_of(value: Any) -> Rights | None:
    """Return the rights that a value says, in order; None if it is anything else."""
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
    """Return the limits that a tuple of numbers says, those that it leaves out being 0.

    None if it is anything else.
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
    """Return the rules that a value says; None if it is anything else.

    Args:
        value: tuples of what a Rule has.
        protocols: the numbers that there are.
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
