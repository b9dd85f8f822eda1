"""Simulated Gearman clients that submit jobs, and the records of these clients and of workers.

A submitter sends jobs in foreground and background, some with the same unique id, and records what
it is told of each. It also disconnects, which abandons the jobs that no other client waits for.
Workers are in `gearman_workers`, the judging in `verdicts_gearman`.
"""

from collections import deque
from typing import Final, NamedTuple

from tests.sim import packets as p
from tests.sim.cluster import Violation
from tests.sim.guests import Guest
from tests.sim.history import Connected
from tests.sim.packets import Packet, Packets, pack
from tests.sim.stories import FOREVER_S
from tests.sim.world import World

FUNCTIONS: Final = (b"turn", b"twist")
UNIQUES: Final = (b"one", b"two", b"three")
# The data of jobs whose unique id is "-".
SHARED: Final = (b"the same", b"the other")
FOREGROUND: Final = (p.SUBMIT_JOB, p.SUBMIT_JOB, p.SUBMIT_JOB_HIGH, p.SUBMIT_JOB_LOW)
BACKGROUND: Final = (p.SUBMIT_JOB_BG, p.SUBMIT_JOB_HIGH_BG, p.SUBMIT_JOB_LOW_BG)


class Heard(NamedTuple):
    """A packet to a submitter about a job, and its time (true seconds)."""

    kind: int
    data: tuple[bytes, ...]  # without the handle
    at_s: float


class Submission:
    """One SUBMIT_JOB of any kind. `handle` is empty until its JOB_CREATED."""

    def __init__(
        self,
        visit: Connected,
        kind: int,
        job: tuple[bytes, bytes, bytes],
        at_s: float,
        exceptions: bool,
    ) -> None:
        self.visit = visit
        self.function, self.unique, self.data = job
        self.kind = kind
        self.background = kind not in FOREGROUND
        self.at_s = at_s
        self.exceptions = exceptions  # the connection has the option `exceptions`
        self.handle = b""
        self.created_s: float | None = None
        self.refusal: tuple[bytes, ...] = ()
        self.refused_s: float | None = None

    @property
    def number(self) -> int:
        """The job's id, which ends the handle."""
        return int(self.handle.rpartition(b":")[2])

    def __repr__(self) -> str:
        kind = "background" if self.background else "foreground"
        return (
            f"client {self.visit.client} at {self.visit.node} [{self.at_s:.4f}, {self.created_s}] "
            f"{kind} {self.function!r} {self.unique!r} {self.data!r} -> {self.handle!r}"
        )


class Status(NamedTuple):
    """A GET_STATUS, and its answer."""

    handle: bytes
    at_s: float
    done_s: float
    known: bool
    running: bool


class End:
    """A worker's packet about a job: its end, or news. `accepted` is None if that is not known."""

    __slots__ = ("accepted", "at_s", "data", "done_s", "kind")

    def __init__(self, kind: int, data: bytes, at_s: float) -> None:
        self.kind = kind
        self.data = data
        self.at_s = at_s
        self.done_s: float | None = None
        self.accepted: bool | None = None


class Grant:
    """A job that a worker holds."""

    def __init__(
        self, visit: Connected, asked_s: float, at_s: float, packet: Packet, ttr_s: float
    ) -> None:
        self.visit = visit
        self.asked_s = asked_s
        self.at_s = at_s
        self.handle, self.function = packet.arguments[:2]
        self.unique = packet.arguments[2] if packet.kind == p.JOB_ASSIGN_UNIQ else None
        self.data = packet.arguments[-1]
        self.ttr_s = ttr_s  # 0: until the connection ends
        self.given_up_s: float | None = None  # by CANT_DO
        self.news: list[End] = []  # packets about it before its end
        self.ends: list[End] = []

    @property
    def number(self) -> int:
        """The job's id."""
        return int(self.handle.rpartition(b":")[2])

    def __repr__(self) -> str:
        ends = [(end.kind, end.data, end.at_s, end.done_s, end.accepted) for end in self.ends]
        return (
            f"worker {self.visit.client} at {self.visit.node} [{self.asked_s:.4f}, {self.at_s:.4f}]"
            f" {self.handle!r} {self.function!r} {self.data!r} {ends}"
        )


class Order:
    """A request of an administrator. `done_s` is None if it was not answered."""

    def __init__(self, kind: str, subject: bytes, limits: tuple[int, ...], at_s: float) -> None:
        self.kind = kind
        self.subject = subject  # a handle, a function or a unique
        self.limits = limits
        self.at_s = at_s
        self.done_s: float | None = None
        self.line = b""
        self.known = self.running = False  # of a unique id
        self.rows: dict[bytes, tuple[int, int]] = {}  # function -> (all jobs, running jobs)

    @property
    def until_s(self) -> float:
        """The latest time at which the request can have been done, if it was done."""
        return FOREVER_S if self.done_s is None else self.done_s

    @property
    def may_be_done(self) -> bool:
        """Whether it was answered with OK, or not at all."""
        return self.done_s is None or self.line == b"OK\r\n"

    def __repr__(self) -> str:
        until = "lost" if self.done_s is None else f"{self.done_s:.4f}"
        return (
            f"administrator [{self.at_s:.4f}, {until}] {self.kind} {self.subject!r} {self.limits} "
            f"-> {self.line!r} {(self.known, self.running)} {self.rows}"
        )


class Records:
    """The records of all Gearman clients of a life."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.submissions: list[Submission] = []
        self.grants: list[Grant] = []
        self.statuses: list[Status] = []
        # The packets that each connection received about each job.
        self.heard: dict[tuple[Connected, bytes], list[Heard]] = {}
        self.handles: dict[bytes, None] = {}


class Submitter(Guest):
    """A client that submits jobs."""

    protocol = "gearman"
    functions: tuple[bytes, ...] = FUNCTIONS
    uniques: tuple[bytes, ...] = UNIQUES
    mark: bytes = b""  # the beginning of its jobs' data

    def __init__(self, world: World, number: int, records: Records) -> None:
        super().__init__(world, number)
        self.records = records
        # Handles of unfinished jobs, and how often each was submitted.
        self.open: dict[bytes, int] = {}
        self._copies = 0  # copies of the last packet that are still to come
        self.bodies = 0
        self._packets = Packets()
        self._exceptions = False
        # Open requests in order: a submission, or a handle and when its status was asked for.
        self._waiting: deque[Submission | tuple[bytes, float]] = deque()

    def began(self) -> None:
        """See `Guest`."""
        self._packets = Packets()
        self._exceptions = self.dice.random() < 0.5
        if self._exceptions:
            self.send(pack(p.OPTION_REQ, b"exceptions"))

    def left(self) -> None:
        """See `Guest`."""
        self._waiting.clear()
        self.open.clear()
        self._copies = 0

    @property
    def quiet(self) -> bool:
        """Whether it waits for nothing."""
        return not self._waiting and not self.open

    def act(self) -> None:
        """See `Guest`."""
        if not self.active:
            return
        luck = self.dice.random()
        if luck < 0.015:
            self.drop()
            return
        if luck < 0.15 and self.records.handles:
            self._ask(self.dice.choice(list(self.records.handles)[-20:]))
        else:
            for _ in range(self.dice.choice((1, 1, 1, 3))):
                self._submit()
        if self.dice.random() < 0.01:
            self.drop()  # with requests open
        else:
            self.later()

    def _submit(self) -> None:
        dice, visit, world = self.dice, self.visit, self.world
        assert visit is not None and self.wire is not None
        function = dice.choice(self.functions)
        luck = dice.random()
        self.bodies += 1
        data = b"%b%d-%d" % (self.mark, self.number, self.bodies)
        unique = b"" if luck < 0.5 else b"-" if luck < 0.65 else dice.choice(self.uniques)
        if unique == b"-":
            data = self.mark + dice.choice(SHARED)
        kind = dice.choice(FOREGROUND + BACKGROUND)
        arguments = [function, unique, data]
        # The epoch is a time of the node's clock; the node turns it into a delay.
        if kind == p.SUBMIT_JOB_BG and dice.random() < 0.3 and not world.walls_move:
            kind = p.SUBMIT_JOB_EPOCH
            epoch = self.wire.host.wall_us() // 1_000_000 + dice.choice((-5, 0, 1, 2))
            arguments.insert(2, b"%d" % epoch)
        job = (function, unique, data)
        submission = Submission(visit, kind, job, world.clock.now_s, self._exceptions)
        self.records.submissions.append(submission)
        self._waiting.append(submission)
        self.expect(submission, self._waiting)
        world.counts["gearman submits"] += 1
        self.send(pack(kind, *arguments))

    def _ask(self, handle: bytes) -> None:
        asked = (handle, self.world.clock.now_s)
        self._waiting.append(asked)
        self.expect(asked, self._waiting)
        self.send(pack(p.GET_STATUS, handle))

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        for packet in self._packets.feed(data):
            if packet.kind in p.TOLD:
                self._heard(packet)
            elif packet.kind != p.OPTION_RES:
                self._answered(packet)

    def _answered(self, packet: Packet) -> None:
        now_s = self.world.clock.now_s
        if not self._waiting:
            raise Violation(f"client {self.number} got {packet} for nothing")
        asked = self._waiting.popleft()
        if isinstance(asked, Submission):
            if packet.kind == p.ERROR:
                asked.refusal, asked.refused_s = packet.arguments, now_s
                self.world.counts[f"gearman {packet.arguments[0].decode()}"] += 1
                return
            if packet.kind != p.JOB_CREATED:
                raise Violation(f"{packet} for {asked}")
            asked.handle, asked.created_s = packet.arguments[0], now_s
            self.records.handles[asked.handle] = None
            if not asked.background:
                self.open[asked.handle] = self.open.get(asked.handle, 0) + 1
        elif packet.kind == p.STATUS_RES and packet.arguments[0] == asked[0]:
            known, running = (flag == b"1" for flag in packet.arguments[1:3])
            self.records.statuses.append(Status(*asked, now_s, known, running))
        elif packet.kind != p.ERROR:
            raise Violation(f"{packet} for a GET_STATUS of {asked}")

    def _heard(self, packet: Packet) -> None:
        """Record a packet about a job, which comes once for each time the job was submitted."""
        handle, *data = packet.arguments
        if handle not in self.open:
            raise Violation(f"client {self.number} is told {packet}, and does not wait for it")
        assert self.visit is not None
        heard = self.records.heard.setdefault((self.visit, handle), [])
        if self._copies:
            self._copies -= 1
            if heard[-1][:2] != (packet.kind, tuple(data)):
                raise Violation(f"client {self.number} is told {packet} after {heard[-1]}")
        else:
            heard.append(Heard(packet.kind, tuple(data), self.world.clock.now_s))
            self._copies = self.open[handle] - 1
        if packet.kind in p.ENDS and not self._copies:
            del self.open[handle]
            self.world.counts["gearman results"] += 1
