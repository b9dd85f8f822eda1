"""Judge answers about users, to clients and administrators: they must agree with the log.

`verdicts_users` judges the log itself, and has gone through it before.
"""

from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole.constants import DEFAULT_TUBE
from beanpole.core.jobs.job import READY
from beanpole.core.users import BIRTH_BYTES
from beanpole.events import BEANSTALK
from tests.sim.bearers import MARK, Ask
from tests.sim.cluster import Violation
from tests.sim.recount import Recount, Stay
from tests.sim.rights import ADMIN, EVERYWHERE, NO_NAME, PUT, WORK, Table, Who, rights, rule_of
from tests.sim.stewards import Order
from tests.sim.stories import FOREVER_S
from tests.sim.verdicts_users import Deed, Session, State, UserJudge

# A waiting client that is given a right gets a job within this time, even from a new leader.
WIDENED_S: Final = 1.0
# A wait ends within this time after its right has ended.
TOLD_S: Final = 1.5
# A node with a leader ends a wait within this time after its timeout.
PROMPT_S: Final = 0.3
# Answers that say nothing about rights: the node acted on its own, or could not act.
NO_VERDICT: Final = frozenset(
    {b"", b"INTERNAL_ERROR", b"DRAINING", b"OUT_OF_MEMORY", b"UNKNOWN_COMMAND"}
)
CODES: Final = {
    "auth": c.AS_USER,
    "put": c.PUT,
    "keep": c.KEEP,
    "resume": c.RESUME,
    "peek": c.PEEK,
    "stats-job": c.STATS_JOB,
    "kick-job": c.KICK_JOB,
    "delete": c.DELETE,
    "reserve-job": c.RESERVE_JOB,
    "release": c.RELEASE,
    "bury": c.BURY,
    "touch": c.TOUCH,
    "kick": c.KICK,
    "pause-tube": c.PAUSE_TUBE,
    "peek-ready": c.PEEK_READY,
    "peek-delayed": c.PEEK_DELAYED,
    "peek-buried": c.PEEK_BURIED,
    "stats-tube": c.STATS_TUBE,
    "create function": c.CREATE_QUEUE,
    "drop function": c.DROP_QUEUE,
    "limit": c.LIMIT_QUEUE,
    "cancel job": c.DELETE,
}
# Commands that the node answers before they are applied.
_TOLD_BEFORE: Final = (c.USE, c.WATCH)
METHODS: Final = {
    "Set": c.SET_USER,
    "Drop": c.DROP_USER,
    "AddToken": c.SET_TOKEN,
    "DropToken": c.SET_TOKEN,
    "SetRules": c.SET_RULES,
}
# The results of the machine that each status of a refusal allows.
REFUSALS: Final = {
    "NOT_FOUND": (c.NOT_FOUND,),
    "RESOURCE_EXHAUSTED": (c.FULL, c.OUT_OF_MEMORY),
    "FAILED_PRECONDITION": (c.BUSY, c.EXISTS, c.LOCKED_OUT),
}


class AnswerJudge:
    """The checks of the answers in one life."""

    def __init__(
        self,
        log: UserJudge,
        asks: list[Ask],
        orders: list[Order],
        leaves: dict[tuple[int, int], float],
    ) -> None:
        self.log = log
        self.leaves = leaves  # when nodes were told to stop: they give out no job from then on
        self.asks = asks
        self.orders = orders
        # The last answered request of each connection.
        self._last = {id(ask.visit): ask for ask in asks if ask.word}

    def all(self) -> None:
        """Check everything; raises Violation."""
        for order in self.orders:
            self._was_told_the_truth(order)
        first: dict[Session, Ask] = {}
        for ask in self.asks:
            first.setdefault(ask.session, ask)
            self._answer_is_true(ask)
        for session, ask in first.items():
            self._came_by_rule(session, ask)
        self._nobody_waited_in_vain()

    # --- administrators ---------------------------------------------------------------------------

    def _was_told_the_truth(self, order: Order) -> None:
        """Check that an answered change is in the log in its time, or why it was refused."""
        deeds = [
            deed
            for session in order.caller.sessions
            for deed in self.log.deeds[session]
            if order.at_s <= deed.at_s <= order.done_s
        ]
        results = [deed.result for deed in deeds if deed.command[0] == METHODS[order.kind]]
        if order.done_s == FOREVER_S:
            return
        word = order.refusal.split(":")[0]
        if not word and results != [c.OK]:
            raise Violation(f"answered, and not done: {order}")
        whos = {self._who_by(order.token, table) for table in within(self.log.tables, order)}
        if word == "PERMISSION_DENIED" and c.DENIED not in results:
            self._some_lacks_admin(order, [who for who in whos if who is not None])
        elif word == "UNAUTHENTICATED" and None not in whos:
            # Calls without a token are refused with this status, too.
            self._some_lacks_admin(order, [who for who in whos if who and not who.name])
        elif word in REFUSALS and results and results[0] not in REFUSALS[word]:
            raise Violation(f"it said {results}: {order}")

    def _who_by(self, token: bytes, table: Table) -> Who | None:
        if not token:
            return NO_NAME
        owners = (name for name, person in table.items() if token in person.tokens)
        return next((Who(name, token) for name in owners), None)

    def _some_lacks_admin(self, order: Order, whos: list[Who]) -> None:
        for table in within(self.log.tables, order):
            if any(not rights(table, who, EVERYWHERE) & ADMIN for who in whos):
                return
        raise Violation(f"it had the right, and was refused: {order}")

    # --- clients ----------------------------------------------------------------------------------

    def _came_by_rule(self, session: Session, ask: Ask) -> None:
        """Check that a new session has the user of a rule that its node knew, however outdated."""
        deeds = self.log.deeds[session]
        if not deeds or deeds[0].command[0] not in (c.OPEN, c.OPEN_FROM):
            return
        time = Span(ask.known_s, deeds[0].at_s)
        wanted = {
            rule_of(one, BEANSTALK, (ask.certificate,)) for one in within(self.log.rules, time)
        }
        said = [one.command[2] for one in deeds if one.command[0] == c.AS_USER]
        by_rule = [
            len(one.command[3]) == BIRTH_BYTES for one in deeds if one.command[0] == c.AS_USER
        ]
        found = said[0] if by_rule[:1] == [True] else b""
        if found not in wanted or any(by_rule[1:]):
            raise Violation(f"it is {found!r} by a rule, and is to be one of {wanted}: {ask}")

    def _answer_is_true(self, ask: Ask) -> None:
        """Check that an answer about rights agrees with the result of its command in the log."""
        if ask.word in NO_VERDICT:
            return
        deeds = [
            deed for deed in self.log.deeds[ask.session] if ask.at_s <= deed.at_s <= ask.done_s
        ]
        if ask.kind == "reserve-with-timeout":
            self._reserve_is_true(ask, deeds)
            return
        if ask.kind == "lease":
            self._lease_is_true(ask)
            return
        if ask.word == b"DENIED":
            if not self._was_refused(ask, deeds) and not self._may_not_put(ask):
                raise Violation(f"nothing of it was refused: {ask}")
            return
        code = CODES.get(ask.kind)
        if code is None:
            return  # answered before it is applied, and the connection ends on a refusal
        if not any(
            deed.command[0] == code and deed.result != c.DENIED and _is_about(deed.command, ask)
            for deed in deeds
        ):
            raise Violation(f"told, and not done: {ask}")

    def _was_refused(self, ask: Ask, deeds: list[Deed]) -> bool:
        """Whether a refused command explains the answer DENIED.

        The command is in the request's own time, or an earlier `use` or `watch` that was answered
        before it was applied. Such a refusal is the last reply of a connection, and looks like the
        answer to the client's latest request.
        """
        if any(deed.result == c.DENIED for deed in deeds):
            return True
        return self._last[id(ask.visit)] is ask and any(
            deed.command[0] in _TOLD_BEFORE and deed.result == c.DENIED and deed.at_s <= ask.at_s
            for deed in self.log.deeds[ask.session]
        )

    def _may_not_put(self, ask: Ask) -> bool:
        """Whether a put was refused by its node alone, whose knowledge is of the put's time."""
        return ask.kind == "put" and any(
            not rights(table, state.who, state.used) & PUT
            for table in within(self.log.tables, ask)
            for state in self._states(ask)
        )

    def _reserve_is_true(self, ask: Ask, deeds: list[Deed]) -> None:
        if ask.word == b"RESERVED":
            given = self.log.given[ask.session]
            if not any(one.job == ask.job and ask.at_s <= one.at_s <= ask.done_s for one in given):
                raise Violation(f"it was not given: {ask}")
            return
        if ask.word != b"DENIED" or self._was_refused(ask, deeds):
            return
        if not any(self._kept_out(ask, Span(ask.at_s, ask.done_s))):
            raise Violation(f"it may work on all that it watches: {ask}")

    def _lease_is_true(self, ask: Ask) -> None:
        """Check a `lease` of Workq, which a node refuses by itself, by what it knows."""
        whos = {state.who for state in self._states(ask)} or {NO_NAME}
        tables = within(self.log.tables, Span(ask.known_s, ask.done_s))
        may = {bool(rights(table, who, ask.args[0]) & WORK) for table in tables for who in whos}
        if (ask.word != b"DENIED") not in may:
            raise Violation(f"may it work there: {may}: {ask}")

    def _kept_out(self, ask: Ask, time: "Span") -> Iterator[bool]:
        """Yield, for each moment of a part of a reserve's time, whether it could not wait.

        The default tube is passed over where another one is watched.
        """
        for table in within(self.log.tables, time):
            for who, watched in [(state.who, state.watched) for state in self._states(ask)]:
                closed = {tube for tube in watched if not rights(table, who, tube) & WORK}
                yield bool(closed) and (closed != {DEFAULT_TUBE} or len(watched) == 1)

    def _states(self, ask: Ask) -> list[State]:
        """Return the states of a request's session during the request."""
        states = [(state.at_s, state) for state in self.log.states[ask.session]]
        return within(states, ask)

    def _nobody_waited_in_vain(self) -> None:
        """Check that no wait ended beside a ready job of a queue in which its session may work."""
        recount = Recount(self.log.witness)
        for _ in recount.steps():
            pass
        reserves = defaultdict(list)
        for ask in self.asks:
            if ask.kind == "reserve-with-timeout":
                reserves[ask.session].append(ask)
        stays: dict[bytes, list[Stay]] = defaultdict(list)
        for job, known in recount.jobs.items():
            if not self.log.witness.bodies[job].startswith(MARK):
                continue
            for stay, after in zip(known.stays, [*known.stays[1:], None], strict=True):
                if stay.state == READY:
                    # It may count as taken since its taker waited.
                    takers = reserves[after.session] if after is not None else []
                    since = [one.at_s for one in takers if one.at_s <= stay.to_s]
                    to_s = min(stay.to_s, max(since, default=stay.to_s))
                    stays[stay.queue].append(stay._replace(to_s=to_s))
        for asks in reserves.values():
            for ask in asks:
                leaves_s = self.leaves.get((ask.visit.place, ask.visit.incarnation), FOREVER_S)
                if ask.word != b"TIMED_OUT" or ask.done_s >= leaves_s:
                    continue
                # A node asks the leader to end a wait when its time is up. If the end came late,
                # the node had no leader, and may not have known that the right had ended. Nor does
                # a node know it whose full disk takes no entries (life 1739), or that was without a
                # leader until its time was up (life 80750).
                until_s = min(ask.done_s, ask.at_s + ask.args[0])
                is_prompt = ask.done_s - until_s < PROMPT_S
                if (
                    is_prompt
                    and until_s - ask.at_s > TOLD_S
                    and all(self._kept_out(ask, Span(until_s - TOLD_S, until_s)))
                    and all(self._kept_out(ask, Span(ask.knew_s, ask.knew_s)))
                ):
                    raise Violation(f"it waited on without a right: {ask}")
                self._waited_for_nothing(ask, stays)

    def _waited_for_nothing(self, ask: Ask, stays: dict[bytes, list[Stay]]) -> None:
        late = Span(max(ask.at_s, ask.done_s - WIDENED_S), ask.done_s)
        states = self._states(ask)
        for tube in frozenset.intersection(*[state.watched for state in states]):
            if not self._gives_out(tube, late):
                continue
            allowed = all(
                rights(table, state.who, tube) & WORK
                for table in within(self.log.tables, late)
                for state in states
            )
            for stay in stays[tube] if allowed else ():
                if stay.from_s <= late.at_s and late.done_s < stay.to_s:
                    raise Violation(f"{stay} was ready, and it has the right: {ask}")

    def _gives_out(self, tube: bytes, span: "Span") -> bool:
        """Whether a tube was not paused at any moment of a span."""
        pauses = self.log.witness.pauses
        known = [one for one in pauses if one[0] == tube and one[1] <= span.done_s]
        return not known or (known[-1][1] < span.at_s and not known[-1][2])


class Span(NamedTuple):
    """A part of the time of a request."""

    at_s: float
    done_s: float


def within(versions: list[tuple[float, Any]], time: Any) -> list[Any]:
    """Return the versions that were valid at some moment of a request or call."""
    ends = [at_s for at_s, _ in versions[1:]] + [FOREVER_S]
    return [
        version
        for (at_s, version), end_s in zip(versions, ends, strict=True)
        if at_s <= time.done_s and time.at_s <= end_s
    ]


def _is_about(command: c.Command, ask: Ask) -> bool:
    """Whether a command belongs to a request, by the names in it."""
    if ask.kind == "put":
        return bool(command[6] == ask.body)
    if ask.kind == "auth":
        return bool(command[3] == sha256(ask.args[0]).digest())
    if ask.kind in ("keep", "resume"):
        return bool(command[2] == sha256(ask.args[0]).digest())
    if ask.args and ask.kind != "kick":
        return bool(command[2] == ask.args[0])
    return True
