"""The replies to `inspect`, read from the machine of this node.

They are made when a barrier is answered: the machine then includes every command that was answered
on any node before the barrier was sent. `connection` sends the barrier.
"""

from collections.abc import Callable
from typing import Final

from beanpole.constants import SECOND_US
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.job import ID_MASK, Job, Tube
from beanpole.core.jobs.order import Order
from beanpole.core.jobs.queue import Queue
from beanpole.core.operations.checks import find_named
from beanpole.core.users import ANY_RIGHT
from beanpole.events import PROTOCOL_NAMES, WORKQ
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpole.protocol.workq.values import format_id, format_time
from beanpoled.frontends.clients import NO_RIGHT, Clients
from beanpoled.frontends.workq import jobs
from beanpoled.frontends.workq.shared import Shared
from beanpoled.origin.batches import Client

# The limit of a reply with jobs, which is made in one step of the node. The first job is always
# included; the client requests those after the last one with the next offset.
BODIES_MAX_BYTES: Final = 4 * 1024 * 1024
# As costly as a visit to a job: a thousand clients may ask for megabytes in one turn.
BYTES_A_JOB: Final = 1024


def weight(request: r.Request, clients: Clients) -> int:
    """Return how many queues, jobs or connections an inspect visits; large bodies count more."""
    kind = request[0]
    tubes = clients.machine.queue.tubes
    if kind == r.INSPECT_SERVER:
        return len(clients.connections)
    if kind == r.INSPECT_QUEUES:
        return len(tubes)
    if kind in (r.INSPECT_JOBS, r.INSPECT_SCHEDULED):
        tube = clients.machine.queue.find(jobs.PREFIX + request[1])
        if tube is None:
            return 1
        count = min(tube.ready_count + tube.delayed_count, int(request[2]) + r.LIMIT_MAX)
        return max(count, min(tube.body_bytes, BODIES_MAX_BYTES) // BYTES_A_JOB)
    if kind == r.INSPECT_JOB:
        job = find_named(clients.machine, clients.machine.queue.spaces[WORKQ], request[1])
        return 1 if job is None else len(job.body) // BYTES_A_JOB
    return 1


def answer(request: r.Request, clients: Clients, shared: Shared, client: Client) -> bytes:
    """Return the reply to an inspect."""
    if not _may(request, clients, client):
        clients.refused_client(NO_RIGHT)
        return replies.DENIED
    return _ANSWERS[request[0]](request, clients, shared, client)


def _may(request: r.Request, clients: Clients, client: Client) -> bool:
    """Whether a client has a right on the inspected object; a missing object needs none."""
    kind = request[0]
    if kind == r.INSPECT_SERVER:
        return True
    if kind == r.INSPECT_QUEUES:
        return clients.may_in_all_of(client, ANY_RIGHT, jobs.PREFIX)
    if kind == r.INSPECT_JOB:
        job = find_named(clients.machine, clients.machine.queue.spaces[WORKQ], request[1])
        return job is None or clients.may(client, ANY_RIGHT, job.tube.name)
    return clients.may(client, ANY_RIGHT, jobs.PREFIX + request[1])


def _server(request: r.Request, clients: Clients, shared: Shared, client: Client) -> bytes:
    # The real server announces two keys and writes three.
    host = clients.host
    # The wall clock may have been set right since.
    started_us = host.wall_us() - (host.now_us() - shared.started_us)
    active = sum([item.protocol == PROTOCOL_NAMES[WORKQ] for item in clients.connections])
    keys = (
        (b"active-clients", b"%d" % active),
        (b"evicted-jobs", b"%d" % clients.machine.queue.spaces[WORKQ].evicted),
        (b"started", format_time(started_us)),
    )
    return replies.inspected((replies.block(b"server", keys),))


def _queues(request: r.Request, clients: Clients, shared: Shared, client: Client) -> bytes:
    _, offset, limit = request
    queue = clients.machine.queue
    # There may be 100,000 names: pairing them with their queues takes longer than sorting.
    names = [name for name in queue.tubes if name.startswith(jobs.PREFIX)]
    aliases = [name for name in queue.aliases.queues if name.startswith(jobs.PREFIX)]
    aliases = [name for name in aliases if queue.find(name) is not None]
    # Their queues belong to other protocols.
    names += [name for name in aliases if clients.may(client, ANY_RIGHT, name)]
    found = [(name, queue.find(name)) for name in sorted(names)[offset : offset + limit]]
    return replies.inspected([_queue_block(name, tube) for name, tube in found if tube is not None])


def _queue(request: r.Request, clients: Clients, shared: Shared, client: Client) -> bytes:
    name = jobs.PREFIX + request[1]
    tube = clients.machine.queue.find(name)
    return replies.NOT_FOUND if tube is None else replies.inspected((_queue_block(name, tube),))


def _queue_block(name: bytes, tube: Tube) -> bytes:
    keys = (
        (b"ready-len", b"%d" % tube.ready_count),
        (b"scheduled-len", b"%d" % tube.delayed_count),
    )
    return replies.block(name[len(jobs.PREFIX) :], keys)


def _job(request: r.Request, clients: Clients, shared: Shared, client: Client) -> bytes:
    machine = clients.machine
    job = find_named(machine, machine.queue.spaces[WORKQ], request[1])
    if job is None:
        return replies.NOT_FOUND
    block = _job_block(machine.queue, job, shared.offset_us(machine))
    return replies.inspected((block,))


def _ready_jobs(request: r.Request, clients: Clients, shared: Shared, client: Client) -> bytes:
    """List the ready jobs of a queue, in the order in which they would be leased."""
    tube = clients.machine.queue.find(jobs.PREFIX + request[1])
    return replies.NOT_FOUND if tube is None else _page(request, clients, shared, tube.ready)


def _scheduled_jobs(request: r.Request, clients: Clients, shared: Shared, client: Client) -> bytes:
    tube = clients.machine.queue.find(jobs.PREFIX + request[1])
    return replies.NOT_FOUND if tube is None else _page(request, clients, shared, tube.delayed)


def _page(request: r.Request, clients: Clients, shared: Shared, order: Order) -> bytes:
    """List a page of an order, whose keys end in a job's id or in a key of `queue.moved`."""
    _, _, offset, limit = request
    queue = clients.machine.queue
    offset_us = shared.offset_us(clients.machine)
    blocks: list[bytes] = []
    size = 0
    for key in order.part(offset, limit):
        sequence = key & ID_MASK
        job = queue.jobs[queue.moved.get(sequence, sequence)]
        size += len(job.body)
        if blocks and size > BODIES_MAX_BYTES:
            break
        blocks.append(_job_block(queue, job, offset_us))
    return replies.inspected(blocks)


def _job_block(queue: Queue, job: Job, offset_us: int) -> bytes:
    """Format a job; `offset_us` converts cluster time to wall time."""
    ext = job.ext or Extension(0, b"", 0, 0, 0, job.tube.space)  # of a beanstalk job: defaults
    begun_us = job.created_us + job.delay_us  # when its TTL began
    keys = [
        (b"name", jobs.name_of(queue, job.tube)),
        (b"ttr", b"%d" % (job.ttr_us // jobs.MS_US)),
        (b"ttl", b"%d" % (max(0, ext.expires_us - begun_us) // jobs.MS_US)),
        (b"payload-size", b"%d" % len(job.body)),
        (b"payload", job.body),
        (b"max-attempts", b"%d" % ext.attempts_max),
        (b"attempts", b"%d" % job.reserves),
        (b"max-fails", b"%d" % ext.failures_max),
        (b"fails", b"%d" % ext.failures),
        (b"priority", b"%d" % jobs.priority(job)),
        (b"state", b"%d" % jobs.state(job)),
        (b"created", format_time(job.created_us + offset_us)),
    ]
    if job.delay_us:
        # It was given in whole seconds, and became a delay some milliseconds before the job began.
        keys.append((b"time", format_time(begun_us + offset_us + SECOND_US // 2)))
    return replies.block(format_id(jobs.external_id(job)), keys)


_ANSWERS: Final[dict[int, Callable[[r.Request, Clients, Shared, Client], bytes]]] = {
    r.INSPECT_SERVER: _server,
    r.INSPECT_QUEUES: _queues,
    r.INSPECT_QUEUE: _queue,
    r.INSPECT_JOB: _job,
    r.INSPECT_JOBS: _ready_jobs,
    r.INSPECT_SCHEDULED: _scheduled_jobs,
}
