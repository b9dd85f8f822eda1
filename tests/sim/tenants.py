"""Clients of qless with tokens: valid, revoked or wrong ones, or none.

They have queues of their own, in which `stewards` change the rights of users, and otherwise behave
like the workers of `qless`. Their answers are judged in `verdicts_qless`, rights and quotas by the
log in `verdicts_users`.
"""

import random
from typing import Final

from beanpole.protocol.resp.client import ReplyParser, encode
from beanpole.protocol.resp.values import Error
from tests.sim.bearers import Keyring
from tests.sim.qless import Laborer, Notes
from tests.sim.world import World

# The share of the lives with users that have tenants.
SHARE: Final = 0.9
TENANTS: Final = 3
QUEUES: Final = (b"yard", b"yard", b"yard-a")
SHARED: Final = (b"ledger-1", b"ledger-2")
DATA: Final = (b"{}", b'{"n":1}', b'{"n":12345}')
# Patterns of users' rights, as `beanpole user set` takes them.
PATTERNS: Final = ("qless:yard", "qless:yard*", "qless:yard-a", "qless:*")


class Tenant(Laborer):
    """One client."""

    def __init__(self, world: World, number: int, notes: Notes, keyring: Keyring) -> None:
        super().__init__(world, number, notes, first=False)
        self.queues, self.data = QUEUES, DATA
        self._keyring = keyring
        self._says_token = False  # it sent a token and waits for the answer

    @staticmethod
    def is_in(seed: int) -> bool:
        """Whether a life with users has tenants."""
        return random.Random(f"tenants {seed}").random() < SHARE

    def began(self) -> None:
        """See `Guest`."""
        dice = self.dice
        self._says_token = bool(self._keyring.drawn) and dice.random() < 0.85
        if not self._says_token:
            super().began()
            return
        self._parser = ReplyParser()
        self._sha = b""
        self.send(encode((b"AUTH", self._keyring.any(dice))))

    def choose_jid(self) -> bytes:
        """See `Laborer`: tenants share some jids, so that quotas count jobs whose data changes."""
        self._jobs += 1
        return self.dice.choice(SHARED) if self.dice.random() < 0.85 else super().choose_jid()

    def act(self) -> None:
        """See `Guest`."""
        if self.dice.random() < 0.03:
            self.drop()  # to come back, perhaps with another token
            return
        super().act()

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        if self._says_token:
            self._parser.feed(data)
            found = self._parser.next()
            if found is not None:
                self._says_token = False
                word = "refused" if isinstance(found[0], Error) else "done"
                self.world.counts[f"tenant auth {word}"] += 1
                super().began()
            return
        super().took(data)
