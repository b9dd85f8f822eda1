"""The life of each job of another protocol than beanstalk, in the order of the log.

Belongs here: the record of one job, with every effect that a listener could be told of. The witness
fills it in; the verdicts of each protocol compare it with what clients saw.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from beanpole.core.jobs import effects
from beanpole.core.jobs.job import Job
from tests.sim.cluster import Violation

if TYPE_CHECKING:
    from tests.sim.witness import Event

WORKQ_PREFIX: Final = b"\x01"
GEARMAN_PREFIX: Final = b"\x02"
FOREVER_S: Final = float("inf")


class Told(NamedTuple):
    """An effect, and when its entry was first applied (true seconds)."""

    kind: int
    data: bytes
    at_s: float
    entry: int


class Story:
    """One job. `gone_s` is the time at which it was deleted."""

    __slots__ = (
        *("body", "born_index", "born_s", "events", "external_id", "gone_index", "gone_s"),
        *("job", "queue", "rank", "told"),
    )

    def __init__(self, job: Job, at_s: float, index: int) -> None:
        self.job = job.id
        self.queue = job.tube.name
        self.external_id = b"" if job.ext is None else job.ext.external_id
        self.body = job.body
        self.rank = job.rank
        self.born_s = at_s
        self.born_index = index
        self.gone_s = FOREVER_S
        self.gone_index = 2**63
        self.told: list[Told] = []
        self.events: list[Event] = []

    @property
    def end(self) -> Told | None:
        """The first effect that ends the job, which may be known for longer."""
        return next((told for told in self.told if told.kind < effects.NOTIFIED_MIN), None)

    def __repr__(self) -> str:
        return (
            f"job {self.job} of {self.queue!r} {self.external_id!r} {self.body!r} "
            f"[{self.born_s:.4f}, {self.gone_s:.4f}] {self.told}"
        )


class Everything(dict[int, None]):
    """A set of job ids that contains every job: all are listened to."""

    def __contains__(self, job_id: object) -> bool:
        return True

    def __len__(self) -> int:
        return 1


class Stories(dict[int, Story]):
    """All stories, by job id."""

    def born(self, jobs: list[Job], at_s: float, index: int) -> None:
        """Begin the stories of the jobs that an entry made."""
        for job in jobs:
            if job.tube.space.prefix:
                self[job.id] = Story(job, at_s, index)

    def happened(
        self, found: list[effects.Effect], known: set[int], at_s: float, index: int
    ) -> None:
        """Record the effects of an entry; `known` has those of its jobs that still exist."""
        for job_id, kind, data in found:
            story = self.get(job_id)
            if story is None:
                continue
            if story.gone_index < index:
                raise Violation(f"effect {kind} at {index}, behind its end: {story}")
            story.told.append(Told(kind, data, at_s, index))
            if kind < effects.NOTIFIED_MIN and job_id not in known:
                story.gone_s, story.gone_index = at_s, index

    def of(self, prefix: bytes) -> list[Story]:
        """Return the jobs of one space, in the order in which they were made."""
        return [story for story in self.values() if story.queue[:1] == prefix]
