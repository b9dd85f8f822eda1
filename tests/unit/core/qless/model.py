"""A naive model of qless, written from its documentation: the life cycle of jobs.

Each call that changes something belongs here, with its reply and the messages that it publishes.
`model_tables` has the data. Limits, the expiry of throttles, and the seed form are not modelled.
"""

from collections.abc import Callable
from math import ceil, floor, inf
from typing import Any

from beanpole import qless as q
from tests.unit.core.qless.model_beside import Beside
from tests.unit.core.qless.model_tables import BEHIND, DONE, HELD, LATER, LOCKS, WORK, Job

Jids = tuple[bytes, ...]
Name = bytes | None


class Model(Beside):
    """A slow and simple qless of one dialect."""

    def __init__(self, flavour: int) -> None:
        super().__init__(flavour)
        self._calls: dict[int, Callable[..., q.Result]] = {
            q.PUT: self.put,
            q.POP: self.pop,
            q.PEEK: self.peek,
            q.COMPLETE: self.complete,
            q.FAIL: self.fail,
            q.RETRY: self.retry,
            q.HEARTBEAT: self.heartbeat,
            q.TIMEOUT: self.timeout,
            q.CANCEL: self.cancel,
            q.DEPENDS_ON: self.depends_on,
            q.DEPENDS_OFF: self.depends_off,
            q.PRIORITY: self.priority,
            q.TRACK: self.track,
            q.UNTRACK: self.untrack,
            q.TAG_ADD: self.tag_add,
            q.TAG_REMOVE: self.tag_remove,
            q.LOG: self.note,
            q.PAUSE: self.pause,
            q.UNPAUSE: self.unpause,
            q.CONFIG_SET: self.config_set,
            q.CONFIG_UNSET: self.config_unset,
            q.UNFAIL: self.unfail,
            q.RECUR: self.recur,
            q.UNRECUR: self.unrecur,
            q.RECUR_UPDATE: self.recur_update,
            q.RECUR_TAG: self.recur_tag,
            q.RECUR_UNTAG: self.recur_untag,
            q.FORGET_WORKERS: self.forget_workers,
            q.THROTTLE_SET: self.throttle_set,
            q.THROTTLE_DELETE: self.throttle_delete,
            q.THROTTLE_RELEASE: self.throttle_release,
            q.QUEUE_COUNTS: self.counts,
            q.WORKER_COUNTS: self.worker_counts,
            q.WORKER_JOBS: self.worker_jobs,
            q.JOBS: self.listed,
            q.GET: self.get,
            q.MULTIGET: self.multiget,
            q.TRACKED: self.tracks,
            q.TAGGED: self.tagged,
            q.TOP_TAGS: self.top_tags,
            q.FAILED_GROUPS: self.groups,
            q.FAILED_JOBS: self.failed,
            q.LENGTH: self.length,
            q.STATS: self.stats,
            q.RECUR_GET: self.template,
            q.RECUR_SCORE: self.next_of,
            q.THROTTLE_GET: self.throttle,
            q.THROTTLE_LOCKS: self.lock_holders,
            q.THROTTLE_PENDING: self.waiting_for,
        }

    def call(self, code: int, now: float, args: tuple[Any, ...]) -> q.Result:
        """Make a call."""
        return self._calls[code](now, *args)

    # --- steps of several calls --------------------------------------------------------------

    def lost(self, job: Job, worker: bytes) -> None:
        self.say(b"w:" + worker, {b"jid": job.jid, b"event": b"lock_lost", b"worker": worker})
        self.log(job.jid, b"lock_lost", worker=worker)

    def hold_back(self, job: Job, now: float) -> None:
        full = [name for name in job.throttles if not self.has_room(name)]
        self.pending[full[0]][job.jid] = now
        job.place, job.score = HELD, now
        if job.state != q.THROTTLED:
            job.state = q.THROTTLED
            self.remember(job, now, q.HAS_THROTTLED, job.queue)

    def release(self, job: Job, now: float) -> None:
        """Give back the locks of a job's throttles, so that other jobs may go on."""
        for name in job.throttles:
            if job.jid in self.locked[name]:
                self.locked[name].remove(job.jid)
            else:
                self.pending[name].pop(job.jid, None)
            self.let_go_on(name, now)

    def unfinished(self, jids: Jids) -> set[bytes]:
        return {one for one in jids if one in self.jobs and self.jobs[one].state != q.COMPLETE_}

    def is_circle(self, jid: bytes, wanted: Jids) -> bool:
        """Whether a job would depend on itself."""
        if jid in wanted:
            return True
        behind = self.unfinished(wanted)
        for _ in self.jobs:
            behind |= {further for one in behind for further in self.jobs[one].depends}
        return jid in behind

    def begin(self, job: Job, now: float, due: float | None) -> None:
        """Start a job without dependencies left."""
        job.due = None
        if due is None:
            self.let_wait(job, now)
            job.state = q.WAITING
        else:
            job.place, job.score, job.state = LATER, due, q.SCHEDULED

    def free(self, jid: bytes, now: float) -> None:
        """Remove a job from the dependencies of all others."""
        for other in self.dependents(jid):
            job = self.jobs[other]
            job.depends.remove(jid)
            if not job.depends:
                self.begin(job, now, job.due)

    def give_up(self, job: Job, failure: q.FailureView) -> None:
        self.failures += 1
        job.failed_as, job.failure, job.state = self.failures, failure, q.FAILED
        job.place, job.worker, job.lease, job.expires = "", b"", None, 0.0

    def exhaust(self, job: Job, now: float, queue: bytes, group: Name, message: Name) -> None:
        group = b"failed-retries-" + queue if group is None else group
        self.remember(job, now, q.HAS_FAILED, group)
        text = b'Job exhausted retries in queue "%b"' % job.queue
        failure = q.FailureView(group, text, now, b"")
        if message is not None:
            failure = q.FailureView(group, message, float(floor(now)), job.worker)
        self.give_up(job, failure)
        self.day(queue, now).failed += 1
        self.day(queue, now).failures += 1

    def wrong(self, jid: bytes, worker: bytes) -> q.Result | None:
        job = self.jobs.get(jid)
        if job is None:
            return q.NO_JOB, (jid,)
        if job.state != q.RUNNING:
            return q.NOT_RUNNING, (jid, job.state)
        return None if job.worker == worker else (q.OTHER_WORKER, (jid, job.worker))

    # --- put ---------------------------------------------------------------------------------

    def put(self, now: float, *args: Any) -> q.Result:
        queue, jid, klass, data, delay, worker, priority, tags, retries, depends, new, must = args
        job = self.jobs.get(jid)
        if job is None and must:
            return q.NO_JOB, (jid,)
        if depends and self.is_circle(jid, depends):
            return q.DEPENDS_ON_ITSELF, (jid,)
        self.log(jid, b"put", queue=queue)
        before = b""
        if job is None:
            job = self.jobs[jid] = Job(jid)
        else:
            before = job.queue
            self._leave(job, now, worker, queue)
        self.remember(job, now, q.HAS_PUT, queue)
        job.tags = dict.fromkeys(job.tags if tags is None else tags, now)
        job.klass, job.data, job.queue, job.time, job.expires = klass, data, queue, now, 0.0
        job.priority = job.priority if priority is None else priority
        job.retries = job.remaining = job.retries if retries is None else retries
        if new is not None:
            old = [name for name in new if name != b"ql:q:" + before]
            job.throttles = (*old, b"ql:q:" + queue)
        else:
            job.throttles = ()
        if depends:
            job.depends = self.unfinished(depends)
        self.known.setdefault(queue, now)
        job.due = None
        if job.depends:
            job.place, job.score, job.state = BEHIND, now, q.DEPENDS
            job.due = now + delay if delay > 0 else None
        elif delay > 0:
            job.place, job.score, job.state = LATER, now + delay, q.SCHEDULED
        else:
            job.state = q.WAITING
            if all(self.has_room(name) for name in job.throttles):
                self.let_wait(job, now)
            else:
                self.hold_back(job, now)
        self.if_tracked(jid, b"put")
        return q.OK, jid

    def _leave(self, job: Job, now: float, worker: Name, queue: bytes) -> None:
        job.place = ""
        names = job.throttles
        if job.state == q.THROTTLED or any(
            job.jid in self.locked[name] or job.jid in self.pending[name] for name in names
        ):
            self.release(job, now)
        if job.worker and job.worker != worker:
            self.lost(job, job.worker)
        job.worker, job.lease = b"", None
        if job.state == q.FAILED and job.failure is not None:
            self.day(queue, job.failure.when).failed -= 1

    # --- pop and peek ------------------------------------------------------------------------

    def pop(self, now: float, queue: bytes, worker: bytes, count: int) -> q.Result:
        if queue in self.paused:
            return q.OK, ()
        self.workers[worker] = now
        most = self.option(queue + b"-max-concurrency", 0.0)
        if most > 0 and self.flavour == q.CORE:
            running = [job for job in self.at(queue, LOCKS) if job.score >= now]
            count = min(count, max(0, int(most) - len(running)))
        if count <= 0:
            return q.OK, ()
        given = self._expired(now, queue, count)
        for job in given:
            self._hand_over(job, now, worker)
        if self.has_room(b"ql:q:" + queue):
            self.spawn(queue, now, count - len(given))
            self.move_due(queue, now, count - len(given))
            for job in self.at(queue, WORK)[::-1][: count - len(given)]:
                if all(self.has_room(name) for name in job.throttles):
                    for name in job.throttles:
                        self.locked[name].add(job.jid)
                    self._hand_over(job, now, worker)
                    given.append(job)
                else:
                    self.hold_back(job, now)
        return q.OK, tuple(self.view(job) for job in given)

    def _expired(self, now: float, queue: bytes, count: int) -> list[Job]:
        """Return the jobs with expired locks that other workers may get."""
        found = []
        for job in [one for one in self.at(queue, LOCKS) if one.score <= now][:count]:
            grace = self.option(b"grace-period", 10.0)
            job.lease = None
            is_over = job.warned
            if not is_over or grace <= 0:
                self.if_tracked(job.jid, b"stalled")
                self.remember(job, now, q.HAS_TIMED_OUT)
                self.lost(job, job.worker)
                job.warned, job.score = True, now + grace
                self.day(queue, now).retries += 1
            if is_over or grace <= 0:
                job.warned = False
                job.remaining -= 1
                if job.remaining >= 0:
                    found.append(job)
                    continue
                worker = job.worker
                self.release(job, now)
                self.exhaust(job, now, queue, None, None)
                assert job.failure is not None
                self.if_tracked(job.jid, b"failed")
                group, message = job.failure[:2]
                self.log(job.jid, b"failed", group=group, worker=worker, message=message)
        return found

    def _hand_over(self, job: Job, now: float, worker: bytes) -> None:
        self.remember(job, now, q.HAS_POPPED, worker)
        self.day(job.queue, now).waits.append(now - job.time)
        job.time, job.worker, job.state, job.warned = now, worker, q.RUNNING, False
        job.expires = job.lease = job.score = now + self.lock_of(job.queue)
        job.place = LOCKS
        self.if_tracked(job.jid, b"popped")

    def peek(self, now: float, queue: bytes, offset: int, count: int) -> q.Result:
        if count <= 0:
            return q.OK, ()
        found = [job for job in self.at(queue, LOCKS) if job.score <= now]
        rest = offset + count - len(found)
        self.spawn(queue, now, rest)
        self.move_due(queue, now, rest)
        if offset < 0:
            return q.OK, ()
        found += self.at(queue, WORK)[::-1]
        return q.OK, tuple(self.view(job) for job in found[offset : offset + count])

    def spawn(self, queue: bytes, now: float, count: int) -> None:
        """Let templates make the jobs that are due, at most `count` of them."""
        due = [one for one in self.of_queue(queue) if one.next <= now]
        for one in due[: max(0, count)]:
            at = float(floor(one.next))
            late = (now - at) / one.interval
            if one.backlog and late > one.backlog:
                at += ceil(late - one.backlog) * one.interval
            while at <= now and count > 0:
                count -= 1
                one.count += 1
                job = Job(b"%b-%d" % (one.jid, one.count), one.klass, one.data)
                self.jobs[job.jid] = job
                job.queue, job.priority, job.time = queue, one.priority, at
                job.retries = job.remaining = one.retries
                job.throttles, job.spawned_from = one.throttles, one.jid
                job.tags = dict.fromkeys(one.tags, now)
                self.remember(job, at, q.HAS_PUT, queue)
                self.let_wait(job, at)
                at += one.interval
                one.next = at

    # --- the end of a run --------------------------------------------------------------------

    def complete(self, now: float, jid: bytes, worker: bytes, *args: Any) -> q.Result:
        queue, data, following, delay, depends = args
        refused = self.wrong(jid, worker)
        if refused is not None:
            return refused
        job = self.jobs[jid]
        if job.queue != queue:
            return q.OTHER_QUEUE, (jid, job.queue)
        if following is not None and self.is_circle(jid, depends):
            return q.DEPENDS_ON_ITSELF, (jid,)
        self.remember(job, now, q.HAS_DONE)
        job.place = ""
        self.release(job, now)
        self.day(queue, now).runs.append(now - job.time)
        job.data, job.time, job.worker, job.lease = data, now, b"", None
        job.failure, job.expires, job.remaining = None, 0.0, job.retries
        self.if_tracked(jid, b"completed")
        if following is None:
            self._finish(job, now)
            return q.OK, q.COMPLETE_
        self.log(jid, b"advanced", queue=queue, to=following)
        self.remember(job, now, q.HAS_PUT, following)
        self.known.setdefault(following, now)
        job.queue, job.depends = following, self.unfinished(depends)
        if job.depends:
            job.place, job.score, job.state = BEHIND, now, q.DEPENDS
            job.due = now + delay if delay > 0 else None
        else:  # a delay counts only without dependencies
            self.begin(job, now, now + delay if delay > 0 and not depends else None)
        return q.OK, job.state

    def _finish(self, job: Job, now: float) -> None:
        self.log(job.jid, b"completed", queue=job.queue)
        job.state, job.queue, job.place, job.score = q.COMPLETE_, b"", DONE, now
        self.free(job.jid, now)
        kept = self.at(b"", DONE)
        oldest = now - self.option(b"jobs-history", 604_800.0)
        most = int(self.option(b"jobs-history-count", 50_000.0))
        young = [one for one in kept if one.score > oldest]
        left = young[max(0, len(young) - most) :]
        for one in kept:
            if one not in left:
                del self.jobs[one.jid]

    def fail(self, now: float, jid: bytes, worker: bytes, *args: Any) -> q.Result:
        group, message, data = args
        refused = self.wrong(jid, worker)
        if refused is not None:
            return refused
        job = self.jobs[jid]
        self.log(jid, b"failed", worker=worker, group=group, message=message)
        self.if_tracked(jid, b"failed")
        self.remember(job, now, q.HAS_FAILED, group, worker)
        self.day(job.queue, now).failed += 1
        self.day(job.queue, now).failures += 1
        job.data = job.data if data is None else data
        self.give_up(job, q.FailureView(group, message, float(floor(now)), worker))
        self.release(job, now)
        return q.OK, jid

    def retry(self, now: float, jid: bytes, queue: bytes, worker: bytes, *args: Any) -> q.Result:
        delay, group, message = args
        refused = self.wrong(jid, worker)
        if refused is not None:
            return refused
        job = self.jobs[jid]
        job.remaining -= 1
        job.place, job.lease, job.warned = "", None, False
        self.release(job, now)
        if job.remaining < 0:
            self.exhaust(job, now, queue, group, message)
            return q.OK, job.remaining
        job.queue = queue
        self.begin(job, now, now + delay if delay > 0 else None)
        if group is not None and message is not None:
            job.failure = q.FailureView(group, message, float(floor(now)), worker)
        return q.OK, job.remaining

    def heartbeat(self, now: float, jid: bytes, worker: bytes, data: Name) -> q.Result:
        refused = self.wrong(jid, worker)
        if refused is not None:
            return refused
        job = self.jobs[jid]
        job.data = job.data if data is None else data
        job.expires = job.lease = job.score = now + self.lock_of(job.queue)
        job.warned = False
        return q.OK, job.expires

    def timeout(self, now: float, jids: Jids) -> q.Result:
        for number, jid in enumerate(jids):
            job = self.jobs.get(jid)
            if job is None:
                return q.NO_JOB, (jid,)
            if job.state != q.RUNNING or jid in jids[:number]:
                again = job.state == q.RUNNING
                return q.NOT_RUNNING, (jid, q.STALLED if again else job.state)
        for job in [self.jobs[jid] for jid in jids]:
            self.remember(job, now, q.HAS_TIMED_OUT)
            job.lease, job.place, job.score = None, WORK, inf
            self.release(job, now)
            job.state, job.expires = q.STALLED, 0.0
            self.lost(job, job.worker)
            if self.flavour == q.DOTTED:
                job.worker = b""
        return q.OK, None

    def unfail(self, now: float, queue: bytes, group: bytes, count: int) -> q.Result:
        moved = self.group(group)[: max(0, count)]
        for job in moved:
            self.remember(job, now, q.HAS_PUT, queue)
            job.queue, job.remaining = queue, job.retries
            self.begin(job, now, None)
        return q.OK, len(moved)

    def cancel(self, now: float, jids: Jids) -> q.Result:
        for jid in jids:
            for dependent in self.dependents(jid):
                if dependent not in jids:
                    return q.HAS_DEPENDENT, (jid, dependent)
        for jid in jids:
            job = self.jobs.get(jid)
            if job is not None and job.state == q.COMPLETE_:
                continue
            worker, queue = (None, None) if job is None else (job.worker, job.queue)
            pairs = self.log(jid, b"canceled", worker=worker, queue=queue)
            if worker:
                self.say(b"w:" + worker, pairs)
            if job is not None:
                if job.state == q.FAILED and job.failure is not None:
                    self.day(job.queue, job.failure.when).failed -= 1
                job.place = ""
                self.release(job, now)
                self.free(jid, now)
                del self.jobs[jid]
            self.if_tracked(jid, b"canceled")
        return q.OK, None

    # --- changes of a job --------------------------------------------------------------------

    def depends_on(self, _now: float, jid: bytes, jids: Jids) -> q.Result:
        job = self.jobs.get(jid)
        if job is None or job.state != q.DEPENDS:
            return q.NOT_DEPENDING, (jid, 0 if job is None else job.state)
        if self.is_circle(jid, jids):
            return q.DEPENDS_ON_ITSELF, (jid,)
        job.depends |= self.unfinished(jids)
        return q.OK, True

    def depends_off(self, now: float, jid: bytes, jids: Jids | None) -> q.Result:
        job = self.jobs.get(jid)
        if job is None or job.state != q.DEPENDS:
            return q.NOT_DEPENDING, (jid, 0 if job is None else job.state)
        job.depends -= job.depends if jids is None else set(jids)
        if not job.depends:
            self.begin(job, now, None)
        return q.OK, True

    def priority(self, _now: float, jid: bytes, priority: float) -> q.Result:
        job = self.jobs.get(jid)
        if job is None:
            return q.NO_JOB, (jid,)
        job.priority = priority
        job.score = priority if job.place == WORK else job.score
        return q.OK, priority
