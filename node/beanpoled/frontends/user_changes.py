"""The reaction of a node to a change of users: rates, and waits that have lost their right.

This file decides when clients are checked. The rights of a user are in `core.users`;
`core.operations.choosing` gives no job to a session without the right; the package of each protocol
answers a waiting client. A client that does not wait is refused at its next command.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from beanpole.core.users import User
from beanpoled.frontends.client_rates import ClientRates
from beanpoled.frontends.connection import Connection
from beanpoled.shared.context import Context

# Queues of waiting clients that one turn checks: about 2 ms.
LOOKS_PER_TURN_MAX: Final = 2048


class UserChanges:
    """Checks the clients of one node after a change of users."""

    def __init__(self, context: Context, rates: ClientRates) -> None:
        self._context = context
        self._rates = rates
        # Each change replaces the dict, and so does a snapshot.
        self._users: dict[bytes, User] = context.machine.users.rows
        self._left: deque[Connection] = deque()

    def look(self, connections: Iterable[Connection]) -> None:
        """Apply new rates, and answer waits that have lost their right; called in each turn.

        Args:
            connections: all connections of the node.
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
