"""The hosts from which clients come: a number for each name, which events and sessions carry.

Belongs here: the table. A name is an address as the client's node saw it, or any other text; nobody
looks into it. Which session has which host is decided in `core.operations`.
"""

from typing import Final

from beanpole.constants import HOSTS_MAX

# The machine version from which a session knows its host.
HOSTS_SINCE: Final = 4
# The number of no host: of sessions of earlier versions, and of hosts beyond HOSTS_MAX.
UNKNOWN: Final = 0


class Hosts:
    """All hosts that ever had a session. None is forgotten: events that are kept name them.

    Attributes:
        names: by their numbers, which are dense from 1 on. It only grows.
    """

    def __init__(self) -> None:
        self.names: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}

    def number(self, name: bytes) -> int:
        """The number of a host, which may be new; UNKNOWN if it is one too many."""
        number = self._numbers.get(name, UNKNOWN)
        if number == UNKNOWN and len(self.names) < HOSTS_MAX:
            number = len(self.names) + 1
            self.names[number] = name
            self._numbers[name] = number
        return number
