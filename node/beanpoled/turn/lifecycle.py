"""The life cycle of a node: incarnations, fencing, draining.

A node opens its client ports only when its NODE_UP is applied and the cluster is not just about to
be raised to a newer version. It closes its clients when it is cut off from the majority, and begins
a new incarnation when it learns that it was declared down. The graceful stop is in `stopping`.
"""

from typing import Any, Final

from beanpole.constants import SECOND_US
from beanpole.storage.ballast import is_full
from beanpole.storage.remedies import told
from beanpoled.config import memory, memory_budget
from beanpoled.disk.identity import VOTER, WRITE_REFUSED
from beanpoled.eventlog.store import EventLog
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.frontend import Frontends
from beanpoled.host.seam import WARNING
from beanpoled.leading.leader import Leader
from beanpoled.leading.versions import RAISE_PATIENCE_S
from beanpoled.origin.outbox import Origin
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context
from beanpoled.turn.disk_health import DiskHealth

# Incarnations on a lost disk that the cluster may not have seen when another disk replaces it:
# their batches may still be in a log, and must never be taken for batches of the new disk. Each
# incarnation costs a start with a leader in sight. A node may lose the same number of disks before
# its 32 bits are used up.
UNSEEN_LIVES_MAX: Final = 65_536


class Lifecycle:
    """The incarnations of this node, and its fence."""

    def __init__(
        self,
        context: Context,
        events: EventLog,
        peers: Peers,
        origin: Origin,
        clients: Clients,
        frontends: Frontends,
        leader: Leader,
        disk_health: DiskHealth,
    ) -> None:
        self._context = context
        self._events = events
        self._peers = peers
        self._origin = origin
        self._clients = clients
        self._frontends = frontends
        self._term = leader.term
        self._saved_clock = leader.saved_clock
        self._versions = leader.versions
        self._disk_health = disk_health
        self.fenced = False
        self.is_opening = False  # the ports are to open as soon as nothing is against it
        # The loop time at which the last NODE_UP was applied; None before the first one.
        self._up_us: int | None = None
        self._known_limit = 0
        self._next_is_due = False  # declared down: the next incarnation has yet to begin
        self._awaits_room = False  # the disk is full: the new incarnation is put off
        self._with_room_us = 0  # when a full disk last did not hold this node back
        self._patient_until_us = 0  # loop time: the process was paused a moment ago

    # --- incarnations ---------------------------------------------------------------------------

    def _begin_incarnation(self) -> None:
        """Increment the incarnation on this disk, then submit NODE_UP."""
        context = self._context
        own, replicated = context.disks.own.incarnation, self._replicated()
        if replicated > own:
            context.fatal(
                f"{context.name} was incarnation {replicated} before, and this disk knows of "
                f"{own}: it is an older copy, or another process runs as this node; start it on "
                "an empty data directory with --rejoin"
            )
            return
        if self._write_identity(may_wait=True, incarnation=own + 1):
            self._clients.drop_all()  # clients from before the first incarnation belong to none
            self._origin.start(own + 1)
            context.wake()

    def rejoined(self) -> None:
        """Make this disk a voter once it has all entries that it needs.

        The disk continues above all incarnations of the lost one.
        """
        context = self._context
        incarnation = max(context.disks.own.incarnation, self._replicated()) + UNSEEN_LIVES_MAX
        if self._write_identity(standing=VOTER, incarnation=incarnation):
            context.host.log("this disk has all entries that it needs, and votes from now on")

    def _replicated(self) -> int:
        """The last incarnation of this node in the cluster's state."""
        state = self._context.machine.origins.get(self._context.index)
        return 0 if state is None else state.incarnation

    def _write_identity(self, may_wait: bool = False, **changes: Any) -> bool:
        """Change this disk's identity; with `may_wait`, a full disk only delays the change."""
        context = self._context
        try:
            context.disks.change(**changes)
        except OSError as error:
            if not (may_wait and is_full(error)):
                context.fatal(f"{WRITE_REFUSED}: {told(error)}")
            elif not self._awaits_room:
                self._awaits_room = True
                words = "the disk is full: this node serves clients when there is room"
                context.host.log(words, WARNING)
            return False
        self._awaits_room = False
        return True

    def went_up(self, incarnation: int) -> None:
        """Handle an applied NODE_UP of this node, or of another process with its name."""
        context = self._context
        if incarnation == self._origin.incarnation:
            self._origin.up = True
            self.is_opening = True
            self._up_us = context.loop_us
            self.open_in_time()
        elif self._origin.incarnation and incarnation > self._origin.incarnation:
            context.fatal(
                f"another process runs as {context.name} (incarnation {incarnation}, this one is "
                f"{self._origin.incarnation}): stopping; find it and stop one of the two"
            )

    @property
    def has_gone_up(self) -> bool:
        """Whether a NODE_UP of this process has been applied, whatever has happened since.

        It comes behind all that was committed before the start of the process, and so that is
        applied, too. Before, the state is that of a snapshot, which may be of any age.
        """
        return self._up_us is not None

    def open_in_time(self) -> None:
        """Accept clients if it is time: not just before the cluster is raised to a newer version.

        A client asks for the extensions of the protocol once, when it connects. In a new cluster
        it would get those of the base version, a moment before the others.
        """
        context, up_us = self._context, self._up_us
        is_held = self.fenced or context.stopping
        if up_us is None or is_held or not (self.is_opening and self._origin.up):
            return
        has_patience = context.loop_us - up_us < RAISE_PATIENCE_S * SECOND_US
        is_rising = self._versions.coming() > context.machine.version
        if is_rising and has_patience and not self._frontends.is_open:
            return
        self.is_opening = False
        self._frontends.open()
        context.host.log(f"serving clients as incarnation {self._origin.incarnation}")

    def went_down(self, incarnation: int) -> None:
        """Begin anew after the cluster declared this node down: its clients' sessions are gone."""
        if incarnation == self._origin.incarnation:
            self._origin.abandon()
            self._clients.drop_all()
            self._origin.abandon()  # the CLOSEs of sessions that no longer exist
            self._next_is_due = True
            self._begin_next_incarnation()
            if self._origin.incarnation == incarnation:
                # The disk cannot be waited for now: send clients elsewhere.
                self._frontends.close()

    def _begin_next_incarnation(self) -> None:
        """Begin the incarnation after one that was declared down, once the disk does not hang."""
        if self._next_is_due and not self._disk_health.writes_hang:
            self._next_is_due = False
            self._begin_incarnation()

    def image_loaded(self) -> None:
        """Handle a snapshot that replaced the machine: it may hold our NODE_UP or NODE_DOWN.

        The entries with these commands are covered by the snapshot and will never be applied here.
        """
        context = self._context
        incarnation = self._origin.incarnation
        state = context.machine.origins.get(context.index)
        if not incarnation or state is None or state.incarnation < incarnation:
            return  # our NODE_UP is in flight, or was not sent yet
        if state.incarnation == incarnation and not state.alive:
            self.went_down(incarnation)
        elif not self._origin.up or state.incarnation > incarnation:
            self.went_up(state.incarnation)

    def caught_up(self) -> bool:
        """Whether everything that the leader had applied at its last heartbeat is applied here."""
        context = self._context
        replica = context.replica
        if replica.leader is None or replica.rejoining:
            return False
        if replica.applied_index < replica.commit_index:
            return False
        if replica.leader == context.name:
            return self._term.serving
        heartbeat = self._peers.peers[replica.leader].heartbeat
        return (
            heartbeat is not None
            and heartbeat.leading
            and heartbeat.term == replica.term
            and context.machine.index >= heartbeat.applied_index
        )

    def lacks_room(self) -> bool:
        """Whether this node's log must not grow, and it lacks what the leader has applied.

        Heartbeats still arrive, so neither contact with the majority nor the disk's pace shows it.
        """
        return self._context.replica.room().full and not self.caught_up()

    # --- periodic work --------------------------------------------------------------------------

    def run_periodic(self) -> None:
        """Advance the life cycle; called every 100 ms of the loop's time."""
        self._disk_health.run_periodic()
        if not self._origin.incarnation or self._awaits_room:
            self._with_room_us = self._context.loop_us  # there are no clients to close
            if self.caught_up():
                self._begin_incarnation()
        else:
            self._begin_next_incarnation()
            self._watch_fence()
            self.open_in_time()
        self._saved_clock.run_periodic()
        self._look_at_memory()

    def _watch_fence(self) -> None:
        """Close the clients of a node that the majority has left behind: they go elsewhere.

        The leader declares a node down that it has not heard for `node_timeout_ms`. A node counts
        from when it sent what the leader last heard, so it is earlier by the difference, however
        slow the path is in either direction. It comes back when the path is fast again.

        The leader's time passes while this process is paused, so a pause counts. After a long one
        an echo may be on its way.
        """
        context = self._context
        fence_us = context.config.fence_timeout_ms * 1000
        if not self.lacks_room():
            self._with_room_us = context.loop_us
        why = ""
        is_late = self._peers.contact_us > fence_us and context.loop_us >= self._patient_until_us
        if is_late or (self.fenced and self.is_path_slow()):
            why = "cut off from the majority"
            if self._peers.has_contact():
                why = f"{context.replica.leader} does not hear this node in time, as far as known"
        elif self._disk_health.is_left_behind(fence_us):
            why = "the majority goes on and this node's disk does not"
        elif context.loop_us - self._with_room_us > fence_us:
            why = "the others go on and this node's disk is full"
        if why and not self.fenced:
            self.fenced = True
            context.host.log(f"{why}: closing all clients", WARNING)
            self._frontends.close()
            self._origin.fence()
            self._clients.drop_all()
        elif self.fenced and not why:
            self.fenced = False
            context.host.log("going on with the majority again")
            self.is_opening = True

    def paused(self, pause_us: int) -> None:
        """Note that the process did not run for a while, before its input is judged."""
        raft_max_us = self._context.config.raft_max_ms * 1000
        if pause_us > raft_max_us:
            self._patient_until_us = self._context.loop_us + raft_max_us

    def is_path_slow(self) -> bool:
        """Whether a heartbeat and its echo take longer than an election would, or do not come."""
        return self._peers.contact_us > self._context.config.raft_max_ms * 1000

    def _look_at_memory(self) -> None:
        """Warn if the leader's memory limit exceeds the memory of this machine."""
        context = self._context
        limit = context.machine.queue_bytes_max
        if limit != self._known_limit and context.machine.term:
            self._known_limit = limit
            too_much = memory_budget.warning(context.config, limit, memory.found())
            if too_much is not None and limit != context.config.queue_bytes_max:
                context.host.log(f"the leader's limits: {too_much}", WARNING)

    def act_on_disk_room(self) -> None:
        """Publish the state of the disk; hand leadership over if the log cannot grow."""
        context = self._context
        room = context.replica.room()
        self._peers.disk_low = room.low
        self._events.reserve_bytes = room.reserve_bytes
        if room.full and context.replica.role == "leader":
            successor = self._peers.successor()
            peer = None if successor is None else self._peers.peers[successor]
            if peer is not None and not (peer.heartbeat and peer.heartbeat.disk_low):
                context.replica.transfer(successor)

    # --- drain -------------------------------------------------------------------------

    def drain(self, on: bool) -> None:
        """Refuse puts (SIGUSR1), or accept them again (SIGUSR2)."""
        self._context.draining = on
        self._context.host.log("draining: puts are refused" if on else "no longer draining")
