"""Clients of Gearman's text commands and of Workq with tokens: valid, revoked or wrong ones.

They have queues of their own without jobs, in which `stewards` change the rights of users; those of
Gearman also change the functions of `senders` and cancel their jobs. Requests and answers are
recorded as those of `bearers` are; the judging is in `verdicts_user_answers`.
"""

import random
from abc import abstractmethod
from typing import Any, Final

from tests.sim import senders
from tests.sim.bearers import Ask, Keyring, known_s
from tests.sim.cluster import Violation
from tests.sim.guests import SingleGuest
from tests.sim.stories import GEARMAN_PREFIX, WORKQ_PREFIX
from tests.sim.world import World

# The share of the lives with users that have clerks.
SHARE: Final = 0.5
NAMES: Final = (b"desk", b"desk", b"desk-a")
# Patterns of users' rights, as `beanpole user set` takes them.
PATTERNS: Final = ("gearman:desk", "gearman:desk*", "gearman:desk-a", "workq:desk", "workq:desk*")
PACE: Final = 5.0
WAITS_MS: Final = (0, 100, 1500)
# The share of requests that cancel one of the newest jobs, if there are jobs.
CANCELS: Final = 0.3
RECENT: Final = 4
# Answers of the node alone say nothing about rights.
NO_VERDICT: Final = b"INTERNAL_ERROR"


class Clerk(SingleGuest[Ask]):
    """One client."""

    def __init__(self, world: World, number: int, asks: list[Ask], keyring: Keyring) -> None:
        super().__init__(world, number)
        self.pace = PACE
        self.asks = asks
        self._keyring = keyring
        self._data = b""
        self._is_new = True  # of this connection: it has not sent a token

    @staticmethod
    def is_in(seed: int) -> bool:
        """Whether a life with users has clerks."""
        return random.Random(f"clerks {seed}").random() < SHARE

    @abstractmethod
    def choose(self) -> tuple[str, tuple[Any, ...], bytes]:
        """Return a request without a token: its kind, its arguments and its bytes."""

    @abstractmethod
    def word_of(self, ask: Ask, line: bytes) -> bytes:
        """Return the answer as a bearer would get it."""

    def began(self) -> None:
        """See `Guest`."""
        self._data = b""
        self._is_new = self.dice.random() < 0.85

    def act(self) -> None:
        """See `Guest`."""
        if self.waiting is not None or not self.active:
            return
        dice = self.dice
        if dice.random() < 0.05:
            self.drop()
            return
        if self._keyring.drawn and (self._is_new or dice.random() < 0.15):
            token = b"none" if dice.random() < 0.1 else self._keyring.any(dice)
            kind, args, line = "auth", (token,), b"auth %b\r\n" % token
            self._is_new = False
        else:
            kind, args, line = self.choose()
        visit = self.visit
        assert visit is not None
        ask = Ask(visit, kind, args, self.world.clock.now_s)
        ask.known_s = known_s(self.world, visit.node)
        self.asks.append(ask)
        self.wait_for(ask)
        self.send(line)
        if dice.random() < 0.02:
            self.drop()  # with a request open

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        self._data += data
        ask = self.waiting
        if ask is None:
            raise Violation(f"clerk {self.number} got {self._data!r} for nothing")
        line, end, rest = self._data.partition(b"\n")
        if not end:
            return
        if rest:
            raise Violation(f"clerk {self.number} got {rest!r} behind {line!r}, for {ask}")
        self._data = b""
        self.waiting = None
        ask.word, ask.done_s = self.word_of(ask, line), self.world.clock.now_s
        self.world.counts[f"{self.protocol} clerk {ask.kind} {ask.word.decode()}"] += 1
        self.later()


class GearmanClerk(Clerk):
    """A client that changes functions by text commands; `handles` are those of jobs."""

    protocol = "gearman"

    def __init__(
        self,
        world: World,
        number: int,
        asks: list[Ask],
        keyring: Keyring,
        handles: dict[bytes, None],
    ) -> None:
        super().__init__(world, number, asks, keyring)
        self._handles = handles

    def choose(self) -> tuple[str, tuple[Any, ...], bytes]:
        """See `Clerk`."""
        dice = self.dice
        if self._handles and dice.random() < CANCELS:
            handle = dice.choice(list(self._handles)[-RECENT:])
            return "cancel job", (int(handle.rpartition(b":")[2]),), b"cancel job %b\n" % handle
        name = dice.choice((*NAMES, *senders.NAMES) if self._handles else NAMES)
        kind = dice.choice(("create function", "drop function", "limit"))
        words = b"maxqueue %b 5" % name if kind == "limit" else b"%b %b" % (kind.encode(), name)
        return kind, (GEARMAN_PREFIX + name,), words + b"\n"

    def word_of(self, ask: Ask, line: bytes) -> bytes:
        """See `Clerk`."""
        if line.rstrip() == b"OK":
            return b"ACCEPTED" if ask.kind == "auth" else b"OK"
        if ask.kind == "cancel job":
            return NO_VERDICT  # of a missing job, the node knows by itself whether it may be told
        return b"DENIED" if line.startswith(b"ERR ACCESS_DENIED") else NO_VERDICT


class WorkqClerk(Clerk):
    """A client that waits for jobs which nobody adds."""

    protocol = "workq"

    def choose(self) -> tuple[str, tuple[Any, ...], bytes]:
        """See `Clerk`."""
        name, wait_ms = self.dice.choice(NAMES), self.dice.choice(WAITS_MS)
        return "lease", (WORKQ_PREFIX + name,), b"lease %b %d\r\n" % (name, wait_ms)

    def word_of(self, ask: Ask, line: bytes) -> bytes:
        """See `Clerk`."""
        if ask.kind == "auth" and line[:3] == b"+OK":
            return b"ACCEPTED"
        if line[:1] != b"-":
            raise Violation(f"clerk {self.number} got {line!r} for {ask}")
        if b"Denied" in line:
            return b"DENIED"
        return b"TIMED_OUT" if line[:8] == b"-TIMEOUT" else NO_VERDICT
