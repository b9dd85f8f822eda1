"""The graceful stop of a node: hand leadership over, let its clients finish their jobs, close.

Clients that hold no job are closed first, between replies, so that they reconnect to other nodes;
clients that hold jobs are served until they hold none, within `drain_timeout_ms`. Jobs that are
still held then return to their queues when their connections end, as if the node had died.
Incarnations and fencing are in `lifecycle`.
"""

from collections.abc import Callable
from typing import Final

from beanpole.constants import SECOND_US
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.frontend import Frontends
from beanpoled.host.seam import WARNING
from beanpoled.origin.outbox import Origin
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context
from beanpoled.turn.disk_health import DiskHealth

# Steps that wait for the cluster give up after this time, and the stop continues.
STOP_PATIENCE_US: Final = 5 * SECOND_US
# After this time without a majority, no client can finish its jobs here. An election takes less
# time, and the hand-over of this very stop may cause one.
CONTACT_PATIENCE_US: Final = 2 * SECOND_US

_RUNNING: Final = 0
_HANDING_OVER: Final = 1
_DRAINING: Final = 2
_FINISHING: Final = 3
_CLOSING: Final = 4


class Stopping:
    """The steps of one node's stop, in order."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        origin: Origin,
        clients: Clients,
        frontends: Frontends,
        disk_health: DiskHealth,
    ) -> None:
        self._context = context
        self._peers = peers
        self._origin = origin
        self._clients = clients
        self._frontends = frontends
        self._disk_health = disk_health
        self._step = _RUNNING
        self._step_since_us = 0
        self._contact_us = 0  # loop time at which a majority was last in contact
        self.holders = 0  # clients that the stop waits for
        self._waits = True  # until a second signal
        # Tells the service manager that the node stops; set by the program.
        self.announce: Callable[[], None] = lambda: None

    def stop(self) -> None:
        """Begin the stop (SIGTERM). A second call ends the wait for clients."""
        self.announce()
        context = self._context
        if not context.started:
            context.stopped = True
            context.host.exit(words="stopped before there was a cluster")
        elif self._step == _RUNNING:
            context.host.log("stopping")
            context.stopping = True
            self._frontends.close()
            self._clients.leave()
            self._enter(_HANDING_OVER)
        elif self._step == _HANDING_OVER and self._waits:
            context.host.log("told again to stop: it will wait for no client", WARNING)
            self._waits = False
        elif self._step == _DRAINING:
            context.host.log(f"told again to stop: {self._words()}", WARNING)
            self._enter(_FINISHING)

    def run_periodic(self) -> None:
        """Advance the stop; called every 100 ms of the loop's time."""
        if self._step == _RUNNING:
            return
        # In every step: a client whose last job ended while something was in flight need not be
        # waited for.
        holders = self._clients.drop_free() if self._step != _CLOSING else 0
        waited_us = self._context.loop_us - self._step_since_us
        out_of_patience = waited_us > STOP_PATIENCE_US
        if self._step == _HANDING_OVER:
            self._hand_over(out_of_patience)
        elif self._step == _DRAINING:
            self._drain(holders, waited_us)
        elif self._step == _FINISHING:
            if self._is_quiet() or out_of_patience:
                self._clients.drop_all()
                self._enter(_CLOSING)
        elif self._is_quiet() or out_of_patience:
            self._close()

    def _enter(self, step: int) -> None:
        self._step = step
        self._step_since_us = self._context.loop_us

    def _is_quiet(self) -> bool:
        """Whether nothing is in flight, or nothing can be."""
        return self._origin.is_idle() or not self._peers.has_contact()

    def _hand_over(self, out_of_patience: bool) -> None:
        context = self._context
        successor = self._peers.successor()
        if context.replica.role != "leader" or successor is None or out_of_patience:
            context.host.watch_disk(False)
            self._enter(_DRAINING)
        else:
            # The vote for the successor is synced in the loop.
            context.host.watch_disk(True)
            context.replica.transfer(successor)

    def _drain(self, holders: int, waited_us: int) -> None:
        """Continue when all clients are free and therefore closed, or when the time is over."""
        context = self._context
        limit_us = context.config.drain_timeout_ms * 1000
        if self._peers.has_contact() or not self._contact_us:
            self._contact_us = context.loop_us
        is_cut_off = context.loop_us - self._contact_us > CONTACT_PATIENCE_US
        # A client with a request in flight may still get a job.
        if limit_us and self._waits and self._clients.connections and not is_cut_off:
            if holders and not self.holders:
                seconds = limit_us / SECOND_US
                words = f"waiting up to {seconds:g} s for {clients(holders)} to finish their jobs"
                context.host.log(words)
            self.holders = holders
            if waited_us < limit_us:
                return
            if holders:
                context.host.log(f"the time to drain is over: {self._words()}", WARNING)
        elif holders and is_cut_off:
            self.holders = holders
            words = f"no answer of a majority for {CONTACT_PATIENCE_US // SECOND_US} s"
            context.host.log(f"{words}: {self._words()}", WARNING)
        self._enter(_FINISHING)

    def _words(self) -> str:
        return f"the jobs of {clients(self.holders)} go to others"

    def _close(self) -> None:
        context = self._context
        context.stopped = True
        if self._disk_health.writes_hang:
            # The last sync would never return. Other disks have what this disk lacks.
            context.host.abandon()
        else:
            # The hang of a disk may have begun too late to be known here: the host limits the wait.
            context.host.exit(context.replica.close)


def clients(number: int) -> str:
    """Return a number of clients in words."""
    return "1 client" if number == 1 else f"{number} clients"
