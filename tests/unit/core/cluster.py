"""A machine with the bookkeeping of origins and leader, for the tests of `core`.

It assigns indices, times and batch numbers to entries. Expected results belong in the tests.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgpack

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import SECOND_US
from beanpole.core.applied import Applied
from beanpole.core.image.image import Image, pack
from beanpole.core.image.restore import load
from beanpole.core.jobs.job import STATE_NAMES
from beanpole.core.machine import Machine

DEFAULT = b"default"
# The arguments of `Machine.apply`: (index, flags, time us, wall us, sections).
Entry = tuple[int, int, int, int, list[c.Section]]


class Event(NamedTuple):
    """A record of the machine's events, as `beanpole.events.RECORD` has it."""

    kind: int
    protocol: int
    before: int
    state: int
    reason: int
    origin: int
    host: int
    tube: int
    job: int
    priority: int
    delay_s: int
    ttr_s: int
    body_bytes: int
    incarnation: int
    session: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    wait_us: int
    run_us: int
    ready_us: int


class Cluster:
    """One machine, the log that it applied, and shorthands for the commands of clients."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.time_us = SECOND_US
        self.log: list[Entry] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self.incarnations: dict[int, int] = {}
        self.requests = 0

    # --- entries --------------------------------------------------------------------------------

    def apply(self, sections: Iterable[c.Section] = (), flags: int = 0, own: int = 0) -> Applied:
        entry = (len(self.log) + 1, flags, self.time_us, 0, list(sections))
        self.log.append(entry)
        return self.machine.apply(*entry, own=own)

    def batch(self, *commands: c.Command, origin: int = 0, flags: int = 0) -> list[Any]:
        """Apply one batch in one entry; return the results, or [] if the batch was ignored."""
        applied = self.apply([self.section(*commands, origin=origin)], flags, origin)
        return applied.results[0][2] if applied.results else []

    def section(self, *commands: c.Command, origin: int = 0) -> c.Section:
        incarnation = self.incarnations.setdefault(origin, 1)
        number = self.numbers.get((origin, incarnation), 0) + 1
        self.numbers[origin, incarnation] = number
        return origin, incarnation, number, commands

    def do(self, *command: Any, origin: int = 0) -> Any:
        """Apply one command in one entry; return its result."""
        return self.batch(command, origin=origin)[0]

    def lead(self, *commands: c.Command) -> Applied:
        """Apply the leader's own commands in one entry."""
        return self.apply([(c.LEADER, 0, 0, commands)])

    def pass_s(self, seconds: float) -> Applied:
        """Let time pass, and show it to the machine by an entry without commands."""
        self.time_us += round(seconds * SECOND_US)
        return self.lead()

    # --- clients --------------------------------------------------------------------------------

    def open(self, session: int = 1, origin: int = 0) -> int:
        self.do(c.OPEN, session, origin=origin)
        return session

    def put(
        self,
        body: bytes = b"body",
        priority: int = 0,
        delay_s: int = 0,
        ttr_s: int = 60,
        tube: bytes = DEFAULT,
        session: int = 1,
    ) -> int:
        job_id = self.do(c.PUT, session, tube, priority, delay_s, ttr_s, body)
        assert isinstance(job_id, int)
        return job_id

    def grant(
        self, session: int = 1, origin: int = 0, request: int | None = None, behind: int = 0
    ) -> tuple[int, int]:
        """Apply a GRANT in one entry; return (outcome, job id or 0)."""
        if request is None:
            self.requests += 1
            request = self.requests
        incarnation = self.incarnations.get(origin, 1)
        applied = self.lead((c.GRANT, origin, incarnation, session, request, behind))
        outcome, job = applied.grants[0][4:]
        return outcome, 0 if job is None else job.id

    def reserve(self, session: int = 1, origin: int = 0) -> int:
        """Return the id of the job that a reserve gets, or 0."""
        return self.grant(session, origin)[1]

    # --- the state ------------------------------------------------------------------------------

    def state(self, job_id: int) -> bytes:
        job = self.machine.queue.jobs.get(job_id)
        return b"gone" if job is None else STATE_NAMES[job.state]

    def stats_job(self, job_id: int) -> dict[str, Any]:
        names = "id tube state pri age delay ttr left file reserves timeouts releases buries kicks"
        return dict(zip(names.split(), self.do(c.STATS_JOB, 1, job_id), strict=True))

    def stats_tube(self, name: bytes = DEFAULT) -> dict[str, Any]:
        names = (
            "name urgent ready reserved delayed buried total using watching waiting "
            "deletes pauses pause left"
        )
        return dict(zip(names.split(), self.do(c.STATS_TUBE, 1, name), strict=True))


def events_of(machine: Machine) -> list[Event]:
    """Return and clear the events that the machine has emitted."""
    events = [Event._make(values) for values in e.RECORD.iter_unpack(machine.queue.events)]
    machine.queue.events.clear()
    machine.queue.externals.clear()
    machine.queue.details.clear()
    return events


def image_of(machine: Machine) -> list[bytes]:
    """Return the whole image, taken at once."""
    image = Image(machine)
    chunks = chunks_of(image)
    image.close()
    return chunks


def with_chunk(machine: Machine, kind: str, value: Any) -> list[bytes]:
    """Return the image of a machine with one more chunk, at the end of the part of a kind."""
    chunks = image_of(machine)
    chunks.insert(chunks.index(pack([kind, None])), pack([kind, value]))
    return chunks


def changed(machine: Machine, kind: str, change: Callable[[Any], object]) -> list[bytes]:
    """Return the image of a machine with changed values in all chunks of a kind."""
    chunks = []
    for chunk in image_of(machine):
        values = msgpack.unpackb(chunk, strict_map_key=False)
        if values[0] == kind and values[1] is not None:
            change(values[1])
        chunks.append(pack(values))
    return chunks


def chunks_of(image: Image) -> list[bytes]:
    """Return the remaining chunks of an image in progress."""
    chunks = []
    while (chunk := image.next_chunk()) is not None:
        chunks.append(chunk)
    return chunks


def copy_of(machine: Machine) -> Machine:
    """Copy the machine through its image, in a program that knows all versions."""
    return load(image_of(machine), c.VERSION_MAX)
