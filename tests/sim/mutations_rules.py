"""Planted defects of the rules of policies for puts, jobs at rest and deliveries.

The patches and their table; see `mutations` and `mutant_table`. Defects of attempts, and of the
choice of a policy, are in `mutations_policies`.
"""

from typing import Any, Final

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.equal_puts import EqualPuts
from beanpole.core.image import parts
from beanpole.core.image.policies import EQUALS, RATES
from beanpole.core.jobs.policies import DROP_OLDEST, Policy
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.rates import Rates
from beanpole.core.jobs.states import States
from beanpole.core.jobs.tubes import Tubes
from beanpole.core.operations import policy_puts
from tests.sim.mutant import calm, in_lives
from tests.sim.mutations import Patch


def one_job_more() -> list[Patch]:
    """A queue takes one job more than its policy allows."""
    is_over = vars(policy_puts)["_is_over"]

    def wrong(tube: Any, policy: Policy, size: int) -> bool:
        more = policy._replace(jobs_max=policy.jobs_max + 1) if policy.jobs_max else policy
        return bool(is_over(tube, more, size))

    return [(policy_puts, "_is_over", wrong)]


def bytes_without_the_put() -> list[Patch]:
    """The bytes of the put itself do not count."""
    is_over = vars(policy_puts)["_is_over"]
    return [(policy_puts, "_is_over", lambda tube, policy, size: is_over(tube, policy, 0))]


def least_urgent_is_dropped() -> list[Patch]:
    """A full queue drops the job that would be given out last."""
    return [(policy_puts, "_oldest_ready", lambda machine, tube: tube.ready.last())]


def one_is_dropped_in_vain() -> list[Patch]:
    """A put drops one job more than it needs to."""
    admits = vars(policy_puts)["admits"]

    def wrong(machine: Any, session: Any, name: bytes, policy: Policy, size: int) -> bool:
        before = machine.queue.events_total
        admitted = bool(admits(machine, session, name, policy, size))
        tube = machine.queue.find(name)
        if machine.queue.events_total > before and tube is not None and tube.ready_count:
            job = machine.queue.ready_job(tube.first_ready())
            machine.queue.discard(job, e.QUEUE_FULL)
        return admitted

    return [(policy_puts, "admits", wrong)]


def drops_are_refusals() -> list[Patch]:
    """A full queue refuses, although it should drop its oldest job."""
    return [(policy_puts, "DROP_OLDEST", DROP_OLDEST + 1)]


def drops_have_no_reason() -> list[Patch]:
    """A job that a policy deletes looks as if a client had deleted it."""
    discard = vars(Queue)["discard"]

    def wrong(self: Any, job: Any, _reason: int, *, keeps_tube: bool = False) -> None:
        discard(self, job, e.NO_REASON, keeps_tube=keeps_tube)

    return [(Queue, "discard", wrong)]


def default_for_all() -> list[Patch]:
    """The default TTR replaces the one that the client gave."""
    put = vars(policy_puts)["put"]

    def wrong(machine: Any, session: Any, name: bytes, *numbers: Any) -> Any:
        priority, delay_s, ttr_s, body = numbers
        policy = policy_puts.policy_of(machine, name)
        if policy is not None and policy.ttr_s:
            ttr_s = policy.ttr_s
        return put(machine, session, name, priority, delay_s, ttr_s, body)

    return [(policy_puts, "put", wrong)]


def default_for_nobody() -> list[Patch]:
    """Omitted values get the usual defaults, whatever the policy of the queue."""
    with_defaults = vars(policy_puts)["with_defaults"]

    def wrong(machine: Any, command: c.Command) -> c.Command | None:
        rows = machine.queue.policies.rows
        machine.queue.policies.rows = {}
        filled: c.Command | None = with_defaults(machine, command)
        machine.queue.policies.rows = rows
        return filled

    return [(policy_puts, "with_defaults", wrong)]


def short_retention() -> list[Patch]:
    """A buried job is deleted after half its time."""
    make_buried = vars(States)["make_buried"]

    def wrong(self: Any, job: Any, result: bytes = b"") -> None:
        make_buried(self, job, result)
        if job.due_us:
            self.timers.remove(job.due_us, job.id)
            job.due_us -= (job.due_us - self.now_us) // 2
            self.timers.add(job.due_us, job.id)

    return [(States, "make_buried", wrong)]


def buried_for_ever() -> list[Patch]:
    """Buried jobs are never deleted by a policy."""
    make_buried = vars(States)["make_buried"]

    def wrong(self: Any, job: Any, result: bytes = b"") -> None:
        rows, self.policies.rows = self.policies.rows, {}
        make_buried(self, job, result)
        self.policies.rows = rows

    return [(States, "make_buried", wrong)]


def retained_is_ready() -> list[Patch]:
    """A job whose retention has ended becomes ready."""
    discard = vars(Queue)["discard"]

    def wrong(self: Any, job: Any, reason: int) -> None:
        if reason != e.RETENTION:
            discard(self, job, reason)
            return
        before = self.take(job)
        self.make_ready(job)
        self.emit(e.DUE, before, job, None)

    return [(Queue, "discard", wrong)]


def windows_never_end() -> list[Patch]:
    """A put is equal to a put of any age."""
    find = vars(EqualPuts)["find_equal"]

    def wrong(self: Any, queue: bytes, body: bytes, window_us: int, now_us: int) -> Any:
        return find(self, queue, body, window_us, 0)

    return [(EqualPuts, "find_equal", wrong)]


def equal_in_all_queues() -> list[Patch]:
    """A put is equal to one into another queue."""
    find = vars(EqualPuts)["find_equal"]

    def wrong(self: Any, queue: bytes, body: bytes, window_us: int, now_us: int) -> Any:
        return find(self, b"", body, window_us, now_us)

    return [(EqualPuts, "find_equal", wrong)]


def twice_the_rate() -> list[Patch]:
    """A queue gives out jobs twice as fast."""
    spend = vars(Rates)["spend"]

    def wrong(self: Any, name: bytes, rate: int, period_us: int, now_us: int) -> bool:
        return bool(spend(self, name, 2 * rate, period_us, now_us))

    return [(Rates, "spend", wrong)]


def policies_fill_buckets() -> list[Patch]:
    """Setting a policy with the same rate refills the buckets of its queues."""

    def wrong(self: Any, pattern: bytes) -> None:
        for name in list(self.rates.buckets):
            self.forget_rate(name)

    return [(States, "look_at_rates", wrong)]


def tokens_wake_nobody() -> list[Patch]:
    """Waiting workers are not woken when their queue has a token again."""

    def wrong(self: Any, name: bytes) -> None:
        tube = self.tubes.get(name)
        if tube is not None:
            tube.closed = 0

    return [(Tubes, "_open", wrong)]


def tokens_never_come() -> list[Patch]:
    """A queue without a token stays closed."""
    return [(Tubes, "_open", lambda self, name: None)]


def _without(kind: str) -> list[Patch]:
    part = parts.PARTS["policies"]

    def wrong(machine: Any, value: Any) -> None:
        if value[0] != kind:
            part.read(machine, value)

    return [(parts, "PARTS", {**parts.PARTS, "policies": part._replace(read=wrong)})]


def rates_not_in_image() -> list[Patch]:
    """A node that starts from a snapshot knows no earlier deliveries."""
    return _without(RATES)


def equals_not_in_image() -> list[Patch]:
    """A node that starts from a snapshot knows no equal puts."""
    return _without(EQUALS)


POLICY_RULES: Final = (
    in_lives(
        "one_job_more",
        "rules: a queue takes a job too many",
        r"it is full",
        one_job_more,
        seed=3,
    ),
    in_lives(
        "bytes_without_the_put",
        "rules: the bytes of a put do not count for itself",
        r"it is full|it is to have the events",
        bytes_without_the_put,
        seed=3,
    ),
    in_lives(
        "least_urgent_is_dropped",
        "rules: a full queue drops another job than the oldest",
        r"it is to be Due\(kind=10, reason=9",
        least_urgent_is_dropped,
        seed=5,
    ),
    in_lives(
        "one_is_dropped_in_vain",
        "rules: a full queue drops a job more than it has to",
        r"it is to have the events",
        one_is_dropped_in_vain,
        seed=7,
    ),
    in_lives(
        "drops_are_refusals",
        "rules: a put is refused where it is to drop a job",
        r"it is to make a job",
        drops_are_refusals,
        seed=7,
    ),
    in_lives(
        "drops_have_no_reason",
        "rules: an event does not say that a policy deleted the job",
        r"it is to be Due\(kind=10, reason=9|its time has ended",
        drops_have_no_reason,
        seed=4,
    ),
    in_lives(
        "default_for_all",
        "rules: the default TTR takes the place of the client's",
        r"and is to have",
        default_for_all,
        seed=7,
    ),
    in_lives(
        "default_for_nobody",
        "rules: what a client leaves out does not come from the policy",
        r"and is to have",
        default_for_nobody,
        seed=8,
    ),
    in_lives(
        "short_retention",
        "rules: a buried job is deleted too early",
        r"its time is \d+, and it was",
        short_retention,
        seed=4,
    ),
    in_lives(
        "buried_for_ever",
        "rules: a buried job stays beyond its time",
        r"its time has ended|is there at",
        buried_for_ever,
        seed=4,
    ),
    in_lives(
        "retained_is_ready",
        "rules: a job whose time has ended becomes ready",
        r"it is to go at|its time has ended|its time is",
        retained_is_ready,
        seed=4,
    ),
    in_lives(
        "windows_never_end",
        "rules: a put is equal to one before its window",
        r"it is to make a job",
        windows_never_end,
        seed=7,
    ),
    in_lives(
        "equal_in_all_queues",
        "rules: a put is equal to one into another queue",
        r"it is to make a job|it is full|it is equal to",
        equal_in_all_queues,
        seed=8,
    ),
    in_lives(
        "twice_the_rate",
        "rules: a queue exceeds its rate",
        r"faster than its rate",
        twice_the_rate,
        seed=19,
    ),
    in_lives(
        "policies_fill_buckets",
        "rules: a policy with the same rate allows a burst",
        r"faster than its rate",
        policies_fill_buckets,
        seed=7,
    ),
    in_lives(
        "tokens_never_come",
        "rules: a queue without a token gives out nothing for ever",
        r"was ready, Span",
        tokens_never_come,
        seed=7,
    ),
    in_lives(
        "tokens_wake_nobody",
        "rules: a worker that waits does not hear that there is a token",
        r"given [\d.]+ s late",
        tokens_wake_nobody,
        check=calm,
        seed=9,
    ),
    in_lives(
        "rates_not_in_image",
        "rules: a snapshot forgets the deliveries that a rate counts",
        r"differs?\b",
        rates_not_in_image,
        seed=5,
    ),
    in_lives(
        "equals_not_in_image",
        "rules: a snapshot forgets equal puts",
        r"differs?\b",
        equals_not_in_image,
        seed=7,
    ),
)
