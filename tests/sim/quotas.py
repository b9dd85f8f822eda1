"""Quotas of users, counted a second time by the results of puts: docs/security.md as plain code.

Belongs here: which jobs count for which user, and whether another job is allowed. It shares nothing
with `core.jobs.quotas`; rights are in `rights`. `verdicts_users` calls it in the order of the log.
"""

from typing import Any, Final, NamedTuple

import msgpack

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.machine import Machine
from tests.sim.cluster import Violation
from tests.sim.rights import ANONYMOUS, Who

# Commands that make a job, with the index of its body.
BODIES: Final = {c.PUT: 6, c.PUT_KEYED: 6, c.ADD: -1, c.SUBMIT: -1}


class Room(NamedTuple):
    """A number of jobs and the bytes of their bodies: in use, or as a limit, where 0 means none."""

    jobs: int
    bytes: int


NO_LIMIT: Final = Room(0, 0)


class Counted(NamedTuple):
    """A job that counts for a user."""

    name: bytes  # its user's
    size: int


class QuotaJudge:
    """The quotas of one life.

    Attributes:
        refused: the number of puts for which their user had no room.
    """

    def __init__(self, trial: Machine) -> None:
        self.refused = 0
        self._trial = trial
        self._limits: dict[bytes, Room] = {}
        self._jobs: dict[int, Counted] = {}
        # Of qless: the users for whom jobs count, by job id, and for whom templates count, by jid.
        self._called: dict[int, bytes] = {}
        self._templates: dict[bytes, bytes] = {}
        # The sizes of all jobs and templates of qless before the call.
        self._known: dict[int | bytes, int] = {}

    def change(self, command: c.Command) -> None:
        """Apply an administrator's change of users."""
        if command[0] == c.SET_USER:
            jobs_max, bytes_max, *_ = (*command[4:], 0, 0)
            self._limits[command[2]] = Room(jobs_max, bytes_max)
        elif command[0] == c.DROP_USER:
            self._limits.pop(command[2], None)

    def look(self) -> None:
        """Drop what has gone from the counts, before a command."""
        jobs = self._trial.queue.jobs
        self._jobs = {job: one for job, one in self._jobs.items() if jobs.get(job) is not None}
        t = self._trial.qless
        self._called = {job: name for job, name in self._called.items() if job in t.by_id}
        self._templates = {jid: one for jid, one in self._templates.items() if jid in t.recurring}
        self._known = {job.id: len(job.data) for job in t.by_id.values()}
        self._known |= {jid: len(one.data) for jid, one in t.recurring.items()}

    def put(self, who: Who, command: c.Command, result: Any) -> None:
        """Check the result of a command that makes a job."""
        size = len(command[BODIES[command[0]]])
        name = who.name or ANONYMOUS
        limit, used = self._limits.get(name, NO_LIMIT), self._used(name)
        has_room = self._has_room(name, Room(1, size))
        job, is_known = result if isinstance(result, tuple) else (result, 0)
        if job > 0 and not is_known:
            if not has_room:
                raise Violation(f"{name!r} has {used} of {limit}, and put one more: {command}")
            if any(limit):
                self._jobs[job] = Counted(name, size)
        elif result == c.FULL:
            self.refused += not has_room
            if has_room and not self._has_policy(command[2]) and not self._is_full(command):
                raise Violation(f"{name!r} has {used} of {limit}, and was refused: {command}")

    def called(self, who: Who, command: c.Command, result: Any) -> None:
        """Check the result of a call of qless; `look` was called before it."""
        t, name = self._trial.qless, who.name or ANONYMOUS
        if result == (q.QUOTA, ()):
            self.refused += 1
            owner, size = self._asked(command, name)
            if self._has_room(owner, size):
                raise Violation(f"{owner!r} has {self._used(owner)}, and was refused: {command}")
            return
        made = (0, b"")  # the call, and the jid that it made or put again
        if command[2] in (q.PUT, q.RECUR) and result[0] == q.OK:
            made = command[2], msgpack.unpackb(command[5], use_list=False)[1]
        for template in t.recurring.values():
            owner = name if made == (q.RECUR, template.jid) else b""
            self._see(self._templates, template.jid, template.data, owner, command)
        for job in t.by_id.values():
            owner = name if made == (q.PUT, job.jid) else b""
            if not owner and job.id not in self._known:
                owner = self._templates.get(job.spawned_from, b"")
            self._see(self._called, job.id, job.data, owner, command)

    def _see(
        self, counted: dict[Any, bytes], key: int | bytes, data: bytes, owner: bytes, command: Any
    ) -> None:
        """Count a job or template; `owner` made it or put it again, empty if no client did."""
        more = Room(0, len(data) - self._known.get(key, 0))
        if key not in counted and any(self._limits.get(owner, NO_LIMIT)):
            counted[key] = owner
            more = Room(1, len(data))
        if not owner or key not in counted:
            return
        name = counted[key]
        limit, used = self._limits.get(name, NO_LIMIT), self._used(name)
        if (more.jobs and 0 < limit.jobs < used.jobs) or (
            more.bytes > 0 and 0 < limit.bytes < used.bytes
        ):
            raise Violation(f"{name!r} has {used} of {limit}, and put one more: {command}")

    def _asked(self, command: c.Command, name: bytes) -> tuple[bytes, Room]:
        """Return the user for whom a refused PUT or RECUR would have counted, and how much more."""
        args = msgpack.unpackb(command[5], use_list=False)
        t, jid, size = self._trial.qless, args[1], len(args[3])
        job = t.jobs.get(jid) if command[2] == q.PUT else None
        if job is not None and job.id in self._called:
            return self._called[job.id], Room(0, size - len(job.data))
        template = t.recurring.get(jid) if command[2] == q.RECUR else None
        if template is not None and jid in self._templates:
            return self._templates[jid], Room(0, size - len(template.data))
        return name, Room(1, size)

    def _has_room(self, name: bytes, more: Room) -> bool:
        limit, used = self._limits.get(name, NO_LIMIT), self._used(name)
        return not (
            0 < limit.jobs < used.jobs + more.jobs or 0 < limit.bytes < used.bytes + more.bytes
        )

    def _has_policy(self, name: bytes) -> bool:
        queue = self._trial.queue
        return queue.policies.of(queue.aliases.queue_of(name)) is not None

    def _is_full(self, command: c.Command) -> bool:
        """Whether a function of Gearman is at its own limit, as it was before a refusal."""
        tube = self._trial.queue.find(command[2])
        return command[0] == c.SUBMIT and tube is not None and tube.is_full(command[3])

    def _used(self, name: bytes) -> Room:
        t = self._trial.qless
        sizes = [one.size for one in self._jobs.values() if one.name == name]
        for number, owner in self._called.items():
            job = t.by_id.get(number)
            if job is not None and owner == name:
                sizes.append(len(job.data))
        for jid, owner in self._templates.items():
            if jid in t.recurring and owner == name:
                sizes.append(len(t.recurring[jid].data))
        return Room(len(sizes), sum(sizes))

    def ends_alike(self, name: str, machine: Machine) -> None:
        """Check that a node has the same counts at the end, whatever images it has loaded."""
        self.look()
        names = {one.name for one in self._jobs.values()}
        names |= {*self._called.values(), *self._templates.values()}
        names |= {user for user, limit in self._limits.items() if any(limit)}
        wanted = {one: (self._used(one), self._limits.get(one, NO_LIMIT)) for one in names}
        found = {
            one.name: (Room(one.jobs, one.bytes), Room(one.jobs_max, one.bytes_max))
            for one in machine.queue.quotas.usages.values()
        }
        if found != wanted:
            raise Violation(f"the quotas of {name} are {found}, and are to be {wanted}")
