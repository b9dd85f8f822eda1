"""Judge policies of Gearman's and Workq's queues: limits, drops, default TTRs, rates, attempts.

Everything is judged by the log: the result and the events of each put, when jobs were given out,
and whether they came back. The policies in force, the jobs of a queue and its rate are computed as
for the tubes of beanstalk, in `verdicts_policies`, `verdicts_rules` and `verdicts_rates`; the
clients are in `rulers`.
"""

from collections import Counter
from typing import Final

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import RESERVED
from tests.sim.admin_log import Deed
from tests.sim.cluster import Violation
from tests.sim.recount import Happened, Recount
from tests.sim.rulers import GEARMAN_QUEUE, QUEUES
from tests.sim.verdicts_policies import COMES_BACK, InForce
from tests.sim.verdicts_rates import Line
from tests.sim.verdicts_rules import Due, Filling, Rules
from tests.sim.witness import Witness

MAKES: Final = (c.ADD, c.SUBMIT)
BODY: Final = -1


class RuledJudge:
    """The checks of one life."""

    def __init__(self, witness: Witness) -> None:
        self.counts: Counter[str] = Counter()
        self._recount = Recount(witness, QUEUES)
        self._policies = InForce()
        self._filling = Filling()
        self._lines = {queue: Line(0, 0) for queue in QUEUES}
        self._places: dict[int, int] = {}  # of jobs in their queues, by the offset of an event
        self._deed: Deed | None = None  # the newest put
        self._due: list[Due] = []

    def all(self) -> None:
        """Check everything; raises Violation."""
        for step in self._recount.steps():
            if isinstance(step, Deed):
                self._did(step)
            else:
                self._happened(step)
        self._must_be_done()

    def _rules(self, queue: bytes) -> Rules:
        return Rules(*(self._policies.of(queue) or ()))

    # --- commands ---------------------------------------------------------------------------------

    def _did(self, deed: Deed) -> None:
        code, _, name = deed.command[:3]
        if code in (c.SET_POLICY, c.DROP_POLICY):
            self._policies.did(deed)
            for queue, line in self._lines.items():
                rules = self._rules(queue)
                if (rules.rate, rules.rate_period_us) != (line.rate, line.period_us):
                    self._lines[queue] = Line(rules.rate, rules.rate_period_us)
        elif code in MAKES and name in QUEUES:
            self._must_be_done()
            self._deed, self._due = deed, self._judge_put(deed)

    def _judge_put(self, deed: Deed) -> list[Due]:
        """Check the result of a put; returns the events that it must emit."""
        queue, result = deed.command[2], deed.result
        if type(result) is tuple and result[1]:
            return []  # the client joins an earlier job
        if type(result) is not tuple and result != c.FULL:
            return []  # refused for another reason, such as an id that is taken
        rules = self._rules(queue)
        ready = sorted(self._recount.ready.get(queue, ()), key=self._places.__getitem__)
        drops = self._filling.drops(rules, queue, len(deed.command[BODY]), ready)
        if (drops is None) != (result == c.FULL):
            raise Violation(f"{self._filling.words(queue)}, {rules}: {deed}")
        if drops is None:
            self.counts["puts into full ruled queues"] += 1
            return []
        self.counts["ruled jobs that were dropped for another"] += len(drops)
        made = Due(e.PUT, e.NO_REASON, result[0])
        return [*(Due(e.DELETED, e.QUEUE_FULL, dropped) for dropped in drops), made]

    def _must_be_done(self) -> None:
        if self._due:
            raise Violation(f"the events {self._due} are missing of {self._deed}")

    # --- events -----------------------------------------------------------------------------------

    def _happened(self, event: Happened) -> None:
        queue = event.row.tube
        if event.kind == e.PUT or event.reason == e.QUEUE_FULL:
            due = self._due.pop(0) if self._due else None
            if (event.kind, event.reason, event.job) != due:
                raise Violation(f"it is to be {due}: {event} of {self._deed}")
        if event.kind == e.PUT and queue == GEARMAN_QUEUE:
            self._has_its_ttr(event)
        if event.kind == e.PUT or (queue == GEARMAN_QUEUE and event.before == RESERVED):
            # A job of Gearman that comes back goes to the end.
            self._places[event.job] = event.row.offset
        if queue == GEARMAN_QUEUE and event.before == RESERVED:
            self._may_come_back(event)
        if event.kind == e.RESERVED and self._lines[queue].rate:
            self.counts["ruled rates that were reached"] += self._lines[queue].give_out(event)
        self._filling.count(queue, event)

    def _may_come_back(self, event: Happened) -> None:
        """Check that a reservation that no worker ended fails a job without attempts left."""
        attempts_max = self._rules(event.row.tube).attempts_max
        is_last = 0 < attempts_max <= event.reserves
        # A worker's WORK_FAIL has no reason; so has the last attempt of a job that is given up.
        is_failed = event.kind == e.FAILED and event.reason != e.NO_REASON
        self.counts["ruled jobs without attempts left"] += is_failed
        if (event.kind in COMES_BACK and is_last) or (is_failed and not is_last):
            raise Violation(f"of {attempts_max} attempts it had {event.reserves}: {event}")

    def _has_its_ttr(self, event: Happened) -> None:
        """Check that a job of a client that cannot give a TTR has the one of its queue."""
        ttr_s = self._rules(event.row.tube).ttr_s
        self.counts["ruled jobs with a TTR"] += bool(ttr_s)
        if event.ttr_s != ttr_s:
            raise Violation(f"its TTR is {event.ttr_s} s, and is to be {ttr_s} s: {event}")
