"""Kinds of requests: the operation of each, and those that are special to a connection.

What is done with them is in `connection`, the numbers and layouts in `protocol.beanstalk.requests`.
"""

from typing import Final

from beanpole import commands as c
from beanpole.protocol.beanstalk import requests as r
from beanpoled.origin.batches import KIND_WAIT

OPERATIONS: Final = {
    r.DELETE: c.DELETE,
    r.RELEASE: c.RELEASE,
    r.BURY: c.BURY,
    r.TOUCH: c.TOUCH,
    r.PEEK: c.PEEK,
    r.KICK_JOB: c.KICK_JOB,
    r.RESERVE_JOB: c.RESERVE_JOB,
    r.STATS_JOB: c.STATS_JOB,
    r.PAUSE_TUBE: c.PAUSE_TUBE,
    r.PEEK_READY: c.PEEK_READY,
    r.PEEK_DELAYED: c.PEEK_DELAYED,
    r.PEEK_BURIED: c.PEEK_BURIED,
}

# What stands behind them is not looked at before they are answered.
ALONE: Final = frozenset((KIND_WAIT, r.KICK, r.STATS, r.STATS_TUBE, r.LIST_TUBES, r.USE, r.WATCH))

# Their replies hold a body.
WITH_BODY: Final = frozenset((r.PEEK, r.RESERVE_JOB))

ABOUT_JOBS: Final = (
    r.DELETE,
    r.RELEASE,
    r.BURY,
    r.TOUCH,
    r.PEEK,
    r.KICK_JOB,
    r.RESERVE_JOB,
    r.STATS_JOB,
    r.PAUSE_TUBE,
)

RESERVES: Final = frozenset((r.RESERVE, r.RESERVE_TIMEOUT))
