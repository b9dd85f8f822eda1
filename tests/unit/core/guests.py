"""A machine at version 4 with sessions of Workq and Gearman, and shorthands for their commands.

Expected results belong in the tests.
"""

from typing import Any

from beanpole import commands as c
from beanpole.constants import U32_MAX
from beanpole.core.jobs.effects import Effect
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.spaces import RANK_NORMAL
from beanpole.events import GEARMAN, WORKQ
from tests.unit.core.cluster import Cluster

TURN, TWIST = b"\x02turn", b"\x02twist"
PING = b"\x01ping"
HIGH, LOW = 0, U32_MAX


class Guests(Cluster):
    """A cluster at version 4: session 1 is beanstalk's, 2 to 4 are Gearman's, 5 and 6 Workq's."""

    def __init__(self, version: int = 4) -> None:
        super().__init__()
        self.lead((c.RAISE, 3), (c.RAISE, version), (c.EPOCH, 1, 0, 10**6, 10**6, 10**6, 2**40))
        self.open(1)
        for session in (2, 3, 4):
            self.enter(session, GEARMAN, TURN)
        for session in (5, 6):
            self.enter(session, WORKQ, PING)

    def enter(self, session: int, protocol: int, *queues: bytes) -> None:
        self.open(session)
        self.do(c.SET_PROTOCOL, session, protocol)
        for queue in queues:
            self.do(c.WATCH, session, queue)

    def submit(
        self,
        session: int = 2,
        unique: bytes = b"",
        foreground: int = 1,
        rank: int = RANK_NORMAL,
        delay_us: int = 0,
        attempts: int = 0,
        queue: bytes = TURN,
        extra: bytes = b"",
        body: bytes = b"data",
    ) -> Any:
        return self.do(
            *(c.SUBMIT, session, queue, rank, delay_us, unique, attempts, foreground, extra, body)
        )

    def submitted(self, session: int = 2, unique: bytes = b"", **fields: Any) -> int:
        """Submit a job, and return its id."""
        job_id, known = self.submit(session, unique, **fields)
        assert known == 0
        assert isinstance(job_id, int)
        return job_id

    def take(self, session: int = 4) -> int:
        result = self.do(c.TAKE, session)
        return result[0] if type(result) is tuple else 0

    def end_reservation(self, job: int, how: str) -> list[Effect]:
        """End the reservation of a job by session 9 of the second node; return the effects."""
        if how == "ttr":
            told = self.pass_s(5)
        elif how == "node":
            told = self.lead((c.NODE_DOWN, 1, 1))
        else:
            commands: dict[str, c.Command] = {
                "release": (c.RELEASE, 9, job, RANK_NORMAL, 0),
                "close": (c.CLOSE, 9, 1),
                "return": (c.RETURN, 9, job),
            }
            told = self.apply([self.section(commands[how], origin=1)], own=1)
            assert told.results[0][2] == [c.OK]
        return [*told.effects, *self.pass_s(0).effects]

    def ext(self, job: int) -> Extension:
        ext = self.machine.queue.jobs[job].ext
        assert ext is not None
        return ext

    def close(self, session: int) -> None:
        assert self.do(c.CLOSE, session, 0) == c.OK
