"""The context of a node: the data that all its parts share.

It holds whatever more than two parts read, and the few calls that mean the same to all of them. A
part gets this context and the parts below that it needs, never the whole node. State of a single
part stays in that part.
"""

from collections.abc import Callable

from beanpole.core.machine import Machine
from beanpole.replication.consensus import Replica
from beanpole.replication.dormant import DormantReplica
from beanpoled.config.node import NodeConfig
from beanpoled.disk.disks import Disks
from beanpoled.disk.identity import REJOINING
from beanpoled.host.seam import Host
from beanpoled.shared.clock import ClusterClock


class Context:
    """Data of one node, shared by its parts; all of them act in one loop.

    Attributes:
        name: the id of this node.
        members: the ids of all members, sorted; a member's position is its index as an origin.
        index: the position of this node in `members`.
        knows: the newest machine version that the program knows.
        now_us: monotonic time at the beginning of the turn, or at the last `read_clock`.
        loop_us: the time that the loop has experienced; a pause of the process hardly counts.
        machine: the replicated state; a snapshot that is loaded replaces it.
        loads: how often that has happened.
        replica: does nothing until the node starts.
        clock: this node's knowledge of cluster time.
        turn: the work of a turn; set by the node before any call of `wake`.
        writes_follow: whether the present turn still has to write the replies of clients.
        started: whether its replica has begun to work.
        draining: whether this node refuses puts.
        stopping: whether this node is in its graceful stop.
        stopped: whether it has ceased to act.
    """

    def __init__(self, config: NodeConfig, host: Host, disks: Disks, knows: int) -> None:
        self.config = config
        self.host = host
        self.disks = disks
        self.name = config.node_id
        self.members = tuple(sorted(config.members))
        self.index = self.members.index(self.name)
        self.knows = knows
        self.now_us = host.now_us()
        self.loop_us = 0
        self.machine = Machine()
        self.loads = 0
        # Until the start: the real replica needs all parts, and a disk that knows its cluster.
        rejoining = disks.own.standing == REJOINING
        self.replica: Replica = DormantReplica(self.name, self.members, rejoining)
        self.clock = ClusterClock()
        self.turn: Callable[[], None]
        self.writes_follow = False
        self.started = False
        self.draining = False
        self.stopping = False
        self.stopped = False
        self._turn_is_due = False

    def index_of(self, member: str) -> int:
        """Return the origin index of a member."""
        return self.members.index(member)

    def read_clock(self) -> None:
        """Begin a turn, or a timer's work between turns, with the present time."""
        self.now_us = self.host.now_us()

    def wake(self) -> None:
        """Ask for a turn after the pending input."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self.host.call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._turn_is_due = False
        if not self.stopped:
            try:
                self.host.take_turn(self.turn)
            finally:
                self.writes_follow = False

    def fatal(self, reason: str) -> None:
        """Report the reason in one line and end the process."""
        self.stopped = True
        self.host.fatal(reason)
