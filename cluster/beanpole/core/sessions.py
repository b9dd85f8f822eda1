"""The replicated records of clients: sessions, and the origins (nodes) that hold them.

The commands of sessions are in `core.operations`; the steps of their start and end are in
`core.state`.
"""

from typing import Final

from beanpole.core.jobs.job import Holder, Tube
from beanpole.core.jobs.spaces import Space
from beanpole.events import BEANSTALK, NO_REASON

ATTACHED: Final = 1
DETACHED: Final = 2  # disconnected, but resumable until `detached_until_us`
DEAD: Final = 3  # ended; its jobs are returned within the machine's bounded work


class Session(Holder):
    """One client's session.

    A session is addressed by its attachment (origin, incarnation of the origin, number there).
    RESUME gives it a new attachment; commands of the old attachment no longer find it. Its jobs are
    returned in reverse order of reservation.

    Attributes:
        serial: identifies the session for all its life, whatever its attachment.
        space: the space of its protocol.
        used: the tube for puts; None for none, which only a space without a default queue allows.
        watched: the tubes for reserves, by name; they may be none in such a space.
        state: ATTACHED, DETACHED or DEAD.
        epoch: the number of its attachments so far.
        reason: why its last attachment ended (`events.CONNECTION_LOST`, `NODE_DOWN`), for the
            events of its returned jobs.
        request_granted: the last request of this attachment that a GRANT answered.
        secret: the secret by which the session can be resumed; empty if it cannot.
        grace_us: how long it can be resumed after its connection is lost.
        detached_until_us: when a detached session ends, in cluster time.
        user: the name of its user; empty for none.
        token: the digest of the token by which it was authenticated; if a rule assigned the user,
            the user's birth (`core.users`). It is empty exactly if the name is.
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
    """One node as a source of batches: its current incarnation and the number of its next batch."""

    __slots__ = ("alive", "incarnation", "index", "next_number", "sessions")

    def __init__(self, index: int) -> None:
        self.index = index
        self.incarnation = 0
        self.next_number = 1
        self.alive = False
        self.sessions: dict[int, Session] = {}
