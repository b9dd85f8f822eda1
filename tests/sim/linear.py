"""Short lives of a real cluster whose whole history is checked for linearizability (Q11).

    python -m tests.sim.linear SEED [HOW_MANY]

replays lives. A few clients send a few commands each to three nodes while one to three faults
happen; then a reader empties the queue, so that lost jobs are noticed. Only `linear_check` judges:
nothing here looks into a node.
"""

import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from beanpole.errors import ProtocolError
from tests.sim.administrators import Administrator
from tests.sim.clients import Client
from tests.sim.cluster import Violation
from tests.sim.history import NOT_DONE, Op
from tests.sim.host import SimHost
from tests.sim.linear_check import GAVE_UP, REFUSED, Verdict, check
from tests.sim.linear_model import FOREVER_S, Answer, Call
from tests.sim.storm import QUICK, Stuck
from tests.sim.wire import Wire
from tests.sim.witness import RATE_MAX, STAMP_S
from tests.sim.world import World

TUBES: Final = (b"default", b"default", b"one")
# Longer than a life, so that no reservation times out and no pause of a tube ends.
LONG_S: Final = 100_000
PLAY_S: Final = 3.5
# A client may wait until its node's death is noticed, and then read on.
SETTLED_S: Final = 40.0
COMMANDS: Final = (6, 10, 16)
# Histories on which the search gave up were not judged; a larger share invalidates a batch.
GAVE_UP_SHARE_MAX: Final = 0.01
# Commands that bind only the session at its own node, and have no effect on the queue.
LOCAL: Final = frozenset({"use", "watch", "ignore"})
ABOUT_JOBS: Final = ("peek", "stats-job", "kick-job", "delete", "reserve-job", "stats-job", "peek")


class Few(Client):
    """A client that sends a few commands, mostly about the same few jobs as the other clients."""

    def __init__(
        self, world: World, number: int, history: list[Op], known: list[int], left: int
    ) -> None:
        super().__init__(world, number, history, known)
        self.left = left

    def _later(self) -> None:
        wire = self.wire
        self.world.clock.after(self.dice.expovariate(4.0), lambda: self._step(wire))

    def _step(self, wire: Wire | None) -> None:
        if wire is None or wire is not self.wire or self.waiting or not self.left:
            return
        if not self.active:
            return
        dice = self.dice
        count = 1 if dice.random() < 0.85 else 2
        self.left = max(0, self.left - count)
        self.send(*(self._any() for _ in range(count)))
        if dice.random() < 0.03:
            self.drop()  # with requests open

    def _any(self) -> tuple[Any, ...]:
        dice = self.dice
        if self.held and dice.random() < 0.6:
            job = dice.choice(list(self.held))
            return dice.choice(
                (
                    ("delete", job),
                    ("delete", job),
                    ("release", job, dice.choice((0, 1)), dice.choice((0, 0, 1))),
                    ("bury", job, 1),
                    ("touch", job),
                )
            )
        luck = dice.random()
        if luck < 0.3:
            self.bodies += 1
            body = b"%d-%d" % (self.number, self.bodies)
            return ("put", dice.choice((0, 1)), dice.choice((0, 0, 0, 0, 1)), LONG_S, body)
        if luck < 0.6:
            return ("reserve-with-timeout", dice.choice((0, 0, 0, 1)))
        if luck < 0.82 and self.known:
            return (dice.choice(ABOUT_JOBS), dice.choice(self.known[-6:]))
        return dice.choice(
            (
                ("kick", dice.choice((1, 100))),
                ("peek-ready",),
                ("peek-ready",),
                ("peek-buried",),
                ("peek-delayed",),
                ("stats-tube", dice.choice(TUBES)),
                ("stats-tube", dice.choice(TUBES)),
                ("use", dice.choice(TUBES)),
                ("watch", b"one"),
                ("ignore", b"default"),
                ("pause-tube", b"default", dice.choice((0, 0, LONG_S))),
            )
        )


class Reader(Client):
    """The last client: it inspects every job and then takes all of them."""

    def __init__(self, world: World, number: int, history: list[Op], known: list[int]) -> None:
        super().__init__(world, number, history, known)
        self.script: list[tuple[Any, ...]] = []
        self.finished = False

    def _later(self) -> None:
        wire = self.wire
        self.world.clock.after(0.01, lambda: self._step(wire))

    def _step(self, wire: Wire | None) -> None:
        if wire is None or wire is not self.wire or self.waiting or self.finished:
            return
        last = self.history[-1]
        if last.connected is not self.connected:
            self.script = [("watch", b"one"), ("pause-tube", b"default", 0)]
            self.script += [("stats-tube", tube) for tube in sorted(set(TUBES))]
            self.script += [(kind, job) for job in self.known for kind in ("peek", "stats-job")]
        if self.script:
            self.send(self.script.pop(0))
        elif last.kind == "reserve-with-timeout" and last.word == b"TIMED_OUT":
            self.finished = True
        else:
            self.send(("reserve-with-timeout", 0))


class Life:
    """One short life."""

    def __init__(self, seed: int, calm: bool = False) -> None:
        self.seed = seed
        self.dice = dice = random.Random(seed * 15_485_863 + 11)
        self.world = world = World(seed, 3, **QUICK)
        world.in_flight_max = dice.choice((1, 8))
        world.turn_s = dice.choice((0.0002, 0.0002, 0.003))
        world.network.jitter_s = dice.choice((0.0, 0.002, 0.02))
        for name in world.names:
            world.rates[name] = 1.0 + dice.uniform(-0.05, 0.05)
        self.faults = 0 if calm else dice.choice((1, 1, 2, 3))
        self.history: list[Op] = []
        self.known: list[int] = []
        self.clients: list[Client] = [
            Few(world, number, self.history, self.known, dice.choice(COMMANDS))
            for number in range(dice.choice((4, 6, 8)))
        ]
        self.administrator = Administrator(world, self.known)

    def run(self) -> Verdict:
        """Play, heal, read, and judge.

        Raises:
            Violation: a reply is invalid.
            Stuck: something makes no progress.
        """
        world = self.world
        for name in world.names:
            world.start(name)
        begun_s = world.clock.now_s + 0.8
        for _ in range(self.faults):
            fault = self.dice.choice(FAULTS)
            at_s = begun_s + self.dice.random() * (PLAY_S - 1.2)
            world.clock.at(at_s, partial(fault, self, self.dice.random()))
        world.clock.run(PLAY_S)
        self._heal()
        if not world.clock.run_until(self._is_quiet, SETTLED_S):
            raise Stuck(f"not quiet {SETTLED_S} s after healing: {world.describe()}")
        reader = Reader(world, len(self.clients), self.history, self.known)
        self.clients.append(reader)
        if not world.clock.run_until(lambda: reader.finished, SETTLED_S):
            raise Stuck(f"the reader is not served: {self.history[-1]!r}")
        delays = world.counts["cold starts"] == 0
        calls, ended = translate(self.history, delays)
        return check([*calls, *self.administrator.translated(delays)], ended)

    def _is_quiet(self) -> bool:
        for name in self.world.names:
            if name not in self.world.hosts:
                self.world.start(name)
        waiting = any(client.waiting for client in self.clients) or self.administrator.waiting
        return len(self.world.serving()) == len(self.world.names) and not waiting

    def _heal(self) -> None:
        world = self.world
        world.network.heal()
        world.network.slow.clear()
        for client in self.clients:
            client.active = False
        self.administrator.active = False
        for host in world.hosts.values():
            if host.paused:
                host.resume()

    # --- faults: each takes one number between 0 and 1, which decides its details -----------------

    def _victim(self, luck: float) -> SimHost | None:
        """Return the node to hit: mostly the leader, if there is one."""
        names = sorted(self.world.hosts)
        if not names:
            return None
        leader = self.world.leader()
        if leader is not None and luck * 10 % 1 < 0.7:
            return leader
        return self.world.hosts[names[int(luck * len(names))]]

    def _start(self, name: str) -> None:
        if name not in self.world.hosts:
            self.world.start(name)

    def _crash(self, luck: float) -> None:
        host = self._victim(luck)
        if host is not None:
            self.world.counts["crashes"] += 1
            self.world.crash(host.name)
            self.world.clock.after(0.1 + luck, lambda: self._start(host.name))

    def _blackout(self, luck: float) -> None:
        self.world.counts["blackouts"] += 1
        for name in sorted(self.world.hosts):
            self.world.crash(name)
            self.world.clock.after(0.05 + luck * 0.3, partial(self._start, name))

    def _isolate(self, luck: float) -> None:
        """Cut a node off from the others; its clients still reach it."""
        host = self._victim(luck)
        if host is not None:
            self.world.counts["partitions"] += 1
            self.world.network.detect_s = 0.02 if luck < 0.3 else 3.0
            self.world.network.isolate(host.name)
            self.world.clock.after(0.2 + luck * 2, self.world.network.heal)

    def _pause(self, luck: float) -> None:
        host = self._victim(luck)
        if host is not None:
            self.world.counts["pauses"] += 1
            host.pause(0.1 + luck * 2.5)

    def _transfer(self, luck: float) -> None:
        leader = self.world.leader()
        if leader is not None and not leader.paused:
            self.world.counts["transfers"] += 1
            leader.node.context.replica.transfer(None)

    def _slow(self, luck: float) -> None:
        """Slow down one direction of a link, mostly from the leader."""
        host = self._victim(luck)
        if host is not None:
            others = [name for name in self.world.names if name != host.name]
            self.world.network.slow = {(host.name, others[int(luck * 2)]): luck * 0.3}

    def digest(self) -> str:
        """Return the hash of everything that was sent and logged."""
        return self.world.digest()


FAULTS: Final = (
    Life._crash,
    Life._crash,
    Life._blackout,
    Life._isolate,
    Life._isolate,
    Life._pause,
    Life._transfer,
    Life._slow,
)


# --- from what clients saw to what is checked -----------------------------------------------------


def translate(history: Sequence[Op], delays: bool = True) -> tuple[list[Call], frozenset[int]]:
    """Return the commands that are checked, and the sessions whose connections ended.

    Args:
        history: what the clients saw.
        delays: whether an early end of a delay is a fault; after a cold start time is estimated.
    """
    sessions: dict[int, tuple[int, bytes, list[bytes]]] = {}  # by connection: used, watched
    calls: list[Call] = []
    ended: set[int] = set()
    for op in history:
        key = id(op.connected)
        if key not in sessions:
            sessions[key] = (len(sessions), b"default", [b"default"])
        number, used, watched = sessions[key]
        if op.connected.end_s is not None:
            ended.add(number)
        if op.word in NOT_DONE:
            continue
        if op.kind in LOCAL:
            sessions[key] = (number, *_bound(op, used, watched))
        else:
            calls.append(_call(op, number, used, watched, delays))
    return calls, frozenset(ended)


def _bound(op: Op, used: bytes, watched: list[bytes]) -> tuple[bytes, list[bytes]]:
    tube = op.args[0]
    if op.kind == "use":
        return tube, watched
    others = [name for name in watched if name != tube]
    return used, [*others, tube] if op.kind == "watch" else others or watched


def _call(op: Op, session: int, used: bytes, watched: list[bytes], delays: bool) -> Call:
    kind, args, delay_s = op.kind, op.args, 0.0
    tubes: tuple[bytes, ...] = (used,)
    if kind == "put":
        args, delay_s = op.args[:2], op.args[1]
    elif kind == "release":
        delay_s = op.args[2]
    elif kind == "reserve-with-timeout":
        kind, args, tubes = "reserve", (), tuple(watched)
    elif kind in ("stats-tube", "pause-tube"):
        args, tubes = op.args[1:], op.args[:1]
    done_s = FOREVER_S if op.done_s is None else op.done_s
    ready_s = op.at_s + delay_s * (1 - RATE_MAX) - STAMP_S if delays else op.at_s
    return Call(session, kind, args, op.at_s, done_s, _answer(op), tubes, op.body, ready_s)


def _answer(op: Op) -> Answer | None:
    if op.reply is None:
        return None
    word, numbers, body = op.reply
    if word == b"OK":
        return Answer(word, facts=_facts(op.kind, body or b""))
    return Answer(word, numbers[0] if numbers else 0, body or b"")


def _facts(kind: str, text: bytes) -> tuple[bytes | int, ...]:
    """Return the facts in a multi-line answer that the model also knows."""
    pairs = dict(line.split(b": ", 1) for line in text.splitlines() if b": " in line)
    try:
        if kind == "stats-job":
            name = pairs[b"tube"].strip(b'"')
            return (int(pairs[b"id"]), name, pairs[b"state"].strip(b'"'), int(pairs[b"pri"]))
        states = (b"ready", b"reserved", b"delayed", b"buried")
        return tuple(int(pairs[b"current-jobs-" + state]) for state in states)
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"{kind}: {text!r}") from error


# --- many lives -----------------------------------------------------------------------------------


class Tally:
    """The results of some lives."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.commands = 0
        self.situations_max = 0
        self.failures: list[tuple[int, str]] = []
        self.gave_up: list[int] = []

    def live(self, seed: int) -> None:
        """Run one life and add its result."""
        life = Life(seed)
        try:
            verdict = life.run()
        except (Violation, Stuck) as error:
            self.failures.append((seed, f"{type(error).__name__}: {error}"))
            return
        self.counts[verdict.word] += 1
        self.commands += len(life.history)
        self.situations_max = max(self.situations_max, verdict.situations)
        if verdict.word == GAVE_UP:
            self.gave_up.append(seed)
        if verdict.word == REFUSED:
            self.failures.append((seed, f"not linearizable\n{verdict.story}"))

    def __str__(self) -> str:
        return (
            f"{self.counts.total()} histories of {self.commands} commands: "
            + ", ".join(f"{count} {word}" for word, count in sorted(self.counts.items()))
            + f"; at most {self.situations_max} situations; {len(self.failures)} failed"
        )


def replay(seed: int) -> str:
    """Return the command that repeats a life."""
    return f".venv/bin/python -m tests.sim.linear {seed}"


def main() -> int:
    """Run the lives of the command line; 1 if any failed or too many were not judged."""
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    tally = Tally()
    for seed in range(first, first + count):
        tally.live(seed)
    if count == 1:
        life = Life(first)
        verdict = life.run()
        lines = [str(call) for call in translate(life.history)[0]]
        lines += [str(call) for call in life.administrator.changes]
        sys.stdout.write("\n".join([*lines, *life.world.lines, verdict.word, life.digest()]) + "\n")
    for seed, story in tally.failures:
        sys.stdout.write(f"{seed} {story}\n    {replay(seed)}\n")
    sys.stdout.write("".join(f"gave up on {seed}\n" for seed in tally.gave_up) + f"{tally}\n")
    gave_up_often = len(tally.gave_up) > tally.counts.total() * GAVE_UP_SHARE_MAX
    return int(bool(tally.failures) or gave_up_often)


if __name__ == "__main__":
    sys.exit(main())
