"""Judge users by the log: the user of each session, and what it was allowed or refused.

The log of a life is applied a second time, command by command, and each result is compared with
that of a small model (`rights`) at that place. The answers to clients and administrators are
compared with it in `verdicts_user_answers`. Puts are also checked by `quotas`; the fate of jobs is
judged elsewhere.
"""

from collections import defaultdict
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.applied import GRANTED, NONE_READY, Applied
from beanpole.core.machine import Machine
from beanpole.core.operations.table import is_command
from beanpole.events import GEARMAN
from tests.sim import rights_qless
from tests.sim.cluster import Violation
from tests.sim.quotas import BODIES, QuotaJudge
from tests.sim.rights import CHANGES, NO_NAME, WORK, Model, Rules, Table, Who, rights
from tests.sim.witness import Witness

Session = tuple[int, int, int]  # origin, incarnation, number
_NOTED: Final = frozenset({c.OPEN, c.OPEN_FROM, c.AS_USER, c.RESUME, c.USE, c.WATCH, c.IGNORE})


class Deed(NamedTuple):
    """A command of a session, as it was applied."""

    command: c.Command
    result: Any
    at_s: float


class State(NamedTuple):
    """The state of a session from some time on."""

    at_s: float
    who: Who
    watched: frozenset[bytes]
    used: bytes  # empty for a session that uses no tube


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
    """A machine that shows every command and its result to a judge."""

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
        """Apply a batch command by command. See `Machine`."""
        if not commands:
            super()._batch(index, incarnation, number, commands, own, applied)
        for place, command in enumerate(commands):
            if place:
                self.origins[index].next_number = number
            before = len(applied.results)
            allowed = self.judge.before((index, incarnation), command)
            super()._batch(index, incarnation, number, (command,), index, applied)
            if len(applied.results) == before:
                return  # of an earlier incarnation, or a repeated batch
            self.judge.behind((index, incarnation), command, applied.results[-1][2][0], allowed)

    def _lead(self, command: Any, applied: Applied) -> None:
        """See `Machine`."""
        before = len(applied.grants)
        super()._lead(command, applied)
        for grant in applied.grants[before:]:
            self.judge.granted(*grant)


class UserJudge:
    """The checks of one life.

    Attributes:
        deeds: the commands of each session, in the order of the log.
        states: the users and watched tubes of each session.
        given: the jobs that each session got.
        tables: all users from some time on; there were none at the beginning.
        rules: all rules from some time on.
        changes: the commands that changed users or rules, in the order of the log.
        births: of all users that there ever were.
    """

    def __init__(self, witness: Witness, machines: dict[str, Machine]) -> None:
        self.witness = witness
        self.machines = machines  # the nodes' machines at the end
        self.model = Model()
        self.trial = Trial(self)
        self.quotas = QuotaJudge(self.trial)
        self.now_s = 0.0
        self.sessions: dict[Session, Kept] = {}
        self.secrets: dict[bytes, Kept] = {}
        self.deeds: dict[Session, list[Deed]] = defaultdict(list)
        self.states: dict[Session, list[State]] = defaultdict(list)
        self.given: dict[Session, list[Given]] = defaultdict(list)
        self.tables: list[tuple[float, Table]] = [(0.0, {})]
        self.rules: list[tuple[float, Rules]] = [(0.0, ())]
        self.refused = 0
        # The queues that each alias has been a name of.
        self.targets: dict[bytes, set[bytes]] = defaultdict(set)
        self.changes: list[Deed] = []
        self.births: set[bytes] = set()

    def all(self) -> None:
        """Check everything; raises Violation."""
        witness = self.witness
        for index, (_, entry) in witness.log.items():
            self.now_s = witness.applied_s[index]
            self.trial.apply(index, *c.decode_entry(entry))
            for alias, queue in self.trial.queue.aliases.queues.items():
                self.targets[alias].add(queue)
        for name, machine in self.machines.items():
            self._ends_alike(name, machine)

    # --- the log ----------------------------------------------------------------------------------

    def before(self, origin: tuple[int, int], command: c.Command) -> bool | None:
        """Return whether a session may execute a command that is about to be applied."""
        if not is_command(command):
            return None
        if command[0] in BODIES:
            self.quotas.look()
        kept = self.sessions.get((*origin, command[1]))
        who = NO_NAME if kept is None else kept.who
        if command[0] == c.QLESS:
            self.quotas.look()
            return rights_qless.allows(self.model.table, who, command, self.trial.qless)
        return self.model.allows(
            who, command, self._queue_of, self._own_name, self._queue_of_unique
        )

    def _queue_of(self, job: int) -> bytes:
        found = self.trial.queue.jobs.get(job)
        return b"" if found is None else found.tube.name

    def _queue_of_unique(self, unique: bytes) -> bytes:
        known = self.trial.queue.spaces[GEARMAN].external_ids
        return self._queue_of(known[unique]) if unique in known else b""

    def _own_name(self, name: bytes) -> bytes:
        return self.trial.queue.aliases.queue_of(name)

    def behind(
        self, origin: tuple[int, int], command: c.Command, result: Any, allowed: bool | None
    ) -> None:
        """Check the result of a command that was applied."""
        if not is_command(command):
            return  # it stands for a command of a later version
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
        elif code in BODIES and allowed:
            self.quotas.put(self.sessions[at].who, command, result)
        elif code == c.QLESS:
            self.quotas.called(self.sessions[at].who, command, result)
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
        if code in _NOTED:
            self._note_state(at)

    def _is_right(self, at: Session, command: c.Command, result: Any, allowed: bool | None) -> None:
        if command[0] == c.AS_USER or allowed is None:
            return
        kept = self.sessions.get(at)
        what = f"{kept.who if kept else NO_NAME} as {at} at {self.now_s:.4f}: {command}"
        is_denied = result == (q.DENIED, ()) if command[0] == c.QLESS else result == c.DENIED
        if is_denied and allowed:
            raise Violation(f"it had the right, and was refused: {what}")
        if not is_denied and not allowed:
            raise Violation(f"done without a right, with {result!r}: {what}")
        self.refused += is_denied

    def _became(self, at: Session, command: c.Command, result: Any) -> None:
        _, _, name, token = command
        wanted = self.model.becomes(name, token)
        if (result == c.OK) != (wanted is not None):
            raise Violation(f"it is to become {wanted}, and is told {result}: {at}, {command}")
        if wanted is not None:
            self.sessions[at].who = wanted

    def _changed(self, command: c.Command, result: Any) -> None:
        is_new = command[0] == c.SET_USER and command[2] not in self.model.table
        user = None if command[0] == c.SET_RULES else self.trial.users.rows.get(command[2])
        wanted = self.model.change(command, b"" if user is None else user.birth)
        if is_new and user is not None:
            if user.birth in self.births:
                raise Violation(f"it is taken for an earlier user: {command}")
            self.births.add(user.birth)
        if result != wanted:
            raise Violation(f"it is to say {wanted}, and says {result}: {command}")
        if result == c.OK:
            self.changes.append(Deed(command, result, self.now_s))
            self.quotas.change(command)
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
            used = b"" if session.used is None else session.used.name
            self.states[at].append(State(self.now_s, who, watched, used))

    # --- reservations -----------------------------------------------------------------------------

    def granted(
        self, origin: int, incarnation: int, number: int, _: int, outcome: int, job: Any
    ) -> None:
        """Check a GRANT, or a NONE, of the leader to a waiting session."""
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
        """Check that no watched queue in which the session may work had a ready job."""
        session = self.trial.origins[at[0]].sessions[at[2]]
        who = self.sessions[at].who
        for tube in session.watched.values():
            ready = tube.ready_count and not tube.closed
            if ready and rights(self.model.table, who, tube.name) & WORK:
                raise Violation(f"{who} may work on {tube.name!r}, and got no job of it: {at}")

    # --- the end ----------------------------------------------------------------------------------

    def _ends_alike(self, name: str, machine: Machine) -> None:
        """Check that a node ends with the model's users, and each session with its user."""
        users = machine.users
        found = {
            name: (user.tokens, dict(user.rights), user.birth) for name, user in users.rows.items()
        }
        wanted = {name: tuple(one) for name, one in self.model.table.items()}
        if found != wanted:
            raise Violation(f"the users of {name} are {found}, and are to be {wanted}")
        self.quotas.ends_alike(name, machine)
        rules = tuple(map(tuple, users.rules))
        if rules != self.model.rules:
            raise Violation(f"the rules of {name} are {rules}, and are to be {self.model.rules}")
        for origin in machine.origins.values():
            for number, session in origin.sessions.items():
                who = self.sessions[origin.index, origin.incarnation, number].who
                if (session.user, session.token) != who:
                    raise Violation(f"session {number} is {session.user!r}, and is to be {who}")
