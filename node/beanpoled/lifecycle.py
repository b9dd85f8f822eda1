"""How a node comes, goes, and comes again: incarnations, fencing, draining, the graceful stop.

A node opens its client ports only when its NODE_UP is applied, closes its clients when it is cut
off from the majority, and begins a new incarnation when it learns that it was declared down.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from beanpole.constants import SECOND_US
from beanpole.storage.records import read_checked, write_atomic
from beanpole.storage.wal import Identity
from beanpoled.clock import downtime_us

if TYPE_CHECKING:
    from beanpoled.node import Node

# The (cluster time, own wall clock) pair is saved this often; after a crash the estimate of the
# downtime does not depend on its age, because both grow together.
CLOCK_PERIOD_US: Final = SECOND_US
DISK_PERIOD_US: Final = SECOND_US
# A graceful stop gives up waiting for what is on its way after this, and closes all the same.
STOP_PATIENCE_US: Final = 5 * SECOND_US

_COUNTER: Final = Struct("<Q")
_PAIR: Final = Struct("<qq")
INCARNATION_FILE: Final = "incarnation"
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
        self._step = _RUNNING
        self._step_since_us = 0
        self._next_disk_us = 0
        self._next_clock_us = CLOCK_PERIOD_US
        self._saving_clock = False
        self._saved_pair: tuple[int, int] = (0, 0)
        self._durable_incarnation = 0

    def load(self) -> None:
        """Read the small files of earlier lives.

        Raises:
            StorageError: one of them is damaged or another node's.
        """
        counter = self._read(INCARNATION_FILE)
        if counter is not None:
            (self._durable_incarnation,) = _COUNTER.unpack(counter)
        pair = self._read(CLOCK_FILE)
        if pair is not None:
            self._saved_pair = _PAIR.unpack(pair)

    def _path(self, name: str) -> str:
        return f"{self._node.config.data_dir}/{name}"

    def _identity(self) -> Identity:
        return Identity(self._node.config.cluster, self._node.name)

    def _read(self, name: str) -> bytes | None:
        files = self._node.host.files
        path = self._path(name)
        return read_checked(files, path, self._identity()) if files.exists(path) else None

    # --- incarnations ---------------------------------------------------------------------------

    def _begin_incarnation(self) -> None:
        """Bump the durable counter, then say NODE_UP."""
        node = self._node
        state = node.machine.origins.get(node.index)
        replicated = 0 if state is None else state.incarnation
        incarnation = max(self._durable_incarnation, replicated, node.origin.incarnation) + 1
        path = self._path(INCARNATION_FILE)
        try:
            write_atomic(node.host.files, path, self._identity(), _COUNTER.pack(incarnation))
        except OSError as error:
            node.fatal(f"cannot write {path}: {error.strerror}")
            return
        self._durable_incarnation = incarnation
        node.origin.start(incarnation)
        node.wake()

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
        if not node.origin.incarnation:
            if self.caught_up():
                self._begin_incarnation()
        else:
            self._watch_fence()
        if node.loop_us >= self._next_disk_us:
            self._next_disk_us = node.loop_us + DISK_PERIOD_US
            self._look_at_disk()
        if node.loop_us >= self._next_clock_us and node.peers.has_contact():
            self._next_clock_us = node.loop_us + CLOCK_PERIOD_US
            self._save_clock()
        if self._step != _RUNNING:
            self._go_on_stopping()

    def _watch_fence(self) -> None:
        """Close the clients of a node that is cut off, so that they go elsewhere."""
        node = self._node
        cut_off = node.peers.contact_us > node.config.fence_timeout_ms * 1000
        if cut_off and not self.fenced:
            self.fenced = True
            node.host.log("cut off from the majority: closing all clients")
            node.host.close_clients()
            node.drop_clients()
        elif self.fenced and not cut_off:
            self.fenced = False
            node.host.log("in contact with the majority again")
            if node.origin.up and self._step == _RUNNING:
                node.host.open_clients()

    def _look_at_disk(self) -> None:
        node = self._node
        free = node.host.files.free_bytes(node.config.data_dir)
        low = free < node.config.disk_reserve_bytes
        if low != node.peers.disk_low:
            node.peers.disk_low = low
            words = "below" if low else "above"
            node.host.log(f"{free} bytes are free, {words} disk_reserve_bytes")

    # --- the downtime of a whole cluster --------------------------------------------------------

    def _save_clock(self) -> None:
        node = self._node
        if self._saving_clock or not (node.clock.leading or node.clock.was_up()):
            return  # what an earlier life saved is better than knowing nothing
        self._saving_clock = True
        pair = _PAIR.pack(node.clock.estimate_us(node.now_us), node.host.wall_us())

        def work() -> None:
            write_atomic(node.host.files, self._path(CLOCK_FILE), self._identity(), pair)

        def done(error: OSError | None) -> None:
            self._saving_clock = False
            if error is not None:
                node.host.log(f"cannot write {self._path(CLOCK_FILE)}: {error.strerror}")

        node.host.files.submit(work, done)

    def cold_start_us(self) -> int:
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
        if self._step == _RUNNING:
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
            node.replica.close()
            node.host.log("stopped")
            node.host.exit()
