"""A queue that two protocols share: a beanstalk tube and a Gearman function of one life.

In a few lives an alias is set by a call, as programs do; then a beanstalk client puts jobs and
Gearman workers do them. The judging is in `verdicts_aliases`.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from beanpole import commands as c
from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk.client import Reply, ReplyParser, encode, encode_put
from beanpoled.rpc.call import Call
from tests.sim.cluster import Violation
from tests.sim.gearman import Records
from tests.sim.gearman_workers import Worker
from tests.sim.guests import Guest
from tests.sim.history import Connected, host_of
from tests.sim.host import SimHost
from tests.sim.stories import FOREVER_S, GEARMAN_PREFIX
from tests.sim.world import World

# The share of the lives with an alias.
SHARE: Final = 0.12
NAME: Final = b"bridge"
FUNCTION: Final = GEARMAN_PREFIX + NAME
# The beginning of the bodies.
MARK: Final = b"bridge "
RETRY_S: Final = 0.3
PATIENCE_S: Final = 5.0
WORKERS: Final = 2
# Longer than any life, so that only the time-outs of workers end reservations.
TTR_S: Final = 4_000_000_000
RECENT: Final = 5


class Put:
    """A job that was put. `job` is 0 until the put is answered."""

    def __init__(self, visit: Connected, body: bytes, at_s: float) -> None:
        self.visit = visit
        self.body = body
        self.at_s = at_s
        self.done_s = FOREVER_S
        self.job = 0
        self.word = b""

    def __repr__(self) -> str:
        return f"put [{self.at_s:.4f}, {self.done_s:.4f}] {self.body!r} {self.word!r} {self.job}"


class Look:
    """A `peek` of a job, or a `kick`."""

    def __init__(self, job: int, at_s: float) -> None:
        self.job = job
        self.at_s = at_s
        self.done_s = FOREVER_S
        self.word = b""

    def __repr__(self) -> str:
        return f"peek [{self.at_s:.4f}, {self.done_s:.4f}] {self.job} {self.word!r}"


class Producer(Guest):
    """A beanstalk client that puts jobs, looks at them, and kicks those that failed."""

    protocol = "beanstalk"
    tube = NAME
    mark = MARK

    def __init__(self, world: World, number: int, puts: list[Put], looks: list[Look]) -> None:
        super().__init__(world, number)
        self.puts = puts
        self.looks = looks
        self.bodies = 0
        self._used = False
        self._parser = ReplyParser()
        self._waiting: deque[Put | Look] = deque()

    def began(self) -> None:
        """See `Guest`."""
        self._parser = ReplyParser()
        self.send(encode(b"use", self.tube))

    def left(self) -> None:
        """See `Guest`."""
        self._used = False
        self._waiting.clear()

    @property
    def quiet(self) -> bool:
        """Whether it waits for nothing."""
        return not self._waiting

    def act(self) -> None:
        """See `Guest`."""
        if not self.active:
            return
        dice, visit, now_s = self.dice, self.visit, self.world.clock.now_s
        assert visit is not None
        luck = dice.random()
        known = [put.job for put in self.puts if put.job]
        if not self._used or luck < 0.02:
            self.drop()  # it works in no other tube
            return
        if luck < 0.2 and known:
            self._look(Look(dice.choice(known[-RECENT:]), now_s))
        elif luck < 0.3:
            self._look(Look(0, now_s))
        else:
            for _ in range(dice.choice((1, 1, 3))):
                self.bodies += 1
                put = Put(visit, b"%b%d-%d" % (self.mark, self.number, self.bodies), now_s)
                self.puts.append(put)
                self._wait(put)
                self.send(encode_put(put.body, dice.choice((0, 1024, 2**32 - 1)), 0, TTR_S))
        self.later()

    def _look(self, look: Look) -> None:
        self._wait(look)
        if look.job:
            self.looks.append(look)
            self.send(encode(b"peek", look.job))
        else:
            self.send(encode(b"kick", 10))

    def _wait(self, asked: Put | Look) -> None:
        self._waiting.append(asked)
        self.expect(asked, self._waiting)

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        self._parser.feed(data)
        try:
            while self.wire is not None and (reply := self._parser.next()) is not None:
                self._replied(reply)
        except ProtocolError as error:
            raise Violation(f"client {self.number}: {error}") from error

    def _replied(self, reply: Reply) -> None:
        word = reply[0]
        if not self._used:
            self._used = word == b"USING"
            if not self._used:
                self.drop()
            return
        if not self._waiting:
            raise Violation(f"client {self.number} got {reply} for nothing")
        asked = self._waiting.popleft()
        asked.word, asked.done_s = word, self.world.clock.now_s
        if isinstance(asked, Put) and word == b"INSERTED":
            asked.job = reply[1][0]
            self.world.counts["puts by an alias"] += 1


class AliasSetter:
    """Sets one alias by calls, again and again until it is done."""

    def __init__(
        self,
        world: World,
        dice: random.Random,
        alias: bytes,
        queue: bytes,
        done: Callable[[], None],
    ) -> None:
        """Begin soon; `done` is called once the alias is set."""
        self.active = True
        self._world = world
        self._dice = dice
        self._names = (alias, queue)
        self._done = done
        self._is_set = False
        self._attempt = 0
        world.clock.after(dice.random(), self._try)

    def _try(self) -> None:
        if self._is_set or not self.active:
            return
        self._attempt += 1
        attempt = self._attempt
        hosts = [host for host in self._world.serving() if host.node.serving]
        hosts = [host for host in hosts if not host.node.clients.outbox_is_full]
        if hosts:
            host = self._dice.choice(hosts)
            host.guard(lambda: self._call(host, attempt))
        self._world.clock.after(PATIENCE_S if hosts else RETRY_S, lambda: self._again(attempt))

    def _call(self, host: SimHost, attempt: int) -> None:
        call = Call(host.node.clients, host_of(0), lambda: self._ended(call, attempt))
        call.submit(c.SET_ALIAS, *self._names)

    def _again(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._try()

    def _ended(self, call: Call, attempt: int) -> None:
        if attempt != self._attempt or self._is_set:
            return
        if call.failure or call.results != [c.OK]:
            # There is no majority, or the machine's version has no aliases.
            self._world.clock.after(RETRY_S, lambda: self._again(attempt))
            return
        self._is_set = True
        self._world.counts["aliases set"] += 1
        self._done()


def calm_all(
    setters: Iterable[AliasSetter], guests: Iterable[Guest], workers: Iterable[Worker]
) -> None:
    """Make no more jobs; workers do those that are left."""
    for setter in setters:
        setter.active = False
    for guest in guests:
        guest.active = False
    for worker in workers:
        worker.calm = True


class Bridge:
    """The alias of one life, and the clients that use it; most lives have none."""

    def __init__(self, world: World, numbers: tuple[int, ...]) -> None:
        self.world = world
        self.numbers = numbers
        dice = random.Random(f"alias {world.seed}")
        self.wanted = dice.random() < SHARE
        # The queue is a tube of beanstalk or a function of Gearman; the alias is the other name.
        self.queue, alias = dice.choice(((NAME, FUNCTION), (FUNCTION, NAME)))
        self.records = Records()
        self.puts: list[Put] = []
        self.looks: list[Look] = []
        self.producers: list[Producer] = []
        self.workers: list[Worker] = []
        self._setters: list[AliasSetter] = []
        if self.wanted:
            world.counts["lives with an alias"] += 1
            self._setters.append(AliasSetter(world, dice, alias, self.queue, self._begin))

    def _begin(self) -> None:
        first, *others = self.numbers
        self.producers.append(Producer(self.world, first, self.puts, self.looks))
        self.workers += [
            Worker(self.world, number, self.records, True, (NAME,)) for number in others
        ]
        for worker in self.workers:
            worker.calm = not self._setters[0].active

    def calm(self) -> None:
        """End all puts; workers finish the jobs there are."""
        calm_all(self._setters, self.producers, self.workers)

    @property
    def restless(self) -> str:
        """A description of pending work; empty if there is none."""
        queue = self.world.witness.machine.queue.tubes.get(self.queue)
        if queue is not None and self.workers and (queue.ready_count or queue.reserved_count):
            sleeps = sum(worker.asleep for worker in self.workers)
            return f"{queue.ready_count} jobs of an alias are ready, {sleeps} workers sleep"
        for guest in (*self.producers, *self.workers):
            if not guest.quiet:
                return f"{guest.protocol} client {guest.number} of an alias waits for something"
        return ""
