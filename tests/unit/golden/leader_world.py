"""The leader n0 among scripted members, clients and a log: the world of `leader/*.txt`.

The node is real; its replica is a double that commits on command. The node is driven from outside
only: frames of members, bytes of clients, links, time, commits. The output has the entries that it
proposes, the frames and replies that it sends (except heartbeats), and its log lines.
"""

from collections.abc import Callable
from typing import Final

from beanpole import commands as c
from beanpole.core.operations.table import OPERATIONS
from beanpoled.links import frames
from tests.unit.golden import guests
from tests.unit.node.stage import MEMBERS, SECOND, Port, ScriptedReplica, Stage

# The names of operations, and the words of their fields, without units.
NAMES: Final = {
    code: name
    for name, code in vars(c).items()
    if type(code) is int and code in OPERATIONS and name.isupper() and name not in ("OK", "LEADER")
}
CODES: Final = {name: code for code, name in NAMES.items()}
FIELDS: Final = {
    code: tuple(field.name.removesuffix("_s") for field in entry.fields)
    for code, entry in OPERATIONS.items()
}
# Optional fields of a script's commands.
DEFAULTS: Final = {
    "session": 1,
    "tube": b"default",
    "priority": 0,
    "delay": 0,
    "ttr": 60,
    "body": b"x",
    "lost": 0,
    "state": 0,
    "bound": 1,
}
KINDS: Final = {frames.BATCH: "BATCH", frames.NONES: "NONES"}


def shown(command: c.Command, start_us: int) -> str:
    """Return a command by the names of its fields, without those with their default."""
    code, values = command[0], command[1:]
    words = [NAMES[code]]
    if code in (c.QLESS, c.QLESS_READ):
        return guests.shown_call(command)
    if code == c.EPOCH:
        expiry_floor_us = values[1] - start_us
        return f"EPOCH term={values[0]} floor={seconds(expiry_floor_us)}"
    for field, value in zip(FIELDS[code], values, strict=True):
        if field == "origin":
            value = MEMBERS[value]
        if field == "session" or value != DEFAULTS.get(field):
            text, size = str(value), len(str(value))
            if isinstance(value, bytes):
                text, size = guests.text_of(value), len(value)
            words.append(f"{field}={text if size < 20 else f'{size}bytes'}")
    return " ".join(words)


def read(line: str) -> c.Command:
    """Return the command of a script's line: `PUT session=2 tube=a`."""
    name, *words = line.split()
    given = dict(word.split("=") for word in words)
    values: list[int | bytes] = []
    for field, shape in zip(FIELDS[CODES[name]], OPERATIONS[CODES[name]].shape[1:], strict=True):
        text = given.pop(field, None)
        if text is None:
            value = DEFAULTS[field]
            assert isinstance(value, (int, bytes))
            values.append(value)
        elif shape is int:
            values.append(int(text))
        else:
            size = text.removesuffix("bytes")
            values.append(b"." * int(size) if size.isdigit() else guests.bytes_of(text))
    assert not given, f"{name} has no {', '.join(given)}"
    return (CODES[name], *values)


def seconds(us: int) -> str:
    """Return microseconds as seconds."""
    return f"{us / SECOND:.6f}".rstrip("0").rstrip(".") + "s"


class PacedReplica(ScriptedReplica):
    """A replica that prints proposals, and commits them on command."""

    def __init__(self, world: "LeaderWorld") -> None:
        super().__init__()
        self.world = world
        self.committable = 0  # entries that the next turn commits

    def propose(self, entry: bytes) -> int:
        """Append and print the entry."""
        index = super().propose(entry)
        self.world.say_entry(index, entry)
        return index

    def turn(self) -> None:
        """Commit entries, report them, and then apply them, as the real replica does."""
        count, self.committable = self.committable, 0
        taken, self.proposed = self.proposed[:count], self.proposed[count:]
        if not taken:
            return
        node = self.world.stage.node
        self.commit_index += count
        node.callbacks.committed()
        for entry in taken:
            self.applied_index += 1
            self.world.say(f"applies {self.applied_index}")
            node.callbacks.apply(self.applied_index, self.term, entry)


class LeaderWorld:
    """Member n0, the frames and bytes that reach it, and its output."""

    def __init__(self) -> None:
        self._output: list[str] = []
        self.replica = PacedReplica(self)
        self.stage = Stage(replica=self.replica)
        self.start_us = self.stage.node.context.machine.queue.now_us
        self.clients: dict[str, tuple[Callable[[bytes], None], Port]] = {}
        self.guests: dict[str, str] = {}  # clients of other protocols, and their protocols
        self.known = dict.fromkeys(MEMBERS[1:], c.BASE_VERSION)

    def perform(self, command: str, lines: list[str]) -> list[str]:
        """Perform one command."""
        name, *words = command.split()
        self._output = []
        method: Callable[..., None] = getattr(self, "do_" + name.replace("-", "_"))
        method(*words, *([lines] if name == "batch" else []))
        self._tell()
        return self._output

    def say(self, line: str) -> None:
        """Add a line to the output."""
        self._output.append(line)

    def say_entry(self, index: int, entry: bytes) -> None:
        """Print an entry with all its contents."""
        flags, time_us, _, sections = c.decode_entry(entry)
        refused = " puts refused" * (flags & c.FLAG_PUTS_REFUSED)
        self.say(f"proposes {index} at {seconds(time_us - self.start_us)}{refused}")
        if not sections:
            self.say("  nothing but the time (a TICK)")
        for origin, incarnation, number, commands in sections:
            head = "leader"
            if origin != c.LEADER:
                head = f"{MEMBERS[origin]}.{incarnation} batch {number}"
            words = ", ".join(shown(command, self.start_us) for command in commands)
            self.say(f"  {head}: {words or 'NODE_UP'}")

    # --- commands --------------------------------------------------------------------------------

    def do_lead(self, term: str) -> None:
        """`lead 1`: be elected, with links to all."""
        for peer in MEMBERS[1:]:
            self.stage.node.router.link_up(peer)
        self.stage.become("leader", "n0", int(term))

    def do_follow(self, leader: str, term: str) -> None:
        """`follow n1 2`: another member leads."""
        self.stage.become("follower", leader, int(term))

    def do_link(self, peer: str, state: str) -> None:
        """`link n1 down`: a link ends or is up again."""
        node = self.stage.node
        (node.router.link_up if state == "up" else node.router.link_down)(peer)
        self.stage.run()

    def do_batch(self, origin: str, number: str, *rest: str | list[str]) -> None:
        """`batch n1 2 hint=default:1 first`: a batch with the commands on the lines below."""
        *words, lines = rest
        assert isinstance(lines, list)
        hint: frames.Hint = {}
        incarnation = 1
        for word in words:
            assert isinstance(word, str)
            if word.startswith("hint="):
                tube, count = word.removeprefix("hint=").split(":")
                hint[tube.encode()] = int(count)
            elif word.startswith("incarnation="):
                incarnation = int(word.removeprefix("incarnation="))
        self.stage.batch(
            origin,
            int(number),
            *map(read, lines),
            first="first" in words,
            hint=hint or None,
            incarnation=incarnation,
        )

    def do_waits(self, origin: str, *items: str) -> None:
        """`waits n1 1/1/2`: WAITs of session/request/behind."""
        self._items(origin, frames.WAITS, items)

    def do_unwaits(self, origin: str, *items: str) -> None:
        """`unwaits n1 1/1`: UNWAITs of session/request."""
        self._items(origin, frames.UNWAITS, items)

    def do_commit(self, *words: str) -> None:
        """`commit 1 after=400us`: commit this many entries in flight, or all, after a delay."""
        counts = [word for word in words if word.isdigit()]
        for word in words:
            if word.startswith("after="):
                self.stage.host.us += int(word.removeprefix("after=").removesuffix("us"))
        self.replica.committable = int(counts[0]) if counts else len(self.replica.proposed)
        self.stage.node.context.wake()
        self.stage.run()

    def do_turn(self) -> None:
        """`turn`: one turn without time passing."""
        self.stage.node.context.wake()
        self.stage.run()

    def do_confirm(self) -> None:
        """`confirm`: a majority confirms that this node leads."""
        asked, self.replica.confirmations = self.replica.confirmations, []
        self.say(f"asked {len(asked)} time(s)")
        for done in asked:
            done()
        self.stage.run()

    def do_pass(self, time: str, *silent: str) -> None:
        """`pass 100ms n1`: let time pass in turns; these members send no heartbeats."""
        us = int(time.removesuffix("us").removesuffix("ms")) * (1000 if "ms" in time else 1)
        step_us = 10_000 if us >= 10_000 else 100
        for _ in range(us // step_us):
            for peer in MEMBERS[1:]:
                if peer not in silent:
                    self.stage.node.router.receive(peer, frames.HEARTBEAT, self._heartbeat(peer))
            self.stage.pass_us(step_us, step_us)
            self._tell()

    def do_knows(self, version: str, *members: str) -> None:
        """`knows 4 n1`: the programs of these peers, or of all, know a machine version."""
        self.known |= dict.fromkeys(members or MEMBERS[1:], int(version))

    def do_guest(self, protocol: str, name: str, *words: str) -> None:
        """`guest workq a lease ping 0`: a client of another protocol asks; see `guests`."""
        if name not in self.clients:
            port = Port()
            connection = self.stage.node.frontends[protocol].connected(port)
            assert connection is not None
            self.clients[name] = (connection.received, port)
            self.guests[name] = protocol
        self.clients[name][0](guests.REQUESTS[protocol](list(words)))
        self.stage.run()

    def do_client(self, name: str, *words: str) -> None:
        """`client a put 0 0 60 1|x`: a client of this node sends a line; `|` ends a line."""
        data = " ".join(words).replace("|", "\r\n").encode() + b"\r\n"
        if name not in self.clients:
            connection, port = self.stage.client()
            self.clients[name] = (connection.received, port)
        self.clients[name][0](data)
        self.stage.run()

    # --- inside ----------------------------------------------------------------------------------

    def _items(self, origin: str, kind: int, items: tuple[str, ...]) -> None:
        numbers = [tuple(map(int, item.split("/"))) for item in items]
        self.stage.items(origin, kind, *numbers)

    def _heartbeat(self, peer: str) -> bytes:
        """Return a member's heartbeat that agrees with this node in everything."""
        return frames.encode_heartbeat(
            frames.Heartbeat(
                term=self.replica.term,
                leading=False,
                cluster_us=0,
                wall_us=self.stage.host.wall_us(),
                incarnation=1,
                applied_index=0,
                state_hash=0,
                machine_version=self.known[peer],
                disk_low=False,
                stopping=False,
                digest_index=0,
                digest=0,
                digest_version=0,
                active_version=self.stage.node.context.machine.version,
                kept_index=0,
            )
        )

    def _tell(self) -> None:
        """Print the frames and log lines since the last call."""
        host = self.stage.host
        sent, host.sent = host.sent, []
        for peer, kind, payload in sent:
            if kind == frames.NONES:
                _, _, items = frames.decode_items(payload, 3)
                for session, request, until_us in items:
                    until = seconds(until_us - self.start_us)
                    self.say(f"to {peer} NONE session={session} request={request} until={until}")
            elif kind != frames.HEARTBEAT:
                self.say(f"to {peer} {KINDS[kind]}")
        lines, host.lines = host.lines, []
        for line in lines:
            self.say(f"logs: {line}")
        for name, (_, port) in self.clients.items():
            if output := port.take():
                words = guests.shown(self.guests.get(name, "beanstalk"), output)
                self.say(f"to client {name}: {words}")
