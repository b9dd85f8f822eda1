"""Clients of this node that listen to a job, or wait until a queue has a ready one.

Neither costs the log or the leader anything, because every node applies every entry. All calls come
between entries, so that no effect is lost between reading the state and listening. The package of
each protocol formats the notifications; waits that reserve a job are the leader's.

One entry may end a thousand jobs with a thousand clients each: the effects are told in slices,
between which others have their step of the loop. Effects keep their order, and a client that begins
to listen meanwhile is told of later effects only.
"""

from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

from beanpole.constants import WATCHED_TUBES_MAX
from beanpole.core.jobs import effects
from beanpole.core.jobs.effects import NOTIFIED_MIN, Effect
from beanpole.core.jobs.job import DONE, GONE, outcome
from beanpoled.frontends.connection import Connection
from beanpoled.shared.context import Context

# Queues that one client may wait for: as many as a session may watch.
QUEUES_MAX: Final = WATCHED_TUBES_MAX
# Queues of woken clients that one step of the loop looks at and forgets: some 4 ms. A put may wake
# thousands of clients, each of which waits for a thousand queues.
LOOKS_PER_STEP_MAX: Final = 4096
# Notifications of one step of the loop, of some 7 us each on a node from the sources.
TELLINGS_PER_STEP_MAX: Final = 512
# Bytes of an effect that take each notification as long again: they are copied to a socket.
BYTES_A_TELLING: Final = 16 * 1024
# Effects that wait until they are told, and their bytes. No client may miss one, so the oldest are
# told at once when there are more: a step takes longer then, but memory is bounded.
UNTOLD_MAX: Final = 10_000
UNTOLD_BYTES_MAX: Final = 64 * 1024 * 1024
_NO_MORE: Final = object()


class Listeners:
    """The listening clients of one node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # The effects of the entry whose results are being delivered.
        self._coming: list[Effect] = []
        # Their jobs: one entry may have thousands of effects, and as many clients that listen.
        self._jobs_coming: set[int] = set()
        # Dicts and not sets: the order of notifications is the same in every run.
        # By job, its clients with the number of the first effect that each is told of.
        self._jobs: dict[int, dict[Connection, int]] = {}
        self._jobs_of: dict[Connection, dict[int, None]] = {}
        # Effects whose clients are not told yet, in the order of the log.
        self._untold: deque[Effect] = deque()
        self._untold_bytes = 0
        self._next_number = 0  # of the next effect, behind all that are untold
        self._tellings: Iterator[None] | None = None  # the rest of those of the present effect
        self._cost = 1  # of one of them
        self._left = TELLINGS_PER_STEP_MAX  # notifications for which this step has room
        self._tells_on = False  # a step of the loop is requested, which tells more of them
        self._queues: dict[bytes, dict[Connection, None]] = {}
        self._queues_of: dict[Connection, tuple[bytes, ...]] = {}
        # Clients with a queue that became ready, in the order in which they are to be woken.
        self._waking: deque[Connection] = deque()
        self._are_waking: set[Connection] = set()
        self._is_resting = False  # a step of the loop is requested, which wakes more of them

    def forget(self, connection: Connection) -> None:
        """Forget a connection that ended."""
        for job_id in list(self._jobs_of.get(connection, ())):
            self.stop_listening(connection, job_id)
        self.stop_waiting(connection)

    def image_loaded(self) -> None:
        """Handle a snapshot: notify clients of what it shows, and listen to the new machine."""
        listened = self._context.machine.queue.effects.listened
        ended = {job_id: self._ending(job_id) for job_id in self._jobs}
        # Behind what was applied before the snapshot; a job whose end is among that has no more
        # clients then.
        self._tell([effect for effect in ended.values() if effect is not None])
        for job_id in [job_id for job_id, effect in ended.items() if effect is None]:
            for connection in list(self._jobs.get(job_id, ())):
                connection.notifications_missed(job_id)
            if job_id in self._jobs:
                listened[job_id] = None
        self.ready(list(self._queues))

    # --- jobs -----------------------------------------------------------------------------------

    def listen(self, connection: Connection, job_id: int) -> Effect | None:
        """Notify a client of the effects of a job from now on, until the job ends.

        The state that counts is the one after the newest entry applied here. A client that knows
        the job from another node must have had a command answered at this one before. The protocol
        bounds the jobs of one client.

        Returns:
            The end of the job if it has ended: then there is nothing to listen to.
        """
        ended = self._ending(job_id)
        if ended is not None and job_id not in self._jobs_coming:
            return ended
        # The job goes on, or it has ended in the entry that has this client's command.
        self._jobs.setdefault(job_id, {}).setdefault(connection, self._next_number)
        self._jobs_of.setdefault(connection, {})[job_id] = None
        self._context.machine.queue.effects.listened[job_id] = None
        return None

    def has(self, connection: Connection) -> bool:
        """Whether a client listens to any job."""
        return connection in self._jobs_of

    def stop_listening(self, connection: Connection, job_id: int) -> None:
        """Remove a client that listens to a job."""
        jobs, listening = self._jobs_of[connection], self._jobs[job_id]
        del jobs[job_id]
        if not jobs:
            del self._jobs_of[connection]
        del listening[connection]
        if not listening:
            del self._jobs[job_id]
            self._context.machine.queue.effects.listened.pop(job_id, None)

    def coming(self, happened: list[Effect]) -> None:
        """Keep the effects of an applied entry until its results are delivered."""
        self._coming = happened
        self._jobs_coming = {effect[0] for effect in happened}

    def told(self) -> None:
        """Deliver the effects of an entry, once its results are delivered.

        A step of the loop has room for some notifications. The rest follows in the next steps,
        before later effects.
        """
        happened, self._coming = self._coming, []
        self._jobs_coming = set()
        self._tell(happened)

    def count(self, copies: int) -> None:
        """Count further copies of the present effect that the client being told was sent."""
        self._left -= copies * self._cost

    def _tell(self, happened: list[Effect]) -> None:
        if not happened:
            return
        for effect in happened:
            self._untold.append(effect)
            self._untold_bytes += len(effect[2])
        self._next_number += len(happened)
        self._tell_some()
        self._step_soon()

    def _step_soon(self) -> None:
        if not self._tells_on:
            self._tells_on = True
            self._context.host.call_soon(self._tell_on)

    def _tell_on(self) -> None:
        self._tells_on = False
        self._left = TELLINGS_PER_STEP_MAX
        if self._untold or self._tellings is not None:
            self._tell_some()
            self._step_soon()

    def _tell_some(self) -> None:
        """Tell clients of effects while this step of the loop has room, or too many wait."""
        while self._left > 0 or self._too_much_is_untold:
            if self._tellings is None:
                if not self._untold:
                    return
                self._tellings = self._tellings_of(self._next_number - len(self._untold))
            if next(self._tellings, _NO_MORE) is _NO_MORE:
                self._tellings = None

    @property
    def _too_much_is_untold(self) -> bool:
        return len(self._untold) > UNTOLD_MAX or self._untold_bytes > UNTOLD_BYTES_MAX

    def _tellings_of(self, number: int) -> Iterator[None]:
        """Tell one more client of the oldest effect, which has this number, with each step."""
        job_id, kind, data = self._untold.popleft()
        self._untold_bytes -= len(data)
        self._left -= 1  # an effect without listeners takes time, too
        self._cost = cost = 1 + len(data) // BYTES_A_TELLING
        listening = self._jobs.get(job_id, {})  # empty if the job ended in this very entry
        for connection in list(listening):
            first = listening.get(connection)
            if first is None or first > number:
                self._left -= 1  # it has ended, or it began to listen later
            else:
                self._left -= cost
                if kind < NOTIFIED_MIN:
                    self.stop_listening(connection, job_id)
                connection.job_told(job_id, kind, data)
            yield None

    def _ending(self, job_id: int) -> Effect | None:
        """Return how a job has ended, as far as the machine still knows; None if it has not."""
        job = self._context.machine.queue.jobs.get(job_id)
        if job is None:
            return (job_id, effects.GONE, b"")
        state = outcome(job)
        if state == GONE:
            return None
        kind = effects.DONE if state == DONE else effects.FAILED
        return (job_id, kind, b"" if job.ext is None else job.ext.result)

    # --- queues ---------------------------------------------------------------------------------

    def wait(self, connection: Connection, queues: Collection[bytes]) -> bytes | None:
        """Notify a client once when one of these queues has a ready job, without reserving it.

        This replaces an earlier wait of the client. At most QUEUES_MAX queues are allowed.

        Returns:
            A queue that has a ready job already: then the client does not wait.
        """
        assert len(queues) <= QUEUES_MAX, len(queues)
        self.stop_waiting(connection)
        for name in queues:
            if self._is_ready(name):
                return name
        self._queues_of[connection] = tuple(dict.fromkeys(queues))
        for name in queues:
            self._queues.setdefault(name, {})[connection] = None
        return None

    def stop_waiting(self, connection: Connection) -> bool:
        """End a client's wait; return whether it was waiting."""
        queues = self._queues_of.pop(connection, ())
        for name in queues:
            waiting = self._queues[name]
            del waiting[connection]
            if not waiting:
                del self._queues[name]
        return bool(queues)

    def ready(self, names: Collection[bytes]) -> None:
        """Wake the clients that wait for these queues, which may have become ready."""
        if not self._queues:
            return
        aliases = self._context.machine.queue.aliases
        for name in names:
            self._note_ready(name)
            if aliases.queues:
                for alias in aliases.names_of(name):
                    self._note_ready(alias)
        if not self._is_resting:
            self._wake_some()

    def _note_ready(self, name: bytes) -> None:
        if name in self._queues and self._is_ready(name):
            fresh = [item for item in self._queues[name] if item not in self._are_waking]
            self._waking += fresh
            self._are_waking.update(fresh)

    def _wake_some(self) -> None:
        """Wake clients that still wait for a queue with a ready job; the others wait on."""
        self._is_resting = False
        looks = LOOKS_PER_STEP_MAX
        while self._waking and looks > 0:
            connection = self._waking.popleft()
            self._are_waking.discard(connection)
            queues = self._queues_of.get(connection, ())
            looks -= 1 + len(queues)
            for name in queues:
                if self._is_ready(name):
                    self.stop_waiting(connection)
                    connection.queue_ready(name)
                    break
        if self._waking:
            self._is_resting = True
            self._context.host.call_soon(self._wake_some)

    def _is_ready(self, name: bytes) -> bool:
        tube = self._context.machine.queue.find(name)
        return tube is not None and tube.ready_count > 0 and not tube.closed
