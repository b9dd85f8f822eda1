"""Reserves that a client sent in a row: how many take jobs together, and which get none.

A wait is a commit for each job. When several jobs are ready, the reserves of a pipeline take them
in one batch instead. How they are submitted and answered is in `connection`.
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

# Reserves of one batch: 0.5 ms of every node, and bodies of the default size in what a client may
# be owed by default.
TAKES_MAX: Final = 128

# The length of a reserve that got no job and waits now: (kind, seconds, since when, by the node's
# clock). Others are shorter.
WAITS: Final = 3


def most(clients: Clients, watched: Collection[bytes], owed: ReplyQueue) -> int:
    """How many reserves may take jobs together; below 2 it is not worth it.

    No more than jobs are ready here: a TAKE that finds none is a reserve that waits longer, and
    where no job is ready, clients of other nodes may be waiting for the next.
    """
    if clients.leaving or not clients.origin.knows(c.TAKE):
        return 0
    # Each of them looks at all watched tubes, and together they are one command of many.
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
    """The reserve `first` and those right behind it, `most` at the most.

    Args:
        first: is among them in any case.
        most: how many may be in the row.
        again: requests that come before the parser's, the next one last. The one that ends the row
            is put there.
        parser: has the others.
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
    """Reserves whose TAKEs are on their way.

    Attributes:
        without: those that have no job, the oldest last.
    """

    __slots__ = ("_left", "_since_us", "without")

    def __init__(self, requests: list[r.Request], now_us: int) -> None:
        """Begin with reserves in their order, received at `now_us`."""
        self.without = requests[::-1]
        self._left = len(requests)
        self._since_us = now_us

    def answered(self, with_job: bool) -> bool:
        """A TAKE has its result, in the order of the log; whether it was the last one.

        The time-out of the first reserve that must wait counts from when it was received; those
        behind it begin when it is answered, as all reserves in a row do.
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
