"""Simulated Gearman workers: they sleep until they are woken, and end their jobs in all ways.

Their records are in `gearman`, beside the clients that submit jobs; the judging is in
`verdicts_gearman`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from tests.sim import packets as p
from tests.sim.cluster import Violation
from tests.sim.gearman import FUNCTIONS, End, Grant, Records
from tests.sim.guests import Guest
from tests.sim.packets import Packet, Packets, pack
from tests.sim.world import World

GRABS: Final = (p.GRAB_JOB, p.GRAB_JOB_UNIQ, p.GRAB_JOB_UNIQ, p.GRAB_JOB_ALL)
# A job of a worker with a time-out comes back after this.
TIMEOUT_S: Final = 1.5
# The number of jobs that one worker holds at most.
HANDS: Final = 3


class Worker(Guest):
    """A client that does jobs."""

    protocol = "gearman"

    def __init__(
        self,
        world: World,
        number: int,
        records: Records,
        able: bool,
        offers: tuple[bytes, ...] = FUNCTIONS,
    ) -> None:
        super().__init__(world, number)
        self.offers = offers
        self.records = records
        self.able = able  # it always offers all functions: at least one worker must
        self.calm = False  # it ends each job at once and successfully
        self.asleep = False
        self.naps = 0  # how often it fell asleep
        self.functions = offers
        self.hands: dict[bytes, Grant] = {}
        self.results = 0
        self._packets = Packets()
        self._timeouts = False
        # Open requests in order: the time of a grab, or the packets about a job before an echo.
        self._waiting: deque[float | list[End]] = deque()
        self._errors = 0  # errors since the last echo
        self._gave_up: dict[bytes, float] = {}  # functions that it gave up, and when

    def began(self) -> None:
        """See `Guest`."""
        self._packets = Packets()
        self._timeouts = self.dice.random() < 0.3
        self.functions = self.offers
        if not self.able and self.dice.random() >= 0.7:
            self.functions = self.offers[:1]
        self.send(pack(p.SET_CLIENT_ID, b"worker %d" % self.number))
        for function in self.functions:
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
        """Whether it sleeps and holds no job."""
        return self.asleep and not self._waiting and not self.hands

    def act(self) -> None:
        """Ask for the first job of a connection, or for another one."""
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
        if kind == p.ERROR:  # no majority, or no room: the request is not named
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
        """Settle all packets before an echo: the last ones, as many as the errors, were refused."""
        errors, self._errors = self._errors, 0
        now_s = self.world.clock.now_s
        if errors > len(said):
            raise Violation(f"worker {self.number} got {errors} errors for {len(said)} packets")
        # One status may replace others, also some before the last echo, and then has one error.
        certain = not errors or all(end.kind != p.WORK_STATUS for end in said)
        for place, end in enumerate(said):
            end.done_s = now_s
            if certain or place == len(said) - 1:
                end.accepted = place < len(said) - errors
        self.world.counts["gearman refused ends"] += errors

    def _nothing(self) -> None:
        if self.hands:
            self.later()  # it asks again when it has done some more
            return
        if self.dice.random() < 0.5:
            self._fall_asleep()
        else:  # it does something else before
            self._do(0.1 * self.dice.random(), self._fall_asleep)

    def _fall_asleep(self) -> None:
        if self._asks or self.hands or self.asleep:
            return
        self.asleep = True
        self.naps += 1
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
        gave_up_s = self._gave_up.get(grant.function, 0.0)
        if asked_s < gave_up_s:
            grant.given_up_s = gave_up_s  # the grab preceded the CANT_DO, which returned the job
            self._grab()
            return
        self.hands[grant.handle] = grant
        work_s = 0.01 if self.calm else self.dice.choice((0.0, 0.02, 0.1, 0.3, 2.0))
        self._do(work_s * self.dice.random(), lambda: self._middle(grant))
        if not self.calm and self.dice.random() < 0.3:
            self.later()  # and hold another job at the same time

    def _do(self, seconds: float, action: Callable[[], None]) -> None:
        wire = self.wire

        def act() -> None:
            if wire is self.wire:
                action()

        self.world.clock.after(seconds, act)

    def _say(self, grant: Grant, *said: tuple[int, bytes]) -> None:
        """Send packets about a job, and an echo after them."""
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
        """Perhaps send progress."""
        dice = self.dice
        if self.hands.get(grant.handle) is not grant:
            return  # given up, or returned to another worker or to this one
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
        """Withdraw a function and offer it again: its jobs here go to other workers."""
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
