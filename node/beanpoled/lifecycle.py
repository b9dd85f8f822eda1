"""How a node comes, goes, and comes again: incarnations, fencing, draining, the graceful stop.

A node opens its client ports only when its NODE_UP is applied, closes its clients when it is cut
off from the majority, and begins a new incarnation when it learns that it was declared down.
"""

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from beanpole.constants import SECOND_US
from beanpole.storage.ballast import is_full
from beanpole.storage.records import read_checked, write_atomic
from beanpole.storage.wal import Identity
from beanpoled import memory
from beanpoled.clock import downtime_us
from beanpoled.disk_health import DiskHealth
from beanpoled.identity import VOTER

if TYPE_CHECKING:
    from beanpoled.node import Node

# The (cluster time, own wall clock) pair is saved this often; after a crash the estimate of the
# downtime does not depend on its age, because both grow together.
CLOCK_PERIOD_US: Final = SECOND_US
# A graceful stop gives up waiting for what is on its way after this, and closes all the same.
STOP_PATIENCE_US: Final = 5 * SECOND_US

# Incarnations on a lost disk that the cluster may not have seen yet when another disk takes its
# place: their batches may still be in a log, and must never be taken for the new disk's. Each costs
# a start with a leader in sight. A node may lose as many disks before its 32 bits are used up.
UNSEEN_LIVES_MAX: Final = 65_536

_PAIR: Final = Struct("<qq")
CLOCK_FILE: Final = "clock"

# Steps of a graceful stop.
_RUNNING: Final = 0
_HANDING_OVER: Final = 1
_FINISHING: Final = 2
_CLOSING: Final = 3


class Lifecycle:
    """The node's lives."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.draining = False
        self.fenced = False
        self.disk_health = DiskHealth(node)
        self._step = _RUNNING
        self._step_since_us = 0
        self._next_clock_us = CLOCK_PERIOD_US
        self.saving_clock = False
        self.clocks_saved = 0
        self._saved_pair: tuple[int, int] = (0, 0)
        self._known_limit = 0
        self._reborn = True  # whether the incarnation after the one that was given up has begun
        self._awaits_room = False  # for a new incarnation

    def load(self) -> None:
        """Read what an earlier life knew of cluster time.

        Raises:
            StorageError: the file is damaged or another node's.
        """
        pair = read_checked(self._node.host.files, self._path(CLOCK_FILE), self._identity())
        if pair is not None:
            self._saved_pair = _PAIR.unpack(pair)

    def _path(self, name: str) -> str:
        return f"{self._node.config.data_dir}/{name}"

    def _identity(self) -> Identity:
        return Identity(self._node.config.cluster, self._node.name)

    # --- incarnations ---------------------------------------------------------------------------

    def _begin_incarnation(self) -> None:
        """Count one up on this disk, then say NODE_UP."""
        node = self._node
        own, replicated = node.disks.own.incarnation, self._replicated()
        if replicated > own:
            node.fatal(
                f"{node.name} was incarnation {replicated} before, and this disk knows of {own}: "
                "it is an older copy, or another process runs as this node; start it on an empty "
                "data directory with --rejoin"
            )
            return
        if self._write_identity(may_wait=True, incarnation=own + 1):
            node.drop_clients()  # what came while there was no incarnation is part of none
            node.origin.start(own + 1)
            node.wake()

    def rejoined(self) -> None:
        """This disk has all that counts, and goes on above all incarnations on the lost one."""
        node = self._node
        incarnation = max(node.disks.own.incarnation, self._replicated()) + UNSEEN_LIVES_MAX
        if self._write_identity(standing=VOTER, incarnation=incarnation):
            node.host.log("has what counts, and votes from now on")

    def _replicated(self) -> int:
        """The last incarnation of this node that the cluster's state has."""
        state = self._node.machine.origins.get(self._node.index)
        return 0 if state is None else state.incarnation

    def _write_identity(self, may_wait: bool = False, **changes: Any) -> bool:
        """Replace what this disk is; if it `may_wait`, a full disk only puts it off."""
        node = self._node
        try:
            node.disks.change(**changes)
        except OSError as error:
            if not (may_wait and is_full(error)):
                node.fatal(f"cannot write what this disk is: {error.strerror}")
            elif not self._awaits_room:
                self._awaits_room = True
                node.host.log("the disk is full: this node serves clients when there is room")
            return False
        self._awaits_room = False
        return True

    def went_up(self, incarnation: int) -> None:
        """Our NODE_UP, or another's, was applied."""
        node = self._node
        if incarnation == node.origin.incarnation:
            node.origin.up = True
            if self._step == _RUNNING and not self.fenced:
                node.host.open_clients()
            node.host.log(f"serving clients as incarnation {incarnation}")
        elif node.origin.incarnation and incarnation > node.origin.incarnation:
            node.fatal(
                f"another process runs as {node.name} (incarnation {incarnation}, this one is "
                f"{node.origin.incarnation}): stopping; find it and stop one of the two"
            )

    def went_down(self, incarnation: int) -> None:
        """The cluster gave up on us: clients' sessions are gone, begin anew."""
        node = self._node
        if incarnation == node.origin.incarnation:
            node.origin.abandon()
            node.drop_clients()
            node.origin.abandon()  # the CLOSEs of sessions that no longer exist
            self._reborn = False
            self._be_born_again()
            if node.origin.incarnation == incarnation:
                node.host.close_clients()  # this disk must be waited for: clients go elsewhere

    def _be_born_again(self) -> None:
        """Begin a new incarnation once the disk can be waited for; clients see their end before."""
        if not self._reborn and not self.disk_health.hangs:
            self._reborn = True
            self._begin_incarnation()

    def image_loaded(self) -> None:
        """A snapshot replaced the machine: it may hold our NODE_UP, or that we were declared down.

        The entries that say so are covered by it and will never be applied here.
        """
        node = self._node
        incarnation = node.origin.incarnation
        state = node.machine.origins.get(node.index)
        if not incarnation or state is None or state.incarnation < incarnation:
            return  # our NODE_UP is on the way, or was not sent yet
        if state.incarnation == incarnation and not state.alive:
            self.went_down(incarnation)
        elif not node.origin.up or state.incarnation > incarnation:
            self.went_up(state.incarnation)

    def caught_up(self) -> bool:
        """Whether everything that the leader had applied when it last told is applied here."""
        node = self._node
        replica = node.replica
        if replica.leader is None or replica.rejoining:
            return False
        if replica.applied_index < replica.commit_index:
            return False
        if replica.leader == node.name:
            return node.leader.serving
        beat = node.peers.peers[replica.leader].beat
        return (
            beat is not None
            and beat.leading
            and beat.term == replica.term
            and node.machine.index >= beat.applied_index
        )

    # --- what time brings -----------------------------------------------------------------------

    def keep_house(self) -> None:
        """Called every 100 ms of the loop's time."""
        node = self._node
        self.disk_health.look()
        if not node.origin.incarnation or self._awaits_room:
            if self.caught_up():
                self._begin_incarnation()
        else:
            self._be_born_again()
            self._watch_fence()
        if node.loop_us >= self._next_clock_us and node.peers.has_contact():
            self._next_clock_us = node.loop_us + CLOCK_PERIOD_US
            self._save_clock()
        self._look_at_memory()
        if self._step != _RUNNING:
            self._go_on_stopping()

    def _watch_fence(self) -> None:
        """Close the clients of a node that the others go on without, so that they go elsewhere."""
        node = self._node
        fence_us = node.config.fence_timeout_ms * 1000
        why = ""
        if node.peers.contact_us > fence_us:
            why = "cut off from the majority"
        elif self.disk_health.is_left_behind(fence_us):
            why = "the majority goes on and this node's disk does not"
        if why and not self.fenced:
            self.fenced = True
            node.host.log(f"{why}: closing all clients")
            node.host.close_clients()
            node.origin.fence()
            node.drop_clients()
        elif self.fenced and not why:
            self.fenced = False
            node.host.log("going on with the majority again")
            if node.origin.up and self._step == _RUNNING:
                node.host.open_clients()

    def _look_at_memory(self) -> None:
        """Say so if the leader's limit is more than this machine has."""
        node = self._node
        limit = node.machine.queue_bytes_max
        if limit != self._known_limit and node.machine.term:
            self._known_limit = limit
            too_much = memory.warning(node.config, limit, memory.found())
            if too_much is not None and limit != node.config.queue_bytes_max:
                node.host.log(f"the leader's limits: {too_much}")

    def look_at_disk(self) -> None:
        """Tell others what the disk has left; hand leadership over if the log can not grow."""
        node = self._node
        room = node.replica.room()
        node.peers.disk_low = room.low
        node.events.reserve_bytes = room.reserve_bytes
        if room.full and node.replica.role == "leader":
            successor = node.peers.successor()
            peer = None if successor is None else node.peers.peers[successor]
            if peer is not None and not (peer.beat and peer.beat.disk_low):
                node.replica.transfer(successor)

    # --- the downtime of a whole cluster --------------------------------------------------------

    def _save_clock(self) -> None:
        node = self._node
        if self.saving_clock or not (node.clock.leading or node.clock.was_up()):
            return  # what an earlier life saved is better than knowing nothing
        self.saving_clock = True
        pair = _PAIR.pack(node.clock.estimate_us(node.now_us), node.host.wall_us())

        def work() -> None:
            write_atomic(node.host.files, self._path(CLOCK_FILE), self._identity(), pair)

        def done(error: OSError | None) -> None:
            self.saving_clock = False
            self.clocks_saved += 1
            if error is not None:
                node.host.log(f"cannot write {self._path(CLOCK_FILE)}: {error.strerror}")

        node.host.files.submit(work, done)

    def begin_epoch(self) -> int:
        """Become the cluster's clock; returns the time of the EPOCH."""
        node = self._node
        if node.clock.was_up():
            start_us = node.clock.estimate_us(node.now_us)
        else:
            # This node was not up, but perhaps others were: they know when time stood.
            told_us = node.peers.cluster_us()
            start_us = self._cold_start_us() if told_us is None else told_us
        # Later than every reservation that is known, so that the floor spares all of them.
        node.clock.lead(max(start_us, node.machine.queue.now_us + 1))
        return node.clock.estimate_us(node.now_us)

    def _cold_start_us(self) -> int:
        """Cluster time as this node estimates it after the whole cluster was down."""
        node = self._node
        cluster_us, wall_us = self._saved_pair
        passed_us = downtime_us(wall_us, node.host.wall_us(), node.peers.skews_us())
        if passed_us:
            node.host.log(f"counting {passed_us // SECOND_US} s in which no node was running")
        return cluster_us + passed_us

    # --- drain and stop -------------------------------------------------------------------------

    def drain(self, on: bool) -> None:
        """SIGUSR1 and SIGUSR2: refuse puts, or accept them again."""
        self.draining = on
        self._node.host.log("draining: puts are refused" if on else "no longer draining")

    def stop(self) -> None:
        """SIGTERM: hand leadership over, finish what is in flight, close."""
        if not self._node.started:
            self._node.stopped = True
            self._node.host.log("stopped before there was a cluster")
            self._node.host.exit()
        elif self._step == _RUNNING:
            self._node.host.log("stopping")
            self._node.host.close_clients()
            self._enter(_HANDING_OVER)

    @property
    def stopping(self) -> bool:
        """Whether this node is about to be gone."""
        return self._step != _RUNNING

    def _enter(self, step: int) -> None:
        self._step = step
        self._step_since_us = self._node.loop_us

    def _go_on_stopping(self) -> None:
        node = self._node
        out_of_patience = node.loop_us - self._step_since_us > STOP_PATIENCE_US
        if self._step == _HANDING_OVER:
            successor = node.peers.successor()
            if node.replica.role != "leader" or successor is None or out_of_patience:
                self._enter(_FINISHING)
            else:
                node.replica.transfer(successor)
        elif self._step == _FINISHING:
            if node.origin.is_idle() or not node.peers.has_contact() or out_of_patience:
                node.drop_clients()
                self._enter(_CLOSING)
        elif node.origin.is_idle() or not node.peers.has_contact() or out_of_patience:
            node.stopped = True
            if self.disk_health.hangs:
                # Its last sync would never come back. What this disk lacks, others have.
                node.host.log("stopped without a last sync, because the disk hangs")
            else:
                node.replica.close()
                node.host.log("stopped")
            node.host.exit()
