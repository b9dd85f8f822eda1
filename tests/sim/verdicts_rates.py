"""Judge rates of delivery: no more jobs than a policy allows, and no needless waits.

Belongs here: when a queue had a token, by its earlier deliveries, and which waits ended or went on
beside an available job. A rate is judged by its definition, over every interval between two
deliveries, and not by token buckets as the product counts.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Final, NamedTuple

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import READY
from tests.sim.admin_log import Deed, Session
from tests.sim.cluster import Violation
from tests.sim.recount import Happened, Recount
from tests.sim.retriers import TUBES, Request
from tests.sim.stories import FOREVER_S
from tests.sim.verdicts_policies import PolicyJudge
from tests.sim.verdicts_rules import Rules

RESERVE: Final = "reserve-with-timeout"
# Without faults a worker gets a job within this time after both are there: some messages and
# entries on the slowest network of a life.
LATE_S: Final = 0.3


class Span(NamedTuple):
    """A span of time, in true seconds."""

    from_s: float
    to_s: float

    def covers(self, request: Request) -> bool:
        """Whether it lasts from before a request until after its answer."""
        return self.from_s <= request.at_s and request.done_s < self.to_s

    def touches(self, request: Request) -> bool:
        """Whether it overlaps a request."""
        return self.from_s <= request.done_s and request.at_s <= self.to_s


class Line:
    """The deliveries of one queue while its rate is the same."""

    def __init__(self, rate: int, period_us: int) -> None:
        self.rate = rate
        self.period_us = period_us
        self.times_us: list[int] = []
        self.taken_s: list[float] = []  # from when each may count as given out

    def give_out(self, event: Happened) -> bool:
        """Count a delivery; returns whether the queue has no token after it.

        Raises:
            Violation: the rate does not allow it.
        """
        now_us = event.row.time_us
        if now_us < self.free_us():
            words = f"{self.rate} in {self.period_us} us, before at {self.times_us}"
            raise Violation(f"faster than its rate, {words}: {event}")
        self.times_us.append(now_us)
        return now_us < self.free_us()

    def free_us(self) -> int:
        """Return the time from which one more delivery is allowed in every interval before it.

        An interval that begins with a delivery allows `rate` jobs, and `rate` more in each period.
        """
        count = len(self.times_us) + 1
        free_us = 0
        for place, from_us in enumerate(self.times_us):
            beyond = count - place - self.rate
            free_us = max(free_us, from_us - (-beyond * self.period_us // self.rate))
        return free_us


class Gift(NamedTuple):
    """A job that a worker got, and since when it could have been given out."""

    event: Happened
    request: Request
    since_s: float


class RateJudge:
    """The checks of one life, fed by a recount, after the judge of its policies."""

    def __init__(
        self,
        recount: Recount,
        policies: PolicyJudge,
        requests: list[Request],
        leaves: dict[tuple[int, int], float],
    ) -> None:
        self.recount = recount
        self.leaves = leaves  # when nodes were told to stop: they give out no job from then on
        self.policies = policies
        self.counts: Counter[str] = Counter()
        self.waits = [request for request in requests if request.kind == RESERVE]
        self.ready: dict[bytes, list[Span]] = defaultdict(list)  # of single jobs, by queue
        self.spent: dict[bytes, list[Span]] = defaultdict(list)
        self.gifts: list[Gift] = []
        self._lines = {queue: Line(0, 0) for queue in TUBES}
        self._since_s: dict[int, float] = {}  # since when jobs are ready
        self._waits_of: dict[Session, list[Request]] = defaultdict(list)
        for request in self.waits:
            self._waits_of[request.session].append(request)
        times_us = recount.witness.times_us
        self._indexes, self._times_us = list(times_us), list(times_us.values())

    # --- the log ----------------------------------------------------------------------------------

    def did(self, deed: Deed) -> None:
        """Take an administrator's command: a queue with a new rate begins with its full burst."""
        if deed.command[0] not in (c.SET_POLICY, c.DROP_POLICY):
            return
        for queue, line in self._lines.items():
            rules = Rules(*(self.policies.policies.of(queue) or ()))
            if (rules.rate, rules.rate_period_us) == (line.rate, line.period_us):
                continue
            self._lines[queue] = Line(rules.rate, rules.rate_period_us)
            spans = self.spent[queue]
            if spans and spans[-1].to_s > deed.at_s:
                spans[-1] = spans[-1]._replace(to_s=max(spans[-1].from_s, deed.at_s))

    def happened(self, event: Happened) -> None:
        """Take an event that the recount has not counted yet."""
        queue = event.row.tube
        if queue not in TUBES:
            return
        if event.before == READY and event.state != READY:
            self._leaves(event)
        elif event.state == READY and event.before != READY:
            self._since_s[event.job] = event.at_s

    def _leaves(self, event: Happened) -> None:
        """Take an event by which a job stops being ready."""
        queue, to_s = event.row.tube, event.at_s
        since_s = self._since_s.pop(event.job)
        if event.kind == e.RESERVED:
            takers = [one for one in self._waits_of[event.session] if one.at_s <= event.at_s]
            if takers:
                # It may count as taken since its worker waited, although that was committed later.
                to_s = max(since_s, takers[-1].at_s)
                open_s = max([since_s, *(span.to_s for span in self.spent[queue])])
                self.gifts.append(Gift(event, takers[-1], max(open_s, takers[-1].at_s)))
            self._give_out(queue, event, to_s)
        self.ready[queue].append(Span(since_s, to_s))

    def _give_out(self, queue: bytes, event: Happened, taken_s: float) -> None:
        line = self._lines[queue]
        if not line.rate:
            return
        line.taken_s.append(taken_s)
        if line.give_out(event):
            self.counts["rates that were reached"] += 1
            from_s = min(line.taken_s[-line.rate :])
            self.spent[queue].append(Span(from_s, self._seen_s(line.free_us())))

    def _seen_s(self, time_us: int) -> float:
        """Return when a cluster time was reached: when its first entry was applied."""
        place = bisect_left(self._times_us, time_us)
        if place == len(self._times_us):
            return FOREVER_S
        return self.recount.witness.applied_s[self._indexes[place]]

    # --- the end ----------------------------------------------------------------------------------

    def ended(self, undisturbed: bool) -> None:
        """Check the waits at the end, `undisturbed`: of a life without faults; raises Violation."""
        for job, since_s in self._since_s.items():
            self.ready[self.recount.jobs[job].queue].append(Span(since_s, FOREVER_S))
        for request in self.waits:
            process = request.visit.place, request.visit.incarnation
            left = request.done_s >= self.leaves.get(process, FOREVER_S)
            if request.word == b"TIMED_OUT" and not left:
                self._there_was_nothing(request)
        for gift in self.gifts if undisturbed else ():
            late_s = gift.event.at_s - gift.since_s
            if late_s > LATE_S:
                raise Violation(f"given {late_s:.3f} s late: {gift.event} to {gift.request}")

    def _there_was_nothing(self, request: Request) -> None:
        """Check that a wait did not end beside a job that its queue could give out all the time."""
        for queue in request.watched:
            if any(span.touches(request) for span in self.spent[queue]):
                continue
            for span in self.ready[queue]:
                if span.covers(request):
                    raise Violation(f"a job of {queue!r} was ready, {span}: {request}")
