"""Planted defects in the commands of Gearman's administrators: cancelled jobs, functions, limits.

The patches and their table; see `mutations` and `mutant_table`. Lives of whole nodes catch all.
"""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final

from beanpole import commands as c
from beanpole.core.jobs import effects
from beanpole.core.jobs.job import RESERVED, Tube
from beanpole.core.jobs.spaces import RANK_NORMAL
from beanpole.core.machine import Machine
from beanpole.core.operations import table
from beanpole.core.operations.checks import find_job, find_tube
from beanpole.events import GEARMAN
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpoled.frontends.gearman import listings
from beanpoled.frontends.gearman.admin import AdminSide
from beanpoled.frontends.gearman.client import ClientSide
from tests.sim.mutant import in_lives
from tests.sim.mutations import Patch

# --- jobs -----------------------------------------------------------------------------------------


def cancel_takes_running() -> list[Patch]:
    """`cancel job` takes a job from its worker, too."""
    delete = _handler(c.DELETE)

    def wrong(machine: Any, origin: Any, command: c.Command) -> Any:
        session = origin.sessions[command[1]]
        job = find_job(machine, origin, command)
        if job is None or session.space.number != GEARMAN:
            return delete(machine, origin, command)
        machine.queue.delete(job, session)
        return c.OK

    return _operation(c.DELETE, wrong)


def cancel_tells_nobody() -> list[Patch]:
    """The clients of a cancelled job are not told."""
    notification = ClientSide._notification

    def wrong(connection: Any, job_id: int, kind: int, data: bytes) -> bytes:
        return b"" if kind == effects.DELETED else notification(connection, job_id, kind, data)

    return [(ClientSide, "_notification", wrong)]


def cancel_is_ok() -> list[Patch]:
    """`cancel job` is answered OK although the job runs or does not exist."""
    return [(AdminSide, "_why_not_cancelled", lambda connection, handle: b"OK\r\n")]


def running_is_unknown() -> list[Patch]:
    """`cancel job` reports a running job as unknown."""
    unknown = b"ERR UNKNOWN_JOB\r\n"
    return [(AdminSide, "_why_not_cancelled", lambda connection, handle: unknown)]


# --- functions ------------------------------------------------------------------------------------


def drop_beside_workers() -> list[Patch]:
    """A function is dropped although workers offer it."""
    drop = _handler(c.DROP_QUEUE)

    def wrong(machine: Any, origin: Any, command: c.Command) -> Any:
        tube = find_tube(machine, origin.sessions[command[1]], command[2])
        if tube is None:
            return drop(machine, origin, command)
        watchers, tube.watchers = tube.watchers, 0
        result = drop(machine, origin, command)
        tube.watchers = watchers
        return result

    return _operation(c.DROP_QUEUE, wrong)


def last_cancel_drops() -> list[Patch]:
    """A function is dropped with its last job, if that job is cancelled."""
    delete = _handler(c.DELETE)

    def wrong(machine: Any, origin: Any, command: c.Command) -> Any:
        job = find_job(machine, origin, command)
        result = delete(machine, origin, command)
        if job is not None and job.tube.space.sticky and not job.tube.is_used():
            machine.queue.drop_queue(job.tube)
        return result

    return _operation(c.DELETE, wrong)


def create_makes_none() -> list[Patch]:
    """`create function` is answered, but makes nothing."""
    return _operation(c.CREATE_QUEUE, lambda machine, origin, command: c.OK)


# --- limits ---------------------------------------------------------------------------------------


def limit_is_one_more() -> list[Patch]:
    """A function may have one job more than its limit."""

    def wrong(tube: Tube, rank: int) -> bool:
        limit = tube.limits[(rank >= RANK_NORMAL) + (rank > RANK_NORMAL)]
        return 0 < limit < tube.ready_count + tube.delayed_count + tube.reserved_count

    return [(Tube, "is_full", wrong)]


def limit_is_one_less() -> list[Patch]:
    """A job is refused although the function has room for one."""

    def wrong(tube: Tube, rank: int) -> bool:
        limit = tube.limits[(rank >= RANK_NORMAL) + (rank > RANK_NORMAL)]
        return 0 < limit <= tube.ready_count + tube.delayed_count + tube.reserved_count + 1

    return [(Tube, "is_full", wrong)]


def limit_of_waiting() -> list[Patch]:
    """Running jobs do not count for the limit."""

    def wrong(tube: Tube, rank: int) -> bool:
        limit = tube.limits[(rank >= RANK_NORMAL) + (rank > RANK_NORMAL)]
        return 0 < limit <= tube.ready_count + tube.delayed_count

    return [(Tube, "is_full", wrong)]


# --- queries --------------------------------------------------------------------------------------


def unique_of_one_function() -> list[Patch]:
    """A unique id is looked up in the oldest function only."""

    def wrong(machine: Machine, sees: listings.Sees, unique: bytes) -> Iterator[bytes]:
        queue = machine.queue
        piece = next(listings.functions(machine, sees), [])
        for name, _ in piece[:1]:
            known = queue.spaces[GEARMAN].external_ids.get(name + b"\0" + unique, 0)
            job = queue.jobs.get(known)
            if job is not None and job.ext is not None:
                runs, clients = job.state == RESERVED, len(job.ext.clients)
                yield replies.status_unique(unique, True, runs, job.ext.progress, clients)
                return
        yield replies.status_unique(unique, False, False, b"", 0)

    return [(listings, "status_of_unique", wrong)]


def lists_of_this_node() -> list[Patch]:
    """`status` and other lists show what the node knows, which may be outdated."""
    ask = AdminSide._ask_alone

    def wrong(connection: Any, kind: int, command: c.Command, *asked: Any) -> None:
        if command[0] != c.STATS or kind == p.GET_STATUS_UNIQUE:
            ask(connection, kind, command, *asked)
            return
        connection._replies.reply(b"".join(connection._list(asked[0][0])))

    return [(AdminSide, "_ask_alone", wrong)]


def _handler(code: int) -> Callable[[Any, Any, c.Command], Any]:
    found: Callable[[Any, Any, c.Command], Any] = table.OPERATIONS[code].handler  # type: ignore[attr-defined]
    return found


def _operation(code: int, handler: Any) -> list[Patch]:
    """Return a patch that replaces the handler of one kind of commands in all machines."""
    other: Any = copy(table.OPERATIONS[code])
    other.handler = handler
    return [(table, "OPERATIONS", {**table.OPERATIONS, code: other})]


ADMINS: Final = (
    in_lives(
        "cancel_takes_running",
        "cancelled jobs: one that runs is taken from its worker",
        r"cancelled while it ran|cancelled, and given out",
        cancel_takes_running,
    ),
    in_lives(
        "cancel_tells_nobody",
        "cancelled jobs: their clients do not hear it",
        r"never heard of the end|waits for something|it heard ",
        cancel_tells_nobody,
        seed=3,
    ),
    in_lives(
        "cancel_is_ok",
        "cancelled jobs: OK is said of one that goes on",
        r"cancelled, and it goes on|it was not gone by that|cancelled twice",
        cancel_is_ok,
    ),
    in_lives(
        "running_is_unknown",
        "cancelled jobs: one that runs is said to be none",
        r"it is known all the time",
        running_is_unknown,
    ),
    in_lives(
        "drop_beside_workers",
        "functions: one is dropped although workers have it",
        r"was dropped beside a worker",
        drop_beside_workers,
        seed=3,
    ),
    in_lives(
        "last_cancel_drops",
        "functions: one goes with its last job",
        r"nobody dropped",
        last_cancel_drops,
    ),
    in_lives(
        "create_makes_none",
        "functions: one is created, and not there",
        r"created, and not there",
        create_makes_none,
    ),
    in_lives(
        "limit_is_one_more",
        "limits: one job more is taken",
        r"had \d jobs",
        limit_is_one_more,
    ),
    in_lives(
        "limit_is_one_less",
        "limits: one job less is taken",
        r"its limit was not reached",
        limit_is_one_less,
    ),
    in_lives(
        "limit_of_waiting",
        "limits: jobs that run do not count",
        r"had \d jobs",
        limit_of_waiting,
    ),
    in_lives(
        "unique_of_one_function",
        "reads: GET_STATUS_UNIQUE looks at one function",
        r"it has \[",
        unique_of_one_function,
    ),
    in_lives(
        "lists_of_this_node",
        "reads: `status` tells what its node knows",
        r"is not listed|is listed|never had so many jobs",
        lists_of_this_node,
        seed=3,
    ),
)
