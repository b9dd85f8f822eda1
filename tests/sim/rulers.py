"""An administrator of a life that sets policies of a Gearman and a Workq queue, and their clients.

The clients are those of `gearman` and `workq`, in queues of their own: their answers are not judged
in such a life, the log is (`verdicts_ruled`). `overseers` do the same for beanstalk's tubes.
"""

import random
from collections.abc import Coroutine
from typing import Any, Final

from beanpole.pb import policies_pb2
from tests.sim.admin_calls import AdminCalls, Begun
from tests.sim.gearman import Records, Submitter
from tests.sim.gearman_workers import Worker
from tests.sim.guests import PATIENCE_S, Guest
from tests.sim.overseers import Rules, draw_rules
from tests.sim.services import CallEnded, Caller, Services
from tests.sim.stories import GEARMAN_PREFIX, WORKQ_PREFIX
from tests.sim.workq import Ledger, Patron
from tests.sim.world import World

# The share of the lives with such an administrator.
SHARE: Final = 0.2
NAME: Final = b"ruled"
GEARMAN_QUEUE: Final = GEARMAN_PREFIX + NAME
WORKQ_QUEUE: Final = WORKQ_PREFIX + NAME
QUEUES: Final = frozenset({GEARMAN_QUEUE, WORKQ_QUEUE})
# A submitter and two workers of Gearman, and two clients of Workq.
CLIENTS: Final = 5
# Calls per second.
PACE: Final = 2.0
# No pattern fits a queue of other clients.
PATTERNS: Final = ("gearman:ruled", "gearman:rul*", "workq:ruled", "workq:r*")
DROPS: Final = 0.25
RULE_SHARE: Final = 0.45
RULES: Final[Rules] = (
    ("jobs_max", (1, 2, 3)),
    ("bytes_max", (8, 20)),
)
# Clients of Workq say these of each job, so a policy of its queues may not.
GEARMAN_RULES: Final[Rules] = (
    *RULES,
    ("ttr_s", (1, 2)),
    ("attempts_max", (1, 1, 2)),
)
# (jobs, microseconds); at the end of a life all jobs must be done soon.
RATES: Final = ((1, 200_000), (2, 500_000), (3, 1_000_000))


class RuledSubmitter(Submitter):
    """A client of the Gearman queue; a unique id names one job in all functions."""

    functions = (NAME,)
    uniques = (b"four", b"five", b"six")


class RuledPatron(Patron):
    """A client of the Workq queue."""

    names = (NAME,)


class Ruler(AdminCalls):
    """One administrator, and the clients of its queues."""

    NAME = "an administrator of ruled queues"
    GUESTS = "clients of ruled queues"

    def __init__(self, world: World, numbers: list[int]) -> None:
        super().__init__(world, random.Random(f"ruler {world.seed}"), PATIENCE_S)
        self.orders: list[str] = []
        records, ledger = Records(), Ledger()
        submits, works, tends, first, second = numbers
        self.workers = [Worker(world, number, records, True, (NAME,)) for number in (works, tends)]
        self.guests: list[Guest] = [
            RuledSubmitter(world, submits, records),
            *self.workers,
            RuledPatron(world, first, ledger),
            RuledPatron(world, second, ledger),
        ]
        world.counts["lives with ruled queues"] += 1
        world.clock.after(1.0 + self.dice.random(), self.next)

    @staticmethod
    def is_in(seed: int) -> bool:
        """Whether a life has such an administrator."""
        return random.Random(f"ruled {seed}").random() < SHARE

    def pace(self) -> float:
        """See `AdminCalls`."""
        return PACE

    def calm(self) -> None:
        """See `AdminCalls`; the workers do the jobs that are left."""
        super().calm()
        for worker in self.workers:
            worker.calm = True

    def call(self, services: Services, caller: Caller) -> Begun:
        """See `AdminCalls`."""
        return Begun(self._choose(services, caller), self._ended)

    def _choose(self, services: Services, caller: Any) -> Coroutine[Any, Any, object]:
        dice = self.dice
        if dice.random() < DROPS:
            dropping = policies_pb2.DropPolicyRequest(pattern=dice.choice(PATTERNS))
            self.orders.append(f"drop {dropping}")
            return services.policies.Drop(dropping, caller)
        setting = policies_pb2.SetPolicyRequest(policy=self._policy())
        self.orders.append(f"set {setting}")
        return services.policies.Set(setting, caller)

    def _ended(self, reply: Any, error: CallEnded | None) -> None:
        word = "OK" if error is None else str(error).split(":")[0]
        self.world.counts[f"ruler {self.orders[-1].split()[0]} {word}"] += 1

    def _policy(self) -> policies_pb2.Policy:
        dice = self.dice
        policy = policies_pb2.Policy(pattern=dice.choice(PATTERNS))
        is_gearman = policy.pattern.startswith("gearman")
        rules = GEARMAN_RULES if is_gearman else RULES
        draw_rules(dice, policy, rules, RATES, RULE_SHARE)
        return policy
