"""The jobs of qless, followed through the calls of a life by independent rules.

Belongs here: what must hold from one committed call to the next, whatever the machine says. A lock
has one holder, a lost lock is announced, dependents run later, throttles are never exceeded,
attempts count, and nothing acknowledged is lost. Only calls that simulated clients make are known.
"""

from typing import TYPE_CHECKING, Any

from beanpole import qless as q
from tests.sim.calls import Made
from tests.sim.cluster import Violation
from tests.sim.stories import FOREVER_S

if TYPE_CHECKING:
    from beanpole.core.qless.tables import Tables

RETRIES_DEFAULT = 5
HEARTBEAT_DEFAULT_S = 60.0
# States of a job, as far as calls reveal them.
QUEUED, RUNNING, FAILED, COMPLETE = "queued", "running", "failed", "complete"


class Job:
    """One job."""

    def __init__(self, jid: bytes) -> None:
        self.jid = jid
        self.state = QUEUED
        self.worker = b""  # its holder
        self.ends = 0.0  # when its lock ends, by clients' clocks
        self.warned = False  # the holder was told that its lock is lost
        self.retries = RETRIES_DEFAULT
        self.remaining = RETRIES_DEFAULT
        self.depends: set[bytes] = set()
        self.throttles: tuple[bytes, ...] = ()  # the throttles of which it has locks
        self.group = b""  # the group in which it failed

    def let_go(self, state: str, group: bytes = b"") -> None:
        """Release the job from its holder."""
        self.state = state
        self.group = group
        self.worker = b""
        self.warned = False
        self.throttles = ()

    def __repr__(self) -> str:
        return f"{self.jid!r} {self.state} of {self.worker!r} until {self.ends}"


class Following:
    """All jobs, after the calls so far."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job] = {}
        self.heartbeat_s = HEARTBEAT_DEFAULT_S
        self.limits: dict[bytes, int] = {}
        self.templates: dict[bytes, int] = {}  # and the number of attempts of their jobs
        self._spans: dict[bytes, list[list[float]]] = {}
        self._failed: dict[bytes, Job] = {}  # in the order in which they failed

    def spans(self, jid: bytes) -> list[list[float]]:
        """Return the spans of time in which a job existed; jobs of templates begin when popped."""
        return self._spans.get(jid, [])

    def call(self, made: Made, now: float, args: tuple[Any, ...]) -> None:
        """Follow one call; raises Violation."""
        if made.call in (q.COMPLETE, q.FAIL, q.RETRY, q.HEARTBEAT):
            self._check_holder(made, args[0], args[2] if made.call == q.RETRY else args[1])
        if made.result[0] != q.OK:
            return
        match made.call:
            case q.PUT:
                self._put(made, args)
            case q.POP:
                self._pop(made, now, args)
            case q.COMPLETE:
                self._complete(args)
            case q.FAIL:
                self._fail(self.jobs[args[0]], args[2])
            case q.RETRY:
                self._retry(made, args[0])
            case q.HEARTBEAT:
                self._check_lock(made, now, made.result[1])
                self.jobs[args[0]].ends = made.result[1]
                self.jobs[args[0]].warned = False
            case q.CANCEL:
                self._cancel(made, args[0])
            case q.TIMEOUT:
                self._time_out(made, args[0])
            case q.UNFAIL:
                self._unfail(made, args[1])
            case q.CONFIG_SET if args[0] == b"heartbeat":
                self.heartbeat_s = float(args[1])
            case q.THROTTLE_SET:
                self.limits[args[0]] = args[1]
            case q.RECUR:
                self.templates[args[1]] = args[8]

    def is_state_of(self, tables: "Tables") -> None:
        """Check that nothing acknowledged is lost and nothing exists that was not made."""
        states = {q.COMPLETE_: COMPLETE, q.FAILED: FAILED, q.RUNNING: RUNNING}
        for jid, job in self.jobs.items():
            found = tables.jobs.get(jid)
            if found is None:
                raise Violation(f"lost: {job}")
            if states.get(found.state, QUEUED) != job.state:
                raise Violation(f"it is in state {found.state}: {job}")
        numbers: dict[bytes, set[int]] = {template: set() for template in self.templates}
        for jid in (*tables.jobs, *self._spans):
            template, _, number = jid.rpartition(b"-")
            if template in numbers:
                numbers[template].add(int(number))
            elif jid not in self.jobs and jid in tables.jobs:
                raise Violation(f"nobody put it, or it was canceled: {jid!r}")
        for template, found_numbers in numbers.items():
            count = tables.recurring[template].count
            if found_numbers != set(range(1, count + 1)):
                raise Violation(f"{template!r} has made {count} jobs: {sorted(found_numbers)}")

    # --- calls ------------------------------------------------------------------------------------

    def _put(self, made: Made, args: tuple[Any, ...]) -> None:
        _, jid, _, _, _, worker, _, _, retries, depends, _, _ = args
        job = self.jobs.get(jid)
        if job is None:
            job = self.jobs[jid] = Job(jid)
            self._spans.setdefault(jid, []).append([made.at_s, FOREVER_S])
        elif job.worker and job.worker != worker:
            self._is_announced(made, job)
        self._failed.pop(jid, None)
        job.let_go(QUEUED)
        if retries is not None:
            job.retries = retries
        job.remaining = job.retries
        if depends:
            job.depends = self._open(depends)

    def _pop(self, made: Made, now: float, args: tuple[Any, ...]) -> None:
        self._note_messages(made)
        for view in made.result[1]:
            job = self.jobs.get(view.jid)
            if job is None:
                if view.spawned_from not in self.templates:
                    raise Violation(f"nobody put it, or it was canceled: {view}")
                job = self.jobs[view.jid] = Job(view.jid)
                job.retries = job.remaining = self.templates[view.spawned_from]
                self._spans.setdefault(view.jid, []).append([made.at_s, FOREVER_S])
            self._give(made, now, job, view)
            if view.worker != args[1]:
                raise Violation(f"it is given to another worker: {made}")

    def _give(self, made: Made, now: float, job: Job, view: q.JobView) -> None:
        if job.state == RUNNING:
            if now < job.ends:
                raise Violation(f"a second holder at {now}: {job} {view}")
            if not job.warned:
                raise Violation(f"its holder was not told that the lock is lost: {job} {view}")
            job.remaining -= 1
        elif job.state != QUEUED:
            raise Violation(f"it is given out: {job} {view}")
        if job.depends:
            raise Violation(f"it runs before {job.depends}: {job}")
        if view.remaining != job.remaining:
            raise Violation(f"it has {view.remaining} attempts left, not {job.remaining}: {job}")
        self._check_lock(made, now, view.expires)
        if not job.throttles:
            job.throttles = view.throttles
            for name in view.throttles:
                running = sum(name in other.throttles for other in self.jobs.values())
                if 0 < self.limits.get(name, 0) < running:
                    raise Violation(f"{running} jobs have locks of {name!r}: {job}")
        job.state, job.worker, job.ends, job.warned = RUNNING, view.worker, view.expires, False

    def _complete(self, args: tuple[Any, ...]) -> None:
        jid, _, _, _, following, _, depends = args
        job = self.jobs[jid]
        job.remaining = job.retries
        if following is not None:
            job.let_go(QUEUED)
            job.depends = self._open(depends)
            return
        job.let_go(COMPLETE)
        self._end(jid)

    def _retry(self, made: Made, jid: bytes) -> None:
        job = self.jobs[jid]
        job.remaining -= 1
        if made.result[1] != job.remaining:
            raise Violation(f"{made.result[1]} attempts are left, not {job.remaining}: {job}")
        if job.remaining < 0:
            self._fail(job, b"failed-retries")
        else:
            job.let_go(QUEUED)

    def _cancel(self, made: Made, jids: tuple[bytes, ...]) -> None:
        for jid in jids:
            job = self.jobs.get(jid)
            if job is not None and job.state != COMPLETE:
                del self.jobs[jid]
                self._failed.pop(jid, None)
                self._end(jid)
            if job is None or job.state != COMPLETE:
                for span in self._spans.get(jid, [])[-1:]:
                    span[1] = min(span[1], made.at_s)

    def _time_out(self, made: Made, jids: tuple[bytes, ...]) -> None:
        for jid in jids:
            job = self.jobs[jid]
            self._is_announced(made, job)
            job.let_go(QUEUED)

    def _unfail(self, made: Made, group: bytes) -> None:
        count: int = made.result[1]
        failed = [job for job in self._failed.values() if job.group == group]
        if count > len(failed):
            raise Violation(f"{count} jobs are moved, {len(failed)} had failed: {made}")
        for job in failed[:count]:
            job.let_go(QUEUED)
            job.remaining = job.retries
            del self._failed[job.jid]

    # --- shared by several calls ------------------------------------------------------------------

    def _check_holder(self, made: Made, jid: bytes, worker: bytes) -> None:
        """Check that the holder of a job may end it, and no other worker."""
        job = self.jobs.get(jid)
        holds = job is not None and job.state == RUNNING and job.worker == worker
        if made.result[0] == q.OK and not holds:
            raise Violation(f"by a worker that does not have {job or jid!r}: {made}")
        refused = made.result[0] in (q.NO_JOB, q.NOT_RUNNING, q.OTHER_WORKER)
        if refused and holds:
            raise Violation(f"its holder was refused, {job}: {made}")

    def _check_lock(self, made: Made, now: float, ends: float) -> None:
        if ends != now + self.heartbeat_s:
            raise Violation(f"a lock of {ends - now} s, not {self.heartbeat_s}: {made}")

    def _note_messages(self, made: Made) -> None:
        """Note the locks that a pop finds lost, and the jobs that it finds without attempts."""
        for channel, what in made.messages:
            if isinstance(what, bytes):
                continue
            said = dict(what)
            job = self.jobs.get(said.get(b"jid") or b"")
            if job is None:
                continue
            if said[b"event"] == b"lock_lost" and channel == b"w:" + job.worker:
                job.warned = True
            elif said[b"event"] == b"failed" and channel == b"log":
                if not job.warned:
                    raise Violation(f"its holder was not told that the lock is lost: {job} {made}")
                if job.remaining:
                    raise Violation(f"it failed with attempts left: {job} {made}")
                job.remaining -= 1
                self._fail(job, b"failed-retries")

    def _is_announced(self, made: Made, job: Job) -> None:
        """Check that the call that takes a job away notifies its holder."""
        for channel, what in made.messages:
            if channel != b"w:" + job.worker or isinstance(what, bytes):
                continue
            if dict(what)[b"event"] == b"lock_lost":
                return
        raise Violation(f"its holder was not told that the lock is lost: {job} {made}")

    def _open(self, jids: tuple[bytes, ...]) -> set[bytes]:
        """Return those of some jobs that can be waited for."""
        found = (self.jobs.get(jid) for jid in jids)
        return {job.jid for job in found if job is not None and job.state != COMPLETE}

    def _fail(self, job: Job, group: bytes) -> None:
        job.let_go(FAILED, group)
        self._failed[job.jid] = job

    def _end(self, jid: bytes) -> None:
        """Remove a job from the dependencies of all others."""
        for job in self.jobs.values():
            job.depends.discard(jid)
