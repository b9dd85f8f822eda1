"""Planted defects of quotas in Gearman and Workq, which only lives with `senders` show.

The patches and their table; see `mutations` and `mutant_table`.
"""

from typing import Any, Final

from beanpole import commands as c
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.job import Job
from beanpole.core.jobs.states import States
from beanpole.core.operations import extended, policy_puts
from beanpole.core.sessions import Session
from beanpole.core.state import MachineState
from beanpole.protocol.workq import replies
from beanpoled.frontends.workq import results
from tests.sim.mutant import in_lives
from tests.sim.mutations import Patch


def gearman_is_beside_quotas() -> list[Patch]:
    """Jobs of Gearman count for no user."""
    usage_of = policy_puts.usage_of

    def wrong(machine: MachineState, session: Session) -> Any:
        is_gearman = session.space.prefix == b"\x02"
        return None if is_gearman else usage_of(machine, session)

    return [(policy_puts, "usage_of", wrong)]


def equal_submissions_need_room() -> list[Patch]:
    """A submission of an existing job counts as one more, until that job ends."""
    join = extended._join

    def wrong(machine: MachineState, job: Job, session: Session, foreground: bool) -> int:
        result = join(machine, job, session, foreground)
        usage = policy_puts.usage_of(machine, session)
        if usage is not None and result == c.OK:
            machine.queue.quotas.count(job.id, len(job.body), usage)
        return result

    return [(extended, "_join", wrong)]


def kept_results_need_no_room() -> list[Patch]:
    """A job of Workq gives its place back when it is done, although it is kept."""
    make_finished = vars(States)["make_finished"]

    def wrong(self: States, job: Job, state: int, result: bytes) -> None:
        ext: Extension | None = job.ext
        if ext is not None and ext.expires_us:
            self.quotas.forget(job.id, len(job.body))
        make_finished(self, job, state, result)

    return [(States, "make_finished", wrong)]


def no_room_is_ok() -> list[Patch]:
    """A client of Workq is told that a job was made for which there was no room."""
    refusal = results.refusal
    return [(results, "refusal", lambda one: replies.OK if one == c.FULL else refusal(one))]


SENDERS: Final = (
    in_lives(
        "gearman_is_beside_quotas",
        "users: jobs of Gearman count for no quota",
        r"and put one more|the quotas of",
        gearman_is_beside_quotas,
        seed=26,
    ),
    in_lives(
        "equal_submissions_need_room",
        "users: an equal submission of Gearman counts, and gives no place back",
        r"and was refused|the quotas of",
        equal_submissions_need_room,
        seed=52,
    ),
    in_lives(
        "kept_results_need_no_room",
        "users: a job of Workq that is kept with its result counts for no quota",
        r"and put one more|the quotas of",
        kept_results_need_no_room,
        seed=52,
    ),
    in_lives(
        "no_room_is_ok",
        "users: a client of Workq is told that a job beyond its quota was made",
        r"told otherwise",
        no_room_is_ok,
        seed=26,
    ),
)
