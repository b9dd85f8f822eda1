"""A real node with a scripted replica and a host whose clock only tests advance.

`tests/sim` tests nodes in whole clusters; the stage shows one component one situation.
"""

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

from beanpole import commands as c
from beanpole.core.image.image import Image
from beanpole.core.machine import Machine
from beanpole.replication.consensus import DiskFigures, DiskRoom, LogOnDisk, Role, Sink
from beanpoled.config.node import SETTINGS, NodeConfig
from beanpoled.config.settings import Addresses
from beanpoled.disk import identity
from beanpoled.disk.disks import Disks
from beanpoled.disk.identity import VOTER, DiskIdentity
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from beanpoled.frontends.table import FRONTENDS, Table
from beanpoled.host.seam import UNSYNCED, ProcessStats
from beanpoled.links import frames
from beanpoled.turn.node import Node
from tests.sim.clock import Clock
from tests.sim.disk import Disk
from tests.sim.event_log import encode
from tests.unit.node.timer import Timer

MEMBERS = ("n0", "n1", "n2")
DEFAULT = b"default"
SECOND = 1_000_000
Sent = tuple[str, int, bytes]


def config(**overrides: Any) -> NodeConfig:
    """Return the default configuration of member n0 of three."""
    members = {
        name: Addresses(f"127.0.0.1:{1000 + place}", f"127.0.0.1:{2000 + place}")
        for place, name in enumerate(MEMBERS)
    }
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    values |= {
        "cluster": "stage",
        "node_id": "n0",
        "members": MappingProxyType(members),
        "queue_bytes_max": 2**34,
        "data_dir": "/n0",
        "peer_listen": members["n0"].peer,
        "grpc_listen": members["n0"].grpc,
        "http_listen": "127.0.0.1:1",
    }
    return NodeConfig(**(values | overrides))


class Stopped(BaseException):
    """The node called `fatal`, which never returns; no handler of the node may catch this."""


class StageHost:
    """A `Host` whose clock the test advances."""

    def __init__(self) -> None:
        self.us = 1_000 * SECOND
        self.walls_us = 1_700_000_000 * SECOND
        self.clock = Clock()  # the disk's
        self.files = Disk(self.clock, 1)
        self.sent: list[Sent] = []
        self.takes = True
        self.lines: list[str] = []
        self.reasons: dict[str, str] = {}
        self.clients_open = False
        self.opened: list[str] = []
        self.timers: list[Timer] = []
        self.soon: list[Callable[[], None]] = []

    def now_us(self) -> int:
        return self.us

    def wall_us(self) -> int:
        return self.walls_us

    def random(self) -> float:
        return 0.5

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def take_turn(self, turn: Callable[[], None]) -> None:
        turn()

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.us + delay_us, callback)
        self.timers.append(timer)
        return timer

    def send_peer(self, peer: str, kind: int, payload: bytes) -> bool:
        if self.takes:
            self.sent.append((peer, kind, payload))
        return self.takes

    def link_words(self, peer: str) -> str:
        return self.reasons.get(peer, "is connected")

    def flush_peers(self) -> None:
        pass

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        raise AssertionError("nothing is fetched on this stage")

    def encode_events(self, events: Events, within_us: int = 0) -> list[EventBatch]:
        return encode(events)

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        raise AssertionError("nobody reads events by their time on this stage")

    def open_clients(self, protocol: str) -> None:
        self.clients_open = True
        self.opened.append(protocol)

    def close_clients(self) -> None:
        self.clients_open = False

    def log(self, line: str, level: int = 0) -> None:
        self.lines.append(line)

    def process(self) -> ProcessStats:
        return ProcessStats(1, 0.0, 0.0, b"", b"", b"")

    def exit(self, close: Callable[[], None] | None = None, words: str = "stopped") -> None:
        if close is not None:
            close()
        self.lines += [words, "exit"]

    def watch_disk(self, is_on: bool) -> None:
        """Do nothing: no process ends here."""

    def abandon(self) -> None:
        self.lines += [UNSYNCED, "exit"]

    def fatal(self, reason: str) -> None:
        self.lines.append(reason)
        raise Stopped(reason)


class ScriptedReplica:
    """A `Replica` whose state the test sets; the test also decides when entries are committed."""

    node_id = "n0"
    members = MEMBERS
    rejoining = False
    first_index = 1
    journal_bytes = 0
    snapshot_bytes = 0
    snapshot_behind_bytes = 0
    snapshot_index = 0
    imaging = False

    def __init__(self) -> None:
        self.role: Role = "follower"
        self.newest: tuple[int, bytes] | None = None
        self.leader: str | None = None
        self.term = 0
        self.commit_index = self.applied_index = self.last_index = self.durable_index = 1
        self.majority_answers = False
        self.majority_heard_us = 0
        self.proposed: list[bytes] = []
        self.confirmations: list[Callable[[], None]] = []
        self.received: list[tuple[str, bytes]] = []
        self.space = DiskRoom()
        self.on_receive: Callable[[], None] = lambda: None
        self.matches: dict[str, int] = {}
        self.told_later: dict[int, tuple[str, ...]] = {}
        self.on_disk = LogOnDisk()
        self.disk_hangs = False
        self.transfers: list[str | None] = []
        self.committed: list[Callable[[], None]] = []  # applied in the next turn

    def newest_entry(self) -> tuple[int, bytes] | None:
        return self.newest

    def match_index(self, peer: str) -> int:
        return self.matches.get(peer, 0)

    def log_on_disk(self) -> LogOnDisk:
        return self.on_disk

    def note_disk(self, hangs: bool) -> None:
        self.disk_hangs = hangs

    def disk(self) -> DiskFigures:
        return DiskFigures()

    def room(self) -> DiskRoom:
        return self.space

    def start(self) -> None:
        return

    def turn(self) -> None:
        committed, self.committed = self.committed, []
        for apply in committed:
            apply()

    def slice_image(self) -> None:
        return

    def receive(self, peer: str, message: bytes) -> None:
        self.received.append((peer, message))
        self.on_receive()

    def connected(self, peer: str) -> None:
        return

    def disconnected(self, peer: str) -> None:
        return

    @property
    def entries_in_flight(self) -> int:
        return len(self.proposed)

    def can_propose(self) -> bool:
        return self.role == "leader" and self.entries_in_flight < 8

    def propose(self, entry: bytes) -> int:
        self.last_index += 1
        self.proposed.append(entry)
        return self.last_index

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        self.told_later[index] = members

    def confirm(self, done: Callable[[], None]) -> None:
        self.confirmations.append(done)

    def transfer(self, to: str | None) -> bool:
        self.transfers.append(to)
        return False

    def compact(self) -> None:
        return

    def snapshot_source(self) -> None:
        return None

    def close(self) -> None:
        return


class Port:
    """A `ClientPort` that records the calls of its node."""

    def __init__(self, client_host: bytes = b"10.0.0.1") -> None:
        self.client_host = client_host
        self.client_names: tuple[bytes, ...] = ()
        self.certificate = ""
        self.output = b""
        self.unsent_bytes = 0
        self.closed = False
        self.reading = True

    def write(self, data: bytes) -> None:
        self.output += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def take(self) -> bytes:
        """Return and clear the output."""
        output, self.output = self.output, b""
        return output


class Stage:
    """Member n0 and its environment."""

    def __init__(
        self,
        knows: int = c.MACHINE_VERSION,
        files: Disk | None = None,
        replica: ScriptedReplica | None = None,
        frontends: Table = FRONTENDS,
        **overrides: Any,
    ) -> None:
        self.host = StageHost()
        self.host.files = files or self.host.files
        self.replica = replica or ScriptedReplica()
        wanted = config(**overrides)
        disk = DiskIdentity("stage", "n0", bytes(16), MEMBERS, VOTER, bytes(16))
        if files is None:
            identity.write(self.host.files, wanted.data_dir, disk)
        disks = Disks(self.host.files, wanted, bytes(16))
        self.node = Node(wanted, self.host, disks, knows, frontends)
        self.node.start(self.replica)
        self.run()

    # --- time -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run callbacks of the loop that are due."""
        while self.host.soon:
            soon, self.host.soon = self.host.soon, []
            for callback in soon:
                callback()

    def pass_us(self, us: int, step_us: int = 10_000) -> None:
        """Let time pass in turns."""
        end_us = self.host.us + us
        while self.host.us < end_us:
            self.host.us = min(end_us, self.host.us + step_us)
            if self.replica.majority_answers:
                self.replica.majority_heard_us = self.host.us
            self.host.walls_us += step_us
            self.host.clock.run(step_us / 1e6)
            due = [timer for timer in self.host.timers if timer.due_us <= self.host.us]
            self.host.timers = [timer for timer in self.host.timers if timer not in due]
            for timer in due:
                if not timer.cancelled:
                    timer.callback()
            self.run()

    # --- consensus --------------------------------------------------------------------------------

    def become(self, role: Role, leader: str | None, term: int) -> None:
        """Change the replica's role, leader and term."""
        self.replica.role, self.replica.leader, self.replica.term = role, leader, term
        self.replica.majority_answers = role == "leader"
        self.node.callbacks.role_changed()
        self.run()

    def lead(self, term: int = 1) -> None:
        """Be elected, and serve."""
        for peer in MEMBERS[1:]:
            self.node.router.link_up(peer)
        self.become("leader", "n0", term)
        self.commit()
        assert self.node.leader.term.serving

    def follow(self, leader: str = "n1", term: int = 1) -> None:
        """Follow a leader, with links to all peers."""
        for peer in MEMBERS[1:]:
            self.node.router.link_up(peer)
        self.become("follower", leader, term)

    def commit(self, count: int | None = None) -> None:
        """Apply this node's proposals, the oldest first."""
        while self.replica.proposed and count != 0:
            count = None if count is None else count - 1
            entry = self.replica.proposed.pop(0)
            self.apply(entry)
            self.run()

    def apply(self, entry: bytes) -> None:
        """Apply one committed entry, within a turn as a real replica does; no turn follows it."""
        replica = self.replica
        replica.commit_index += 1
        replica.last_index = max(replica.last_index, replica.commit_index)

        def apply() -> None:
            self.node.callbacks.apply(replica.commit_index, replica.term, entry)
            replica.applied_index = replica.commit_index

        replica.committed.append(apply)
        self.node.context.turn()

    def apply_sections(self, *sections: tuple[int, int, int, tuple[c.Command, ...]]) -> None:
        """Apply an entry of another leader."""
        packed = [(*head, c.pack_commands(commands)) for *head, commands in sections]
        now_us = self.node.context.machine.queue.now_us
        self.apply(c.encode_entry(0, now_us, 0, packed))  # type: ignore[arg-type]
        self.run()

    def proposed(self) -> list[c.Command]:
        """Return the leader's own commands that are proposed and not committed."""
        return [
            command
            for entry in self.replica.proposed
            for origin, _, _, commands in c.decode_entry(entry)[3]
            if origin == c.LEADER
            for command in commands
        ]

    def load(self, machine: Machine) -> None:
        """Replace the machine by an image."""
        image = Image(machine)
        chunks = iter(list(_chunks(image)))
        image.close()
        self.node.callbacks.load_image(chunks)
        self.run()

    # --- origins ----------------------------------------------------------------------------------

    def come_up(self) -> None:
        """Begin an incarnation, as a leader, and apply its NODE_UP."""
        self.pass_us(200_000)
        self.commit()
        assert self.node.origin.up

    def come_up_behind(self) -> None:
        """Follow n1, begin an incarnation, and apply its NODE_UP."""
        self.follow()
        self.node.lifecycle._begin_incarnation()
        self.run()
        self.apply_sections((0, 1, 1, ()))
        assert self.node.origin.up

    def batch(
        self,
        origin: str,
        number: int,
        *commands: c.Command,
        first: bool = False,
        hint: frames.Hint | None = None,
        incarnation: int = 1,
    ) -> None:
        """Receive a batch of another member."""
        frame = frames.encode_batch(
            self.replica.term,
            incarnation,
            number,
            first,
            len(commands),
            frames.pack(hint) if hint else b"",
            c.pack_commands(commands),
        )
        self.node.router.receive(origin, frames.BATCH, frame)
        self.run()

    def items(self, origin: str, kind: int, *items: tuple[int, ...], incarnation: int = 1) -> None:
        """Receive WAITS or UNWAITS of another member."""
        frame = frames.encode_items(self.replica.term, incarnation, items)
        self.node.router.receive(origin, kind, frame)
        self.run()

    def sent(self, kind: int, peer: str | None = None) -> list[bytes]:
        """Return and clear the sent frames of one kind."""
        taken = [item[2] for item in self.host.sent if item[1] == kind and peer in (None, item[0])]
        self.host.sent = [item for item in self.host.sent if item[1] != kind]
        return taken

    # --- clients ----------------------------------------------------------------------------------

    def client(self, data: bytes = b"") -> tuple[BeanstalkConnection, Port]:
        """Connect a client and send its first bytes."""
        port = Port()
        connection = self.node.frontends["beanstalk"].connected(port)
        assert isinstance(connection, BeanstalkConnection)
        if data:
            connection.received(data)
            self.run()
        return connection, port


def _chunks(image: Image) -> Iterator[bytes]:
    while (chunk := image.next_chunk()) is not None:
        yield chunk


def leading() -> Stage:
    """Return a leader; n1 and n2 are up with sessions 1 to 3 each; their next batch is 2."""
    stage = Stage()
    stage.lead()
    for peer in MEMBERS[1:]:
        stage.batch(peer, 1, *((c.OPEN, session) for session in (1, 2, 3)), first=True)
    stage.commit()
    return stage


def put(
    session: int = 1, tube: bytes = DEFAULT, priority: int = 0, body: bytes = b"x"
) -> c.Command:
    """Return a PUT of a ready job."""
    return (c.PUT, session, tube, priority, 0, 60, body)


def ready(stage: Stage, tube: bytes = DEFAULT) -> int:
    """Return the number of ready jobs in a tube."""
    found = stage.node.context.machine.queue.tubes.get(tube)
    return 0 if found is None else found.ready_count


def grants(stage: Stage) -> list[tuple[int, int, int]]:
    """Return (origin, session, request) of the GRANTs in flight."""
    return [
        (command[1], command[3], command[4])
        for command in stage.proposed()
        if command[0] == c.GRANT
    ]
