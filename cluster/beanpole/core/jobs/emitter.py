"""Events: a record of each transition, for the node to take out.

What a record holds is in `beanpole.events`; that each transition emits one is `core.jobs.queue`'s.
"""

from typing import Final

from beanpole import events as e
from beanpole.constants import SECOND_US
from beanpole.core.jobs.job import READY, RESERVED, Holder, Job

_pack_event: Final = e.JOINED.pack
_ROUND_UP: Final[int] = SECOND_US - 1


def seconds(time_us: int) -> int:
    """A time in whole seconds, rounded up: the unit of events and of the beanstalk protocol."""
    return (time_us + _ROUND_UP) // SECOND_US


class Emitter:
    """The events so far. `Tubes`, and so `Queue`, are made of it.

    Attributes:
        now_us: cluster time.
        events: the records.
        events_total: how many there ever were, kept or not.
        events_kept: whether the node wants them, and the names of new tubes.
        externals: the external ids of jobs that have one, for the node to take out with `events`:
            (offset of the event, number of the id's space, id). A record has no room for them.
        details: of events of protocols with named workers and a clock of their clients, in the
            same way: (offset, name of the worker that has or had the job, reason in the words of a
            client, time of the client's clock in microseconds since 1970). None where there is no
            worker, or no such reason.
    """

    def __init__(self) -> None:
        self.now_us = 0
        self.events = bytearray()
        self.events_total = 0
        self.events_kept = True
        self.externals: list[tuple[int, int, bytes]] = []
        self.details: list[tuple[int, bytes | None, bytes | None, int]] = []

    def emit(
        self, kind: int, before: int, job: Job, session: Holder | None, reason: int = e.NO_REASON
    ) -> None:
        """Append the event of a transition that is complete.

        Args:
            kind: what happened (`events`).
            before: the state that the job had.
            job: the job as it is now.
            session: the one that did it, or lost it; None if none.
            reason: why, where the kind does not say it (`events`).
        """
        self.events_total += 1
        if not self.events_kept:
            return
        wait_us = run_us = e.NO_TIME
        if before == RESERVED:
            if kind != e.TOUCHED:
                run_us = self.now_us - job.reserved_us
        elif before == READY and kind == e.RESERVED:
            wait_us = self.now_us - job.ready_us
        protocol, place, incarnation, number = e.NO_PROTOCOL, e.NO_ORIGIN, 0, 0
        if session is not None:
            protocol, place = session.protocol, session.place
            incarnation, number = session.incarnation, session.number
        self.events += _pack_event(
            kind | protocol << 8 | before << 16 | job.state << 24 | reason << 32 | place << 40,
            job.tube.number,
            job.id,
            job.rank | seconds(job.delay_us) << 32 if job.delay_us else job.rank,
            # The same of the TTR, in place: each call in here is paid with every transition.
            (job.ttr_us + _ROUND_UP) // SECOND_US | len(job.body) << 32,
            incarnation,
            number,
            job.reserves | job.timeouts << 32,
            job.releases | job.buries << 32,
            job.kicks,
            wait_us,
            run_us,
            job.ready_us,
        )
        ext = job.ext
        if ext is not None and ext.external_id:
            self.externals.append((self.events_total - 1, ext.home.number, ext.external_id))
