"""The Workq protocol at a node: requests become commands, results become replies.

The codec is `beanpole.protocol.workq`; the life cycle of a connection is in `requests`; the replies
to `inspect` are in `inspection`.

Requests take effect one after the other, in the order of the log. A request that waits or reads
blocks those behind it; all others are pipelined and answered in order.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, final

from beanpole import commands as c
from beanpole.constants import TTL_MAX_US
from beanpole.core.jobs import effects
from beanpole.core.jobs.job import DONE, FAILED, GONE, Job, outcome
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpole.protocol.workq.parser import Parser
from beanpoled.frontends.clients import NO_RIGHT, Clients
from beanpoled.frontends.replies import WAIT, Parts
from beanpoled.frontends.workq import inspection, jobs
from beanpoled.frontends.workq.awaited import TIMER_MIN_US, Awaited
from beanpoled.frontends.workq.ending import EndingConnection
from beanpoled.frontends.workq.jobs import MS_US
from beanpoled.frontends.workq.results import FORMATTERS, added, refusal
from beanpoled.frontends.workq.shared import Shared
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import KIND_OPEN, KIND_QUIET, KIND_WAIT, NOT_DONE
from beanpoled.origin.heavy import LIGHT_MAX

# Commands of `run` and `result` after their first one. No reply is owed for them.
KIND_LOOK: Final = r.AUTH + 1  # a barrier: what happened to the job until its wait ended?
KIND_DELETE: Final = r.AUTH + 2

# A job of `run` is kept for this long beyond its wait and its TTR: a client that lost its node asks
# another one for the result, and after a change of leader reservations last two seconds longer.
RUN_GRACE_US: Final = 60_000_000


@final
class WorkqConnection(EndingConnection):
    """A Workq client."""

    __slots__ = (
        "_asked",
        "_awaited",
        "_ends_with",
        "_names",
        "_parser",
        "_request",
        "_shared",
        "_timeout_us",
        "_watched",
    )

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port)
        self._shared = shared
        self._parser = Parser()
        self._asked: r.Request = ()  # the inspect in progress
        self._awaited: Awaited | None = None
        self._names: tuple[bytes, ...] = ()  # of the last lease
        self._watched: dict[bytes, None] = {}  # their queues
        self._request = 0  # the number of the last wait
        self._timeout_us = 0  # when a lease times out, by the node's clock
        self._ends_with = replies.TIMEOUT  # the reply to a lease that waits and gets no job

    def watches(self, tube: bytes) -> bool:
        """See `Connection`."""
        return tube in self._watched

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)

    @property
    def _buffered_bytes(self) -> int:
        return self._parser.buffered_bytes

    def _unfinished_bytes(self) -> int:
        return self._parser.unfinished_bytes

    def _act(self) -> bool:
        request = self._parser.next()
        if request is None:
            return False
        kind = request[0]
        if kind < r.COUNTERS:
            self._shared.counts[kind] += 1
        _HANDLERS[kind](self, request)
        return True

    def _refuse(self) -> bool:
        if self._parser.next() is None:
            return False
        self._replies.push(replies.TOO_MANY_CLIENTS)
        return True

    # --- jobs -----------------------------------------------------------------------------------

    def _add(self, request: r.Request) -> None:
        _, job, name, ttr_ms, ttl_ms, priority, attempts_max, fails_max, payload = request
        if self._admit_put(name, payload, self._add, request):
            limits = (priority, attempts_max, fails_max, payload)
            self._put(r.ADD, job, name, 0, ttr_ms, ttl_ms * MS_US, *limits)

    def _schedule(self, request: r.Request) -> None:
        """Make a job that begins at a wall time; its TTL counts from then, even if that is past."""
        _, job, name, ttr_ms, ttl_ms, time_s, priority, attempts_max, fails_max, payload = request
        left_us = time_s * 1_000_000 - self._clients.host.wall_us()
        ttl_us = left_us + ttl_ms * MS_US
        if not 0 < ttl_us <= TTL_MAX_US:
            self._replies.reply(replies.INVALID_TIME)
        elif self._admit_put(name, payload, self._schedule, request):
            limits = (priority, attempts_max, fails_max, payload)
            self._put(r.SCHEDULE, job, name, max(0, left_us), ttr_ms, ttl_us, *limits)

    def _put(self, kind: int, *fields: Any) -> None:
        command = jobs.add_command(self._session(), *fields)
        self._replies.expect(kind)
        self._clients.origin.submit_put(self, kind, command)

    def _delete(self, request: r.Request) -> None:
        self._submit(r.DELETE, (c.DELETE_NAMED, self._session(), request[1]))

    def _inspect(self, request: r.Request) -> None:
        clients = self._clients
        self.blocked = True
        self._asked = request
        kind = request[0]
        self._replies.expect(kind)
        command = (c.STATS, self._session())
        if inspection.weight(request, clients) > LIGHT_MAX:
            clients.origin.heavy.submit(self, kind, command, clients.loop_us)
        else:
            clients.origin.submit(self, kind, command)

    def _auth(self, request: r.Request) -> None:
        """Become a user; the requests behind it may depend on the user's rights."""
        if self._clients.origin.knows(c.AS_USER):
            self._session()
            self._authenticate(r.AUTH, request[1])
        else:
            self._replies.reply(replies.UNKNOWN_COMMAND)

    def _bad(self, request: r.Request) -> None:
        _, reply, counted = request
        if counted:
            self._shared.counts[counted] += 1
        self._replies.reply(reply)

    def _asked_to_quit(self, request: r.Request) -> None:
        self._quit()

    # --- lease ----------------------------------------------------------------------------------

    def _lease(self, request: r.Request) -> None:
        _, names, wait_ms = request
        clients = self._clients
        self.is_worker = True
        session = self._session()
        if not self._may_lease(names):
            clients.refused_client(NO_RIGHT)
            self._replies.reply(replies.DENIED)
            return
        if not self._watch(session, names):
            self._replies.reply(replies.OUT_OF_MEMORY)
            return
        self.blocked = True
        if not (wait_ms or clients.leaving):
            self._submit(r.LEASE, (c.TAKE, session))
            return
        clients.read_clock()  # a time-out must not fire early by the length of a turn
        self._timeout_us = clients.now_us + wait_ms * MS_US
        self._ends_with = replies.TIMEOUT
        self._request += 1
        is_first = not self._replies.pending
        self._replies.expect(KIND_WAIT)
        self.wait = clients.origin.wait(self, self._request)
        if is_first:
            self._arm()

    def _may_lease(self, names: Iterable[bytes]) -> bool:
        return all(self._clients.may_take(self, jobs.PREFIX + name) for name in names)

    def _watch(self, session: int, names: tuple[bytes, ...]) -> bool:
        """Watch these queues and no others; most leases of a client name the same ones."""
        if names == self._names:
            return True
        clients = self._clients
        watched = self._watched
        wanted = dict.fromkeys([jobs.PREFIX + name for name in names])
        for queue in wanted:
            if queue not in watched and clients.refuses_tube(queue):
                return False
        for queue in watched:
            if queue not in wanted:
                clients.origin.submit(self, KIND_QUIET, (c.IGNORE, session, queue))
        for queue in wanted:
            if queue not in watched:
                clients.origin.submit(self, KIND_QUIET, (c.WATCH, session, queue))
        self._names = names
        self._watched = wanted
        return True

    def _arm(self) -> None:
        wait = self.wait
        if wait is None or wait.ending or self._clients.leaving:
            return  # a stopping node closes this client: leases belong to no session
        self._stop_timer()
        left_us = 0 if self.ended else self._timeout_us - self._clients.now_us
        if left_us <= 0:
            self._clients.origin.end_wait(wait)
        else:
            self._timer = self._clients.call_later(left_us, self._time_is_up)

    def rights_changed(self) -> int:
        """See `Connection`. A job granted before the wait has ended is not lost."""
        if self.closed:
            return 0
        wait, awaited = self.wait, self._awaited
        if awaited is not None and not self._clients.may_hear(self, awaited.job_id):
            self._clients.refused_client(NO_RIGHT)
            self._clients.listeners.stop_listening(self, awaited.job_id)
            self._stop_awaiting(replies.DENIED)
            return 1
        if wait is None or wait.ending:
            return 0
        if not self._may_lease(self._names):
            self._stop_timer()
            self._clients.refused_client(NO_RIGHT)
            self._ends_with = replies.DENIED
            self._clients.origin.end_wait(wait)
        return len(self._names)

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `Connection`."""
        self.wait = None
        self.blocked = False
        self._stop_timer()
        if not self.closed:
            queue = self._clients.machine.queue
            reply = self._ends_with if job is None else jobs.leased(queue, job)
            self._settled(self._replies.answer_newest(reply))

    def _taken(self, result: tuple[int, bytes] | int) -> None:
        """Answer a lease that does not wait, or repeat its command."""
        job: Job | None = None
        if not isinstance(result, int):
            job = self._clients.machine.queue.jobs.get(result[0])
        if job is not None:
            self._answer_alone(jobs.leased(self._clients.machine.queue, job))
        elif result == c.NOT_FOUND:
            self._answer_alone(replies.TIMEOUT)
        elif isinstance(result, int) and result != c.AGAIN:
            self._answer_alone(refusal(result))
        else:
            # The entry reached its limit of work, or it deleted the job after the lease.
            self._clients.origin.submit(self, r.LEASE, (c.TAKE, self.number))

    # --- run and result -------------------------------------------------------------------------

    def _run(self, request: r.Request) -> None:
        _, job, name, ttr_ms, wait_ms, priority, payload = request
        if not self._admit_put(name, payload, self._run, request):
            return
        self._await(job, True, wait_ms)
        ttl_us = (wait_ms + ttr_ms) * MS_US + RUN_GRACE_US
        self._put(r.RUN, job, name, 0, ttr_ms, ttl_us, priority, 0, 0, payload)

    def _result(self, request: r.Request) -> None:
        _, job, wait_ms = request
        self._await(job, False, wait_ms)
        self._submit(r.RESULT, (c.FIND, self._session(), job))

    def _await(self, job: bytes, is_run: bool, wait_ms: int) -> None:
        clients = self._clients
        self.blocked = True
        clients.read_clock()
        self._awaited = Awaited(job, is_run, clients.now_us + wait_ms * MS_US, wait_ms == 0)

    def _added_to_run(self, result: tuple[int, int] | int) -> None:
        if isinstance(result, int):
            self._stop_awaiting(added(result))
        else:
            self._listen(result[0])

    def _found(self, result: int) -> None:
        if result <= 0:
            self._stop_awaiting(replies.NOT_FOUND if result == c.NOT_FOUND else refusal(result))
        else:
            self._listen(result)

    def _listen(self, job_id: int) -> None:
        """Wait for the end of a job that this node knows; answer if it has ended."""
        awaited = self._awaited
        assert awaited is not None
        awaited.job_id = job_id
        ended = self._clients.listeners.listen(self, job_id)
        if ended is not None:
            self.job_told(*ended)
        elif awaited.is_instant:
            # The wait was over before the request was submitted: this node has applied every result
            # that came in time.
            self._judge(awaited)
        else:
            self._arm_awaited(awaited)

    def _arm_awaited(self, awaited: Awaited) -> None:
        self._stop_timer()
        left_us = awaited.until_us - self._clients.now_us
        if left_us > 0:
            self._timer = self._clients.call_later(left_us, self._time_is_up)
        else:
            # This node's state may be old; it is current once the barrier is answered.
            awaited.is_due = True
            self._clients.origin.submit(self, KIND_LOOK, (c.STATS, self.number))

    def _time_is_up(self) -> None:
        self._timer = None
        self._clients.read_clock()
        if self._awaited is not None:
            self._arm_awaited(self._awaited)
        else:
            self._arm()

    def _looked(self) -> None:
        """Handle an answered barrier; if its wait has ended meanwhile, a later wait ignores it."""
        awaited = self._awaited
        if awaited is not None and awaited.is_due:
            awaited.is_due = False
            self._judge(awaited)

    def _not_deleted(self, result: int) -> None:
        """Answer a run whose job stays: its client may not work, or another session has the job.

        A later worker of beanstalk or Gearman, which know the queue by an alias, may hold it.
        """
        awaited, clients = self._awaited, self._clients
        if awaited is None or not awaited.is_deleting:
            return
        job = clients.machine.queue.jobs.get(awaited.job_id)
        goes_on = job is not None and job.state not in (DONE, FAILED)  # else its effect follows
        if result == c.DENIED or (result == c.NOT_FOUND and goes_on):
            clients.listeners.stop_listening(self, awaited.job_id)
            self._stop_awaiting(replies.TIMEOUT)

    def _judge(self, awaited: Awaited) -> None:
        """Decide a wait that is over; this node knows everything that happened before its end."""
        clients = self._clients
        queue = clients.machine.queue
        job = queue.jobs.get(awaited.job_id)
        if job is None or outcome(job) != GONE:
            return  # its end is an effect that is not told yet
        if awaited.extends(job):
            left_us = queue.deadline_us(job) - clients.clock.estimate_us(clients.now_us)
            awaited.until_us = clients.now_us + max(left_us, TIMER_MIN_US)
            self._arm_awaited(awaited)
        elif awaited.is_run:
            # Do not answer yet: the first of its end and this deletion is reported as an effect.
            awaited.is_deleting = True
            command = (c.DELETE, self.number, awaited.job_id)
            clients.origin.submit(self, KIND_DELETE, command)
        else:
            clients.listeners.stop_listening(self, awaited.job_id)
            self._stop_awaiting(replies.TIMEOUT)

    def job_told(self, job_id: int, kind: int, data: bytes) -> None:
        """See `Connection`."""
        awaited = self._awaited
        if kind >= effects.NOTIFIED_MIN or awaited is None:
            return
        if kind in (effects.DONE, effects.FAILED):
            # A client that has closed its sending side may be gone, and the result must not be gone
            # with it: it can be requested until the job's TTL ends.
            if awaited.is_run and not (awaited.is_deleting or self.ended):
                command = (c.DELETE, self.number, awaited.job_id)
                self._clients.origin.submit(self, KIND_DELETE, command)
            success = kind == effects.DONE
            self._stop_awaiting(self._shared.finished(awaited.job, success, data))
        elif not awaited.is_deleting:
            self._stop_awaiting(replies.NOT_FOUND)
        elif kind == effects.GONE:
            self.drop()  # a snapshot does not say whether the job had a result
        else:
            self._stop_awaiting(replies.TIMEOUT)

    def _stop_awaiting(self, reply: bytes | Parts) -> None:
        """Answer a run or a result."""
        self._awaited = None
        self._stop_timer()
        self._answer_alone(reply)

    # --- results --------------------------------------------------------------------------------

    def answered(self, kind: int, result: Any) -> None:
        """See `Connection`."""
        if self.closed:
            return
        formatter = FORMATTERS.get(kind)
        if formatter is not None:
            self._answer(formatter(result))
        elif kind == r.LEASE:
            self._taken(result)
        elif kind == r.RUN:
            self._added_to_run(result)
        elif kind == r.RESULT:
            self._found(result)
        elif kind == KIND_LOOK:
            self._looked()
        elif kind == KIND_DELETE:
            self._not_deleted(result)
        elif kind == r.AUTH:
            self._authenticated(result, replies.OK, replies.DENIED)
        elif kind in _INSPECTS:
            answer = inspection.answer(self._asked, self._clients, self._shared, self)
            self._answer_alone(answer)
        elif kind in (KIND_OPEN, KIND_QUIET) and result != c.OK:
            # The machine refused a command that later ones depend on. The error is sent only where
            # a lease waits for it: a pending request may be done, and without one the lease has
            # been answered, perhaps with the same error.
            if kind == KIND_OPEN or self._replies.head == WAIT:
                self._replies.push(refusal(result))
            self._close()

    def failed(self, kind: int, why: int) -> None:
        """See `Connection`."""
        if self.closed:
            return
        if why != NOT_DONE:
            self.drop()
        elif kind in (KIND_LOOK, KIND_DELETE, r.RUN, r.RESULT):
            self._failed_awaiting(kind)
        else:
            if kind == KIND_WAIT:
                self.wait = None
                self._stop_timer()
            if kind in (KIND_WAIT, r.LEASE, r.AUTH) or kind in _INSPECTS:
                self.blocked = False
            # The commands that were not sent are the last ones, and they fail in order.
            self._settled(self._replies.answer_kind(kind, replies.NO_MAJORITY))

    def _failed_awaiting(self, kind: int) -> None:
        """Handle the failure of a command of a run or a result."""
        awaited = self._awaited
        if (
            awaited is None
            or (kind == KIND_LOOK and not awaited.is_due)
            or (kind == KIND_DELETE and not awaited.is_deleting)
        ):
            return  # it belonged to a wait that has ended
        if awaited.is_run and kind != r.RUN:
            self.drop()  # its job exists and may still be done: no answer would be true
            return
        if awaited.job_id:
            self._clients.listeners.stop_listening(self, awaited.job_id)
        self._stop_awaiting(replies.NO_MAJORITY)


_INSPECTS: Final = (
    r.INSPECT_SERVER,
    r.INSPECT_QUEUES,
    r.INSPECT_QUEUE,
    r.INSPECT_JOB,
    r.INSPECT_JOBS,
    r.INSPECT_SCHEDULED,
)
_HANDLERS: Final[dict[int, Callable[[WorkqConnection, r.Request], None]]] = {
    r.ADD: WorkqConnection._add,
    r.SCHEDULE: WorkqConnection._schedule,
    r.RUN: WorkqConnection._run,
    r.RESULT: WorkqConnection._result,
    r.LEASE: WorkqConnection._lease,
    r.COMPLETE: WorkqConnection._complete,
    r.FAIL: WorkqConnection._fail,
    r.DELETE: WorkqConnection._delete,
    r.AUTH: WorkqConnection._auth,
    r.BAD: WorkqConnection._bad,
    r.CLOSE: WorkqConnection._asked_to_quit,
    **dict.fromkeys(_INSPECTS, WorkqConnection._inspect),
}
