"""The table of the hosts that clients connect from: events and sessions carry a host's number.

A name is an address as the client's node saw it, or any other text; it is never parsed. The
assignment of hosts to sessions is in `core.operations`.
"""

from typing import Final

from beanpole.constants import HOSTS_MAX

# The machine version from which sessions carry their host.
HOSTS_SINCE: Final = 4
# The number of no host: of sessions of earlier versions, and of hosts beyond HOSTS_MAX.
UNKNOWN: Final = 0


class Hosts:
    """All hosts that ever had a session. None is removed: stored events refer to them.

    Attributes:
        names: names by their numbers, which are dense from 1 on. It only grows.
    """

    def __init__(self) -> None:
        self.names: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}

    def number(self, name: bytes) -> int:
        """Return the number of a host, adding it if it is new; UNKNOWN if the table is full."""
        number = self._numbers.get(name, UNKNOWN)
        if number == UNKNOWN and len(self.names) < HOSTS_MAX:
            number = len(self.names) + 1
            self.names[number] = name
            self._numbers[name] = number
        return number
