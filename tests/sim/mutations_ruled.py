"""Planted defects of policies of Gearman's and Workq's queues: rules that count for tubes alone.

The patches and their table; see `mutations` and `mutant_table`. `mutations_rules` has the defects
of the rules themselves.
"""

from typing import Any, Final

from beanpole.core.jobs.attempts import Attempts
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.policies import Policy
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.states import States
from beanpole.core.operations import policy_puts
from tests.sim.mutant import in_lives
from tests.sim.mutations import Patch
from tests.sim.verdicts_policies import LOST


def limits_of_tubes_alone() -> list[Patch]:
    """Queues of other protocols than beanstalk grow beyond their limits."""
    admits = vars(policy_puts)["admits"]

    def wrong(machine: Any, session: Any, name: bytes, policy: Policy, size: int) -> bool:
        return bool(session.space.prefix or admits(machine, session, name, policy, size))

    return [(policy_puts, "admits", wrong)]


def drops_by_id() -> list[Patch]:
    """A full queue of Gearman drops the job with the smallest id, wherever it stands."""

    def wrong(machine: Any, tube: Any) -> int:
        keys = [tube.ready.last()]
        while (key := tube.ready.last_below(keys[-1])) is not None:
            keys.append(key)
        return int(min(keys, key=lambda key: machine.queue.ready_job(key).id))

    return [(policy_puts, "_oldest_ready", wrong)]


def jobs_of_others_have_no_ttr() -> list[Patch]:
    """The default TTR of a queue is that of beanstalk's jobs alone."""
    put = Queue.put

    def wrong(
        self: Queue,
        tube: Any,
        rank: int,
        delay_us: int,
        ttr_us: int,
        body: bytes,
        session: Any,
        ext: Extension | None = None,
    ) -> Any:
        return put(self, tube, rank, delay_us, 0 if ext else ttr_us, body, session, ext)

    return [(Queue, "put", wrong)]


def rates_of_tubes_alone() -> list[Patch]:
    """Jobs of other protocols than beanstalk are given out at any rate."""
    count = States.count_delivery

    def wrong(self: States, tube: Any) -> None:
        if not tube.space.prefix:
            count(self, tube)

    return [(States, "count_delivery", wrong)]


def lost_attempts_of_gearman_are_free() -> list[Patch]:
    """A job of Gearman whose workers are lost one after the other is given out for ever."""
    may_come_back = vars(Queue)["_may_come_back"]

    def wrong(self: Queue, job: Any, ext: Extension, holder: Any, reason: int) -> bool:
        rows = self.policies.rows
        if reason in LOST:
            self.policies.rows = {}
        comes_back = may_come_back(self, job, ext, holder, reason)
        self.policies.rows = rows
        return bool(comes_back)

    return [(Queue, "_may_come_back", wrong)]


def last_attempt_is_taken() -> list[Patch]:
    """A job of Gearman fails one attempt too early."""
    attempts_max = vars(Attempts)["attempts_max"]

    def wrong(self: Attempts, job: Any, ext: Extension) -> int:
        most = int(attempts_max(self, job, ext))
        return max(1, most - 1) if most else 0

    return [(Attempts, "attempts_max", wrong)]


RULED: Final = (
    in_lives(
        "limits_of_tubes_alone",
        "ruled queues: Gearman's and Workq's exceed their limits",
        r"ruled' has \d+ jobs",
        limits_of_tubes_alone,
        seed=19,
    ),
    in_lives(
        "drops_by_id",
        "ruled queues: a job that came back is dropped as if it had never left",
        r"it is to be Due\(kind=10, reason=9",
        drops_by_id,
        seed=35,
    ),
    in_lives(
        "jobs_of_others_have_no_ttr",
        "ruled queues: a job of Gearman does not have the TTR of its queue",
        r"its TTR is 0 s, and is to be",
        jobs_of_others_have_no_ttr,
        seed=15,
    ),
    in_lives(
        "rates_of_tubes_alone",
        "ruled queues: Gearman's and Workq's exceed their rate",
        r"faster than its rate",
        rates_of_tubes_alone,
        seed=5,
    ),
    in_lives(
        "lost_attempts_of_gearman_are_free",
        "ruled queues: a job of Gearman comes back from the last worker that it may have",
        r"of \d attempts it had \d: ",
        lost_attempts_of_gearman_are_free,
        seed=70,
    ),
    in_lives(
        "last_attempt_is_taken",
        "ruled queues: a job of Gearman fails with an attempt left",
        r"of 2 attempts it had 1: ",
        last_attempt_is_taken,
        seed=15,
    ),
)
