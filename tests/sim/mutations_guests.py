"""Planted defects of Workq and Gearman: in the kernel, the listeners and the frontends.

The patches and their table; see `mutations` and `mutant_table`. Lives of whole nodes catch all.
"""

from collections.abc import Iterator
from typing import Any, Final

from beanpole import commands as c
from beanpole.core.image import records
from beanpole.core.jobs import effects
from beanpole.core.jobs.extension import ATTACHMENT_BYTES, Extension
from beanpole.core.jobs.job import DONE, FAILED, RESERVED, Holder, Job
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.states import States
from beanpole.core.operations import extended
from beanpole.core.operations.checks import find_job
from beanpole.events import WORKQ
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.workq import replies as workq_replies
from beanpole.protocol.workq import requests as r
from beanpoled.frontends.gearman import client as gearman_client
from beanpoled.frontends.gearman import connection as gearman_connection
from beanpoled.frontends.gearman.client import ClientSide
from beanpoled.frontends.gearman.frontend import GearmanFrontend
from beanpoled.frontends.gearman.shared import Shared
from beanpoled.frontends.gearman.worker import WorkerSide
from beanpoled.frontends.listeners import Listeners
from beanpoled.frontends.workq import connection as workq_connection
from beanpoled.frontends.workq.connection import WorkqConnection
from beanpoled.origin.batches import KIND_QUIET
from beanpoled.origin.outbox import Origin as Outbox
from tests.sim.mutant import calm, in_lives
from tests.sim.mutations import Patch, nothing

# --- clients of jobs ------------------------------------------------------------------------------


def background_forgotten() -> list[Patch]:
    """A job goes with its last client, even if it was also submitted in background."""
    return [(Extension, "is_abandoned", property(lambda ext: not ext.clients))]


def background_not_joined() -> list[Patch]:
    """A background submission of a foreground job does not make the job stay."""
    return [(Queue, "keep_without_clients", nothing)]


def abandoned_lives() -> list[Patch]:
    """A job is not forgotten when its last client leaves."""

    def wrong(queue: Queue, job: Job, session: Holder) -> None:
        assert job.ext is not None
        for image in queue.images:
            image.keep(job)
        session.attached.remove(job.id)
        del job.ext.clients[session.serial]
        queue.extension_bytes -= ATTACHMENT_BYTES

    return [(Queue, "detach", wrong)]


def attachments_not_in_image() -> list[Patch]:
    """A node that starts from a snapshot takes all jobs for background jobs."""
    load = records.extension_of

    def wrong(job: Job, record: list[Any], *rest: Any) -> Extension:
        return load(job, [*record[:-3], True, [], record[-1]], *rest)

    return [(records, "extension_of", wrong)]


# --- workers --------------------------------------------------------------------------------------


def back_to_the_front() -> list[Patch]:
    """A job that comes back keeps its place before the waiting jobs."""
    return [(States, "put_last", nothing)]


def anybody_finishes() -> list[Patch]:
    """A worker ends a job that it does not hold."""
    return [(extended, "find_held", find_job)]


def short_timeouts() -> list[Patch]:
    """The time-out of a function is halved."""
    set_ttr = Queue.set_ttr

    def wrong(queue: Queue, job: Job, ttr_us: int) -> None:
        set_ttr(queue, job, ttr_us // 2)

    return [(Queue, "set_ttr", wrong)]


def returns_wake_nobody() -> list[Patch]:
    """A job that comes back wakes no worker."""
    give_back = Queue.give_back

    def wrong(queue: Queue, job: Job, *rest: Any) -> None:
        known = job.tube.name in queue.ready_tubes
        give_back(queue, job, *rest)
        if not known:
            queue.ready_tubes.pop(job.tube.name, None)

    return [(Queue, "give_back", wrong)]


def sleep_without_a_look() -> list[Patch]:
    """A worker sleeps although a job became ready since it last looked."""

    def wrong(listeners: Listeners, connection: Any, queues: Any) -> None:
        listeners.stop_waiting(connection)
        listeners._queues_of[connection] = tuple(queues)
        for name in queues:
            listeners._queues.setdefault(name, {})[connection] = None

    return [(Listeners, "wait", wrong)]


def given_up_stays() -> list[Patch]:
    """A worker that withdraws a function keeps the jobs that it holds of it."""

    def wrong(worker: Any, names: list[bytes]) -> None:
        for name in names:
            del worker._functions[name]
            worker._clients.origin.submit(worker, KIND_QUIET, (c.IGNORE, worker.number, name))

    return [(WorkerSide, "_give_up", wrong)]


# --- notifications --------------------------------------------------------------------------------


def one_listener_is_told() -> list[Patch]:
    """Only the first listener of a job is told of its effects."""

    def wrong(listeners: Listeners, number: int) -> Iterator[None]:
        job_id, kind, data = listeners._untold.popleft()
        listeners._untold_bytes -= len(data)
        listening = list(listeners._jobs.get(job_id, ()))
        if kind < effects.NOTIFIED_MIN:
            for connection in listening:
                listeners.stop_listening(connection, job_id)
        for connection in listening[:1]:
            connection.job_told(job_id, kind, data)
        return iter(())

    return [(Listeners, "_tellings_of", wrong)]


def effects_before_results() -> list[Patch]:
    """Listeners are told the effects of an entry before its results."""

    def wrong(listeners: Listeners, happened: list[effects.Effect]) -> None:
        listeners._tell(happened)

    return [(Listeners, "coming", wrong)]


def latest_of_all_jobs() -> list[Patch]:
    """The progress of one job replaces that of another job."""
    submit = Outbox.submit_latest

    def wrong(origin: Outbox, client: Any, kind: int, command: c.Command) -> Any:
        batch = origin._open
        same = [key for key in batch.latest if key[:2] == command[:2]]
        if client.batch is batch and same and same[-1][2] != command[2]:
            batch.latest[command[0], command[1], command[2]] = batch.latest[same[-1]]
        return submit(origin, client, kind, command)

    return [(Outbox, "submit_latest", wrong)]


def progress_dropped() -> list[Patch]:
    """Clients are not told the progress of a job."""
    notification = ClientSide._notification

    def wrong(connection: Any, job_id: int, kind: int, data: bytes) -> bytes:
        return b"" if kind == effects.PROGRESS else notification(connection, job_id, kind, data)

    return [(ClientSide, "_notification", wrong)]


def handles_of_nodes() -> list[Patch]:
    """Each node has handles of its own."""

    def wrong(frontend: Any, clients: Any, name: str) -> None:
        begin(frontend, clients, name)
        frontend._shared = Shared(clients.config.node_id, clients.host.call_soon)

    begin = GearmanFrontend.__init__
    return [(GearmanFrontend, "__init__", wrong)]


def uniques_of_all() -> list[Patch]:
    """A unique id is shared by all functions."""
    return [(gearman_client, "external_id", lambda function, unique, body, random: unique)]


def exception_is_complete() -> list[Patch]:
    """A client without the option gets an exception as a result."""

    def wrong(connection: Any, job_id: int, kind: int, data: bytes) -> bytes:
        if kind == effects.FAILED and data and not connection._exceptions:
            return replies.reply(p.WORK_COMPLETE, connection._shared.handle(job_id), data)
        return notification(connection, job_id, kind, data)

    notification = ClientSide._notification
    return [(ClientSide, "_notification", wrong)]


# --- Workq ----------------------------------------------------------------------------------------


def deleted_id_taken() -> list[Patch]:
    """A deleted job leaves its name behind."""
    delete = Queue.delete

    def wrong(queue: Queue, job: Job, session: Holder) -> None:
        space, ext = job.tube.space, job.ext
        delete(queue, job, session)
        if ext is not None and ext.external_id:
            space.external_ids[ext.external_id] = job.id

    return [(Queue, "delete", wrong)]


def last_result_wins() -> list[Patch]:
    """A job that has a result gets another one."""
    finish = vars(extended)["_finish"]

    def wrong(machine: Any, session: Any, job: Job | None, command: c.Command) -> int:
        if job is not None and job.state in (DONE, FAILED) and job.ext is not None:
            machine.queue.extension_bytes += len(command[4]) - len(job.ext.result)
            job.ext.result = command[4]
            return c.OK
        found: int = finish(machine, session, job, command)
        return found

    return [(extended, "_finish", wrong)]


def taken_id_accepted() -> list[Patch]:
    """An id in use is accepted, and the new job is dropped."""
    return [(extended, "REFUSE", -1)]


def short_ttl() -> list[Patch]:
    """A job is forgotten after half of its TTL."""
    add_extension = States.add_extension

    def wrong(queue: Queue, job: Job, ext: Extension) -> None:
        if ext.expires_us:
            ext.expires_us -= (ext.expires_us - queue.now_us) // 2
        add_extension(queue, job, ext)

    return [(States, "add_extension", wrong)]


def results_of_this_node() -> list[Patch]:
    """A result is looked up in what the node knows, which may be outdated."""
    ask = vars(WorkqConnection)["_result"]

    def wrong(connection: Any, request: Any) -> None:
        connection._session()
        if request[1] in connection._clients.machine.queue.spaces[WORKQ].external_ids:
            ask(connection, request)
        else:
            connection._replies.reply(workq_replies.NOT_FOUND)

    return [*_handlers(workq_connection, r.RESULT, wrong)]


def status_of_this_node() -> list[Patch]:
    """GET_STATUS is answered with what the node knows, which may be outdated."""

    def wrong(connection: Any, request: Any) -> None:
        handle = request[1][0]
        job = connection._clients.machine.queue.jobs.get(connection._shared.job_of(handle))
        runs = job is not None and job.state == RESERVED
        connection._replies.reply(replies.status(handle, job is not None, runs, b""))

    return [*_handlers(gearman_connection, p.GET_STATUS, wrong)]


def _handlers(module: Any, kind: int, handler: Any) -> list[Patch]:
    """Return a patch that replaces a frontend's handler of one kind of requests."""
    return [(module, "_HANDLERS", {**vars(module)["_HANDLERS"], kind: handler})]


GUESTS: Final = (
    in_lives(
        "background_forgotten",
        "clients of jobs: the last one that goes takes also a background job along",
        r"lost: |nobody deleted it",
        background_forgotten,
    ),
    in_lives(
        "background_not_joined",
        "clients of jobs: a background submission of a foreground job does not make it stay",
        r"lost: ",
        background_not_joined,
    ),
    in_lives(
        "abandoned_lives",
        "clients of jobs: a job is not forgotten when the last one goes",
        r"nobody waits for it",
        abandoned_lives,
    ),
    in_lives(
        "abandoned_waits",
        "clients of jobs: the same, and no worker has taken the job yet",
        r"waited for it are gone",
        abandoned_lives,
        seed=3,
    ),
    in_lives(
        "attachments_not_in_image",
        "clients of jobs: a snapshot forgets them",
        r"differs? ",
        attachments_not_in_image,
        seed=4,
    ),
    in_lives(
        "back_to_the_front",
        "workers: a job that comes back keeps its place",
        r"another one waited since",
        back_to_the_front,
    ),
    in_lives(
        "anybody_finishes",
        "workers: one ends a job that another has",
        r"another one had it",
        anybody_finishes,
        seed=6,
    ),
    in_lives(
        "short_timeouts",
        "workers: the time-out of a function is halved",
        r"two have it",
        short_timeouts,
        seed=3,
    ),
    in_lives(
        "given_up_stays",
        "workers: what one cannot do any more stays with it",
        r"jobs of .* are ready, \d workers sleep",
        given_up_stays,
        seed=16,
    ),
    in_lives(
        "returns_wake_nobody",
        "sleep: a job that comes back wakes no worker",
        r"sleeps beside a ready job|jobs of .* are ready, \d workers sleep",
        returns_wake_nobody,
        seed=54,
    ),
    in_lives(
        "sleep_without_a_look",
        "sleep: a worker sleeps beside a job that became ready just before",
        r"sleeps beside a ready job|jobs of .* are ready, \d workers sleep",
        sleep_without_a_look,
        seed=3,
    ),
    in_lives(
        "one_listener_is_told",
        "listeners: only the first one hears of the end of a job",
        r"never heard|waits for something",
        one_listener_is_told,
        seed=4,
    ),
    in_lives(
        "effects_before_results",
        "listeners: effects are told before the results of their entry",
        r"a guest was cut off",
        effects_before_results,
        seed=3,
        check=calm,
    ),
    in_lives(
        "latest_of_all_jobs",
        "listeners: the progress of one job takes the place of another's",
        r"was not told: ",
        latest_of_all_jobs,
        seed=3,
    ),
    in_lives(
        "progress_dropped",
        "listeners: progress is not told",
        r"it heard ",
        progress_dropped,
    ),
    in_lives(
        "exception_is_complete",
        "listeners: an exception is a result to clients without the option",
        r"it heard ",
        exception_is_complete,
    ),
    in_lives(
        "handles_of_nodes",
        "handles: each node has its own",
        r"handles of several kinds|does not wait for it",
        handles_of_nodes,
    ),
    in_lives(
        "uniques_of_all",
        "uniques: one is the same for all functions",
        r"another job has its handle",
        uniques_of_all,
    ),
    in_lives(
        "status_of_this_node",
        "reads: GET_STATUS tells what its node knows",
        r"Status\(",
        status_of_this_node,
        seed=3,
    ),
    in_lives(
        "results_of_this_node",
        "reads: `result` looks in what its node knows",
        r"it was there",
        results_of_this_node,
        seed=40,
    ),
    in_lives(
        "deleted_id_taken",
        "names: a deleted job leaves its own behind",
        r"no job had its id|differs",
        deleted_id_taken,
        seed=6,
    ),
    in_lives(
        "taken_id_accepted",
        "names: one that is taken is accepted",
        r"lost: |its id was taken",
        taken_id_accepted,
    ),
    in_lives(
        "last_result_wins",
        "results: a job that has one gets another",
        r"answered, but not done|ended so",
        last_result_wins,
    ),
    in_lives(
        "short_ttl",
        "results: a job is forgotten too early",
        r"its TTL ended after",
        short_ttl,
        seed=3,
    ),
)
