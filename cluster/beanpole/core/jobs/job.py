"""The record of one job and its states. How jobs move between states is in `core.jobs.queue`."""

from typing import TYPE_CHECKING, Final

from beanpole.events import NO_TIME

if TYPE_CHECKING:
    from beanpole.core.jobs.tube import Tube
    from beanpole.core.sessions import Session

READY: Final = 1
RESERVED: Final = 2
DELAYED: Final = 3
BURIED: Final = 4
GONE: Final = 0

STATE_NAMES: Final = {
    READY: b"ready",
    RESERVED: b"reserved",
    DELAYED: b"delayed",
    BURIED: b"buried",
}


class Job:
    """One job. Times are cluster time in microseconds.

    `due_us` is the end of the delay or of the TTR, 0 when the job has neither. `order` is the
    place among the buried jobs; of a reserved job it is when its TTR began. `holder` is the
    session that reserved it. `ready_us` and `reserved_us` are when it last became ready and was
    last reserved, NO_TIME if never; a touch moves neither.
    """

    __slots__ = (
        "body",
        "buries",
        "created_us",
        "delay_s",
        "due_us",
        "holder",
        "id",
        "kicks",
        "order",
        "priority",
        "ready_us",
        "releases",
        "reserved_us",
        "reserves",
        "state",
        "timeouts",
        "ttr_s",
        "tube",
    )

    def __init__(
        self,
        job_id: int,
        tube: "Tube",
        priority: int,
        delay_s: int,
        ttr_s: int,
        body: bytes,
        created_us: int,
    ) -> None:
        self.id = job_id
        self.tube = tube
        self.priority = priority
        self.delay_s = delay_s
        self.ttr_s = ttr_s
        self.body = body
        self.created_us = created_us
        self.state = GONE
        self.due_us = 0
        self.order = 0
        self.ready_us = NO_TIME
        self.reserved_us = NO_TIME
        self.holder: Session | None = None
        self.reserves = 0
        self.timeouts = 0
        self.releases = 0
        self.buries = 0
        self.kicks = 0
