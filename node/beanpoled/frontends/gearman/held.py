"""The jobs that a worker of Gearman holds, by function, without a look at all of them."""

from typing import Final, final

from beanpole.core.jobs.job import Job, Tube
from beanpole.core.machine import Machine
from beanpole.core.sessions import Session
from beanpoled.frontends.gearman.shared import name_of
from beanpoled.frontends.newly_reserved import NewlyReserved

# Jobs that are noted but no longer held, beside as many as are held, until all are noted anew.
_GONE_MAX: Final = 64


@final
class HeldJobs:
    """The jobs that a worker holds, as far as applied, in the order of reservation.

    Whether a noted job is still held shows when its function is given up.
    """

    __slots__ = (
        "_index",
        "_names",
        "_new",
        "_noted",
        "_session",
        "_tubes",
    )

    def __init__(self) -> None:
        self._session: Session | None = None
        self._index = -1
        self._new = NewlyReserved()
        self._noted = 0  # since all were noted anew: the place of the next one in the order
        self._tubes: dict[Tube, dict[int, int]] = {}  # the ids with their places
        self._names: dict[bytes, list[Tube]] = {}

    def look(self, session: Session | None, machine: Machine) -> None:
        """Note what the worker holds now: once for each applied entry, it does not change between.

        A client may unregister and register a function a thousand times in one chunk.
        """
        if self._index == machine.index:
            return
        self._index = machine.index
        held: dict[int, Job] = {} if session is None else session.reserved
        if self._session is not session or self._noted > 2 * len(held) + _GONE_MAX:
            self._session = session
            self._noted = 0
            self._tubes = {}
            fresh = list(held.values())
            self._new.look(held, machine.queue.now_us)
        else:
            fresh = self._new.take(held, machine.queue.now_us)
        for job in fresh:
            self._tubes.setdefault(job.tube, {})[job.id] = self._noted
            self._noted += 1
        self._names = {}  # an alias may have come or gone
        for tube in self._tubes:
            self._names.setdefault(name_of(machine.queue, tube), []).append(tube)

    def pop(self, names: list[bytes]) -> list[Job]:
        """Return the held jobs of functions, the newest first, and note them no longer.

        This is the order in which gearmand returns them, and in which a lost connection does.
        """
        held: dict[int, Job] = {} if self._session is None else self._session.reserved
        found: list[tuple[int, Job]] = []
        for name in names:
            for tube in self._names.pop(name, []):
                for job_id, place in self._tubes.pop(tube).items():
                    job = held.get(job_id)
                    if job is not None and job.tube is tube:
                        found.append((place, job))
        found.sort(key=_place, reverse=True)
        return [job for _, job in found]


def _place(item: tuple[int, Job]) -> int:
    return item[0]
