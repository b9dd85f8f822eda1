"""One node: its parts, put together, and the turn in which they act.

This module decides only the order of actions. Frames of other members come in through `routing`,
committed entries through `callbacks`. The outside world is behind `host.seam`.
"""

from typing import Final

from beanpole import commands as c
from beanpole.replication.consensus import TURN_PERIOD_MAX_S, Replica
from beanpoled.config.node import NodeConfig
from beanpoled.disk.disks import Disks
from beanpoled.eventlog.store import EventLog
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.frontend import Frontends
from beanpoled.frontends.table import FRONTENDS, Table
from beanpoled.host.seam import Host
from beanpoled.leading.leader import Leader
from beanpoled.origin.outbox import Origin
from beanpoled.peers.agreement import Agreement
from beanpoled.peers.digest import Digest
from beanpoled.peers.peers import Peers
from beanpoled.shared.clock import Lateness, LoopTime
from beanpoled.shared.context import Context
from beanpoled.turn.callbacks import ReplicaCallbacks
from beanpoled.turn.condition import Condition
from beanpoled.turn.disk_health import DiskHealth
from beanpoled.turn.heartbeats import Heartbeats
from beanpoled.turn.introductions import Introductions
from beanpoled.turn.lifecycle import Lifecycle
from beanpoled.turn.roles import Roles
from beanpoled.turn.routing import Router, ToLeader
from beanpoled.turn.stopping import Stopping

# Turns come at least this often. This is the granularity of deadlines, and at most the period that
# the replica needs.
TURN_PERIOD_US: Final = 10_000
assert TURN_PERIOD_US <= TURN_PERIOD_MAX_S * 1_000_000
# Turns under load are shorter than this, and need not check for silence each time.
SILENCE_STEP_US: Final = 1000
# The period of checks for elapsed time limits.
PERIOD_US: Final = 100_000


class Node:
    """A member of the cluster."""

    def __init__(
        self,
        config: NodeConfig,
        host: Host,
        disks: Disks,
        knows: int = c.MACHINE_VERSION,
        frontends: Table = FRONTENDS,
    ) -> None:
        self.context = context = Context(config, host, disks, knows)
        context.turn = self._turn
        self.events = EventLog(config, host, context.machine)
        self.peers = peers = Peers(context)
        self.agreement = agreement = Agreement(peers.peers)
        self.digest = digest = Digest(host.now_us, agreement.digested)
        self.origin = origin = Origin(context)
        self.clients = clients = Clients(context, origin)
        self.frontends = Frontends(clients, frontends)
        self.leader = leader = Leader(context, origin, peers, agreement, digest)
        origin.leader_link = ToLeader(context, peers, leader)
        self.roles = roles = Roles(context, leader)
        self.disk_health = DiskHealth(context, peers, leader.term, leader.saved_clock)
        self.lifecycle = lifecycle = Lifecycle(
            context, self.events, peers, origin, clients, self.frontends, leader, self.disk_health
        )
        self.stopping = Stopping(context, peers, origin, clients, self.frontends, self.disk_health)
        clients.stop = self.stopping.stop
        self.introductions = Introductions(context, origin)
        self.condition = Condition(
            context, peers, origin, self.introductions, lifecycle, self.stopping, self.disk_health
        )
        self.heartbeats = Heartbeats(
            context,
            peers,
            agreement,
            origin,
            leader.term,
            leader.dispatcher,
            self.introductions,
            clients,
        )
        self.router = Router(context, peers, self.heartbeats, origin, leader, roles)
        self.callbacks = ReplicaCallbacks(
            context,
            self.events,
            agreement,
            digest,
            origin,
            leader,
            roles,
            lifecycle,
            clients.listeners,
            clients.publications,
        )
        self.lateness = Lateness()
        self._timed_us = 0  # when the timer of turns was set
        self._loop_time = LoopTime(context.now_us)
        self._unseen_us = 0  # time that passed since silence was last looked at
        self._majority_answers = False
        self._next_period_us = 0
        self._has_served = False

    @property
    def serving(self) -> bool:
        """Whether this node accepts clients."""
        lifecycle = self.lifecycle
        is_shut = lifecycle.is_opening or lifecycle.fenced or self.context.stopping
        return self.origin.up and not is_shut

    def start(self, replica: Replica) -> None:
        """Begin to work.

        Raises whatever `Replica.start` raises.
        """
        context = self.context
        context.replica = replica
        self.events.open()
        replica.start()
        context.started = True
        self._keep_turning()

    def _keep_turning(self) -> None:
        """Schedule turns at a minimum rate."""
        context = self.context
        if not context.stopped:
            now_us = context.host.now_us()
            if self._timed_us:
                passed_us = now_us - self._timed_us
                self.lateness.note(passed_us - TURN_PERIOD_US, passed_us)
            self._timed_us = now_us
            context.wake()
            context.host.call_later(TURN_PERIOD_US, self._keep_turning)

    def _turn(self) -> None:
        """Act on the input that was read: send, propose, apply, answer."""
        context = self.context
        context.writes_follow = True
        context.read_clock()
        self._pass_time(self._loop_time.turn(context.now_us))
        if self.roles.changed:
            self.roles.follow()
        self.origin.send()
        self.leader.proposer.propose()
        self.leader.unwaits.turn()
        context.replica.turn()
        self.clients.user_changes.look(self.clients.connections)
        self._match()
        if context.loop_us >= self._next_period_us:
            self._next_period_us = context.loop_us + PERIOD_US
            self._run_periodic()
        context.writes_follow = False
        if self.clients.dirty:
            self.clients.flush()
        if context.replica.imaging or self.digest.in_progress:
            # In a separate step of the loop, so that the output of this turn leaves first.
            context.host.call_soon(self._make_images)

    def _pass_time(self, step_us: int) -> None:
        """Advance the time, and check for silence at most once a millisecond."""
        context = self.context
        context.loop_us += step_us
        if self._loop_time.paused_us:
            self.lifecycle.paused(self._loop_time.paused_us)
        self._unseen_us += step_us
        if self._unseen_us >= SILENCE_STEP_US:
            self.lifecycle.act_on_disk_room()
            self.heartbeats.turn(self._unseen_us)
            self._unseen_us = 0
            self._majority_answers = context.replica.majority_answers
        context.clock.advance(step_us, self._majority_answers)

    def _match(self) -> None:
        """Match jobs that became ready with waiting clients, in the cluster and on this node."""
        ready = self.context.machine.queue.ready_tubes
        if ready:
            leader = self.leader
            if leader.term.serving and leader.line.waiters:
                for name in ready:
                    leader.dispatcher.match(name)
                self.context.wake()
            self.clients.listeners.ready(ready)
            ready.clear()

    def take_limits(self, config: NodeConfig) -> None:
        """Apply another configuration, which differs only in `reloading.LIMITS`."""
        self.context.config = config
        self.clients.take_limits(config)
        self.events.take_limits(config)

    def _run_periodic(self) -> None:
        loop_us = self.context.loop_us
        self.lifecycle.run_periodic()
        self.stopping.run_periodic()
        if not self._has_served:
            self._has_served = self.serving
            self.events.latencies.forget()  # what the log emits again is old
        self.events.run_periodic(loop_us)
        self.origin.expire(loop_us - self.context.config.command_timeout_ms * 1000)
        self.origin.drop_moved()
        self.frontends.run_periodic()
        self.clients.run_periodic()

    def _make_images(self) -> None:
        """Do the deferrable work, one task at a time: both at once take twice the processor."""
        context = self.context
        if context.stopped:
            return
        if context.replica.imaging:
            context.replica.slice_image()
        else:
            self.digest.slice()
