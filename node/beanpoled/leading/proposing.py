"""Proposing: the contents of the leader's next entry, and the time at which it leaves.

The proposer joins batches into entries, carries time into the log, and asks for digests. `batching`
decides how long an entry waits for more; the GRANTs in an entry come from `dispatching`.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import ENTRY_COMMANDS_MAX, ENTRY_JOIN_BYTES, SECOND_US
from beanpole.errors import ProtocolError
from beanpole.weights import LEADER_COMMANDS_MAX
from beanpoled.host.seam import Timer
from beanpoled.leading.batching import AdaptiveBatching
from beanpoled.leading.commit_times import CommitTimes
from beanpoled.leading.dispatching import Dispatcher
from beanpoled.leading.inbox import Inbox
from beanpoled.leading.saved_clock import SavedClock
from beanpoled.leading.term import Term
from beanpoled.leading.unwaits import Unwaits
from beanpoled.leading.versions import Versions
from beanpoled.links import frames
from beanpoled.origin.outbox import Origin
from beanpoled.peers.agreement import Agreement
from beanpoled.peers.digest import Digest
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context

# While an entry is in flight, the next entry waits until it has this many bytes to carry: Nagle's
# rule (RFC 896). An entry costs four to six packets, three syncs and turns of every node, whatever
# it carries.
ENTRY_FULL_BYTES: Final = 64 * 1024
# TICKs are rounded up to this, so that many deadlines share one entry.
TICK_GRAIN_US: Final = 10_000
# The loop's timers count milliseconds; a delay that rounds to zero would fire in the loop's next
# step.
ALARM_MIN_US: Final = 1000
# The period of the comparison of canonical digests, in cluster time, if anything was written or
# images are disputed: a member that missed a digest may show with the next one that it agrees.
DIGEST_PERIOD_US: Final = 60 * SECOND_US
# The batch with which a node begins an incarnation.
NODE_UP_NUMBER: Final = 1


class Proposer:
    """The entries of this node while it leads.

    Attributes:
        inbox: the batches that are in no entry yet.
        commit_times: for the metrics.
    """

    def __init__(
        self,
        context: Context,
        term: Term,
        origin: Origin,
        peers: Peers,
        agreement: Agreement,
        digest: Digest,
        dispatcher: Dispatcher,
        unwaits: Unwaits,
        versions: Versions,
        saved_clock: SavedClock,
    ) -> None:
        self._context = context
        self._term = term
        self._origin = origin
        self._peers = peers
        self._agreement = agreement
        self._digest = digest
        self._dispatcher = dispatcher
        self._unwaits = unwaits
        self._versions = versions
        self._saved_clock = saved_clock
        self.inbox = Inbox()
        self.commit_times = CommitTimes()
        self._next_digest_us = 0
        self._digested_index = 0
        self._flags = 0  # of the last entry, which the machine may not have applied yet
        self._batching = AdaptiveBatching()
        self._alarm: Timer | None = None  # ends a wait for clients that takes too long

    def clear(self) -> None:
        """Forget everything of an earlier term: leadership is lost."""
        self.inbox.clear()
        self._batching.forget()
        self.commit_times.forget()
        self._cancel_alarm()

    def serve(self) -> None:
        """Begin to serve: the EPOCH of the term is applied."""
        self._next_digest_us = self._context.machine.queue.now_us + DIGEST_PERIOD_US
        self._context.wake()

    def receive_batch(self, origin: int, frame: bytes) -> None:
        """Take a batch if it is the next of its link; the origin resends missing ones.

        Raises:
            ProtocolError: a correct origin never sends this.
        """
        term, incarnation, number, first, clients, hint, payload = frames.decode_batch(frame)
        if term == self._term.number:
            batch = (origin, incarnation, number, clients, frames.unpack_hint(hint), payload)
            if not self.inbox.add(batch, first):
                raise ProtocolError(f"origin {origin} has too many batches in flight")

    # --- the moment at which an entry leaves ----------------------------------------------------

    def must_wait(self) -> bool:
        """Whether this node leads, and its next entry waits for a commit or for more clients."""
        if (
            not self._term.number
            or self.inbox.bytes + self._origin.unsent_bytes >= ENTRY_FULL_BYTES
        ):
            return False
        if self._context.replica.entries_in_flight:
            return True
        return self._waiting() + self._dispatcher.placed < self._batching.expected

    def committed(self) -> None:
        """Note that the commit index grew; with nothing in flight, a wait for more may pay off."""
        replica = self._context.replica
        self.commit_times.committed(replica.commit_index, self._context.now_us)
        if not replica.entries_in_flight:
            waiting = self._waiting()
            # Waits behind unapplied batches arrived together with those batches.
            early = waiting - self._dispatcher.early.behind(self._context.machine.origins)
            if self._batching.committed(waiting, early, self._context.now_us):
                self._dispatcher.placed = 0

    def _waiting(self) -> int:
        """The number of clients whose commands or waits are in no entry yet."""
        here = self._dispatcher.early.count + self.inbox.clients + len(self._term.commands)
        return here + self._origin.unsent_clients

    def _may_leave(self) -> bool:
        """Whether the pending batches leave as an entry now, and not together with later ones."""
        context = self._context
        if self.inbox.bytes < ENTRY_FULL_BYTES:
            if context.replica.entries_in_flight:
                return False
            waiting = self._waiting() + self._dispatcher.placed
            left_us = self._batching.left_us(waiting, context.now_us)
            if left_us:
                if self._alarm is None:
                    alarm_us = max(left_us, ALARM_MIN_US)
                    self._alarm = context.host.call_later(alarm_us, self._alarmed)
                return False
        self._cancel_alarm()  # a pending alarm would hide the alarm of a shorter wait
        return True

    def _alarmed(self) -> None:
        self._alarm = None
        self._context.wake()

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    # --- the contents of an entry ---------------------------------------------------------------

    def propose(self) -> None:
        """Propose entries while there is something to propose and room in flight."""
        term = self._term
        replica = self._context.replica
        if not term.number:
            return
        if term.serving:
            self._dispatcher.register()
        while replica.can_propose() and term.number and self._may_leave():
            made = self._next_entry()
            if made is None:
                return
            entry, patient = made
            index = replica.propose(entry)
            if patient:
                replica.tell_later(index, patient)
            self.commit_times.proposed(index, self._context.now_us)

    def _next_entry(self) -> tuple[bytes, tuple[str, ...]] | None:
        """Make an entry, and return it with the members whose clients hear nothing of it."""
        context, term = self._context, self._term
        now_us = context.clock.estimate_us(context.now_us)
        commands: list[c.Command] = []
        if term.epoch_is_due:
            now_us = self._saved_clock.begin_epoch(term.number)
            commands.append(term.epoch(now_us))
        sections: list[tuple[int, int, int, bytes]] = []
        size = count = 0
        clients = 0
        inbox, dispatcher = self.inbox, self._dispatcher
        grants: list[c.Command] = []
        while inbox.batches:
            payload = inbox.batches[0][5]
            size += c.SECTION_HEADER_BYTES + len(payload)
            count += c.count_of(payload)
            if sections and (size > ENTRY_JOIN_BYTES or count > ENTRY_COMMANDS_MAX):
                break
            origin, incarnation, number, asking, hint, payload = inbox.pop()
            clients += asking
            sections.append((origin, incarnation, number, payload))
            if hint and dispatcher.line.waiters:
                dispatcher.grant_puts(hint, grants)
        commands += self._versions.due()
        self._digest_in_time(now_us)
        own = term.commands[:LEADER_COMMANDS_MAX]
        del term.commands[:LEADER_COMMANDS_MAX]
        commands += own
        if commands:
            sections.insert(0, (c.LEADER, 0, 0, c.pack_commands(commands)))
        if grants:
            sections.append((c.LEADER, 0, 0, c.pack_commands(grants)))
        if not sections and not self._time_is_due(now_us):
            return None
        flags = c.FLAG_PUTS_REFUSED if self._peers.disk_is_low() else 0
        concerned = None
        if flags == self._flags and not self._ends_something(now_us):
            concerned = _concerned(sections, [*commands, *grants])
        self._flags = flags
        patient = () if concerned is None else self._peers.patient(concerned)
        self._batching.proposed(clients + len(own) + len(grants), context.now_us)
        return c.encode_entry(flags, now_us, context.host.wall_us(), sections), patient

    def _ends_something(self, now_us: int) -> bool:
        """Whether the time of an entry has an effect, such as the end of a reservation.

        The holder's node, which may be any, answers DEADLINE_SOON until it has applied the entry.
        """
        due_us = self._context.machine.next_due_us(now_us)
        return due_us is not None and due_us <= now_us

    def _time_is_due(self, now_us: int) -> bool:
        """Whether an empty entry (a TICK) is needed for time to have its effect."""
        replica = self._context.replica
        if not self._term.serving or replica.last_index > replica.applied_index:
            return False  # an entry is in flight and carries the time
        machine = self._context.machine
        if machine.has_work() or machine.puts_refused != self._peers.disk_is_low():
            return True  # origins refuse puts on their own until an entry says otherwise
        due_us = machine.next_due_us(now_us)
        if due_us is None:
            return False
        shared_us = -(-due_us // TICK_GRAIN_US) * TICK_GRAIN_US
        return shared_us <= now_us or due_us <= self._unwaits.awaited_us

    def _digest_in_time(self, now_us: int) -> None:
        """Ask for a digest when one is due; also under load, when no entry is empty."""
        index = self._context.machine.index
        if not self._term.serving or self._digest.in_progress:
            return  # a new one would end the present one, and with many jobs none would ever finish
        if now_us < self._next_digest_us:
            return
        if index > self._digested_index + 1 or self._agreement.image_disputed:
            self._next_digest_us = now_us + DIGEST_PERIOD_US
            self._digested_index = index
            self._term.commands.append((c.DIGEST,))


def _concerned(
    sections: list[tuple[int, int, int, bytes]], commands: list[c.Command]
) -> set[int] | None:
    """The origins whose clients an entry answers; None if all nodes must learn of it at once.

    The begin of an incarnation concerns all nodes: it lets them refuse an older copy of the disk.

    Args:
        sections: of the entry.
        commands: the leader's own.
    """
    origins = set()
    for origin, _, number, _ in sections:
        if number == NODE_UP_NUMBER:
            return None
        if origin != c.LEADER:
            origins.add(origin)
    for command in commands:
        if command[0] != c.GRANT:
            return None
        origins.add(command[1])
    return origins
