"""An administrator of a short life: it moves and changes jobs that the clients know of.

Its calls are checked together with the commands of the clients (`linear_check`): each is a session
of one command. The allowed answers to a change are in `linear_model`.
"""

import random
from typing import Final

from beanpole import commands as c
from beanpole.core.operations import administering as a
from beanpoled.rpc.call import Call
from tests.sim import linear_model as model
from tests.sim.history import host_of
from tests.sim.host import SimHost
from tests.sim.linear_model import FOREVER_S, Answer
from tests.sim.witness import RATE_MAX, STAMP_S
from tests.sim.world import World

# The share of the lives with an administrator.
SHARE: Final = 0.4
TUBES: Final = (b"default", b"one", b"two")
COMMANDS: Final = (2, 4, 8)
RETRY_S: Final = 0.3
# It then makes the next call; the change may be done all the same.
PATIENCE_S: Final = 3.0
# Behind all numbers of the clients' connections.
SESSIONS_FROM: Final = 1_000_000
SECOND_US: Final = 1_000_000
_WORDS: Final = {c.OK: b"OK", c.NOT_FOUND: b"NOT_FOUND", c.BUSY: b"BUSY", c.EXISTS: b"EXISTS"}
_ACTIONS: Final = (a.DELETE, a.KICK, a.BURY, a.SET_RANK, a.SET_DELAY, *[a.MOVE] * 4)
_STATES: Final = {
    a.AS_IT_WAS: model.SAME,
    a.READY_IF_BURIED: model.READY_IF_BURIED,
    1: model.READY,
    4: model.BURIED,
}


class Administrator:
    """One program that changes one job after the other, at any node.

    Attributes:
        changes: its calls in the form that the check takes.
    """

    def __init__(self, world: World, known: list[int]) -> None:
        self.world = world
        self.known = known
        self.dice = random.Random(f"administrator {world.seed}")
        self.changes: list[model.Call] = []
        self.active = True
        self._left = self.dice.choice(COMMANDS) if self.dice.random() < SHARE else 0
        self._attempt = 0
        if self._left:
            world.clock.after(0.8 + self.dice.random(), self._next)

    @property
    def waiting(self) -> bool:
        """Whether it waits for an answer."""
        return self._attempt % 2 == 1

    def _next(self) -> None:
        if not self.active or not self._left:
            return
        hosts = [host for host in self.world.serving() if host.node.serving]
        hosts = [host for host in hosts if not host.node.clients.outbox_is_full]
        if not hosts or not self.known:
            self.world.clock.after(RETRY_S, self._next)
            return
        self._left -= 1
        self._attempt += 1
        attempt, host = self._attempt, self.dice.choice(hosts)
        host.guard(lambda: self._begin(host, attempt))
        self.world.clock.after(PATIENCE_S, lambda: self._go_on(attempt))

    def _begin(self, host: SimHost, attempt: int) -> None:
        dice, now_s = self.dice, self.world.clock.now_s
        job, action, to, value = dice.choice(self.known[-6:]), dice.choice(_ACTIONS), b"", 0
        delay_s = 0
        if action == a.SET_RANK:
            value = dice.choice((0, 1, 2))
        elif action == a.SET_DELAY:
            delay_s = dice.choice((0, 1))
            value = delay_s * SECOND_US
        elif action == a.MOVE:
            to, value = dice.choice(TUBES), dice.choice(sorted(_STATES))
        change = model.Call(
            session=SESSIONS_FROM + attempt,
            kind="change",
            args=(job, action, value),
            at_s=now_s,
            tubes=(to,),
            body=_STATES[value] if action == a.MOVE else b"",
            ready_s=now_s + delay_s * (1 - RATE_MAX) - STAMP_S,
        )
        place = len(self.changes)
        self.changes.append(change)
        call = Call(host.node.clients, host_of(0), lambda: self._ended(call, attempt, place))
        call.submit(c.CHANGE_JOB, job, action, -1, b"", to, value)

    def _ended(self, call: Call, attempt: int, place: int) -> None:
        if attempt != self._attempt:
            return
        [result] = call.results if not call.failure else [None]
        if result == c.BAD_COMMAND:  # the cluster has not been raised to this version yet
            assert self.world.witness.machine.version < 4, self.changes[place]
            del self.changes[place]
        elif result is not None:
            done_s = self.world.clock.now_s
            answer = Answer(_WORDS[result])
            self.changes[place] = self.changes[place]._replace(done_s=done_s, answer=answer)
            self.world.counts["changes by an administrator"] += result == c.OK
        self._go_on(attempt)

    def _go_on(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._attempt += 1
            self.world.clock.after(self.dice.expovariate(4.0), self._next)

    def translated(self, delays: bool) -> list[model.Call]:
        """Return its calls; without delays where time is estimated (`linear.translate`)."""
        assert all(call.done_s == FOREVER_S for call in self.changes if call.answer is None)
        if delays:
            return self.changes
        return [call._replace(ready_s=call.at_s) for call in self.changes]
