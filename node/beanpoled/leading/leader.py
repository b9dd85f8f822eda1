"""What a node does while it leads: joins batches into entries, keeps time, hands out jobs.

Everything here is volatile: a node that loses leadership forgets it, and origins send again what
the next leader needs. What an entry does is decided by the machine; the leader only proposes.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from beanpole import commands as c
from beanpole.constants import ENTRY_COMMANDS_MAX, ENTRY_JOIN_BYTES, SECOND_US
from beanpole.core.applied import LATER, NONE_READY
from beanpole.core.jobs.job import Tube
from beanpole.errors import ProtocolError
from beanpole.weights import GRANTS_FOR_PUTS_MAX, LEADER_COMMANDS_MAX
from beanpoled.host.seam import Timer
from beanpoled.leading.early import EarlyWait, EarlyWaits
from beanpoled.leading.ends import Ends
from beanpoled.leading.gathering import Gathering
from beanpoled.leading.inbox import Inbox
from beanpoled.leading.waiting import LOOKS_PER_TURN_MAX, Key, Waiter, WaitingLine
from beanpoled.links import frames

if TYPE_CHECKING:
    from beanpoled.turn.node import Node

# While an entry is in flight, the next one waits until it has so much to carry: Nagle's rule (RFC
# 896). An entry costs six packets, three syncs and a turn of every node, whatever is in it.
ENTRY_FULL_BYTES: Final = 64 * 1024
# TICKs are rounded up to this, so that many deadlines share one entry.
TICK_GRAIN_US: Final = 10_000
# After a change of leader no reservation ends before this, so that workers can touch again.
FLOOR_GRACE_US: Final = 2 * SECOND_US
# The loop's timers count milliseconds; what rounds to none would be the loop's next step.
ALARM_MIN_US: Final = 1000
# How often the canonical digests are compared, in cluster time, if anything was written or images
# are disputed: with the next one a member that missed the last may show that it agrees.
DIGEST_PERIOD_US: Final = 60 * SECOND_US


class Leader:
    """The leading half of a node. `begin` and `end` bracket a term of leadership."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.term = 0  # the term led, or 0
        self.serving = False  # the EPOCH of this term is applied
        self.serving_since_us = 0  # loop time
        self.line = WaitingLine()
        self._epoch_proposed = False
        self.inbox = Inbox()
        self._placed = 0  # waits that found no job since the last commit, and stand in line
        self.early = EarlyWaits()
        self.ends = Ends(node)
        # GRANTs in flight: for a job of which tube, and whether the job is ready already, or is
        # put in the same entry.
        self._pledges: dict[tuple[Key, int], tuple[bytes, bool]] = {}
        self._pledged: dict[bytes, int] = {}  # tube -> GRANTs in flight for jobs ready already
        self._commands: list[c.Command] = []  # the leader's own, for the next entry
        self._downs: set[tuple[int, int]] = set()
        self._back: deque[Waiter] = deque()  # parked ones whose origin is heard again
        self._next_digest_us = 0
        self._digested_index = 0
        self._gathering = Gathering()
        self._alarm: Timer | None = None  # ends a gathering that takes too long

    # --- terms ----------------------------------------------------------------------------------

    def begin(self, term: int) -> None:
        """This node was elected."""
        self.end()
        self.term = term

    def end(self) -> None:
        """Leadership is lost, or not yet won: nothing of an earlier term survives."""
        self.term = 0
        self.serving = False
        self._epoch_proposed = False
        self.line.clear()
        self.inbox.clear()
        self.early.clear()
        self.ends.clear()
        for volatile in (
            self._pledged,
            self._pledges,
            self._commands,
            self._downs,
            self._back,
        ):
            volatile.clear()
        self._placed = 0
        self._gathering.forget()
        self._silence()

    def epoch_applied(self, term: int) -> None:
        """Our own EPOCH is applied: everything of earlier terms is, too."""
        if term == self.term:
            self.serving = True
            # Entries of earlier terms that were not applied when it was elected may be later than
            # what this node knew; its clock goes on from them, or time would stand until then.
            self._node.clock.lead(self._node.machine.queue.now_us)
            self.serving_since_us = self._node.loop_us
            self._next_digest_us = self._node.machine.queue.now_us + DIGEST_PERIOD_US

    # --- input from origins ---------------------------------------------------------------------

    def receive_batch(self, origin: int, frame: bytes) -> None:
        """Take a batch if it is the next of its link; the origin sends again what is missing.

        Raises:
            ProtocolError: no correct origin sends this.
        """
        term, incarnation, number, first, clients, hint, payload = frames.decode_batch(frame)
        if term == self.term:
            batch = (origin, incarnation, number, clients, frames.unpack_hint(hint), payload)
            if not self.inbox.add(batch, first):
                raise ProtocolError(f"origin {origin} has too many batches in flight")

    def receive_waits(self, origin: int, frame: bytes) -> None:
        """Take WAITs; each is registered once the batch that it stands behind is applied.

        Raises:
            ProtocolError: no correct origin sends this.
        """
        term, incarnation, items = frames.decode_items(frame, 3)
        if term == self.term and not self.early.add(origin, incarnation, items):
            raise ProtocolError(f"origin {origin} has too many clients that wait")

    def receive_unwaits(self, origin: int, frame: bytes) -> None:
        """Take UNWAITs; they follow the WAITs they end.

        Raises:
            ProtocolError: no correct origin sends this.
        """
        term, incarnation, items = frames.decode_items(frame, 2)
        if term != self.term:
            return
        for session, request in items:
            key = (origin, incarnation, session)
            waiter = self.line.waiters.get(key)
            if waiter is not None and waiter.request == request:
                self.ends.add(waiter)
            else:
                self.early.end(key, request)

    def forget_link(self, origin: int) -> None:
        """The link to an origin ended: its batches and waits come again on the next one."""
        self.inbox.forget(origin)
        self.early.forget(origin)
        for waiter in self.line.of_origin(origin):
            self.drop(waiter)

    def incarnation_ended(self, origin: int, incarnation: int) -> None:
        """An incarnation of an origin is dead: its clients wait no more. The link may live on."""
        for waiter in self.line.of_origin(origin):
            if waiter.key[1] <= incarnation:
                self.drop(waiter)

    def park(self, origin: int) -> None:
        """An origin is silent: its clients are passed over until it is heard again."""
        for waiter in self.line.of_origin(origin):
            waiter.parked = True
        self._back = deque(waiter for waiter in self._back if waiter.key[0] != origin)

    def unpark(self, origin: int) -> None:
        """A silent origin is heard again: its clients go back to their places, a few in a turn."""
        self._back.extend(waiter for waiter in self.line.of_origin(origin) if waiter.parked)
        self._unpark_some()

    def _unpark_some(self) -> None:
        looks = LOOKS_PER_TURN_MAX
        while self._back and looks > 0:
            waiter = self._back.popleft()
            waiter.parked = False
            self.line.put_back(waiter)
            for tube in waiter.tubes:
                self.match(tube)
            looks -= len(waiter.tubes)
        if self._back:
            self._node.wake()

    def node_down(self, origin: int, incarnation: int) -> None:
        """Propose that an incarnation is dead, once."""
        if self.serving and (origin, incarnation) not in self._downs:
            self._downs.add((origin, incarnation))
            self._commands.append((c.NODE_DOWN, origin, incarnation))

    # --- entries --------------------------------------------------------------------------------

    def must_wait(self) -> bool:
        """Whether this node leads, and what is to be proposed waits for something else to come."""
        node = self._node
        if not self.term or self.inbox.bytes + node.origin.unsent_bytes >= ENTRY_FULL_BYTES:
            return False
        if node.replica.entries_in_flight:
            return True
        return self._waiting() + self._placed < self._gathering.target

    def committed(self) -> None:
        """More is committed; when nothing is in flight any more, more may be worth a wait."""
        if not self._node.replica.entries_in_flight:
            waiting = self._waiting()
            # Waits behind batches that are not applied came along with those.
            late = waiting - self.early.behind(self._node.machine.origins)
            if self._gathering.committed(waiting, late, self._node.now_us):
                self._placed = 0

    def _waiting(self) -> int:
        """How many clients have sent what is in no entry yet."""
        here = self.early.count + self.inbox.clients + len(self._commands)
        return here + self._node.origin.unsent_clients

    def _may_leave(self) -> bool:
        """Whether what waits travels as an entry now, and not together with what comes."""
        node = self._node
        if self.inbox.bytes < ENTRY_FULL_BYTES:
            if node.replica.entries_in_flight:
                return False
            left_us = self._gathering.left_us(self._waiting() + self._placed, node.now_us)
            if left_us:
                if self._alarm is None:
                    self._alarm = node.host.call_later(max(left_us, ALARM_MIN_US), self._alarmed)
                return False
        self._silence()  # it would hide the alarm of a shorter wait
        return True

    def _alarmed(self) -> None:
        self._alarm = None
        self._node.wake()

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def propose(self) -> None:
        """Propose entries while there is something to propose and room in flight."""
        node = self._node
        replica = node.replica
        if not self.term:
            return
        if self.serving:
            self._unpark_some()
            self._register_waits()
        while replica.can_propose() and self.term and self._may_leave():
            entry = self._next_entry()
            if entry is None:
                return
            replica.propose(entry)

    def _next_entry(self) -> bytes | None:
        node = self._node
        now_us = node.clock.estimate_us(node.now_us)
        commands: list[c.Command] = []
        if not self._epoch_proposed:
            self._epoch_proposed = True
            now_us = node.lifecycle.begin_epoch()
            commands.append(self._epoch(now_us))
        sections: list[tuple[int, int, int, bytes]] = []
        size = count = 0
        clients = 0
        inbox = self.inbox
        grants: list[c.Command] = []
        while inbox.batches:
            size += c.SECTION_HEADER_BYTES + len(inbox.batches[0][5])
            count += c.count_of(inbox.batches[0][5])
            if sections and (size > ENTRY_JOIN_BYTES or count > ENTRY_COMMANDS_MAX):
                break
            origin, incarnation, number, asking, hint, payload = inbox.pop()
            clients += asking
            sections.append((origin, incarnation, number, payload))
            if hint and self.line.waiters:
                self._grant_puts(hint, grants)
        commands += node.versions.due()
        self._digest_in_time(now_us)
        own = self._commands[:LEADER_COMMANDS_MAX]
        del self._commands[:LEADER_COMMANDS_MAX]
        commands += own
        if commands:
            sections.insert(0, (c.LEADER, 0, 0, c.pack_commands(commands)))
        if grants:
            sections.append((c.LEADER, 0, 0, c.pack_commands(grants)))
        if not sections and not self._time_is_due(now_us):
            return None
        self._gathering.proposed(clients + len(own) + len(grants), node.now_us)
        flags = c.FLAG_PUTS_REFUSED if node.peers.disk_is_low() else 0
        return c.encode_entry(flags, now_us, node.host.wall_us(), sections)

    def _epoch(self, now_us: int) -> c.Command:
        config = self._node.config
        return (
            c.EPOCH,
            self.term,
            now_us + FLOOR_GRACE_US,
            config.jobs_max,
            config.tubes_max,
            config.sessions_max,
            config.queue_bytes_max,
        )

    def _time_is_due(self, now_us: int) -> bool:
        """Whether an empty entry (a TICK) is needed for time to have its effect."""
        if not self.serving or self._node.replica.last_index > self._node.replica.applied_index:
            return False  # an entry is on its way and carries the time
        machine = self._node.machine
        if machine.has_work() or machine.puts_refused != self._node.peers.disk_is_low():
            return True  # origins refuse puts by themselves until an entry says otherwise
        due_us = machine.next_due_us(now_us)
        if due_us is None:
            return False
        shared_us = -(-due_us // TICK_GRAIN_US) * TICK_GRAIN_US
        return shared_us <= now_us or due_us <= self.ends.awaited_us

    def _digest_in_time(self, now_us: int) -> None:
        """Ask for a digest when one is due: also under load, when no entry is empty."""
        index = self._node.machine.index
        if not self.serving or self._node.digest.under_way:
            return  # another one would end the one before, and with many jobs none would be done
        if now_us < self._next_digest_us:
            return
        if index > self._digested_index + 1 or self._node.peers.agreement.image_disputed:
            self._next_digest_us = now_us + DIGEST_PERIOD_US
            self._digested_index = index
            self._commands.append((c.DIGEST,))

    # --- handing out jobs -----------------------------------------------------------------------

    def _grant_puts(self, hint: frames.Hint, grants: list[c.Command]) -> None:
        """For each ready job that a batch puts, one GRANT for the oldest waiter of its tube."""
        for tube, count in hint.items():
            for _ in range(min(count, GRANTS_FOR_PUTS_MAX - len(grants))):
                waiter = self.line.first(tube)
                if waiter is None:
                    break
                grants.append(self._grant(waiter, tube, is_ready=False))

    def _grant(self, waiter: Waiter, tube: bytes, is_ready: bool) -> c.Command:
        waiter.granting = True
        self._pledges[waiter.key, waiter.request] = (tube, is_ready)
        if is_ready:
            self._pledged[tube] = self._pledged.get(tube, 0) + 1
        return (c.GRANT, *waiter.key, waiter.request, waiter.behind)

    def match(self, name: bytes) -> None:
        """Propose GRANTs for the ready jobs of a tube that nothing is pledged for yet."""
        tube = self._node.machine.queue.tubes.get(name)
        if not self.serving or tube is None:
            return
        while self._is_unpledged(tube):
            waiter = self.line.first(name)
            if waiter is None:
                return
            self._commands.append(self._grant(waiter, name, is_ready=True))

    def outcome(self, key: Key, request: int, outcome: int) -> None:
        """A GRANT was applied."""
        pledge = self._pledges.pop((key, request), None)
        if pledge is None:
            return
        tube, was_ready = pledge
        if was_ready:
            left = self._pledged[tube] - 1
            if left:
                self._pledged[tube] = left
            else:
                del self._pledged[tube]
        waiter = self.line.waiters.get(key)
        if waiter is not None and waiter.request == request:
            waiter.granting = False
            if outcome == LATER:
                self._commands.append(self._grant(waiter, tube, is_ready=True))
                return
            if outcome == NONE_READY:
                self.line.put_back(waiter)
            else:
                self.drop(waiter)
        # Also after GRANTED: a waiter of several tubes may have got the job of another one.
        self.match(tube)

    def drop(self, waiter: Waiter) -> None:
        """Forget a waiter."""
        self.line.remove(waiter.key)
        self.ends.forget(waiter.key)

    def _register_waits(self) -> None:
        """Give WAITs whose batch is applied their places in line."""
        if not self.early.count:
            return
        origins = self._node.machine.origins
        self.early.look(origins)
        looks = LOOKS_PER_TURN_MAX
        while looks > 0:
            taken = self.early.take()
            if taken is None:
                return
            key, wait = taken
            looks -= 1
            origin = origins[key[0]]
            session = origin.sessions.get(key[2]) if origin.incarnation == key[1] else None
            if session is not None and session.request_granted < wait.request:
                looks -= len(session.watched)
                self._enter(key, wait, session.watched)
        self._node.wake()

    def _enter(self, key: Key, wait: EarlyWait, watched: dict[bytes, Tube]) -> None:
        known = self.line.waiters.get(key)
        if known is not None:
            if known.request >= wait.request:
                return
            self.drop(known)
        waiter = Waiter(key, wait.request, wait.behind, self.line.next_place())
        # After a new link the same wait comes again, perhaps while its GRANT is in flight.
        waiter.granting = (key, wait.request) in self._pledges
        name = None if waiter.granting else self._unpledged(watched)
        if name is not None and self.line.first(name) is None:
            # It need not stand in the lines of all its tubes, which may be many.
            self._commands.append(self._grant(waiter, name, is_ready=True))
        self.line.add(waiter, watched)
        if wait.ending:
            self.ends.add(waiter)
        if not waiter.granting:
            self._placed += 1
            if name is not None:
                self.match(name)

    def _unpledged(self, tubes: dict[bytes, Tube]) -> bytes | None:
        """The first of these tubes that has a ready job which is not pledged yet."""
        for name, tube in tubes.items():
            if self._is_unpledged(tube):
                return name
        return None

    def _is_unpledged(self, tube: Tube) -> bool:
        # Most tubes have none; asking that first is what makes it cheap.
        if not tube.ready_count or tube.paused_until_us:
            return False
        return tube.ready_count > self._pledged.get(tube.name, 0)
