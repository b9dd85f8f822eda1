"""Pipelined reserves that take jobs together: how many may, and which of them get none.

A wait costs a commit for each job. When several jobs are ready, the reserves of a pipeline take
them in one batch instead. `connection` submits and answers them.
"""

from collections.abc import Collection
from typing import Final, final

from beanpole import commands as c
from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.parser import Parser
from beanpoled.frontends.beanstalk.kinds import RESERVES
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.replies import ReplyQueue
from beanpoled.origin.heavy import LIGHT_MAX

# Reserves in one batch: they cost 0.5 ms of every node, and their bodies at the default size fit
# into the default limit of what a client may be owed.
TAKES_MAX: Final = 128

# The length of a reserve that got no job and now waits: (kind, seconds, the time it was received by
# the node's clock). Other reserves are shorter.
WAITS: Final = 3


def most(clients: Clients, watched: Collection[bytes], owed: ReplyQueue) -> int:
    """Return how many reserves may take jobs together; below 2 it is not worth it.

    At most as many as jobs are ready here: a TAKE that finds none only delays its reserve, and
    if no job is ready, clients of other nodes may already wait for the next one.
    """
    if clients.leaving or not clients.origin.knows(c.TAKE):
        return 0
    # Each one checks all watched tubes, and together they count as one command of many steps.
    most = min(TAKES_MAX, LIGHT_MAX // len(watched), owed.room(clients.config.max_job_size))
    if most < 2:
        return 0
    tubes = clients.machine.queue.tubes
    ready = 0
    for name in watched:
        tube = tubes.get(name)
        if tube is not None and not tube.closed:
            ready += tube.ready_count
            if ready >= most:
                return most
    return ready


def row(first: r.Request, most: int, again: list[r.Request], parser: Parser) -> list[r.Request]:
    """Return the reserve `first` and those right behind it, at most `most`.

    Args:
        first: always included.
        most: the largest number of requests to return.
        again: requests that precede the parser's, the next one last. The request that ends the
            row is pushed back here.
        parser: the source of further requests.
    """
    requests = [first]
    while len(requests) < most:
        request = again.pop() if again else parser.next()
        if request is None:
            break
        if request[0] not in RESERVES:
            again.append(request)
            break
        requests.append(request)
    return requests


@final
class Takes:
    """Reserves whose TAKEs are in progress.

    Attributes:
        without: the reserves without a job, the oldest last.
    """

    __slots__ = ("_left", "_since_us", "without")

    def __init__(self, requests: list[r.Request], now_us: int) -> None:
        """Begin with reserves in their order, received at `now_us`."""
        self.without = requests[::-1]
        self._left = len(requests)
        self._since_us = now_us

    def answered(self, with_job: bool) -> bool:
        """Record the result of a TAKE, in the order of the log; return whether it was the last.

        The time-out of the first reserve that must wait counts from its receipt; those behind it
        begin when it is answered, as all pipelined reserves do.
        """
        self._left -= 1
        if with_job:
            self.without.pop()
        if self._left:
            return False
        if self.without:
            first = self.without[-1]
            seconds = first[1] if first[0] == r.RESERVE_TIMEOUT else 0
            self.without[-1] = (first[0], seconds, self._since_us)
        return True
