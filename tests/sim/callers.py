"""Programs that put keyed jobs by gRPC calls, and repeat a call at any node until it is answered.

Belongs here: such programs, and the one rule about them: a key makes one job, whatever dies
meanwhile. Everything else about those jobs is judged with the jobs of clients.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from beanpoled.rpc.call import Call
from tests.sim.cluster import Violation
from tests.sim.history import host_of
from tests.sim.host import SimHost
from tests.sim.witness import Witness
from tests.sim.world import World

# The bodies of these jobs: this mark, the key, a space, and the attempt.
MARK: Final = b"call "
# No client watches this tube: clients that held these jobs would do less of everything else.
TUBE: Final = b"calls"
PATIENCE_S: Final = 20.0
RETRY_S: Final = 0.2
# The probability that a caller repeats its last keys although they were answered.
REPEATS: Final = 0.3


class Told(NamedTuple):
    """An answer to a caller about a key, and its time (true seconds)."""

    key: bytes
    job: int
    known: bool  # the put was a duplicate
    at_s: float


class Caller:
    """One program."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.dice = random.Random(world.seed * 1013 + number)
        self.active = True
        self.told: list[Told] = []
        self._keys: list[bytes] = []
        self._made = 0
        self._attempt = 0
        world.clock.after(self.dice.random(), self._next)

    def _next(self) -> None:
        if not self.active:
            return
        if not self._keys or self.dice.random() > REPEATS:
            count = self.dice.randint(1, 4)
            self._keys = [b"%d/%d" % (self.number, self._made + place) for place in range(count)]
            self._made += count
        self._try()

    def _try(self) -> None:
        hosts = [
            host
            for host in self.world.serving()
            if host.node.serving
            and not (host.node.context.draining or host.node.clients.outbox_is_full)
        ]
        if not hosts:
            self.world.clock.after(RETRY_S, self._try)
            return
        self._attempt += 1
        attempt, host = self._attempt, self.dice.choice(hosts)
        host.guard(lambda: self._begin(host, attempt))
        self.world.clock.after(PATIENCE_S, lambda: self._again(attempt))

    def _begin(self, host: SimHost, attempt: int) -> None:
        call = Call(host.node.clients, host_of(self.number), lambda: self._ended(call, attempt))
        for key in self._keys:
            call.put(TUBE, 1, 0, 60, b"%b%b %d" % (MARK, key, attempt), key)

    def _again(self, attempt: int) -> None:
        """Repeat a call that got no answer: its node is gone, or the caller lost patience."""
        if attempt == self._attempt:
            self._attempt += 1
            self.world.clock.after(RETRY_S * self.dice.random(), self._try)

    def _ended(self, call: Call, attempt: int) -> None:
        if attempt != self._attempt:
            return
        if call.failure or any(isinstance(result, int) for result in call.results):
            self.world.counts["calls that failed"] += 1
            self._again(attempt)
            return
        self._attempt += 1
        at_s = self.world.clock.now_s
        for key, (job, known) in zip(self._keys, call.results, strict=True):
            self.told.append(Told(key, job, bool(known), at_s))
            self.world.counts["keyed puts"] += not known
            self.world.counts["repeated puts"] += known
        self.world.trace.update(b"%r" % call.results)
        self.world.clock.after(self.dice.expovariate(4.0), self._next)


def judge(callers: Iterable[Caller], witness: Witness) -> None:
    """Raise Violation if a key has made more than one job, or another job than was answered."""
    made: dict[bytes, list[int]] = defaultdict(list)
    for job, body in witness.bodies.items():
        if body.startswith(MARK):
            made[body.split()[1]].append(job)
    for key, jobs in made.items():
        if len(jobs) > 1:
            raise Violation(f"the key {key!r} made the jobs {jobs}")
    for caller in callers:
        fresh: set[bytes] = set()
        for told in caller.told:
            if made.get(told.key) != [told.job]:
                raise Violation(f"made were {made.get(told.key)}: {told}")
            if witness.jobs[told.job][0].at_s > told.at_s:
                raise Violation(f"answered, but not done: {told}")
            if told.key in fresh and not told.known:
                raise Violation(f"a second time: {told}")
            fresh.add(told.key)
