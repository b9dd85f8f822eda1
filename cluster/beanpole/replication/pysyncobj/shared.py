"""What the parts of one replica share: configuration, the way out, the library's object, the time.

No behaviour of its own beyond sending a message and stopping.
"""

from beanpole.replication.consensus import Outside, ReplicaConfig
from beanpole.replication.pysyncobj.core import Core
from beanpole.replication.pysyncobj.journal import LogJournal
from beanpole.replication.pysyncobj.library import Member
from beanpole.replication.pysyncobj.messages import Message, encode
from beanpole.replication.pysyncobj.repairs import Repairs


class Shared:
    """One per replica. `core` is set once everything it needs exists."""

    __slots__ = (
        "config",
        "core",
        "due",
        "journal",
        "majority",
        "members",
        "now_s",
        "outside",
        "peers",
        "repairs",
        "stopped",
    )

    core: Core

    def __init__(
        self, config: ReplicaConfig, outside: Outside, journal: LogJournal, repairs: Repairs
    ) -> None:
        self.config = config
        self.outside = outside
        self.journal = journal
        self.repairs = repairs
        self.members = {name: Member(name) for name in sorted(config.members)}
        self.peers = tuple(name for name in self.members if name != config.node_id)
        # As many members as make a decision, this one included.
        self.majority = len(self.members) // 2 + 1
        # The time of the current step: it stands still within one.
        self.now_s = outside.now_s()
        # Something happened that the next turn must look at.
        self.due = True
        self.stopped = False

    def post(self, peer: str, message: Message) -> bool:
        """Send a message; False if it was not taken."""
        return self.outside.send(peer, encode(message))

    def stop(self, reason: str) -> None:
        """Stop the node: going on would mean guessing."""
        self.stopped = True
        self.outside.fatal(reason)
