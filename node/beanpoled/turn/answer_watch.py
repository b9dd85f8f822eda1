"""Notice that the cluster goes on while the commands of this node are not answered.

Frames that arrive do not show that the path works: over one whose queue drains slowly they are
seconds old, and the node's own batches wait behind the acknowledgements of what was sent before.
Only the return of a batch of this node shows both directions. A leader that has heard nothing of
this node for `node_timeout_ms` declares it down; whatever this node sent in that time has not come
back, so a node that closes its clients after `fence_timeout_ms` without an answer is earlier, if it
sent a command when the leader last heard it. A node whose clients are silent, because they work on
their jobs, has only the frames that arrive to go by.
"""

from typing import Final

from beanpole import commands as c
from beanpole.replication.consensus import LEADER
from beanpoled.origin.batches import KIND_QUIET
from beanpoled.origin.outbox import Origin
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context

# The time for a look, and for the ends of clients' connections.
CLOSING_US: Final = 500_000


class AnswerWatch:
    """The answers to the commands of this node.

    Attributes:
        is_left_behind: whether a batch was not applied here for `fence_timeout_ms` while the
            cluster went on, and no later one has come back in time since.
    """

    def __init__(self, context: Context, peers: Peers, origin: Origin) -> None:
        self._context = context
        self._peers = peers
        self._origin = origin
        self.is_left_behind = False
        self._index = 0  # the last index that this node knows to be committed
        self._grew_us = 0  # when that index last grew
        self._grows_since_us = 0  # since when it grows without a long pause
        self._term = 0
        self._term_us = 0  # when this node noticed the present term
        self._probe_us = 0  # when the last probe was submitted

    def run_periodic(self) -> None:
        """Update whether this node is left behind; called every 100 ms of the loop's time."""
        self._follow_cluster()
        if self.is_left_behind:
            self.is_left_behind = not self._is_answered_in_time()
        else:
            self.is_left_behind = self._misses_an_answer()

    def _follow_cluster(self) -> None:
        """Note terms, and whether entries are committed, by whoever tells of them."""
        context, replica = self._context, self._context.replica
        if replica.term != self._term:
            self._term, self._term_us = replica.term, context.loop_us
        index = max(replica.commit_index, self._peers.applied_index())
        if index > self._index:
            pause_us = context.loop_us - self._grew_us
            if pause_us > context.config.command_timeout_ms * 1000:
                self._grows_since_us = context.loop_us
            self._index, self._grew_us = index, context.loop_us

    def _misses_an_answer(self) -> bool:
        """Whether a batch of this node is overdue, and neither the cluster nor this disk is why.

        A new leader gets all batches again. The cluster goes on if entries were committed until
        `command_timeout_ms` after this one was sent: it did not stop meanwhile, and has not just
        begun again, when a batch takes a moment to be among the first. A new link, which gets all
        batches again, too, has as long to catch up. With many bytes in flight an answer may take
        longer, if it still comes before the node is declared down: at a megabyte per second it is
        slow, but comes.
        """
        context, replica, batch = self._context, self._context.replica, self._origin.oldest()
        if batch is None or not self._origin.up or replica.role == LEADER or replica.room().full:
            return False
        config = context.config
        since_us = max(batch.numbered_us, self._term_us)
        fence_us = config.fence_timeout_ms * 1000
        spare_us = max(0, config.node_timeout_ms * 1000 - CLOSING_US - fence_us)
        if context.loop_us - since_us <= fence_us + min(self._origin.bytes_in_flight, spare_us):
            return False
        if context.loop_us - self._peers.resent_us() <= config.command_timeout_ms * 1000:
            return False
        gone_on_us = self._grew_us - max(since_us, self._grows_since_us)
        return gone_on_us >= config.command_timeout_ms * 1000

    def _is_answered_in_time(self) -> bool:
        """Whether commands come back within `raft_max` again; there are no clients to send any."""
        context = self._context
        if context.replica.role == LEADER:
            return True
        if not (self._origin.up and self._origin.is_idle()):
            return False
        if context.loop_us - self._probe_us <= context.config.raft_max_ms * 1000:
            return True
        self._probe_us = context.loop_us
        self._origin.submit(None, KIND_QUIET, c.NO_COMMAND)
        return False
