"""Judging users: whose each session was, what it was allowed and refused, what clients were told.

The log of a life is applied once more, command by command, and each result is compared with that
of a small model (`rights`) at that place. Then each answer is compared with the log. What a job
may do apart from rights is judged elsewhere.
"""

from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole.constants import DEFAULT_TUBE
from beanpole.core.applied import GRANTED, NONE_READY, Applied
from beanpole.core.jobs.job import READY
from beanpole.core.machine import Machine
from beanpole.core.operations.table import is_command
from tests.sim.bearers import MARK, Ask
from tests.sim.cluster import Violation
from tests.sim.recount import Recount, Stay
from tests.sim.rights import (
    ADMIN,
    CHANGES,
    EVERYWHERE,
    NO_NAME,
    WORK,
    Model,
    Rules,
    Table,
    Who,
    rights,
)
from tests.sim.stewards import Order
from tests.sim.stories import FOREVER_S
from tests.sim.witness import Witness

Session = tuple[int, int, int]  # origin, incarnation, number

# After a right is given, a client that waits gets a job within this, even from a new leader.
WIDENED_S: Final = 1.0
# ... and after the right has ended, its wait does.
TOLD_S: Final = 1.5
# What a node does by itself, or could not do: it says nothing of rights.
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
}
METHODS: Final = {
    "Set": c.SET_USER,
    "Drop": c.DROP_USER,
    "AddToken": c.SET_TOKEN,
    "DropToken": c.SET_TOKEN,
    "SetRules": c.SET_RULES,
}
# By the first word of a refusal: what the machine may have said.
REFUSALS: Final = {
    "NOT_FOUND": (c.NOT_FOUND,),
    "RESOURCE_EXHAUSTED": (c.FULL, c.OUT_OF_MEMORY),
    "FAILED_PRECONDITION": (c.BUSY, c.EXISTS, c.LOCKED_OUT),
}


class Deed(NamedTuple):
    """A command of a session, as it was applied."""

    command: c.Command
    result: Any
    at_s: float


class State(NamedTuple):
    """What a session was from some time on."""

    at_s: float
    who: Who
    watched: frozenset[bytes]


class Given(NamedTuple):
    """A job that a session got."""

    job: int
    at_s: float


class Kept:
    """A session as the model has it."""

    def __init__(self, at: Session) -> None:
        self.at = at
        self.who = NO_NAME
        self.secret = b""


class Trial(Machine):
    """A machine that lets a judge see every command with its result."""

    def __init__(self, judge: "UserJudge") -> None:
        super().__init__()
        self.judge = judge

    def _batch(
        self,
        index: int,
        incarnation: int,
        number: int,
        commands: tuple[Any, ...],
        own: int,
        applied: Applied,
    ) -> None:
        """See `Machine`: it gets the commands one by one."""
        if not commands:
            super()._batch(index, incarnation, number, commands, own, applied)
        for place, command in enumerate(commands):
            if place:
                self.origins[index].next_number = number
            before = len(applied.results)
            allowed = self.judge.before((index, incarnation), command)
            super()._batch(index, incarnation, number, (command,), index, applied)
            if len(applied.results) == before:
                return  # an earlier incarnation's, or it has come before
            self.judge.behind((index, incarnation), command, applied.results[-1][2][0], allowed)

    def _lead(self, command: Any, applied: Applied) -> None:
        """See `Machine`."""
        before = len(applied.grants)
        super()._lead(command, applied)
        for grant in applied.grants[before:]:
            self.judge.granted(*grant)


class UserJudge:
    """The checks of one life."""

    def __init__(self, witness: Witness, asks: list[Ask], orders: list[Order]) -> None:
        self.witness = witness
        self.asks = asks
        self.orders = orders
        self.model = Model()
        self.trial = Trial(self)
        self.now_s = 0.0
        self.sessions: dict[Session, Kept] = {}
        self.secrets: dict[bytes, Kept] = {}
        self.deeds: dict[Session, list[Deed]] = defaultdict(list)
        self.states: dict[Session, list[State]] = defaultdict(list)
        self.given: dict[Session, list[Given]] = defaultdict(list)
        # What there was from some time on; the beginning was without anything.
        self.tables: list[tuple[float, Table]] = [(0.0, {})]
        self.rules: list[tuple[float, Rules]] = [(0.0, ())]
        self.refused = 0
        self.changes = 0

    def all(self) -> None:
        """Check everything. Raises Violation."""
        witness = self.witness
        for index, (_, entry) in witness.log.items():
            self.now_s = witness.applied_s[index]
            self.trial.apply(index, *c.decode_entry(entry))
        self._ends_alike()
        for order in self.orders:
            self._was_told_the_truth(order)
        for ask in self.asks:
            self._answer_is_true(ask)
        self._nobody_waited_in_vain()

    # --- the log ----------------------------------------------------------------------------------

    def before(self, origin: tuple[int, int], command: c.Command) -> bool | None:
        """A command comes: say whether its session may do it."""
        if not is_command(command):
            return None
        kept = self.sessions.get((*origin, command[1]))
        who = NO_NAME if kept is None else kept.who
        return self.model.allows(who, command, self._queue_of, self._own_name)

    def _queue_of(self, job: int) -> bytes:
        found = self.trial.queue.jobs.get(job)
        return b"" if found is None else found.tube.name

    def _own_name(self, name: bytes) -> bytes:
        return self.trial.queue.aliases.queue_of(name)

    def behind(
        self, origin: tuple[int, int], command: c.Command, result: Any, allowed: bool | None
    ) -> None:
        """A command was applied, with this result."""
        if not is_command(command):
            return  # it stands for one of a later version
        at: Session = (*origin, command[1])
        self.deeds[at].append(Deed(command, result, self.now_s))
        code = command[0]
        if result == c.BAD_COMMAND:
            return
        self._is_right(at, command, result, allowed)
        if code in (c.OPEN, c.OPEN_FROM) and result == c.OK:
            self.sessions[at] = Kept(at)
        elif code == c.AS_USER:
            self._became(at, command, result)
        elif code in CHANGES and allowed:
            self._changed(command, result)
        elif code == c.KEEP and result == c.OK:
            self.sessions[at].secret = command[2]
            self.secrets[command[2]] = self.sessions[at]
        elif code == c.RESUME and result == c.OK:
            self._resumed(at, command[2])
        elif code == c.TAKE:
            if isinstance(result, tuple):
                self._got(at, result[0], self._queue_of(result[0]))
            elif result == c.NOT_FOUND:
                self._found_nothing(at)
        if code in (c.OPEN, c.OPEN_FROM, c.AS_USER, c.RESUME, c.WATCH, c.IGNORE):
            self._note_state(at)

    def _is_right(self, at: Session, command: c.Command, result: Any, allowed: bool | None) -> None:
        if command[0] == c.AS_USER or allowed is None:
            return
        kept = self.sessions.get(at)
        what = f"{kept.who if kept else NO_NAME} as {at} at {self.now_s:.4f}: {command}"
        if result == c.DENIED and allowed:
            raise Violation(f"it had the right, and was refused: {what}")
        if result != c.DENIED and not allowed:
            raise Violation(f"done without a right, with {result!r}: {what}")
        self.refused += result == c.DENIED

    def _became(self, at: Session, command: c.Command, result: Any) -> None:
        _, _, name, token = command
        wanted = self.model.becomes(name, token)
        if (result == c.OK) != (wanted is not None):
            raise Violation(f"it is to become {wanted}, and is told {result}: {at}, {command}")
        if wanted is not None:
            self.sessions[at].who = wanted

    def _changed(self, command: c.Command, result: Any) -> None:
        wanted = self.model.change(command)
        if result != wanted:
            raise Violation(f"it is to say {wanted}, and says {result}: {command}")
        self.changes += result == c.OK
        if self.model.table is not self.tables[-1][1]:
            self.tables.append((self.now_s, self.model.table))
        if self.model.rules is not self.rules[-1][1]:
            self.rules.append((self.now_s, self.model.rules))

    def _resumed(self, at: Session, secret: bytes) -> None:
        kept, fresh = self.secrets[secret], self.sessions[at]
        if kept.who.name != fresh.who.name:
            raise Violation(f"{fresh.who} took over the session of {kept.who}: {at}")
        if self.sessions.get(kept.at) is kept:
            del self.sessions[kept.at]
        kept.at, kept.who = at, fresh.who
        self.sessions[at] = kept
        session = self.trial.origins[at[0]].sessions[at[2]]
        if (session.user, session.token) != kept.who:
            raise Violation(f"it was of {kept.who}, and is {session.user!r} since: {at}")

    def _note_state(self, at: Session) -> None:
        session = self.trial.origins[at[0]].sessions.get(at[2])
        if session is not None:
            who = self.sessions[at].who
            watched = frozenset(tube.name for tube in session.watched.values())
            self.states[at].append(State(self.now_s, who, watched))

    # --- reservations -----------------------------------------------------------------------------

    def granted(
        self, origin: int, incarnation: int, number: int, _: int, outcome: int, job: Any
    ) -> None:
        """The leader gave a job to a session that waited, or would have."""
        at = (origin, incarnation, number)
        if outcome == GRANTED:
            self._got(at, job.id, job.tube.name)
        elif outcome == NONE_READY:
            self._found_nothing(at)

    def _got(self, at: Session, job: int, queue: bytes) -> None:
        who = self.sessions[at].who
        if not rights(self.model.table, who, queue) & WORK:
            raise Violation(f"{who} may not work on {queue!r}, and got job {job}: {at}")
        self.given[at].append(Given(job, self.now_s))

    def _found_nothing(self, at: Session) -> None:
        """There was no job in any queue that the session watches and may work on."""
        session = self.trial.origins[at[0]].sessions[at[2]]
        who = self.sessions[at].who
        for tube in session.watched.values():
            ready = tube.ready_count and not tube.closed
            if ready and rights(self.model.table, who, tube.name) & WORK:
                raise Violation(f"{who} may work on {tube.name!r}, and got no job of it: {at}")

    # --- the end ----------------------------------------------------------------------------------

    def _ends_alike(self) -> None:
        """The machine has the users of the model, and each session is whose it is to be."""
        users = self.witness.machine.users
        found = {name: (user.tokens, dict(user.rights)) for name, user in users.rows.items()}
        wanted = {name: (one.tokens, one.rights) for name, one in self.model.table.items()}
        if found != wanted:
            raise Violation(f"the users are {found}, and are to be {wanted}")
        if tuple(map(tuple, users.rules)) != self.model.rules:
            raise Violation(f"the rules are {users.rules}, and are to be {self.model.rules}")
        for origin in self.witness.machine.origins.values():
            for number, session in origin.sessions.items():
                who = self.sessions[origin.index, origin.incarnation, number].who
                if (session.user, session.token) != who:
                    raise Violation(f"session {number} is {session.user!r}, and is to be {who}")

    # --- administrators ---------------------------------------------------------------------------

    def _was_told_the_truth(self, order: Order) -> None:
        """An answered change is in the log, in its time; a refusal has its reason there."""
        deeds = [
            deed
            for session in order.caller.sessions
            for deed in self.deeds[session]
            if order.at_s <= deed.at_s <= order.done_s
        ]
        results = [deed.result for deed in deeds if deed.command[0] == METHODS[order.kind]]
        if order.done_s == FOREVER_S:
            return
        word = order.refusal.split(":")[0]
        if not word and results != [c.OK]:
            raise Violation(f"answered, and not done: {order}")
        whos = {self._who_by(order.token, table) for table in _within(self.tables, order)}
        if word == "PERMISSION_DENIED" and c.DENIED not in results:
            self._some_lacks_admin(order, [who for who in whos if who is not None])
        elif word == "UNAUTHENTICATED" and None not in whos:
            # So are those refused that gave no token.
            self._some_lacks_admin(order, [who for who in whos if who and not who.name])
        elif word in REFUSALS and results and results[0] not in REFUSALS[word]:
            raise Violation(f"it said {results}: {order}")

    def _who_by(self, token: bytes, table: Table) -> Who | None:
        if not token:
            return NO_NAME
        owners = (name for name, person in table.items() if token in person.tokens)
        return next((Who(name, token) for name in owners), None)

    def _some_lacks_admin(self, order: Order, whos: list[Who]) -> None:
        for table in _within(self.tables, order):
            if any(not rights(table, who, EVERYWHERE) & ADMIN for who in whos):
                return
        raise Violation(f"it had the right, and was refused: {order}")

    # --- clients ----------------------------------------------------------------------------------

    def _answer_is_true(self, ask: Ask) -> None:
        """What a client was told about rights is what the log says of its command."""
        if ask.word in NO_VERDICT:
            return
        within = [deed for deed in self.deeds[ask.session] if ask.at_s <= deed.at_s <= ask.done_s]
        if ask.kind == "reserve-with-timeout":
            self._reserve_is_true(ask, within)
            return
        if ask.word == b"DENIED":
            if not any(deed.result == c.DENIED for deed in within):
                raise Violation(f"nothing of it was refused: {ask}")
            return
        code = CODES.get(ask.kind)
        if code is None:
            return  # told before it is done, and the connection ends if that is refused
        if not any(
            deed.command[0] == code and deed.result != c.DENIED and _is_about(deed.command, ask)
            for deed in within
        ):
            raise Violation(f"told, and not done: {ask}")

    def _reserve_is_true(self, ask: Ask, within: list[Deed]) -> None:
        if ask.word == b"RESERVED":
            given = self.given[ask.session]
            if not any(one.job == ask.job and ask.at_s <= one.at_s <= ask.done_s for one in given):
                raise Violation(f"it was not given: {ask}")
            return
        if ask.word != b"DENIED" or any(deed.result == c.DENIED for deed in within):
            return
        if not any(self._kept_out(ask)):
            raise Violation(f"it may work on all that it watches: {ask}")

    def _kept_out(self, ask: Ask, from_s: float = 0.0) -> Iterator[bool]:
        """Whether a reserve could not wait, at each moment of its time from one on.

        The default tube is passed over where another one is watched.
        """
        for table in _within(self.tables, Span(max(ask.at_s, from_s), ask.done_s)):
            for who, watched in [(state.who, state.watched) for state in self._states(ask)]:
                closed = {tube for tube in watched if not rights(table, who, tube) & WORK}
                yield bool(closed) and (closed != {DEFAULT_TUBE} or len(watched) == 1)

    def _states(self, ask: Ask) -> list[State]:
        """What the session of a request was in its time."""
        states = [(state.at_s, state) for state in self.states[ask.session]]
        return _within(states, ask)

    def _nobody_waited_in_vain(self) -> None:
        """No wait ends beside a job that was ready, in a queue in which its session may work."""
        recount = Recount(self.witness)
        for _ in recount.steps():
            pass
        reserves = defaultdict(list)
        for ask in self.asks:
            if ask.kind == "reserve-with-timeout":
                reserves[ask.session].append(ask)
        stays: dict[bytes, list[Stay]] = defaultdict(list)
        for job, known in recount.jobs.items():
            if not self.witness.bodies[job].startswith(MARK):
                continue
            for stay, after in zip(known.stays, [*known.stays[1:], None], strict=True):
                if stay.state == READY:
                    # It may count as taken since its taker waits.
                    takers = reserves[after.session] if after is not None else []
                    since = [one.at_s for one in takers if one.at_s <= stay.to_s]
                    to_s = min(stay.to_s, max(since, default=stay.to_s))
                    stays[stay.queue].append(stay._replace(to_s=to_s))
        for asks in reserves.values():
            for ask in asks:
                if ask.word != b"TIMED_OUT":
                    continue
                if ask.done_s - ask.at_s > TOLD_S and all(self._kept_out(ask, ask.done_s - TOLD_S)):
                    raise Violation(f"it waited on without a right: {ask}")
                self._waited_for_nothing(ask, stays)

    def _waited_for_nothing(self, ask: Ask, stays: dict[bytes, list[Stay]]) -> None:
        late = Span(max(ask.at_s, ask.done_s - WIDENED_S), ask.done_s)
        states = self._states(ask)
        for tube in frozenset.intersection(*[state.watched for state in states]):
            if any(name == tube and at_s <= ask.done_s for name, at_s, _ in self.witness.pauses):
                continue
            allowed = all(
                rights(table, state.who, tube) & WORK
                for table in _within(self.tables, late)
                for state in states
            )
            for stay in stays[tube] if allowed else ():
                if stay.from_s <= late.at_s and late.done_s < stay.to_s:
                    raise Violation(f"{stay} was ready, and it has the right: {ask}")


class Span(NamedTuple):
    """A part of the time of a request."""

    at_s: float
    done_s: float


def _within(versions: list[tuple[float, Any]], time: Any) -> list[Any]:
    """What there was at some moment of a request or call."""
    ends = [at_s for at_s, _ in versions[1:]] + [FOREVER_S]
    return [
        version
        for (at_s, version), end_s in zip(versions, ends, strict=True)
        if at_s <= time.done_s and time.at_s <= end_s
    ]


def _is_about(command: c.Command, ask: Ask) -> bool:
    """Whether a command is that of a request, by what it names."""
    if ask.kind == "put":
        return bool(command[6] == ask.body)
    if ask.kind == "auth":
        return bool(command[3] == sha256(ask.args[0]).digest())
    if ask.kind in ("keep", "resume"):
        return bool(command[2] == sha256(ask.args[0]).digest())
    if ask.args and ask.kind != "kick":
        return bool(command[2] == ask.args[0])
    return True
