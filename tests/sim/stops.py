"""The graceful stops of a life: none gives out a job, or takes one from a worker within its time.

Belongs here: when a node was told to stop, and the guarantees from then on. How a stop begins is in
`troubles`. That clients of a dead node find their jobs elsewhere is in `verdicts`.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from beanpoled.shared.clock import TURN_MAX_US
from beanpoled.turn.stopping import CONTACT_PATIENCE_US, STOP_PATIENCE_US
from tests.sim.cluster import Violation

if TYPE_CHECKING:
    from tests.sim.history import Connected
    from tests.sim.host import SimHost
    from tests.sim.wire import Wire
    from tests.sim.world import World

# Handing over leadership, finishing and closing wait for the cluster for at most this long.
PATIENCE_S: Final = 3 * STOP_PATIENCE_US / 1e6
# A stop is examined every 100 ms of a clock that has its own rate, by a loop that may be busy.
SLACK_S: Final = 3.0
# The node's clock counts a pause of the process as at most this.
TURN_MAX_S: Final = TURN_MAX_US / 1e6


class Stop:
    """One stop. `ran_s` is how long its process had run by then, without pauses."""

    def __init__(self, host: "SimHost", at_s: float) -> None:
        self.name = host.name
        self.place = host.node.context.index
        self.incarnation = host.node.origin.incarnation
        self.at_s = at_s
        self.ran_s = host.ran_s
        self.pauses = host.pauses
        self.limit_s = host.node.context.config.drain_timeout_ms / 1000
        self.hurried = False  # a second signal came: the node waits for no client any more
        self.contact_us = 0  # when the node last had a majority, by its own clock
        # The node was without a majority long enough to give its clients up. It closes them even
        # if the majority is back.
        self.gave_up = False

    def look(self, now_us: int, has_contact: bool) -> None:
        """Note the node's clock and its contact with a majority before a step of its stop."""
        if has_contact or not self.contact_us:
            self.contact_us = now_us
        self.gave_up |= now_us - self.contact_us > CONTACT_PATIENCE_US


class Stops:
    """All stops of a life."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._open: dict[SimHost, Stop] = {}
        self.all: list[Stop] = []
        self._in_a_step = False

    def watch(self, host: "SimHost") -> None:
        """Wrap the periodic step of a node's stop, to see which connections it closes."""
        stopping = host.node.stopping
        run_periodic = stopping.run_periodic

        def watched() -> None:
            stop = self._open.get(host)
            if stop is not None:
                node = host.node
                stop.look(node.context.loop_us, node.peers.has_contact())
            self._in_a_step = True
            try:
                run_periodic()
            finally:
                self._in_a_step = False

        vars(stopping)["run_periodic"] = watched

    def said(self, name: str, words: str) -> None:
        """Note a log line of a node that says that it stops."""
        if words == "stopping":
            host = self._world.hosts[name]
            self._open[host] = stop = Stop(host, self._world.clock.now_s)
            self.all.append(stop)
        elif words.startswith("told again to stop"):
            self._open[self._world.hosts[name]].hurried = True

    def look(self) -> None:
        """Raise Violation if a node that was told to stop runs too long."""
        for host, stop in list(self._open.items()):
            if not host.alive:
                del self._open[host]
            elif host.ran_s - stop.ran_s > stop.limit_s + PATIENCE_S + SLACK_S:
                raise Violation(f"{stop.name} was told to stop at {stop.at_s:.3f}, and still runs")

    def closes(self, wire: "Wire") -> None:
        """Check that a stop closes no client with jobs within its drain time.

        Exempt are clients of a node that was cut off, which closes them all by another rule,
        clients that asked for the end, and clients that do not read.
        """
        host, connection = wire.host, wire.connection
        stop = self._open.get(host)
        if not self._in_a_step or stop is None or connection is None:
            return
        if stop.hurried or stop.gave_up:
            return
        node = host.node
        # The node's clock counts each pause as a long turn.
        passed_s = (host.ran_s - stop.ran_s) * host.rate + (host.pauses - stop.pauses) * TURN_MAX_S
        if passed_s >= stop.limit_s or getattr(connection, "ended", False):
            return
        if node.lifecycle.fenced or not node.origin.up or not node.peers.has_contact():
            return
        session = node.clients.session(connection.number)
        if session is not None and session.reserved and not (session.secret or wire.is_slow):
            raise Violation(
                f"{stop.name} stops, and closes a client with the jobs {list(session.reserved)} "
                f"{passed_s:.3f} of {stop.limit_s} s later"
            )
        self._world.counts["clients closed by stops"] += 1

    @property
    def since(self) -> dict[tuple[int, int], float]:
        """The time at which each stopping node was told to stop, by its place and incarnation."""
        return {(stop.place, stop.incarnation): stop.at_s for stop in self.all}

    def judge(self, given: Iterable[tuple["Connected", float, object]]) -> None:
        """Check that no client got a job at a stopping node if it asked after the stop began.

        Args:
            given: for each job that was given out: its client, the time of the request, the record.
        """
        since = self.since
        for who, asked_s, what in given:
            at_s = since.get((who.place, who.incarnation), asked_s)
            if asked_s > at_s:
                raise Violation(f"its node was told to stop at {at_s:.4f}: {what!r}")
