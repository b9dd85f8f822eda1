"""Clients of other protocols than beanstalk's: how each connects, breaks off and comes back.

The requests of a guest and its records are in `gearman` and `workq`; nothing is judged here.
"""

import random
from abc import abstractmethod
from typing import Any, Final, Generic, TypeVar

from tests.sim.history import Connected, host_of
from tests.sim.wire import Wire
from tests.sim.world import World

RETRY_S: Final = 0.2
# The longest wait for a reply that does not depend on another client.
PATIENCE_S: Final = 20.0
# Actions per second, of one guest or another: with fewer requests, clients wait and sleep more.
PACES: Final = (1.5, 6.0)

# The awaited reply of a guest that waits for one reply at a time.
Asked = TypeVar("Asked")


class Guest:
    """One client, at one node after the other."""

    protocol = ""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.dice = random.Random(world.seed * 1019 + number)
        self.pace = self.dice.choice(PACES)
        self.active = True  # it acts on its own
        self.wire: Wire | None = None
        self.visit: Connected | None = None
        world.clock.after(self.dice.random(), self._connect)

    def _connect(self) -> None:
        if self.wire is not None:
            return
        asleep_s = self.world.asleep_until_s - self.world.clock.now_s
        serving = self.world.serving(self.protocol)
        if asleep_s > 0 or not serving:
            wait_s = max(asleep_s, RETRY_S) + self.dice.random()
            self.world.clock.after(wait_s, self._connect)
            return
        host = self.dice.choice(serving)
        delay_s = self.dice.choice((0.0001, 0.001, 0.02))
        from_host = host_of(self.number)
        self.wire = Wire(self.world, host, self, delay_s, self.protocol, from_host)
        self.visit = Connected(self.number, host.name, host.node.context.index)
        self.world.counts[f"{self.protocol} connections"] += 1
        self.began()
        self.later()

    def send(self, data: bytes) -> None:
        """Send bytes, split anywhere as a network may do."""
        assert self.wire is not None
        while data:
            size = len(data) if self.dice.random() < 0.8 else self.dice.randint(1, len(data))
            self.wire.send(data[:size])
            data = data[size:]

    def received(self, wire: Wire, data: bytes) -> None:
        """Take bytes from the node."""
        if wire is self.wire:
            self.world.trace.update(data)
            self._note_session(wire)
            self.took(data)

    def _note_session(self, wire: Wire) -> None:
        assert self.visit is not None
        self.visit.number, self.visit.incarnation = wire.number, wire.incarnation

    def ended(self, wire: Wire) -> None:
        """Note that the node's side is gone."""
        if wire is self.wire:
            self.world.counts["guests cut off"] += 1
            self._forget()

    def drop(self) -> None:
        """Break the connection."""
        if self.wire is not None:
            self.world.counts["drops"] += 1
            self.wire.drop()
            self._forget()

    def _forget(self) -> None:
        wire, visit = self.wire, self.visit
        assert wire is not None and visit is not None
        now_s = self.world.clock.now_s
        self._note_session(wire)
        visit.end_s = now_s if wire.cut_s is None else min(now_s, wire.cut_s)
        self.wire = self.visit = None
        self.left()
        self.world.clock.after(RETRY_S * self.dice.random(), self._connect)

    def later(self, seconds: float | None = None) -> None:
        """Act after a while, if the connection lasts."""
        wire = self.wire
        wait_s = self.dice.expovariate(self.pace) if seconds is None else seconds
        self.world.clock.after(wait_s, lambda: self._act(wire))

    def _act(self, wire: Wire | None) -> None:
        if wire is not None and wire is self.wire:
            self.act()

    def expect(self, answered: object, waiting: object) -> None:
        """Disconnect if a reply does not come: `waiting` still contains `answered` then."""
        wire = self.wire

        def tired() -> None:
            if wire is self.wire and answered in waiting:  # type: ignore[operator]
                self.world.counts["gave up"] += 1
                self.drop()

        self.world.clock.after(PATIENCE_S, tired)

    @property
    @abstractmethod
    def quiet(self) -> bool:
        """Whether it waits for nothing."""

    @abstractmethod
    def began(self) -> None:
        """Handle the beginning of a connection."""

    @abstractmethod
    def left(self) -> None:
        """Handle the end of a connection."""

    @abstractmethod
    def took(self, data: bytes) -> None:
        """Take bytes of this connection."""

    @abstractmethod
    def act(self) -> None:
        """Do something, and schedule the next action."""


class SingleGuest(Guest, Generic[Asked]):
    """A guest with at most one open request."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self.waiting: Asked | None = None

    def left(self) -> None:
        """See `Guest`."""
        self.waiting = None

    @property
    def quiet(self) -> bool:
        """Whether it waits for nothing."""
        return self.waiting is None

    def wait_for(self, request: Asked) -> None:
        """Wait for the reply to a request, which is about to be sent."""
        self.waiting = request
        self.expect(request, _Waits(self))


class _Waits:
    """The open request of a guest as a container, for `Guest.expect`."""

    def __init__(self, guest: SingleGuest[Any]) -> None:
        self._guest = guest

    def __contains__(self, request: object) -> bool:
        return self._guest.waiting is request
