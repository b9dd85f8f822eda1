"""An administrator of a life: it sets policies, and puts and changes jobs of `retriers`, by gRPC.

The services are the product's (`services`); `admin_calls` decides when and where it calls. Calls
and answers are recorded; the judging is in `verdicts_changes`, `verdicts_policies` and
`verdicts_rules`.
"""

import random
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from beanpole.pb import jobs_pb2, policies_pb2, queue_pb2
from tests.sim.admin_calls import AdminCalls, Begun
from tests.sim.guests import PATIENCE_S
from tests.sim.retriers import DEAD, DELAYS_S, MARK, TUBES, Request, Retrier, body_of
from tests.sim.services import CallEnded, Caller, Services
from tests.sim.stories import FOREVER_S
from tests.sim.world import World

# The share of the lives with such an administrator and clients for it.
SHARE: Final = 0.25
RETRIERS: Final = 3
# Calls per second.
PACE: Final = 3.5
# The longest matching pattern wins, and an exact name over all patterns.
PATTERNS: Final = ("mail", "mail", "mail*", "m*", "mail-news", "bulk", "mail-dead")
ATTEMPTS: Final = (1, 1, 2, 2, 3)
DEADS: Final = ("", DEAD.decode(), DEAD.decode(), "mail")
# The share of policies with attempts, and with each of the rules below. Limits are few jobs and
# short times, so that they take effect.
ATTEMPTS_SHARE: Final = 0.6
RULE_SHARE: Final = 0.35
Rules = tuple[tuple[str, tuple[int, ...]], ...]  # names of fields, and their values
RULES: Final[Rules] = (
    ("jobs_max", (1, 2, 3, 5)),
    ("bytes_max", (20, 40, 80)),
    ("ttr_s", (2, 3)),
    ("priority", (1, 2)),
    ("retain_buried_us", (400_000, 1_500_000)),
    ("retain_delayed_us", (400_000, 1_500_000)),
    ("unique_window_us", (500_000, 5_000_000)),
)
FULLS: Final = (policies_pb2.WHEN_FULL_REFUSE, policies_pb2.WHEN_FULL_DROP_OLDEST)
# (jobs, microseconds)
RATES: Final = ((1, 100_000), (1, 1_000_000), (1, 2_000_000), (2, 1_000_000))
# The number of keys of its puts: few, so that some are put again.
KEYS: Final = 6
NAMES: Final = tuple(tube.decode() for tube in TUBES)
ACTIONS: Final = (
    jobs_pb2.JOB_ACTION_DELETE,
    jobs_pb2.JOB_ACTION_DELETE,
    jobs_pb2.JOB_ACTION_KICK,
    jobs_pb2.JOB_ACTION_KICK,
    jobs_pb2.JOB_ACTION_BURY,
    jobs_pb2.JOB_ACTION_SET_PRIORITY,
    jobs_pb2.JOB_ACTION_SET_DELAY,
    jobs_pb2.JOB_ACTION_MOVE,
    jobs_pb2.JOB_ACTION_MOVE,
)
MOVED: Final = (
    jobs_pb2.MOVED_STATE_UNSPECIFIED,
    jobs_pb2.MOVED_STATE_READY,
    jobs_pb2.MOVED_STATE_BURIED,
    jobs_pb2.MOVED_STATE_SAME,
)
# The number of newest jobs from which changes choose.
RECENT: Final = 8


def draw_rules(
    dice: random.Random,
    policy: policies_pb2.Policy,
    rules: Rules,
    rates: Sequence[tuple[int, int]],
    share: float,
) -> None:
    """Give a policy some of the rules, and perhaps a rate; `share` is the chance of each."""
    for name, values in rules:
        if dice.random() < share:
            setattr(policy, name, dice.choice(values))
    if policy.jobs_max or policy.bytes_max:
        policy.when_full = dice.choice(FULLS)
    if dice.random() < share:
        policy.rate, policy.rate_period_us = dice.choice(rates)


class Order:
    """One call. `reply` is the last message of its answer, if it succeeded."""

    def __init__(self, kind: str, request: Any, at_s: float, caller: Caller) -> None:
        self.kind = kind  # "set", "drop", "put" or "change"
        self.request = request
        self.at_s = at_s
        self.done_s = FOREVER_S
        self.caller = caller
        self.reply: Any = None
        self.refusal = ""

    def __repr__(self) -> str:
        words = " ".join(str(self.request).split())
        told = " ".join(str(self.reply).split()) or self.refusal
        return f"{self.kind} [{self.at_s:.4f}, {self.done_s:.4f}] {words} -> {told}"


class Overseer(AdminCalls):
    """One administrator, and the clients of the queues that it looks after."""

    NAME = "an administrator"
    GUESTS = "retriers"

    def __init__(self, world: World, numbers: list[int]) -> None:
        super().__init__(world, random.Random(f"overseer {world.seed}"), PATIENCE_S)
        self.orders: list[Order] = []
        self.requests: list[Request] = []
        self.known: list[int] = []
        self.guests: list[Retrier] = [
            Retrier(world, one, self.requests, self.known) for one in numbers
        ]
        world.counts["lives with policies"] += 1
        world.clock.after(1.0 + self.dice.random(), self.next)

    @staticmethod
    def is_in(seed: int) -> bool:
        """Whether a life has such an administrator."""
        return random.Random(f"policies {seed}").random() < SHARE

    def pace(self) -> float:
        """See `AdminCalls`."""
        return PACE

    # --- calls ------------------------------------------------------------------------------------

    def call(self, services: Services, caller: Caller) -> Begun:
        """See `AdminCalls`."""
        kind, request, work = self._choose(services, caller)
        order = Order(kind, request, self.world.clock.now_s, caller)
        self.orders.append(order)

        def ended(reply: Any, error: CallEnded | None) -> None:
            order.done_s = self.world.clock.now_s
            if error is None:
                order.reply = caller.messages[-1] if kind == "change" else reply
            else:
                order.refusal = str(error)
            word = order.refusal.split(":")[0] or "OK"
            self.world.counts[f"administrator {kind} {word}"] += 1
            self.world.trace.update(repr(order).encode())

        return Begun(work, ended)

    def _choose(
        self, services: Services, caller: Any
    ) -> tuple[str, Any, Coroutine[Any, Any, object]]:
        dice = self.dice
        luck = dice.random()
        if luck < 0.3:
            setting = policies_pb2.SetPolicyRequest(policy=self._policy())
            return "set", setting, services.policies.Set(setting, caller)
        if luck < 0.4:
            dropping = policies_pb2.DropPolicyRequest(pattern=dice.choice(PATTERNS))
            return "drop", dropping, services.policies.Drop(dropping, caller)
        if luck < 0.55:
            putting = self._puts()
            return "put", putting, services.queue.Put(putting, caller)
        change = self._change()
        return "change", change, services.jobs.Change(change, caller)

    def _policy(self) -> policies_pb2.Policy:
        dice = self.dice
        policy = policies_pb2.Policy(pattern=dice.choice(PATTERNS))
        if dice.random() < ATTEMPTS_SHARE:
            policy.attempts_max, policy.dead = dice.choice(ATTEMPTS), dice.choice(DEADS)
        draw_rules(dice, policy, RULES, RATES, RULE_SHARE)
        return policy

    def _puts(self) -> queue_pb2.PutRequest:
        dice = self.dice
        request = queue_pb2.PutRequest()
        body = b""
        for place in range(dice.randint(1, 3)):
            # Or the same body as before, often into another queue.
            if not body or dice.random() < 0.6:
                body = body_of(dice, b"call-%d-%d" % (self._attempt, place))
            job = request.jobs.add(tube=dice.choice(NAMES), body=body)
            job.delay_s = dice.choice(DELAYS_S)
            if dice.random() < 0.5:
                job.priority = dice.choice((0, 1))
            if dice.random() < 0.5:
                job.ttr_s = dice.choice((1, 2))
            if dice.random() < 0.3:
                job.key = b"%b%d" % (MARK, dice.randrange(KEYS))
        return request

    def _change(self) -> jobs_pb2.ChangeRequest:
        dice = self.dice
        request = jobs_pb2.ChangeRequest(action=dice.choice(ACTIONS))
        if self.known and dice.random() < 0.4:
            recent = self.known[-RECENT:]
            request.job_ids.extend(dice.sample(recent, dice.randint(1, min(4, len(recent)))))
        else:
            # No other client has jobs with such bodies, in any queue.
            request.filter.body_contains = MARK
            if dice.random() < 0.7:
                request.filter.queue = dice.choice(NAMES)
            request.count_max = dice.choice((0, 0, 0, 1, 3))
        if request.action == jobs_pb2.JOB_ACTION_DELETE:
            request.reserved = dice.random() < 0.3
        elif request.action == jobs_pb2.JOB_ACTION_MOVE:
            request.to_queue = dice.choice([name for name in NAMES if name != request.filter.queue])
            request.moved_state = dice.choice(MOVED)
        elif request.action == jobs_pb2.JOB_ACTION_SET_PRIORITY:
            request.priority = dice.choice((0, 1, 2))
        elif request.action == jobs_pb2.JOB_ACTION_SET_DELAY:
            request.delay_s = dice.choice((0, 1))
        request.dry_run = dice.random() < 0.1
        return request
