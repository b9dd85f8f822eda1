"""How long clients wait: for a connection, for a reply, between two attempts, and for a node.

Belongs here: the times that several clients have in common. A client with another reason for a time
defines it itself, as `rpc` does.
"""

import random
from typing import Final

# Longer than one node needs to report that there is no majority (its command_timeout).
REPLY_TIMEOUT_S: Final = 15.0
CONNECT_TIMEOUT_S: Final = 2.0
# Covers an election, and the restart of a cluster that lost its power.
PATIENCE_S: Final = 10.0
# A reserve waits at a node in slices of this length, so that the client notices a node that
# vanished without closing the connection, and can return to its home in between.
WAIT_SLICE_S: Final = 30
# The pause after the first failed attempt; it doubles up to the longest one.
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0


def jitter(longest_s: float) -> float:
    """Return a random time between half of the longest one and all of it.

    Clients that lost the same node then do not come back all at once.
    """
    return longest_s * (0.5 + random.random() / 2)
