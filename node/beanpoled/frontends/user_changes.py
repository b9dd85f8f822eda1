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
        # Those with much to check, which is in progress: each keeps a list of it meanwhile.
        self._begun: deque[Connection] = deque()

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
        if self._left or self._begun:
            self._look_on()

    def check_on(self, connection: Connection) -> None:
        """Call the connection's `check_rights` in the next turns, until nothing is left."""
        self._begun.append(connection)
        self._context.wake()

    def _look_on(self) -> None:
        looks = LOOKS_PER_TURN_MAX
        while looks > 0:
            if self._begun:
                looked = self._begun[0].check_rights(looks)
                if not looked:
                    self._begun.popleft()
                looks -= max(1, looked)
            elif self._left:
                looks -= 1 + self._left.popleft().rights_changed()
            else:
                return
        self._context.wake()
