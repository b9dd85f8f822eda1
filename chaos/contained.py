"""A soak in containers: the nodes of compose.yaml, the clients of a soak, faults by the engine.

`python -m chaos.contained --minutes n` (under `chaos.engine`, which finds or starts an engine) runs
it. The clients are in a container of the same network and use all nodes and both ports of HAProxy.
The faults come one after the other, so a majority is left but for those of all nodes. The judges
are those of `soak`; the status is 0 only if nothing was lost, invented, doubled or stuck.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import docker

from chaos import checks, ending, images, record
from chaos.containers import ANY, BEANSTALK, LEADER, NAMES, PROXY, Containers
from chaos.ground import TROUBLE
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_for_time

CLIENTS: Final = 12
MINUTES_DEFAULT: Final = 10.0
WARM_UP_S: Final = 1.0
# Shorter and longer than an election, a fence and the time after which a node is declared down.
DISTURBANCE_S: Final = (0.3, 12.0)
DOWN_S_MAX: Final = 3.0
# Between two faults, so that clients get something done.
CALM_S_MAX: Final = 2.0
SETTLED_S: Final = 1.0
SLOW_SHARES: Final = (0.03, 0.1, 0.3)
LIMITED_BYTES: Final = 512 << 20
UNLIMITED_BYTES: Final = 2 << 30
CLIENTS_END_TIMEOUT_S: Final = 60
# A node that has another address keeps jobs for clients at its old one, until its keepalives find
# that they are gone (KEEPALIVE_* and USER_TIMEOUT_MS of host/aio_clients: 120 s).
EMPTY_TIMEOUT_S: Final = 180.0
# A client may think for so long before it uses a connection again.
THOUGHT_S_MAX: Final = 3.0

# HAProxy, from outside.
PUBLISHED: Final = f"127.0.0.1:{ANY}"

Tell = Callable[[str], None]


class Done(NamedTuple):
    """What a run came to: lines of figures, and what is wrong."""

    figures: list[str]
    findings: list[str]


class Faults:
    """Each method does one fault from begin to end, and returns a few words about it."""

    def __init__(self, nodes: Containers, chance: random.Random) -> None:
        self._nodes = nodes
        self._chance = chance
        # When a leader was killed, and when the next one had served for a while.
        self.windows: list[checks.Window] = []
        # When a node got another address: cut off and moved, or started again.
        self.moves: list[tuple[int, checks.Window]] = []
        self.findings: list[str] = []
        self._everywhere = range(len(NAMES))

    def _victim(self) -> int:
        # The leader in 40 of 100 cases or more: faults of followers are seldom noticed.
        if self._chance.random() < 0.4:
            return self._nodes.leader()
        return self._chance.choice(self._everywhere)

    def _moment(self) -> float:
        low, high = DISTURBANCE_S
        return float(low * (high / low) ** self._chance.random())

    def _away(self) -> None:
        wait_for_time(self._chance.uniform(0, DOWN_S_MAX))

    def kill(self) -> str:
        victim = self._victim()
        self._nodes.kill(victim)
        self._away()
        self._nodes.start(victim)
        return NAMES[victim]

    def kill_leader(self) -> str:
        victim = self._nodes.leader()
        killed_s = time.monotonic()
        self._nodes.kill(victim)
        successor = self._nodes.leader(other_than=victim)
        wait_for_time(SETTLED_S)
        self.windows.append(checks.Window(killed_s, time.monotonic()))
        self._away()
        self._nodes.start(victim)
        return f"{NAMES[victim]}, then {NAMES[successor]} led"

    def kill_all(self) -> str:
        self._nodes.kill(*self._everywhere)
        for number in self._chance.sample(self._everywhere, len(NAMES)):
            self._nodes.start(number)
        return "all"

    def stop(self) -> str:
        victim = self._victim()
        if status := self._nodes.stop(victim):
            self.findings.append(f"docker stop: {NAMES[victim]} ended with {status}")
        self._away()
        self._nodes.start(victim)
        return NAMES[victim]

    def pause(self) -> str:
        victim, seconds = self._victim(), self._moment()
        self._nodes.pause(victim)
        wait_for_time(seconds)
        self._nodes.unpause(victim)
        return f"{NAMES[victim]} for {seconds:.1f} s"

    def disconnect(self) -> str:
        """Cut a node off; mostly it comes back with another address."""
        victim, seconds = self._victim(), self._moment()
        before = self._nodes.address(victim)
        self._nodes.disconnect(victim)
        wait_for_time(seconds)
        after = self._nodes.connect(victim, before if self._chance.random() < 0.3 else "")
        return f"{NAMES[victim]} for {seconds:.1f} s, {before} then {after}"

    def slow(self) -> str:
        """Take most of the processor and of the memory from a node."""
        victim, seconds = self._victim(), self._moment()
        share = self._chance.choice(SLOW_SHARES)
        self._nodes.limit(victim, share, LIMITED_BYTES)
        wait_for_time(seconds)
        self._nodes.limit(victim, 0, UNLIMITED_BYTES)
        return f"{NAMES[victim]} with {share} of a core for {seconds:.1f} s"

    def do(self, name: str) -> str:
        """Do the fault of that name, and note which nodes have moved."""
        before = [self._nodes.address(number) for number in self._everywhere]
        began_s = time.monotonic()
        words = self.all()[name]()
        window = checks.Window(began_s, time.monotonic())
        for number in self._everywhere:
            if self._nodes.address(number) != before[number]:
                self.moves.append((number, window))
        return words

    def excuses(self, op: record.Op) -> bool:
        """Whether a command was sent to an address that was gone.

        Nobody refuses it there, and a client without keepalives waits for as long as it likes.
        """
        return op.outcome == record.SILENT and any(
            op.node == node
            and op.sent_s < window.until_s + THOUGHT_S_MAX
            and op.done_s > window.from_s
            for node, window in self.moves
        )

    def all(self) -> dict[str, Callable[[], str]]:
        """Return the faults by name."""
        return {
            "kill": self.kill,
            "kill leader": self.kill_leader,
            "pause": self.pause,
            "disconnect": self.disconnect,
            "stop": self.stop,
            "slow": self.slow,
            "kill all": self.kill_all,
        }


class Contained:
    """One run on nodes that serve an empty queue; it may have had jobs before."""

    def __init__(self, nodes: Containers, directory: Path, seed: int, tell: Tell) -> None:
        self._nodes = nodes
        self._seed = seed
        self._tell = tell
        self._directory = directory
        self._history = directory / "history"
        self._history.mkdir()
        self._faults = Faults(nodes, random.Random(seed))

    def run(self, minutes: float) -> Done:
        """Break things for so long, then empty the queue and judge."""
        began_s = time.monotonic()
        with Raw(PUBLISHED) as client:
            jobs_before = int(client.dictionary(b"stats")["total-jobs"])
        clients = self._start_clients()
        try:
            wait_for_time(WARM_UP_S)
            done = self._break(began_s, minutes)
            clients.stop(timeout=CLIENTS_END_TIMEOUT_S)
            status = clients.wait()["StatusCode"]
            assert not status, f"the clients ended with {status}: {clients.logs().decode()}"
            total_jobs = self._finish() - jobs_before
        finally:
            clients.remove(force=True)
            self._nodes.keep_logs(self._directory)
        return self._judge(done, total_jobs, time.monotonic() - began_s)

    def _start_clients(self) -> Any:
        options = ["--history", str(self._history), "--seed", str(self._seed)]
        addresses = [f"{name}:{BEANSTALK}" for name in NAMES]
        addresses += [f"{PROXY}:{ANY}", f"{PROXY}:{LEADER}"]
        command = ["python3", "-m", "chaos.clients", *options, "--count", str(CLIENTS)]
        return self._nodes.run_beside([*command, *addresses], self._history)

    def _break(self, began_s: float, minutes: float) -> Counter[str]:
        """Do rounds of all faults, each round in an order of its own, until the time is over."""
        chance = random.Random(self._seed)
        names = sorted(self._faults.all())
        done: Counter[str] = Counter()
        while time.monotonic() - began_s < minutes * 60:
            for name in chance.sample(names, len(names)):
                words = self._faults.do(name)
                done[name] += 1
                self._tell(f"{time.monotonic() - began_s:7.1f} s  {name}: {words}")
                self._nodes.wait_until_serving(*range(len(NAMES)))
                self._faults.findings += self._nodes.ended()
                wait_for_time(chance.uniform(0, CALM_S_MAX))
        return done

    def _finish(self) -> int:
        """Empty the queue through the proxy; return how many jobs it has had, as all nodes say."""
        nodes = [self._nodes.beanstalk(number) for number in range(len(NAMES))]
        return ending.empty(PUBLISHED, nodes, CLIENTS, self._seed, self._history, EMPTY_TIMEOUT_S)

    def _trouble(self) -> list[str]:
        """Return lines of the nodes' logs that should not be there."""
        return [
            f"{name}: {line}"
            for name in NAMES
            for line in (self._directory / f"{name}.log").read_text(errors="replace").splitlines()
            if any(words in line for words in TROUBLE)
        ]

    def _judge(self, done: Counter[str], total_jobs: int, seconds: float) -> Done:
        clients = list(record.read(self._history))
        found = checks.judge(clients)
        excused = {str(op) for ops in clients for op in ops if self._faults.excuses(op)}
        found.odd = [line for line in found.odd if line.partition(": ")[2] not in excused]
        findings = [*self._faults.findings, *found.violations(), *self._trouble()]
        findings += ending.miscounted(found, total_jobs)
        nodes = Counter(op.node for ops in clients[:CLIENTS] for op in ops if op.kind == record.PUT)
        figures = [
            *ending.figures(found, CLIENTS, seconds),
            f"silent at an address that was gone {len(excused)}",
            ", ".join(f"{name} {count}" for name, count in sorted(done.items())),
            "puts at n1, n2, n3, the proxy's any node, its leader: "
            + ", ".join(str(nodes[number]) for number in range(len(NAMES) + 2)),
            *checks.gap_figures(checks.gaps_s(clients, self._faults.windows)),
        ]
        return Done(figures, findings)


def _tell(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m chaos.contained", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES_DEFAULT)
    parser.add_argument("--seed", type=int, help="decides faults and clients (default: any)")
    options = parser.parse_args(arguments)
    if why := images.missing():
        print(why, file=sys.stderr)
        return 2
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="beanpole-contained-"))
    print(f"seed {seed}, {options.minutes:g} minutes, in {directory}", flush=True)
    engine = docker.from_env()
    nodes = Containers(engine, images.build(engine), directory, f"beanpole-contained-{seed}")
    try:
        nodes.up()
        done = Contained(nodes, directory, seed, _tell).run(options.minutes)
    finally:
        nodes.down()
    print("\n".join(["", *done.figures, *(f"VIOLATION: {line}" for line in done.findings[:20])]))
    print(f"seed {seed}: {'VIOLATIONS, see ' + str(directory) if done.findings else 'good'}")
    if not done.findings:
        shutil.rmtree(directory)
    return 1 if done.findings else 0


if __name__ == "__main__":
    sys.exit(main())
