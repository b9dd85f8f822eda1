"""Which connections of the gRPC port end when it is crowded, so that newcomers find a place.

This is the choice alone, without sockets: `door` has those.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence

from beanpole.addresses import network_of


class Connection:
    """A connection of a caller.

    Attributes:
        name: the host and the port of its other end.
        network: its address, or network of IPv6; those of one have their places together.
        used_s: when it was opened; of a proved one, when its last call began or ended.
        proved: its caller has proved who it is.
        calls: its calls in progress, of a caller that has proved itself.
    """

    __slots__ = ("calls", "name", "network", "proved", "used_s")

    def __init__(self, name: tuple[bytes, int], address: bytes, used_s: float) -> None:
        self.name = name
        self.network = network_of(address)
        self.used_s = used_s
        self.proved = False
        self.calls = 0


def surplus(connections: Iterable[Connection], kept: int) -> list[Connection]:
    """Return the connections to be closed, so that at most `kept` are left.

    Half of the places are for those that have proved themselves, the other half for newcomers, so
    that neither keep out the other; places that one half does not need are the other's. Within a
    half, the address with the most connections loses one: a caller that opens many displaces its
    own. Of an address, one with calls in progress comes last, else the one that was not used for
    longest. Where callers have one address each, that is the oldest of all.
    """
    halves: tuple[list[Connection], list[Connection]] = ([], [])
    for one in connections:
        halves[one.proved].append(one)
    newcomers, proved = halves
    too_many = len(newcomers) + len(proved) - kept
    if too_many <= 0:
        return []
    of_newcomers = min(too_many, max(0, len(newcomers) - kept // 2))
    return _chosen(newcomers, of_newcomers) + _chosen(proved, too_many - of_newcomers)


def _chosen(connections: Sequence[Connection], count: int) -> list[Connection]:
    """Return `count` of the connections."""
    networks: defaultdict[bytes, list[Connection]] = defaultdict(list)
    for one in sorted(connections, key=_rank, reverse=True):
        networks[one.network].append(one)
    # The largest one first; of equal ones that whose next connection is the first to go.
    heap = [(-len(own), _rank(own[-1]), network) for network, own in networks.items()]
    heapq.heapify(heap)
    found: list[Connection] = []
    while len(found) < count:
        network = heap[0][2]
        own = networks[network]
        found.append(own.pop())
        if own:
            heapq.heapreplace(heap, (-len(own), _rank(own[-1]), network))
        else:
            heapq.heappop(heap)
    return found


def _rank(one: Connection) -> tuple[bool, float]:
    return one.calls > 0, one.used_s
