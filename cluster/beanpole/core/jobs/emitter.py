"""Events: a record of each transition, for the node to take out.

The layout of a record is in `beanpole.events`; the transitions that emit them are in
`core.jobs.queue`.
"""

from typing import Final

from beanpole import events as e
from beanpole.constants import SECOND_US
from beanpole.core.jobs.job import READY, RESERVED, Holder, Job

_pack_event: Final = e.JOINED.pack
_ROUND_UP: Final[int] = SECOND_US - 1


def seconds(time_us: int) -> int:
    """Return a time in whole seconds, rounded up: the unit of events and of beanstalk."""
    return (time_us + _ROUND_UP) // SECOND_US


class Emitter:
    """The events that the node has not yet taken out. The base class of `Tubes`, and so of `Queue`.

    Attributes:
        now_us: cluster time.
        events: the records.
        events_total: the number of events ever, kept or not.
        events_kept: whether the node keeps events, and the names of new tubes.
        externals: the external ids of jobs that have one, for the node to take out with `events`:
            (offset of the event, number of the id's space, id). A record has no room for them.
        details: further fields of events of protocols in which workers have names and clients send
            their time, taken out in the same way: (offset, name of the worker that has or had the
            job, reason as given by the client, time of the client's clock in microseconds since
            1970). The name and the reason are None where there is none.
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
            kind: the kind of the event (`events`).
            before: the previous state of the job.
            job: the job after the transition.
            session: the session that caused it, or that lost the job; None if none.
            reason: the cause, where the kind does not imply it (`events`).
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
            # `seconds(ttr_us)`, inlined: a call here would cost time in every transition.
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
