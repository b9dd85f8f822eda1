"""The replicated state machine: `apply` executes one entry of the log.

This module defines the order of execution within an entry, the acceptance of batches (by origins
and their incarnations), and the bounded work: the passing of time, and ended sessions. Commands are
in `core.operations`, the state in `core.state`, its serialization in `core.image.image`.
"""

from collections.abc import Sequence
from struct import Struct, pack
from typing import Any, Final

from crc32c import crc32c

from beanpole import commands as c
from beanpole.constants import (
    DROPS_PER_ENTRY_MAX,
    KICKS_PER_ENTRY_MAX,
    LOOKS_PER_ENTRY_MAX,
    TRANSITIONS_PER_ENTRY_MAX,
)
from beanpole.core.accounts import beside_jobs_bytes
from beanpole.core.applied import Applied
from beanpole.core.jobs.transitions import BATCH, SESSION, TRANSITION_BITS
from beanpole.core.operations import table
from beanpole.core.operations.operation import ClientOperation, LeaderOperation, fits
from beanpole.core.operations.permission import allows
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from beanpole.events import NODE_DOWN

# Index, time, expiry floor, number of events, live sessions, ending sessions, flags, previous hash.
_HASHED: Final = Struct("<qqQQIIII")
# The first machine version in which no detached session ends before the expiry floor.
LATE_ENDS_SINCE: Final = 4


class Machine(MachineState):
    """The deterministic queue of a cluster. Each node has one instance; only `apply` changes it."""

    def activate(self, version: int) -> None:
        """Switch to a machine version. Only RAISE and the loading of an image call this.

        An operation of a later version is BAD_COMMAND, as in a program without that operation.
        """
        super().activate(version)
        self._leading: dict[int, LeaderOperation] = {}
        # Only the origin of a read answers it; the other nodes skip it.
        self._changes: dict[int, ClientOperation] = {}
        self._all: dict[int, ClientOperation] = {}
        for code, operation in table.OPERATIONS.items():
            if operation.since > version:
                continue
            if isinstance(operation, LeaderOperation):
                self._leading[code] = operation
            elif isinstance(operation, ClientOperation):
                self._all[code] = operation
                if not operation.reads:
                    self._changes[code] = operation

    # --- the entry point ------------------------------------------------------------------------

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
            index: the entry's index in the log; larger than that of every earlier entry.
            flags: the entry's flags (`commands.FLAG_*`).
            time_us: the leader's cluster time; the machine's time never goes back, even if this
                does.
            wall_us: the leader's wall clock, for display only.
            sections: batches and the leader's commands, in order.
            own: the origin whose results are collected; -1 for none.
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
        self.looks_left = LOOKS_PER_ENTRY_MAX
        self.drops_left = DROPS_PER_ENTRY_MAX
        applied = Applied()
        if sections and sections[0][0] == c.LEADER:
            self._raise_expiry_floor(sections[0][3], queue.now_us - time_us)
        self._pass_time()
        for origin, incarnation, number, commands in sections:
            if origin == c.LEADER:
                for command in commands:
                    self._lead(command, applied)
            else:
                self._batch(origin, incarnation, number, commands, own, applied)
        if self.lost:
            self._end_lost_sessions()
        if self.ending:
            self._return_jobs()
        transitions = queue.transitions
        self.state_hash = crc32c(
            pack(f"<{len(transitions)}Q", *transitions),
            crc32c(
                _HASHED.pack(
                    index,
                    queue.now_us,
                    queue.expiry_floor_us,
                    queue.events_total,
                    self.sessions,
                    # Sessions, not incarnations: an image omits an incarnation without sessions.
                    len(self.ending) + sum(map(len, self.lost)),
                    flags,
                    self.state_hash,
                )
            ),
        )
        transitions.clear()
        self._hand_over(applied)
        return applied

    def _hand_over(self, applied: Applied) -> None:
        """Hand effects and messages for listening clients over to the node."""
        effects, qless = self.queue.effects, self.qless
        if effects.happened:
            applied.effects, effects.happened = effects.happened, []
        if effects.asked_for:
            effects.asked_for.clear()
        if qless.messages:
            applied.messages, qless.messages = qless.messages, []

    def has_work(self) -> bool:
        """Whether bounded work remains, so that the leader must propose another entry."""
        return bool(self.ending or self.lost)

    def next_due_us(self, now_us: int) -> int | None:
        """Return the time by which timers need another entry; None if no timer is set."""
        queue = self.queue
        timers = (
            queue.timers.next_due_us(now_us),
            queue.expiries.next_due_us(now_us),
            queue.next_opening_us(),
            self._next_end_us(),
        )
        return min([due_us for due_us in timers if due_us is not None], default=None)

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
            self._begin_incarnation(origin, incarnation)
            applied.ups.append((index, incarnation))
        if number != origin.next_number:
            if number > origin.next_number:
                applied.gaps.append(index)
            return
        origin.next_number = number + 1
        self.queue.transitions.append((number << 8 | index) << TRANSITION_BITS | BATCH)
        operations = self._changes
        results: list[Any] | None = None
        self.qless.answered = index == own
        if index == own:
            operations = self._all
            results = []
            applied.results.append((incarnation, number, results))
        sessions = origin.sessions
        users = self.users
        for command in commands:
            result: Any = c.BAD_COMMAND
            if type(command) is tuple and command and type(command[0]) is int:
                operation = operations.get(command[0])
                # Commands of an attachment that was refused, closed or resumed elsewhere are
                # ignored.
                if (
                    operation is not None
                    and fits(command, operation.shape)
                    and (operation.opens or command[1] in sessions)
                ):
                    if (
                        users.rows
                        and operation.rights
                        and not allows(self, origin, operation, command)
                    ):
                        result = c.DENIED
                    else:
                        result = operation.handler(self, origin, command)
            if results is not None:
                results.append(result)

    def _begin_incarnation(self, origin: Origin, incarnation: int) -> None:
        """Begin a new incarnation of a node (NODE_UP); the sessions of earlier ones are lost."""
        self.end_incarnation(origin)
        origin.incarnation = incarnation
        origin.next_number = 1
        origin.alive = True
        self.queue.transitions.append(incarnation << TRANSITION_BITS | SESSION)

    # --- bounded work ---------------------------------------------------------------------------

    def _pass_time(self) -> None:
        """Process everything due at the entry's time: pauses, rates, detached sessions, jobs."""
        queue = self.queue
        self._budget = queue.end_pauses(self._budget)
        while self._budget:
            due_us = self._next_end_us()
            if due_us is None or due_us > queue.now_us:
                break
            session = self.detached[self.returning.first()[1]]
            self.forget_detached(session)
            self.kill(session)
            self._budget -= 1
        self._budget = queue.expire(self._budget)

    def _next_end_us(self) -> int | None:
        """Return the time at which a detached session ends; None if there is none.

        None ends before the expiry floor: clients had no leader to which they could send `resume`.
        """
        first = self.returning.first()
        if first is None:
            return None
        due_us: int = first[0]
        if self.version < LATE_ENDS_SINCE:
            return due_us
        return max(due_us, self.queue.expiry_floor_us)

    def _end_lost_sessions(self) -> None:
        """End the sessions of dead incarnations, within this entry's budget."""
        while self.lost and self._budget:
            sessions = self.lost[0]
            while sessions and self._budget:
                # Newest first: finding the first item of a dict is O(n) after many removals.
                _, session = sessions.popitem()
                self.end_session(session, lost=True, reason=NODE_DOWN)
                self._budget -= 1
            if not sessions:
                self.lost.popleft()

    def _return_jobs(self) -> None:
        """Return the jobs of ended sessions, within this entry's budget."""
        queue = self.queue
        ending = self.ending
        while ending and self._budget:
            session = ending[0]
            reserved = session.reserved
            while reserved and self._budget:
                # Newest first, as above. The job is put back because `give_back` removes it.
                job_id, job = reserved.popitem()
                reserved[job_id] = job
                queue.give_back(job, session, session.reason)
                self._budget -= 1
            attached = session.attached
            while attached and self._budget:
                queue.detach(queue.jobs[attached.first()], session)
                self._budget -= 1
            if reserved or attached:
                return
            # A session that watches a thousand tubes costs as much as a thousand sessions.
            self._budget = max(0, self._budget - len(session.watched))
            ending.popleft()
            self.unbind(session)
            self.note_session(session)

    # --- the leader's commands ------------------------------------------------------------------

    def _lead(self, command: Any, applied: Applied) -> None:
        if type(command) is tuple and command and type(command[0]) is int:
            operation = self._leading.get(command[0])
            if operation is not None and fits(command, operation.shape):
                operation.handler(self, applied, command)

    def _raise_expiry_floor(self, commands: tuple[Any, ...], behind_us: int) -> None:
        """Raise the expiry floor if the entry begins with EPOCH, before its time takes effect.

        The entry's time includes the interval without a leader, and the floor protects the jobs
        whose TTR ended in that interval. The clock of a leader that had not yet applied all of the
        log when it was elected may be `behind_us` the machine's time. Its floor is then moved by
        the same amount, and reservations made at the machine's present time count as made before
        the EPOCH.
        """
        command: Any = commands[0] if commands else ()
        if table.is_command(command) and command[0] == c.EPOCH:
            epoch_us = self.queue.now_us + (behind_us > 0)
            self.queue.begin_epoch(epoch_us, command[2] + behind_us)
