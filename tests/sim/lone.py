"""One real replica among scripted peers: tests send the peers' messages and see every answer.

A cluster of real replicas is in `cluster`.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from beanpole.replication.consensus import Image, ReplicaConfig, Sink
from beanpole.replication.pysyncobj import messages
from beanpole.replication.pysyncobj.backend import PySyncObjReplica
from beanpole.replication.pysyncobj.messages import NO_OP, OURS
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from beanpole.storage.format import Identity
from tests.sim.clock import Clock
from tests.sim.cluster import Applied, ListImage
from tests.sim.disk import Disk

# Independent of the product's constant, because tests need several entries in flight.
IN_FLIGHT_MAX = 8

Fetched = Callable[[str | None], None]


class SlowImage(ListImage):
    """An image whose chunks take time."""

    def __init__(self, lone: "Lone") -> None:
        super().__init__(list(lone.applied))
        self._lone = lone

    def next_chunk(self) -> bytes | None:
        """Return the next chunk, after `chunk_s`."""
        self._lone.clock.now_s += self._lone.chunk_s
        return super().next_chunk()


class Lone:
    """The replica `n0`, its callbacks, and the messages it sent."""

    def __init__(
        self, size: int = 3, repairs: Repairs = ALL_REPAIRS, clock: Clock | None = None, **over: Any
    ) -> None:
        self.clock = clock or Clock()
        self.disk = Disk(self.clock, 5)
        self.peers = tuple(f"n{number}" for number in range(1, size))
        self.repairs = repairs
        self.over = over
        self.sent: list[tuple[str, messages.Message]] = []
        self.takes = True  # whether the links accept messages
        self.applied: Applied = []
        self.loaded = 0
        self.woken = 0
        self.reason: str | None = None
        self.lines: list[str] = []
        self.fetches: list[tuple[str, int, Sink, Fetched]] = []
        self.chunk_s = 0.0
        self.dice = random.Random(3)
        self.start()

    def start(self) -> None:
        """Start the replica (again) on its disk."""
        config = ReplicaConfig(
            node_id="n0",
            members=("n0", *self.peers),
            directory="/n0",
            identity=Identity("lone", "n0"),
            **{"segment_bytes": 64 * 1024, **self.over},
        )
        self.applied = []
        self.replica = PySyncObjReplica(config, self, self.disk, self.repairs)
        if self.peers:
            self.replica.in_flight_max = IN_FLIGHT_MAX
        self.replica.start()
        for peer in self.peers:
            self.replica.connected(peer)

    def crash(self) -> None:
        """Kill the replica; its disk loses what was not synced."""
        self.disk.crash()
        self.sent.clear()

    # --- driving ---------------------------------------------------------------------------------

    def run(self, seconds: float, step_s: float = 0.01) -> None:
        """Let time pass with turns."""
        end_s = self.clock.now_s + seconds
        while self.clock.now_s < end_s - 1e-9:
            self.clock.run(step_s)
            self.replica.turn()
            self.replica.slice_image()

    def receive(self, peer: str, *message: Any) -> None:
        """Let a peer send a message."""
        self.replica.receive(peer, messages.encode(message))

    def disconnect(self, peer: str) -> None:
        """Lose the link to a peer."""
        self.replica.disconnected(peer)

    def take(self, kind: int | None = None, peer: str | None = None) -> list[messages.Message]:
        """Return the messages sent, of one kind or to one peer if given, and forget all of them."""
        sent, self.sent = self.sent, []
        return [
            message for to, message in sent if kind in (None, message[0]) and peer in (None, to)
        ]

    def entries_to(self, peer: str) -> int:
        """Return the number of entries sent to a peer, and forget all messages."""
        return sum(len(message[7]) // 2 for message in self.take(messages.APPEND, peer))

    def propose_each(self, count: int) -> list[int]:
        """Propose entries, each in a turn of its own, and return their indexes."""
        indexes = []
        for _ in range(count):
            indexes.append(self.replica.propose(b"a"))
            self.replica.turn()
        return indexes

    def acknowledge_each(self, peer: str, indexes: list[int]) -> None:
        """Let a peer acknowledge entries one by one, with time between them."""
        for index in indexes:
            self.acknowledge(peer, index)
            self.run(0.06)

    def miss(self, peer: str, count: int, answers: int) -> None:
        """Let a peer ask for the last entries, once per message that came behind the gap."""
        first, round_ = self.replica.last_index - count + 1, self.round
        self.take()
        for _ in range(answers):
            self.receive(peer, messages.ACK, self.replica.term, round_, first, messages.REWIND, 0)
            self.replica.turn()

    def append(
        self,
        peer: str,
        term: int,
        previous: tuple[int, int],
        entries: list[tuple[int, bytes]] | None = None,
        commit: int = 0,
        round_: int = 1,
    ) -> None:
        """Let a leader append (term, entry) pairs after (index, term)."""
        flat: list[Any] = []
        for entry_term, entry in entries or []:
            flat += (entry_term, NO_OP if entry == NO_OP else OURS + entry)
        self.receive(peer, messages.APPEND, term, round_, commit, *previous, 1, flat)

    def acknowledge(self, peer: str, index: int, round_: int | None = None) -> None:
        """Let a peer acknowledge everything up to an index, in the newest round."""
        round_ = self.round if round_ is None else round_
        term = self.replica.term
        self.receive(peer, messages.ACK, term, round_, index + 1, messages.MATCHED, 0)

    @property
    def round(self) -> int:
        """The newest round, taken from the newest append."""
        rounds = [message[2] for _, message in self.sent if message[0] == messages.APPEND]
        return max(rounds, default=2**30)

    def elect(self) -> None:
        """Make the replica the leader, with its first entry acknowledged by all and committed."""
        while not self.take(messages.PRE_VOTE):
            self.run(0.01)
        term = self.replica.term + 1
        self.receive("n1", messages.PRE_VOTE_GRANTED, term)
        if len(self.peers) > 2:
            self.receive("n2", messages.PRE_VOTE_GRANTED, term)
        self.replica.turn()
        for peer in self.peers:
            self.receive(peer, messages.VOTE_GRANTED, term)
        assert self.replica.role == "leader"
        self.run(0.01)
        for peer in self.peers:
            self.acknowledge(peer, self.replica.last_index)
        self.run(0.01)
        assert self.replica.commit_index == self.replica.last_index
        self.take()

    # --- Callbacks -------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return virtual time."""
        return self.clock.now_s

    def random(self) -> float:
        """Return a seeded random number."""
        return self.dice.random()

    def send(self, peer: str, message: bytes) -> bool:
        """Keep a message."""
        if self.takes:
            self.sent.append((peer, messages.decode(message)))
        return self.takes

    def flush(self) -> None:
        """Do nothing: every message is sent at once."""

    def committed(self) -> None:
        """Propose nothing: tests decide what is proposed."""

    def apply(self, index: int, term: int, entry: bytes) -> None:
        """Append an entry to the list."""
        if entry == b"poison":
            raise ValueError(entry)
        self.applied.append((index, entry))

    def begin_image(self) -> Image:
        """Copy the list; each chunk will take `chunk_s`."""
        return SlowImage(self)

    def image_bytes(self) -> int:
        """Return the size of all entries."""
        return sum(len(entry) for _, entry in self.applied)

    def log(self, line: str, is_warning: bool = False) -> None:
        """Keep a line."""
        self.lines.append(line)

    def load_image(self, chunks: Iterator[bytes]) -> None:
        """Count the chunks."""
        self.loaded += len(list(chunks))

    def fetch_snapshot(self, peer: str, index: int, sink: Sink, done: Fetched) -> None:
        """Keep a request for a snapshot."""
        self.fetches.append((peer, index, sink, done))

    def wake(self) -> None:
        """Count the call."""
        self.woken += 1

    def role_changed(self) -> None:
        """Do nothing."""

    def rejoined(self) -> None:
        """Start without `rejoin` from now on."""
        self.over["rejoin"] = False

    def fatal(self, reason: str) -> None:
        """Keep the first reason."""
        self.reason = self.reason or reason
