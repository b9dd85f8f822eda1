"""The replicated state: queue, keys, sessions and limits, and the start and end of sessions.

Operations change this state. Their scheduling, timers and budgets are in `core.machine`.
"""

from collections import deque

from crc32c import crc32c

from beanpole import commands as c
from beanpole.constants import (
    JOBS_MAX_DEFAULT,
    QUEUE_BYTES_MAX_DEFAULT,
    SESSIONS_MAX_DEFAULT,
    TUBES_MAX_DEFAULT,
)
from beanpole.core.equal_puts import EqualPuts
from beanpole.core.hosts import UNKNOWN, Hosts
from beanpole.core.jobs.aliases import ALIASES_SINCE
from beanpole.core.jobs.job import Tube
from beanpole.core.jobs.order import Order
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.spaces import Space
from beanpole.core.jobs.transitions import SESSION, TRANSITION_BITS
from beanpole.core.keys import Keys
from beanpole.core.qless.tables import Tables
from beanpole.core.sessions import ATTACHED, DEAD, DETACHED, Origin, Session
from beanpole.core.users import Users
from beanpole.events import CONNECTION_LOST, NO_REASON


class MachineState:
    """The state of a `Machine`, the only subclass. It changes only within `apply`."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.qless = Tables(self.queue)
        self.keys = Keys()
        self.equal_puts = EqualPuts()
        self.hosts = Hosts()
        self.users = Users()
        self.index = 0
        self.wall_us = 0  # the leader's wall clock in the last entry; for display, never decides
        self.state_hash = 0
        self.term = 0
        self.version = 0
        self.activate(c.BASE_VERSION)
        self.origins: dict[int, Origin] = {}
        self.sessions = 0  # attached and detached ones
        self.sessions_total = 0
        self.watches = 0  # tubes that sessions watch, ending sessions included
        self.resumable: dict[bytes, Session] = {}
        # Detached sessions by their serial numbers, and in the order (detached until, serial).
        self.detached: dict[int, Session] = {}
        self.returning = Order()
        # Remaining bounded work: the sessions of dead incarnations, which commands no longer find,
        # and sessions whose jobs are to be returned, oldest first.
        self.lost: deque[dict[int, Session]] = deque()
        self.ending: deque[Session] = deque()
        self.puts_refused = False
        self.jobs_max = JOBS_MAX_DEFAULT
        self.tubes_max = TUBES_MAX_DEFAULT
        self.sessions_max = SESSIONS_MAX_DEFAULT
        self.queue_bytes_max = QUEUE_BYTES_MAX_DEFAULT
        self.beside_jobs_bytes = 0  # memory of everything but jobs when the present entry began
        # The remaining budget of this entry: transitions of time and of lost sessions, kicked jobs,
        # watched tubes that GRANTs look at, and steps of making room in full queues.
        self._budget = 0
        self.kicks_left = 0
        self.looks_left = 0
        self.drops_left = 0

    def activate(self, version: int) -> None:
        """Switch to a machine version. Only RAISE and the loading of an image call this."""
        self.version = version
        self.queue.has_aliases = version >= ALIASES_SINCE

    # --- sessions -------------------------------------------------------------------------------

    def note_session(self, session: Session) -> None:
        """Record in the state hash that a session changed."""
        transitions = self.queue.transitions
        transitions.append(session.number << TRANSITION_BITS | SESSION)
        if session.host != UNKNOWN:
            transitions.append(session.host << TRANSITION_BITS | SESSION)

    def note_values(self, code: int, *values: bytes) -> None:
        """Record values in the state hash, under a code of `core.jobs.transitions`."""
        self.queue.transitions.append(crc32c(b"\0".join(values)) << TRANSITION_BITS | code)

    def open_session(self, origin: Origin, number: int, host: int) -> None:
        """Begin a session of an origin, from a host; the number must be free."""
        queue = self.queue
        self.sessions_total += 1
        session = Session(
            self.sessions_total, origin.index, origin.incarnation, number, queue.beanstalk
        )
        session.move(origin.index, origin.incarnation, number, host)
        self.bind(session, queue.default)
        origin.sessions[number] = session
        self.sessions += 1
        self.note_session(session)

    def bind(self, session: Session, tube: Tube) -> None:
        """Make a session that uses and watches nothing use and watch a tube."""
        session.used = tube
        session.watched[tube.name] = tube
        tube.users += 1
        tube.watchers += 1
        self.watches += 1

    def unbind(self, session: Session) -> None:
        """Make a session use and watch nothing."""
        queue = self.queue
        self.watches -= len(session.watched)
        used = session.used
        if used is not None:
            used.users -= 1
            queue.drop_if_idle(used)
        for tube in session.watched.values():
            tube.watchers -= 1
            queue.drop_if_idle(tube)

    def enter(self, session: Session, space: Space, tube: Tube | None) -> None:
        """Move a session that holds no jobs to another space, and to a queue there."""
        self.unbind(session)
        session.used = None
        session.watched = {}
        session.space = space
        session.leased = space.leased
        if tube is not None:
            self.bind(session, tube)

    def attach(self, session: Session, origin: Origin, fresh: Session) -> None:
        """Give a resumable session the attachment of another session, which has ended.

        Requests are numbered per attachment, so the last granted request comes with it: a late
        second GRANT for the attachment's previous session stays void. The host and the token come
        with it, too: the session's old token may be about to be dropped.
        """
        self.queue.keep_holder(session)
        if session.state == DETACHED:
            self.forget_detached(session)
        else:
            self._forget_attachment(session)
        session.move(origin.index, origin.incarnation, fresh.number, fresh.host)
        session.epoch += 1
        session.state = ATTACHED
        session.reason = NO_REASON
        session.detached_until_us = 0
        session.request_granted = fresh.request_granted
        session.token = fresh.token
        origin.sessions[session.number] = session
        self.note_session(session)

    def end_session(self, session: Session, lost: bool, reason: int = CONNECTION_LOST) -> None:
        """End a session's attachment: the session is detached if it is resumable, else killed."""
        self.queue.keep_holder(session)
        session.reason = reason
        self._forget_attachment(session)
        self.note_session(session)
        if lost and session.secret:
            session.state = DETACHED
            session.detached_until_us = self.queue.now_us + session.grace_us
            self.detached[session.serial] = session
            self.returning.add((session.detached_until_us, session.serial))
            return
        self.kill(session)

    def _forget_attachment(self, session: Session) -> None:
        """Remove the session from its origin, so that commands no longer find it."""
        for sessions in (self.origins[session.origin].sessions, *self.lost):
            if sessions.get(session.number) is session:
                del sessions[session.number]
                return

    def forget_detached(self, session: Session) -> None:
        """Remove a session from the detached ones."""
        del self.detached[session.serial]
        self.returning.remove((session.detached_until_us, session.serial))

    def kill(self, session: Session) -> None:
        """End a session for good; bounded work of later entries returns its jobs."""
        self.queue.keep_holder(session)
        session.state = DEAD
        self.sessions -= 1
        if session.secret:
            del self.resumable[session.secret]
        self.ending.append(session)

    def end_incarnation(self, origin: Origin) -> None:
        """Mark an origin as down; bounded work of later entries ends its sessions."""
        origin.alive = False
        self.queue.transitions.append(origin.incarnation << TRANSITION_BITS | SESSION)
        if origin.sessions:
            self.lost.append(origin.sessions)
            origin.sessions = {}
