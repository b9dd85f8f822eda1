"""Judge policies of queues: jobs that came back too often, and the answers to their clients.

The policy in force and the number of attempts of a job are computed here from the log's commands
and events alone (`recount`). Administrators' changes of single jobs are judged in
`verdicts_changes`, the other rules of policies in `verdicts_rules` and `verdicts_rates`.
"""

from collections import defaultdict
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import BURIED, DELAYED, GONE, READY, RESERVED
from tests.sim.admin_log import Deed, Session
from tests.sim.cluster import Violation
from tests.sim.overseers import Order
from tests.sim.recount import Happened, Known, Recount
from tests.sim.retriers import MARK, TUBES, Request

# Kinds of events that end a reservation and not the job.
COMES_BACK: Final = frozenset({e.RELEASED, e.RETURNED, e.TIMED_OUT})
# Kinds of events that an answered request of a worker caused.
EFFECTS: Final = {
    b"DELETED": (e.DELETED,),
    b"BURIED": (e.BURIED,),
    b"TOUCHED": (e.TOUCHED,),
    b"RELEASED": (e.RELEASED, e.MOVED, e.BURIED),
    b"RESERVED": (e.RESERVED,),
}
LOST: Final = frozenset({e.CONNECTION_LOST, e.NODE_DOWN, e.NOBODY_WAITING})
# The end of the last attempt that a policy's event tells of.
USED_UP: Final = {
    e.ATTEMPTS: e.NO_REASON,
    e.ATTEMPTS_TTR: e.TTR,
    e.ATTEMPTS_CONNECTION_LOST: e.CONNECTION_LOST,
    e.ATTEMPTS_NODE_DOWN: e.NODE_DOWN,
    e.ATTEMPTS_NOBODY_WAITING: e.NOBODY_WAITING,
}


class Attempts:
    """The attempts of a job as a policy counts them."""

    __slots__ = ("given", "noted", "policies", "untouched")

    def __init__(self) -> None:
        self.given = 0  # times given out since it was put or last taken out
        self.noted: tuple[bytes, int] | None = None  # queue and reservations then
        self.policies = 0  # the number of changes of policies until then
        self.untouched = True  # since then it was only given out and returned


class Came(NamedTuple):
    """An event of one of these jobs, to be compared with answers."""

    kind: int
    session: Session
    at_s: float


class InForce:
    """The policies that are in force, by the log's commands alone."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[Any, ...]] = {}  # by pattern, without it

    def did(self, deed: Deed) -> None:
        """Count a command that sets or drops a policy, and check its result."""
        code, _, pattern = deed.command[:3]
        wanted = c.OK
        if code == c.SET_POLICY:
            self.rows[pattern] = deed.command[3:]
        elif self.rows.pop(pattern, None) is None:
            wanted = c.NOT_FOUND
        if deed.result != wanted:
            raise Violation(f"it is to say {wanted}: {deed}")

    def of(self, queue: bytes) -> tuple[Any, ...] | None:
        """Return the policy in force for a queue: its own, or that of the longest prefix."""
        fits = [one for one in self.rows if one[-1:] == b"*" and queue.startswith(one[:-1])]
        if queue in self.rows:
            fits = [queue]
        return self.rows[max(fits, key=len)] if fits else None


class PolicyJudge:
    """The checks of one life, fed by a recount."""

    def __init__(self, recount: Recount, orders: list[Order], requests: list[Request]) -> None:
        self.recount = recount
        self.orders = [order for order in orders if order.kind in ("set", "drop")]
        self.requests = requests
        self.policies = InForce()
        self.changes = 0  # of policies
        self.attempts: dict[int, Attempts] = defaultdict(Attempts)
        self.notes: dict[int, None] = {}  # jobs that were taken out, the latest last
        self.causes: dict[int, int] = {}
        self.came: dict[int, list[Came]] = defaultdict(list)
        self.deeds: dict[Session, Deed] = {}
        self.taken = 0  # jobs taken out of their queues
        # The job between two queues, its target and the reason.
        self._arrives: tuple[int, bytes, int] | None = None
        self._downs: dict[tuple[int, int], float] = {}
        for place, incarnation, at_s in recount.witness.downs:
            self._downs.setdefault((place, incarnation), at_s)

    # --- the log ----------------------------------------------------------------------------------

    def did(self, deed: Deed) -> None:
        """Check the result of an administrator's command."""
        if deed.command[0] not in (c.SET_POLICY, c.DROP_POLICY):
            return
        self.policies.did(deed)
        self.changes += 1
        self.deeds[deed.session] = deed

    def limit(self, queue: bytes) -> tuple[int, bytes] | None:
        """Return the attempts of a queue's jobs and its dead queue; None without a limit."""
        counts = self.policies.of(queue)
        return counts[:2] if counts is not None and counts[0] else None

    def happened(self, event: Happened) -> None:
        """Check an event that the recount has not counted yet."""
        known, mine = self.recount.jobs[event.job], self.attempts[event.job]
        if self._arrives is not None:
            self._come_in(known, event)
        elif event.reason in USED_UP:
            self._take_out(known, mine, event)
        elif event.kind == e.RESERVED:
            self._give_out(known, mine, event)
        elif event.kind in COMES_BACK:
            counts = self.limit(known.queue)
            if counts is not None and mine.given >= counts[0]:
                raise Violation(f"it had its {counts[0]} attempts, and came back: {event}")
        elif event.kind not in (e.TOUCHED, e.DUE, e.PUT):
            mine.untouched = False
        if (event.kind, event.state, event.reason) == (e.MOVED, e.MOVING, e.ADMIN) and mine.noted:
            mine.noted, mine.given = (mine.noted[0], event.reserves), 0  # new attempts
        if event.kind != e.BURIED and event.buries != known.buries:
            raise Violation(f"it was buried {known.buries} times: {event}")
        if event.state == GONE:
            self.notes.pop(event.job, None)
        if self.recount.witness.bodies.get(event.job, b"").startswith(MARK):
            self.came[event.job].append(Came(event.kind, event.session, event.at_s))

    def _give_out(self, known: Known, mine: Attempts, event: Happened) -> None:
        mine.given += 1
        mine.untouched &= event.before == READY
        counts = self.limit(known.queue)
        steady = mine.untouched and mine.policies == self.changes
        if steady and counts is not None and mine.given > counts[0]:
            raise Violation(f"given out {mine.given} times, its policy is {counts}: {event}")
        best = self.recount.first_ready(known.queue) if known.queue in TUBES else event.job
        if best != event.job:
            raise Violation(f"job {best} is to come first: {event}")

    def _take_out(self, known: Known, mine: Attempts, event: Happened) -> None:
        """Check that a policy took a job out of its own queue after its attempts, and rightly."""
        counts = self.limit(known.queue)
        if event.before != RESERVED or counts is None or mine.given < counts[0]:
            raise Violation(f"given out {mine.given} times, its policy is {counts}: {event}")
        dead = counts[1]
        if dead and dead != known.queue:
            if (event.kind, event.state) != (e.MOVED, e.MOVING):
                raise Violation(f"it is to come to {dead!r}: {event}")
            self._arrives = (event.job, dead, event.reason)
        elif (event.kind, event.state) != (e.BURIED, BURIED) or event.buries != known.buries:
            raise Violation(f"it is to be buried by its policy: {event}")
        self.taken += 1
        cause = self.causes[event.job] = USED_UP[event.reason]
        causes = self._causes(known, event)
        if cause not in causes:
            raise Violation(f"its last attempt is to have ended by {set(causes)}: {event}")
        mine.noted, mine.given = (known.queue, event.reserves), 0
        mine.policies, mine.untouched = self.changes, True
        self.notes.pop(event.job, None)
        self.notes[event.job] = None

    def _causes(self, known: Known, event: Happened) -> frozenset[int]:
        """Return the possible reasons for which its last attempt ended."""
        if event.timeouts != known.timeouts:
            return frozenset({e.TTR})
        if event.releases != known.releases:
            return frozenset({e.NO_REASON})
        down_s = self._downs.get(event.session[:2], float("inf"))
        return LOST if down_s <= event.at_s else LOST - {e.NODE_DOWN}

    def _come_in(self, known: Known, event: Happened) -> None:
        wanted = (*(self._arrives or ()), e.MOVED, READY)
        if (event.job, event.row.tube, event.reason, event.kind, event.state) != wanted:
            raise Violation(f"job {wanted[0]} is to be ready in {wanted[1]!r}: {event}")
        self._arrives = None

    # --- the end ----------------------------------------------------------------------------------

    def ended(self) -> None:
        """Check the notes and answers at the end of the life; raises Violation."""
        if self._arrives is not None:
            raise Violation(f"it never arrived: {self._arrives}")
        self._notes_are_kept()
        for order in self.orders:
            self._answered_policies_count(order)
        for request in self.requests:
            if request.kind != "put":
                self._what_was_told_is_true(request)

    def _notes_are_kept(self) -> None:
        """Check that each job has its latest note, and that jobs that are gone have none."""
        policies = self.recount.witness.machine.queue.policies
        found = [(job, (note.queue, note.reserves)) for job, note in policies.notes.items()]
        wanted = [(job, self.attempts[job].noted) for job in self.notes]
        if found != wanted:
            raise Violation(f"the notes are {found}, and are to be {wanted}")
        for job, note in policies.notes.items():
            if note.reason != self.causes[job]:
                raise Violation(f"job {job} is to have ended by {self.causes[job]}: {note}")
        rows = {pattern: tuple(row) for pattern, row in policies.rows.items()}
        if rows != self.policies.rows:
            raise Violation(f"the policies are {rows}, and are to be {self.policies.rows}")

    def _answered_policies_count(self, order: Order) -> None:
        deeds = [self.deeds[one] for one in order.caller.sessions if one in self.deeds]
        if order.reply is not None and not any(
            deed.result == c.OK and order.at_s <= deed.at_s <= order.done_s for deed in deeds
        ):
            raise Violation(f"answered, and not done: {order}")
        if order.refusal.startswith("NOT_FOUND") and deeds[-1].result != c.NOT_FOUND:
            raise Violation(f"there was one: {order}")

    def _what_was_told_is_true(self, request: Request) -> None:
        within = [
            came
            for came in self.came.get(request.job, ())
            if request.at_s <= came.at_s <= request.done_s and came.session == request.session
        ]
        kinds = EFFECTS.get(request.word)
        if kinds is not None and not any(came.kind in kinds for came in within):
            raise Violation(f"answered, and not done: {request}")
        if request.word == b"RESERVED" and request.body != self.recount.witness.bodies[request.job]:
            raise Violation(f"it has another body: {request}")
        if request.word == b"NOT_FOUND":
            for stay in self.recount.jobs[request.job].stays:
                lasts = stay.from_s <= request.at_s and request.done_s < stay.to_s
                held = stay.state == RESERVED and stay.session == request.session
                free = request.kind == "delete" and stay.state in (READY, DELAYED, BURIED)
                if lasts and (held or free):
                    raise Violation(f"it was {stay}: {request}")
