"""The parts of one replica share this: configuration, the way out, the library's object, the time.

No behaviour of its own beyond sending a message and stopping.
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

# Of these a member may not say another thing in the same term, whatever becomes of its memory.
_COUNTING: Final = (ACK, VOTE, VOTE_GRANTED)


class Shared:
    """One per replica. `core` is set once everything that it needs exists."""

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
        # As many members as make a decision, this one included.
        self.majority = len(self.members) // 2 + 1
        # The time of the current step: it stands still within one.
        self.now_s = callbacks.now_s()
        # Something happened that the next turn must look at.
        self.due = True
        self.stopped = False
        # Messages that wait for the term to be on the disk, with that term: the newest of a kind
        # for each peer, for every answer replaces the one before.
        self.held: dict[tuple[str, int], tuple[int, Message]] = {}

    def post(self, peer: str, message: Message) -> bool:
        """Send a message; False if it was not taken.

        C2: what counts in a term waits for a disk that does not have term and vote yet.
        """
        if message[0] in _COUNTING and self.journal.term_at > self.journal.wal.durable:
            self.held[peer, message[0]] = (self.core.term, message)
            return True
        return self.callbacks.send(peer, encode(message))

    def release(self) -> None:
        """Send what waited for the disk, if that has the term now."""
        if self.held and self.journal.term_at <= self.journal.wal.durable:
            held, self.held = self.held, {}
            for (peer, _), (term, message) in held.items():
                if term == self.core.term:
                    self.callbacks.send(peer, encode(message))

    def stop(self, reason: str) -> None:
        """Stop the node: going on would mean guessing."""
        self.stopped = True
        self.callbacks.fatal(reason)

    def crash(self, step: str, error: Exception) -> None:
        """Stop the node for an exception that left a step of the library or of a repair."""
        if self.stopped:
            return  # what follows a fatal error is not another one
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
        self.stop(f"{type(error).__name__} in {step} at {place}: {error}")
