"""State shared by the parts of one replica: configuration, output, the library's object, the time.

Its only behaviour is to send a message and to stop the node.
"""

import traceback
from typing import Final

from beanpole.replication.consensus import Callbacks, ReplicaConfig
from beanpole.replication.pysyncobj.core import Core
from beanpole.replication.pysyncobj.journal import LogJournal
from beanpole.replication.pysyncobj.library import Member
from beanpole.replication.pysyncobj.messages import ACK, VOTE, VOTE_GRANTED, Message, encode
from beanpole.replication.pysyncobj.repairs import Repairs
from beanpole.replication.pysyncobj.room import Room

# Messages that a member must never contradict in the same term, even after it loses its memory.
_COUNTING: Final = (ACK, VOTE, VOTE_GRANTED)


class Shared:
    """The shared state, one per replica. `core` is set once its dependencies exist."""

    __slots__ = (
        "callbacks",
        "config",
        "core",
        "due",
        "held",
        "journal",
        "majority",
        "members",
        "now_s",
        "peers",
        "repairs",
        "room",
        "stopped",
    )

    core: Core

    def __init__(
        self,
        config: ReplicaConfig,
        callbacks: Callbacks,
        journal: LogJournal,
        room: Room,
        repairs: Repairs,
    ) -> None:
        self.config = config
        self.callbacks = callbacks
        self.journal = journal
        self.room = room
        self.repairs = repairs
        self.members = {name: Member(name) for name in sorted(config.members)}
        self.peers = tuple(name for name in self.members if name != config.node_id)
        # The size of a majority, this member included.
        self.majority = len(self.members) // 2 + 1
        # The time of the current step, constant during the step.
        self.now_s = callbacks.now_s()
        # Whether an event requires work in the next turn.
        self.due = True
        self.stopped = False
        # Messages that wait until the term is durable, with that term. Only the newest message of a
        # kind is kept for each peer, because every answer replaces the previous one.
        self.held: dict[tuple[str, int], tuple[int, Message]] = {}

    def post(self, peer: str, message: Message) -> bool:
        """Send a message; return False if it was rejected.

        C2: messages that count in a term are held until term and vote are durable.
        """
        if message[0] in _COUNTING and self.journal.term_at > self.journal.wal.durable:
            self.held[peer, message[0]] = (self.core.term, message)
            return True
        return self.callbacks.send(peer, encode(message))

    def release(self) -> None:
        """Send the held messages, if the term is durable now."""
        if self.held and self.journal.term_at <= self.journal.wal.durable:
            held, self.held = self.held, {}
            for (peer, _), (term, message) in held.items():
                if term == self.core.term:
                    self.callbacks.send(peer, encode(message))

    def stop(self, reason: str) -> None:
        """Stop the node, because it cannot continue safely."""
        self.stopped = True
        self.callbacks.fatal(reason)

    def crash(self, step: str, error: Exception) -> None:
        """Stop the node after an exception in a step of the library or of a repair."""
        if self.stopped:
            return  # a consequence of the first fatal error
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
        self.stop(f"{type(error).__name__} in {step} at {place}: {error}")
