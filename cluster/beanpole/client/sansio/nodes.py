"""The addresses of the nodes and the order in which a client tries them.

Each client has an order of its own, so that the clients of a cluster spread over its nodes. The
first node of that order is the client's home; a client that had to leave it returns when it can.
"""

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from beanpole.addresses import UNIX_PREFIX, listed, split_address
from beanpole.client.interrupts import is_of_handler
from beanpole.client.sansio.steps import Endpoint, Resolve, Steps

# The clients of a restarted node return to it within this time, and not all at once.
RETURN_MIN_S: Final = 10.0
RETURN_MAX_S: Final = 30.0

PORT_MAX: Final = 65535

Address = tuple[str, int] | str
Addresses = Address | Sequence[Address]


def endpoints_of(addresses: Addresses) -> list[Endpoint]:
    """Parse one address or several.

    Args:
        addresses: (host, port), the path of a UNIX socket, "unix:PATH", "host:port,...", or a
            list of these.

    Raises:
        ValueError: there is no address, or a port is not from 1 to PORT_MAX.
    """
    if isinstance(addresses, str):
        found = _read(addresses)
    elif len(addresses) == 2 and _is_port(addresses):
        port = int(str(addresses[1]))
        if not 1 <= port <= PORT_MAX:  # the system takes the port modulo 65536; 0 is a path's
            raise ValueError(f"the port {port} is not from 1 to {PORT_MAX}")
        found = [Endpoint(str(addresses[0]), port)]
    else:
        found = [one for item in addresses for one in endpoints_of(item)]  # type: ignore[arg-type]
    if not found:
        raise ValueError("a client needs an address")
    return list(dict.fromkeys(found))


def _is_port(pair: Sequence[object]) -> bool:
    """Whether the second of two values is a port; programs may have it from the environment."""
    port = pair[1]
    if isinstance(port, str):
        return isinstance(pair, tuple) and port.isdecimal()
    return isinstance(port, int)


def _read(text: str) -> list[Endpoint]:
    if text.startswith(UNIX_PREFIX):
        return [Endpoint(text.removeprefix(UNIX_PREFIX), 0)]
    try:
        return [Endpoint(*split_address(item)) for item in listed(text)]
    except ValueError:
        return [Endpoint(text, 0)]  # as in greenstalk: the path of a socket


class Nodes:
    """The nodes in the order of one client."""

    def __init__(self, addresses: Addresses, spread: bool) -> None:
        """Parse the addresses.

        Args:
            addresses: see `endpoints_of`.
            spread: use a random order of this client; if False, use the given order, and the
                resolver's for the addresses of a name.
        """
        self._named = endpoints_of(addresses)
        self._salt = random.randbytes(8) if spread else b""
        self.known: list[Endpoint] = []  # result of the last look-up, the home first
        self.why: dict[str, str] = {}  # reasons of failures, by address
        # The reasons of each node that has refused the present command's handshakes of TLS.
        self.refused: dict[Endpoint, list[str]] = {}

    def look_up(self, avoid: Endpoint | None) -> Steps[list[Endpoint]]:
        """Resolve all names and return the endpoints, `avoid` as the last.

        Those that have refused the present command follow: the more often, the later.
        """
        found: list[Endpoint] = []
        for one in self._named:
            if not one.port:
                found.append(one)
                continue
            try:
                found += yield Resolve(one.host, one.port)
            except OSError as error:
                if is_of_handler(error):
                    raise
                self.why[str(one)] = str(error)
        found = list(dict.fromkeys(found))
        if self._salt:
            # A hash of each address: the rest of the order is stable when an address comes or goes.
            found.sort(key=lambda one: blake2b(str(one).encode(), salt=self._salt).digest())
        self.known = found
        return sorted(found, key=lambda one: (len(self.refused.get(one, ())), one == avoid))

    def words(self) -> str:
        """Return the reasons of all failures as one text."""
        found = {str(one): told[-1] for one, told in self.refused.items()} | self.why
        return "; ".join(f"{place}: {why}{_hint(place)}" for place, why in found.items())


def _hint(place: str) -> str:
    """Return a hint if a path is rather a mistyped host and port; otherwise nothing."""
    path = place.removeprefix(UNIX_PREFIX)
    if path == place or ":" not in path or "/" in path:
        return ""
    return " (taken for the path of a UNIX socket, as it is not HOST:PORT)"
