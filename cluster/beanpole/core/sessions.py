"""What the cluster knows of clients: sessions, and the origins (nodes) that hold them.

What a session's commands do is in `core.operations`; when a session ends, in `core.machine`.
"""

from typing import TYPE_CHECKING, Final

from beanpole.events import BEANSTALK, NO_REASON

if TYPE_CHECKING:
    from beanpole.core.jobs.job import Job
    from beanpole.core.jobs.tube import Tube

ATTACHED: Final = 1
DETACHED: Final = 2  # lost, but it may be resumed until `detached_until_us`
DEAD: Final = 3  # ended; its jobs are returned within the machine's bounded work


class Session:
    """One client's session.

    It is addressed by its attachment (origin, incarnation of the origin, number there). RESUME
    gives a session a new attachment; commands of the old one no longer find it. `serial` is its own
    for as long as it lives, whoever holds it. `reason` is what
    ended its last attachment (`events.CONNECTION_LOST`, `NODE_DOWN`), for the jobs that return.
    """

    __slots__ = (
        "detached_until_us",
        "epoch",
        "grace_us",
        "incarnation",
        "number",
        "origin",
        "protocol",
        "reason",
        "request_granted",
        "reserved",
        "secret",
        "serial",
        "state",
        "used",
        "watched",
    )

    def __init__(
        self, serial: int, origin: int, incarnation: int, number: int, tube: "Tube"
    ) -> None:
        self.serial = serial
        self.origin = origin
        self.incarnation = incarnation
        self.number = number
        self.protocol = BEANSTALK
        self.epoch = 1
        self.state = ATTACHED
        self.reason = NO_REASON
        self.used = tube
        self.watched: dict[bytes, Tube] = {tube.name: tube}
        # In the order of reservation: a dead session's jobs return from the end.
        self.reserved: dict[int, Job] = {}
        self.request_granted = 0
        self.secret = b""
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
