"""The worker's side of a Gearman connection: functions, jobs, sleep, and the results of jobs.

Jobs are taken by TAKE, which needs the log. The node reads from its own machine whether a TAKE is
worthwhile and when to wake a sleeping worker, so a worker that polls writes nothing.
"""

from collections import deque
from functools import partial
from typing import Any, Final

from beanpole import commands as c
from beanpole.constants import (
    PROGRESS_MAX_BYTES,
    RESULT_MAX_BYTES,
    SECOND_US,
    U32_MAX,
    WATCHED_TUBES_MAX,
)
from beanpole.core.jobs import display_names, effects
from beanpole.core.jobs import job as jobs
from beanpole.core.jobs.spaces import bare
from beanpole.core.users import WORK
from beanpole.events import GEARMAN
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.admin import number
from beanpole.protocol.gearman.parser import Request
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.gearman.held import HeldJobs
from beanpoled.frontends.gearman.session import NOTHING, Asked, GearmanSession
from beanpoled.frontends.gearman.shared import PREFIX, Shared, name_of
from beanpoled.frontends.held_requests import HELD_BYTES_MIN
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import KIND_QUIET
from beanpoled.origin.heavy import LIGHT_MAX

# Kinds of NOTIFY.
DATA: Final = effects.NOTIFIED_MIN
WARNING: Final = effects.NOTIFIED_MIN + 1
# Jobs that were given back are noted up to this number before the first look at which are gone.
GIVEN_BACK_MIN: Final = 64
# Jobs that one step of the loop gives back, some 2 ms: a worker may hold any number.
GIVEN_BACK_PER_STEP_MAX: Final = 1024
# gearmand's shortest time-out of a function.
TIMEOUT_MIN_MS: Final = 1000
_TIMEOUT_MAX_MS: Final = U32_MAX * 1000
# Handles whose job a worker may end a second time; it does so at once, or never.
EXCEPTIONS_KEPT_MAX: Final = 64
# In an external id, after the function: the unique id, or this and a digest in place of "-".
_DIGEST_FOLLOWS: Final = b"\0"
# Reports that end a job.
_ENDS: Final = (p.WORK_COMPLETE, p.WORK_FAIL, p.WORK_EXCEPTION)


class WorkerSide(GearmanSession):
    """A connection that works on jobs."""

    __slots__ = (
        "_excepted",
        "_functions",
        "_given_back",
        "_given_back_max",
        "_giving_back",
        "_held_jobs",
        "_idle_at",
        "_is_heavy",
        "_making",
        "_must_hear",
        "_sleeping",
        "_wait_is_due",
    )

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port, shared)
        # By queue name, the newest last: the time-out of a job, in us; 0 for none.
        self._functions: dict[bytes, int] = {}
        self._sleeping = False
        self._must_hear = False  # that it has lost the right to all its functions
        self._wait_is_due = False  # it will begin to wait in the next step of the loop
        self._idle_at = -1  # the index at which none of its functions had a job
        self._given_back: set[int] = set()  # jobs whose RELEASE may not be applied here yet
        self._given_back_max = GIVEN_BACK_MIN  # above it, those that it does not hold are removed
        self._giving_back: deque[jobs.Job] = deque()  # jobs that the next steps release
        self._held_jobs = HeldJobs()
        self._making = 0  # submissions of this client that are not applied here yet
        self._excepted: dict[int, None] = {}  # jobs that it has just ended with an exception
        self._is_heavy = False  # its newest request is a report that waits in the heavy line

    @property
    def functions(self) -> list[bytes]:
        """The names of its functions, the newest first."""
        return [bare(name) for name in reversed(self._functions)]

    def watches(self, tube: bytes) -> bool:
        """See `Connection`."""
        return tube in self._functions

    @property
    def is_waiting(self) -> bool:
        """See `Connection`."""
        return self._sleeping

    # --- functions ------------------------------------------------------------------------------

    def _can_do(self, request: Request) -> None:
        self._register(request[1][0], 0)

    def _can_do_timeout(self, request: Request) -> None:
        function, word = request[1]
        milliseconds = number(word)
        if milliseconds > 0:
            milliseconds = min(max(TIMEOUT_MIN_MS, milliseconds), _TIMEOUT_MAX_MS)
            self._register(function, milliseconds * (SECOND_US // 1000))
        else:
            self._register(function, 0)

    def _register(self, function: bytes, timeout_us: int) -> None:
        name = PREFIX + function
        self.is_worker = True
        if name in self._functions:
            self._functions[name] = timeout_us
        elif len(self._functions) >= WATCHED_TUBES_MAX:
            self._replies.reply(replies.TOO_MANY_FUNCTIONS)
        else:
            self._functions[name] = timeout_us
            if self._has_ready(name):
                self._idle_at = -1
            self._ask(p.CAN_DO, (c.WATCH, self._session(), name), (0, name, b""))
            self._sleep_on()

    def _registered(self, kind: int, result: Any, asked: Asked) -> None:
        if result == c.OK:
            self._answer(b"")
        else:
            reply = replies.DENIED if result == c.DENIED else replies.NO_ROOM
            self._not_registered(asked, reply)

    def _not_registered(self, asked: Asked, reply: bytes) -> None:
        self._functions.pop(asked[1], None)
        self._sleep_on()
        self._answer(reply)

    def _cant_do(self, request: Request) -> None:
        name = PREFIX + request[1][0]
        if name in self._functions:
            self._give_up([name])
            self._sleep_on()

    def _reset_abilities(self, request: Request) -> None:
        self._give_up(list(self._functions))
        self._sleep_on()

    def _give_up(self, names: list[bytes]) -> None:
        """Unregister functions; release this worker's jobs of them for other workers."""
        if not names:
            return  # a client may reset its abilities twenty thousand times at once
        clients = self._clients
        for name in names:
            del self._functions[name]
            clients.origin.submit(self, KIND_QUIET, (c.IGNORE, self.number, name))
        self._held_jobs.look(clients.session(self.number), clients.machine)
        if len(self._given_back) > self._given_back_max:
            self._given_back.intersection_update(clients.reserved_by(self.number))
            self._given_back_max = 2 * len(self._given_back) + GIVEN_BACK_MIN
        self._giving_back.extend(
            job for job in self._held_jobs.pop(names) if job.id not in self._given_back
        )
        self._give_back_some()
        self._row_is_over |= bool(self._giving_back)

    def _give_back_some(self) -> None:
        """Release the next jobs of those whose function was given up."""
        giving_back = self._giving_back
        for _ in range(min(GIVEN_BACK_PER_STEP_MAX, len(giving_back))):
            self._give_back(giving_back.popleft())

    def _rested(self) -> None:
        """Go on with the requests behind a CANT_DO, once all its jobs are released."""
        self._give_back_some()
        if self._giving_back:
            self._clients.host.call_soon(self._rested)
        else:
            super()._rested()

    def _give_back(self, job: jobs.Job) -> None:
        """Release a job; without the right to, return it as a lost connection does."""
        self._given_back.add(job.id)
        # A status behind this one is of a job that the worker does not have.
        self._clients.origin.keep_latest((c.PROGRESS, self.number, job.id))
        command: c.Command = (c.RELEASE, self.number, job.id, job.rank, 0)
        if not self._clients.may(self, WORK, job.tube.name):
            command = (c.RETURN, self.number, job.id)
        self._clients.origin.submit(self, KIND_QUIET, command)

    # --- sleep ----------------------------------------------------------------------------------

    def _pre_sleep(self, request: Request) -> None:
        self._sleeping = True
        self._sleep_on()

    def _sleep_on(self) -> None:
        """Wait for a job, if the worker sleeps.

        The wait is set up once for all input of a step of the loop: it may cover a thousand
        functions, and a client may send thousands of PRE_SLEEPs, or CAN_DOs while asleep, at once.
        """
        if self._sleeping and not self._wait_is_due:
            self._wait_is_due = True
            self._clients.host.call_soon(self._begin_wait)

    def _begin_wait(self) -> None:
        self._wait_is_due = False
        if not self._sleeping or self.closed or self._clients.leaving:
            return
        allowed = self._allowed()
        if self._must_hear and not allowed:
            # Once: a worker that ignores the error sleeps on until it has a right again.
            self._must_hear = self._sleeping = False
            self._clients.listeners.stop_waiting(self)
            self._push(replies.DENIED)
        elif self._clients.listeners.wait(self, allowed) is not None:
            self._sleeping = False
            self._push(replies.NOOP)

    def rights_changed(self) -> int:
        """See `Connection`. A worker that is awake is told when it sleeps."""
        if self._functions and not self.closed:
            self._must_hear = not self._allowed()
            self._sleep_on()
        return len(self._functions)

    def _allowed(self) -> dict[bytes, int]:
        """Return the functions that the user may work on: a right may be lost after CAN_DO.

        Without the right a worker would be woken again and again, and never get a job.
        """
        clients = self._clients
        if not clients.machine.users.rows:
            return self._functions
        return {name: us for name, us in self._functions.items() if clients.may(self, WORK, name)}

    def queue_ready(self, queue: bytes) -> None:
        """See `Connection`. The worker is woken once, until it sleeps again."""
        self._sleeping = False
        self._push(replies.NOOP)

    # --- jobs -----------------------------------------------------------------------------------

    def _grab(self, request: Request) -> None:
        self.is_worker = True
        if self._sleeping:
            self._sleeping = False
            self._clients.listeners.stop_waiting(self)
        # A node that stops hands out no jobs, and closes this client when it holds none.
        wanted = self._functions and not self._clients.leaving
        if wanted and (self._making or self._is_ready()):
            self._ask_alone(request[0], (c.TAKE, self._session()))
        else:
            self._replies.reply(replies.NO_JOB)

    def _is_ready(self) -> bool:
        """Whether a job is ready for this worker, as far as this node knows.

        The state is checked once for each applied entry: GRAB_JOBs, too, come by the thousand.
        """
        machine = self._clients.machine
        if self._idle_at == machine.index:
            return False
        if any(map(self._has_ready, self._allowed())):
            return True
        self._idle_at = machine.index
        return False

    def _has_ready(self, name: bytes) -> bool:
        tube = self._clients.machine.queue.find(name)
        return tube is not None and tube.ready_count > 0 and not tube.closed

    def _grabbed(self, kind: int, result: Any, asked: Asked) -> None:
        if result == c.AGAIN:
            self._ask_again(kind, (c.TAKE, self.number), NOTHING)
            return
        found = None if type(result) is int else self._clients.machine.queue.jobs.get(result[0])
        if found is None:
            self._answer_alone(replies.NO_JOB)
            return
        self._given_back.discard(found.id)
        self._excepted.pop(found.id, None)  # reserved again: reports are about this attempt
        queue = self._clients.machine.queue
        name = name_of(queue, found.tube)
        timeout_us = self._functions.get(name, 0)
        # If the worker set no time-out, the job's own holds: a job of another protocol has a TTR.
        if timeout_us and timeout_us != found.ttr_us:
            command = (c.SET_TTR, self.number, found.id, timeout_us)
            self._clients.origin.submit(self, KIND_QUIET, command)
        handle = self._shared.handle(found.id)
        self._answer_alone(assignment(kind, handle, name[len(PREFIX) :], found))

    # --- results --------------------------------------------------------------------------------

    def _held(self, handle: bytes) -> int:
        """Return the job of a handle, if this client may hold one; 0 if not."""
        return self._shared.job_of(handle) if self.number else 0

    def _work_data(self, request: Request) -> None:
        kind, (handle, data) = request
        job = self._held(handle)
        if not job:
            self._replies.reply(replies.NO_JOB_OF_DATA)
        elif len(data) > RESULT_MAX_BYTES:
            self._replies.reply(replies.DATA_TOO_LARGE)
        else:
            what = DATA if kind == p.WORK_DATA else WARNING
            self._report(kind, (c.NOTIFY, self.number, job, what, data), replies.NO_JOB_OF_DATA)

    def _work_status(self, request: Request) -> None:
        kind, (handle, numerator, denominator) = request
        job = self._held(handle)
        progress = numerator + b"\0" + denominator
        if not job:
            self._replies.reply(replies.NO_JOB_OF_RESULT)
        elif len(progress) > PROGRESS_MAX_BYTES:
            self._replies.reply(replies.PROGRESS_TOO_LARGE)
        else:
            command = (c.PROGRESS, self.number, job, progress)
            self._submit_status(kind, command, (job, b"", replies.NO_JOB_OF_RESULT))

    def _submit_status(self, kind: int, command: c.Command, asked: Asked) -> None:
        """Submit a status, which replaces an earlier one of its job that has not left yet."""
        origin, units = self._clients.origin, self._units(command[2])
        if units > LIGHT_MAX:
            self._submit_report(kind, command, asked, units)
        elif not origin.submit_latest(self, kind, command):
            self._replies.expect(kind)
            self._asked.append(asked)
            assert self.batch is not None
            origin.charge(self.batch, units)

    def _work_complete(self, request: Request) -> None:
        handle, result = request[1]
        job = self._held(handle)
        if job in self._excepted:
            del self._excepted[job]
        elif len(result) > RESULT_MAX_BYTES:
            self._finish_too_large(p.WORK_COMPLETE, job, replies.NO_JOB_OF_RESULT)
        else:
            self._finish(p.WORK_COMPLETE, job, jobs.DONE, result, replies.NO_JOB_OF_RESULT)

    def _work_fail(self, request: Request) -> None:
        job = self._held(request[1][0])
        if job in self._excepted:
            del self._excepted[job]
        else:
            self._finish(p.WORK_FAIL, job, jobs.FAILED, b"", replies.NO_JOB_OF_RESULT)

    def _work_exception(self, request: Request) -> None:
        """End a job with an exception. Many libraries send a WORK_FAIL behind it."""
        handle, data = request[1]
        job = self._held(handle)
        if len(data) > RESULT_MAX_BYTES:
            self._finish_too_large(p.WORK_EXCEPTION, job, replies.NO_JOB_OF_EXCEPTION)
        else:
            self._finish(p.WORK_EXCEPTION, job, jobs.FAILED, data, replies.NO_JOB_OF_EXCEPTION)

    def _finish_too_large(self, kind: int, job: int, not_found: bytes) -> None:
        """Fail a job whose result is too large for any client to get; its clients get the reason.

        The worker gets no error: most libraries stop all work at an ERROR.
        """
        self._finish(kind, job, jobs.FAILED, replies.RESULT_TOO_LARGE_TEXT, not_found)

    def _finish(self, kind: int, job: int, state: int, result: bytes, not_found: bytes) -> None:
        if job:
            self._report(kind, (c.FINISH, self.number, job, state, result), not_found)
        else:
            self._replies.reply(not_found)

    def _report(self, kind: int, command: c.Command, not_found: bytes) -> None:
        """Submit a worker's report. A large one that has no effect is kept out of the log."""
        job, size = command[2], len(command[-1])
        why = c.OK
        if size >= HELD_BYTES_MIN:
            why = self._why_not_reported(job)
            again = partial(self._report, kind, command, not_found)
            if why != c.OK and self._hold_request(size, again):
                return
        if kind == p.WORK_EXCEPTION:
            if len(self._excepted) >= EXCEPTIONS_KEPT_MAX:
                del self._excepted[next(iter(self._excepted))]
            self._excepted[job] = None
        if why == c.OK:
            self._clients.origin.keep_latest((c.PROGRESS, self.number, job))
            self._submit_report(kind, command, (job, b"", not_found), self._units(job))
        else:
            self._replies.reply(self._outcome(kind, why, job, not_found))

    def _submit_report(self, kind: int, command: c.Command, asked: Asked, units: int) -> None:
        """Submit a report of this cost; a heavy one waits in the line of heavy commands.

        Each client of the job costs the nodes some us: it is detached in the same entry, and sent a
        packet.
        """
        clients = self._clients
        if units > LIGHT_MAX:
            self._is_heavy = self.blocked = True
            self._replies.expect(kind)
            self._asked.append(asked)
            clients.origin.heavy.submit(self, kind, command, clients.loop_us)
        else:
            clients.origin.charge(self._ask(kind, command, asked), units)

    def _units(self, job: int) -> int:
        """Return the cost of a report in the units of `Origin.charge`: one for each client.

        The first client is a part of the cost that every command has.
        """
        found = self._clients.machine.queue.jobs.get(job)
        if found is None or found.ext is None:
            return 0
        return max(0, len(found.ext.clients) - 1)

    def _answer_report(self, reply: bytes) -> None:
        """Answer the oldest request; a report that was heavy is behind all others."""
        if self._is_heavy and not self._asked:
            self._is_heavy = False
            self._answer_alone(reply)
        else:
            self._answer(reply)

    def _end(self, lost: bool) -> None:
        super()._end(lost)
        self._giving_back.clear()

    def _why_not_reported(self, job: int) -> int:
        """Return the result of a report in the state that this node knows; OK if it has effect."""
        clients = self._clients
        found = clients.machine.queue.jobs.get(job)
        if found is None:
            return c.NOT_FOUND
        if not clients.may(self, WORK, found.tube.name):
            return c.DENIED
        return c.OK if job in clients.reserved_by(self.number) else c.NOT_FOUND

    def _told(self, kind: int, result: Any, asked: Asked) -> None:
        """Answer a worker's applied report."""
        self._answer_report(self._outcome(kind, result, asked[0], asked[2]))

    def _outcome(self, kind: int, result: int, job: int, not_found: bytes) -> bytes:
        """Return the reply to a report: nothing, unless the worker did not hold the job."""
        if result != c.DENIED:
            return b"" if result == c.OK else not_found
        if kind in _ENDS:
            # Otherwise nobody could do the job as long as this connection lasts.
            self._clients.origin.submit(self, KIND_QUIET, (c.RETURN, self.number, job))
        return replies.DENIED


def assignment(kind: int, handle: bytes, function: bytes, job: jobs.Job) -> bytes:
    """Return the reply that assigns a job to a worker, by the kind of GRAB_JOB."""
    if kind == p.GRAB_JOB:
        return replies.reply(p.JOB_ASSIGN, handle, function, job.body)
    unique = unique_of(job)
    extra = b"" if job.ext is None else job.ext.extra
    if kind == p.GRAB_JOB_ALL and extra:
        return replies.reply(p.JOB_ASSIGN_ALL, handle, function, unique, extra, job.body)
    return replies.reply(p.JOB_ASSIGN_UNIQ, handle, function, unique, job.body)


def unique_of(job: jobs.Job) -> bytes:
    """Return the unique id of a job, as its clients gave it."""
    ext = job.ext
    if ext is None:
        return b""
    if ext.home.number != GEARMAN:
        return display_names.external_id(ext.home.number, ext.external_id).encode()
    unique = ext.external_id.partition(b"\0")[2]
    return b"-" if unique.startswith(_DIGEST_FOLLOWS) else unique
