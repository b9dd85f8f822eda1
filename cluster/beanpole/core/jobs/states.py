"""The states of jobs, and the steps into and out of each state.

This module maintains the indexes of jobs (orders, timers, totals, external ids, clients). A job
between two states is "in no order". `core.jobs.queue` combines the steps into transitions, and
emits the events.
"""

from beanpole.constants import JOB_ID_MAX, NOBODYS_TTR_US, U32_MAX, URGENT_BELOW
from beanpole.core.jobs import effects
from beanpole.core.jobs.extension import ATTACHMENT_BYTES, Extension
from beanpole.core.jobs.job import (
    BURIED,
    DELAYED,
    DONE,
    FAILED,
    GONE,
    READY,
    RESERVED,
    Holder,
    Job,
    Tube,
)
from beanpole.core.jobs.policies import Policies
from beanpole.core.jobs.prefixes import ANY
from beanpole.core.jobs.quotas import Quotas
from beanpole.core.jobs.rates import Bucket
from beanpole.core.jobs.store import Jobs
from beanpole.core.jobs.timers import Timers
from beanpole.core.jobs.transitions import (
    BURY,
    DELAY,
    MADE_READY,
    RESERVE,
    TRANSITION_BITS,
)
from beanpole.core.jobs.tubes import Tubes


class States(Tubes):
    """All jobs, indexed by state. The only subclass is `Attempts`.

    Attributes:
        timers: the ends of delays and TTRs, and deletions by retention policies.
        expiries: the ends of TTLs.
        moved: the ids of jobs whose sequence is not their id, by their sequences.
        policies: the policies of queues, and notes on the jobs that they took out of them.
        quotas: the quotas of users, and the jobs that count for them.
        has_aliases: whether the machine's version has aliases; no part of the state of its own.
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
        # Reservations from before the last EPOCH do not end before its floor: without a leader,
        # their workers could not touch them.
        self.epoch_us = 0
        self.expiry_floor_us = 0
        self.effects = effects.Effects()
        self.policies = Policies()
        self.quotas = Quotas()
        self.has_aliases = False

    def count_delivery(self, tube: Tube) -> None:
        """Count a job given out to a client that asked for any job, if the tube has a rate."""
        policy = self.policies.of(tube.name)
        if policy is not None and policy.rate:
            self.spend(tube, policy.rate, policy.rate_period_us)

    def deliverable(self, name: bytes, jobs: int) -> int:
        """Return how many of these jobs a queue may give out now by its rate."""
        policy = self.policies.of(name) if self.policies.rows else None
        if policy is None or not policy.rate:
            return jobs
        return min(jobs, self.rates.tokens(name, policy.rate, self.now_us))

    def look_at_rates(self, pattern: bytes) -> None:
        """Reset the buckets whose rate has changed, after a change of a policy."""
        stem = pattern.removesuffix(ANY)
        for name, bucket in list(self.rates.buckets.items()):
            if name.startswith(stem) and not self.has_rate(name, bucket):
                self.forget_rate(name)

    def has_rate(self, name: bytes, bucket: Bucket) -> bool:
        """Whether a queue's policy has the rate of its bucket."""
        policy = self.policies.of(name)
        return (
            policy is not None
            and policy.rate == bucket.rate
            and policy.rate_period_us == bucket.period_us
        )

    def put_last(self, job: Job, ext: Extension) -> None:
        """Give a job that is in no order a sequence behind all others."""
        if self.next_id > JOB_ID_MAX:
            return
        if ext.sequence != job.id:
            del self.moved[ext.sequence]
        ext.sequence = self.next_id
        self.next_id += 1
        self.moved[ext.sequence] = job.id

    def forget_progress(self, ext: Extension) -> None:
        """Clear the progress of a job that will be worked on from the beginning."""
        self.extension_bytes -= len(ext.progress)
        ext.progress = b""

    def keep_holder(self, holder: Holder) -> None:
        """Record a holder as it is for images in progress, because it is about to change."""
        for image in self.images:
            image.keep_holder(holder)

    def take(self, job: Job) -> int:
        """Take a job out of the order of its state; returns that state. The caller sets the next.

        Most changes of an existing job begin here, so this is where images in progress record the
        job as it was. Changes that do not call this notify the images themselves.
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
            if job.order < 0:
                job.order = 0
        elif state == BURIED:
            space.buried -= 1
            del tube.buried[job.id]
            if job.due_us:
                self.timers.remove(job.due_us, job.id)
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
        """Make a job ready that is in no order."""
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
        """Delay a job that is in no order."""
        tube = job.tube
        job.state = DELAYED
        job.due_us = due_us = self.now_us + delay_us
        if self.policies.rows:
            due_us = self._retain_delayed(job)
        tube.space.delayed += 1
        tube.delayed_count += 1
        tube.push_delayed(job)
        self.timers.add(due_us, job.id)
        self.transitions.append(job.id << TRANSITION_BITS | DELAY)

    def _retain_delayed(self, job: Job) -> int:
        """Bound the delay of a job by the retention of its policy; returns the due time."""
        policy = self.policies.of(job.tube.name)
        if policy is not None and policy.retain_delayed_us:
            end_us = self.now_us + policy.retain_delayed_us
            if end_us < job.due_us:
                job.order = -job.due_us
                job.due_us = end_us
        return job.due_us

    def make_buried(self, job: Job, result: bytes = b"") -> None:
        """Append a job that is in no order to the buried jobs.

        Clients that wait for a job of beanstalk see a failure with this result. Only protocols that
        know no burial have such clients, by an alias. To jobs of these protocols a burial is a
        pause: only administrators bury them.
        """
        job.state = BURIED
        job.due_us = 0
        job.order = self.next_order
        self.next_order += 1
        job.buries = (job.buries + 1) & U32_MAX
        tube = job.tube
        tube.space.buried += 1
        tube.buried[job.id] = job
        if self.policies.rows:
            policy = self.policies.of(tube.name)
            if policy is not None and policy.retain_buried_us:
                job.due_us = self.now_us + policy.retain_buried_us
                self.timers.add(job.due_us, job.id)
        self.transitions.append(job.id << TRANSITION_BITS | BURY)
        # In a version without aliases no client waits for a job of beanstalk, and a burial has no
        # effect.
        if job.ext is None and self.has_aliases:
            self.effects.record(job.id, effects.FAILED, result)

    def make_reserved(self, job: Job, session: Holder) -> None:
        """Reserve a job that is in no order for its TTR; `session` holds it if it has leases."""
        tube = job.tube
        space = tube.space
        job.state = RESERVED
        job.reserves = (job.reserves + 1) & U32_MAX
        job.order = job.reserved_us = self.now_us
        space.reserved += 1
        tube.reserved_count += 1
        ttr_us = job.ttr_us
        if session.leased:
            job.holder = session
            session.reserved[job.id] = job
        elif not ttr_us and job.ext is not None and job.ext.home.leased:
            ttr_us = NOBODYS_TTR_US
        if ttr_us:
            job.due_us = due_us = self.now_us + ttr_us
            self.timers.add(due_us, job.id)
        else:
            job.due_us = 0
        self.transitions.append(job.id << TRANSITION_BITS | RESERVE)

    def make_finished(self, job: Job, state: int, result: bytes) -> None:
        """Finish a job that is in no order: DONE or FAILED.

        The job is kept with its result until its TTL ends. A job without a TTL is removed at once,
        because its result would stay forever.
        """
        kind = effects.DONE if state == DONE else effects.FAILED
        self.effects.record(job.id, kind, result)
        ext = job.ext
        if ext is None or not ext.expires_us:
            self.forget(job)
            return
        job.state = state
        job.due_us = 0
        self.extension_bytes -= ext.detach_all(job.id) * ATTACHMENT_BYTES
        self.extension_bytes += len(result) - len(ext.result)
        ext.result = result
        tube = job.tube
        tube.finished_count += 1
        if state == DONE:
            tube.space.done += 1
        else:
            tube.space.failed += 1

    def add_extension(self, job: Job, ext: Extension) -> None:
        """Add a job to the indexes of the fields of its extension."""
        self.extension_bytes += ext.memory_bytes()
        if ext.external_id:
            ext.home.external_ids[ext.external_id] = job.id
        if ext.expires_us:
            self.expiries.add(ext.expires_us, job.id)
        if ext.sequence != job.id:
            self.moved[ext.sequence] = job.id

    def forget(self, job: Job) -> None:
        """Remove a job that is in no order from all indexes."""
        self.jobs.remove(job.id)
        size = len(job.body)
        self.body_bytes -= size
        job.tube.body_bytes -= size
        notes = self.policies.notes
        if notes:
            notes.pop(job.id, None)
        if self.quotas.counted:
            self.quotas.forget(job.id, size)
        ext = job.ext
        if ext is None:
            return
        self.extension_bytes -= ext.memory_bytes()
        ext.detach_all(job.id)
        if ext.external_id:
            del ext.home.external_ids[ext.external_id]
        if ext.expires_us:
            self.expiries.remove(ext.expires_us, job.id)
        if ext.sequence != job.id:
            del self.moved[ext.sequence]
