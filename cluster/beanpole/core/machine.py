"""The replicated state machine: `apply` takes one entry of the log and changes the queue by it.

Here is the order in which things happen inside an entry, who may send batches (origins and their
incarnations), when sessions end, and the leader's own commands. What a client's command does is
in `core.operations.changes`; the jobs are in `core.jobs.queue`; bytes are in `core.image.image`.
"""

from collections import deque
from collections.abc import Sequence
from struct import Struct, pack
from typing import Any, Final

from crc32c import crc32c

from beanpole import commands as c
from beanpole.constants import (
    JOBS_MAX_DEFAULT,
    KICKS_PER_ENTRY_MAX,
    LOOKS_PER_ENTRY_MAX,
    QUEUE_BYTES_MAX_DEFAULT,
    SESSIONS_MAX_DEFAULT,
    TRANSITIONS_PER_ENTRY_MAX,
    TUBES_MAX_DEFAULT,
)
from beanpole.core.accounts import beside_jobs_bytes
from beanpole.core.jobs.job import Job
from beanpole.core.jobs.order import Order
from beanpole.core.jobs.queue import BATCH, RAISED, SESSION, TRANSITION_BITS, Queue
from beanpole.core.keys import Keys
from beanpole.core.operations import changes as operations
from beanpole.core.operations import reads
from beanpole.core.sessions import ATTACHED, DEAD, DETACHED, Origin, Session
from beanpole.events import CONNECTION_LOST, NO_REASON, NODE_DOWN

# What became of a GRANT.
LATER: Final = 2  # this entry has looked at as many tubes as it may; the leader asks again
GRANTED: Final = 1
NONE_READY: Final = 0  # the leader keeps the waiter
VOID: Final = -1  # the waiter is gone, or got its job already

# Index, time, floor, events so far, sessions alive, sessions dying, flags, the chain so far.
_CHAIN: Final = Struct("<qqQQIIII")


def _active(handlers: dict[int, operations.Handler], version: int) -> dict[int, operations.Handler]:
    """The handlers of the operations that a machine of this version has."""
    since = c.SINCE
    return {
        operation: handler
        for operation, handler in handlers.items()
        if since.get(operation, c.BASE_VERSION) <= version
    }


class Applied:
    """What one entry did, for the node that applied it.

    Attributes:
        results: (incarnation, number, results of each command) of each applied batch of `own`.
        grants: (origin, incarnation, session, request, outcome, job or None) of each GRANT.
        gaps: origins of which a batch came too early.
        downs: (origin, incarnation) of each NODE_DOWN that took effect.
        ups: (origin, incarnation) of each incarnation that began.
        epoch: the term of the EPOCH in this entry, or 0.
        digest: whether a DIGEST stands in this entry.
        raised: whether the machine's version rose in this entry.
    """

    __slots__ = ("digest", "downs", "epoch", "gaps", "grants", "raised", "results", "ups")

    def __init__(self) -> None:
        self.results: list[tuple[int, int, list[Any]]] = []
        self.grants: list[tuple[int, int, int, int, int, Job | None]] = []
        self.gaps: list[int] = []
        self.downs: list[tuple[int, int]] = []
        self.ups: list[tuple[int, int]] = []
        self.epoch = 0
        self.digest = False
        self.raised = False


class Machine:
    """The deterministic queue of a cluster. One instance a node, changed only by `apply`."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.keys = Keys()
        self.index = 0
        self.wall_us = 0  # the leader's wall time of the last entry; shown, never used to decide
        self.chain = 0
        self.term = 0
        self.activate(c.BASE_VERSION)
        self.origins: dict[int, Origin] = {}
        self.sessions = 0  # attached and detached ones
        self.sessions_total = 0
        self.watches = 0  # tubes that sessions watch, those that are dying included
        self.kept: dict[bytes, Session] = {}
        # Detached sessions by their serial numbers, and in the order (detached until, serial).
        self.detached: dict[int, Session] = {}
        self.returning = Order()
        # Bounded work that is left over: the sessions of dead incarnations, which no command finds
        # any more, and sessions whose jobs are to be returned, oldest first.
        self.lost: deque[dict[int, Session]] = deque()
        self.dying: deque[Session] = deque()
        self.puts_refused = False
        self.jobs_max = JOBS_MAX_DEFAULT
        self.tubes_max = TUBES_MAX_DEFAULT
        self.sessions_max = SESSIONS_MAX_DEFAULT
        self.queue_bytes_max = QUEUE_BYTES_MAX_DEFAULT
        self.beside_jobs_bytes = 0  # memory of all but jobs when the present entry began
        # What this entry may still do: transitions of time and of lost sessions, kicked jobs, and
        # watched tubes that GRANTs look at.
        self._budget = 0
        self.kicks_left = 0
        self._looks_left = 0

    def activate(self, version: int) -> None:
        """Work at a version from here on. Only RAISE and an image may ask for that."""
        self.version = version
        # Reads are answered at their origin only; the other nodes skip them.
        self._changes = _active(operations.HANDLERS, version)
        self._all = self._changes | _active(reads.HANDLERS, version)

    # --- the one entrance -----------------------------------------------------------------------

    def apply(
        self,
        index: int,
        flags: int,
        time_us: int,
        wall_us: int,
        sections: Sequence[c.Section],
        own: int = -1,
    ) -> Applied:
        """Apply one entry of the log.

        Args:
            index: the entry's place in the log; larger than every one before.
            flags: the entry's flags (`commands.FLAG_*`).
            time_us: the leader's cluster time; time never goes back even if this does.
            wall_us: the leader's wall clock, for people.
            sections: batches and leader's commands, in order.
            own: the origin whose results are wanted; -1 for none.
        """
        assert index > self.index, (index, self.index)
        queue = self.queue
        self.index = index
        self.wall_us = wall_us
        if time_us > queue.now_us:
            queue.now_us = time_us
        self.puts_refused = bool(flags & c.FLAG_PUTS_REFUSED)
        self.beside_jobs_bytes = beside_jobs_bytes(self)
        self._budget = TRANSITIONS_PER_ENTRY_MAX
        self.kicks_left = KICKS_PER_ENTRY_MAX
        self._looks_left = LOOKS_PER_ENTRY_MAX
        applied = Applied()
        if sections and sections[0][0] == c.LEADER:
            self._raise_floor(sections[0][3], queue.now_us - time_us)
        self._pass_time()
        for origin, incarnation, number, commands in sections:
            if origin == c.LEADER:
                for command in commands:
                    self._lead(command, applied)
            else:
                self._batch(origin, incarnation, number, commands, own, applied)
        if self.lost:
            self._end_the_lost()
        if self.dying:
            self._bury_the_dead()
        transitions = queue.transitions
        self.chain = crc32c(
            pack(f"<{len(transitions)}Q", *transitions),
            crc32c(
                _CHAIN.pack(
                    index,
                    queue.now_us,
                    queue.floor_us,
                    queue.events_total,
                    self.sessions,
                    # Not how many incarnations: an empty one is not in an image.
                    len(self.dying) + sum(map(len, self.lost)),
                    flags,
                    self.chain,
                )
            ),
        )
        transitions.clear()
        return applied

    def has_work(self) -> bool:
        """Whether bounded work is left over, so that the leader must propose another entry."""
        return bool(self.dying or self.lost)

    def next_due_us(self, now_us: int) -> int | None:
        """When the next entry must come at the latest for time to have its effect."""
        queue = self.queue
        due_us = queue.timers.next_due_us(now_us)
        pause_us = queue.next_pause_end_us()
        if pause_us is not None and (due_us is None or pause_us < due_us):
            due_us = pause_us
        first = self.returning.first()
        if first is not None and (due_us is None or first[0] < due_us):
            due_us = first[0]
        return due_us

    # --- batches --------------------------------------------------------------------------------

    def _batch(
        self,
        index: int,
        incarnation: int,
        number: int,
        commands: tuple[Any, ...],
        own: int,
        applied: Applied,
    ) -> None:
        """Apply a batch if it is the next of its origin's current incarnation; else ignore it."""
        origin = self.origins.get(index)
        if origin is None:
            origin = self.origins[index] = Origin(index)
        if incarnation != origin.incarnation or not origin.alive:
            if incarnation <= origin.incarnation or number != 1:
                return
            self._begin_incarnation(index, origin, incarnation)
            applied.ups.append((index, incarnation))
        if number != origin.next_number:
            if number > origin.next_number:
                applied.gaps.append(index)
            return
        origin.next_number = number + 1
        self.queue.transitions.append((number << 8 | index) << TRANSITION_BITS | BATCH)
        handlers = self._changes
        results: list[Any] | None = None
        if index == own:
            handlers = self._all
            results = []
            applied.results.append((incarnation, number, results))
        sessions = origin.sessions
        for command in commands:
            result: Any = c.BAD_COMMAND
            if c.is_command(command):
                operation = command[0]
                handler = handlers.get(operation)
                # An attachment that was refused, closed or resumed elsewhere does nothing.
                if handler is not None and (operation == c.OPEN or command[1] in sessions):
                    result = handler(self, origin, command)
            if results is not None:
                results.append(result)

    def _begin_incarnation(self, index: int, origin: Origin, incarnation: int) -> None:
        """NODE_UP: a new life of a node. Everything of its older lives is lost."""
        self._end_incarnation(origin)
        origin.incarnation = incarnation
        origin.next_number = 1
        origin.alive = True
        self.queue.transitions.append(incarnation << TRANSITION_BITS | SESSION)

    def _end_incarnation(self, origin: Origin) -> None:
        origin.alive = False
        self.queue.transitions.append(origin.incarnation << TRANSITION_BITS | SESSION)
        if origin.sessions:
            self.lost.append(origin.sessions)
            origin.sessions = {}

    # --- sessions -------------------------------------------------------------------------------

    def note_session(self, session: Session) -> None:
        """Let the running digest see that a session changed."""
        self.queue.transitions.append(session.number << TRANSITION_BITS | SESSION)

    def open_session(self, origin: Origin, number: int) -> None:
        tube = self.queue.default
        self.sessions_total += 1
        session = Session(self.sessions_total, origin.index, origin.incarnation, number, tube)
        tube.users += 1
        tube.watchers += 1
        self.watches += 1
        origin.sessions[number] = session
        self.sessions += 1
        self.note_session(session)

    def attach(self, session: Session, origin: Origin, number: int, request_granted: int) -> None:
        """Give a kept session a new attachment.

        Requests are numbered by the attachment, so its last granted one comes along with it: a
        late second GRANT of the session that stood here before stays void.
        """
        self.queue.keep_session(session)
        if session.state == DETACHED:
            self._forget_detached(session)
        else:
            self._forget_attachment(session)
        session.origin = origin.index
        session.incarnation = origin.incarnation
        session.number = number
        session.epoch += 1
        session.state = ATTACHED
        session.reason = NO_REASON
        session.detached_until_us = 0
        session.request_granted = request_granted
        origin.sessions[number] = session
        self.note_session(session)

    def end_session(self, session: Session, lost: bool, reason: int = CONNECTION_LOST) -> None:
        """The session loses its attachment: it is detached if it may come back, else dead."""
        self.queue.keep_session(session)
        session.reason = reason
        self._forget_attachment(session)
        self.note_session(session)
        if lost and session.secret:
            session.state = DETACHED
            session.detached_until_us = self.queue.now_us + session.grace_us
            self.detached[session.serial] = session
            self.returning.add((session.detached_until_us, session.serial))
            return
        self._kill(session)

    def _forget_attachment(self, session: Session) -> None:
        """No command finds the session under its number any more."""
        for sessions in (self.origins[session.origin].sessions, *self.lost):
            if sessions.get(session.number) is session:
                del sessions[session.number]
                return

    def _forget_detached(self, session: Session) -> None:
        del self.detached[session.serial]
        self.returning.remove((session.detached_until_us, session.serial))

    def _kill(self, session: Session) -> None:
        self.queue.keep_session(session)
        session.state = DEAD
        self.sessions -= 1
        if session.secret:
            del self.kept[session.secret]
        self.dying.append(session)

    # --- bounded work ---------------------------------------------------------------------------

    def _pass_time(self) -> None:
        """What is due by the entry's time: pauses, detached sessions, then jobs."""
        queue = self.queue
        self._budget = queue.end_pauses(self._budget)
        while self._budget:
            first = self.returning.first()
            if first is None or first[0] > queue.now_us:
                break
            session = self.detached[first[1]]
            self._forget_detached(session)
            self._kill(session)
            self._budget -= 1
        self._budget = queue.expire(self._budget)

    def _end_the_lost(self) -> None:
        """End the sessions of dead incarnations, as far as this entry's budget goes."""
        while self.lost and self._budget:
            sessions = self.lost[0]
            while sessions and self._budget:
                # The newest first: taking the first of a dict is O(n) after many removals.
                _, session = sessions.popitem()
                self.end_session(session, lost=True, reason=NODE_DOWN)
                self._budget -= 1
            if not sessions:
                self.lost.popleft()

    def _bury_the_dead(self) -> None:
        """Return the jobs of dead sessions, as far as this entry's budget goes."""
        queue = self.queue
        dying = self.dying
        while dying and self._budget:
            session = dying[0]
            reserved = session.reserved
            while reserved and self._budget:
                # The newest first, as above. It is put back because giving it back takes it out.
                job_id, job = reserved.popitem()
                reserved[job_id] = job
                queue.give_back(job, session.reason)
                self._budget -= 1
            if reserved:
                return
            # A session of a thousand watched tubes is as much work as a thousand sessions.
            self._budget = max(0, self._budget - len(session.watched))
            self.watches -= len(session.watched)
            dying.popleft()
            session.used.users -= 1
            queue.drop_if_idle(session.used)
            for tube in session.watched.values():
                tube.watchers -= 1
                queue.drop_if_idle(tube)
            self.note_session(session)

    # --- the leader's commands ------------------------------------------------------------------

    def _lead(self, command: Any, applied: Applied) -> None:
        if not c.is_command(command):
            return
        operation = command[0]
        if operation == c.GRANT:
            self._grant(command, applied)
        elif operation in c.SINCE and c.SINCE[operation] > self.version:
            return  # of a later version, as to a program that does not know it
        elif operation == c.EPOCH:
            self._begin_epoch(command, applied)
        elif operation == c.NODE_DOWN:
            _, index, incarnation = command
            origin = self.origins.get(index)
            if origin is not None and origin.alive and origin.incarnation == incarnation:
                self._end_incarnation(origin)
                applied.downs.append((index, incarnation))
        elif operation == c.DIGEST:
            applied.digest = True
        elif operation == c.RAISE and self.version < command[1] <= c.VERSION_MAX:
            self.activate(command[1])
            self.queue.transitions.append(self.version << TRANSITION_BITS | RAISED)
            applied.raised = True

    def _raise_floor(self, commands: tuple[Any, ...], behind_us: int) -> None:
        """EPOCH stands first in its entry, and its floor counts before the entry's time does.

        That time holds the leaderless time: the jobs whose TTR ended in it are those that the
        floor is there to spare. A leader that knew less than the log when it was elected may be
        `behind_us`; its floor is as far from the time that counts as it was to be from its own,
        and what was reserved at that very time is old.
        """
        command: Any = commands[0] if commands else ()
        if c.is_command(command) and command[0] == c.EPOCH:
            epoch_us = self.queue.now_us + (behind_us > 0)
            self.queue.begin_epoch(epoch_us, command[2] + behind_us)

    def _begin_epoch(self, command: c.Command, applied: Applied) -> None:
        """EPOCH: the first entry of a term. Limits follow the leader's configuration."""
        _, term, floor_us, jobs, tubes, sessions, body_bytes = command
        self.term = term
        self.jobs_max = jobs
        self.tubes_max = tubes
        self.sessions_max = sessions
        self.queue_bytes_max = body_bytes
        self.queue.begin_epoch(self.queue.now_us, floor_us)
        applied.epoch = term

    def _grant(self, command: c.Command, applied: Applied) -> None:
        """GRANT: reserve the best ready job of the session's watched, unpaused tubes."""
        _, index, incarnation, number, request, behind = command
        origin = self.origins.get(index)
        job: Job | None = None
        outcome = VOID
        if (
            origin is not None
            and origin.alive
            and origin.incarnation == incarnation
            and origin.next_number > behind
        ):
            session = origin.sessions.get(number)
            if session is not None and request > session.request_granted:
                self._looks_left -= len(session.watched)
                outcome = NONE_READY if self._looks_left >= 0 else LATER
            if session is not None and outcome == NONE_READY:
                queue = self.queue
                best = 0
                for tube in session.watched.values():
                    if tube.ready_count and not tube.paused_until_us:
                        key = tube.first_ready()
                        if key and (not best or key < best):
                            best = key
                if best:
                    job = queue.reserve_first(best, session)
                    session.request_granted = request
                    outcome = GRANTED
        applied.grants.append((index, incarnation, number, request, outcome, job))
