"""Judging rates of delivery: no more jobs than a policy allows, and none that waits without need.

Belongs here: when a queue had a token, by the deliveries before, and which waits ended or went on
beside a job that could be had. A rate is judged by its definition, over every stretch of time
between two deliveries, and not by buckets as the product counts.
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
# While nothing goes wrong, a worker gets a job so long after both are there: some messages and
# entries on the slowest network of a life.
LATE_S: Final = 0.3


class Span(NamedTuple):
    """A time, in true seconds."""

    from_s: float
    to_s: float

    def covers(self, request: Request) -> bool:
        """Whether it lasts from before a request until after its answer."""
        return self.from_s <= request.at_s and request.done_s < self.to_s

    def touches(self, request: Request) -> bool:
        """Whether a part of it lies in the time of a request."""
        return self.from_s <= request.done_s and request.at_s <= self.to_s


class Line:
    """The deliveries of one queue, as long as its rate is the same."""

    def __init__(self, rate: int, period_us: int) -> None:
        self.rate = rate
        self.period_us = period_us
        self.times_us: list[int] = []
        self.taken_s: list[float] = []  # since when each may count as given out

    def free_us(self) -> int:
        """When one more job may be given out: it is allowed in every stretch of time until then.

        In a stretch that begins with a delivery, that is `rate` jobs and `rate` in each period.
        """
        count = len(self.times_us) + 1
        free_us = 0
        for place, from_us in enumerate(self.times_us):
            beyond = count - place - self.rate
            free_us = max(free_us, from_us - (-beyond * self.period_us // self.rate))
        return free_us


class Gift(NamedTuple):
    """A job that a worker got, and since when it could have been given."""

    event: Happened
    request: Request
    since_s: float


class RateJudge:
    """The checks of one life; it reads along with a recount, behind a judge of its policies."""

    def __init__(
        self,
        recount: Recount,
        policies: PolicyJudge,
        requests: list[Request],
        leaves: dict[tuple[int, int], float],
    ) -> None:
        self.recount = recount
        self.leaves = leaves  # when nodes were told to stop: they hand out no job from then on
        self.policies = policies
        self.counts: Counter[str] = Counter()
        self.waits = [request for request in requests if request.kind == RESERVE]
        self.ready: dict[bytes, list[Span]] = defaultdict(list)  # of single jobs, by queue
        self.spent: dict[bytes, list[Span]] = defaultdict(list)
        self.gifts: list[Gift] = []
        self._lines = {queue: Line(0, 0) for queue in TUBES}
        self._since_s: dict[int, float] = {}  # jobs that are ready
        self._waits_of: dict[Session, list[Request]] = defaultdict(list)
        for request in self.waits:
            self._waits_of[request.session].append(request)
        times_us = recount.witness.times_us
        self._indexes, self._times_us = list(times_us), list(times_us.values())

    # --- the log ----------------------------------------------------------------------------------

    def did(self, deed: Deed) -> None:
        """A command of an administrator comes: a queue with another rate begins with all of it."""
        if deed.command[0] not in (c.SET_POLICY, c.DROP_POLICY):
            return
        for queue, line in self._lines.items():
            rules = Rules(*(self.policies.policy(queue) or ()))
            if (rules.rate, rules.rate_period_us) == (line.rate, line.period_us):
                continue
            self._lines[queue] = Line(rules.rate, rules.rate_period_us)
            spans = self.spent[queue]
            if spans and spans[-1].to_s > deed.at_s:
                spans[-1] = spans[-1]._replace(to_s=max(spans[-1].from_s, deed.at_s))

    def happened(self, event: Happened) -> None:
        """An event comes, and is not counted yet."""
        queue = event.row.tube
        if queue not in TUBES:
            return
        if event.before == READY and event.state != READY:
            self._leaves(event)
        elif event.state == READY and event.before != READY:
            self._since_s[event.job] = event.at_s

    def _leaves(self, event: Happened) -> None:
        """A ready job is given out, or goes in another way."""
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
        line, now_us = self._lines[queue], event.row.time_us
        if not line.rate:
            return
        free_us = line.free_us()
        if now_us < free_us:
            words = f"{line.rate} in {line.period_us} us, before at {line.times_us}"
            raise Violation(f"faster than its rate, {words}: {event}")
        line.times_us.append(now_us)
        line.taken_s.append(taken_s)
        free_us = line.free_us()
        if now_us < free_us:
            self.counts["rates that were reached"] += 1
            from_s = min(line.taken_s[-line.rate :])
            self.spent[queue].append(Span(from_s, self._seen_s(free_us)))

    def _seen_s(self, time_us: int) -> float:
        """When a cluster time was reached: its first entry was applied."""
        place = bisect_left(self._times_us, time_us)
        if place == len(self._times_us):
            return FOREVER_S
        return self.recount.witness.applied_s[self._indexes[place]]

    # --- the end ----------------------------------------------------------------------------------

    def ended(self, undisturbed: bool) -> None:
        """The life is over; nothing went wrong in it or it did. Raises Violation."""
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
        """A wait does not end beside a job that its queue may give out all the time."""
        for queue in request.watched:
            if any(span.touches(request) for span in self.spent[queue]):
                continue
            for span in self.ready[queue]:
                if span.covers(request):
                    raise Violation(f"a job of {queue!r} was ready, {span}: {request}")
