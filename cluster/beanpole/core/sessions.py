"""Clients as the cluster knows them: sessions, and the origins (nodes) that hold them.

What a session's commands do is in `core.operations`; when a session ends, in `core.machine`.
"""

from typing import Final

from beanpole.core.jobs.job import Holder, Tube
from beanpole.core.jobs.spaces import Space
from beanpole.events import BEANSTALK, NO_REASON

ATTACHED: Final = 1
DETACHED: Final = 2  # lost, but it may be resumed until `detached_until_us`
DEAD: Final = 3  # ended; its jobs are returned within the machine's bounded work


class Session(Holder):
    """One client's session.

    It is addressed by its attachment (origin, incarnation of the origin, number there). RESUME
    gives a session a new attachment; commands of the old one no longer find it. `serial` is its own
    for as long as it lives, whichever attachment holds it. `reason` is what
    ended its last attachment (`events.CONNECTION_LOST`, `NODE_DOWN`), for the jobs that return;
    they return from the last that was reserved. `space` is that of its protocol; where that has no
    default queue, a session may use none (`used` is None) and watch none. `user` is whose it is,
    empty for nobody's; `token` is the digest of the token by which it became that, empty if that
    was by a rule (`core.users`).
    """

    __slots__ = (
        "detached_until_us",
        "epoch",
        "grace_us",
        "reason",
        "request_granted",
        "secret",
        "space",
        "state",
        "token",
        "used",
        "user",
        "watched",
    )

    def __init__(
        self, serial: int, origin: int, incarnation: int, number: int, space: Space
    ) -> None:
        super().__init__(serial, BEANSTALK, origin, incarnation, number)
        self.space = space
        self.leased = space.leased
        self.epoch = 1
        self.state = ATTACHED
        self.reason = NO_REASON
        self.used: Tube | None = None
        self.watched: dict[bytes, Tube] = {}
        self.request_granted = 0
        self.secret = b""
        self.user = b""
        self.token = b""
        self.grace_us = 0
        self.detached_until_us = 0


class Origin:
    """One node as a source of batches: its current incarnation and the next batch's number."""

    __slots__ = ("alive", "incarnation", "index", "next_number", "sessions")

    def __init__(self, index: int) -> None:
        self.index = index
        self.incarnation = 0
        self.next_number = 1
        self.alive = False
        self.sessions: dict[int, Session] = {}
