"""A naive model of the queue, written to be obviously right: flat lists and linear searches.

It has no heaps, timers, counters, budgets, digests or images. It answers the commands of
`beanpole.commands` with the results that the machine must have.
"""

from dataclasses import dataclass, field
from typing import Any

from beanpole import commands as c
from beanpole.core.jobs.job import BURIED, DELAYED

SECOND = 1_000_000
DEFAULT = b"default"


@dataclass(eq=False)
class ModelSession:
    origin: int
    number: int
    used: bytes = DEFAULT
    watched: list[bytes] = field(default_factory=lambda: [DEFAULT])
    secret: bytes = b""
    grace_us: int = 0
    lost_until_us: int | None = None
    last_request: int = 0


@dataclass(eq=False)
class ModelJob:
    id: int
    tube: bytes
    priority: int
    delay_s: int
    ttr_s: int
    body: bytes
    created_us: int
    state: str = "ready"
    due_us: int = 0
    ttr_began_us: int = 0
    buried_at: int = 0
    holder: ModelSession | None = None
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0


@dataclass(eq=False)
class ModelTube:
    name: bytes
    total: int = 0
    deletes: int = 0
    pauses: int = 0
    pause_s: int = 0
    paused_until_us: int = 0


class Model:
    def __init__(self) -> None:
        self.version = c.BASE_VERSION
        self.now_us = 0
        self.epoch_us = 0
        self.expiry_floor_us = 0
        self.put_count = 0
        self.bury_count = 0
        self.timeout_count = 0
        self.jobs: list[ModelJob] = []
        self.tubes = [ModelTube(DEFAULT)]
        self.sessions: list[ModelSession] = []  # attached and lost sessions
        self.dead: list[ModelSession] = []
        self.keys: dict[bytes, int] = {}  # no run is long enough for a key to expire

    # --- looking things up ------------------------------------------------------------------------

    def job(self, job_id: int) -> ModelJob | None:
        return next((job for job in self.jobs if job.id == job_id), None)

    def session(self, origin: int, number: int) -> ModelSession | None:
        return next(
            (
                session
                for session in self.sessions
                if (session.origin, session.number) == (origin, number)
                and session.lost_until_us is None
            ),
            None,
        )

    def tube(self, name: bytes) -> ModelTube | None:
        return next((tube for tube in self.tubes if tube.name == name), None)

    def tube_or_new(self, name: bytes) -> ModelTube:
        tube = self.tube(name)
        if tube is None:
            tube = ModelTube(name)
            self.tubes.append(tube)
        return tube

    def jobs_in(self, state: str, name: bytes | None = None) -> list[ModelJob]:
        """Return the jobs in a state, in the order of that state."""
        jobs = [j for j in self.jobs if j.state == state and name in (None, j.tube)]
        if state == "ready":
            return sorted(jobs, key=lambda j: (j.priority, j.id))
        if state == "delayed":
            return sorted(jobs, key=lambda j: (j.due_us, j.id))
        return sorted(jobs, key=lambda j: j.buried_at)

    def deadline_us(self, job: ModelJob) -> int:
        held_before = job.ttr_began_us < self.epoch_us
        return max(job.due_us, self.expiry_floor_us) if held_before else job.due_us

    # --- time and the ends of sessions ------------------------------------------------------------

    def begin_entry(self, now_us: int) -> None:
        self.now_us = max(self.now_us, now_us)
        for tube in self.tubes:
            if 0 < tube.paused_until_us <= self.now_us:
                tube.paused_until_us = tube.pause_s = 0
        for session in list(self.sessions):
            until_us = session.lost_until_us
            if until_us is not None and self.version >= 4:
                until_us = max(until_us, self.expiry_floor_us)
            if until_us is not None and until_us <= self.now_us:
                self.end(session)
        for job in self.jobs:
            if job.state == "delayed" and job.due_us <= self.now_us:
                job.state = "ready"
            elif job.state == "reserved" and self.deadline_us(job) <= self.now_us:
                self.timeout_count += 1
                job.timeouts += 1
                job.state, job.holder = "ready", None

    def end_entry(self) -> None:
        for job in self.jobs:
            if job.holder in self.dead:
                job.state, job.holder = "ready", None
        self.dead.clear()
        self.forget_tubes()

    def forget_tubes(self) -> None:
        """Drop tubes that no job or session names."""
        named = {DEFAULT} | {job.tube for job in self.jobs}
        for session in [*self.sessions, *self.dead]:
            named |= {session.used, *session.watched}
        self.tubes = [tube for tube in self.tubes if tube.name in named]

    def lose(self, session: ModelSession) -> None:
        if session.secret:
            session.lost_until_us = self.now_us + session.grace_us
        else:
            self.end(session)

    def end(self, session: ModelSession) -> None:
        self.sessions.remove(session)
        self.dead.append(session)

    def lose_origin(self, origin: int) -> None:
        for session in list(self.sessions):
            if session.origin == origin and session.lost_until_us is None:
                self.lose(session)

    def grant(self, origin: int, number: int, request: int) -> ModelJob | None:
        session = self.session(origin, number)
        if session is None or request <= session.last_request:
            return None
        job = self.take(session)
        if job is not None:
            session.last_request = request
        return job

    def take(self, session: ModelSession) -> ModelJob | None:
        """Reserve the best ready job of a session's watched tubes."""
        paused = {tube.name for tube in self.tubes if tube.paused_until_us}
        for job in self.jobs_in("ready"):
            if job.tube in session.watched and job.tube not in paused:
                self.reserve(job, session)
                return job
        return None

    def reserve(self, job: ModelJob, session: ModelSession) -> None:
        job.state, job.holder = "reserved", session
        job.ttr_began_us = self.now_us
        job.due_us = self.now_us + job.ttr_s * SECOND
        job.reserves += 1

    # --- commands ---------------------------------------------------------------------------------

    def do(self, origin: int, command: tuple[Any, ...]) -> Any:
        """Return the result of one command of a batch."""
        operation, number, *arguments = command
        session = self.session(origin, number)
        if operation == c.OPEN:
            if session is not None:
                return c.BAD_COMMAND
            self.sessions.append(ModelSession(origin, number))
            return c.OK
        if session is None:
            return c.BAD_COMMAND
        if operation in (c.PUT, c.PUT_KEYED, c.DELETE, c.KICK, c.KICK_JOB, c.PAUSE_TUBE):
            result = self.do_to_queue(session, operation, *arguments)
        elif operation in (c.RELEASE, c.BURY, c.TOUCH, c.RETURN):
            job = self.job(arguments[0])
            if job is None or job.holder is not session:
                return c.NOT_FOUND
            result = self.do_to_held(job, operation, *arguments[1:])
        elif operation == c.RESUME:
            result = self.resume(session, arguments[0])
        else:
            result = self.do_to_session(session, operation, *arguments)
        self.forget_tubes()
        return result

    def do_to_queue(self, session: ModelSession, operation: int, *arguments: Any) -> Any:
        if operation == c.PUT:
            return self.put(*arguments)
        if operation == c.PUT_KEYED:
            *values, key = arguments
            known = key in self.keys
            if not known:
                self.keys[key] = self.put(*values)
            return self.keys[key], int(known)
        if operation == c.KICK:
            return self.kick(*arguments)
        if operation == c.PAUSE_TUBE:
            return self.pause(*arguments)
        job = self.job(arguments[0])
        if job is None:
            return c.NOT_FOUND
        if operation == c.DELETE:
            if job.state == "reserved" and job.holder is not session:
                return c.NOT_FOUND
            self.tube_or_new(job.tube).deletes += 1
            self.jobs.remove(job)
            return c.OK
        if job.state not in ("buried", "delayed"):
            return c.NOT_FOUND
        job.state = "ready"
        job.kicks += 1
        return c.OK

    def put(self, name: bytes, priority: int, delay_s: int, ttr_s: int, body: bytes) -> int:
        self.put_count += 1
        job = ModelJob(self.put_count, name, priority, delay_s, ttr_s, body, self.now_us)
        if delay_s:
            job.state, job.due_us = "delayed", self.now_us + delay_s * SECOND
        self.jobs.append(job)
        self.tube_or_new(name).total += 1
        return job.id

    def kick(self, name: bytes, bound: int, wanted: int) -> tuple[int, int, int]:
        if self.tube(name) is None:
            return 0, wanted, 0
        state = wanted or (BURIED if self.jobs_in("buried", name) else DELAYED)
        jobs = self.jobs_in("buried" if state == BURIED else "delayed", name)[:bound]
        for job in jobs:
            job.state = "ready"
            job.kicks += 1
        return len(jobs), state, 0

    def pause(self, name: bytes, pause_s: int) -> int:
        tube = self.tube(name)
        if tube is None:
            return c.NOT_FOUND
        tube.pauses += 1
        tube.pause_s = pause_s
        tube.paused_until_us = self.now_us + pause_s * SECOND if pause_s else 0
        return c.OK

    def do_to_held(self, job: ModelJob, operation: int, *arguments: int) -> int:
        if operation == c.TOUCH:
            job.ttr_began_us = self.now_us
            job.due_us = self.now_us + job.ttr_s * SECOND
            return c.OK
        job.holder = None
        job.state = "ready"
        if operation == c.RELEASE:
            job.priority, job.delay_s = arguments
            job.releases += 1
            if job.delay_s:
                job.state, job.due_us = "delayed", self.now_us + job.delay_s * SECOND
        elif operation == c.BURY:
            job.priority = arguments[0]
            job.state = "buried"
            job.buries += 1
            self.bury_count += 1
            job.buried_at = self.bury_count
        return c.OK

    def do_to_session(self, session: ModelSession, operation: int, *arguments: Any) -> Any:
        if operation == c.CLOSE:
            if arguments[0]:
                self.lose(session)
            else:
                self.end(session)
        elif operation == c.USE:
            self.tube_or_new(arguments[0])
            session.used = arguments[0]
        elif operation == c.WATCH:
            self.tube_or_new(arguments[0])
            if arguments[0] not in session.watched:
                session.watched.append(arguments[0])
        elif operation == c.IGNORE:
            if session.watched == [arguments[0]]:
                return c.NOT_FOUND
            if arguments[0] in session.watched:
                session.watched.remove(arguments[0])
        elif operation == c.TAKE:
            job = self.take(session)
            return c.NOT_FOUND if job is None else (job.id, job.body)
        elif operation == c.RESERVE_JOB:
            job = self.job(arguments[0])
            if job is None or job.state == "reserved":
                return c.NOT_FOUND
            self.reserve(job, session)
            return job.id, job.body
        else:
            assert operation == c.KEEP, operation
            secret, grace_us = arguments
            if session.secret or any(other.secret == secret for other in self.sessions):
                return c.BAD_COMMAND
            session.secret, session.grace_us = secret, grace_us
        return c.OK

    def resume(self, fresh: ModelSession, secret: bytes) -> int:
        kept = next((session for session in self.sessions if session.secret == secret), None)
        if kept is None or fresh.secret:
            return c.NOT_FOUND
        self.end(fresh)
        kept.origin, kept.number = fresh.origin, fresh.number
        kept.last_request = fresh.last_request
        kept.lost_until_us = None
        return c.OK

    # --- the visible state ------------------------------------------------------------------------

    def stats(self) -> tuple[int, ...]:
        ready = self.jobs_in("ready")
        return (
            sum(job.priority < 1024 for job in ready),
            len(ready),
            len(self.jobs_in("reserved")),
            len(self.jobs_in("delayed")),
            len(self.jobs_in("buried")),
            self.timeout_count,
            self.put_count,
            len(self.tubes),
        )

    def stats_job(self, job: ModelJob) -> tuple[Any, ...]:
        left_us = {
            "reserved": self.deadline_us(job) - self.now_us,
            "delayed": job.due_us - self.now_us,
        }.get(job.state, 0)
        return (
            *(job.id, job.tube, job.state.encode(), job.priority),
            (self.now_us - job.created_us) // SECOND,
            *(job.delay_s, job.ttr_s, left_us // SECOND, 0),
            *(job.reserves, job.timeouts, job.releases, job.buries, job.kicks),
        )

    def stats_tube(self, tube: ModelTube) -> tuple[Any, ...]:
        ready = self.jobs_in("ready", tube.name)
        return (
            tube.name,
            sum(job.priority < 1024 for job in ready),
            len(ready),
            len(self.jobs_in("reserved", tube.name)),
            len(self.jobs_in("delayed", tube.name)),
            len(self.jobs_in("buried", tube.name)),
            tube.total,
            sum(session.used == tube.name for session in self.sessions),
            sum(tube.name in session.watched for session in self.sessions),
            0,
            *(tube.deletes, tube.pauses, tube.pause_s),
            max(0, tube.paused_until_us - self.now_us) // SECOND,
        )
