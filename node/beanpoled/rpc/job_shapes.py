"""Messages of the gRPC service `JobAdmin` for a job and a queue.

This file defines which attributes are shown, and in which units. It searches for nothing.
"""

from typing import Final

from beanpole.core.jobs import display_names
from beanpole.core.jobs.job import DELAYED, READY, RESERVED, STATE_NAMES, Job, Tube
from beanpole.core.qless.tables import QlessQueue
from beanpole.core.sessions import DETACHED, Session
from beanpole.events import PROTOCOL_NAMES, QLESS, REASON_NAMES
from beanpole.pb import jobs_pb2
from beanpoled.rpc.job_scan import STATES
from beanpoled.shared.context import Context

# The end of a reservation by its worker's release: events have a kind for it, and no reason.
RELEASED: Final = "released"
_STATES: Final = {state: number for number, state in STATES.items()}
assert _STATES.keys() == STATE_NAMES.keys(), "every state of a job has its number"


def job(context: Context, one: Job, body_bytes: int, now_us: int) -> jobs_pb2.AdminJob:
    """Return the message of a job with up to `body_bytes` of its body, at a cluster time."""
    queue = context.machine.queue
    left_us = since_us = 0
    if one.state == RESERVED:
        due_us = queue.deadline_us(one)
        left_us = max(0, due_us - now_us) if due_us else 0
        since_us = max(0, now_us - one.reserved_us)
    elif one.state == DELAYED:
        left_us = max(0, one.due_us - now_us)
    elif one.state == READY:
        since_us = max(0, now_us - one.ready_us)
    found = jobs_pb2.AdminJob(
        id=one.id,
        queue=display_names.queue(one.tube.name),
        state=_STATES[one.state],
        body=one.body[:body_bytes],
        body_bytes=len(one.body),
        priority=one.rank,
        age_us=max(0, now_us - one.created_us),
        delay_us=one.delay_us,
        ttr_us=one.ttr_us,
        left_us=left_us,
        since_us=since_us,
        reserves=one.reserves,
        timeouts=one.timeouts,
        releases=one.releases,
        buries=one.buries,
        kicks=one.kicks,
    )
    if one.state == RESERVED:
        found.holder.CopyFrom(_holder(context, one))
    _add_extension(found, one, body_bytes, now_us)
    note = context.machine.queue.policies.notes.get(one.id)
    if note is not None:
        found.ended_in = display_names.queue(note.queue)
        found.ended_by = REASON_NAMES.get(note.reason, RELEASED)
    return found


def _holder(context: Context, one: Job) -> jobs_pb2.JobHolder:
    holder = one.holder
    if holder is None:
        return jobs_pb2.JobHolder()
    assert isinstance(holder, Session), "only sessions hold jobs"
    members = context.members
    return jobs_pb2.JobHolder(
        node=members[holder.origin] if holder.origin < len(members) else "",
        protocol=PROTOCOL_NAMES[holder.protocol],
        session=holder.number,
        incarnation=holder.incarnation,
        host=display_names.text(context.machine.hosts.names.get(holder.host, b"")),
        detached=holder.state == DETACHED,
    )


def _add_extension(found: jobs_pb2.AdminJob, one: Job, result_bytes: int, now_us: int) -> None:
    ext = one.ext
    if ext is None:
        return
    found.protocol = PROTOCOL_NAMES[ext.home.number]
    found.external_id = display_names.external_id(ext.home.number, ext.external_id)
    found.attempts_max = ext.attempts_max
    found.failures = ext.failures
    found.failures_max = ext.failures_max
    found.progress = ext.progress
    found.result = ext.result[:result_bytes]
    found.result_bytes = len(ext.result)
    found.ttl_left_us = max(0, ext.expires_us - now_us) if ext.expires_us else 0
    found.clients = len(ext.clients)


def queue(context: Context, tube: Tube, now_us: int) -> jobs_pb2.AdminQueue:
    """Return the message of a queue of any space but qless's."""
    its = context.machine.queue
    key = tube.first_ready()
    return jobs_pb2.AdminQueue(
        name=display_names.queue(tube.name),
        protocol=PROTOCOL_NAMES[tube.space.number],
        ready=tube.ready_count,
        reserved=tube.reserved_count,
        delayed=tube.delayed_count,
        buried=len(tube.buried),
        kept=tube.finished_count,
        jobs_total=tube.jobs_total,
        deletes=tube.deletes,
        producers=tube.users,
        workers=tube.watchers,
        pause_left_us=max(0, tube.paused_until_us - now_us) if tube.paused_until_us else 0,
        next_ready_us=max(0, now_us - its.ready_job(key).ready_us) if key else 0,
        aliases=[display_names.queue(name) for name in its.aliases.names_of(tube.name)],
        paused=tube.paused_until_us > now_us,
    )


def has_jobs(tube: Tube) -> bool:
    """Whether a queue has a job in any state."""
    waiting = tube.ready_count or tube.delayed_count or tube.buried
    return bool(waiting or tube.reserved_count or tube.finished_count)


def qless_queue(one: QlessQueue) -> jobs_pb2.AdminQueue:
    """Return the message of a qless queue: jobs that wait for a time or for others are delayed."""
    protocol = PROTOCOL_NAMES[QLESS]
    return jobs_pb2.AdminQueue(
        name=f"{protocol}{display_names.SEPARATOR}{display_names.text(one.name)}",
        protocol=protocol,
        ready=len(one.work),
        reserved=len(one.locks),
        delayed=len(one.scheduled) + len(one.depends) + len(one.throttled),
        paused=one.paused,
    )
