"""Calls of an administrator of a life: one after the other, each at any serving node.

A call is made once and given up if no answer comes; it may be done all the same. The calls and
their records are defined by each kind of administrator: `overseers` and `stewards`.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from tests.sim.guests import Guest
from tests.sim.history import host_of
from tests.sim.host import SimHost
from tests.sim.services import CallEnded, Caller, Services
from tests.sim.world import World

RETRY_S: Final = 0.3

Ended = Callable[[Any, CallEnded | None], None]


class Begun(NamedTuple):
    """A call that is being made."""

    work: Coroutine[Any, Any, Any]
    ended: Ended  # takes the reply, or the error that ended the call


class AdminCalls(ABC):
    """One administrator, and the clients that it looks after.

    Attributes:
        NAME: its name in messages about a life that does not end.
        GUESTS: the name of its clients there.
        guests: its clients.
        orders: the calls that it made, the newest last.
    """

    NAME: str
    GUESTS: str
    guests: Sequence[Guest]
    orders: Sequence[object]

    def __init__(self, world: World, dice: random.Random, patience_s: float) -> None:
        self.world = world
        self.dice = dice
        self.active = True
        self._patience_s = patience_s
        self._services: dict[SimHost, Services] = {}
        self._attempt = 0
        self._waits = False

    @abstractmethod
    def call(self, services: Services, caller: Caller) -> Begun:
        """Choose the next call, note it, and make it."""

    @abstractmethod
    def pace(self) -> float:
        """Return the approximate number of calls per second."""

    def calm(self) -> None:
        """Make no more calls, and let the clients end."""
        self.active = False
        for guest in self.guests:
            guest.active = False

    @property
    def restless(self) -> str:
        """A description of pending work; empty if there is none."""
        if self._waits:
            return f"{self.NAME} waits for an answer: {self.orders[-1]}"
        waiting = [one.number for one in self.guests if not one.quiet]
        return f"{self.GUESTS} {waiting} wait for something" if waiting else ""

    def next(self) -> None:
        """Make the next call."""
        if not self.active:
            return
        hosts = [host for host in self.world.serving() if host.node.serving]
        if not hosts:
            self.world.clock.after(RETRY_S, self.next)
            return
        self._attempt += 1
        attempt, host = self._attempt, self.dice.choice(hosts)
        self._waits = True
        host.guard(lambda: self._begin(host, attempt))
        self.world.clock.after(self._patience_s, lambda: self._go_on(attempt))

    def _begin(self, host: SimHost, attempt: int) -> None:
        services = self._services.get(host)
        if services is None:
            services = self._services[host] = Services(host)
        begun = self.call(services, Caller(host_of(0)))

        def done(reply: Any, error: CallEnded | None) -> None:
            if attempt == self._attempt and self._waits:
                begun.ended(reply, error)
                self._go_on(attempt)

        services.begin(begun.work, done)

    def _go_on(self, attempt: int) -> None:
        if attempt == self._attempt and self._waits:
            self._waits = False
            self.world.clock.after(self.dice.expovariate(self.pace()), self.next)
