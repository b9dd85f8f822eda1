"""Check that the history of each job is linearizable, by a search after Wing and Gong, and Lowe.

Every command that names a job, or whose reply does, takes effect at one moment between request and
reply; a command without a reply takes effect at some later moment or never. Unobserved transitions
happen in between, as early as possible and no earlier: a TTR ends, the jobs of a closed connection
return, a delay ends, a kick of several jobs takes this one, a reserve without a reply takes it.
The time at which a delay ends is not judged: after a cold start cluster time is an estimate. The
simulator judges the whole queue by the same kind of search (`tests/sim/linear_check.py`), for few
commands; here there are many, so each job has a search of its own, independent of other jobs.
"""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from chaos import record
from chaos.record import Op

# Many times what a job of a soak needs; a search that exceeds it is counted as undecided.
SITUATIONS_MAX: Final = 20_000
FOREVER_S: Final = float("inf")
DELAYED, READY, RESERVED, BURIED, HIDDEN, GONE = range(6)
# Replies that reveal nothing about the job; docs/consistency.md: certainly not done.
NOTHING_DONE: Final = frozenset({"INTERNAL_ERROR", "DRAINING", "OUT_OF_MEMORY"})
BY_HOLDER: Final = frozenset({record.RELEASE, record.BURY, record.TOUCH})
NOBODY: Final = -1


class State(NamedTuple):
    """The state of one job, which is GONE before its put and after its delete."""

    kind: int
    session: int = NOBODY
    # Before this time the TTR cannot have ended.
    safe_s: float = 0.0


class Event(NamedTuple):
    """One command about one job, and the connection that sent it."""

    op: Op
    session: int
    until_s: float  # of its reply; infinite without one


class Judged(NamedTuple):
    """The results of all searches."""

    wrong: list[str]
    undecided: list[str]
    jobs: int


class Windows:
    """The time windows of commands that may take effect on any job."""

    def __init__(self, ops: Iterable[Op]) -> None:
        spans = sorted((op.sent_s, ends_s(op)) for op in ops)
        self._from_s = [from_s for from_s, _ in spans]
        self._until_s = list(itertools.accumulate((until_s for _, until_s in spans), max))

    def meet(self, from_s: float, until_s: float) -> bool:
        """Whether a command may take effect in this interval."""
        before = bisect.bisect_right(self._from_s, until_s)
        return before > 0 and self._until_s[before - 1] >= from_s


def ends_s(op: Op) -> float:
    """Return until when a command may take effect, also on jobs that it does not name."""
    return op.done_s + (record.LINGER_S if record.is_unknown(op) else 0.0)


class Queue(NamedTuple):
    """The part of the history that all jobs share."""

    kicks: Windows
    hiding: Windows
    # By connection: the earliest time at which it may end, when it sent its last answered command.
    ends_s: Sequence[float]


class Search:
    """The search for an order of the commands about one job."""

    def __init__(self, events: Sequence[Event], ttr_s: int, queue: Queue) -> None:
        self._events = sorted(events, key=lambda event: event.until_s)
        self._ttr_s = ttr_s
        self._queue = queue

    def run(self, limit: int) -> bool | None:
        """Return whether such an order exists; None if `limit` situations do not decide it."""
        count = len(self._events)
        answered = sum(1 << n for n in range(count) if self._events[n].until_s < FOREVER_S)
        start = (0, State(GONE))
        seen = {start}
        stack = [start]
        while stack:
            done, state = stack.pop()
            if done & answered == answered:
                return True
            # The last one on the stack is tried first: the command with the earliest reply.
            following = [after for after in self._next(done, state) if after not in seen]
            seen.update(following)
            stack += reversed(following)
            if len(seen) > limit:
                return None
        return False

    def _next(self, done: int, state: State) -> Iterator[tuple[int, State]]:
        left = [n for n in range(len(self._events)) if not done >> n & 1]
        until_s = self._events[left[0]].until_s
        for n in left:
            event = self._events[n]
            if event.op.sent_s <= until_s:
                after = outcome(state, event, self._ttr_s)
                if after is not None:
                    yield done | 1 << n, after
        sent = (self._events[n].op.sent_s for n in range(len(self._events)) if done >> n & 1)
        # A connection does not end before its last answered command.
        living = {self._events[n].session for n in left if self._events[n].until_s < FOREVER_S}
        for after in self._unseen(state, max(sent, default=0.0), until_s, living):
            yield done, after

    def _unseen(
        self, state: State, from_s: float, until_s: float, living: set[int]
    ) -> Iterator[State]:
        """Yield the states that the job may enter in this interval without a command about it."""
        kind = state.kind
        if kind == RESERVED:
            over = state.session not in living and until_s >= self._queue.ends_s[state.session]
            if over or until_s >= state.safe_s:
                yield State(READY)
        elif kind in (DELAYED, HIDDEN) or (
            kind == BURIED and self._queue.kicks.meet(from_s, until_s)
        ):
            yield State(READY)
        elif kind == READY and self._queue.hiding.meet(from_s, until_s):
            yield State(HIDDEN)


def outcome(state: State, event: Event, ttr_s: int) -> State | None:
    """Return the state of a job after a command; None if the reply is impossible."""
    op, kind = event.op, state.kind
    mine = kind == RESERVED and state.session == event.session
    held = State(RESERVED, event.session, op.sent_s + ttr_s - record.TTR_MARGIN_S)
    refused = op.outcome == "NOT_FOUND"
    allowed, after = False, state
    if op.kind == record.PUT:
        allowed, after = kind == GONE, State(DELAYED if _delay(op) else READY)
    elif op.kind == record.LOOK:
        allowed = (kind == GONE) == refused
    elif op.kind == record.RESERVE:
        by_name = not op.line or op.line.startswith("reserve-job")  # old files lack the line
        allowed = kind == READY or (by_name and kind in (DELAYED, BURIED))
        after = held
    elif op.kind == record.KICK:
        allowed, after = kind in (DELAYED, BURIED), State(READY)
    elif op.kind == record.DELETE:
        allowed, after = mine or kind in (DELAYED, READY, BURIED), State(GONE)
    elif op.kind in BY_HOLDER:
        back = State(DELAYED if _delay(op) else READY)
        allowed, after = mine, {record.RELEASE: back, record.BURY: State(BURIED)}.get(op.kind, held)
    if refused and op.kind != record.LOOK:
        return None if allowed else state
    return after if allowed else None


def _delay(op: Op) -> bool:
    """Whether a put or a release had a delay, or may have had one."""
    words = op.line.split()
    if op.kind == record.PUT:
        return len(words) < 3 or words[2] != "0"
    return len(words) < 4 or words[3] != "0"


def judge(clients: Sequence[Sequence[Op]], limit: int = SITUATIONS_MAX) -> Judged:
    """Judge all jobs with exactly one known put; other judges report the rest as `unexpected`."""
    events: defaultdict[int, list[Event]] = defaultdict(list)
    ends: list[float] = []
    job_of = record.jobs_by_body(clients)
    for ops in clients:
        ends.append(0.0)
        for op in ops:
            if op.kind == record.LEFT:
                ends.append(0.0)
            elif not record.is_unknown(op):
                ends[-1] = op.sent_s
            job = job_of.get(op.body, 0) if op.kind == record.PUT else record.job_named(op)
            if job and op.outcome not in NOTHING_DONE and _counts(op):
                until_s = FOREVER_S if record.is_unknown(op) else op.done_s
                events[job].append(Event(op, len(ends) - 1, until_s))
    everything = [op for ops in clients for op in ops]
    queue = Queue(
        Windows(op for op in everything if op.kind == record.KICK and not record.job_named(op)),
        Windows(op for op in everything if op.kind == record.RESERVE and record.is_unknown(op)),
        ends,
    )
    judged = Judged([], [], len(events))
    for job, about in events.items():
        puts = [event.op for event in about if event.op.kind == record.PUT]
        if len(puts) != 1:
            continue
        good = Search(about, record.ttr_of(puts[0].body), queue).run(limit)
        if not good:
            told = "; ".join(str(event.op) for event in sorted(about, key=lambda e: e.op.sent_s))
            if good is None:
                judged.undecided.append(f"the history of job {job} is too long to judge: {told}")
            else:
                judged.wrong.append(f"the history of job {job} is not linearizable: {told}")
    return judged


def _counts(op: Op) -> bool:
    """Whether a command may have changed the job, or reveals its state."""
    if op.kind == record.LOOK:
        return not record.is_unknown(op) and op.line.startswith(("peek ", "stats-job "))
    return True
