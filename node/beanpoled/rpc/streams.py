"""The streams of Health/Watch and of reflection: they need no token, and never end by themselves.

Of such calls the number is bounded here, and shared by address.
"""

import asyncio
from collections import Counter
from typing import Any, Final

from beanpole.addresses import address_of, host_of_peer, network_of
from beanpoled.rpc.patience import cancel_call

# Far below CALLS_MAX of `admin`, so that they leave room for all other calls.
STREAMS_MAX: Final = 32


class Streams:
    """The open streams of a server."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[Any], bytes] = {}  # the network of each, the oldest first

    def begin(self, peer: str) -> asyncio.Task[Any] | None:
        """Begin a stream, which is the running task, and return it.

        None: there is no place for it.
        """
        task = asyncio.current_task()
        assert task is not None, "a call has a task"
        network = network_of(address_of(host_of_peer(peer)))
        if len(self._open) >= STREAMS_MAX:
            displaced = chosen(self._open, network)
            if displaced is None:
                return None
            del self._open[displaced]
            cancel_call(displaced)
        self._open[task] = network
        return task

    def end(self, stream: asyncio.Task[Any]) -> None:
        """End a stream; without effect on one that has made room."""
        self._open.pop(stream, None)


def chosen(streams: dict[Any, bytes], newcomer: bytes) -> Any | None:
    """Return the stream that makes room for one of the network `newcomer`; None if none does.

    It is the oldest stream of the network with the most. A network without a stream always gets a
    place. Any other gets one only if it still has fewer than that network afterwards: otherwise
    networks with equal shares would displace each other in turns.
    """
    counts = Counter(streams.values())
    network, most = max(counts.items(), key=lambda item: item[1])
    if counts[newcomer] and counts[newcomer] + 1 >= most:
        return None
    return next(one for one, its in streams.items() if its == network)
