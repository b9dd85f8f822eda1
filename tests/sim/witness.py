"""The committed log and its effects: one machine that applies every entry once, when first applied.

Every node's entries and digests are compared with it, and the verdicts on what clients saw use its
timeline of each job. It knows nothing of nodes, links or clients.
"""

from collections.abc import Callable
from typing import Any, Final

from crc32c import crc32c

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import SECOND_US
from beanpole.core.applied import GRANTED
from beanpole.core.jobs import transitions as q
from beanpole.core.jobs.job import RESERVED
from beanpole.core.jobs.queue import Queue
from beanpole.core.machine import Machine
from tests.sim import costs
from tests.sim.admin_log import AdminLog
from tests.sim.calls import Calls
from tests.sim.cluster import Violation
from tests.sim.costs import CountedJobs
from tests.sim.event_log import EventWitness
from tests.sim.functions import Functions
from tests.sim.stories import Everything, Stories

# A node's clock may run at another rate than true time; the simulation's rates stay below this.
RATE_MAX: Final = 0.06
# The delay between the stamp of an entry and the moment at which its proposal is seen.
STAMP_S: Final = 0.05
# A new leader knows cluster time once it has applied its EPOCH, a little after the first node.
CATCH_UP_S: Final = 1.0
# Two nodes hear the time over links with different delays: a new leader may be ahead by this.
HEARD_S: Final = 0.35
# After a change of leader, no reservation from before it ends within this time.
GRACE_S: Final = 2.0

JOB_KINDS: Final = frozenset(
    {
        *(q.PUT, q.MADE_READY, q.RESERVE, q.DELAY, q.BURY, q.DELETE, q.TOUCH, q.TIMEOUT),
        *(q.FINISH, q.EXPIRE),
    }
)
# Transitions after which a job is no longer reserved.
ENDS_HOLD: Final = frozenset({q.MADE_READY, q.DELAY, q.BURY, q.DELETE, q.FINISH, q.EXPIRE})


class Recorder(list[int]):
    """The machine's list of transitions, with the last contents kept when the machine clears it."""

    last: tuple[int, ...] = ()

    def clear(self) -> None:
        """Clear the list, and keep its contents in `last`."""
        self.last = tuple(self)
        super().clear()


class Emitted(bytearray):
    """The machine's events, with a CRC of those appended since it was last set to 0.

    The CRC stays when the events are taken out meanwhile.
    """

    crc = 0

    def __iadd__(self, records: Any, /) -> "Emitted":  # type: ignore[misc]
        """Append records."""
        self.crc = crc32c(records, self.crc)
        return super().__iadd__(records)

    @classmethod
    def watch(cls, queue: Queue) -> "Emitted":
        """Reset the CRC before the next entry."""
        if not isinstance(queue.events, cls):
            queue.events = cls(queue.events)
        queue.events.crc = 0
        return queue.events


class Event:
    """One transition of one job, and when its entry was proposed and first applied."""

    __slots__ = ("at_s", "index", "kind", "place", "priority", "session", "stamped_s")

    def __init__(self, kind: int, stamped_s: float, at_s: float, index: int, place: int) -> None:
        self.kind = kind
        self.stamped_s = stamped_s
        self.at_s = at_s
        self.index = index
        self.place = place  # among the transitions of its entry
        self.priority = 0
        # (origin, incarnation, session) of a RESERVE by a GRANT or a TAKE.
        self.session: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"({self.kind} at {self.at_s:.3f}, index {self.index})"


class Witness:
    """The committed log and its effects."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.machine = Machine()
        self._transitions = Recorder()
        self.machine.queue.transitions = self._transitions
        self._jobs = CountedJobs()
        self.machine.queue.jobs = self._jobs
        self.costs: dict[int, float] = {}  # index -> microseconds
        self.events = EventWitness()
        self.log: dict[int, tuple[int, bytes]] = {}
        # index -> (state hash, CRC of the entry's events, total number of events after it)
        self.outcomes: dict[int, tuple[int, int, int]] = {}
        self.proposed_s: dict[bytes, float] = {}
        # Jobs of the beanstalk protocol; those of other protocols have stories.
        self.jobs: dict[int, list[Event]] = {}
        self.bodies: dict[int, bytes] = {}
        self.tubes: dict[int, bytes] = {}
        self.stories = Stories()
        self.functions = Functions()
        self.calls = Calls(self.machine)
        self.admin_log = AdminLog(self.machine)
        self.applied_s: dict[int, float] = {}  # index -> when it was applied first
        self.times_us: dict[int, int] = {}  # index -> cluster time from there on
        self.machine.queue.effects.listened = Everything()
        self.downs: list[tuple[int, int, float]] = []  # (origin, incarnation that ended, when)
        self.pauses: list[tuple[bytes, float, bool]] = []  # tube, when, begins or ends
        self._timed_out: set[int] = set()  # in the current entry
        self._epoch_s = 0.0  # when the newest EPOCH was applied
        self._epoch_stamped_s = 0.0  # ... and proposed
        # When a new leader counted a downtime by a wall clock that had been set: cluster time may
        # be off by as much, and only the grace still protects older reservations.
        self.misled: list[float] = []
        self.epochs: list[float] = []  # when each was proposed
        self._time_us = 0  # the highest cluster time so far
        self._granted: set[tuple[int, int, int, int]] = set()
        self._pausing: dict[bytes, int] = {}
        # job -> (true time at which its TTR began at the earliest, seconds)
        self._held: dict[int, tuple[float, float]] = {}

    def proposed(self, entry: bytes) -> None:
        """Note when an entry was first proposed."""
        self.proposed_s.setdefault(entry, self._now_s())

    def committed(self, name: str, index: int, term: int, entry: bytes) -> None:
        """Compare an entry that a node is about to apply, and apply it if it is new."""
        known = self.log.get(index)
        if known is not None:
            if known != (term, entry):
                raise Violation(f"{name} applies another entry at {index} than an earlier node")
            return
        if self.log and index <= self.machine.index:
            raise Violation(f"{name} applies an entry at {index}, where others applied none")
        self.log[index] = (term, entry)
        self._apply(index, entry)

    def check_chain(self, name: str, index: int, state_hash: int) -> None:
        """Compare the state hash of a node that has applied an entry."""
        if self.outcomes[index][0] != state_hash:
            raise Violation(f"the machine of {name} differs after index {index}")

    def check_events(self, name: str, index: int, crc: int, total: int) -> None:
        """Compare the events of a node that has applied an entry, and how many it has had."""
        if self.outcomes[index][1:] != (crc, total):
            raise Violation(f"the events of {name} differ at index {index}, before offset {total}")

    def _apply(self, index: int, entry: bytes) -> None:
        machine, now_s = self.machine, self._now_s()
        stamped_s = self.proposed_s[entry]
        origins = {place: item.incarnation for place, item in machine.origins.items()}
        flags, time_us, wall_us, sections = c.decode_entry(entry)
        stood_us = machine.queue.now_us - time_us
        begins = bool(sections) and _is_epoch(sections[0])
        if begins:
            self._epoch_stamped_s = stamped_s
            self.epochs.append(stamped_s)
        machine.queue.events.clear()
        machine.queue.externals.clear()
        machine.queue.details.clear()
        emitted = Emitted.watch(machine.queue)
        self._jobs.looks = 0
        self._jobs.born.clear()
        applied = machine.apply(index, flags, time_us, wall_us, sections)
        taken = _taken(sections, bytes(emitted))
        self.costs[index] = costs.of_entry(
            len(entry),
            sum(len(section[3]) for section in sections),
            len(self._transitions.last),
            self._jobs.looks,
        )
        self.functions.applied(machine, now_s, index)
        self.calls.applied(applied.messages, now_s)
        self.admin_log.applied(now_s)
        self.applied_s[index] = now_s
        self.events.applied(machine, index, wall_us, sections)
        if machine.queue.now_us < self._time_us:
            raise Violation(f"entry {index} takes cluster time back")
        self._time_us = self.times_us[index] = machine.queue.now_us
        if applied.epoch:
            self._epoch_s = now_s
        elif stood_us > 0 and self.proposed_s[entry] > self._epoch_s + CATCH_UP_S:
            raise Violation(f"entry {index} is {stood_us} us behind cluster time: it stands")
        self.outcomes[index] = (machine.state_hash, emitted.crc, machine.queue.events_total)
        for origin, incarnation in applied.downs:
            self.downs.append((origin, incarnation, now_s))
        for origin, _ in applied.ups:
            if origins.get(origin):
                self.downs.append((origin, origins[origin], now_s))
        self._timed_out = {
            word >> q.TRANSITION_BITS
            for word in self._transitions.last
            if word & (1 << q.TRANSITION_BITS) - 1 == q.TIMEOUT
        }
        self._note_born(now_s, index)
        newest: dict[int, int] = {}
        for place, word in enumerate(self._transitions.last):
            kind = word & (1 << q.TRANSITION_BITS) - 1
            if kind in JOB_KINDS:
                newest[word >> q.TRANSITION_BITS] = kind
                event = Event(kind, stamped_s, now_s, index, place)
                self._note(word >> q.TRANSITION_BITS, event)
        self._check_wanted(newest)
        for origin, incarnation, session, request, outcome, job in applied.grants:
            if outcome == GRANTED and job is not None:
                granted = (origin, incarnation, session, request)
                if granted in self._granted:
                    raise Violation(f"request {granted} is granted a second job at {index}")
                self._granted.add(granted)
                event = self._reservation(job.id)
                event.session = (origin, incarnation, session)
        for job_id, taker in taken:
            event = self._reservation(job_id)
            event.session = taker
        known = {job_id for job_id, *_ in applied.effects if self.machine.queue.jobs.get(job_id)}
        self.stories.happened(applied.effects, known, now_s, index)
        self._note_pauses(now_s)

    def _note_born(self, now_s: float, index: int) -> None:
        """Note the jobs that an entry made, also those that it deleted again."""
        self.stories.born(self._jobs.born, now_s, index)
        for job in self._jobs.born:
            if job.id not in self.stories:
                self.bodies[job.id] = job.body
                self.tubes[job.id] = job.tube.name

    def _note_pauses(self, now_s: float) -> None:
        tubes = self.machine.queue.tubes
        for name in dict.fromkeys([*self._pausing, *tubes]):
            tube = tubes.get(name)
            until_us = 0 if tube is None else tube.paused_until_us
            if self._pausing.get(name, 0) != until_us:
                self._pausing[name] = until_us
                self.pauses.append((name, now_s, until_us != 0))

    def _check_wanted(self, newest: dict[int, int]) -> None:
        """Check that no worker got an abandoned job; `newest` has each job's last transition."""
        for job_id, kind in newest.items():
            job = self.machine.queue.jobs.get(job_id) if kind == q.RESERVE else None
            if (
                job is not None
                and job.ext is not None
                and not (job.ext.background or job.ext.clients)
            ):
                raise Violation(f"job {job_id} is given out, and nobody waits for it")

    def _reservation(self, job_id: int) -> Event:
        """Return the last RESERVE of a job."""
        events = self._events(job_id)
        return next(event for event in reversed(events) if event.kind == q.RESERVE)

    def _events(self, job_id: int) -> list[Event]:
        story = self.stories.get(job_id)
        return self.jobs[job_id] if story is None else story.events

    def _note(self, job_id: int, event: Event) -> None:
        job = self.machine.queue.jobs.get(job_id)
        if event.kind == q.PUT and job_id not in self.stories:
            self.jobs[job_id] = []
        self._events(job_id).append(event)
        if job is not None:
            event.priority = job.rank
        if event.kind == q.TIMEOUT:
            self._check_ttr(job_id, event.stamped_s)
        if event.kind == q.RESERVE and job is not None:
            self._held[job_id] = (event.stamped_s, job.ttr_us / SECOND_US)
        elif event.kind == q.TOUCH and job_id in self._held and job_id not in self._timed_out:
            # The floor of an epoch looks like a touch, but does not restart the TTR.
            now_us = self.machine.queue.now_us
            if job is not None and job.state == RESERVED and job.order == now_us < job.due_us:
                self._held[job_id] = (event.stamped_s, (job.due_us - now_us) / SECOND_US)
        elif event.kind in ENDS_HOLD:
            self._held.pop(job_id, None)

    def _check_ttr(self, job_id: int, now_s: float) -> None:
        """Check that a TTR did not end earlier in true time than clock errors explain (Q7)."""
        since_s, ttr_s = self._held[job_id]
        heard_s = HEARD_S if since_s < self._epoch_stamped_s else 0.0
        early = now_s - since_s < ttr_s * (1 - RATE_MAX) - STAMP_S - heard_s
        if early and not any(since_s < misled_s for misled_s in self.misled):
            raise Violation(
                f"the TTR of job {job_id} was {ttr_s} s and ended after {now_s - since_s:.3f} s"
            )
        passed_s = now_s - self._epoch_stamped_s
        if since_s < self._epoch_stamped_s and passed_s < GRACE_S * (1 - RATE_MAX) - STAMP_S:
            raise Violation(
                f"the TTR of job {job_id} ended {passed_s:.3f} s after a change of leader"
            )


def _taken(sections: list[c.Section], events: bytes) -> list[tuple[int, tuple[int, int, int]]]:
    """Return the jobs that TAKEs of an entry reserved, with their sessions.

    A RESERVE_JOB of the same session precedes its TAKEs, and so it gets its job if there is one.
    """
    takers: dict[tuple[int, int, int], set[int]] = {}
    for origin, incarnation, _, commands in sections:
        for command in commands if origin != c.LEADER else ():
            if command[0] in (c.TAKE, c.RESERVE_JOB):
                named = takers.setdefault((origin, incarnation, command[1]), set())
                named.add(command[2] if command[0] == c.RESERVE_JOB else 0)
    found = []
    for record in e.RECORD.iter_unpack(events) if takers else ():
        kind, origin, job, incarnation, session = (record[place] for place in (0, 5, 8, 13, 14))
        named = takers.get((origin, incarnation, session), set())
        if kind == e.RESERVED and 0 in named and job not in named:
            found.append((job, (origin, incarnation, session)))
    return found


def _is_epoch(section: c.Section) -> bool:
    commands = section[3]
    return section[0] == c.LEADER and bool(commands) and commands[0][:1] == (c.EPOCH,)
