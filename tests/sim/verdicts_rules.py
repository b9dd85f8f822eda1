"""Judge the rules of policies for puts and for jobs at rest: limits, defaults, retention, equals.

Belongs here: the required result of each put under the policy in force at its place in the log, and
when a buried or delayed job has to be deleted. The jobs of a queue, and which are ready, are
counted by events alone, without the product's arithmetic. Rates are judged in `verdicts_rates`,
attempts in `verdicts_policies`.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import BURIED, DELAYED, GONE, READY
from beanpole.core.operations import administering as a
from beanpole.pb import policies_pb2, queue_pb2
from tests.sim.admin_log import PUTS, Deed, Session
from tests.sim.cluster import Violation
from tests.sim.overseers import Order
from tests.sim.recount import Happened, Known, Recount
from tests.sim.retriers import MARK, NO_TTR, TUBES, Request
from tests.sim.verdicts_policies import PolicyJudge

SECOND_US: Final = 1_000_000
# Values in a command for a client that gave no TTR, negated seconds by protocol, and for one that
# gave no priority.
USUAL_TTR_S: Final = {"beanstalk": -1, "grpc": -60}
NO_PRIORITY: Final = -1
# A job may exist for this long after its time if nothing else advances cluster time.
LATE_US: Final = SECOND_US
IS_GONE: Final = frozenset({GONE, e.MOVING})


class Rules(NamedTuple):
    """A policy, in the order of its command's fields."""

    attempts_max: int = 0
    dead: bytes = b""
    jobs_max: int = 0
    bytes_max: int = 0
    when_full: int = 0
    ttr_s: int = 0
    priority: int = 0
    retain_buried_us: int = 0
    retain_delayed_us: int = 0
    unique_window_us: int = 0
    rate: int = 0
    rate_period_us: int = 0


class Rest(NamedTuple):
    """A job that is buried or delayed: its deletion and due time in cluster time; 0 for never."""

    gone_us: int
    due_us: int


class Put(NamedTuple):
    """The command of a put, and the rules of its queue then."""

    deed: Deed
    rules: Rules

    def is_of(self, fields: tuple[Any, ...], protocol: str) -> bool:
        """Whether it is the put that a client sent: queue, priority, delay, TTR and body.

        A node that knows of no policies yet fills in what the client left out. It must not do so
        if a policy has another value.
        """
        queue, priority, delay_s, ttr_s, body = self.deed.command[2:7]
        wanted = list(fields)
        usual_s = USUAL_TTR_S[protocol]
        if wanted[3] == NO_TTR:
            knows_none = ttr_s == -usual_s and not self.rules.ttr_s
            wanted[3] = ttr_s if knows_none else usual_s
        if wanted[1] == NO_PRIORITY and not self.rules.priority and priority == 0:
            wanted[1] = 0
        return [queue, priority, delay_s, ttr_s, body] == wanted


class Due(NamedTuple):
    """An event that the current put still has to emit."""

    kind: int
    reason: int
    job: int


class Filling:
    """The number and the bytes of the jobs of each queue, by events alone."""

    def __init__(self) -> None:
        self.jobs: Counter[bytes] = Counter()
        self.bytes: Counter[bytes] = Counter()
        self._sizes: dict[int, int] = {}

    def count(self, before: bytes, event: Happened) -> None:
        """Count an event of a job that was in the queue `before`."""
        if event.kind == e.PUT:
            self._sizes[event.job] = event.body_bytes
        size = self._sizes[event.job]
        if event.before not in IS_GONE:
            self.jobs[before] -= 1
            self.bytes[before] -= size
        if event.state not in IS_GONE:
            self.jobs[event.row.tube] += 1
            self.bytes[event.row.tube] += size

    def drops(
        self, rules: Rules, queue: bytes, size: int, ready: Iterable[int]
    ) -> list[int] | None:
        """Return the jobs dropped for one more of a size; None if it is refused.

        Args:
            rules: of the queue.
            queue: its name.
            size: of the body, in bytes.
            ready: the ready jobs of the queue, the oldest first.
        """
        count, total = self.jobs[queue], self.bytes[queue]
        if 0 < rules.bytes_max < size:
            return None
        drops: list[int] = []
        oldest = iter(ready)
        while 0 < rules.jobs_max <= count or 0 < rules.bytes_max < total + size:
            if rules.when_full != policies_pb2.WHEN_FULL_DROP_OLDEST:
                return None
            job = next(oldest, 0)
            if not job:
                break
            drops.append(job)
            count -= 1
            total -= self._sizes[job]
        return drops

    def words(self, queue: bytes) -> str:
        """Describe a queue for a message."""
        return f"{queue!r} has {self.jobs[queue]} jobs of {self.bytes[queue]} bytes"


class RuleJudge:
    """The checks of one life, fed by a recount, after the judge of its policies."""

    def __init__(
        self,
        recount: Recount,
        policies: PolicyJudge,
        orders: list[Order],
        requests: list[Request],
    ) -> None:
        self.recount = recount
        self.policies = policies
        self.orders = [order for order in orders if order.kind == "put"]
        self.requests = [request for request in requests if request.kind == "put"]
        self.counts: Counter[str] = Counter()  # how often each rule took effect
        self.puts: dict[Session, list[Put]] = defaultdict(list)
        self.filling = Filling()
        self.rests: dict[int, Rest] = {}
        self._equals: dict[tuple[bytes, int, bytes], tuple[int, int]] = {}  # put when, its job
        self._keys: dict[bytes, int] = {}
        self._deed: Deed | None = None  # the newest command
        self._due: list[Due] = []
        times_us = recount.witness.times_us
        self._indexes, self._times_us = list(times_us), list(times_us.values())

    def rules(self, queue: bytes) -> Rules:
        """Return the rules in force for a queue."""
        return Rules(*(self.policies.policies.of(queue) or ()))

    # --- puts -------------------------------------------------------------------------------------

    def did(self, deed: Deed) -> None:
        """Check a command."""
        self._must_be_done()
        self._deed = deed
        if deed.command[0] not in PUTS or not deed.command[6].startswith(MARK):
            return
        self.puts[deed.session].append(Put(deed, self.rules(deed.command[2])))
        key = deed.command[7] if deed.command[0] == c.PUT_KEYED else b""
        self._due = self._judge_put(deed, key)
        if deed.end - deed.first != len(self._due):
            raise Violation(f"it is to have the events {self._due}: {deed}")

    def _judge_put(self, deed: Deed, key: bytes) -> list[Due]:
        """Check the result of a put; returns the events that it must emit."""
        _, _, queue, _, _, _, body = deed.command[:7]
        rules = self.rules(queue)
        equal = (queue, rules.unique_window_us, body)
        known = self._keys.get(key, 0) if key else 0
        if not known and rules.unique_window_us and equal in self._equals:
            put_us, job = self._equals[equal]
            if deed.time_us - put_us < rules.unique_window_us:
                known = job
                self.counts["puts that were equal to another"] += 1
        if known:
            if deed.result != (known, 1):
                raise Violation(f"it is equal to that of job {known}: {deed}")
            if key:
                self._keys[key] = known
            return []
        if deed.result == c.OUT_OF_MEMORY:
            return []  # a disk is full, whatever the queue has
        ready = sorted(self.recount.ready.get(queue, ()))
        drops = self.filling.drops(rules, queue, len(body), ready)
        if drops is None:
            if deed.result != c.FULL:
                raise Violation(f"{self.filling.words(queue)}, {rules}: it is full: {deed}")
            self.counts["puts into full queues"] += 1
            return []
        job, is_known = deed.result if type(deed.result) is tuple else (deed.result, 0)
        if job <= 0 or is_known:
            words = self.filling.words(queue)
            raise Violation(f"{words}, {rules}: it is to make a job: {deed}")
        if rules.unique_window_us:
            self._equals[equal] = (deed.time_us, job)
        if key:
            self._keys[key] = job
        self.counts["jobs that were dropped for another"] += len(drops)
        made = Due(e.PUT, e.NO_REASON, job)
        return [*(Due(e.DELETED, e.QUEUE_FULL, dropped) for dropped in drops), made]

    def _must_be_done(self) -> None:
        if self._due:
            raise Violation(f"the events {self._due} are missing of {self._deed}")

    # --- events -----------------------------------------------------------------------------------

    def happened(self, event: Happened) -> None:
        """Check an event that the recount has not counted yet."""
        if event.row.tube not in TUBES:
            return
        known = self.recount.jobs[event.job]
        if self._due:
            due = self._due.pop(0)
            if (event.kind, event.reason, event.job) != due or not self._is_of(event):
                raise Violation(f"it is to be {due}: {event} of {self._deed}")
            if event.kind == e.PUT:
                self._has_what_was_left_out(event)
        elif event.kind == e.PUT or event.reason == e.QUEUE_FULL:
            raise Violation(f"no put was to do it: {event}")
        self._time_is_up(event)
        self._rest(known, event)
        self.filling.count(known.queue, event)

    def _is_of(self, event: Happened) -> bool:
        deed = self._deed
        return deed is not None and deed.first <= event.row.offset < deed.end

    def _has_what_was_left_out(self, event: Happened) -> None:
        """Check that a job has the values of its put, or of its policy where it gave none."""
        assert self._deed is not None
        _, _, queue, priority, delay_s, ttr_s, body = self._deed.command[:7]
        rules = self.rules(queue)
        if ttr_s < 0:
            self.counts["puts without a TTR"] += bool(rules.ttr_s)
            ttr_s = rules.ttr_s or -ttr_s
        if priority == NO_PRIORITY:
            self.counts["puts without a priority"] += bool(rules.priority)
            priority = rules.priority
        wanted = (queue, priority, delay_s, ttr_s, len(body), DELAYED if delay_s else READY)
        found = (event.row.tube, event.rank, event.delay_s, event.ttr_s, event.body_bytes)
        if (*found, event.state) != wanted or event.session != self._deed.session:
            raise Violation(f"it has {found}, and is to have {wanted}: {event}, {rules}")

    def _time_is_up(self, event: Happened) -> None:
        """Check that a timed change comes in the first entry of its time, and nothing after it."""
        rest = self.rests.get(event.job, Rest(0, 0))
        if event.reason == e.RETENTION:
            if event.kind != e.DELETED or event.before not in (BURIED, DELAYED):
                raise Violation(f"it is to be deleted: {event}")
            self.counts["jobs that were there long enough"] += 1
            self._is_first_since(rest.gone_us, event)
        elif event.kind == e.DUE:
            if rest.gone_us:
                raise Violation(f"it is to go at {rest.gone_us}: {event}")
            self._is_first_since(rest.due_us, event)
        elif 0 < rest.gone_us <= event.row.time_us or 0 < rest.due_us <= event.row.time_us:
            raise Violation(f"its time has ended, {rest}: {event}")

    def _is_first_since(self, time_us: int, event: Happened) -> None:
        if not 0 < time_us <= event.row.time_us:
            raise Violation(f"its time is {time_us}, and it was {event.row.time_us}: {event}")
        first = self._indexes[bisect_left(self._times_us, time_us)]
        if event.row.log_index != first:
            raise Violation(f"its time was {time_us}, of entry {first}: {event}")

    def _rest(self, known: Known, event: Happened) -> None:
        """Note that a job begins or ends to be buried or delayed."""
        before = self.rests.get(event.job, Rest(0, 0))
        command = self._deed.command if self._deed is not None and self._is_of(event) else ()
        action = command[3] if command and command[0] == c.CHANGE_JOB else 0
        if action == a.SET_RANK or event.state == e.MOVING:
            return  # a job on its way to another queue keeps its due time
        self.rests.pop(event.job, None)
        now_us, rules = event.row.time_us, self.rules(event.row.tube)
        if event.state == BURIED:
            stays_us = rules.retain_buried_us
            self.rests[event.job] = Rest(now_us + stays_us if stays_us else 0, 0)
        elif event.state == DELAYED:
            due_us = now_us + event.delay_s * SECOND_US
            if action == a.SET_DELAY:
                due_us = now_us + command[7]
            elif event.kind == e.MOVED:
                due_us = before.due_us
            stays_us = rules.retain_delayed_us
            if 0 < stays_us < due_us - now_us:
                self.rests[event.job] = Rest(now_us + stays_us, due_us)
            else:
                self.rests[event.job] = Rest(0, due_us)

    # --- the end ----------------------------------------------------------------------------------

    def ended(self) -> None:
        """Check retention and answers at the end of the life; raises Violation."""
        self._must_be_done()
        now_us = self.recount.witness.machine.queue.now_us
        for job, rest in self.rests.items():
            if 0 < rest.gone_us < now_us - LATE_US:
                raise Violation(f"job {job} is there at {now_us}: {rest}")
        judged = sum(map(self._an_answer_is_true, self.requests))
        judged += sum(map(self._a_reply_is_true, self.orders))
        if judged != sum(map(len, self.puts.values())):
            raise Violation(f"{judged} puts were asked for, done were {dict(self.puts)}")

    def _an_answer_is_true(self, asked: Request) -> int:
        """Compare a client's answer with its command; returns the number of its commands."""
        puts = [
            put
            for put in self.puts[asked.session]
            if put.deed.command[6] == asked.body and asked.at_s <= put.deed.at_s <= asked.done_s
        ]
        if not puts:
            if asked.word == b"INSERTED":
                raise Violation(f"lost: {asked}")
            return 0
        wanted = (asked.queue, asked.priority, asked.delay_s, asked.ttr_s, asked.body)
        if len(puts) > 1 or not puts[0].is_of(wanted, "beanstalk"):
            raise Violation(f"it is to be {wanted}: {puts} of {asked}")
        result = puts[0].deed.result
        if asked.word == b"INSERTED":
            is_true = asked.job == (result[0] if type(result) is tuple else result)
        elif asked.word == b"OUT_OF_MEMORY":
            is_true = result in (c.FULL, c.OUT_OF_MEMORY)
        else:
            is_true = not asked.word
        if not is_true:
            raise Violation(f"done was {puts[0]}: {asked}")
        return 1

    def _a_reply_is_true(self, order: Order) -> int:
        """Compare the reply to a call with its commands; returns their number."""
        puts = [put for session in order.caller.sessions for put in self.puts[session]]
        jobs = order.request.jobs
        for job, put in zip(jobs, puts, strict=False):
            priority = job.priority if job.HasField("priority") else NO_PRIORITY
            wanted = (job.tube.encode(), priority, job.delay_s, job.ttr_s, job.body)
            key = (job.key,) if job.key else ()
            if not put.is_of(wanted, "grpc") or put.deed.command[7:] != key:
                raise Violation(f"it is to be {wanted}: {put} of {order}")
        if order.reply is None:
            return len(puts)
        told = [(one.job_id, one.outcome) for one in order.reply.results]
        if not puts and told == [_told(c.OUT_OF_MEMORY)] * len(jobs):
            return 0
        if len(told) != len(jobs) or told != [_told(put.deed.result) for put in puts]:
            raise Violation(f"done were {puts}: {order}")
        return len(puts)


def _told(result: Any) -> tuple[int, int]:
    """Return the job and the outcome that a call reports for a put."""
    if result == c.FULL:
        return 0, queue_pb2.PUT_OUTCOME_QUEUE_FULL
    if result == c.OUT_OF_MEMORY:
        return 0, queue_pb2.PUT_OUTCOME_OUT_OF_MEMORY
    job, is_known = result if type(result) is tuple else (result, 0)
    outcome = queue_pb2.PUT_OUTCOME_DUPLICATE if is_known else queue_pb2.PUT_OUTCOME_INSERTED
    return job, outcome
