"""What a node does when there are other users than before: rates, and waits that lost their right.

Belongs here: when that is looked at. What a user may do is in `core.users`; that no job is given to
a session without the right, in `core.operations.choosing`; how a client that waits is told, in the
package of its protocol. A client that does not wait is refused with its next command.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from beanpole.core.users import User
from beanpoled.frontends.client_rates import ClientRates
from beanpoled.frontends.connection import Connection
from beanpoled.shared.context import Context

# Queues that waiting clients wait for, and of which one turn looks at this many: about 2 ms.
LOOKS_PER_TURN_MAX: Final = 2048


class UserChanges:
    """Looks at the clients of one node when there are other users than before."""

    def __init__(self, context: Context, rates: ClientRates) -> None:
        self._context = context
        self._rates = rates
        # Each change makes another dict, and so does a snapshot.
        self._users: dict[bytes, User] = context.machine.users.rows
        self._left: deque[Connection] = deque()

    def look(self, connections: Iterable[Connection]) -> None:
        """Take new rates, tell the clients that wait and may not; called in each turn.

        Args:
            connections: all of the node.
        """
        users = self._context.machine.users.rows
        if users is not self._users:
            self._users = users
            self._rates.set_users(users)
            self._left = deque(connections)
        if self._left:
            self._look_on()

    def _look_on(self) -> None:
        looks = LOOKS_PER_TURN_MAX
        while self._left and looks > 0:
            looks -= 1 + self._left.popleft().rights_changed()
        if self._left:
            self._context.wake()
