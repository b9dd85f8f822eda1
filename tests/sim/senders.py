"""Clients with tokens that make jobs of Gearman and Workq: their users have quotas.

They have queues of their own, in which `stewards` change the rights of users, and workers there
without a token. In some lives an alias makes one queue a tube and a function: then a beanstalk
client puts jobs into it, too. Requests and answers are recorded; the judging of answers is in
`verdicts_user_puts`, that of quotas, by the log, in `quotas`.
"""

import random
from collections.abc import Sequence
from typing import Final

from beanpole.protocol.beanstalk.client import Reply, encode
from tests.sim.aliases import AliasSetter, Producer, Put, calm_all
from tests.sim.bearers import Keyring
from tests.sim.gearman import Records, Submitter
from tests.sim.gearman_workers import Worker
from tests.sim.guests import Guest
from tests.sim.stories import GEARMAN_PREFIX, WORKQ_PREFIX
from tests.sim.workq import Ledger, Patron
from tests.sim.world import World

# The share of the lives with users that have senders, and of these lives that have an alias.
SHARE: Final = 0.7
ALIAS_SHARE: Final = 0.4
# Of Workq, three with tokens and one without; two of Gearman, a worker, and one of beanstalk.
CLIENTS: Final = 8
TUBE: Final = b"tray"
NAMES: Final = (TUBE, b"tray-a")
FUNCTIONS: Final = tuple(GEARMAN_PREFIX + name for name in NAMES)
QUEUES: Final = frozenset(FUNCTIONS) | {WORKQ_PREFIX + name for name in NAMES}
# Patterns of users' rights in each protocol's queues, as `beanpole user set` takes them.
PATTERNS: Final = (
    ("gearman:tray*", "gearman:tray"),
    ("workq:tray*", "workq:tray"),
    ("tray*", "tray"),
)
# The beginning of the bodies that may be in the tube.
MARK: Final = b"tray "
# The share of connections with a token, once there are tokens, and of actions that end a connection
# with one, or without, to take another token.
TOKENS: Final = 0.9
LEAVES: Final = 0.08
COMES_BACK: Final = 0.3
# Actions per second: users' quotas are to be reached.
PACE: Final = 12.0
# Short enough for jobs and kept results to end in a life.
TTLS_MS: Final = (1000, 2500, 6000)


class GearmanSender(Submitter):
    """A client that submits jobs; some have the same unique ids for different users."""

    functions = NAMES
    uniques = (b"seven", b"eight")
    mark = MARK

    def __init__(self, world: World, number: int, records: Records, keyring: Keyring) -> None:
        super().__init__(world, number, records)
        self.pace = PACE
        self._keyring = keyring
        self._has_token = False
        self._line = b""
        self._says_token = False  # it sent a token and waits for the answer

    def began(self) -> None:
        """See `Guest`."""
        self._line = b""
        self._has_token = bool(self._keyring.drawn) and self.dice.random() < TOKENS
        self._says_token = self._has_token
        if self._says_token:
            self.send(b"auth %b\r\n" % self._keyring.any(self.dice))
        else:
            super().began()

    def act(self) -> None:
        """See `Guest`."""
        if self._says_token:
            self.later()
        elif self.active and self.dice.random() < (LEAVES if self._has_token else COMES_BACK):
            self.drop()
        else:
            super().act()

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        if self._says_token:
            self._line, end, data = (self._line + data).partition(b"\n")
            if not end:
                return
            self._says_token = False
            self.world.counts[f"gearman sender auth {self._line[:3].decode().strip()}"] += 1
            super().began()
        super().took(data)


class WorkqSender(Patron):
    """A client that uses all of Workq."""

    names = NAMES
    ttls_ms = TTLS_MS

    def __init__(self, world: World, number: int, ledger: Ledger, keyring: Keyring) -> None:
        super().__init__(world, number, ledger)
        self.pace = PACE
        self._keyring = keyring
        self._has_token = False

    def began(self) -> None:
        """See `Guest`."""
        super().began()
        self._has_token = bool(self._keyring.drawn) and self.dice.random() < TOKENS
        if self._has_token:
            self._ask("auth", b"", self._keyring.any(self.dice))

    def act(self) -> None:
        """See `Guest`."""
        leaves = LEAVES if self._has_token else COMES_BACK
        if self.active and self.waiting is None and self.dice.random() < leaves:
            self.drop()
        else:
            super().act()


class WorkqWorker(Patron):
    """A client without a token, so that jobs end whatever rights users have."""

    names = NAMES
    ttls_ms = TTLS_MS


class TubeSender(Producer):
    """A beanstalk client of a function by its alias, or of its tube."""

    tube = TUBE
    mark = MARK

    def __init__(self, world: World, number: int, puts: list[Put], keyring: Keyring) -> None:
        super().__init__(world, number, puts, [])
        self._keyring = keyring
        self._says_token = False

    def began(self) -> None:
        """See `Guest`."""
        self._says_token = bool(self._keyring.drawn) and self.dice.random() < TOKENS
        if self._says_token:
            self.send(encode(b"auth", self._keyring.any(self.dice)))
        super().began()

    def _replied(self, reply: Reply) -> None:
        if self._says_token:
            self._says_token = False
        elif reply[0] == b"DENIED" and self._used and self.quiet:
            self.drop()  # its `use` was answered, and refused later
        else:
            super()._replied(reply)


class Senders:
    """The senders of one life, and the workers of their queues."""

    def __init__(
        self, world: World, numbers: Sequence[int], keyring: Keyring, records: Records
    ) -> None:
        self.world = world
        self.records, self.ledger = records, Ledger()
        self.puts: list[Put] = []
        self.has_alias = self.will_have_alias(world.seed)
        self.workers: list[Worker] = []
        self._keyring = keyring
        works, *adds = numbers[:4]
        self._numbers = numbers[4:]
        self.guests: list[Guest] = [WorkqWorker(world, works, self.ledger)]
        self.guests += [WorkqSender(world, one, self.ledger, keyring) for one in adds]
        self._setters: list[AliasSetter] = []
        world.counts["lives with senders"] += 1
        if self.has_alias:
            dice = random.Random(f"names of senders {world.seed}")
            alias, queue = dice.choice(((TUBE, FUNCTIONS[0]), (FUNCTIONS[0], TUBE)))
            self._setters.append(AliasSetter(world, dice, alias, queue, self._begin))
        else:
            self._begin()

    @staticmethod
    def is_in(seed: int) -> bool:
        """Whether a life with users has senders."""
        return random.Random(f"senders of {seed}").random() < SHARE

    @staticmethod
    def will_have_alias(seed: int) -> bool:
        """Whether an alias is set in a life with senders."""
        return random.Random(f"alias of senders {seed}").random() < ALIAS_SHARE

    def _begin(self) -> None:
        """Create the clients of the queue that may have an alias; its names are in use then."""
        world, records, keyring = self.world, self.records, self._keyring
        submits, also, works, puts = self._numbers
        self.workers.append(Worker(world, works, records, True, NAMES))
        self.guests += [GearmanSender(world, one, records, keyring) for one in (submits, also)]
        if self.has_alias:
            self.guests.append(TubeSender(world, puts, self.puts, keyring))
        if not all(setter.active for setter in self._setters):
            self.calm()

    def calm(self) -> None:
        """Make no more jobs; the worker does those that are left."""
        calm_all(self._setters, self.guests, self.workers)

    @property
    def restless(self) -> str:
        """A description of pending work; empty if there is none."""
        for guest in (*self.guests, *self.workers):
            if not guest.quiet:
                return f"{guest.protocol} sender {guest.number} waits for something"
        return ""
