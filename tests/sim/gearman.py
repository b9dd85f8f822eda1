"""Simulated Gearman clients: submitters and workers that speak the protocol's bytes.

A submitter sends jobs in foreground and background, some with the same unique, and keeps what it is
told of each; it breaks off, which abandons what it alone waited for. A worker sleeps until it is
woken, works, and ends its jobs in all ways, or goes away with them. Judging is in
`verdicts_gearman`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.sim import packets as p
from tests.sim.cluster import Violation
from tests.sim.guests import Guest
from tests.sim.history import Connected
from tests.sim.packets import Packet, Packets, pack
from tests.sim.world import World

FUNCTIONS: Final = (b"turn", b"twist")
UNIQUES: Final = (b"one", b"two", b"three")
# Of those whose unique is "-".
SHARED: Final = (b"the same", b"the other")
FOREGROUND: Final = (p.SUBMIT_JOB, p.SUBMIT_JOB, p.SUBMIT_JOB_HIGH, p.SUBMIT_JOB_LOW)
BACKGROUND: Final = (p.SUBMIT_JOB_BG, p.SUBMIT_JOB_HIGH_BG, p.SUBMIT_JOB_LOW_BG)
GRABS: Final = (p.GRAB_JOB, p.GRAB_JOB_UNIQ, p.GRAB_JOB_UNIQ, p.GRAB_JOB_ALL)
# A job of a worker with a time-out comes back after this.
TIMEOUT_S: Final = 1.5
# So many jobs at once in the hands of one worker.
HANDS: Final = 3


class Heard(NamedTuple):
    """What a submitter was told of a job, and when (true seconds)."""

    kind: int
    data: tuple[bytes, ...]  # without the handle
    at_s: float


class Submission:
    """One SUBMIT_JOB of any kind. `handle` is empty as long as there was no JOB_CREATED."""

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
        self.background = kind not in FOREGROUND
        self.at_s = at_s
        self.exceptions = exceptions  # the connection has the option
        self.handle = b""
        self.created_s: float | None = None
        self.refusal: tuple[bytes, ...] = ()

    @property
    def number(self) -> int:
        """The job's id: what a handle ends with."""
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
    """What a worker said of a job: its end, or news. `accepted` is None if that is not known."""

    __slots__ = ("accepted", "at_s", "data", "done_s", "kind")

    def __init__(self, kind: int, data: bytes, at_s: float) -> None:
        self.kind = kind
        self.data = data
        self.at_s = at_s
        self.done_s: float | None = None
        self.accepted: bool | None = None


class Grant:
    """A job in the hands of a worker."""

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
        self.news: list[End] = []  # what was said of it before
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


class Records:
    """What all Gearman clients of a life have seen."""

    def __init__(self) -> None:
        self.submissions: list[Submission] = []
        self.grants: list[Grant] = []
        self.statuses: list[Status] = []
        # What each connection was told of each job.
        self.heard: dict[tuple[Connected, bytes], list[Heard]] = {}
        self.handles: dict[bytes, None] = {}


class Submitter(Guest):
    """A client that has jobs done."""

    protocol = "gearman"

    def __init__(self, world: World, number: int, records: Records) -> None:
        super().__init__(world, number)
        self.records = records
        # Handles whose end is still to come, and how often each was submitted.
        self.open: dict[bytes, int] = {}
        self._copies = 0  # of the last packet that are still to come
        self.bodies = 0
        self._packets = Packets()
        self._exceptions = False
        # What is answered in order: a submission, or a handle and when it was asked for.
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
        """Whether it has nothing to wait for."""
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
            self.drop()  # in the middle of it
        else:
            self.later()

    def _submit(self) -> None:
        dice, visit, world = self.dice, self.visit, self.world
        assert visit is not None and self.wire is not None
        function = dice.choice(FUNCTIONS)
        luck = dice.random()
        self.bodies += 1
        data = b"%d-%d" % (self.number, self.bodies)
        unique = b"" if luck < 0.5 else b"-" if luck < 0.65 else dice.choice(UNIQUES)
        if unique == b"-":
            data = dice.choice(SHARED)
        kind = dice.choice(FOREGROUND + BACKGROUND)
        arguments = [function, unique, data]
        # The epoch is of the node's clock: what it makes of it is a delay.
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
                asked.refusal = packet.arguments
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
        """Note what is told of a job: once for each time that it was submitted, one by one."""
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


class Worker(Guest):
    """A client that does jobs."""

    protocol = "gearman"

    def __init__(self, world: World, number: int, records: Records, able: bool) -> None:
        super().__init__(world, number)
        self.records = records
        self.able = able  # always to do everything: one worker must be
        self.calm = False  # it ends each job at once, and well
        self.asleep = False
        self.hands: dict[bytes, Grant] = {}
        self.results = 0
        self._packets = Packets()
        self._timeouts = False
        # What is answered in order: when a job was asked for, or what was said of one.
        self._waiting: deque[float | list[End]] = deque()
        self._errors = 0  # behind what was said last
        self._gave_up: dict[bytes, float] = {}  # functions, and when

    def began(self) -> None:
        """See `Guest`."""
        self._packets = Packets()
        self._timeouts = self.dice.random() < 0.3
        able = FUNCTIONS if self.able or self.dice.random() < 0.7 else FUNCTIONS[:1]
        self.send(pack(p.SET_CLIENT_ID, b"worker %d" % self.number))
        for function in able:
            self._can_do(function)

    def _can_do(self, function: bytes) -> None:
        if self._timeouts:
            self.send(pack(p.CAN_DO_TIMEOUT, function, b"%d" % (TIMEOUT_S * 1000)))
        else:
            self.send(pack(p.CAN_DO, function))

    def left(self) -> None:
        """See `Guest`."""
        self._waiting.clear()
        self.hands.clear()
        self._gave_up.clear()
        self.asleep = False
        self._errors = 0

    @property
    def quiet(self) -> bool:
        """Whether it sleeps, and has nothing in its hands."""
        return self.asleep and not self._waiting and not self.hands

    def act(self) -> None:
        """Ask for the first job of a connection, or for one more."""
        if not self._asks and not self.asleep and len(self.hands) < HANDS:
            self._grab()

    @property
    def _asks(self) -> bool:
        return any(isinstance(asked, float) for asked in self._waiting)

    def _grab(self) -> None:
        now_s = self.world.clock.now_s
        self._waiting.append(now_s)
        self.expect(now_s, self._waiting)
        self.send(pack(self.dice.choice(GRABS)))

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        wire = self.wire
        for packet in self._packets.feed(data):
            self._one(packet)
            if wire is not self.wire:
                return

    def _one(self, packet: Packet) -> None:
        kind = packet.kind
        if kind == p.NOOP:
            self.world.counts["gearman wake-ups"] += self.asleep
            if self.asleep:
                self.asleep = False
                self._grab()
            return
        if kind == p.ERROR and packet.arguments[0] == b"JOB_NOT_FOUND":
            self._errors += 1
            return
        if kind == p.ERROR:  # no majority, or no room: what it was about is not told
            self.world.counts[f"gearman {packet.arguments[0].decode()}"] += 1
            self.drop()
            return
        if not self._waiting:
            raise Violation(f"worker {self.number} got {packet} for nothing")
        asked = self._waiting.popleft()
        if isinstance(asked, list):
            if kind != p.ECHO_RES:
                raise Violation(f"worker {self.number} got {packet} for an echo")
            self._settle(asked)
        elif kind in (p.JOB_ASSIGN, p.JOB_ASSIGN_UNIQ, p.JOB_ASSIGN_ALL):
            self._assigned(packet, asked)
        elif kind == p.NO_JOB:
            self._nothing()
        else:
            raise Violation(f"worker {self.number} got {packet} for a GRAB_JOB")

    def _settle(self, said: list[End]) -> None:
        """Everything that was said up to an echo is answered: the last ones were refused."""
        errors, self._errors = self._errors, 0
        now_s = self.world.clock.now_s
        if errors > len(said):
            raise Violation(f"worker {self.number} got {errors} errors for {len(said)} packets")
        # Of several statuses, one may stand for all, and has one error then.
        certain = not errors or sum(end.kind == p.WORK_STATUS for end in said) < 2
        for place, end in enumerate(said):
            end.done_s = now_s
            if certain or place == len(said) - 1:
                end.accepted = place < len(said) - errors
        self.world.counts["gearman refused ends"] += errors

    def _nothing(self) -> None:
        if self.hands:
            self.later()  # it looks again when it has done some more
            return
        self.asleep = True
        self.send(pack(p.PRE_SLEEP))
        if self.dice.random() < 0.02 and not self.calm:
            self.drop()

    # --- work -------------------------------------------------------------------------------------

    def _assigned(self, packet: Packet, asked_s: float) -> None:
        assert self.visit is not None
        now_s = self.world.clock.now_s
        grant = Grant(self.visit, asked_s, now_s, packet, TIMEOUT_S * self._timeouts)
        self.records.grants.append(grant)
        self.records.handles[grant.handle] = None
        self.world.counts["gearman grants"] += 1
        if asked_s < self._gave_up.get(grant.function, 0.0):
            grant.given_up_s = now_s  # it stood before the CANT_DO, which took the job back
            self._grab()
            return
        self.hands[grant.handle] = grant
        work_s = 0.01 if self.calm else self.dice.choice((0.0, 0.02, 0.1, 0.3, 2.0))
        self._do(work_s * self.dice.random(), lambda: self._middle(grant))
        if not self.calm and self.dice.random() < 0.3:
            self.later()  # and another one beside it

    def _do(self, seconds: float, action: Callable[[], None]) -> None:
        wire = self.wire

        def act() -> None:
            if wire is self.wire:
                action()

        self.world.clock.after(seconds, act)

    def _say(self, grant: Grant, *said: tuple[int, bytes]) -> None:
        """Send packets about a job, and an echo behind them."""
        data = b""
        now_s = self.world.clock.now_s
        found = []
        for kind, text in said:
            end = End(kind, text, now_s)
            found.append(end)
            (grant.ends if kind in p.ENDS else grant.news).append(end)
            arguments = () if kind == p.WORK_FAIL else tuple(text.split(b"/"))
            data += pack(kind, grant.handle, *arguments)
        self._waiting.append(found)
        self.expect(found, self._waiting)
        self.send(data + pack(p.ECHO_REQ, b"so far"))

    def _text(self) -> bytes:
        self.results += 1
        return b"%d:%d" % (self.number, self.results)

    def _middle(self, grant: Grant) -> None:
        """Perhaps say how it goes."""
        dice = self.dice
        if self.hands.get(grant.handle) is not grant:
            return  # given up, or back in other hands, perhaps in these
        if dice.random() < 0.3:
            said = [
                (p.WORK_STATUS, b"%d/9" % step) if dice.random() < 0.5 else
                (dice.choice((p.WORK_DATA, p.WORK_DATA, p.WORK_WARNING)), self._text())
                for step in range(dice.randint(1, 4))
            ]  # fmt: skip
            self._say(grant, *said)
            for other in self.hands.values():
                if other is not grant:
                    self._say(other, (p.WORK_STATUS, self._text().replace(b":", b"/")))
        self._do(0.05 * dice.random(), lambda: self._finish(grant))

    def _finish(self, grant: Grant) -> None:
        dice = self.dice
        if self.hands.get(grant.handle) is not grant:
            return
        luck = 1.0 if self.calm else dice.random()
        if luck < 0.06:
            self.drop()
            return
        if luck < 0.1:
            self._give_up(grant)
            return
        if luck < 0.16:
            self._end(grant, (p.WORK_FAIL, b""))
        elif luck < 0.22:
            self._end(grant, (p.WORK_EXCEPTION, self._text()))
        elif luck < 0.3:
            self._end(grant, (p.WORK_COMPLETE, self._text()), (p.WORK_COMPLETE, self._text()))
        else:
            self._end(grant, (p.WORK_COMPLETE, self._text()))

    def _end(self, grant: Grant, *said: tuple[int, bytes]) -> None:
        self._say(grant, *said)
        del self.hands[grant.handle]
        if not self._asks and not self.asleep:
            self._grab()

    def _give_up(self, grant: Grant) -> None:
        """It cannot do this any more, and then it can again: its jobs of this go to others."""
        now_s = self.world.clock.now_s
        for held in list(self.hands.values()):
            if held.function == grant.function:
                held.given_up_s = now_s
                del self.hands[held.handle]
        self.world.counts["gearman jobs given up"] += 1
        self._gave_up[grant.function] = now_s
        self.send(pack(p.CANT_DO, grant.function))
        self._can_do(grant.function)
        if not self._asks and not self.asleep:
            self._grab()
