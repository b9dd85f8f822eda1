"""Judge what clients saw against what was committed, and when: the safety of a run.

Every check is named after a guarantee. Liveness is judged in `storm`. A request takes effect at one
moment between its sending and its reply; the witness knows the moment of every entry.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from beanpole.core.jobs import transitions as q
from beanpoled.shared.clock import TURN_MAX_US
from tests.sim import aliases, bearers, keepers, retriers, senders
from tests.sim.callers import MARK
from tests.sim.cluster import Violation
from tests.sim.history import NOT_DONE, Op, host_of
from tests.sim.witness import HEARD_S, RATE_MAX, STAMP_S, Event, Witness

PROBE: Final = b"probe"
# The beginnings of bodies of jobs that other judges check.
OTHERS: Final = (*(MARK, aliases.MARK, bearers.MARK, keepers.MARK, retriers.MARK, senders.MARK),)
# Some of these are deleted by other clients than those that this file judges.
DELETERS: Final = (bearers.MARK, keepers.MARK, retriers.MARK, senders.MARK)
# A pause of a node counts as this much, and requests during the pause count from before it.
TURN_MAX_S: Final = TURN_MAX_US / 1e6
RESERVES: Final = frozenset({"reserve", "reserve-with-timeout"})
ENDS: Final = frozenset({"release", "bury", "delete"})
STATES: Final = {
    q.MADE_READY: "ready",
    q.RESERVE: "reserved",
    q.DELAY: "delayed",
    q.BURY: "buried",
    q.DELETE: "gone",
}
NOT_RESERVED: Final = frozenset({"ready", "delayed", "buried"})
EFFECTS: Final = {
    "release": (q.MADE_READY, q.DELAY),
    "bury": (q.BURY,),
    "touch": (q.TOUCH,),
    "kick-job": (q.MADE_READY,),
}
# A NOT_FOUND is wrong if the job was in one of these states during the whole request.
REFUTES: Final = {
    "delete": NOT_RESERVED,
    "reserve-job": NOT_RESERVED,
    "kick-job": frozenset({"delayed", "buried"}),
    "peek": NOT_RESERVED | {"reserved"},
    "stats-job": NOT_RESERVED | {"reserved"},
}
PEEKED: Final = {"peek-ready": "ready", "peek-delayed": "delayed", "peek-buried": "buried"}
FOREVER_S: Final = float("inf")


class Stay(NamedTuple):
    """A span in which a job was in one state (true seconds).

    `to_s` is the earliest time at which it may count as taken, `end_s` when that was committed.
    """

    state: str
    from_s: float
    to_s: float
    end_s: float
    priority: int
    session: tuple[int, int, int] | None

    def covers(self, op: Op) -> bool:
        """Whether it lasted from before the request until after its reply."""
        return self.from_s <= op.at_s and op.done_s is not None and op.done_s < self.to_s


class Hold(NamedTuple):
    """A span in which a client certainly holds a job, by what the client has seen."""

    from_s: float
    to_s: float
    op: Op


class Judge:
    """The checks of one run."""

    def __init__(
        self,
        history: list[Op],
        witness: Witness,
        timeout_s: float,
        estimated: bool,
        drains: dict[str, list[list[float]]] | None = None,
        fences: dict[str, list[float]] | None = None,
    ) -> None:
        self.history = history
        self.witness = witness
        self.timeout_s = timeout_s
        self.estimated = estimated  # cluster time advanced by an estimate of a downtime
        self.drains = drains or {}  # by node: spans in which it refused puts
        self.fences = fences or {}  # by node: when it was cut off and closed its clients
        # By place and incarnation: the time from which a stopping node hands out no job.
        self.leaves: dict[tuple[int, int], float] = {}
        self.puts = {op.body: op for op in history if op.kind == "put"}
        self.by_kind: dict[str, list[Op]] = defaultdict(list)
        for op in history:
            self.by_kind[op.kind].append(op)
        self.waits: dict[tuple[int, int, int], list[Op]] = defaultdict(list)
        for op in history:
            if op.kind in RESERVES:
                who = op.connected
                self.waits[who.place, who.incarnation, who.number].append(op)
        self.stays = {job: list(self._stays(events)) for job, events in witness.jobs.items()}
        self.jobs_of: dict[bytes, list[int]] = defaultdict(list)
        for job, tube in witness.tubes.items():
            self.jobs_of[tube].append(job)
        self.pauses = _pauses(witness)
        self.downs: dict[tuple[int, int], float] = {}
        for place, incarnation, at_s in witness.downs:
            self.downs.setdefault((place, incarnation), at_s)

    def all(self) -> None:
        """Check everything; raises Violation."""
        self.refusals_take_their_time()
        self.nothing_is_lost_or_invented()
        self.ids_follow_real_time()
        self.what_is_deleted_was_deleted_once()
        self.a_reservation_is_one_client_s()
        self.no_two_clients_hold_a_job()
        self.answered_changes_happened()
        self.what_was_not_found_was_not_there()
        self.what_was_found_was_there()
        self.no_wait_ended_beside_a_ready_job()
        self.the_best_job_came_first()
        self.delays_are_not_early()
        self.hosts_are_those_of_the_clients()

    def hosts_are_those_of_the_clients(self) -> None:
        """A session is opened with the host of its client, or with none before version 4."""
        for who in {id(op.connected): op.connected for op in self.history}.values():
            session = (who.place, who.incarnation, who.number)
            named = self.witness.events.hosts.get(session, host_of(who.client))
            if who.number and named != host_of(who.client):
                raise Violation(f"client {who.client} has a session of host {named!r}")

    # --- puts -------------------------------------------------------------------------------------

    def refusals_take_their_time(self) -> None:
        """Commands that cannot be sent are refused after command_timeout, or at the fence."""
        for op in self.history:
            passed_s = FOREVER_S if op.done_s is None else op.done_s - op.at_s
            if op.kind == "put" and op.done_s is not None:
                drains = self.drains.get(op.connected.node, ())
                if op.word == b"INSERTED" and any(a < op.at_s and op.done_s < b for a, b in drains):
                    raise Violation(f"its node was draining: {op!r}")
                if op.word == b"DRAINING" and any(
                    a <= op.done_s and op.at_s <= b for a, b in drains
                ):
                    continue
            fences = self.fences.get(op.connected.node, ())
            if any(op.at_s <= fence_s <= (op.done_s or FOREVER_S) for fence_s in fences):
                continue
            if op.word in NOT_DONE and passed_s < (self.timeout_s - TURN_MAX_S) * (1 - RATE_MAX):
                raise Violation(f"refused too early: {op!r}")

    def nothing_is_lost_or_invented(self) -> None:
        """Q1, Q2, Q5: an answered put is one job, an unanswered at most one, a refused none."""
        made: dict[bytes, list[int]] = defaultdict(list)
        for job, body in self.witness.bodies.items():
            if body != PROBE and not body.startswith(OTHERS):
                made[body].append(job)
        for body, jobs in made.items():
            op = self.puts.get(body)
            first = self.witness.jobs[jobs[0]][0]
            if op is None or first.at_s < op.at_s:
                raise Violation(f"job {jobs[0]} was never put: {body!r}")
            if len(jobs) > 1:
                raise Violation(f"put twice, as {jobs}: {op!r}")
            if self.witness.tubes[jobs[0]] != op.args[-1]:
                raise Violation(f"put into another tube: {op!r}")
            down_s = self.downs.get((op.connected.place, op.connected.incarnation), FOREVER_S)
            if first.at_s > down_s:
                raise Violation(f"its node was down already: {op!r} made at {first!r}")
        for op in self.by_kind["put"]:
            jobs = made.get(op.body, [])
            if op.word in NOT_DONE and jobs:
                raise Violation(f"refused and done: {op!r} is job {jobs[0]}")
            if op.word == b"INSERTED":
                if jobs != [op.job]:
                    raise Violation(f"lost: {op!r}, made were {jobs}")
                _require(op, self.witness.jobs[op.job][:1])

    def ids_follow_real_time(self) -> None:
        """Q8, Q9: a put that is sent after another put was answered gets the larger id."""
        answered = sorted(
            (op for op in self.by_kind["put"] if op.word == b"INSERTED"),
            key=lambda op: op.done_s or 0.0,
        )
        if len({op.job for op in answered}) != len(answered):
            raise Violation("one id was given twice")
        place = highest = 0
        for op in sorted(answered, key=lambda op: op.at_s):
            while answered[place].done_s is not None and (answered[place].done_s or 0) < op.at_s:
                highest = max(highest, answered[place].job)
                place += 1
            if op.job <= highest:
                raise Violation(f"after {highest} was given: {op!r}")

    # --- deletes and reservations -----------------------------------------------------------------

    def what_is_deleted_was_deleted_once(self) -> None:
        """Q1, Q3: a job is removed by one delete; an answered delete is never answered again."""
        asked: dict[int, list[Op]] = defaultdict(list)
        for op in self.by_kind["delete"]:
            asked[op.job].append(op)
        for job, ops in asked.items():
            done = [op for op in ops if op.word == b"DELETED"]
            if len(done) > 1:
                raise Violation(f"deleted twice: {done}")
            if done:
                _require(done[0], [e for e in self.events(job) if e.kind == q.DELETE])
        for job, events in self.witness.jobs.items():
            if self.witness.bodies[job].startswith(DELETERS):
                continue
            for event in events:
                if event.kind == q.DELETE and not any(
                    op.at_s <= event.at_s and op.word in (b"DELETED", b"")
                    for op in asked.get(job, ())
                ):
                    raise Violation(f"nobody deleted job {job}, which is gone at {event!r}")

    def a_reservation_is_one_client_s(self) -> None:
        """Q2, Q4: every job handed out was granted to this session, and no grant is used twice."""
        used: set[int] = set()
        given = [op for op in self.history if op.word == b"RESERVED" and op.reply is not None]
        # Requests that ended first choose first: of two concurrent `reserve-job`, the one that
        # began first may be answered by the later grant (seed 71076).
        for op in sorted(given, key=lambda op: op.done_s or 0.0):
            assert op.reply is not None
            if op.reply[2] != self.witness.bodies.get(op.job):
                raise Violation(f"another body: {op!r}")
            who = op.connected
            session = (who.place, who.incarnation, who.number) if op.kind in RESERVES else None
            events = [
                event
                for event in self.events(op.job)
                if event.kind == q.RESERVE and event.session == session and id(event) not in used
            ]
            used.add(id(_require(op, events)))

    def no_two_clients_hold_a_job(self) -> None:
        """Q4, by what clients saw: no client gets a job that another client certainly holds."""
        ends: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
        holds: dict[int, list[Hold]] = defaultdict(list)
        for place, op in enumerate(self.history):
            if op.kind in ENDS:
                ends[id(op.connected), op.args[0]].append((place, op.at_s))
        for place, op in enumerate(self.history):
            if op.word != b"RESERVED" or op.done_s is None:
                continue
            who = op.connected
            put = self.puts.get(self.witness.bodies[op.job])
            ttr_s = 60 if put is None else put.args[2]
            until_s = [
                op.at_s + ttr_s * (1 - RATE_MAX) - STAMP_S,
                FOREVER_S if who.end_s is None else who.end_s,
                self.downs.get((who.place, who.incarnation), FOREVER_S),
            ]
            until_s += [at_s for at_s in self.witness.misled if at_s > op.at_s]
            until_s += [at_s for behind, at_s in ends[id(who), op.job] if behind > place]
            if min(until_s) > op.done_s:
                holds[op.job].append(Hold(op.done_s, min(until_s), op))
        for job, found in holds.items():
            found.sort(key=lambda hold: hold.from_s)
            for count, hold in enumerate(found):
                for earlier in found[:count]:
                    if hold.from_s < earlier.to_s:
                        raise Violation(f"job {job} is held twice: {earlier.op!r} and {hold.op!r}")

    def answered_changes_happened(self) -> None:
        """Q5, Q6: an answered release, bury, touch or kick-job is in the log, by its holder."""
        reserved: set[tuple[int, int]] = set()
        for op in self.history:
            if op.word == b"RESERVED":
                reserved.add((id(op.connected), op.job))
            kinds = EFFECTS.get(op.kind)
            if kinds is None or not op.word or op.word in (b"NOT_FOUND", b"INTERNAL_ERROR"):
                continue
            _require(op, [event for event in self.events(op.job) if event.kind in kinds])
            if op.kind != "kick-job" and (id(op.connected), op.job) not in reserved:
                raise Violation(f"not the holder: {op!r}")

    # --- reports that a job exists, or not --------------------------------------------------------

    def what_was_not_found_was_not_there(self) -> None:
        """Linearizable: NOT_FOUND is wrong if the job existed during the whole request."""
        for op in self.history:
            if op.word != b"NOT_FOUND":
                continue
            if op.kind in PEEKED:
                for job in self.jobs_of[op.tubes[0]]:
                    stay = self.stay(job, op)
                    if stay is not None and stay.state == PEEKED[op.kind]:
                        raise Violation(f"job {job} was there: {op!r}")
            elif op.kind in REFUTES:
                stay = self.stay(op.job, op)
                if stay is not None and stay.state in REFUTES[op.kind]:
                    raise Violation(f"the job was {stay}: {op!r}")
            elif op.kind in ("touch", "release", "bury"):
                who = op.connected
                stay = self.stay(op.job, op)
                session = (who.place, who.incarnation, who.number)
                if stay is not None and stay.state == "reserved" and stay.session == session:
                    raise Violation(f"the session held it: {op!r}")

    def what_was_found_was_there(self) -> None:
        """Linearizable: a job that was found existed at some moment of the request (Q3)."""
        for op in self.history:
            if op.word != b"FOUND" or op.reply is None or op.done_s is None:
                continue
            if op.reply[2] != self.witness.bodies.get(op.job):
                raise Violation(f"another body: {op!r}")
            state = PEEKED.get(op.kind)
            if not any(
                stay.from_s <= op.done_s
                and op.at_s <= stay.end_s
                and stay.state == (state or stay.state)
                for stay in self.stays[op.job]
                if stay.state != "gone"
            ):
                raise Violation(f"it was not there: {op!r}")

    def no_wait_ended_beside_a_ready_job(self) -> None:
        """Linearizable: TIMED_OUT is wrong if a job was ready during the whole request.

        Except at a stopping node, where it only means that the wait is over.
        """
        for op in self.history:
            who = op.connected
            leaves_s = self.leaves.get((who.place, who.incarnation), FOREVER_S)
            if op.word in (b"TIMED_OUT", b"DEADLINE_SOON") and (op.done_s or 0.0) < leaves_s:
                for job, _ in self.ready_beside(op):
                    raise Violation(f"job {job} was ready all the time: {op!r}")

    def the_best_job_came_first(self) -> None:
        """Q8: no reserve gets a job while a better one is ready during the whole request."""
        for op in self.history:
            if op.kind not in RESERVES or op.word != b"RESERVED":
                continue
            who = op.connected
            session = (who.place, who.incarnation, who.number)
            given = next(
                stay
                for stay in self.stays[op.job]
                if stay.session == session and op.at_s <= stay.from_s <= (op.done_s or 0.0)
            )
            for job, stay in self.ready_beside(op):
                if (stay.priority, job) < (given.priority, op.job):
                    raise Violation(f"job {job} was ready and better: {op!r}")

    def delays_are_not_early(self) -> None:
        """Q7: a delay does not end early."""
        if self.estimated:
            return
        kicks = self.by_kind["kick"] + self.by_kind["kick-job"]
        for job, events in self.witness.jobs.items():
            put = self.puts.get(self.witness.bodies[job])
            if put is None or not put.args[1] or events[1].kind != q.DELAY or len(events) < 3:
                continue
            ready = events[2]
            passed_s = ready.stamped_s - events[1].stamped_s
            since_s, delay_s = events[1].stamped_s, put.args[1]
            heard_s = HEARD_S * any(
                since_s < at_s <= ready.stamped_s for at_s in self.witness.epochs
            )
            least_s = delay_s * (1 - RATE_MAX) - STAMP_S - heard_s
            if ready.kind != q.MADE_READY or passed_s >= least_s:
                continue
            if not any(op.at_s <= ready.at_s <= (op.done_s or FOREVER_S) for op in kicks):
                raise Violation(f"ready after {passed_s:.3f} s: {put!r}")

    # --- look-ups ---------------------------------------------------------------------------------

    def _stays(self, events: list[Event]) -> Iterator[Stay]:
        changes = [event for event in events if event.kind in STATES]
        for event, after in zip(changes, [*changes[1:], None], strict=True):
            to_s = end_s = FOREVER_S if after is None else after.at_s
            if after is not None and after.kind == q.RESERVE and after.session is not None:
                # It may count as taken since the taker waited, although that was committed later.
                takers = [op.at_s for op in self.waits[after.session] if op.at_s <= to_s]
                to_s = max(event.at_s, max(takers, default=to_s))
            state = STATES[event.kind]
            yield Stay(state, event.at_s, to_s, end_s, event.priority, event.session)

    def events(self, job: int) -> list[Event]:
        """Return the transitions of a job."""
        return self.witness.jobs.get(job, [])

    def stay(self, job: int, op: Op) -> Stay | None:
        """Return the state that a job had during a whole request, if it was a single one."""
        return next((stay for stay in self.stays.get(job, ()) if stay.covers(op)), None)

    def ready_beside(self, op: Op) -> Iterator[tuple[int, Stay]]:
        """Yield the jobs that a reserve could have had at every moment."""
        for tube in op.tubes:
            if any(
                from_s <= (op.done_s or FOREVER_S) and op.at_s <= to_s
                for from_s, to_s in self.pauses[tube]
            ):
                continue
            for job in self.jobs_of[tube]:
                stay = self.stay(job, op)
                if stay is not None and stay.state == "ready":
                    yield job, stay


def _require(op: Op, events: Iterable[Event]) -> Event:
    """Return the first event within the time of a request; Violation if there is none."""
    assert op.done_s is not None
    for event in events:
        if op.at_s <= event.at_s <= op.done_s:
            return event
    raise Violation(f"answered, but not done: {op!r}")


def _pauses(witness: Witness) -> dict[bytes, list[tuple[float, float]]]:
    """Return the spans in which each tube was paused."""
    found: dict[bytes, list[tuple[float, float]]] = defaultdict(list)
    since: dict[bytes, float] = {}
    for tube, at_s, begins in witness.pauses:
        if tube in since:
            found[tube].append((since.pop(tube), at_s))
        if begins:
            since[tube] = at_s
    for tube, at_s in since.items():
        found[tube].append((at_s, FOREVER_S))
    return found
