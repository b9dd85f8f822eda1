"""Partitions of a real network: one-way cuts, bridges, loss and resets between three namespaces.

`python -m chaos.partitions --minutes n` (root) runs it: the clients of a soak use all nodes while
the links between nodes, and now and then those of clients, are broken one way or the other. A
majority that hears each other is not always left; after each fault everything heals and the nodes
must serve again. The judges are those of `soak`; the status is 0 only if nothing was lost,
invented, doubled or stuck.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chaos import checks, ending, namespaces, record
from chaos.ground import TROUBLE, check_compiled
from chaos.namespaces import CLIENTS, NAMES, Namespaces, address, others
from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_for_time

ROOT: Final = Path(__file__).resolve().parents[1]
COUNT: Final = 12
MINUTES_DEFAULT: Final = 5.0
WARM_UP_S: Final = 1.0
# Shorter and longer than an election, a fence and the time after which a node is declared down.
DISTURBANCE_S: Final = (0.3, 12.0)
FLAPS_S: Final = (0.05, 0.8)
LOSS_PERCENT: Final = (5, 20, 40)
RATES: Final = ("128kbit", "512kbit", "2mbit")
# Between two faults, so that clients get something done.
CALM_S_MAX: Final = 2.0
CLIENTS_END_TIMEOUT_S: Final = 90.0
# Connections that a cut has left half open end by their keepalives.
EMPTY_TIMEOUT_S: Final = 180.0
INSIDE: Final = "CHAOS_NAMESPACE"

Tell = Callable[[str], None]


class Done(NamedTuple):
    """What a run came to: lines of figures, and what is wrong."""

    figures: list[str]
    findings: list[str]


class Faults:
    """Each method breaks the network, waits, and returns a few words; `heal` is the caller's."""

    def __init__(self, network: Namespaces, chance: random.Random) -> None:
        self._network = network
        self._chance = chance

    def _victim(self) -> int:
        # The leader in 40 of 100 cases or more: faults of followers are seldom noticed.
        if self._chance.random() < 0.4:
            return self._network.leader()
        return self._chance.randrange(len(NAMES))

    def _wait(self) -> str:
        low, high = DISTURBANCE_S
        seconds = float(low * (high / low) ** self._chance.random())
        wait_for_time(seconds)
        return f"for {seconds:.1f} s"

    def _pair(self) -> tuple[int, int]:
        one = self._victim()
        return one, self._chance.choice(others(one))

    def _one_way(self, *pairs: tuple[int, int]) -> str:
        """Cut the way from each first to each second node; return how.

        Either TCP goes on, so that the other way works for as long as this one is cut; or nothing
        arrives, so that the other way stands, too, once TCP waits for acknowledgements.
        """
        words = self._chance.random() < 0.5
        for source, target in pairs:
            cut = self._network.hush if words else self._network.cut
            cut(address(source), target)
        return "data only" if words else "all"

    def deaf(self) -> str:
        """A node sends and hears nothing of the others; its clients reach it."""
        victim = self._victim()
        how = self._one_way(*((other, victim) for other in others(victim)))
        return f"{NAMES[victim]} hears no node ({how}) {self._wait()}"

    def mute(self) -> str:
        """A node hears all and none of the others hears it."""
        victim = self._victim()
        how = self._one_way(*((victim, other) for other in others(victim)))
        return f"no node hears {NAMES[victim]} ({how}) {self._wait()}"

    def one_way(self) -> str:
        one, other = self._pair()
        how = self._one_way((one, other))
        return f"{NAMES[other]} does not hear {NAMES[one]} ({how}) {self._wait()}"

    def bridge(self) -> str:
        """Two nodes are apart and the third one has links to both: a ring of majorities."""
        one, other = self._pair()
        self._network.cut(address(one), other)
        self._network.cut(address(other), one)
        return f"{NAMES[one]} and {NAMES[other]} are apart {self._wait()}"

    def circle(self) -> str:
        """Each node hears one of the others only, and another one than hears it."""
        how = self._one_way(*((n, (n + 1) % len(NAMES)) for n in range(len(NAMES))))
        return f"each hears one other ({how}) {self._wait()}"

    def isolated(self) -> str:
        victim = self._victim()
        for other in others(victim):
            self._network.cut(address(other), victim)
            self._network.cut(address(victim), other)
        return f"{NAMES[victim]} is alone {self._wait()}"

    def shattered(self) -> str:
        for number in range(len(NAMES)):
            for other in others(number):
                self._network.cut(address(other), number)
        return f"all are alone {self._wait()}"

    def flapping(self) -> str:
        """The link of a leader to a follower goes and comes, one way or both."""
        leader = self._network.leader()
        other = self._chance.choice(others(leader))
        both = self._chance.random() < 0.5
        flaps = self._chance.randrange(3, 12)
        for _ in range(flaps):
            self._network.cut(address(leader), other)
            if both:
                self._network.cut(address(other), leader)
            wait_for_time(self._chance.uniform(*FLAPS_S))
            self._network.heal()
            wait_for_time(self._chance.uniform(*FLAPS_S))
        return f"{NAMES[leader]} to {NAMES[other]} {flaps} times"

    def reset(self) -> str:
        one, other = self._pair()
        self._network.reset(address(one), other)
        return f"{NAMES[other]} resets {NAMES[one]} {self._wait()}"

    def lossy(self) -> str:
        victim, percent = self._victim(), self._chance.choice(LOSS_PERCENT)
        self._network.lose(victim, percent)
        return f"{NAMES[victim]} loses {percent} of 100 packets {self._wait()}"

    def slow(self) -> str:
        victim, rate = self._victim(), self._chance.choice(RATES)
        self._network.slow(victim, rate)
        return f"{NAMES[victim]} sends {rate} {self._wait()}"

    def unheard_clients(self) -> str:
        victim = self._victim()
        self._network.cut(CLIENTS, victim)
        return f"{NAMES[victim]} hears no client {self._wait()}"

    def reset_clients(self) -> str:
        """The connections of a node's clients end in the middle of what they send."""
        victim = self._victim()
        self._network.reset(CLIENTS, victim)
        return f"{NAMES[victim]} resets clients {self._wait()}"

    def killed_beside(self) -> str:
        """A node dies while the leader is cut one way; it comes back before the cut heals."""
        leader = self._network.leader()
        victim, other = self._chance.sample(others(leader), 2)
        self._network.cut(address(other), leader)
        self._network.kill(victim)
        words = self._wait()
        self._network.start(victim)
        return f"{NAMES[victim]} died, {NAMES[leader]} did not hear {NAMES[other]} {words}"

    def frozen_beside(self) -> str:
        """A node stands while it is cut off, so that all its timers are late when it wakes."""
        victim = self._victim()
        for other in others(victim):
            self._network.cut(address(victim), other)
        self._network.signal(victim, signal.SIGSTOP)
        words = self._wait()
        self._network.signal(victim, signal.SIGCONT)
        return f"{NAMES[victim]} stood {words}"

    @classmethod
    def names(cls) -> Sequence[str]:
        return list(cls.ALL)

    def do(self, name: str) -> str:
        """Do the fault of that name."""
        return self.ALL[name](self)

    ALL: Final[dict[str, Callable[["Faults"], str]]] = {
        "deaf": deaf,
        "mute": mute,
        "one way": one_way,
        "bridge": bridge,
        "circle": circle,
        "isolated": isolated,
        "shattered": shattered,
        "flapping": flapping,
        "reset": reset,
        "lossy": lossy,
        "slow": slow,
        "unheard clients": unheard_clients,
        "reset clients": reset_clients,
        "killed beside": killed_beside,
        "frozen beside": frozen_beside,
    }


class Partitioned:
    """One run on nodes that serve an empty queue."""

    def __init__(self, network: Namespaces, directory: Path, seed: int, tell: Tell) -> None:
        self._network = network
        self._seed = seed
        self._tell = tell
        self._directory = directory
        self._history = directory / "history"
        self._history.mkdir()
        self._windows: dict[str, list[checks.Window]] = {}
        self._findings: list[str] = []
        self._addresses = [network.beanstalk(number) for number in range(len(NAMES))]

    def run(self, minutes: float) -> Done:
        """Break things for so long, then empty the queue and judge."""
        began_s = time.monotonic()
        options = ["--history", str(self._history), "--seed", str(self._seed)]
        command = [sys.executable, "-m", "chaos.clients", *options, "--count", str(COUNT)]
        clients = Process([*command, *self._addresses], self._directory / "clients.log", cwd=ROOT)
        try:
            wait_for_time(WARM_UP_S)
            self._break(began_s, minutes)
            clients.signal(signal.SIGTERM)
            status = clients.wait(CLIENTS_END_TIMEOUT_S)
            assert status == 0, clients.story()
        finally:
            clients.kill()
        address, nodes = self._addresses[0], self._addresses
        jobs = ending.empty(address, nodes, COUNT, self._seed, self._history, EMPTY_TIMEOUT_S)
        return self._judge(jobs, time.monotonic() - began_s)

    def _break(self, began_s: float, minutes: float) -> None:
        """Do rounds of all faults, each round in an order of its own, until the time is over."""
        chance = random.Random(self._seed)
        faults = Faults(self._network, chance)
        while time.monotonic() - began_s < minutes * 60:
            for name in chance.sample(Faults.names(), len(Faults.names())):
                from_s = time.monotonic()
                words = faults.do(name)
                self._network.heal()
                self._network.wait_until_serving(*range(len(NAMES)))
                window = checks.Window(from_s, time.monotonic())
                self._windows.setdefault(name, []).append(window)
                self._tell(f"{from_s - began_s:7.1f} s  {name}: {words}")
                self._findings += self._network.ended()
                wait_for_time(chance.uniform(0, CALM_S_MAX))

    def _judge(self, total_jobs: int, seconds: float) -> Done:
        clients = list(record.read(self._history))
        found = checks.judge(clients)
        findings = [*self._findings, *found.violations(), *ending.miscounted(found, total_jobs)]
        for path in self._network.logs():
            lines = path.read_text(errors="replace").splitlines()
            findings += [f"{path}: {line}" for line in lines if any(w in line for w in TROUBLE)]
        done = Counter({name: len(windows) for name, windows in self._windows.items()})
        figures = ending.figures(found, COUNT, seconds)
        figures.append(", ".join(f"{name} {count}" for name, count in sorted(done.items())))
        for name, windows in sorted(self._windows.items()):
            gaps = checks.gaps_s(clients, windows)
            worst, middle = max(gaps), checks.percentile(gaps, 0.5)
            figures.append(
                f"without an acknowledged command, {name}: p50 {middle:.2f} s, max {worst:.2f} s"
            )
        return Done(figures, findings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m chaos.partitions", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES_DEFAULT)
    parser.add_argument("--seed", type=int, help="decides faults and clients (default: any)")
    parser.add_argument("--compiled", action="store_true", help="run the nodes of build/compiled")
    options = parser.parse_args(arguments)
    if why := namespaces.missing() or (check_compiled() if options.compiled else ""):
        print(why, file=sys.stderr)
        return 2
    if INSIDE not in os.environ:
        given = sys.argv[1:] if arguments is None else arguments
        words = ["unshare", "--net", sys.executable, "-m", "chaos.partitions", *given]
        # The same process goes on, so that whoever ends it ends all of it.
        os.chdir(ROOT)
        os.execvpe(words[0], words, {**os.environ, INSIDE: "1"})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="beanpole-partitions-"))
    print(f"seed {seed}, {options.minutes:g} minutes, in {directory}", flush=True)
    network = Namespaces(directory, options.compiled)
    try:
        for number in range(len(NAMES)):
            network.start(number)
        network.wait_until_serving(*range(len(NAMES)))
        tell: Tell = lambda line: print(line, flush=True)  # noqa: E731
        done = Partitioned(network, directory, seed, tell).run(options.minutes)
    except KeyboardInterrupt:  # Ctrl-C and SIGTERM
        print(f"seed {seed}: interrupted; history and logs: {directory}")
        return 130
    finally:
        network.close()
    print("\n".join(["", *done.figures, *(f"VIOLATION: {line}" for line in done.findings[:20])]))
    print(f"seed {seed}: {'VIOLATIONS, see ' + str(directory) if done.findings else 'good'}")
    if not done.findings:
        shutil.rmtree(directory)
    return 1 if done.findings else 0


if __name__ == "__main__":
    sys.exit(main())
