"""Dispatching: the leader's choice of the waiting client that is granted each job.

Clients' waits begin here, stand in line and are matched with jobs that are ready or about to be. A
GRANT is only a proposal: the machine decides what is granted. Waits that end without a job are in
`unwaits`.
"""

from collections import deque

from beanpole import commands as c
from beanpole.core.applied import LATER, NONE_READY
from beanpole.core.jobs.job import Tube
from beanpole.core.sessions import Session
from beanpole.core.users import WORK, User
from beanpole.errors import ProtocolError
from beanpole.weights import GRANTS_FOR_PUTS_MAX
from beanpoled.leading.early import EarlyWait, EarlyWaits
from beanpoled.leading.term import Term
from beanpoled.leading.unwaits import Unwaits
from beanpoled.leading.waiting import LOOKS_PER_TURN_MAX, Key, Waiter, WaitingLine
from beanpoled.links import frames
from beanpoled.shared.context import Context


class Dispatcher:
    """The waits of all origins, and the GRANTs in flight.

    Attributes:
        line: the clients that wait.
        early: waits that arrived before the batch that they stand behind was applied.
        placed: waits that found no job since the last commit, and stand in line.
    """

    def __init__(self, context: Context, term: Term, line: WaitingLine, unwaits: Unwaits) -> None:
        self._context = context
        self._term = term
        self._unwaits = unwaits
        self.line = line
        self.early = EarlyWaits()
        self.placed = 0
        # GRANTs in flight: the tube of the job, and whether the job is ready already or is put in
        # the same entry.
        self._grants: dict[tuple[Key, int], tuple[bytes, bool]] = {}
        # Tube -> number of ready jobs that GRANTs in flight have claimed.
        self._claimed: dict[bytes, int] = {}
        self._back: deque[Waiter] = deque()  # parked waiters whose origin sends again
        # The users whose rights determine the waiters' lines, and the waiters to check again after
        # the users changed.
        self._users: dict[bytes, User] = {}
        self._changed: deque[Waiter] = deque()

    def clear(self) -> None:
        """Forget everything of an earlier term: leadership is lost."""
        self.line.clear()
        self.early.clear()
        self.placed = 0
        self._grants.clear()
        self._claimed.clear()
        self._back.clear()
        self._changed.clear()

    # --- from origins ---------------------------------------------------------------------------

    def receive_waits(self, origin: int, frame: bytes) -> None:
        """Accept WAITs; each is registered once the batch that it stands behind is applied.

        Raises:
            ProtocolError: a correct origin never sends this.
        """
        term, incarnation, items = frames.decode_items(frame, 3)
        if term == self._term.number and not self.early.add(origin, incarnation, items):
            raise ProtocolError(f"origin {origin} has too many clients that wait")

    def receive_unwaits(self, origin: int, frame: bytes) -> None:
        """Accept UNWAITs; they follow the WAITs they end.

        Raises:
            ProtocolError: a correct origin never sends this.
        """
        term, incarnation, items = frames.decode_items(frame, 2)
        if term != self._term.number:
            return
        for session, request in items:
            key = (origin, incarnation, session)
            waiter = self.line.waiters.get(key)
            if waiter is not None and waiter.request == request:
                self._unwaits.add(waiter)
            else:
                self.early.end(key, request)

    def forget_link(self, origin: int) -> None:
        """Forget the waits of an origin whose link ended: they come again on the next link."""
        self.early.forget(origin)
        for waiter in self.line.of_origin(origin):
            self._drop(waiter)

    def incarnation_ended(self, origin: int, incarnation: int) -> None:
        """Drop the waiters of an incarnation that is dead. The link may live on."""
        for waiter in self.line.of_origin(origin):
            if waiter.key[1] <= incarnation:
                self._drop(waiter)

    def park(self, origin: int) -> None:
        """Pass over the clients of a silent origin until it sends again."""
        for waiter in self.line.of_origin(origin):
            waiter.parked = True
        self._back = deque(waiter for waiter in self._back if waiter.key[0] != origin)

    def unpark(self, origin: int) -> None:
        """Return the clients of an origin that sends again to their places, a few per turn."""
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
            self._context.wake()

    def _drop(self, waiter: Waiter) -> None:
        self.line.remove(waiter.key)
        self._unwaits.forget(waiter.key)

    # --- places in the line ---------------------------------------------------------------------

    def register(self) -> None:
        """Give WAITs whose batch is applied their places in line; called before each entry."""
        self._unpark_some()
        self._look_at_users()
        if not self.early.count:
            return
        origins = self._context.machine.origins
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
                self._enter(key, wait, self._allowed(session))
        self._context.wake()

    def _allowed(self, session: Session) -> dict[bytes, Tube]:
        """The tubes that a session watches and may work on."""
        users = self._context.machine.users
        if not users.rows:
            return session.watched
        user = users.of(session.user, session.token)
        return {name: tube for name, tube in session.watched.items() if user.on(tube.name) & WORK}

    def _look_at_users(self) -> None:
        """Move waiters to the lines in which they may stand after a change of users.

        A GRANT for a tube that its session may not work on would find nothing, again and again.
        """
        machine = self._context.machine
        if self._users is not machine.users.rows:
            self._users = machine.users.rows
            self._changed = deque(self.line.waiters.values())
        looks = LOOKS_PER_TURN_MAX
        while self._changed and looks > 0:
            waiter = self._changed.popleft()
            index, incarnation, number = waiter.key
            origin = machine.origins.get(index)
            if origin is None or origin.incarnation != incarnation:
                continue
            session = origin.sessions.get(number)
            if session is None or self.line.waiters.get(waiter.key) is not waiter:
                continue
            looks -= len(session.watched)
            names = tuple([tube.name for tube in self._allowed(session).values()])
            if names != waiter.tubes:
                self.line.move(waiter, names)
                for name in names:
                    self.match(name)
        if self._changed:
            self._context.wake()

    def _enter(self, key: Key, wait: EarlyWait, watched: dict[bytes, Tube]) -> None:
        known = self.line.waiters.get(key)
        if known is not None:
            if known.request >= wait.request:
                return
            self._drop(known)
        waiter = Waiter(key, wait.request, wait.behind, self.line.next_place())
        # After a new link the same wait arrives again, perhaps while its GRANT is in flight.
        waiter.granting = (key, wait.request) in self._grants
        name = None if waiter.granting else self._unclaimed(watched)
        if name is not None and self.line.first(name) is None:
            # The waiter need not enter the lines of all its tubes, which may be many.
            self._term.commands.append(self._grant(waiter, name, is_ready=True))
        # An alias lets a session watch a tube that has another name, also after its removal.
        self.line.add(waiter, [tube.name for tube in watched.values()])
        if wait.ending:
            self._unwaits.add(waiter)
        if not waiter.granting:
            self.placed += 1
            if name is not None:
                self.match(name)

    # --- jobs for the waits ---------------------------------------------------------------------

    def grant_puts(self, hint: frames.Hint, grants: list[c.Command]) -> None:
        """Add one GRANT for the oldest waiter of its tube for each ready job that a batch puts."""
        queue = self._context.machine.queue
        aliases = queue.aliases
        for name, count in hint.items():
            tube = aliases.queue_of(name)
            known = queue.tubes.get(tube)
            if known is not None and known.closed:
                continue  # its waiters are matched with its jobs when it opens
            deliverable = queue.deliverable(tube, count)
            for _ in range(min(deliverable, GRANTS_FOR_PUTS_MAX - len(grants))):
                waiter = self.line.first(tube)
                if waiter is None:
                    break
                grants.append(self._grant(waiter, tube, is_ready=False))

    def match(self, name: bytes) -> None:
        """Propose GRANTs for the ready jobs of a tube that no GRANT in flight has claimed."""
        tube = self._context.machine.queue.tubes.get(name)
        if not self._term.serving or tube is None:
            return
        while self._is_unclaimed(tube):
            waiter = self.line.first(name)
            if waiter is None:
                return
            self._term.commands.append(self._grant(waiter, name, is_ready=True))

    def outcome(self, key: Key, request: int, outcome: int) -> None:
        """Process the outcome of a GRANT that was applied."""
        grant = self._grants.pop((key, request), None)
        if grant is None:
            return
        tube, was_ready = grant
        if was_ready:
            left = self._claimed[tube] - 1
            if left:
                self._claimed[tube] = left
            else:
                del self._claimed[tube]
        waiter = self.line.waiters.get(key)
        if waiter is not None and waiter.request == request:
            waiter.granting = False
            if outcome == LATER:
                self._term.commands.append(self._grant(waiter, tube, is_ready=True))
                return
            if outcome == NONE_READY:
                self.line.put_back(waiter)
            else:
                self._drop(waiter)
        # Also after GRANTED: a waiter of several tubes may have received a job of another tube.
        self.match(tube)

    def _grant(self, waiter: Waiter, tube: bytes, is_ready: bool) -> c.Command:
        waiter.granting = True
        self._grants[waiter.key, waiter.request] = (tube, is_ready)
        if is_ready:
            self._claimed[tube] = self._claimed.get(tube, 0) + 1
        return (c.GRANT, *waiter.key, waiter.request, waiter.behind)

    def _unclaimed(self, tubes: dict[bytes, Tube]) -> bytes | None:
        """The first of these tubes with a ready job that no GRANT in flight has claimed."""
        for tube in tubes.values():
            if self._is_unclaimed(tube):
                return tube.name
        return None

    def _is_unclaimed(self, tube: Tube) -> bool:
        # Most tubes have no ready job; this test keeps the check cheap.
        if not tube.ready_count or tube.closed:
            return False
        # The GRANTs beyond a rate would find nothing, one for each waiter and token.
        queue = self._context.machine.queue
        return queue.deliverable(tube.name, tube.ready_count) > self._claimed.get(tube.name, 0)
