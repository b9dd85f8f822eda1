"""An administrator of users in a life: it changes their rights, tokens and rules by gRPC calls.

The services are the product's (`services`), behind the guard that checks the right for each call.
`bearers` use the tokens. Calls and their answers are recorded; the judging is in `verdicts_users`.
"""

import random
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from beanpole.constants import DEFAULT_TUBE
from beanpole.pb import users_pb2
from tests.sim import aliases, bearers, callers, clients, keepers, retriers
from tests.sim.admin_calls import AdminCalls, Begun
from tests.sim.bearers import Ask, Bearer, Keyring
from tests.sim.services import CallEnded, Caller, Services
from tests.sim.stories import FOREVER_S
from tests.sim.verdicts import PROBE
from tests.sim.world import World

# The share of the lives with an administrator of users and clients for it.
SHARE: Final = 0.3
BEARERS: Final = 6
# Calls per second.
PACE: Final = 4.0
FIRST_PACE: Final = 10.0
# It then makes the next call; the change may be done all the same.
PATIENCE_S: Final = 2.5
ROOT: Final = "root"
ANONYMOUS: Final = "anonymous"
NAMES: Final = ("ann", "bob", "cleo", "dan")
EVERYWHERE: Final = "all:*"
# Several of them match a queue of `bearers`, and their rights add up.
PATTERNS: Final = ("vault", "vault*", "vault-*", "vault-a", "v*", "safe", "*")
RIGHTS: Final = (
    users_pb2.RIGHT_PUT,
    users_pb2.RIGHT_WORK,
    users_pb2.RIGHT_ADMIN,
    users_pb2.RIGHT_EVENTS,
)
# The queues of all other clients of a life, which need rights whatever users there are.
OPEN_PATTERNS: Final = (
    *{name.decode() for name in (*clients.TUBES, *retriers.TUBES, DEFAULT_TUBE)},
    *(callers.TUBE.decode(), keepers.TUBE.decode(), aliases.NAME.decode(), PROBE.decode()),
    *("gearman:*", "workq:*", "qless:*"),
)
PROTOCOLS: Final = ("", "beanstalk", "gearman")
# The share of users with a quota, and its values: a few jobs of about ten bytes.
QUOTA_SHARE: Final = 0.8
JOBS_MAX: Final = (0, 1, 2, 3)
BYTES_MAX: Final = (0, 0, 12, 25)
# Rates of commands: none for half of the users, and for the others about as fast as they are.
RATES_MAX: Final = (0, 0, 3, 6)
# A rule without a certificate would apply to all other clients, too.
CERTIFIED: Final = bearers.CERTIFICATES[1:]


class Order(NamedTuple):
    """One call, and its end: `refusal` is empty if it succeeded."""

    kind: str  # the name of its method
    request: Any
    token: bytes  # the digest of the token with which it was made
    at_s: float
    caller: Caller
    done_s: float = FOREVER_S  # stays so if no answer came
    refusal: str = ""

    def __repr__(self) -> str:
        words = " ".join(str(self.request).split())
        told = self.refusal or ("done" if self.done_s != FOREVER_S else "lost")
        by = self.token.hex()[:8] or "nobody"
        return f"{self.kind} by {by} [{self.at_s:.4f}, {self.done_s:.4f}] {words} -> {told}"


class Steward(AdminCalls):
    """One administrator, and the clients whose users it looks after."""

    NAME = "an administrator of users"
    GUESTS = "bearers"

    def __init__(
        self,
        world: World,
        numbers: list[int],
        is_whole: bool,
        patterns: Sequence[Sequence[str]],
        opened: Sequence[str],
    ) -> None:
        """Create the administrator and its clients.

        Args:
            world: the world of the life.
            numbers: the numbers of its clients.
            is_whole: other clients need the right `admin` where no queue is concerned.
            patterns: of the queues of each other kind of clients in which its users may have
                rights: `tenants`, `clerks`, `senders`.
            opened: more patterns of queues that need rights whatever users there are.
        """
        super().__init__(world, random.Random(f"steward {world.seed}"), PATIENCE_S)
        self._quota_dice = random.Random(f"quotas {world.seed}")
        self._rate_dice = random.Random(f"rates {world.seed}")
        self._guest_dice = random.Random(f"rights of guests {world.seed}")
        self._patterns = patterns
        self._opened = (*OPEN_PATTERNS, *opened)
        self.is_whole = is_whole
        self.orders: list[Order] = []
        self.asks: list[Ask] = []
        self.keyring = Keyring()
        known: list[int] = []
        self.guests: list[Bearer] = [
            Bearer(world, one, self.asks, known, self.keyring) for one in numbers
        ]
        self._root = b"root-%d" % world.seed
        self._first = self._beginning()
        world.counts["lives with users"] += 1
        world.clock.after(0.6 + self.dice.random(), self.next)

    @staticmethod
    def is_in(seed: int) -> bool:
        """Whether a life has an administrator of users."""
        return random.Random(f"actors {seed}").random() < SHARE

    def pace(self) -> float:
        """See `AdminCalls`."""
        return FIRST_PACE if self._first else PACE

    # --- calls ------------------------------------------------------------------------------------

    def call(self, services: Services, caller: Caller) -> Begun:
        """See `AdminCalls`."""
        kind, request = self._choose()
        token = self._identity()
        place = len(self.orders)
        digest = sha256(token).digest() if token else b""
        self.orders.append(Order(kind, request, digest, self.world.clock.now_s, caller))

        def ended(_: Any, error: CallEnded | None) -> None:
            refusal = "" if error is None else str(error)
            told = self.orders[place]._replace(done_s=self.world.clock.now_s, refusal=refusal)
            self.orders[place] = told
            if self._first and not refusal:
                self._first.pop(0)
            self.world.counts[f"users {kind} {refusal.split(':')[0] or 'OK'}"] += 1
            self.world.trace.update(repr(told).encode())
            if token == self._root and refusal.startswith("UNAUTHENTICATED"):
                self._first = self._make_root()

        method = getattr(services.users, kind)
        return Begun(services.guarded(f"Users/{kind}", method, request, caller, token), ended)

    def _identity(self) -> bytes:
        """Return the token of the next call; empty for none."""
        luck = self.dice.random()
        if self._first:
            is_root = self._first[0] in self._make_root()
            return b"" if is_root or luck > 0.9 else self._root
        if luck < 0.8:
            return self._root
        if luck < 0.92:
            return b""
        return self.keyring.any(self.dice)

    def _beginning(self) -> list[tuple[str, Any]]:
        """Return the first calls, each repeated until done: users with rights and a token each."""
        calls = self._make_root()
        for name in NAMES:
            calls.append(self._set(name, self._some_rights()))
            calls.append(self._add_token(name))
        rules = [users_pb2.Rule(certificate=one.decode(), user=NAMES[0]) for one in CERTIFIED]
        calls.append(("SetRules", users_pb2.SetRulesRequest(rules=rules)))
        return calls

    def _make_root(self) -> list[tuple[str, Any]]:
        root = sha256(self._root).digest()
        return [
            ("Set", users_pb2.SetUserRequest(name=ROOT, rights=[_rights(EVERYWHERE, RIGHTS)])),
            ("AddToken", users_pb2.AddTokenRequest(user=ROOT, digest=root)),
        ]

    def _add_token(self, name: str) -> tuple[str, Any]:
        token = self.keyring.draw(self.dice, name)
        return "AddToken", users_pb2.AddTokenRequest(user=name, digest=sha256(token).digest())

    def _choose(self) -> tuple[str, Any]:
        dice = self.dice
        if self._first:
            return self._first[0]
        luck = dice.random()
        name = dice.choice(NAMES)
        if luck < 0.42:
            drawn = self.keyring.drawn
            waiting = [drawn[one.waits_with] for one in self.guests if one.waits_with in drawn]
            if waiting and dice.random() < 0.5:
                # A waiting worker has to be told that its right has ended.
                narrow = [_rights("safe", RIGHTS[:1])]
                return self._set(dice.choice(waiting), narrow)
            # Others, so that a right that has ended stays so until the wait would be over.
            others = [one for one in NAMES if one not in waiting]
            return self._set(dice.choice(others or NAMES), self._some_rights())
        if luck < 0.57:
            return self._add_token(name)
        if luck < 0.68:
            token = self.keyring.any(dice)
            owner = self.keyring.drawn[token] if dice.random() < 0.9 else name
            self.keyring.dropped.add(token)
            token_id = sha256(token).hexdigest()[:16]
            return "DropToken", users_pb2.DropTokenRequest(user=owner, token_id=token_id)
        if luck < 0.7:
            return "Drop", users_pb2.DropUserRequest(name=name)
        if luck < 0.84:
            return "Set", users_pb2.SetUserRequest(name=ANONYMOUS, rights=self._open_rights())
        if luck < 0.87:
            return "Drop", users_pb2.DropUserRequest(name=ANONYMOUS)
        if luck < 0.9:
            return "SetRules", users_pb2.SetRulesRequest(rules=self._rules())
        # Refused if no other user could change users afterwards.
        token_id = sha256(self._root).hexdigest()[:16]
        if dice.random() < 0.5:
            return "DropToken", users_pb2.DropTokenRequest(user=ROOT, token_id=token_id)
        return "Set", users_pb2.SetUserRequest(name=ROOT, rights=[_rights(EVERYWHERE, RIGHTS[:2])])

    def _set(self, name: str, some: list[users_pb2.Rights]) -> tuple[str, Any]:
        request = users_pb2.SetUserRequest(name=name, rights=some)
        dice = self._quota_dice
        if dice.random() < QUOTA_SHARE:
            request.limits.jobs_max = dice.choice(JOBS_MAX)
            request.limits.bytes_max = dice.choice(BYTES_MAX)
        request.limits.commands_per_second_max = self._rate_dice.choice(RATES_MAX)
        dice = self._guest_dice
        for patterns in self._patterns:
            for pattern in dice.sample(patterns, dice.randint(1, 2)) if dice.random() < 0.8 else ():
                request.rights.append(_rights(pattern, dice.sample(RIGHTS[:3], dice.randint(2, 3))))
        return "Set", request

    def _some_rights(self) -> list[users_pb2.Rights]:
        """Return wide rights as often as narrow ones."""
        dice = self.dice
        if dice.random() < 0.4:
            put, work, admin, _ = RIGHTS
            return [_rights("v*", [put, admin]), _rights("vault*", [work]), _rights("safe", RIGHTS)]
        patterns = dice.sample(PATTERNS, dice.randint(0, 3))
        found = [_rights(pattern, dice.sample(RIGHTS, dice.randint(1, 3))) for pattern in patterns]
        if dice.random() < 0.05:
            # Never the right to work: the user would get jobs of clients that do not expect that.
            found.append(_rights(EVERYWHERE, [dice.choice((RIGHTS[0], *RIGHTS[2:]))]))
        return found

    def _open_rights(self) -> list[users_pb2.Rights]:
        """Return rights of clients without a token: enough to go on, rarely in these queues."""
        found = [_rights(pattern, RIGHTS) for pattern in sorted(self._opened)]
        if self.is_whole or self.dice.random() < 0.1:
            found.append(_rights(EVERYWHERE, RIGHTS[2:3]))
        mine = [pattern for pattern in PATTERNS if pattern != "*" and self.dice.random() < 0.15]
        return found + [_rights(pattern, self.dice.sample(RIGHTS, 2)) for pattern in mine]

    def _rules(self) -> list[users_pb2.Rule]:
        dice = self.dice
        return [
            users_pb2.Rule(
                protocol=dice.choice(PROTOCOLS),
                certificate=dice.choice(CERTIFIED).decode(),
                user=dice.choice((*NAMES, ANONYMOUS)),
            )
            for _ in range(dice.randint(0, 3))
        ]


def _rights(pattern: str, some: Any) -> users_pb2.Rights:
    return users_pb2.Rights(pattern=pattern, rights=some)
