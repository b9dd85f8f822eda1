"""Planted defects of queues that two protocols share.

The patches and their table; see `mutations` and `mutant_table`. Lives of whole nodes catch all; a
few of them have an alias.
"""

from collections.abc import Collection
from typing import Any, Final

from beanpole import commands as c
from beanpole.core.image import parts
from beanpole.core.jobs.job import FAILED, Job
from beanpole.core.operations import extended
from beanpoled.frontends.listeners import Listeners
from tests.sim.mutant import in_lives
from tests.sim.mutations import Patch, nothing


def alias_not_in_image() -> list[Patch]:
    """A node that starts from a snapshot knows no aliases."""
    part = parts.PARTS["aliases"]._replace(read=nothing)
    return [(parts, "PARTS", {**parts.PARTS, "aliases": part})]


def alias_wakes_nobody() -> list[Patch]:
    """Only clients that know a queue by its own name are woken."""

    def wrong(listeners: Listeners, names: Collection[bytes]) -> None:
        for name in names:
            listeners._note_ready(name)
        listeners._wake_some()

    return [(Listeners, "ready", wrong)]


def failed_is_gone() -> list[Patch]:
    """A job of beanstalk is removed when a worker of Gearman fails it."""
    finish = vars(extended)["_finish"]

    def wrong(machine: Any, session: Any, job: Job | None, command: c.Command) -> int:
        if job is not None and job.ext is None and command[3] == FAILED:
            machine.queue.finish(job, FAILED, b"", session)
            return c.OK
        found: int = finish(machine, session, job, command)
        return found

    return [(extended, "_finish", wrong)]


def done_is_buried() -> list[Patch]:
    """A job of beanstalk stays when a worker of Gearman completes it."""
    finish = vars(extended)["_finish"]

    def wrong(machine: Any, session: Any, job: Job | None, command: c.Command) -> int:
        if job is not None and job.ext is None:
            machine.queue.bury(job, job.rank, session)
            return c.OK
        found: int = finish(machine, session, job, command)
        return found

    return [(extended, "_finish", wrong)]


ALIASES: Final = (
    in_lives(
        "alias_not_in_image",
        "aliases: a snapshot forgets them",
        r"differs?\b",
        alias_not_in_image,
        seed=12,
    ),
    in_lives(
        "alias_wakes_nobody",
        "aliases: those that sleep by an alias are not woken",
        r"sleeps beside a ready job|of an alias are ready",
        alias_wakes_nobody,
        seed=39,
    ),
    in_lives(
        "failed_is_gone",
        "aliases: a job of beanstalk that fails at a worker of Gearman is gone",
        r"accepted, but not done|lost: put",
        failed_is_gone,
        seed=12,
    ),
    in_lives(
        "done_is_buried",
        "aliases: a job of beanstalk stays when a worker of Gearman has done it",
        r"accepted, but not done|a worker had completed it",
        done_is_buried,
        seed=12,
    ),
)
