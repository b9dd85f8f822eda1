"""Spaces of three invented protocols, with features that the beanstalk protocol lacks.

Their rules and shorthands for their commands belong here. Expected results belong in the tests.
"""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import DONE
from beanpole.core.jobs.spaces import ATTACH, REFUSE, SPACES, Rules
from tests.unit.core.cluster import Cluster

# Three protocols: one whose leases belong to sessions and without a default queue, one whose leases
# belong to no session, and one with a default queue.
LEASED, NOBODY, DEFAULTED = 101, 102, 103
ROWS = {
    LEASED: Rules((LEASED,), b"\x11", 300, b"", True, ATTACH),
    NOBODY: Rules((NOBODY,), b"\x12", 20, b"", False, REFUSE),
    DEFAULTED: Rules((DEFAULTED,), b"\x13", 20, b"\x13main", True, REFUSE),
}
QUEUES = {LEASED: b"\x11q", NOBODY: b"\x12q", DEFAULTED: b"\x13q"}
SECOND = 1_000_000


def add_spaces(patch: pytest.MonkeyPatch) -> None:
    """Add the spaces to all machines made from now on."""
    for number, rules in ROWS.items():
        patch.setitem(SPACES, number, rules)
        patch.setitem(e.PROTOCOL_NAMES, number, f"foreign{number}")
        patch.setitem(e.PROTOCOL_SINCE, number, 3)


class Foreign(Cluster):
    """A cluster at version 3; session 1 speaks beanstalk, the others the given protocol."""

    def __init__(self, protocol: int = LEASED) -> None:
        super().__init__()
        self.protocol = protocol
        self.queue = QUEUES[protocol]
        self.lead((c.RAISE, 3), (c.EPOCH, 1, 0, 10**6, 10**6, 10**6, 2**40))
        self.open(1)
        for session in (2, 3):
            self.enter(session, protocol)

    def enter(self, session: int, protocol: int) -> None:
        """Open a session that watches and uses its protocol's queue."""
        self.open(session)
        assert self.do(c.SET_PROTOCOL, session, protocol) == c.OK
        assert self.do(c.WATCH, session, QUEUES[protocol]) == c.OK

    def add(
        self,
        external_id: bytes = b"",
        rank: int = 0,
        delay_us: int = 0,
        ttr_us: int = 60 * SECOND,
        ttl_us: int = 0,
        attempts: int = 0,
        failures: int = 0,
        body: bytes = b"body",
        session: int = 2,
        queue: bytes | None = None,
    ) -> Any:
        return self.do(
            *(c.ADD, session, self.queue if queue is None else queue, rank, delay_us, ttr_us),
            *(ttl_us, external_id, attempts, failures, body),
        )

    def added(self, external_id: bytes = b"", **fields: Any) -> int:
        """Add a job, and return its id."""
        job_id, known = self.add(external_id, **fields)
        assert known == 0
        assert isinstance(job_id, int)
        return job_id


def take(cluster: Foreign, session: int = 2) -> int:
    result = cluster.do(c.TAKE, session)
    return result[0] if type(result) is tuple else 0


def finish(
    cluster: Foreign, job: int, state: int = DONE, result: bytes = b"", session: int = 2
) -> int:
    answer = cluster.do(c.FINISH, session, job, state, result)
    assert isinstance(answer, int)
    return answer
