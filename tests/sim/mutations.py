"""Planted defects of the nodes' code: each breaks one rule while it is planted.

A patch is (owner, name, replacement). Only the changes are here; the checks that must notice them
are in `mutants`. The repairs of the library are switched off by `Repairs` and need no patch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from beanpole import commands as c
from beanpole.core.image import image, jobs, records, restore
from beanpole.core.jobs.queue import Queue
from beanpole.core.keys import Keys
from beanpole.core.machine import Machine
from beanpole.storage import recovery
from beanpole.storage.segment import CLEAN, Ending
from beanpole.storage.wal import Wal
from beanpoled.disk.identity import REJOINING
from beanpoled.eventlog.store import EventLog
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.requests import RequestConnection
from beanpoled.leading import term
from beanpoled.leading.dispatching import Dispatcher
from beanpoled.leading.proposing import Proposer
from beanpoled.leading.unwaits import Unwaits
from beanpoled.links.link import Hello
from beanpoled.origin.batches import Batch, Wait
from beanpoled.origin.outbox import Origin
from beanpoled.peers.peers import Peers
from beanpoled.shared import clock
from beanpoled.shared.clock import ClusterClock
from beanpoled.turn.callbacks import ReplicaCallbacks
from beanpoled.turn.heartbeats import Heartbeats
from beanpoled.turn.introductions import Introductions
from beanpoled.turn.lifecycle import Lifecycle
from tests.sim.world import WatchedCallbacks

Patch = tuple[Any, str, Any]
Patches = Callable[[], list[Patch]]


@contextmanager
def planted(patches: Patches) -> Iterator[None]:
    """Plant a defect while the context lasts."""
    wanted = [(_home(owner, name), name, value) for owner, name, value in patches()]
    before = [(owner, name, _value(owner, name)) for owner, name, _ in wanted]
    for owner, name, value in wanted:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _home(owner: Any, name: str) -> Any:
    """Return the class, among an owner and its bases, or the module that defines a name."""
    bases = getattr(owner, "__mro__", (owner,) if hasattr(owner, "__dict__") else ())
    return next((base for base in bases if name in vars(base)), owner)


def _value(owner: Any, name: str) -> Any:
    """Return the value to restore: a class's descriptor; an object with slots has no dictionary."""
    return vars(owner)[name] if hasattr(owner, "__dict__") else getattr(owner, name)


def nothing(*_: Any) -> None:
    """Do nothing: the replacement of a step that is left out."""


def no_patch() -> list[Patch]:
    """No patch: the defect is a repair that is off."""
    return []


# --- time -----------------------------------------------------------------------------------------


def no_grace() -> list[Patch]:
    """The floor of an epoch is the epoch."""
    return [(term, "FLOOR_GRACE_US", 0)]


def late_floor() -> list[Patch]:
    """The floor takes effect only after the entry's time."""
    return [(Machine, "_raise_expiry_floor", nothing)]


def short_grace() -> list[Patch]:
    """The floor is as old as the leader's knowledge."""
    raise_floor = Machine._raise_expiry_floor

    def wrong(machine: Machine, commands: Any, behind_us: int) -> None:
        raise_floor(machine, commands, 0)

    return [(Machine, "_raise_expiry_floor", wrong)]


def nobody_asked() -> list[Patch]:
    """A leader that was down believes its wall clock, also when other nodes were up."""
    return [(Peers, "cluster_us", nothing)]


def pauses_count() -> list[Patch]:
    """A turn of the loop counts in full, however long it was."""
    return [(clock, "TURN_MAX_US", 10**15)]


def time_falls() -> list[Patch]:
    """The machine takes the time of every entry, later or not."""
    apply = Machine.apply

    def wrong(machine: Machine, index: int, flags: int, time_us: int, *rest: Any) -> Any:
        machine.queue.now_us = min(machine.queue.now_us, time_us)
        return apply(machine, index, flags, time_us, *rest)

    return [(Machine, "apply", wrong)]


def early_ttr() -> list[Patch]:
    """A reservation lasts four fifths of its TTR."""
    reserve = Queue.make_reserved

    def wrong(queue: Queue, job: Any, session: Any) -> None:
        reserve(queue, job, session)
        queue.timers.remove(job.due_us, job.id)
        job.due_us -= job.ttr_us // 5
        queue.timers.add(job.due_us, job.id)

    return [(Queue, "make_reserved", wrong)]


def fast_clock() -> list[Patch]:
    """A cluster clock is half as fast again."""
    advance = ClusterClock.advance

    def wrong(self: ClusterClock, step_us: int, majority_answers: bool) -> None:
        advance(self, step_us * 3 // 2, majority_answers)

    return [(ClusterClock, "advance", wrong)]


def growing_clock() -> list[Patch]:
    """A follower's estimate never follows the leader's clock down."""

    def receive(self: ClusterClock, term: int, cluster_us: int, now_us: int) -> None:
        if not self.leading and cluster_us >= self.estimate_us(now_us):
            self._base_us, self._received_at_us = cluster_us, now_us

    return [(ClusterClock, "receive", receive)]


def lonely_clock() -> list[Patch]:
    """The leader's clock runs while no majority answers."""
    advance = ClusterClock.advance

    def wrong(self: ClusterClock, step_us: int, majority_answers: bool) -> None:
        advance(self, step_us, True)

    return [(ClusterClock, "advance", wrong)]


def no_deadline() -> list[Patch]:
    """A waiting client is not warned that a job of its own is running out of time."""
    return [(Clients, "first_deadline_us", lambda clients, session: -1)]


def no_ticks() -> list[Patch]:
    """Time takes effect only when a client writes."""
    return [(Proposer, "_time_is_due", lambda self, now_us: False)]


# --- once and only once ---------------------------------------------------------------------------


def _batches(change: Callable[[Any, int, int], int]) -> list[Patch]:
    """Let `change(origin, incarnation, number)` alter an origin before a batch is examined."""
    take = Machine._batch

    def wrong(
        machine: Machine, index: int, incarnation: int, number: int, commands: Any, *rest: Any
    ) -> None:
        origin = machine.origins.get(index)
        if origin is not None:
            incarnation = change(origin, incarnation, number)
        take(machine, index, incarnation, number, commands, *rest)

    return [(Machine, "_batch", wrong)]


def applied_twice() -> list[Patch]:
    """A batch that comes again is applied again."""

    def change(origin: Any, incarnation: int, number: int) -> int:
        if incarnation == origin.incarnation and 1 < number < origin.next_number:
            origin.next_number = number
        return incarnation

    return _batches(change)


def dead_incarnation() -> list[Patch]:
    """A batch of an incarnation that was declared dead, or has ended, counts."""

    def change(origin: Any, incarnation: int, number: int) -> int:
        if incarnation == origin.incarnation:
            origin.alive = True
        elif incarnation < origin.incarnation and origin.alive:
            origin.next_number = number
            return int(origin.incarnation)
        return incarnation

    return _batches(change)


def gap_taken() -> list[Patch]:
    """A batch that comes too early counts, and those that it overtook are never applied."""

    def change(origin: Any, incarnation: int, number: int) -> int:
        if incarnation == origin.incarnation and number > origin.next_number:
            origin.next_number = number
        return incarnation

    return _batches(change)


def gap_ignored() -> list[Patch]:
    """Batches that the leader lost are not sent again."""
    return [(Origin, "resend", nothing)]


def not_sent_again() -> list[Patch]:
    """A new leader, or link, gets only new batches."""

    def send_all(origin: Origin) -> None:
        origin._first = True

    return [(Origin, "_send_all", send_all)]


def hasty_answer() -> list[Patch]:
    """DELETED is answered when the command is submitted, not when it is committed."""
    submit = Origin.submit

    def wrong(
        origin: Origin, client: Any, kind: int, command: c.Command, behind: Batch | None = None
    ) -> Batch:
        taken = submit(origin, client, kind, command, behind)
        # Only if it is alone in its pipeline, so that the reply belongs to the request.
        if command[0] == c.DELETE and client is not None and client._replies.pending == 1:
            taken.owners[-1] = (None, kind, taken.owners[-1][2])
            client.answered(kind, 1)
        return taken

    return [(Origin, "submit", wrong)]


# --- waits ----------------------------------------------------------------------------------------


def granted_twice() -> list[Patch]:
    """A second GRANT of one request takes a second job."""
    lead = Machine._lead

    def wrong(machine: Machine, command: c.Command, applied: Any) -> None:
        origin = machine.origins.get(command[1]) if command[0] == c.GRANT else None
        session = None if origin is None else origin.sessions.get(command[3])
        if session is not None:
            session.request_granted = 0
        lead(machine, command, applied)

    return [(Machine, "_lead", wrong)]


def none_beside_ready() -> list[Patch]:
    """NONE is answered without looking for ready jobs."""
    answer = Unwaits._answer

    def wrong(self: Unwaits, leaving: Any) -> None:
        queue = self._context.machine.queue
        tubes, queue.tubes = queue.tubes, {}
        try:
            answer(self, leaving)
        finally:
            queue.tubes = tubes

    return [(Unwaits, "_answer", wrong)]


def none_by_itself() -> list[Patch]:
    """An origin ends a wait without asking the leader."""

    def end_wait(origin: Origin, wait: Wait) -> None:
        if origin._waits._of_session.pop(wait.session, None) is wait:
            wait.client.wait_ended(None)

    return [(Origin, "end_wait", end_wait)]


def line_forgotten() -> list[Patch]:
    """Waiters of an origin that was silent for a moment are never served again."""
    return [(Dispatcher, "unpark", nothing)]


# --- lives of nodes -------------------------------------------------------------------------------


def no_fence() -> list[Patch]:
    """A node that is cut off keeps its clients."""
    return [(Lifecycle, "_watch_fence", nothing)]


def no_node_down() -> list[Patch]:
    """A dead node is never declared down."""
    return [(Heartbeats, "_declare_down", nothing)]


def deaf_to_its_death() -> list[Patch]:
    """A node that was declared down continues unchanged."""
    return [(Lifecycle, "went_down", nothing)]


def no_drain() -> list[Patch]:
    """A draining node takes puts."""
    return [(Lifecycle, "drain", nothing)]


def no_quit() -> list[Patch]:
    """`quit` ends nothing."""
    return [(RequestConnection, "_quit", nothing)]


def no_memory_of_replacement() -> list[Patch]:
    """A disk that began with --rejoin is not known as a replacement once it counts."""
    hello = Introductions.hello

    def wrong(self: Introductions, nonce: bytes) -> Hello:
        said = hello(self, nonce)
        return said._replace(replacement=said.standing == REJOINING)

    return [(Introductions, "hello", wrong)]


def other_machine() -> list[Patch]:
    """One node's machine counts differently for a moment."""
    apply = WatchedCallbacks.apply

    def wrong(node: WatchedCallbacks, index: int, number: int, entry: bytes) -> None:
        node.context.machine.queue.next_id += node.context.name == "n1" and 60 <= index < 65
        apply(node, index, number, entry)

    return [(WatchedCallbacks, "apply", wrong)]


def no_keys() -> list[Patch]:
    """No key is remembered."""
    return [(Keys, "remember", nothing)]


def image_forgets_keys() -> list[Patch]:
    """A node that starts from an image does not know the keys that were seen."""
    load = restore.load

    def wrong(*arguments: Any) -> Machine:
        machine = load(*arguments)
        machine.keys = Keys()
        return machine

    return [(restore, "load", wrong)]


def image_forgets_time() -> list[Patch]:
    """A node that starts from an image does not know since when jobs are ready."""
    job_of = records.job_of

    def wrong(*arguments: Any) -> Any:
        job = job_of(*arguments)
        job.ready_us = 0
        return job

    return [(jobs, "job_of", wrong)]


def snapshot_before_events() -> list[Patch]:
    """A snapshot cuts the log behind events that are only in memory."""
    return [(ReplicaCallbacks, "begin_image", lambda self: image.Image(self._context.machine))]


def events_kept_again() -> list[Patch]:
    """Events that the log replays after a restart are kept a second time."""
    follow = vars(EventLog)["_follow"]

    def wrong(self: EventLog, machine: Machine) -> None:
        follow(self, machine)
        machine.queue.events_kept = True

    return [(EventLog, "_follow", wrong)]


# --- disks ----------------------------------------------------------------------------------------


def failed_write_ignored() -> list[Patch]:
    """A failed write or sync of the log is ignored."""
    return [(Wal, "_fail", nothing)]


def damage_cut() -> list[Patch]:
    """Damage inside the log is taken for a torn tail."""

    def judge_ending(data: bytes, offset: int, base: int, seed: int) -> Ending:
        return Ending(CLEAN, "")

    return [(recovery, "judge_ending", judge_ending)]
