"""Three replicas with scripted messages, disks and time: the world of `replication/*.txt`.

The replicas are real, with PySyncObj beneath. They are driven from outside only: a turn, a message,
a link, a proposal. Each sent message is printed, and so is each visible change of a member.
Messages
are delivered, and time passes, only on command.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from beanpole.replication.consensus import Image, ReplicaConfig, Sink
from beanpole.replication.pysyncobj import messages as m
from beanpole.replication.pysyncobj.backend import PySyncObjReplica
from beanpole.storage.format import Identity
from tests.sim.clock import Clock
from tests.sim.cluster import Applied, ListImage
from tests.sim.disk import Disk

NAMES: Final = ("n0", "n1", "n2")
# The random number of each member's election timeout: n0 stands first and n2 last.
DICE: Final = {"n0": 0.0, "n1": 0.5, "n2": 0.9}
DISK_S: Final = 0.0005
HANGS_S: Final = 1e6
# A message with more entries is printed with its first and last entry only.
ENTRIES_SHOWN_MAX: Final = 4
STEP_S: Final = 0.001
# Small, so that a snapshot is due and the log is cut after a few entries of a kilobyte.
SIZES: Final[dict[str, Any]] = {
    "segment_bytes": 8 * 1024,
    "snapshot_bytes_min": 10**9,
    "log_retain_bytes": 1000,
}
KINDS: Final = {
    m.APPEND: "APPEND",
    m.ACK: "ACK",
    m.VOTE: "VOTE",
    m.VOTE_GRANTED: "VOTE_GRANTED",
    m.TIMEOUT_NOW: "STAND_NOW",
    m.HIGHER_TERM: "HIGHER_TERM",
    m.PRE_VOTE: "PRE_VOTE",
    m.PRE_VOTE_GRANTED: "PRE_VOTE_GRANTED",
    m.OFFER: "OFFER",
    m.REJOINED_AT: "REJOINED_AT",
}
ACKS: Final = {m.MATCHED: "matched", m.REWIND: "rewind", m.ALIVE: "alive"}

Waiting = tuple[str, str, bytes]


def shown(entry: bytes) -> str:
    """Return an entry as text; a long entry is shown by its length."""
    return repr(entry)[1:] if len(entry) <= 20 else f"{len(entry)} bytes"


def _entries(first: int, flat: tuple[Any, ...]) -> str:
    found = []
    for place in range(0, len(flat), 2):
        term, command = flat[place], flat[place + 1]
        text = "no-op" if command == m.NO_OP else shown(command[len(m.OURS) :])
        found.append(f"{first + place // 2}@{term} {text}")
    if len(found) > ENTRIES_SHOWN_MAX:
        found[1:-1] = ["..."]
    return ", ".join(found)


def named(data: bytes) -> str:
    """Return a message by the names of its fields; positions in the log are `index@term`."""
    message = m.decode(data)
    kind, rest = message[0], message[1:]
    words = [KINDS[kind], f"term={rest[0]}"]
    if kind == m.APPEND:
        _, round_, commit, previous, previous_term, asked, flat = rest
        words += [f"round={round_}", f"commit={commit}", f"after={previous}@{previous_term}"]
        words += [f"[{_entries(previous + 1, flat)}]"] if flat else []
        words += ["answer"] if asked else []
    elif kind == m.ACK:
        _, round_, following, what, nonce = rest
        words += [f"round={round_}", ACKS[what], f"next={following}"]
        words += ["rejoining"] if nonce else []
    elif kind in (m.VOTE, m.PRE_VOTE):
        words += [f"last={rest[1]}@{rest[2]}"]
        words += ["transfer"] if rest[3:] == (1,) else []
    elif kind == m.OFFER:
        words += [f"round={rest[1]}", f"snapshot={rest[2]}@{rest[3]}"]
    elif kind == m.REJOINED_AT:
        words += [f"index={rest[2]}"]
    return " ".join(words)


class Member:
    """One replica and the callbacks of its node."""

    def __init__(self, world: "ReplicationWorld", name: str, rejoin: bool) -> None:
        self.world = world
        self.name = name
        self.rejoin = rejoin
        self.applied: Applied = []
        self.fetches: list[tuple[str, int, Sink, Callable[[str | None], None]]] = []
        config = ReplicaConfig(
            node_id=name,
            members=NAMES,
            directory=f"/{name}",
            identity=Identity("golden", name),
            rejoin=rejoin,
            **SIZES,
        )
        self.replica = PySyncObjReplica(config, self, world.disks[name])
        self.replica.start()
        self.standing = self.stand()

    def stand(self) -> tuple[str, int, str | None]:
        """Return the role, the term and the leader."""
        return self.replica.role, self.replica.term, self.replica.leader

    def note(self) -> None:
        """Print the state if it has changed."""
        standing = self.stand()
        if standing != self.standing:
            self.standing = standing
            role, term, leader = standing
            of = f" of {leader}" if role == "follower" and leader else ""
            self.world.say(f"{self.name} is {role}{of} in term {term}")

    # --- Callbacks -------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return virtual time."""
        return self.world.clock.now_s

    def random(self) -> float:
        """Return this member's constant."""
        return DICE[self.name]

    def send(self, peer: str, message: bytes) -> bool:
        """Let the message wait for a command that delivers it."""
        if (self.name, peer) not in self.world.linked:
            return False
        self.world.waiting.append((self.name, peer, message))
        self.world.say_sent(self.name, peer, named(message))
        return True

    def flush(self) -> None:
        """Do nothing: messages wait in the script's world."""

    def committed(self) -> None:
        """Do nothing: proposals come from commands."""

    def apply(self, index: int, term: int, entry: bytes) -> None:
        """Print the applied entry."""
        self.applied.append((index, entry))
        self.world.say(f"{self.name} applies {index}@{term} {shown(entry)}")

    def begin_image(self) -> Image:
        """Copy the applied entries."""
        return ListImage(list(self.applied))

    def image_bytes(self) -> int:
        """Return the size of the entries."""
        return sum(len(entry) for _, entry in self.applied)

    def load_image(self, chunks: Iterator[bytes]) -> None:
        """Replace the machine, and print it."""
        self.world.say(f"{self.name} loads an image of {len(list(chunks))} chunk(s)")

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """Postpone the fetch until a command makes it."""
        self.fetches.append((peer, index, sink, done))
        self.world.say(f"{self.name} asks {peer} for its snapshot of {index}")

    def wake(self) -> None:
        """Do nothing: turns come from commands."""

    def role_changed(self) -> None:
        """Do nothing: the change is printed after the call that caused it."""

    def log(self, line: str, is_warning: bool = False) -> None:
        """Print a log line."""
        self.world.say(f"{self.name} logs: {line}")

    def rejoined(self) -> None:
        """Print that it counts in elections again."""
        self.rejoin = False
        self.world.say(f"{self.name} has rejoined")

    def fatal(self, reason: str) -> None:
        """Print the reason of the stop."""
        self.world.say(f"{self.name} stops: {reason}")


class ReplicationWorld:
    """Three members, their undelivered messages, links, disks and time."""

    def __init__(self) -> None:
        self.clock = Clock(0.0)
        self.disks = {name: Disk(self.clock, seed) for seed, name in enumerate(NAMES, 1)}
        self.members: dict[str, Member] = {}
        self.linked: set[tuple[str, str]] = set()
        self.waiting: list[Waiting] = []
        self._output: list[str] = []
        self._sent: tuple[str, str, str] | None = None  # the message on the last line, if any
        self._quiet = False

    def perform(self, command: str, lines: list[str]) -> list[str]:
        """Perform one command."""
        assert not lines, "no command of this world has lines below it"
        name, *words = command.split()
        self._output, self._sent, self._quiet = [], None, False
        method: Callable[..., None] = getattr(self, "do_" + name.replace("-", "_"))
        method(*words)
        return self._output

    def say(self, line: str) -> None:
        """Add a line to the output."""
        self._sent = None
        self._output.append(line)

    def say_sent(self, sender: str, to: str, text: str) -> None:
        """Print a sent message; the same message to two members is one line."""
        if self._quiet:
            return
        before, self._sent = self._sent, (sender, to, text)
        if before is not None and (before[0], before[2]) == (sender, text) and before[1] != to:
            self._output[-1] = f"{sender} -> {before[1]}, {to}: {text}"
        else:
            self._output.append(f"{sender} -> {to}: {text}")

    # --- commands --------------------------------------------------------------------------------

    def do_start(self, *names: str) -> None:
        """`start n1 n2`: start members (`n1:rejoin` with an empty disk) and link all that run."""
        for name, _, how in (one.partition(":") for one in names):
            if how:
                self.disks[name].wipe()
            self.members[name] = Member(self, name, how == "rejoin")
            self.do_link(name)

    def do_crash(self, name: str) -> None:
        """`crash n1`: stop the member, and lose unsynced data of its disk."""
        self.do_cut(name)
        del self.members[name]
        self.disks[name].crash()

    def do_cut(self, name: str) -> None:
        """`cut n1`: end the links of a member; messages on them are lost."""
        for pair in sorted(self.linked):
            if name in pair:
                self.linked.discard(pair)
                self._tell(*pair)
        self.waiting = [one for one in self.waiting if name not in one[:2]]

    def do_link(self, name: str) -> None:
        """`link n1`: link a member with all others."""
        for other in self.members:
            if other != name:
                for one, peer in ((name, other), (other, name)):
                    self.linked.add((one, peer))
                    self._tell(one, peer)

    def do_disk(self, name: str, what: str) -> None:
        """`disk n1 hangs`: finish no sync until `disk n1 works`."""
        if what == "hangs":
            self.disks[name].latency_s = HANGS_S
        else:
            self.disks[name].hasten(DISK_S)

    def do_propose(self, name: str, *words: str) -> None:
        """`propose n0 a b`: propose entries; `20x1000` is 20 entries of 1,000 bytes."""
        replica = self.members[name].replica
        for word in words:
            count, _, size = word.partition("x")
            many = count.isdigit() and size.isdigit()
            for _ in range(int(count) if many else 1):
                assert replica.can_propose(), f"{name} takes no entry now"
                entry = b"." * int(size) if many else word.encode()
                self.say(f"{name} proposes {replica.propose(entry)} {shown(entry)}")

    def do_transfer(self, name: str, to: str) -> None:
        """`transfer n0 n1`: ask the leader to hand over."""
        begun = self.members[name].replica.transfer(to)
        self.say(f"{name} {'hands over to' if begun else 'does not hand over to'} {to}")

    def do_compact(self, name: str) -> None:
        """`compact n0`: make a snapshot."""
        self._of(name, lambda member: member.replica.compact())

    def do_confirm(self, name: str) -> None:
        """`confirm n0`: ask for the proof that it leads."""
        self.members[name].replica.confirm(lambda: self.say(f"{name} is confirmed"))

    def do_turn(self, *names: str) -> None:
        """`turn n0`: one turn of members, or of all."""
        for name in names or tuple(self.members):
            self._of(name, self._turn)

    def do_deliver(self, *pairs: str) -> None:
        """`deliver n0>n1`: deliver the messages that wait on these links, or on all."""
        for sender, to, message in self._take(pairs):
            self._deliver(sender, to, message)

    def do_drop(self, *pairs: str) -> None:
        """`drop n0>n1`: lose the messages that wait on these links, or on all."""
        self._take(pairs)

    def do_hear(self, name: str, sender: str, kind: str, *numbers: str) -> None:
        """`hear n1 n2 ACK 1 9 4 0 0`: deliver a forged message, given by its numbers."""
        code = next(code for code, known in KINDS.items() if known == kind)
        entries = ((),) if code == m.APPEND else ()
        data = m.encode((code, *map(int, numbers), *entries))
        self.say(f"{name} takes of {sender}: {named(data)}")
        self._of(name, lambda member: member.replica.receive(sender, data))

    def do_fetch(self, name: str) -> None:
        """`fetch n2`: deliver the snapshot that a member has requested."""
        member = self.members[name]
        peer, index, sink, done = member.fetches.pop(0)
        source = self.members[peer].replica.snapshot_source()
        assert source is not None and source[0].index == index, "the peer has another one"
        for chunk in source[1]:
            sink.write(chunk)
        done(None)
        member.note()

    def do_pass(self, milliseconds: str, *names: str) -> None:
        """`pass 50 n0`: let this many milliseconds pass with turns, and deliver nothing."""
        for _ in range(int(milliseconds)):
            self.clock.run(STEP_S)
            self.do_turn(*names)

    def do_settle(self) -> None:
        """`settle`: deliver, turn and sync for two heartbeats at most, until nothing happens."""
        for _ in range(100):
            before = len(self._output)
            self.clock.run(STEP_S)
            self.do_deliver()
            self.do_turn()
            if len(self._output) == before and not self.waiting:
                return

    def do_live(self, milliseconds: str, *lost: str) -> None:
        """`live 500 n0>n1`: let time pass, deliver all but messages on these links; print none."""
        self._quiet = True
        for _ in range(int(milliseconds)):
            self.clock.run(STEP_S)
            if lost:
                self._take(lost)
            self.do_deliver()
            self.do_turn()

    def do_status(self) -> None:
        """`status`: print the state of each member."""
        for name, member in self.members.items():
            replica = member.replica
            log = f"log={replica.first_index}..{replica.last_index}"
            self.say(
                f"{name} {replica.role} term={replica.term} leader={replica.leader or '-'} {log}"
                f" durable={replica.durable_index} commit={replica.commit_index}"
                f" applied={replica.applied_index}" + " rejoining" * replica.rejoining
            )

    # --- inside ----------------------------------------------------------------------------------

    def _of(self, name: str, act: Callable[[Member], None]) -> None:
        """Act on a member if it runs, and print its changed state."""
        member = self.members.get(name)
        if member is not None:
            act(member)
            member.note()

    def _tell(self, name: str, peer: str) -> None:
        """Tell a member whether its link to a peer is up."""
        linked = (name, peer) in self.linked

        def tell(member: Member) -> None:
            (member.replica.connected if linked else member.replica.disconnected)(peer)

        self._of(name, tell)

    @staticmethod
    def _turn(member: Member) -> None:
        member.replica.turn()
        member.replica.slice_image()

    def _take(self, pairs: tuple[str, ...]) -> list[Waiting]:
        """Remove and return the messages that wait on these links, or on all."""
        taken = [one for one in self.waiting if not pairs or f"{one[0]}>{one[1]}" in pairs]
        self.waiting = [one for one in self.waiting if one not in taken]
        return taken

    def _deliver(self, sender: str, to: str, message: bytes) -> None:
        if not self._quiet:
            self.say(f"{to} takes {named(message).split()[0]} of {sender}")
        self._of(to, lambda member: member.replica.receive(sender, message))
