"""A simulated administrator of Gearman: lines of text, with queries and jobs between them.

It cancels jobs of all clients, creates, limits and drops its own functions, tries to drop those of
others, and submits jobs in background where limits count. The judging is in `verdicts_admins`.
"""

from collections import deque
from typing import Final

from tests.sim import packets as p
from tests.sim.cluster import Violation
from tests.sim.gearman import BACKGROUND, FUNCTIONS, UNIQUES, Order, Records, Submission
from tests.sim.guests import Guest
from tests.sim.packets import Packet, Packets, pack
from tests.sim.stories import GEARMAN_PREFIX
from tests.sim.world import World

# Its own functions: one with limits and a worker, and one without a worker.
LIMITED: Final = b"ration"
IDLE: Final = b"shelf"
OWN: Final = (LIMITED, IDLE)
OWN_UNIQUES: Final = (*UNIQUES, b"only")
# It chooses among the newest jobs, most of which wait or run.
RECENT: Final = 4
# A handle of another cluster.
NOBODY: Final = b"H:nowhere:0"
# Pause between actions while it cleans up.
PAUSE_S: Final = 0.3
# Actions per second.
PACE: Final = 5.0


class Administrator(Guest):
    """One connection."""

    protocol = "gearman"

    def __init__(self, world: World, number: int, records: Records) -> None:
        super().__init__(world, number)
        self.records = records
        self.pace = PACE  # more than other guests: a life needs some orders
        self.calm = False  # it removes the jobs that no worker takes
        self.handles: list[bytes] = []  # of its own jobs
        self.bodies = 0
        self._packets = Packets()
        self._waiting: deque[Order | Submission] = deque()  # open requests in order

    def began(self) -> None:
        """See `Guest`."""
        self._packets = Packets()

    def left(self) -> None:
        """See `Guest`."""
        self._waiting.clear()

    @property
    def quiet(self) -> bool:
        """Whether it waits for nothing and has cleaned up."""
        return not self._waiting and not self._is_left()

    def _is_left(self) -> bool:
        queue = self.world.witness.machine.queue.tubes.get(GEARMAN_PREFIX + IDLE)
        return queue is not None and queue.ready_count > 0

    # --- requests ---------------------------------------------------------------------------------

    def act(self) -> None:
        """See `Guest`."""
        if self.calm:
            if self._is_left() and not self._waiting:
                self._order("drop", IDLE, b"drop function %b" % IDLE)
            self.later(PAUSE_S)
            return
        for _ in range(self.dice.choice((1, 1, 1, 3))):
            self._one()
        if self.dice.random() < 0.02:
            self.drop()  # with requests open
        else:
            self.later()

    def _one(self) -> None:
        dice, luck = self.dice, self.dice.random()
        if luck < 0.25:
            self._cancel()
        elif luck < 0.33:
            name = dice.choice(OWN)
            self._order("create", name, b"create function %b" % name)
        elif luck < 0.43:
            name = dice.choice(OWN) if dice.random() < 0.8 else dice.choice(FUNCTIONS)
            self._order("drop", name, b"drop function %b" % name)
        elif luck < 0.53:
            self._limit()
        elif luck < 0.63:
            self._ask_unique()
        elif luck < 0.68:
            self._order("status", b"", b"status")
        else:
            for _ in range(dice.choice((1, 1, 3, 5))):
                self._submit()

    def _order(self, kind: str, subject: bytes, line: bytes, limits: tuple[int, ...] = ()) -> Order:
        order = self._note(kind, subject, limits)
        self.send(line + self.dice.choice((b"\n", b"\r\n")))
        return order

    def _note(self, kind: str, subject: bytes, limits: tuple[int, ...] = ()) -> Order:
        order = Order(kind, subject, limits, self.world.clock.now_s)
        self.records.orders.append(order)
        self._waiting.append(order)
        self.expect(order, self._waiting)
        return order

    def _cancel(self) -> None:
        dice = self.dice
        handles = self.handles if dice.random() < 0.5 else list(self.records.handles)
        handle = dice.choice(handles[-RECENT:]) if handles else NOBODY
        self._order("cancel", handle, b"cancel job " + handle)

    def _limit(self) -> None:
        dice = self.dice
        numbers = dice.choice(((), (0,), (1,), (2,), (2,), (3,), (3, 1, 2), (0, 2, 1)))
        limits = numbers * 3 if len(numbers) == 1 else (*numbers, 0, 0, 0)[:3]
        words = [b"maxqueue", LIMITED, *(b"%d" % number for number in numbers)]
        self._order("limit", LIMITED, b" ".join(words), limits)

    def _ask_unique(self) -> None:
        unique = self.dice.choice(OWN_UNIQUES)
        self._note("unique", unique)
        self.send(pack(p.GET_STATUS_UNIQUE, unique))

    def _submit(self) -> None:
        dice, world, visit = self.dice, self.world, self.visit
        assert visit is not None
        function = LIMITED if dice.random() < 0.75 else IDLE
        unique = dice.choice(OWN_UNIQUES) if dice.random() < 0.2 else b""
        self.bodies += 1
        job = (function, unique, b"%d-%d" % (self.number, self.bodies))
        kind = dice.choice(BACKGROUND)
        submission = Submission(visit, kind, job, world.clock.now_s, False)
        self.records.submissions.append(submission)
        self._waiting.append(submission)
        self.expect(submission, self._waiting)
        self.send(pack(kind, *job))

    # --- replies ----------------------------------------------------------------------------------

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        for reply in self._packets.feed_mixed(data):
            if not self._waiting:
                raise Violation(f"administrator {self.number} got {reply!r} for nothing")
            asked = self._waiting[0]
            if isinstance(asked, Submission):
                self._submitted(asked, reply)
            elif asked.kind == "unique":
                self._told_of_unique(asked, reply)
            elif isinstance(reply, bytes):
                self._line(asked, reply)
            else:
                raise Violation(f"{reply} for {asked}")

    def _submitted(self, asked: Submission, reply: Packet | bytes) -> None:
        self._waiting.popleft()
        if isinstance(reply, Packet) and reply.kind == p.JOB_CREATED:
            asked.handle, asked.created_s = reply.arguments[0], self.world.clock.now_s
            self.handles.append(asked.handle)
        elif isinstance(reply, Packet) and reply.kind == p.ERROR:
            asked.refusal, asked.refused_s = reply.arguments, self.world.clock.now_s
            self.world.counts[f"admin refused {reply.arguments[1].decode()}"] += 1
        else:
            raise Violation(f"{reply!r} for {asked}")

    def _told_of_unique(self, asked: Order, reply: Packet | bytes) -> None:
        if isinstance(reply, Packet) and reply.kind == p.STATUS_RES_UNIQUE:
            if reply.arguments[0] != asked.subject:
                raise Violation(f"{reply} for {asked}")
            asked.known, asked.running = (flag == b"1" for flag in reply.arguments[1:3])
            self._answered(asked, b"OK known" if asked.known else b"OK unknown")
        elif isinstance(reply, Packet) and reply.kind == p.ERROR:
            self._answered(asked, b"ERR " + reply.arguments[0])
        else:
            raise Violation(f"{reply!r} for {asked}")

    def _line(self, asked: Order, line: bytes) -> None:
        if asked.kind != "status" or line[:4] == b"ERR ":
            self._answered(asked, line)
        elif line == b".\n":
            self._answered(asked, b"OK")
        else:
            name, *numbers = line.split(b"\t")
            jobs, running, _ = map(int, numbers)
            asked.rows[name] = (jobs, running)

    def _answered(self, asked: Order, line: bytes) -> None:
        self._waiting.popleft()
        asked.line, asked.done_s = line, self.world.clock.now_s
        self.world.counts[f"admin {asked.kind} {line.decode().strip()}"] += 1
