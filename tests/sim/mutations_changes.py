"""Planted defects in administrators' changes of jobs by calls.

The patches and their table; see `mutations` and `mutant_table`. Lives of whole nodes catch all;
some of them have such an administrator.
"""

from collections.abc import Callable
from typing import Any, Final

from beanpole import commands as c
from beanpole.core.jobs.job import READY, RESERVED, Job
from beanpole.core.operations import administering as a
from beanpole.pb import jobs_pb2
from beanpoled.rpc import job_changes, jobs
from beanpoled.rpc.job_changes import Changes
from beanpoled.rpc.job_scan import Filter, Scan
from tests.sim.mutant import in_lives
from tests.sim.mutations import Patch


def move_takes_reserved() -> list[Patch]:
    """A job is moved although a worker holds it."""
    wider = {**a.FROM_STATES, a.MOVE: (*a.FROM_STATES[a.MOVE], RESERVED)}
    return [(a, "FROM_STATES", wider), *delete_takes_reserved()]


def delete_takes_reserved() -> list[Patch]:
    """A job is deleted under its worker although the call did not ask for that."""
    read = vars(Changes)["__init__"]

    def wrong(self: Changes, request: Any, machine: Any) -> None:
        other = type(request)()
        other.CopyFrom(request)
        other.reserved = True
        read(self, other, machine)

    return [(Changes, "__init__", wrong)]


def any_queue_is_right() -> list[Patch]:
    """A job is changed although it has left the queue of the filter."""
    give = vars(Changes)["give"]

    def wrong(self: Changes, job_ids: Any, call: Any) -> None:
        queue, self.wanted.queue = self.wanted.queue, b""
        give(self, job_ids, call)
        self.wanted.queue = queue

    return [(Changes, "give", wrong), (Filter, "matches", _matches_in_any_queue())]


def _matches_in_any_queue() -> Callable[[Filter, Job], bool]:
    matches = vars(Filter)["matches"]

    def wrong(self: Filter, job: Job) -> bool:
        queue, self.queue = self.queue, b""
        found = bool(matches(self, job))
        self.queue = queue
        return found

    return wrong


def matched_is_changed() -> list[Patch]:
    """All jobs that matched are counted as changed."""
    add = jobs._add

    def wrong(told: Any, results: Any) -> None:
        changed = told.changed
        add(told, results)
        told.changed = changed + len(results)

    return [(jobs, "_add", wrong)]


def one_is_skipped() -> list[Patch]:
    """A scan skips the first job of each part."""
    run = vars(Scan)["run"]

    async def wrong(self: Scan, wanted: Filter, take: Callable[[Job], bool]) -> None:
        skipped: list[int] = []

        def takes(job: Job) -> bool:
            if not skipped:
                skipped.append(job.id)
                return False
            return take(job)

        await run(self, wanted, takes)

    return [(Scan, "run", wrong)]


def dry_run_is_wet() -> list[Patch]:
    """A dry run makes the changes."""
    tell = vars(jobs.JobAdminServicer)["_tell"]

    async def wrong(self: Any, change: Any, job_ids: Any, dry_run: bool, *others: Any) -> Any:
        return await tell(self, change, job_ids, False, *others)

    return [(jobs.JobAdminServicer, "_tell", wrong)]


def wrong_state_is_done() -> list[Patch]:
    """A job that was not changed because of its state is reported as changed."""
    wider = {**job_changes.OUTCOMES, c.BUSY: jobs_pb2.JOB_OUTCOME_DONE}
    return [(job_changes, "OUTCOMES", wider)]


def moved_is_ready() -> list[Patch]:
    """A moved job is ready, whatever state was requested."""

    def wrong(state: int, value: int) -> int:
        return READY

    return [(a, "state_after", wrong)]


def count_is_no_bound() -> list[Patch]:
    """More jobs are changed than requested."""
    part = vars(jobs.JobAdminServicer)["_part"]

    async def wrong(self: Any, scan: Any, change: Any, jobs_max: int, context: Any) -> Any:
        return await part(self, scan, change, jobs_max + 1, context)

    return [(jobs.JobAdminServicer, "_part", wrong)]


CHANGES: Final = (
    in_lives(
        "move_takes_reserved",
        "changes: a job is moved while a worker has it",
        r"it is to say|a worker had it",
        move_takes_reserved,
        seed=3,
    ),
    in_lives(
        "delete_takes_reserved",
        "changes: a job is deleted while a worker has it, unasked",
        r"was not to lose it",
        delete_takes_reserved,
        seed=4,
    ),
    in_lives(
        "any_queue_is_right",
        "changes: a job of another queue is changed",
        r"in another queue",
        any_queue_is_right,
        seed=3,
    ),
    in_lives(
        "matched_is_changed",
        "changes: a job that was only found is counted as changed",
        r"were done",
        matched_is_changed,
        seed=3,
    ),
    in_lives(
        "one_is_skipped", "changes: a scan misses a job", r"was missed", one_is_skipped, seed=3
    ),
    in_lives(
        "dry_run_is_wet", "changes: a dry run does it", r"a dry run changed", dry_run_is_wet, seed=4
    ),
    in_lives(
        "wrong_state_is_done",
        "changes: a job is told as changed that was not",
        r"were done|other jobs were changed",
        wrong_state_is_done,
        seed=3,
    ),
    in_lives(
        "moved_is_ready",
        "changes: a job is ready after each move",
        r"it is to be \(",
        moved_is_ready,
        seed=9,
    ),
    in_lives(
        "count_is_no_bound",
        "changes: more are changed than were asked for",
        r"more than were asked for",
        count_is_no_bound,
        seed=7,
    ),
)
