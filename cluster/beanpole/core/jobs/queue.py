"""All jobs, and every transition a job can make between states.

This is the only place that changes a job's state, and so the one that emits events. Which session
may ask for a transition is decided in `core.operations.changes` and `extended`; when time asks for
one, in `core.machine`.
"""

from beanpole import events as e
from beanpole.constants import JOB_ID_MAX, U32_MAX, URGENT_BELOW
from beanpole.core.jobs import effects
from beanpole.core.jobs.extension import Extension
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
from beanpole.core.jobs.store import Jobs
from beanpole.core.jobs.timers import Timers
from beanpole.core.jobs.transitions import (
    BURY,
    DELAY,
    DELETE,
    EXPIRE,
    FINISH,
    MADE_READY,
    PUT,
    RESERVE,
    TIMEOUT,
    TOUCH,
    TRANSITION_BITS,
)
from beanpole.core.jobs.tubes import Tubes


class Queue(Tubes):
    """All jobs and tubes. Transitions append to `transitions`, which the machine digests.

    The counters of a job have 32 bits, as beanstalkd's have, and as events have room for.

    Attributes:
        timers: the ends of delays and of TTRs.
        expiries: the ends of TTLs.
        moved: the ids of jobs whose sequence is not their id, by their sequences.
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs = Jobs()
        self.timers = Timers()
        self.expiries = Timers()
        self.moved: dict[int, int] = {}
        self.next_id = 1
        self.next_order = 1
        self.body_bytes = 0
        self.extension_bytes = 0
        # Reservations from before the last EPOCH do not end before its floor: while there was no
        # leader, their workers had no node to touch them at.
        self.epoch_us = 0
        self.expiry_floor_us = 0
        self.effects = effects.Effects()

    # --- what is asked for ----------------------------------------------------------------------

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
        """Create a job, ready or delayed; the sequence of `ext` is filled in."""
        job_id = self.next_id
        self.next_id = job_id + 1
        job = Job(job_id, tube, rank, delay_us, ttr_us, body, self.now_us)
        self.jobs.add(job)
        self.body_bytes += len(body)
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

    def reserve_first(self, key: int, session: Holder) -> Job:
        """Reserve the ready job of this key, which `first_ready` of its tube just returned."""
        sequence = key & ID_MASK
        job = self.jobs.get(sequence)
        if job is None:
            job = self.jobs[self.moved[sequence]]
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
        """Reserve a job of any state but reserved."""
        self.keep_holder(session)
        before = self.take(job)
        self.make_reserved(job, session)
        self.emit(e.RESERVED, before, job, session)

    def touch(self, job: Job, session: Holder) -> None:
        """Start a reserved job's TTR anew."""
        for image in self.images:
            image.keep(job)
        job.order = self.now_us
        if job.ttr_us:
            self.timers.remove(job.due_us, job.id)
            job.due_us = self.now_us + job.ttr_us
            self.timers.add(job.due_us, job.id)
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)
        self.emit(e.TOUCHED, RESERVED, job, session)

    def release(self, job: Job, rank: int, delay_us: int, session: Holder) -> None:
        """A session gives a job back, ready or delayed; its sequence stays."""
        self.take(job)
        job.rank = rank
        job.delay_us = delay_us
        job.releases = (job.releases + 1) & U32_MAX
        if delay_us:
            self.make_delayed(job, delay_us)
        else:
            self.make_ready(job)
        self.emit(e.RELEASED, RESERVED, job, session)

    def give_back(self, job: Job, session: Holder, reason: int) -> None:
        """A reserved job becomes ready because its session has gone; no counter moves."""
        self.take(job)
        self.make_ready(job)
        self.emit(e.RETURNED, RESERVED, job, session, reason)

    def bury(self, job: Job, rank: int, session: Holder) -> None:
        """A session buries a job."""
        self.take(job)
        job.rank = rank
        self.make_buried(job)
        self.emit(e.BURIED, RESERVED, job, session)

    def kick(self, job: Job, session: Holder) -> None:
        """Make a buried or delayed job ready."""
        before = self.take(job)
        job.kicks = (job.kicks + 1) & U32_MAX
        self.make_ready(job)
        self.emit(e.KICKED, before, job, session)

    def delete(self, job: Job, session: Holder) -> None:
        """Forget a job in whatever state it is."""
        before = self.take(job)
        tube = job.tube
        for image in self.images:
            image.keep_tube(tube)
        self.forget(job)
        tube.deletes += 1
        self.transitions.append(job.id << TRANSITION_BITS | DELETE)
        self.emit(e.DELETED, before, job, session)
        self.effects.tell(job.id, effects.DELETED, b"")
        self.drop_if_idle(tube)

    def finish(self, job: Job, state: int, result: bytes, session: Holder) -> None:
        """A session ends a job: DONE, or FAILED.

        While a job may fail more often, and has attempts left, a failure makes it ready again,
        behind all of its rank.
        """
        before = self.take(job)
        self.transitions.append(job.id << TRANSITION_BITS | FINISH)
        kind = e.DONE if state == DONE else e.FAILED
        ext = job.ext
        if ext is not None and state == FAILED and ext.failures_max:
            ext.failures += 1
            if ext.failures < ext.failures_max and not 0 < ext.attempts_max <= job.reserves:
                self._put_last(job, ext)
                self.extension_bytes -= len(ext.progress)
                ext.progress = b""
                ready_us = job.ready_us
                self.make_ready(job)
                if before == READY:
                    job.ready_us = ready_us  # it has been ready all the time
                self.emit(kind, before, job, session)
                return
        self.make_finished(job, state, result)
        self.emit(kind, before, job, session)
        self.drop_if_idle(job.tube)

    def set_progress(self, job: Job, ext: Extension, progress: bytes) -> None:
        """Say how far a job is."""
        for image in self.images:
            image.keep(job)
        self.extension_bytes += len(progress) - len(ext.progress)
        ext.progress = progress
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)

    def _put_last(self, job: Job, ext: Extension) -> None:
        """Give a job that is in no order a sequence behind all others."""
        if self.next_id > JOB_ID_MAX:
            return
        if ext.sequence != job.id:
            del self.moved[ext.sequence]
        ext.sequence = self.next_id
        self.next_id += 1
        self.moved[ext.sequence] = job.id

    # --- the steps of transitions ---------------------------------------------------------------

    def keep_holder(self, holder: Holder) -> None:
        """Keep a holder as it is for images in progress: it is about to change."""
        for image in self.images:
            image.keep_holder(holder)

    def take(self, job: Job) -> int:
        """Take a job out of the order of its state; the caller makes it something else.

        Every change of an existing job begins here (or in `reserve_first` and `touch`), so this is
        where an image in progress keeps the job as it was.
        """
        for image in self.images:
            image.keep(job)
        tube = job.tube
        space = tube.space
        state = job.state
        if state == RESERVED:
            space.reserved -= 1
            tube.reserved_count -= 1
            holder = job.holder
            if holder is not None:
                del holder.reserved[job.id]
                job.holder = None
            if job.due_us:
                self.timers.remove(job.due_us, job.id)
        elif state == READY:
            space.ready -= 1
            tube.ready_count -= 1
            if job.rank < URGENT_BELOW:
                space.urgent -= 1
                tube.urgent_count -= 1
            tube.drop_ready(job)
        elif state == DELAYED:
            space.delayed -= 1
            tube.delayed_count -= 1
            self.timers.remove(job.due_us, job.id)
            tube.drop_delayed(job)
        elif state == BURIED:
            space.buried -= 1
            del tube.buried[job.id]
        else:
            tube.finished_count -= 1
            if state == DONE:
                space.done -= 1
            else:
                assert state == FAILED, state
                space.failed -= 1
        job.state = GONE
        return state

    def make_ready(self, job: Job) -> None:
        """A job that is in no order becomes ready."""
        tube = job.tube
        job.state = READY
        job.due_us = 0
        job.ready_us = self.now_us
        space = tube.space
        space.ready += 1
        tube.ready_count += 1
        if job.rank < URGENT_BELOW:
            space.urgent += 1
            tube.urgent_count += 1
        tube.push_ready(job)
        self.ready_tubes[tube.name] = None
        self.transitions.append(job.id << TRANSITION_BITS | MADE_READY)

    def make_delayed(self, job: Job, delay_us: int) -> None:
        """A job that is in no order becomes delayed."""
        tube = job.tube
        job.state = DELAYED
        job.due_us = due_us = self.now_us + delay_us
        tube.space.delayed += 1
        tube.delayed_count += 1
        tube.push_delayed(job)
        self.timers.add(due_us, job.id)
        self.transitions.append(job.id << TRANSITION_BITS | DELAY)

    def make_buried(self, job: Job) -> None:
        """A job that is in no order goes to the end of the buried ones."""
        job.state = BURIED
        job.due_us = 0
        job.order = self.next_order
        self.next_order += 1
        job.buries = (job.buries + 1) & U32_MAX
        tube = job.tube
        tube.space.buried += 1
        tube.buried[job.id] = job
        self.transitions.append(job.id << TRANSITION_BITS | BURY)

    def make_reserved(self, job: Job, session: Holder) -> None:
        """A job that is in no order is reserved for its TTR: by `session`, or without a holder."""
        tube = job.tube
        space = tube.space
        job.state = RESERVED
        job.reserves = (job.reserves + 1) & U32_MAX
        job.order = job.reserved_us = self.now_us
        space.reserved += 1
        tube.reserved_count += 1
        if space.leased:
            job.holder = session
            session.reserved[job.id] = job
        if job.ttr_us:
            job.due_us = due_us = self.now_us + job.ttr_us
            self.timers.add(due_us, job.id)
        else:
            job.due_us = 0
        self.transitions.append(job.id << TRANSITION_BITS | RESERVE)

    def make_finished(self, job: Job, state: int, result: bytes) -> None:
        """A job that is in no order is done or has failed.

        It is kept with its result until its TTL ends. One without a TTL is forgotten at once: its
        result would stay for ever.
        """
        told = effects.DONE if state == DONE else effects.FAILED
        self.effects.tell(job.id, told, result)
        ext = job.ext
        if ext is None or not ext.expires_us:
            self.forget(job)
            return
        job.state = state
        job.due_us = 0
        self.extension_bytes += len(result) - len(ext.result)
        ext.result = result
        tube = job.tube
        tube.finished_count += 1
        if state == DONE:
            tube.space.done += 1
        else:
            tube.space.failed += 1

    def add_extension(self, job: Job, ext: Extension) -> None:
        """Let a job be found by what its extension says."""
        self.extension_bytes += ext.memory_bytes()
        if ext.external_id:
            job.tube.space.external_ids[ext.external_id] = job.id
        if ext.expires_us:
            self.expiries.add(ext.expires_us, job.id)
        if ext.sequence != job.id:
            self.moved[ext.sequence] = job.id

    def forget(self, job: Job) -> None:
        """A job that is in no order is known no longer."""
        self.jobs.remove(job.id)
        self.body_bytes -= len(job.body)
        ext = job.ext
        if ext is None:
            return
        self.extension_bytes -= ext.memory_bytes()
        if ext.external_id:
            del job.tube.space.external_ids[ext.external_id]
        if ext.expires_us:
            self.expiries.remove(ext.expires_us, job.id)
        if ext.sequence != job.id:
            del self.moved[ext.sequence]

    # --- time -----------------------------------------------------------------------------------

    def begin_epoch(self, time_us: int, expiry_floor_us: int) -> None:
        """A leader took over at `time_us`: reservations until now last at least until the floor."""
        self.epoch_us = max(self.epoch_us, time_us)
        self.expiry_floor_us = max(self.expiry_floor_us, expiry_floor_us)

    def deadline_us(self, job: Job) -> int:
        """When a reservation ends; 0 for one without an end."""
        due_us = job.due_us
        if 0 < due_us < self.expiry_floor_us and job.order < self.epoch_us:
            return self.expiry_floor_us
        return due_us

    def expire(self, budget: int) -> int:
        """Act on due jobs, by (due time, id), then on TTLs; returns what is left of the budget."""
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
            timers.add(due_us, job_id)  # `take` expects the job where its state says
            holder = job.holder
            before = self.take(job)
            if before == RESERVED:
                self._time_out(job, holder)
            else:
                self.make_ready(job)
                self.emit(e.DUE, before, job, None)
        return self._end_ttls(budget)

    def _time_out(self, job: Job, holder: Holder | None) -> None:
        """The TTR of a job has ended; it is in no order."""
        job.timeouts = (job.timeouts + 1) & U32_MAX
        job.tube.space.timeouts += 1
        self.transitions.append(job.id << TRANSITION_BITS | TIMEOUT)
        ext = job.ext
        if ext is not None and 0 < ext.attempts_max <= job.reserves:
            self.make_finished(job, FAILED, b"")
            self.emit(e.FAILED, RESERVED, job, holder, e.TTR)
            self.drop_if_idle(job.tube)
            return
        self.make_ready(job)
        self.emit(e.TIMED_OUT, RESERVED, job, holder, e.TTR)

    def _end_ttls(self, budget: int) -> int:
        """Forget the jobs whose TTL has ended, by (its end, id), whatever their state."""
        expiries = self.expiries
        while budget:
            job_id = expiries.pop(self.now_us)
            if not job_id:
                break
            budget -= 1
            job = self.jobs[job_id]
            ext = job.ext
            assert ext is not None, "a job with a TTL has an extension"
            expiries.add(ext.expires_us, job_id)  # `forget` expects it there
            holder = job.holder
            before = self.take(job)
            self.forget(job)
            self.transitions.append(job_id << TRANSITION_BITS | EXPIRE)
            self.emit(e.EXPIRED, before, job, holder)
            self.effects.tell(job_id, effects.EXPIRED, b"")
            self.drop_if_idle(job.tube)
        return budget
