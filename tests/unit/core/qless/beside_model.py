"""Random calls to the machine's tables and the naive model: find and shrink differences.

The source of calls, the comparison of replies and messages, and the shortening of a walk belong
here.
"""

from typing import Any, NamedTuple

from beanpole import qless as q
from beanpole.core.qless import calls
from beanpole.core.qless.tables import Tables
from tests.unit.core.qless.making import empty_tables
from tests.unit.core.qless.model import Model
from tests.unit.core.qless.random_calls import JIDS, QUEUES, TAGS, THROTTLES, WORKERS, Calls

Arguments = tuple[Any, ...]


class Step(NamedTuple):
    """One call: its code, the client's clock, and its arguments."""

    code: int
    now: float
    args: Arguments

    def __str__(self) -> str:
        return f"{q.CALL_NAMES[self.code]} at {self.now} {self.args}"


class Source(Calls):
    """A source of calls that the model supports, for one dialect."""

    def __init__(self, seed: int, flavour: int) -> None:
        super().__init__(seed)
        self._throttled = flavour in (q.THROTTLES, q.DOTTED)
        self._templates = 1

    def step(self, tables: Tables) -> Step:
        """Return the next call for the state of these tables."""
        self.tables = tables
        self.now += self.dice.choice((0.0, 0.25, 1.0, 30.0, 61.0, 11.0, -5.0))
        if self.dice.random() < 0.01:
            self.now += 90_000.0
        kinds = [self.put, self.work, self.change, self.beside, self.template, self.read]
        weights = [9, 11, 5, 3, 2, 4]
        if self._throttled:
            kinds.append(self.throttle)
            weights.append(3)
        code, args = self.dice.choices(kinds, weights)[0]()
        if code == q.PUT:
            names = (args[10] or ()) if self._throttled else None
            args = (*args[:10], names, args[11])
        if code == q.THROTTLE_SET:  # without an expiry, which is in cluster time
            args = (*args[:2], 0)
        return Step(code, self.now, args)

    def template(self) -> tuple[int, Arguments]:
        """Never reuse a template's jid after UNRECUR: jobs that it made may still exist."""
        dice = self.dice
        jid = b"t%d" % self._templates
        code, args = self.recur()
        if code == q.UNRECUR:
            self._templates += 1
        if code == q.RECUR:
            interval = dice.choice((7.0, 20.0, 60.0))
            names = self.some(THROTTLES) if self._throttled else None
            args = (args[0], jid, *args[2:4], interval, *args[5:10], names)
        if code == q.RECUR_UPDATE:
            pairs = tuple(pair for pair in args[1] if self._throttled or pair[0] != b"throttles")
            args = (jid, pairs)
        return code, (jid, *args[1:]) if code != q.RECUR else args

    def beside(self) -> tuple[int, Arguments]:
        """Return a call about queues, workers or numeric options, not about one job's life."""
        dice = self.dice
        queue, worker = dice.choice(QUEUES), dice.choice(WORKERS)
        option = dice.choice(
            (
                (b"heartbeat", b"10"),
                (b"q-heartbeat", b"5"),
                (b"grace-period", dice.choice((b"0", b"5"))),
                (b"jobs-history-count", b"3"),
                (b"jobs-history", b"100"),
                (b"r-max-concurrency", b"2"),
            )
        )
        return dice.choice(
            (
                (q.PAUSE, (self.some(QUEUES, 1),)),
                (q.UNPAUSE, (QUEUES,)),
                (q.CONFIG_SET, option),
                (q.CONFIG_UNSET, option[:1]),
                (q.FORGET_WORKERS, ((worker,),)),
                (q.QUEUE_COUNTS, (self.maybe(queue),)),
                (q.QUEUE_COUNTS, (None,)),
                (q.WORKER_COUNTS, ()),
                (q.WORKER_JOBS, (worker,)),
                (q.JOBS, (dice.randint(q.SCHEDULED, q.DEPENDS), queue, 0, 25)),
            )
        )

    def read(self) -> tuple[int, Arguments]:
        """Return a read-only call of a client."""
        dice = self.dice
        states = (q.RUNNING, q.SCHEDULED, q.DEPENDS, q.STALLED, q.THROTTLED, q.COMPLETE_)
        queue, jid = dice.choice(QUEUES), dice.choice(JIDS)
        name = dice.choice((*THROTTLES, b"ql:q:q"))
        return dice.choice(
            (
                (q.GET, (jid,)),
                (q.MULTIGET, (JIDS,)),
                (q.TRACKED, ()),
                (q.TAGGED, (dice.choice(TAGS), 0, 5)),
                (q.TOP_TAGS, (0, 5)),
                (q.FAILED_GROUPS, ()),
                (q.FAILED_JOBS, (dice.choice((b"g", b"h", b"failed-retries-q")), 0, 5)),
                (q.LENGTH, (queue,)),
                (q.STATS, (queue, self.now)),
                (q.RECUR_GET, (b"t%d" % self._templates,)),
                (q.RECUR_SCORE, (queue, b"t%d" % self._templates)),
                (q.THROTTLE_GET, (name,)),
                (q.THROTTLE_LOCKS, (name,)),
                (q.THROTTLE_PENDING, (name,)),
                (q.JOBS, (dice.choice((*states, q.RECURRING)), queue, 0, dice.choice((2, 25)))),
            )
        )


def walk(seed: int, flavour: int, steps: int) -> tuple[list[Step], str]:
    """Make random calls until a difference; return the calls and the difference, or ""."""
    source = Source(seed, flavour)
    tables, model = empty_tables(), Model(flavour)
    done: list[Step] = []
    first = [(q.PUT, (name, name, b"K", b"{}", *_PLAIN, None, False)) for name in QUEUES]
    for number in range(steps):
        if number < len(first):
            step = Step(first[number][0], source.now, first[number][1])
        else:
            step = source.step(tables)
        done.append(step)
        found = compare(tables, model, flavour, step)
        if found:
            return done, found
    return done, ""


_PLAIN = (0.0, None, None, None, None, ())


def again(steps: list[Step], flavour: int) -> str:
    """Repeat calls; return the difference if the last call is the first to show it."""
    tables, model = empty_tables(), Model(flavour)
    for number, step in enumerate(steps):
        found = compare(tables, model, flavour, step)
        if found:
            return found if number == len(steps) - 1 else ""
    return ""


def shortened(steps: list[Step], flavour: int) -> list[Step]:
    """Remove calls that the last difference does not need, in pieces of falling size."""
    kept = list(steps)
    size = len(kept) // 2
    while size:
        place = 0
        while place < len(kept) - 1:
            fewer = kept[:place] + kept[min(place + size, len(kept) - 1) :]
            if again(fewer, flavour):
                kept = fewer
            else:
                place += size
        size //= 2
    return kept


def compare(tables: Tables, model: Model, flavour: int, step: Step) -> str:
    """Make a call on both; return the difference, or ""."""
    make = calls.read if step.code >= q.FIRST_READ else calls.apply
    found = make(tables, step.code, flavour, step.now, step.args)
    wanted = model.call(step.code, step.now, step.args)
    said = [(channel, plain(what)) for channel, what in tables.messages]
    expected = [(channel, plain(what)) for channel, what in model.messages]
    tables.messages.clear()
    model.messages.clear()
    if plain_reply(found) != plain_reply(wanted):
        return f"{step}\n  the machine {plain_reply(found)}\n  the model   {plain_reply(wanted)}"
    if said != expected:
        return f"{step}\n  the machine said {said}\n  the model   said {expected}"
    return ""


def plain_reply(result: q.Result) -> Any:
    """Normalise a reply without an order: it may name any of several dependents."""
    code, value = result
    return code, value[0] if code == q.HAS_DEPENDENT else plain(value)


def plain(value: Any) -> Any:
    """Return a value as tuples; sets are sorted, and floats have nine digits."""
    if isinstance(value, q.JobView):
        value = value._replace(
            dependents=tuple(sorted(value.dependents)),
            dependencies=tuple(sorted(value.dependencies)),
        )
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, tuple):
        pairs = value and all(isinstance(one, tuple) and len(one) == 2 for one in value)
        if pairs and value[0][0] in (b"jid", b"event", b"option"):
            return dict(value)
        return tuple(plain(one) for one in value)
    return float(f"{round(value, 6):.9g}") if isinstance(value, float) else value
