"""Jobs and tubes, and every transition a job can make between states.

This is the only place that changes a job's state, and so the one that emits events. Who may ask
for a transition is decided in `core.operations.changes`; when time asks for one, in `core.machine`.
"""

from typing import Final

from beanpole import events as e
from beanpole.constants import DEFAULT_TUBE, SECOND_US, U32_MAX, URGENT_BELOW
from beanpole.core.jobs.copy_on_write import CopyOnWrite
from beanpole.core.jobs.effects import DELETED, Effects
from beanpole.core.jobs.job import (
    BURIED,
    DELAYED,
    GONE,
    ID_MASK,
    READY,
    RESERVED,
    Holder,
    Job,
    Tube,
)
from beanpole.core.jobs.order import Order
from beanpole.core.jobs.store import Jobs
from beanpole.core.jobs.timers import Timers

# What a transition was, in the running digest: job id * 16 + one of these.
PUT: Final = 1
MADE_READY: Final = 2
RESERVE: Final = 3
DELAY: Final = 4
BURY: Final = 5
DELETE: Final = 6
TOUCH: Final = 7
TIMEOUT: Final = 8
SESSION: Final = 9
TUBE: Final = 10
BATCH: Final = 11
RAISED: Final = 12
TRANSITION_BITS: Final = 4


_pack_event: Final = e.JOINED.pack


class Queue:
    """All jobs and tubes. Transitions append to `transitions`, which the machine digests.

    Every event is counted in `events_total`; `events` has the records, and `tubes_named` the
    numbers and names of new tubes, for the node to take out. One that has no use for them sets
    `events_kept` to false. The counters of a job have 32 bits there, as beanstalkd's have.
    """

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.tubes: dict[bytes, Tube] = {}  # in the order of creation
        self.timers = Timers()
        self.pauses = Order()  # (until, tube)
        self.next_id = 1
        self.next_order = 1
        self.body_bytes = 0
        self.jobs_total = 0
        self.timeouts = 0
        self.ready = 0
        self.urgent = 0
        self.reserved = 0
        self.delayed = 0
        self.buried = 0
        self.now_us = 0
        # Reservations from before the last EPOCH do not end before its floor: while there was no
        # leader, their workers had nobody to touch them at.
        self.epoch_us = 0
        self.expiry_floor_us = 0
        self.transitions: list[int] = []
        # Tubes that may have something for a waiting client since the leader last looked.
        self.ready_tubes: dict[bytes, None] = {}
        self.effects = Effects()
        self.images: tuple[CopyOnWrite, ...] = ()
        self.events = bytearray()
        self.events_total = 0
        self.events_kept = True
        self.tubes_total = 0
        self.tubes_named: list[tuple[int, bytes]] = []
        self.default = self.tube(DEFAULT_TUBE)

    # --- tubes ----------------------------------------------------------------------------------

    def tube(self, name: bytes) -> Tube:
        """The tube of this name, created if need be."""
        tube = self.tubes.get(name)
        if tube is None:
            self.tubes_total += 1
            tube = self.tubes[name] = Tube(name, self.tubes_total)
            if self.events_kept:
                self.tubes_named.append((tube.number, name))
        return tube

    def drop_if_idle(self, tube: Tube) -> None:
        """Remove a tube that nothing refers to; `default` always exists."""
        if tube is not self.default and tube.is_idle():
            if tube.paused_until_us:
                self.pauses.remove((tube.paused_until_us, tube.name))
            del self.tubes[tube.name]
            self.ready_tubes.pop(tube.name, None)  # or it would grow forever where nobody looks

    def pause(self, tube: Tube, delay_s: int) -> None:
        """Pause a tube from now on; 0 ends a pause."""
        for image in self.images:
            image.keep_tube(tube)
        tube.pauses += 1
        tube.pause_s = delay_s
        self.transitions.append(delay_s << TRANSITION_BITS | TUBE)
        if tube.paused_until_us:
            self.pauses.remove((tube.paused_until_us, tube.name))
        if delay_s == 0:
            tube.paused_until_us = 0
            self.ready_tubes[tube.name] = None
            return
        tube.paused_until_us = self.now_us + delay_s * SECOND_US
        self.pauses.add((tube.paused_until_us, tube.name))

    def next_pause_end_us(self) -> int | None:
        """When the first pause ends; None if no tube is paused."""
        first = self.pauses.first()
        return None if first is None else first[0]

    def end_pauses(self, budget: int) -> int:
        """End the pauses that are due; returns what is left of the budget."""
        pauses = self.pauses
        while budget:
            first = pauses.first()
            if first is None or first[0] > self.now_us:
                break
            pauses.pop_first()
            tube = self.tubes[first[1]]
            for image in self.images:
                image.keep_tube(tube)
            tube.paused_until_us = 0
            tube.pause_s = 0
            self.ready_tubes[tube.name] = None
            self.transitions.append(TUBE)
            budget -= 1
        return budget

    # --- what is asked for ----------------------------------------------------------------------

    def put(
        self,
        tube: Tube,
        priority: int,
        delay_s: int,
        ttr_s: int,
        body: bytes,
        session: Holder,
    ) -> Job:
        """Create a job, ready or delayed."""
        job_id = self.next_id
        self.next_id = job_id + 1
        job = Job(job_id, tube, priority, delay_s, ttr_s, body, self.now_us)
        self.jobs.add(job)
        self.body_bytes += len(body)
        self.jobs_total += 1
        for image in self.images:
            image.keep_tube(tube)
        tube.jobs_total += 1
        self.transitions.append(job_id << TRANSITION_BITS | PUT)
        if delay_s:
            self.make_delayed(job, delay_s)
        else:
            self.make_ready(job)
        self.emit(e.PUT, GONE, job, session)
        return job

    def reserve_first(self, key: int, session: Holder) -> Job:
        """Reserve the ready job of this key, which `first_ready` of its tube just returned."""
        job = self.jobs[key & ID_MASK]
        tube = job.tube
        for image in self.images:
            image.keep(job)
            image.keep_holder(session)
        tube.ready.pop_first()
        self.ready -= 1
        tube.ready_count -= 1
        if job.priority < URGENT_BELOW:
            self.urgent -= 1
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

    def touch(self, job: Job) -> None:
        """Start a reserved job's TTR anew."""
        for image in self.images:
            image.keep(job)
        self.timers.remove(job.due_us, job.id)
        job.order = self.now_us
        job.due_us = self.now_us + job.ttr_s * SECOND_US
        self.timers.add(job.due_us, job.id)
        self.transitions.append(job.id << TRANSITION_BITS | TOUCH)
        self.emit(e.TOUCHED, RESERVED, job, job.holder)

    def release(self, job: Job, priority: int, delay_s: int) -> None:
        """The holder gives a job back, ready or delayed."""
        holder = job.holder
        self.take(job)
        job.priority = priority
        job.delay_s = delay_s
        job.releases = (job.releases + 1) & U32_MAX
        if delay_s:
            self.make_delayed(job, delay_s)
        else:
            self.make_ready(job)
        self.emit(e.RELEASED, RESERVED, job, holder)

    def give_back(self, job: Job, reason: int) -> None:
        """A reserved job becomes ready because nobody holds it any more; no counter moves."""
        holder = job.holder
        self.take(job)
        self.make_ready(job)
        self.emit(e.RETURNED, RESERVED, job, holder, reason)

    def bury(self, job: Job, priority: int) -> None:
        """The holder buries a job."""
        holder = job.holder
        self.take(job)
        job.priority = priority
        self.make_buried(job)
        self.emit(e.BURIED, RESERVED, job, holder)

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
        self.jobs.remove(job.id)
        self.body_bytes -= len(job.body)
        tube.deletes += 1
        self.transitions.append(job.id << TRANSITION_BITS | DELETE)
        self.emit(e.DELETED, before, job, session)
        self.effects.tell(job.id, DELETED, b"")
        self.drop_if_idle(tube)

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
        state = job.state
        if state == RESERVED:
            self.reserved -= 1
            tube.reserved_count -= 1
            holder = job.holder
            assert holder is not None, "a reserved job has a holder"
            del holder.reserved[job.id]
            job.holder = None
            self.timers.remove(job.due_us, job.id)
        elif state == READY:
            self.ready -= 1
            tube.ready_count -= 1
            if job.priority < URGENT_BELOW:
                self.urgent -= 1
                tube.urgent_count -= 1
            tube.drop_ready(job)
        elif state == DELAYED:
            self.delayed -= 1
            tube.delayed_count -= 1
            self.timers.remove(job.due_us, job.id)
            tube.drop_delayed(job)
        else:
            assert state == BURIED, state
            self.buried -= 1
            del tube.buried[job.id]
        job.state = GONE
        return state

    def make_ready(self, job: Job) -> None:
        """A job that is in no order becomes ready."""
        tube = job.tube
        job.state = READY
        job.due_us = 0
        job.ready_us = self.now_us
        self.ready += 1
        tube.ready_count += 1
        if job.priority < URGENT_BELOW:
            self.urgent += 1
            tube.urgent_count += 1
        tube.push_ready(job)
        self.ready_tubes[tube.name] = None
        self.transitions.append(job.id << TRANSITION_BITS | MADE_READY)

    def make_delayed(self, job: Job, delay_s: int) -> None:
        """A job that is in no order becomes delayed."""
        tube = job.tube
        job.state = DELAYED
        job.due_us = due_us = self.now_us + delay_s * SECOND_US
        self.delayed += 1
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
        self.buried += 1
        job.tube.buried[job.id] = job
        self.transitions.append(job.id << TRANSITION_BITS | BURY)

    def make_reserved(self, job: Job, session: Holder) -> None:
        """A job that is in no order becomes reserved by `session`, for its TTR."""
        job.state = RESERVED
        job.holder = session
        job.reserves = (job.reserves + 1) & U32_MAX
        job.order = job.reserved_us = self.now_us
        job.due_us = due_us = self.now_us + job.ttr_s * SECOND_US
        self.reserved += 1
        job.tube.reserved_count += 1
        session.reserved[job.id] = job
        self.timers.add(due_us, job.id)
        self.transitions.append(job.id << TRANSITION_BITS | RESERVE)

    def emit(
        self, kind: int, before: int, job: Job, session: Holder | None, reason: int = e.NO_REASON
    ) -> None:
        """Append the event of a transition that is complete.

        Args:
            kind: what happened (`events`).
            before: the state that the job had.
            job: the job as it is now.
            session: who did it, or who lost it; None if nobody.
            reason: why, where the kind does not say it (`events`).
        """
        self.events_total += 1
        if not self.events_kept:
            return
        wait_us = run_us = e.NO_TIME
        if before == RESERVED:
            if kind != e.TOUCHED:
                run_us = self.now_us - job.reserved_us
        elif before == READY and kind == e.RESERVED:
            wait_us = self.now_us - job.ready_us
        protocol, origin, incarnation, number = e.NO_PROTOCOL, e.NO_ORIGIN, 0, 0
        if session is not None:
            protocol, origin = session.protocol, session.origin
            incarnation, number = session.incarnation, session.number
        self.events += _pack_event(
            kind | protocol << 8 | before << 16 | job.state << 24 | reason << 32 | origin << 40,
            job.tube.number,
            job.id,
            job.priority | job.delay_s << 32,
            job.ttr_s | len(job.body) << 32,
            incarnation,
            number,
            job.reserves | job.timeouts << 32,
            job.releases | job.buries << 32,
            job.kicks,
            wait_us,
            run_us,
            job.ready_us,
        )

    # --- time -----------------------------------------------------------------------------------

    def begin_epoch(self, time_us: int, expiry_floor_us: int) -> None:
        """A leader took over at `time_us`: reservations until now last at least until the floor."""
        self.epoch_us = max(self.epoch_us, time_us)
        self.expiry_floor_us = max(self.expiry_floor_us, expiry_floor_us)

    def deadline_us(self, job: Job) -> int:
        """When a reservation ends."""
        if job.due_us < self.expiry_floor_us and job.order < self.epoch_us:
            return self.expiry_floor_us
        return job.due_us

    def expire(self, budget: int) -> int:
        """Act on due jobs, by (due time, id); returns what is left of the budget."""
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
                job.timeouts = (job.timeouts + 1) & U32_MAX
                self.timeouts += 1
                self.transitions.append(job_id << TRANSITION_BITS | TIMEOUT)
                self.make_ready(job)
                self.emit(e.TIMED_OUT, before, job, holder, e.TTR)
            else:
                self.make_ready(job)
                self.emit(e.DUE, before, job, None)
        return budget
