"""All jobs, and every transition of a job between states.

Jobs change state only by these transitions and those of `attempts` and `moving`, which emit the
events. Permission for a session's transitions is decided in `core.operations.changes` and
`extended`; `core.machine` triggers those that time causes.
"""

from beanpole import events as e
from beanpole.constants import U32_MAX, URGENT_BELOW
from beanpole.core.jobs import effects
from beanpole.core.jobs.attempts import Attempts
from beanpole.core.jobs.extension import ATTACHMENT_BYTES, Extension
from beanpole.core.jobs.job import (
    BURIED,
    DELAYED,
    DONE,
    FAILED,
    GONE,
    ID_MASK,
    READY,
    RESERVED,
    Holder,
    Job,
    Tube,
)
from beanpole.core.jobs.transitions import (
    DELETE,
    EXPIRE,
    FINISH,
    PUT,
    TIMEOUT,
    TOUCH,
    TRANSITION_BITS,
)


class Queue(Attempts):
    """All jobs and tubes. Transitions append to `transitions`, which the machine hashes.

    The counters of a job have 32 bits, as in beanstalkd and in the records of events.
    """

    # --- requested transitions ------------------------------------------------------------------

    def put(
        self,
        tube: Tube,
        rank: int,
        delay_us: int,
        ttr_us: int,
        body: bytes,
        session: Holder,
        ext: Extension | None = None,
    ) -> Job:
        """Create a ready or delayed job; sets the sequence of `ext`."""
        job_id = self.next_id
        self.next_id = job_id + 1
        job = Job(job_id, tube, rank, delay_us, ttr_us, body, self.now_us)
        self.jobs.add(job)
        size = len(body)
        self.body_bytes += size
        tube.body_bytes += size
        tube.space.jobs_total += 1
        if ext is not None:
            ext.sequence = job_id
            job.ext = ext
            self.add_extension(job, ext)
        for image in self.images:
            image.keep_tube(tube)
        tube.jobs_total += 1
        self.transitions.append(job_id << TRANSITION_BITS | PUT)
        if delay_us:
            self.make_delayed(job, delay_us)
        else:
            self.make_ready(job)
        self.emit(e.PUT, GONE, job, session)
        return job

    def ready_job(self, key: int) -> Job:
        """Return the job of a key in the ready order of a tube."""
        sequence = key & ID_MASK
        job = self.jobs.get(sequence)
        return self.jobs[self.moved[sequence]] if job is None else job

    def reserve_first(self, key: int, session: Holder) -> Job:
        """Reserve the ready job of a key that `first_ready` of its tube has just returned."""
        job = self.ready_job(key)
        tube = job.tube
        for image in self.images:
            image.keep(job)
            image.keep_holder(session)
        tube.ready.pop_first()
        space = tube.space
        space.ready -= 1
        tube.ready_count -= 1
        if job.rank < URGENT_BELOW:
            space.urgent -= 1
            tube.urgent_count -= 1
        self.make_reserved(job, session)
        self.emit(e.RESERVED, READY, job, session)
        return job

    def reserve(self, job: Job, session: Holder) -> None:
        """Reserve a job in any state but reserved."""
        self.keep_holder(session)
        before = self.take(job)
        self.make_reserved(job, session)
        self.emit(e.RESERVED, before, job, session)

    def touch(self, job: Job, session: Holder) -> None:
        """Restart a reserved job's TTR."""
        for image in self.images:
            image.keep(job)
        job.order = self.now_us
        if job.ttr_us:
            if job.due_us:  # `set_ttr` may have set no end
                self.timers.remove(job.due_us, job.id)
            job.due_us = self.now_us + job.ttr_us
            self.timers.add(job.due_us, job.id)
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)
        self.emit(e.TOUCHED, RESERVED, job, session)

    def set_ttr(self, job: Job, ttr_us: int) -> None:
        """Set the remaining time of a job's reservation, 0 for no end; the job's TTR stays."""
        for image in self.images:
            image.keep(job)
        if job.due_us:
            self.timers.remove(job.due_us, job.id)
        job.order = self.now_us
        job.due_us = self.now_us + ttr_us if ttr_us else 0
        if ttr_us:
            self.timers.add(job.due_us, job.id)
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)

    def release(self, job: Job, rank: int, delay_us: int, session: Holder) -> None:
        """Release a reserved job, ready or delayed; some spaces give it a new sequence."""
        self.take(job)
        job.rank = rank
        job.delay_us = delay_us
        if job.ext is not None and not self._may_come_back(job, job.ext, session, e.NO_REASON):
            return
        job.releases = (job.releases + 1) & U32_MAX
        if self.policies.rows and self.ends_attempts(job, session, e.NO_REASON):
            return
        if delay_us:
            self.make_delayed(job, delay_us)
        else:
            self.make_ready(job)
        self.emit(e.RELEASED, RESERVED, job, session)

    def give_back(self, job: Job, session: Holder, reason: int) -> None:
        """Make a reserved job ready, as at the end of its session; no counter changes."""
        self.take(job)
        if job.ext is not None and not self._may_come_back(job, job.ext, session, reason):
            return
        if self.policies.rows and self.ends_attempts(job, session, reason):
            return
        self.make_ready(job)
        self.emit(e.RETURNED, RESERVED, job, session, reason)

    def bury(self, job: Job, rank: int, session: Holder, result: bytes = b"") -> None:
        """Bury a job; an abandoned job is deleted instead.

        Args:
            job: in any state.
            rank: the rank that it has from now on.
            session: the session that buries it.
            result: of the failure that clients see, as in `make_buried`.
        """
        before = self.take(job)
        if job.ext is not None and job.ext.is_abandoned:
            self._drop(job, before, session, e.ABANDONED)
            return
        job.rank = rank
        self.make_buried(job, result)
        self.emit(e.BURIED, before, job, session)

    def kick(self, job: Job, session: Holder) -> None:
        """Make a buried or delayed job ready."""
        before = self.take(job)
        job.kicks = (job.kicks + 1) & U32_MAX
        self.make_ready(job)
        self.emit(e.KICKED, before, job, session)

    def delete(self, job: Job, session: Holder, reason: int = e.NO_REASON) -> None:
        """Delete a job in any state."""
        self._drop(job, self.take(job), session, reason)

    def discard(self, job: Job, reason: int, *, keeps_tube: bool = False) -> None:
        """Delete a job for a policy. This is no client's delete: its tube's counter stays.

        Args:
            job: the job, not reserved.
            reason: of the event.
            keeps_tube: its tube stays although it may be idle now: another job follows at once.
        """
        # A reserved job is excluded: its event would have to name its holder.
        assert job.state in (READY, DELAYED, BURIED), job.state
        before = self.take(job)
        self.forget(job)
        self.transitions.append(job.id << TRANSITION_BITS | DELETE)
        self.emit(e.DELETED, before, job, None, reason)
        self.effects.record(job.id, effects.DELETED, b"")
        if not keeps_tube:
            self.drop_if_idle(job.tube)

    def _drop(self, job: Job, before: int, session: Holder | None, reason: int) -> None:
        """Delete a job that is in no order."""
        tube = job.tube
        for image in self.images:
            image.keep_tube(tube)
        self.forget(job)
        tube.deletes += 1
        self.transitions.append(job.id << TRANSITION_BITS | DELETE)
        self.emit(e.DELETED, before, job, session, reason)
        # Of an abandoned job, only clients whose sessions have ended may still listen: their node
        # was frozen, and the job may be done.
        kind = effects.GONE if reason == e.ABANDONED else effects.DELETED
        self.effects.record(job.id, kind, b"")
        self.drop_if_idle(tube)

    def _may_come_back(self, job: Job, ext: Extension, holder: Holder | None, reason: int) -> bool:
        """Prepare the return of a job that was reserved, and is in no order; False if it has ended.

        If its space has `to_end`, a job that returns goes behind all others of its rank.
        """
        if ext.is_abandoned:
            self._drop(job, RESERVED, holder, e.ABANDONED)
            return False
        to_end = job.tube.space.to_end
        # Where leases belong to no session, only the TTR ends them. A session of another space,
        # which has such a job by an alias, may also release it or be lost: that ends its attempt.
        is_guest = holder is not None and holder.leased and not ext.home.leased
        if (to_end or is_guest) and 0 < self.attempts_max(job, ext) <= job.reserves:
            self.transitions.append(job.id << TRANSITION_BITS | FINISH)
            self._fail(job, holder, reason)
            return False
        if to_end:
            self.put_last(job, ext)
            self.forget_progress(ext)
        return True

    def _fail(self, job: Job, holder: Holder | None, reason: int) -> None:
        """Fail a job for good that was reserved and has no attempts left."""
        self.make_finished(job, FAILED, b"")
        self.emit(e.FAILED, RESERVED, job, holder, reason)
        self.drop_if_idle(job.tube)

    def finish(self, job: Job, state: int, result: bytes, session: Holder) -> None:
        """End a job: DONE, or FAILED.

        While the job has failures and attempts left, a failure makes it ready again, behind all
        others of its rank.
        """
        before = self.take(job)
        self.transitions.append(job.id << TRANSITION_BITS | FINISH)
        kind = e.DONE if state == DONE else e.FAILED
        ext = job.ext
        if ext is not None and state == FAILED and ext.failures_max:
            ext.failures += 1
            if ext.failures < ext.failures_max and not 0 < ext.attempts_max <= job.reserves:
                self.put_last(job, ext)
                self.forget_progress(ext)
                ready_us = job.ready_us
                self.make_ready(job)
                if before == READY:
                    job.ready_us = ready_us  # the job never left the ready state
                self.emit(kind, before, job, session)
                return
        self.make_finished(job, state, result)
        self.emit(kind, before, job, session)
        self.drop_if_idle(job.tube)

    def set_progress(self, job: Job, ext: Extension, progress: bytes) -> None:
        """Set the progress of a job."""
        for image in self.images:
            image.keep(job)
        self.extension_bytes += len(progress) - len(ext.progress)
        ext.progress = progress
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)
        self.effects.record(job.id, effects.PROGRESS, progress)

    def attach(self, job: Job, ext: Extension, session: Holder) -> None:
        """Make a session a client of a job; it must not be one yet."""
        for image in self.images:
            image.keep(job)
        session.attached.add(job.id)
        ext.attach(session.serial, session.attached)
        self.extension_bytes += ATTACHMENT_BYTES
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)

    def detach(self, job: Job, session: Holder) -> None:
        """Detach a client from a job; an abandoned job that waits for a worker is deleted."""
        for image in self.images:
            image.keep(job)
        ext = job.ext
        assert ext is not None, "a job with clients has an extension"
        session.attached.remove(job.id)
        del ext.clients[session.serial]
        self.extension_bytes -= ATTACHMENT_BYTES
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)
        if ext.is_abandoned and job.state in (READY, DELAYED, BURIED):
            self._drop(job, self.take(job), session, e.ABANDONED)

    def keep_without_clients(self, job: Job, ext: Extension) -> None:
        """Keep a job alive even without clients."""
        for image in self.images:
            image.keep(job)
        ext.background = True
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)

    # --- time -----------------------------------------------------------------------------------

    def begin_epoch(self, time_us: int, expiry_floor_us: int) -> None:
        """Begin a term at `time_us`: earlier reservations last at least until the floor."""
        self.epoch_us = max(self.epoch_us, time_us)
        self.expiry_floor_us = max(self.expiry_floor_us, expiry_floor_us)

    def deadline_us(self, job: Job) -> int:
        """Return the time at which a reservation ends; 0 if it does not time out."""
        due_us = job.due_us
        if 0 < due_us < self.expiry_floor_us and job.order < self.epoch_us:
            return self.expiry_floor_us
        return due_us

    def expire(self, budget: int) -> int:
        """Process due jobs, by (due time, id), then TTLs; returns the rest of the budget."""
        timers = self.timers
        now_us = self.now_us
        while budget:
            job_id = timers.pop(now_us)
            if not job_id:
                break
            budget -= 1
            job = self.jobs[job_id]
            due_us = job.due_us
            if job.state == RESERVED and due_us < self.deadline_us(job):
                for image in self.images:
                    image.keep(job)
                job.due_us = self.expiry_floor_us
                timers.add(job.due_us, job_id)
                self.transitions.append(job_id << TRANSITION_BITS | TOUCH)
                continue
            timers.add(due_us, job_id)  # `take` expects the timer to be set
            if job.state == BURIED or (job.state == DELAYED and job.order < 0):
                self.discard(job, e.RETENTION)
                continue
            holder = job.holder
            before = self.take(job)
            if before == RESERVED:
                self._time_out(job, holder)
            else:
                self.make_ready(job)
                self.emit(e.DUE, before, job, None)
        return self._end_ttls(budget)

    def _time_out(self, job: Job, holder: Holder | None) -> None:
        """End the reservation of a job, which is in no order, because its TTR has ended."""
        ext = job.ext
        if ext is not None and ext.is_abandoned:
            self._drop(job, RESERVED, holder, e.ABANDONED)
            return
        job.timeouts = (job.timeouts + 1) & U32_MAX
        job.tube.space.timeouts += 1
        self.transitions.append(job.id << TRANSITION_BITS | TIMEOUT)
        if ext is not None:
            if not self._may_come_back(job, ext, holder, e.TTR):
                return
            if 0 < ext.attempts_max <= job.reserves:
                self._fail(job, holder, e.TTR)
                return
        if self.policies.rows and self.ends_attempts(job, holder, e.TTR):
            return
        self.make_ready(job)
        self.emit(e.TIMED_OUT, RESERVED, job, holder, e.TTR)

    def _end_ttls(self, budget: int) -> int:
        """Delete the jobs whose TTL has ended, by (end of TTL, id), in any state."""
        expiries = self.expiries
        while budget:
            job_id = expiries.pop(self.now_us)
            if not job_id:
                break
            budget -= 1
            job = self.jobs[job_id]
            ext = job.ext
            assert ext is not None, "a job with a TTL has an extension"
            expiries.add(ext.expires_us, job_id)  # `forget` expects the timer to be set
            holder = job.holder
            before = self.take(job)
            self.forget(job)
            self.transitions.append(job_id << TRANSITION_BITS | EXPIRE)
            if job.tube.space.sticky and before not in (DONE, FAILED):
                job.tube.space.evicted += 1  # images of sticky spaces have always had this counter
            self.emit(e.EXPIRED, before, job, holder)
            self.effects.record(job_id, effects.EXPIRED, b"")
            self.drop_if_idle(job.tube)
        return budget
