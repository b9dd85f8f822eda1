"""The nodes that refuse the handshake of TLS while a client looks for one that does a command.

The session notices a refusal, and connects again. Nodes that cannot be connected to do not belong
here: the search for a node passes them over by itself.
"""

from beanpole.client.patience import PAUSE_MAX_S, PAUSE_MIN_S, Clock, jitter
from beanpole.client.refusal import is_refusal
from beanpole.client.sansio.faults import NoNodeError
from beanpole.client.sansio.nodes import Nodes
from beanpole.client.sansio.steps import Endpoint, Pause, Steps


class Refusals:
    """The refusals of one command: each is a connection that could not be made, noticed late.

    Attributes:
        is_heard: something was read on the present connection, or on the last one.
    """

    def __init__(self, nodes: Nodes, clock: Clock) -> None:
        self._nodes = nodes
        self._clock = clock
        self.is_heard = False
        self.begin(0.0)

    def begin(self, until: float) -> None:
        """Begin a command, whose client has patience until the time `until`."""
        self._until = until
        self._count = 0
        self._is_due = False  # the last attempt was refused
        self._pause_s = PAUSE_MIN_S
        self._nodes.refused.clear()

    def note(self, place: Endpoint | None, error: Exception) -> bool:
        """Note a node that has refused; it is tried last from now on.

        Args:
            place: the node.
            error: the one by which its connection ended.

        Returns:
            Whether it was a refusal, so that the node has done nothing. See `is_refusal`.
        """
        if place is None or self.is_heard or not is_refusal(error):
            return False
        self._nodes.refused.setdefault(place, []).append(str(error))
        self._count += 1
        self._is_due = True
        return True

    def wait(self) -> Steps[None]:
        """Pause before the next node is tried, if the last one has refused.

        Raises:
            NoNodeError: each node was tried, and the patience is over.
        """
        if not self._is_due:
            return
        self._is_due = False
        if self._count >= len(self._nodes.known):
            if self._clock() > self._until:
                raise NoNodeError(f"no node answers: {self._nodes.words()}")
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        yield Pause(jitter(self._pause_s))
