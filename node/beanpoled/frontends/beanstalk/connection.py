"""The beanstalk protocol at a node: requests become commands, results become replies.

The codec is `beanpole.protocol.beanstalk`; the life cycle of a connection is in `requests`.
"""

from collections.abc import Callable
from typing import Any, Final, final

from beanpole import commands as c
from beanpole.constants import SECOND_US, TUBE_NAME_MAX_BYTES
from beanpole.core.jobs.job import Job
from beanpole.protocol.beanstalk import replies, stats
from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.parser import Parser
from beanpoled.frontends.beanstalk import extensions, kinds, server_stats, takes
from beanpoled.frontends.beanstalk.kinds import FORMATTERS
from beanpoled.frontends.beanstalk.reply_format import format_reserve_job, not_shown
from beanpoled.frontends.beanstalk.takes import Takes
from beanpoled.frontends.beanstalk.tubes import TubesConnection, refusal
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.deadlines import Deadlines
from beanpoled.frontends.replies import HELD
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import KIND_OPEN, KIND_QUIET, KIND_WAIT, NOT_DONE

# beanstalkd's margin: a worker is warned this long before its first TTR ends.
SOON_US: Final = SECOND_US
# A timer due sooner than this is treated as due: the difference of the two clocks is larger.
TIMER_MIN_US: Final = 1000


@final
class BeanstalkConnection(TubesConnection):
    """A beanstalk client."""

    __slots__ = (
        "_again",
        "_counts",
        "_deadlines",
        "_ends_with",
        "_held_back",
        "_kept",
        "_kick_left",
        "_kicked",
        "_parser",
        "_request",
        "_takes",
        "_timeout_us",
    )

    def __init__(
        self, clients: Clients, protocol: str, port: ClientPort, counts: list[int]
    ) -> None:
        """Begin a connection; `counts` counts each kind of request at this node."""
        super().__init__(clients, protocol, port)
        self._counts = counts
        self._parser = Parser(clients.config.max_job_size)
        self._again: list[r.Request] = []  # requests parsed but not acted on; the next one is last
        self._takes: Takes | None = None  # reserves that take jobs together, while in progress
        self._request = 0  # the number of the last wait
        self._timeout_us = -1  # when the wait times out, by the node's clock; -1: never
        self._ends_with = b""  # the reply to a wait without a job; empty: the clock decides
        self._held_back: r.Request | None = None  # a reserve that may have to be denied
        self._kicked = 0
        self._kick_left = 0
        self._deadlines = Deadlines()
        self._kept = False  # the session may be resumed elsewhere

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)

    @property
    def _buffered_bytes(self) -> int:
        return self._parser.buffered_bytes

    def _unfinished_bytes(self) -> int:
        return self._parser.unfinished_bytes

    def _act(self) -> bool:
        request = self._again.pop() if self._again else self._parser.next()
        if request is None:
            return False
        kind = request[0]
        if kind < r.COUNTERS:
            self._counts[kind] += 1
        _HANDLERS[kind](self, request)
        return True

    def _refuse(self) -> bool:
        if self._parser.next() is None:
            return False
        self._replies.push(replies.OUT_OF_MEMORY)
        return True

    # --- requests -------------------------------------------------------------------------------

    def _put(self, request: r.Request) -> None:
        kind, priority, delay_s, ttr_s, body = request[:5]
        session = self._session()
        if not self._admit_put(request):
            return
        if not ttr_s:
            # The tube's policy may set a TTR.
            known = self._clients.origin.knows(c.SET_POLICY)
            ttr_s = -r.TTR_MIN_S if known else r.TTR_MIN_S
        job = (session, self._used, priority, delay_s, ttr_s, body)
        self._replies.expect(kind)
        command = (c.PUT_KEYED, *job, request[5]) if kind == r.PUT_UNIQUE else (c.PUT, *job)
        self._clients.origin.submit_put(self, kind, command)

    def _put_unique(self, request: r.Request) -> None:
        self._counts[r.PUT] += 1
        self._put(request)

    def _about_job(self, request: r.Request) -> None:
        kind = request[0]
        if kind in kinds.WITH_BODY:
            self._replies.owe_copy(self._clients.config.max_job_size)
        self._submit(kind, (kinds.OPERATIONS[kind], self._session(), *request[1:]))

    def _about_used_tube(self, request: r.Request) -> None:
        kind = request[0]
        self._replies.owe_copy(self._clients.config.max_job_size)
        self._submit(kind, (kinds.OPERATIONS[kind], self._session(), self._used))

    def _stats(self, request: r.Request) -> None:
        # Alone: otherwise this node's counters would include the requests behind it.
        connections = len(self._clients.connections)
        self._submit_alone(r.STATS, (c.STATS, self._session()), connections)

    def _stats_of_tube(self, request: r.Request) -> None:
        # Alone: it counts the waiting connections at the time of the answer.
        connections = len(self._clients.connections)
        self._submit_alone(r.STATS_TUBE, (c.STATS_TUBE, self._session(), request[1]), connections)

    def _list_tubes(self, request: r.Request) -> None:
        tubes = len(self._clients.machine.queue.tubes)
        self._replies.owe(tubes * TUBE_NAME_MAX_BYTES)
        self._submit_alone(r.LIST_TUBES, (c.LIST_TUBES, self._session()), tubes)

    def _kick(self, request: r.Request) -> None:
        bound = request[1]
        self._kicked = 0
        self._kick_left = bound
        # Alone: it may take several steps.
        command = (c.KICK, self._session(), self._used, bound, 0)
        self._submit_alone(r.KICK, command, bound)

    # --- extensions -----------------------------------------------------------------------------

    def _list_extensions(self, request: r.Request) -> None:
        self._session()
        self._looks += 1
        names = extensions.names(self._clients.machine.version)
        self._replies.reply(replies.ok(stats.format_list(names)))

    def _keep(self, request: r.Request) -> None:
        if self._clients.machine.version < extensions.SESSIONS_SINCE:
            self._replies.reply(replies.UNKNOWN_COMMAND)
            return
        self._kept = True
        _, token, seconds = request
        secret = extensions.secret_of(token)
        self._submit(r.KEEP, (c.KEEP, self._session(), secret, seconds * SECOND_US))

    def _resume(self, request: r.Request) -> None:
        """Take over the session of a token. The requests behind it are about its jobs."""
        if self._clients.machine.version < extensions.SESSIONS_SINCE:
            self._replies.reply(replies.UNKNOWN_COMMAND)
            return
        secret = extensions.secret_of(request[1])
        self._submit_alone(r.RESUME, (c.RESUME, self._session(), secret))

    def _resumed(self, result: int) -> None:
        if result != c.OK:
            self._answer_alone(replies.NOT_FOUND)
            return
        session = self._clients.session(self.number)
        if session is None:
            # Another connection took the session over in the same entry. It may be an earlier one
            # of this client, given up with its request in flight: so do not reply that it is gone.
            self.abort()
            return
        self._kept = True
        self._used = self._name_used(session)
        self._watched = dict.fromkeys(session.watched)
        self.is_worker |= bool(session.reserved)
        reply = replies.resumed(session.reserved)
        self._replies.owe(len(reply))
        self._answer_alone(reply)

    def _auth(self, request: r.Request) -> None:
        """Become a user; the requests behind it may depend on the user's rights."""
        if not self._clients.origin.knows(c.AS_USER):
            self._replies.reply(replies.UNKNOWN_COMMAND)
            return
        self._session()
        self._authenticate(r.AUTH, request[1])

    def _bad(self, request: r.Request) -> None:
        _, reply, counted = request
        if counted:
            self._counts[counted] += 1
            # A put with a body that is too big, or with too many arguments, put nothing.
            self.is_producer |= reply == replies.EXPECTED_CRLF
        self._replies.reply(reply)

    def _asked_to_quit(self, request: r.Request) -> None:
        self._quit()

    # --- reserve --------------------------------------------------------------------------------

    def _reserve(self, request: r.Request) -> None:
        if not self._hold_back(request) and not self._take_together(request):
            self._begin_wait(-1)

    def _reserve_timeout(self, request: r.Request) -> None:
        if self._hold_back(request) or self._take_together(request):
            return
        clients = self._clients
        clients.read_clock()  # a time-out must not fire early by the length of a turn
        since_us = request[2] if len(request) == takes.WAITS else clients.now_us
        self._begin_wait(since_us + request[1] * SECOND_US)

    def _hold_back(self, request: r.Request) -> bool:
        """Deny a reserve that would wait for a tube that the client may not work on.

        It might wait for ever. This node may be behind, so it checks again after a command.
        """
        self._session()
        before, self._held_back = self._held_back, None
        if not self._is_kept_out:
            return False
        if before is None:
            self._held_back = request
            self._submit_alone(kinds.LOOK, (c.PEEK, self.number, 0))
        else:
            self._replies.reply(replies.DENIED)
        return True

    def _looked(self) -> None:
        request = self._held_back
        assert request is not None
        self._counts[request[0]] -= 1
        self._replies.retract(1)
        self._again.append(request)
        self.blocked = False
        self._process()

    def _take_together(self, request: r.Request) -> bool:
        """Let this reserve and those right behind it take jobs in one batch; False if it waits."""
        if not (self._again or self._parser.buffered_bytes) or len(request) == takes.WAITS:
            return False
        clients = self._clients
        if clients.rates.limits(self):
            return False  # a row would be charged as one command
        most = takes.most(clients, self._watched, self._replies)
        requests = takes.row(request, most, self._again, self._parser)
        if len(requests) == 1:
            return False
        for behind in requests[1:]:
            self._counts[behind[0]] += 1
        self.is_worker = True
        session = self._session()
        self.blocked = True
        clients.read_clock()
        self._takes = Takes(requests, clients.now_us)
        self._replies.owe(len(requests) * clients.config.max_job_size)
        for _ in requests:
            self._submit(r.RESERVE, (c.TAKE, session))
        return True

    def _taken(self, result: tuple[int, bytes] | int) -> None:
        """Give a TAKE's job to the oldest reserve; the reserves that get none wait."""
        run = self._takes
        assert run is not None
        owed = self._clients.config.max_job_size
        reply = b"" if isinstance(result, int) else replies.reserved(*result)
        self._replies.owe(len(reply) - owed)
        is_last = run.answered(bool(reply))
        if is_last:
            self._takes = None
            self.blocked = False
            for request in run.without:
                self._counts[request[0]] -= 1
            self._again += run.without
            self._replies.retract(len(run.without))
        if reply:
            self._replies.answer(reply)
        if is_last:
            self._process()

    def _begin_wait(self, timeout_us: int) -> None:
        self.is_worker = True
        self._session()
        self.blocked = True
        self._timeout_us = timeout_us
        self._ends_with = b""
        self._request += 1
        is_first = not self._replies.pending
        self._replies.expect(KIND_WAIT)
        self.wait = self._clients.origin.wait(self, self._request)
        if is_first:
            self._arm()

    def _arm(self) -> None:
        """Set the timer to the next event: the time-out, or a reservation that ends soon.

        Called only when every request before the reserve is answered: they may reserve jobs.
        """
        wait = self.wait
        clients = self._clients
        if wait is None or wait.ending:
            return
        self._stop_timer()
        if clients.leaving and not clients.holds(self):
            return  # the node stops and closes this client, which holds nothing here
        now_us = clients.now_us
        left_us = -1 if self._timeout_us < 0 else max(0, self._timeout_us - now_us)
        if self.ended:
            left_us = 0
        due_us = self._deadlines.first_us(clients, self.number)
        if due_us >= 0:
            soon_us = max(0, due_us - SOON_US - clients.clock.estimate_us(now_us))
            if soon_us < TIMER_MIN_US:
                self._ends_with = replies.DEADLINE_SOON
                clients.origin.end_wait(wait)
                return
            left_us = soon_us if left_us < 0 else min(left_us, soon_us)
        if left_us == 0:
            clients.origin.end_wait(wait)
        elif left_us > 0:
            self._timer = clients.call_later(left_us, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._clients.read_clock()
        self._arm()

    def rights_changed(self) -> int:
        """See `Connection`. A job granted before the wait has ended is not lost."""
        wait = self.wait
        if wait is None or wait.ending or self.closed:
            return 0
        if self._is_kept_out:
            self._stop_timer()
            self._ends_with = replies.DENIED
            self._clients.origin.end_wait(wait)
        return len(self._watched)

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `origin.Client`."""
        self.wait = None
        self.blocked = False
        self._stop_timer()
        if self.closed:
            return
        if job is not None:
            reply = replies.reserved(job.id, job.body)
        elif self._ends_with:
            reply = self._ends_with
        else:
            # The leader's clock decides which of the two came first, not this node's estimate.
            due_us = self._deadlines.first_us(self._clients, self.number)
            soon = 0 <= due_us <= until_us + SOON_US
            reply = replies.DEADLINE_SOON if soon else replies.TIMED_OUT
        # A reserve is a barrier: nothing is pending behind it, but something may be before it.
        self._settled(self._replies.answer_newest(reply))

    # --- results --------------------------------------------------------------------------------

    def answered(self, kind: int, result: Any) -> None:
        """See `origin.Client`."""
        if self.closed:
            return
        if self._kept and kind != KIND_OPEN and self._clients.session(self.number) is None:
            # The session goes on at another connection: this one has no client to reply to.
            self.abort()
            return
        formatter = FORMATTERS.get(kind)
        if formatter is not None:
            self._answer(formatter(result))
        elif kind == KIND_QUIET:
            if result != c.OK:
                self._refused_later(result)
        elif kind == r.RESUME:
            self._resumed(result)
        elif kind == r.RESERVE:
            self._taken(result)
        elif kind == kinds.LOOK:
            self._looked()
        elif kind == r.AUTH:
            self._authenticated(result, replies.ACCEPTED, replies.DENIED)
        elif kind == r.RESERVE_JOB:
            self.is_worker |= type(result) is tuple
            self._answer(format_reserve_job(result))
        elif kind == r.KICK:
            self._kick_answered(result)
        elif kind in (r.USE, r.WATCH):
            self._bound(kind, result)
        elif kind == r.STATS:
            self._answer_alone(replies.ok(stats.format_stats(self._stats_values(result))))
        elif kind == r.STATS_TUBE:
            self._answer_alone(self._stats_tube(result))
        elif kind == r.LIST_TUBES:
            self._answer_alone(replies.ok(stats.format_list(result)))
        elif result != c.OK:
            assert kind == KIND_OPEN, kind
            self._replies.push(replies.OUT_OF_MEMORY)
            self._close()

    def _refused_later(self, result: int) -> None:
        """End a session whose client was told that a refused command is done.

        The error is sent only where it cannot be taken for the reply to a later command that may
        be done: with no reply pending, or with a reserve pending, whose job comes back.
        """
        if self._replies.head != HELD:
            self._replies.push(refusal(result))
        self._close()

    def _kick_answered(self, result: tuple[int, int, int] | int) -> None:
        """Continue a kick of many jobs, or answer it."""
        if isinstance(result, int):
            refused = replies.DENIED if result == c.DENIED else replies.INTERNAL_ERROR
            self._answer_alone(refused)
            return
        kicked, state, is_more = result
        self._kicked += kicked
        self._kick_left -= kicked
        if is_more and self._kick_left > 0:
            command = (c.KICK, self.number, self._used, self._kick_left, state)
            self._submit_heavy(r.KICK, command, self._kick_left)
            return
        self._answer_alone(replies.kicked(self._kicked))

    def _stats_values(self, cluster: tuple[int, ...]) -> tuple[object, ...]:
        return server_stats.values(self._clients, self.protocol, self._counts, cluster)

    def _stats_tube(self, result: tuple[Any, ...] | int) -> bytes:
        if isinstance(result, int):
            return not_shown(result)
        waiting = self._clients.waiting_on(result[0])
        return replies.ok(stats.format_stats_tube((*result[:9], waiting, *result[10:])))

    def failed(self, kind: int, why: int) -> None:
        """See `origin.Client`."""
        if self.closed:
            return
        if why != NOT_DONE:
            self.drop()
            return
        if kind == r.RESERVE:
            self._taken(c.NOT_FOUND)  # it waits, as it would have without TAKE
            return
        if kind == KIND_WAIT:
            self.wait = None
            self._stop_timer()
        if kind == kinds.LOOK:
            self._held_back = None  # the look of an older request may still be on its way
        if kind in kinds.ALONE:
            self.blocked = False  # this request blocked those behind it
        if kind in (r.PUT, r.PUT_UNIQUE):
            reply = replies.DRAINING
        elif kind == r.KICK and self._kicked:
            reply = replies.kicked(self._kicked)  # its first steps were done
        else:
            reply = replies.INTERNAL_ERROR
        # The commands that were not sent are the last ones, and they fail in order.
        self._settled(self._replies.answer_kind(kind, reply))


_HANDLERS: Final[dict[int, Callable[[BeanstalkConnection, r.Request], None]]] = {
    r.PUT: BeanstalkConnection._put,
    r.USE: BeanstalkConnection._use,
    r.WATCH: BeanstalkConnection._watch,
    r.IGNORE: BeanstalkConnection._ignore,
    r.RESERVE: BeanstalkConnection._reserve,
    r.RESERVE_TIMEOUT: BeanstalkConnection._reserve_timeout,
    r.KICK: BeanstalkConnection._kick,
    r.STATS: BeanstalkConnection._stats,
    r.STATS_TUBE: BeanstalkConnection._stats_of_tube,
    r.LIST_TUBES: BeanstalkConnection._list_tubes,
    r.LIST_TUBE_USED: BeanstalkConnection._list_tube_used,
    r.LIST_TUBES_WATCHED: BeanstalkConnection._list_tubes_watched,
    r.QUIT: BeanstalkConnection._asked_to_quit,
    r.EXTENSIONS: BeanstalkConnection._list_extensions,
    r.PUT_UNIQUE: BeanstalkConnection._put_unique,
    r.KEEP: BeanstalkConnection._keep,
    r.RESUME: BeanstalkConnection._resume,
    r.AUTH: BeanstalkConnection._auth,
    r.BAD: BeanstalkConnection._bad,
    **dict.fromkeys(kinds.ABOUT_JOBS, BeanstalkConnection._about_job),
    **dict.fromkeys(kinds.ABOUT_USED_TUBE, BeanstalkConnection._about_used_tube),
}
