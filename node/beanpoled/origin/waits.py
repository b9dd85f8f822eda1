"""The waits of a node's clients for a job: announced to the leader, ended with a job or without.

This module keeps a wait behind the commands of its client; the commands are in `outbox`, and the
choice of the wait that is granted a job is in `beanpoled.leading`. All state is volatile.

When the node stops, it withdraws its waits: it asks the leader to end them, and announces no new
ones. They stay with their clients, and end by time alone.
"""

from functools import partial

from beanpole.core.jobs.job import Job
from beanpole.core.sessions import Origin, Session
from beanpoled.links import frames
from beanpoled.origin.batches import KIND_WAIT, NOT_DONE, UNKNOWN, Client, Wait
from beanpoled.origin.leader_link import LeaderLink
from beanpoled.shared.context import Context


class Waits:
    """The waits of one origin, by their sessions.

    Attributes:
        has_news: whether `send` has waits or ends to send.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._of_session: dict[int, Wait] = {}
        self._new: list[Wait] = []
        self._new_ends: list[Wait] = []
        self._leaving = False

    @property
    def unsent(self) -> int:
        """The number of waits that the leader does not know yet."""
        return len(self._new)

    @property
    def has_news(self) -> bool:
        """See the class."""
        return bool(self._new or self._new_ends)

    def clear(self) -> None:
        """Forget all waits: the incarnation is over, and its clients are closed."""
        self._of_session.clear()
        self._new.clear()
        self._new_ends.clear()

    # --- from the front ends --------------------------------------------------------------------

    def begin(self, client: Client, request: int) -> Wait:
        """See `Origin.wait`."""
        wait = Wait(client, client.number, request, client.batch)
        self._of_session[wait.session] = wait
        if self._leaving:
            wait.is_local = True
        else:
            self._new.append(wait)
        return wait

    def end(self, wait: Wait) -> None:
        """See `Origin.end_wait`."""
        if wait.ending or self._of_session.get(wait.session) is not wait:
            return
        wait.ending = True
        wait.ending_at_us = self._context.loop_us
        if wait.is_local:
            # Not at once: the connection is in the middle of an operation.
            self._context.host.call_soon(partial(self._end_locally, wait))
        elif not wait.withdrawn:
            self._new_ends.append(wait)
        self._context.wake()

    def _end_locally(self, wait: Wait) -> None:
        if self._of_session.get(wait.session) is wait:
            context = self._context
            del self._of_session[wait.session]
            wait.client.wait_ended(None, context.clock.estimate_us(context.now_us))

    def forget(self, wait: Wait) -> None:
        """Forget the wait of a client that is gone."""
        if self._of_session.get(wait.session) is wait:
            del self._of_session[wait.session]
            if wait.told:
                wait.sent = True  # the leader may know it from before a `tell_all`
                self._new_ends.append(wait)

    def leave(self) -> None:
        """Withdraw all waits because the node stops. A wait with a job in flight still gets it."""
        self._leaving = True
        for wait in self._of_session.values():
            if wait.ending:
                continue
            wait.withdrawn = True
            if wait.told:
                self._new_ends.append(wait)
            else:
                wait.is_local = True
        self._new = [wait for wait in self._new if not wait.is_local]
        self._context.wake()

    # --- to the leader --------------------------------------------------------------------------

    def tell_all(self) -> None:
        """Send all waits again: a new link or a new leader knows none of them."""
        gone = [wait for wait in self._new_ends if self._is_gone(wait)]
        self._new = [wait for wait in self._of_session.values() if not wait.is_local]
        self._new_ends = [wait for wait in self._new if wait.ending or wait.withdrawn] + gone
        for wait in self._new:
            wait.sent = False

    def _is_gone(self, wait: Wait) -> bool:
        """Whether the leader may know this wait, and its client is gone."""
        return wait.sent and self._of_session.get(wait.session) is not wait

    def send(self, leader: LeaderLink, term: int, incarnation: int, number: int) -> bool:
        """Send new waits and ends; return False if the link is full or gone.

        Args:
            leader: the path to the leader.
            term: the leader's term.
            incarnation: of this node.
            number: of the last numbered batch.
        """
        later: list[Wait] = []
        items: list[frames.WaitItem] = []
        for wait in self._new:
            if self._of_session.get(wait.session) is not wait:
                continue
            batch = wait.batch
            if batch is not None and not batch.number and batch.commands:
                later.append(wait)  # the batch that it stands behind has no number yet
                continue
            behind = 0 if batch is None else batch.number or number
            wait.sent = wait.told = True
            items.append((wait.session, wait.request, behind))
        self._new = later
        is_sent = True
        for frame in frames.encode_all(term, incarnation, items):
            is_sent &= leader.send(frames.WAITS, frame)
        ends = [wait for wait in self._new_ends if wait.sent]
        self._new_ends = [
            wait
            for wait in self._new_ends
            if not wait.sent and self._of_session.get(wait.session) is wait  # or it was given up
        ]
        named = [(wait.session, wait.request) for wait in ends]
        for frame in frames.encode_all(term, incarnation, named):
            is_sent &= leader.send(frames.UNWAITS, frame)
        if not is_sent:
            # `tell_all` finds the others by their clients.
            self._new_ends += [wait for wait in ends if self._is_gone(wait)]
        return is_sent

    # --- outcomes of waits ----------------------------------------------------------------------

    def granted(self, session: int, request: int, job: Job) -> bool:
        """Deliver a job to a waiting session; return False if no client waits for it any more."""
        wait = self._of_session.get(session)
        if wait is None or wait.request != request:
            return False
        del self._of_session[session]
        wait.client.wait_ended(job)
        return True

    def none(self, session: int, request: int, until_us: int) -> None:
        """End a wait without a job, or keep it locally if this node withdrew it."""
        wait = self._of_session.get(session)
        if wait is None or wait.request != request:
            return
        if wait.withdrawn and not wait.ending:
            wait.is_local = True
            wait.sent = wait.told = False
            return
        del self._of_session[session]
        wait.client.wait_ended(None, until_us)

    def image_loaded(self, sessions: dict[int, Session]) -> None:
        """Close clients that were granted a job by entries that a loaded snapshot covers."""
        for wait in list(self._of_session.values()):
            session = sessions.get(wait.session)
            if session is not None and session.request_granted >= wait.request:
                wait.client.drop()

    # --- time limits ----------------------------------------------------------------------------

    def expire(self, before_us: int) -> None:
        """Fail the waits whose end was requested before `before_us`."""
        for wait in list(self._of_session.values()):
            if wait.ending and wait.ending_at_us < before_us:
                self._give_up(wait)

    def drop_moved(self, state: Origin) -> None:
        """Close the clients whose session is gone from this node: no job comes for them.

        Another connection resumed it, and the entry that says so has no answer for them.

        Args:
            state: this node as an origin, as far as the log is applied here.
        """
        sessions = state.sessions
        gone = [wait for number, wait in self._of_session.items() if number not in sessions]
        for wait in gone:
            # A wait behind a batch that is not applied may be of a session that is not open yet.
            if wait.batch is not None and 0 < wait.batch.number < state.next_number:
                wait.client.drop()

    def fence(self) -> None:
        """Fail all waits."""
        for wait in list(self._of_session.values()):
            self._give_up(wait)

    def _give_up(self, wait: Wait) -> None:
        if wait.told:
            wait.client.failed(KIND_WAIT, UNKNOWN)
        else:
            self._of_session.pop(wait.session, None)
            wait.client.failed(KIND_WAIT, NOT_DONE)
