"""One node: the parts, and the turn in which they act.

Here is what calls what, and in which order. The parts: `origin` (this node's clients and their
commands), `leader` (what it does while it leads), `peers` (the other members), `lifecycle`
(start, incarnations, fencing, stop), the machine, and the replica. The world is behind `host`.
"""

from collections.abc import Callable, Iterator
from typing import Final

from beanpole import commands as c
from beanpole.core import accounts, image
from beanpole.core.machine import Applied, Machine
from beanpole.errors import BeanpoleError, ProtocolError
from beanpole.protocol.beanstalk import requests as r
from beanpole.replication.consensus import TURN_PERIOD_MAX_S, Image, Replica, Sink
from beanpole.replication.dormant import DormantReplica
from beanpoled import facts, frames
from beanpoled.beanstalk import BeanstalkConnection
from beanpoled.call import Call
from beanpoled.clock import ClusterClock, LoopTime
from beanpoled.config import NodeConfig
from beanpoled.connection import INPUT_BYTES_MAX, Connection
from beanpoled.digest import Digest
from beanpoled.disks import Disks
from beanpoled.eventlog.store import EventLog
from beanpoled.host import ClientPort, Host
from beanpoled.identity import REJOINING
from beanpoled.introductions import Introductions
from beanpoled.leader import Leader
from beanpoled.lifecycle import Lifecycle
from beanpoled.origin import Origin
from beanpoled.peers import Peers
from beanpoled.versions import Versions

# Turns come at least this often: the grain of deadlines, and below what the replica needs.
TURN_PERIOD_US: Final = 10_000
assert TURN_PERIOD_US <= TURN_PERIOD_MAX_S * 1_000_000
# Turns under load are shorter than this; who is silent is not worth a look in each of them.
SILENCE_STEP_US: Final = 1000
# How often limits in time are looked at.
HOUSEKEEPING_PERIOD_US: Final = 100_000
# A client that has not read its replies for so long is closed.
STALL_MAX_US: Final = 30_000_000
# Clients beyond the limit that may wait for their refusal; more are closed at once.
REFUSED_MAX: Final = 64


class Node:
    """A member of the cluster. It is the replica's `Outside`."""

    def __init__(
        self, config: NodeConfig, host: Host, disks: Disks, knows: int = c.MACHINE_VERSION
    ) -> None:
        self.config = config
        self.host = host
        self.disks = disks
        self.name = config.node_id
        self.members = tuple(sorted(config.members))
        self.index = self.members.index(self.name)  # of this node as an origin
        self.now_us = host.now_us()
        self.loop_us = 0  # time as this loop has lived it
        self.machine = Machine()
        self.events = EventLog(config, host, self.machine)
        rejoining = disks.own.standing == REJOINING
        # Until `start`: the real one needs this node, and a disk that knows its cluster.
        self.replica: Replica = DormantReplica(self.name, self.members, rejoining)
        self.clock = ClusterClock()
        self.peers = Peers(self)
        self.digest = Digest(host.now_us, self.peers.digested)
        self.origin = Origin(self)
        self.versions = Versions(self, knows)
        self.leader = Leader(self)
        self.lifecycle = Lifecycle(self)
        self.introductions = Introductions(self, disks)
        self.counts = [0] * r.COUNTERS
        # Dicts and not sets: closing all of them must happen in the same order in every run.
        self.connections: dict[Connection, None] = {}
        self.calls: dict[Call, None] = {}
        self.connections_total = 0
        self.connections_refused = 0
        self.dirty: list[Connection] = []  # connections with replies to write
        # With every request somebody looks at these, and looking into `config` has its price.
        self.outbox_bytes_max = config.outbox_bytes_max
        self.input_bytes_max = INPUT_BYTES_MAX + config.max_job_size
        self.client_output_bytes_max = config.client_output_bytes_max
        self.paused: dict[Connection, None] = {}  # connections that are not read
        self.stalled: dict[Connection, int] = {}  # connections whose clients do not read
        self.leader_changes = 0
        self.lag_us = 0
        self.lag_max_us = 0
        self.started = self.stopped = False
        self._loop_time = LoopTime(self.now_us)
        self._unseen_us = 0  # time that passed since silence was last looked at
        self._majority_answers = False
        self._turn_is_due = False
        self._roles_changed = True
        self._known_leader: tuple[str | None, int] = (None, 0)
        self._next_housekeeping_us = 0

    @property
    def draining(self) -> bool:
        """Whether puts are refused at this node."""
        return self.lifecycle.draining

    @property
    def serving(self) -> bool:
        """Whether clients may come to this node."""
        lifecycle = self.lifecycle
        return self.origin.up and not (lifecycle.fenced or lifecycle.stopping)

    def start(self, replica: Replica) -> None:
        """Begin to work. Raises what `Replica.start` raises."""
        self.replica = replica
        self.events.open()
        replica.start()
        self.started = True
        self._beat_time()

    # --- the turn -------------------------------------------------------------------------------

    def wake(self) -> None:
        """Ask for a turn after the input that is already there."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self.host.call_soon(self._turn)

    def turn_begins(self) -> None:
        """Look at the clock; also called by timers that act between turns."""
        self.now_us = self.host.now_us()

    def wake_for_entry(self) -> None:
        """Ask for a turn because there is something for an entry, unless one comes by itself.

        While this node leads and its entry is in flight, nothing can be proposed; the turn that
        finds it committed takes along what came meanwhile. So does the one that ends the wait for
        clients who were just answered. A turn costs as much as ten commands.
        """
        if not self.leader.must_wait():
            self.wake()

    def _beat_time(self) -> None:
        """Keep turns coming when nothing else does."""
        if not self.stopped:
            due_us = self.now_us + TURN_PERIOD_US
            self.wake()
            self.host.call_later(TURN_PERIOD_US, self._beat_time)
            self.lag_us = max(0, self.host.now_us() - due_us)
            self.lag_max_us = max(self.lag_max_us, self.lag_us)

    def _turn(self) -> None:
        """Input was read; now act on it: send, propose, apply, answer."""
        self._turn_is_due = False
        if self.stopped:
            return
        self.turn_begins()
        self._pass_time(self._loop_time.turn(self.now_us))
        if self._roles_changed:
            self._follow_roles()
        self.origin.send()
        self.leader.propose()
        self.leader.ends.turn()
        self.replica.turn()
        self._match()
        if self.loop_us >= self._next_housekeeping_us:
            self._next_housekeeping_us = self.loop_us + HOUSEKEEPING_PERIOD_US
            self._keep_house()
        if self.dirty:
            dirty, self.dirty = self.dirty, []
            for connection in dirty:
                connection.flush()
        if self.replica.imaging or self.digest.under_way:
            # In a step of the loop of its own: what this turn wrote leaves before it.
            self.host.call_soon(self._make_images)

    def _make_images(self) -> None:
        """Do what can wait, one after the other: both at once take twice the processor."""
        if self.stopped:
            return
        if self.replica.imaging:
            self.replica.slice_image()
        else:
            self.digest.slice()

    def _pass_time(self, step_us: int) -> None:
        """Time goes on in every turn, but silence is looked at only once a millisecond."""
        self.loop_us += step_us
        self._unseen_us += step_us
        if self._unseen_us >= SILENCE_STEP_US:
            self.lifecycle.look_at_disk()
            self.peers.turn(self._unseen_us)
            self._unseen_us = 0
            self._majority_answers = self.replica.majority_answers
        self.clock.advance(step_us, self._majority_answers)

    def _match(self) -> None:
        """What became ready meets who waits."""
        woken = self.machine.queue.woken
        if woken:
            if self.leader.serving and self.leader.line.waiters:
                for name in woken:
                    self.leader.match(name)
                self.wake()
            woken.clear()

    def _follow_roles(self) -> None:
        self._roles_changed = False
        replica = self.replica
        if replica.role == "leader":
            if self.leader.term != replica.term:
                self.leader.begin(replica.term)
        elif self.leader.term:
            self.leader.end()
        if self.clock.leading and not self.leader.term:
            self.clock.follow(self.now_us)
        known = (replica.leader, replica.term)
        if known != self._known_leader:
            if replica.leader is not None:
                self.leader_changes += 1
                self.host.log(f"leader is {replica.leader} in term {replica.term}")
            self._known_leader = known

    def _keep_house(self) -> None:
        self.lifecycle.keep_house()
        self.events.keep_house(self.loop_us)
        self.origin.expire(self.loop_us - self.config.command_timeout_ms * 1000)
        for connection, since_us in list(self.stalled.items()):
            if self.loop_us - since_us > STALL_MAX_US:
                connection.abort()
        if self.paused and not self.outbox_is_full:
            for connection in list(self.paused):
                connection.room_again()

    # --- clients --------------------------------------------------------------------------------

    def client_connected(self, port: ClientPort) -> Connection | None:
        """A client connected; None if it must be closed at once."""
        over = len(self.connections) - self.config.connections_max
        if over >= REFUSED_MAX or self.stopped:
            return None
        connection = BeanstalkConnection(self, port)
        connection.refused = over >= 0
        self.connections_refused += over >= 0
        self.connections[connection] = None
        self.connections_total += 1
        return connection

    def forget(self, connection: Connection) -> None:
        """A connection ended."""
        self.connections.pop(connection, None)
        self.paused.pop(connection, None)
        self.stalled.pop(connection, None)

    def drop_clients(self) -> None:
        """Close every client's connection, between replies; calls fail."""
        for connection in list(self.connections):
            connection.drop()
        for call in list(self.calls):
            call.drop()

    @property
    def outbox_is_full(self) -> bool:
        """Whether clients must not be read until something is applied."""
        return self.origin.bytes > self.outbox_bytes_max

    def refuses_tube(self, tube: bytes) -> bool:
        """Whether a tube that does not exist may not be created."""
        tubes = self.machine.queue.tubes
        return tube not in tubes and len(tubes) >= self.machine.tubes_max

    def waiting_on(self, tube: bytes) -> int:
        """How many clients of this node wait for a job of a tube."""
        return sum(item.is_waiting and item.watches(tube) for item in self.connections)

    def first_deadline_us(self, session: int) -> int:
        """When the first TTR of a session of this node ends, in cluster time; -1 for none."""
        state = self.machine.origins.get(self.index)
        if state is None or state.incarnation != self.origin.incarnation:
            return -1
        held = state.sessions.get(session)
        if held is None or not held.reserved:
            return -1
        return min(map(self.machine.queue.deadline_us, held.reserved.values()))

    def stats(self, cluster: tuple[int, ...]) -> tuple[object, ...]:
        """The values of `stats`: the cluster's from the machine, the others this node's."""
        return facts.stats(self, cluster)

    # --- the other members ----------------------------------------------------------------------

    def place(self, member: str) -> int:
        """The origin index of a member."""
        return self.members.index(member)

    def peer_up(self, peer: str) -> None:
        """A new link to a member is ready."""
        self.turn_begins()
        self.peers.up(peer)
        self.leader.forget_link(self.place(peer))
        self.replica.connected(peer)
        self.wake()

    def peer_down(self, peer: str) -> None:
        """The link to a member ended."""
        self.peers.down(peer)
        self.leader.forget_link(self.place(peer))
        self.replica.disconnected(peer)
        self.wake()

    def peer_frame(self, peer: str, kind: int, payload: bytes) -> None:
        """A frame of a member arrived.

        Raises:
            ProtocolError: no correct member sends this; the host closes the link.
        """
        self.peers.heard(peer)
        if self._roles_changed:
            # Elected a moment ago: what origins send to the leader of this term must find it.
            self._follow_roles()
        if kind == frames.RAFT:
            self.replica.receive(peer, payload)  # it asks for a turn itself
        elif kind == frames.BATCH:
            self.leader.receive_batch(self.place(peer), payload)
            self.wake_for_entry()
        elif kind == frames.WAITS:
            self.leader.receive_waits(self.place(peer), payload)
            self.wake_for_entry()
        elif kind == frames.UNWAITS:
            self.leader.receive_unwaits(self.place(peer), payload)
            self.wake()
        elif kind == frames.NONES:
            self.origin.nones(peer, payload)
        elif kind == frames.BEAT:
            self.peers.beat(peer, frames.decode_beat(payload))
        else:
            raise ProtocolError(f"{peer} sent a frame of the unknown kind {kind}")

    def leader_link(self) -> tuple[str, int, int] | None:
        """Where batches go: (leader, term, generation of the link); None if they cannot."""
        leader = self.replica.leader
        term = self.replica.term
        if leader is None:
            return None
        if leader == self.name:
            return (leader, term, 0) if self.leader.term == term else None
        peer = self.peers.peers[leader]
        return (leader, term, peer.generation) if peer.linked else None

    def send_leader(self, kind: int, frame: bytes) -> bool:
        """Send to the leader; to ourselves it goes the same way, without a link."""
        leader = self.replica.leader
        if leader is None:
            return False
        if leader != self.name:
            return self.host.send_peer(leader, kind, frame)
        try:
            if kind == frames.BATCH:
                self.leader.receive_batch(self.index, frame)
            elif kind == frames.WAITS:
                self.leader.receive_waits(self.index, frame)
            else:
                self.leader.receive_unwaits(self.index, frame)
        except ProtocolError as error:
            # There is no link to close: as after a link that was full, everything comes again.
            self.host.log(f"this node refuses what it sent itself: {error}")
            return False
        return True

    def send_origin(self, origin: int, kind: int, frame: bytes) -> None:
        """Send to an origin."""
        if origin == self.index:
            self.origin.nones(self.name, frame)
        else:
            self.host.send_peer(self.members[origin], kind, frame)

    def send_beat(self, beat: frames.Beat) -> None:
        """Send a beat on every link."""
        frame = frames.encode_beat(beat)
        for name, peer in self.peers.peers.items():
            if peer.linked:
                self.host.send_peer(name, frames.BEAT, frame)

    # --- Outside: what the replica needs --------------------------------------------------------

    def now_s(self) -> float:
        """See `Outside`."""
        return self.host.now_us() / 1_000_000

    def random(self) -> float:
        """See `Outside`."""
        return self.host.random()

    def role_changed(self) -> None:
        """See `Outside`."""
        self._roles_changed = True
        self.wake()

    def rejoined(self) -> None:
        """See `Outside`."""
        self.lifecycle.rejoined()

    def fatal(self, reason: str) -> None:
        """See `Outside`."""
        self.stopped = True
        self.host.fatal(reason)

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """See `Outside`."""
        self.host.log(f"fetching the snapshot at index {index} from {peer}")
        # What the snapshot covers is not applied here again.
        self.events.seal()
        self.host.fetch_snapshot(peer, index, sink, done)

    def send(self, peer: str, message: bytes) -> bool:
        """See `Outside`."""
        return self.host.send_peer(peer, frames.RAFT, message)

    def flush(self) -> None:
        """See `Outside`."""
        self.host.flush_peers()

    def committed(self) -> None:
        """See `Outside`."""
        if self.leader.term:
            self.leader.committed()
            self.origin.send()
            self.leader.propose()
            self.leader.ends.wake()

    def begin_image(self) -> Image:
        """See `Outside`."""
        self.events.seal()
        return image.Image(self.machine)

    def image_bytes(self) -> int:
        """See `Outside`."""
        return accounts.image_bytes(self.machine)

    def log(self, line: str) -> None:
        """See `Outside`."""
        self.host.log(line)

    def load_image(self, chunks: Iterator[bytes]) -> None:
        """See `Outside`."""
        self.digest.drop()
        self.machine = self.versions.load_image(chunks)
        self.machine.queue.woken.clear()
        self.events.attach(self.machine)
        self.peers.image_loaded()
        self.origin.image_loaded()
        self.lifecycle.image_loaded()
        self.host.log(f"loaded a snapshot at index {self.machine.index}")

    def apply(self, index: int, term: int, entry: bytes) -> None:
        """See `Outside`."""
        try:
            flags, time_us, wall_us, sections = c.decode_entry(entry)
        except BeanpoleError as error:
            self.fatal(f"entry {index} cannot be applied: {error}")
            return
        if term == self.replica.term and self.clock.was_up():
            # A leader that falls soon after its election may never have sent a beat.
            self.clock.hear(term, time_us, self.now_us)
        machine = self.machine
        applied = machine.apply(index, flags, time_us, wall_us, sections, self.index)
        if applied.raised:
            self.versions.raised()
        self.events.applied(index, wall_us)
        self.peers.agreement.applied(index, machine.chain)
        for incarnation, number, results in applied.results:
            if incarnation == self.origin.incarnation:
                self.origin.applied(number, results)
        for origin, incarnation, session, request, outcome, job in applied.grants:
            if job is not None and origin == self.index and incarnation == self.origin.incarnation:
                self.origin.granted(session, request, job)
            if self.leader.term:
                self.leader.outcome((origin, incarnation, session), request, outcome)
        if applied.epoch:
            self.leader.epoch_applied(applied.epoch)
        if applied.ups or applied.downs or applied.gaps or applied.digest:
            self._applied_rare(index, applied)

    def _applied_rare(self, index: int, applied: Applied) -> None:
        for origin, incarnation in applied.ups:
            self.leader.incarnation_ended(origin, incarnation - 1)
            if origin == self.index:
                self.lifecycle.went_up(incarnation)
        for origin, incarnation in applied.downs:
            if self.origin.up:
                self.host.log(f"{self.members[origin]} was declared down")
            self.leader.incarnation_ended(origin, incarnation)
            if origin == self.index:
                self.lifecycle.went_down(incarnation)
        if self.index in applied.gaps:
            self.origin.resend()
        if applied.digest:
            self.digest.begin(self.machine)
