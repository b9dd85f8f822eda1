"""Load the jobs of an image into the orders of their states; a contradiction is `Damaged`.

The fields of a record are in `core.image.records`; the rest of an image is loaded in
`core.image.restore`.
"""

from collections.abc import Iterator
from typing import Any, Final

from beanpole.constants import (
    CLIENTS_OF_JOB_MAX,
    DURATION_MAX_US,
    EXTERNAL_ID_MAX_BYTES,
    EXTRA_MAX_BYTES,
    PROGRESS_MAX_BYTES,
    RESULT_MAX_BYTES,
    U32_MAX,
    URGENT_BELOW,
)
from beanpole.core.image.records import job_of, user_of
from beanpole.core.jobs.aliases import ALIASES_SINCE
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.job import (
    BURIED,
    DELAYED,
    DONE,
    FAILED,
    READY,
    RESERVED,
    STATE_NAMES,
    Job,
    Tube,
)
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.spaces import NO_EXTERNAL_IDS, SPACES_SINCE
from beanpole.core.machine import Machine
from beanpole.core.operations.policies import POLICIES_SINCE
from beanpole.core.sessions import Session
from beanpole.errors import Damaged

_FINISHED: Final = (DONE, FAILED)


def load_jobs(
    machine: Machine, tubes: dict[int, Tube], sessions: dict[int, Session], chunks: Iterator[Any]
) -> None:
    """Load all jobs and the end of an image; tubes and sessions are given by serial number."""
    queue = machine.queue
    buried: list[Job] = []
    last_id = 0
    for kind, value in chunks:
        if kind == "end":
            if value != len(queue.jobs) or next(chunks, None) is not None:
                raise Damaged(f"the image holds {len(queue.jobs)} jobs and says {value}")
            break
        for record in value:
            user = user_of(record, machine.version)
            job = job_of(record, machine.version, tubes, sessions, queue.spaces)
            _check(job, machine.version)
            if not last_id < job.id < queue.next_id:
                raise Damaged(f"job {job.id} comes after job {last_id}")
            last_id = job.id
            if last_id in machine.qless.by_id:
                raise Damaged(f"job {last_id} is one of qless, too")
            _add(queue, job, user)
            if job.state == BURIED:
                buried.append(job)
    else:
        raise Damaged("the image ends before its end mark")
    if any(None in session.reserved.values() for session in sessions.values()):
        raise Damaged("a session holds a job that the image does not have")
    if any(queue.jobs.get(sequence) is not None for sequence in queue.moved):
        raise Damaged("the sequence of a job is the id of another")
    buried.sort(key=lambda job: job.order)
    for job in buried:
        job.tube.buried[job.id] = job
    for tube in tubes.values():
        _add_totals(tube)


def _check(job: Job, version: int) -> None:
    """Validate a job."""
    counters = (job.reserves, job.timeouts, job.releases, job.buries, job.kicks)
    # An event has 32 bits for each of these; a larger number would corrupt the next field.
    narrow = (job.rank, *counters)
    if min(narrow) < 0 or max(narrow) > U32_MAX:
        raise Damaged(f"job {job.id} has a number beyond 32 bits")
    if not (0 <= job.delay_us <= DURATION_MAX_US and 0 <= job.ttr_us <= DURATION_MAX_US):
        raise Damaged(f"job {job.id} has times beyond 32 bits of seconds")
    if version < POLICIES_SINCE and (job.order < 0 or (job.state == BURIED and job.due_us)):
        raise Damaged(f"job {job.id} is deleted by a policy before there were any")
    if job.order < 0 and job.state != DELAYED:
        raise Damaged(f"job {job.id} has the order {job.order}")
    holder, space = job.holder, job.tube.space
    # Since there are aliases, a session without leases may have reserved jobs in any queue.
    may_lack = not space.leased or version >= ALIASES_SINCE
    finished = job.state in _FINISHED
    if (
        job.state not in STATE_NAMES
        or (holder is None and job.state == RESERVED and not may_lack)
        or (holder is not None and not (job.state == RESERVED and holder.leased))
        or (finished and (job.ext is None or not job.ext.expires_us or version < SPACES_SINCE))
    ):
        raise Damaged(f"job {job.id} has the state {job.state}")
    if holder is not None and job.id not in holder.reserved:
        raise Damaged(f"job {job.id} is held by a session that does not know it")


def _add_extension(queue: Queue, job: Job, ext: Extension) -> None:
    """Validate the extension of a job, and add the job to its indexes."""
    space = ext.home
    strings = (ext.external_id, ext.progress, ext.result, ext.extra)
    longest = (EXTERNAL_ID_MAX_BYTES, PROGRESS_MAX_BYTES, RESULT_MAX_BYTES, EXTRA_MAX_BYTES)
    counters = (ext.attempts_max, ext.failures_max, ext.failures)
    if (
        space.conflict == NO_EXTERNAL_IDS
        or any(
            type(text) is not bytes or len(text) > bound
            for text, bound in zip(strings, longest, strict=True)
        )
        or ext.external_id in space.external_ids  # which never contains the empty id
        or min(*counters, ext.expires_us) < 0
        or max(counters) > U32_MAX
        or (ext.result and job.state not in _FINISHED)
        or type(ext.background) is not bool
        or len(ext.clients) > CLIENTS_OF_JOB_MAX
        or (ext.is_abandoned and job.state != RESERVED)
    ):
        raise Damaged(f"job {job.id} has an extension that cannot be")
    if ext.sequence != job.id and (
        not job.id < ext.sequence < queue.next_id or ext.sequence in queue.moved
    ):
        raise Damaged(f"job {job.id} has the sequence {ext.sequence}")
    queue.add_extension(job, ext)


def _add(queue: Queue, job: Job, user: bytes) -> None:
    """Add a job that counts for a user, or for none, to all indexes but the buried jobs."""
    queue.jobs.add(job)
    if job.holder is not None:
        job.holder.reserved[job.id] = job
    size = len(job.body)
    queue.body_bytes += size
    job.tube.body_bytes += size
    if user:
        queue.quotas.count(job.id, size, queue.quotas.in_image(user))
    if job.ext is not None:
        _add_extension(queue, job, job.ext)
    _place(queue, job)


def _place(queue: Queue, job: Job) -> None:
    """Add a job to the order and the timers of its state, without a transition.

    The order of buried jobs is not that of ids, so they are added when all jobs are there.
    """
    tube = job.tube
    if job.state == READY:
        tube.push_ready(job)
        tube.ready_count += 1
        tube.urgent_count += job.rank < URGENT_BELOW
    elif job.state == DELAYED:
        tube.push_delayed(job)
        tube.delayed_count += 1
        queue.timers.add(job.due_us, job.id)
    elif job.state == RESERVED:
        tube.reserved_count += 1
        if job.due_us:
            queue.timers.add(job.due_us, job.id)
    elif job.state == BURIED:
        if job.due_us:
            queue.timers.add(job.due_us, job.id)
    else:
        tube.finished_count += 1
        if job.state == DONE:
            tube.space.done += 1
        else:
            tube.space.failed += 1


def _add_totals(tube: Tube) -> None:
    """Add the counts of a tube to the totals of its space."""
    space = tube.space
    space.ready += tube.ready_count
    space.urgent += tube.urgent_count
    space.reserved += tube.reserved_count
    space.delayed += tube.delayed_count
    space.buried += len(tube.buried)
