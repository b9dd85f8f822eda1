"""Simulated beanstalk clients: real bytes of the protocol, random but repeatable behaviour.

Like real clients, each does one thing after the other, sometimes several in a pipeline. It breaks
its connection, half-closes it, stops reading, and goes to another node when its own is gone. What
it saw is recorded in `history`; nothing is judged here.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk.client import Reply, ReplyParser, encode, encode_put
from tests.sim.cluster import Violation
from tests.sim.history import WORDS, Connected, Op, host_of
from tests.sim.wire import Wire
from tests.sim.world import World

TUBES: Final = (b"default", b"default", b"one", b"two")
# The longest wait for the reply to a command; waits for jobs have no limit.
PATIENCE_S: Final = 20.0
RETRY_S: Final = 0.2
ABOUT_JOBS: Final = ("peek", "stats-job", "kick-job", "delete", "reserve-job", "touch")
BINDS: Final = ("use", "watch", "ignore")
PEEKS: Final = ("peek-ready", "peek-delayed", "peek-buried")


class Client:
    """One client and what it did."""

    def __init__(self, world: World, number: int, history: list[Op], known: list[int]) -> None:
        self.world = world
        self.number = number
        self.history = history
        self.known = known  # ids of jobs that any client has seen
        self.dice = random.Random(world.seed * 1009 + number)
        self.role = self.dice.choice(("producer", "worker", "worker", "mixed"))
        self.active = True
        self.wire: Wire | None = None
        self.connected: Connected | None = None
        self.waiting: deque[Op] = deque()
        self.held: dict[int, None] = {}
        self.used = b"default"
        self.watched: dict[bytes, None] = {}
        self.bodies = 0
        # The same, as far as replies have confirmed it.
        self._told_used = self.used
        self._told_watched: dict[bytes, None] = {}
        self._parser = ReplyParser()
        self._ending = False  # half-closed: replies still come, nothing is sent
        world.clock.after(self.dice.random(), self._connect)

    # --- connections ------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self.wire is not None or not self.active:
            return
        asleep_s = self.world.asleep_until_s - self.world.clock.now_s
        if asleep_s > 0:
            self.world.clock.after(asleep_s + self.dice.random(), self._connect)
            return
        serving = self.world.serving()
        if not serving:
            self.world.clock.after(RETRY_S * (1 + self.dice.random()), self._connect)
            return
        host = self.dice.choice(serving)
        delay_s = self.dice.choice((0.0001, 0.001, 0.02))
        self.wire = Wire(self.world, host, self, delay_s, client_host=host_of(self.number))
        self.connected = Connected(self.number, host.name, host.node.context.index)
        self._parser = ReplyParser()
        self.held.clear()
        self.used = self._told_used = b"default"
        self.watched = {b"default": None}
        self._told_watched = dict(self.watched)
        self._ending = False
        self._later()

    def received(self, wire: Wire, data: bytes) -> None:
        """Take bytes from the node."""
        if wire is not self.wire:
            return
        self.world.trace.update(data)
        self._parser.feed(data)
        try:
            while (reply := self._parser.next()) is not None:
                self._replied(reply)
                if wire is not self.wire:
                    return
        except ProtocolError as error:
            raise Violation(f"client {self.number}: {error}") from error
        if not self.waiting and not self._ending:
            self._later()

    def ended(self, wire: Wire) -> None:
        """Note that the node's side is gone."""
        if wire is self.wire:
            self._forget()

    def _forget(self) -> None:
        wire, connected = self.wire, self.connected
        assert wire is not None and connected is not None
        now_s = self.world.clock.now_s
        connected.number, connected.incarnation = wire.number, wire.incarnation
        connected.end_s = now_s if wire.cut_s is None else min(now_s, wire.cut_s)
        self.waiting.clear()
        self.wire = self.connected = None
        self.world.clock.after(RETRY_S * self.dice.random(), self._connect)

    def drop(self) -> None:
        """Break the connection."""
        if self.wire is not None:
            self.world.counts["drops"] += 1
            self.wire.drop()
            self._forget()

    def half_close(self) -> None:
        """Send nothing more, and read the remaining replies."""
        if self.wire is not None and not self._ending:
            self.world.counts["half closes"] += 1
            self._ending = True
            self.wire.finish()

    @property
    def left_alone(self) -> bool:
        """Whether it asked for the end and has every answer, but is still connected."""
        return self.wire is not None and self._ending and not self.waiting

    def not_reading(self, seconds: float) -> None:
        """Leave replies unread for a while."""
        wire = self.wire
        if wire is not None:
            wire.slow(True)
            self.world.clock.after(seconds, lambda: wire.slow(False))

    # --- requests ---------------------------------------------------------------------------------

    def send(self, *requests: tuple[Any, ...]) -> None:
        """Send requests in one write: (kind, argument...), or ("put", pri, delay, ttr, body)."""
        wire, connected = self.wire, self.connected
        assert wire is not None and connected is not None
        data = b""
        for kind, *args in requests:
            op = Op(connected, kind, tuple(args), self.world.clock.now_s)
            if kind == "put":
                op.body = args.pop()
                op.args = (*args, self.used)
                data += encode_put(op.body, *args)
            elif kind == "nonsense":
                data += b"nonsense\r\n"
            else:
                data += encode(kind.encode(), *args)
            op.tubes = (self.used,) if kind in PEEKS else tuple(self.watched)
            self._follow(kind, args)
            self.history.append(op)
            if kind == "quit":  # answered by the end of the connection
                self._ending = True
                self.world.counts["quits"] += 1
            else:
                self.waiting.append(op)
        while data:  # the network may split it anywhere
            size = len(data) if self.dice.random() < 0.7 else self.dice.randint(1, len(data))
            wire.send(data[:size])
            data = data[size:]
        last = self.waiting[-1] if self.waiting else None
        if last is not None and last.kind != "reserve":
            self.world.clock.after(PATIENCE_S, lambda: self._give_up(last))

    def _follow_again(self, told: Op) -> None:
        """Apply a reply to the confirmed tubes; a refusal corrects the tubes of later requests."""
        if told.word != b"INTERNAL_ERROR":
            used, watched = self.used, self.watched
            self.used, self.watched = self._told_used, self._told_watched
            self._follow(told.kind, told.args)
            self._told_used, self._told_watched = self.used, self.watched
            self.used, self.watched = used, watched
            return
        self.used, self.watched = self._told_used, dict(self._told_watched)
        for op in self.waiting:
            if op.kind == "put":
                op.args = (*op.args[:-1], self.used)
            op.tubes = (self.used,) if op.kind in PEEKS else tuple(self.watched)
            self._follow(op.kind, op.args)

    def _follow(self, kind: str, args: Sequence[Any]) -> None:
        """Follow the state that the session will have at the node."""
        if kind == "use":
            self.used = args[0]
        elif kind == "watch":
            self.watched[args[0]] = None
        elif kind == "ignore" and len(self.watched) > 1:
            self.watched.pop(args[0], None)

    def _give_up(self, op: Op) -> None:
        if op in self.waiting:
            self.world.counts["gave up"] += 1
            self.drop()

    def _replied(self, reply: Reply) -> None:
        if not self.waiting:
            raise Violation(f"client {self.number} got {reply!r} for nothing")
        op = self.waiting.popleft()
        op.reply = reply
        op.done_s = self.world.clock.now_s
        word, numbers, _ = reply
        if word not in WORDS[op.kind]:
            raise Violation(f"a wrong reply: {op!r}")
        self.world.counts[f"{op.kind} {word.decode()}"] += 1
        if op.kind in BINDS:
            self._follow_again(op)
        if word == b"INSERTED":
            self.known.append(numbers[0])
        elif word == b"RESERVED":
            self.held[numbers[0]] = None
        elif op.kind in ("delete", "release", "bury"):
            self.held.pop(op.args[0], None)
        if self.wire is not None and self.connected is not None:
            self.connected.number = self.wire.number
            self.connected.incarnation = self.wire.incarnation

    # --- behaviour --------------------------------------------------------------------------------

    def _later(self) -> None:
        wire = self.wire
        self.world.clock.after(self.dice.expovariate(12.0), lambda: self._step(wire))

    def _step(self, wire: Wire | None) -> None:
        if wire is None or wire is not self.wire or self.waiting or self._ending:
            return
        if not self.active:
            return
        dice = self.dice
        luck = dice.random()
        if luck < 0.01:
            self.drop()
            return
        if luck < 0.02:
            self.send(*(self._any() for _ in range(dice.randint(1, 3))))
            self.half_close()
            return
        if luck < 0.03:
            self.send(*(self._any() for _ in range(dice.randint(0, 3))), ("quit",))
            return
        if luck < 0.035:
            self.not_reading(dice.random() * 3)
        if luck < 0.06 and self.role != "producer":
            self.send(*self._row(), *(self._any() for _ in range(dice.randint(0, 3))))
        elif luck < 0.1:
            self.send(*(self._any() for _ in range(dice.randint(2, 8))))
        else:
            self.send(self._any())
        if dice.random() < 0.01:
            self.drop()  # with requests open

    def _any(self) -> tuple[Any, ...]:
        dice = self.dice
        if self.held and dice.random() < 0.7:
            return self._about_held(dice.choice(list(self.held)))
        luck = dice.random()
        if luck < 0.12:
            return self._choose_tube()
        if luck < 0.22:
            return self._about_anything()
        if self.role == "producer" or (self.role == "mixed" and dice.random() < 0.5):
            return self._put()
        return self._reserve()

    def _reserve(self) -> tuple[Any, ...]:
        dice = self.dice
        if dice.random() < 0.3:
            return ("reserve",)
        return ("reserve-with-timeout", dice.choice((0, 0, 1, 1, 3)))

    def _row(self) -> list[tuple[Any, ...]]:
        """Return several reserves in a row, which take jobs together."""
        return [self._reserve() for _ in range(self.dice.randint(2, 12))]

    def _put(self) -> tuple[Any, ...]:
        dice = self.dice
        self.bodies += 1
        body = b"%d-%d" % (self.number, self.bodies)
        body += b"." * dice.choice(self.world.body_bytes)
        delay_s = dice.choice((0, 0, 0, 0, 0, 1, 2))
        return ("put", dice.choice((0, 1, 1, 1, 2000)), delay_s, dice.choice((1, 2, 5, 60)), body)

    def _about_held(self, job: int) -> tuple[Any, ...]:
        dice = self.dice
        luck = dice.random()
        if luck < 0.6:
            return ("delete", job)
        if luck < 0.75:
            return ("release", job, dice.choice((0, 1, 1)), dice.choice((0, 0, 1)))
        if luck < 0.83:
            return ("bury", job, 1)
        return ("touch", job)

    def _choose_tube(self) -> tuple[Any, ...]:
        dice = self.dice
        if self.role == "producer":
            return ("use", dice.choice(TUBES))
        return (dice.choice(("watch", "watch", "ignore", "use")), dice.choice(TUBES))

    def _about_anything(self) -> tuple[Any, ...]:
        dice = self.dice
        luck = dice.random()
        if luck < 0.5 and self.known:
            return (dice.choice(ABOUT_JOBS), dice.choice(self.known[-30:]))
        if luck < 0.65:
            return ("kick", dice.randint(1, 5))
        if luck < 0.72:
            return ("pause-tube", dice.choice(TUBES), dice.choice((0, 1)))
        if luck < 0.9:
            return (dice.choice(PEEKS),)
        if luck < 0.94:
            return ("stats-tube", dice.choice(TUBES))
        return (dice.choice(("stats", "list-tubes", "list-tube-used", "nonsense")),)
