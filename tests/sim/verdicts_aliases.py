"""Judge a queue that two protocols share: what a beanstalk client put and Gearman workers did.

`verdicts_gearman` checks all Gearman workers; this file checks the guarantees that need both sides.
"""

from typing import Final

from beanpole.core.jobs import transitions as q
from beanpole.core.jobs.job import BURIED
from tests.sim import packets as p
from tests.sim.aliases import FUNCTION, MARK, Bridge
from tests.sim.cluster import Violation
from tests.sim.gearman import End, Grant
from tests.sim.gearman_workers import TIMEOUT_S
from tests.sim.verdicts_gearman import GearmanJudge, uses_a_reservation
from tests.sim.witness import Event, Witness

GONE: Final = frozenset({q.FINISH, q.DELETE, q.EXPIRE})


class AliasJudge:
    """The checks of one run."""

    def __init__(self, bridge: Bridge, witness: Witness, lost_events: set[str]) -> None:
        self.bridge = bridge
        self.witness = witness
        self.workers = GearmanJudge(bridge.records, witness, lost_events)
        # Every worker that got a job with a time-out set it to this.
        for grant in bridge.records.grants:
            grant.ttr_s = TIMEOUT_S
        self.bodies = {job: body for job, body in witness.bodies.items() if body.startswith(MARK)}
        self.bodies |= {
            story.job: story.body for story in witness.stories.values() if story.queue == FUNCTION
        }

    def all(self) -> None:
        """Check everything; raises Violation."""
        self.what_is_put_is_made_once()
        self.workers.no_two_workers_have_a_job()
        self.a_grant_is_one_worker_s()
        self.what_is_done_was_done_by_a_worker()
        self.no_job_is_lost()
        self.a_peek_is_true()

    def what_is_put_is_made_once(self) -> None:
        """An answered put is one job, an unanswered one at most one; nothing is invented."""
        made: dict[bytes, int] = {}
        for job, body in self.bodies.items():
            if body in made:
                raise Violation(f"{body!r} was made as {made[body]} and as {job}")
            made[body] = job
        sent = {put.body: put for put in self.bridge.puts}
        for body, job in made.items():
            put = sent.get(body)
            if put is None or self._events(job)[0].at_s < put.at_s:
                raise Violation(f"nobody put {body!r}, which is job {job}")
            if put.word not in (b"", b"INSERTED"):
                raise Violation(f"refused, and made as {job}: {put}")
        for put in self.bridge.puts:
            if put.job and made.get(put.body) != put.job:
                raise Violation(f"lost: {put}, made was {made.get(put.body)}")

    def a_grant_is_one_worker_s(self) -> None:
        """Every job given out was reserved for this worker, and has the body that was put."""
        used: set[int] = set()
        for grant in self.bridge.records.grants:
            if grant.data != self.bodies.get(grant.number):
                raise Violation(f"another job: {grant}")
            if not uses_a_reservation(grant, self._events(grant.number), used):
                raise Violation(f"it was not reserved: {grant}")

    def what_is_done_was_done_by_a_worker(self) -> None:
        """An end that was accepted has happened; a failure buries the job."""
        for grant in self.bridge.records.grants:
            for end in grant.ends:
                wanted = _kind(end)
                happened = any(
                    event.kind == wanted
                    and end.done_s is not None
                    and end.at_s <= event.at_s <= end.done_s
                    for event in self._events(grant.number)
                )
                if end.accepted and not happened and not self.workers.is_swallowed(grant, end):
                    raise Violation(f"accepted, but not done: {grant}")
        for job in self.bodies:
            for event in self._events(job):
                if event.kind not in (*GONE, q.BURY):
                    continue
                if not any(
                    _kind(end) == event.kind and end.at_s <= event.at_s
                    for grant in self._grants(job)
                    for end in grant.ends
                ):
                    raise Violation(f"no worker ended job {job}: {event}")

    def no_job_is_lost(self) -> None:
        """An acknowledged job was done, or has failed and still exists."""
        jobs = self.witness.machine.queue.jobs
        for put in self.bridge.puts:
            if not put.job or any(event.kind in GONE for event in self._events(put.job)):
                continue
            job = jobs.get(put.job)
            if job is None or job.state != BURIED:
                raise Violation(f"lost: {put} is {None if job is None else job.state}")

    def a_peek_is_true(self) -> None:
        """Linearizable: a job that a worker completed is gone for beanstalk; all others exist."""
        for look in self.bridge.looks:
            if look.word not in (b"FOUND", b"NOT_FOUND"):
                continue
            events = self._events(look.job)
            gone_s = min((e.at_s for e in events if e.kind in GONE), default=float("inf"))
            if look.word == b"NOT_FOUND" and look.done_s < gone_s:
                raise Violation(f"it was there: {look}")
            if look.word == b"FOUND" and gone_s < look.at_s:
                raise Violation(f"it was gone at {gone_s:.4f}: {look}")
            done = [
                end.done_s
                for grant in self._grants(look.job)
                for end in grant.ends
                if end.accepted and end.kind == p.WORK_COMPLETE and end.done_s is not None
                if not self.workers.is_swallowed(grant, end)
            ]
            if look.word == b"FOUND" and any(done_s < look.at_s for done_s in done):
                raise Violation(f"a worker had completed it: {look}")

    # --- look-ups ---------------------------------------------------------------------------------

    def _events(self, job: int) -> list[Event]:
        story = self.witness.stories.get(job)
        return self.witness.jobs.get(job, []) if story is None else story.events

    def _grants(self, job: int) -> list[Grant]:
        return self.workers.grants[job]


def _kind(end: End) -> int:
    """Return the transition that an end makes of a job that beanstalk has put."""
    return q.FINISH if end.kind == p.WORK_COMPLETE else q.BURY
