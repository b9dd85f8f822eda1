"""The end of the first TTR of a client's jobs, found without a look at all of its jobs."""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, final

from beanpole.core.sessions import Session
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.newly_reserved import NewlyReserved

# Up to this many jobs are all looked at each time, without a heap: most clients hold fewer.
FEW: Final = 64
# Entries of the heap that are corrected one by one; for more, it is cheaper to make a new one.
_CORRECTED_MAX: Final = 1000


@final
class Deadlines:
    """The deadlines of the jobs that one client holds.

    A heap has at least one entry for each job with a TTR, which is not later than its deadline:
    deadlines of held jobs only become later, by touches, and are looked up when an entry is the
    first. For some seconds after an election deadlines are later than their jobs say, and a touch
    may bring them forward: then all jobs are looked at.
    """

    __slots__ = ("_heap", "_new", "_session")

    def __init__(self) -> None:
        self._session: Session | None = None  # whose jobs are in the heap
        self._heap: list[tuple[int, int]] = []
        self._new = NewlyReserved()

    def first_us(self, clients: Clients, number: int) -> int:
        """Return when the first TTR of a session ends, in cluster time; -1 for none."""
        session = clients.session(number)
        queue = clients.machine.queue
        if session is None or len(session.reserved) <= FEW or queue.now_us < queue.expiry_floor_us:
            self._session = None
            self._heap = []
            return clients.first_deadline_us(number)
        # The state may be another one, from a snapshot. Entries of jobs that are gone add up, too.
        if self._session is not session or len(self._heap) > 2 * len(session.reserved) + FEW:
            self._make(session)
            self._new.look(session.reserved, queue.now_us)
        else:
            for job in self._new.take(session.reserved, queue.now_us):
                if job.due_us:
                    heappush(self._heap, (job.due_us, job.id))
        return self._first_us(session)

    def _make(self, session: Session) -> None:
        self._session = session
        self._heap = [(job.due_us, job.id) for job in session.reserved.values() if job.due_us]
        heapify(self._heap)

    def _first_us(self, session: Session) -> int:
        corrected = 0
        while self._heap:
            due_us, job_id = self._heap[0]
            job = session.reserved.get(job_id)
            if job is not None and job.due_us == due_us:
                return due_us
            corrected += 1
            if corrected > _CORRECTED_MAX:
                self._make(session)
            elif job is None or not job.due_us:
                heappop(self._heap)
            else:
                heapreplace(self._heap, (job.due_us, job_id))
        return -1
