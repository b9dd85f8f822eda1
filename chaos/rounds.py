"""Rounds of faults on three nodes that run anywhere, with the clients of a soak, judged at the end.

Each round has all faults in another order; after each one everything heals and all nodes must be
ready again. What runs where is a `System`, what goes wrong is given by name: `partitions` and
`toxics` have both.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from chaos import checks, ending, record, report
from chaos.ground import TROUBLE
from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_for_time

ROOT: Final = Path(__file__).resolve().parents[1]
COUNT: Final = 12
MINUTES_DEFAULT: Final = 5.0
WARM_UP_S: Final = 1.0
# Shorter and longer than an election, a fence and the time after which a node is declared down.
DISTURBANCE_S: Final = (0.3, 12.0)
# Between two faults, so that clients get something done.
CALM_S_MAX: Final = 2.0
CLIENTS_END_TIMEOUT_S: Final = 90.0
# Connections that a cut has left half open end by their keepalives.
EMPTY_TIMEOUT_S: Final = 180.0
FINDINGS_SHOWN_MAX: Final = 20
WATCH_PERIOD_S: Final = 0.5

# One fault from begin to end but for its healing; returns a few words.
Fault = Callable[[], str]


class System(Protocol):
    """Three nodes, and what all runs need of them."""

    def start_all(self) -> None:
        """Start all nodes and wait until they are ready."""

    def close(self) -> None:
        """End everything."""

    def addresses(self) -> Sequence[str]:
        """Where clients reach each node."""

    def heal(self) -> None:
        """Undo all faults of links."""

    def wait_until_ready(self) -> None:
        """Wait until all nodes are ready; AssertionError if one ended or is not."""

    def is_leader(self, number: int) -> bool:
        """Whether a node says of itself that it leads and is ready."""

    def ended(self) -> list[str]:
        """Return what nodes that ended by themselves said; each is named once."""

    def logs(self) -> list[Path]:
        """Return the files of all lives of all nodes."""


class Done(NamedTuple):
    """What a run came to: lines of figures, and what is wrong."""

    figures: list[str]
    findings: list[str]


def spread(chance: random.Random) -> float:
    """Return for how long a fault lasts, in seconds; its order of magnitude is even."""
    low, high = DISTURBANCE_S
    return float(low * (high / low) ** chance.random())


class Rounds:
    """One run on nodes that serve an empty queue."""

    def __init__(
        self, system: System, faults: Mapping[str, Fault], directory: Path, seed: int
    ) -> None:
        self._system = system
        self._faults = faults
        self._seed = seed
        self._directory = directory
        self._history = directory / "history"
        self._history.mkdir()
        self._windows: dict[str, list[checks.Window]] = {}
        self._findings: list[str] = []
        self._addresses = system.addresses()
        self._leaders: list[tuple[float, int, bool]] = []
        self._ending = threading.Event()

    def run(self, minutes: float) -> Done:
        """Break things for so long, then empty the queue and judge."""
        began_s = time.monotonic()
        options = ["--history", str(self._history), "--seed", str(self._seed)]
        command = [sys.executable, "-m", "chaos.clients", *options, "--count", str(COUNT)]
        clients = Process([*command, *self._addresses], self._directory / "clients.log", cwd=ROOT)
        watch = threading.Thread(target=self._watch, name="leaders")
        watch.start()
        try:
            wait_for_time(WARM_UP_S)
            self._break(began_s, minutes)
            clients.signal(signal.SIGTERM)
            status = clients.wait(CLIENTS_END_TIMEOUT_S)
            assert status == 0, clients.story()
        finally:
            clients.kill()
            self._ending.set()
            watch.join()
        address, nodes = self._addresses[0], self._addresses
        jobs = ending.empty(address, nodes, COUNT, self._seed, self._history, EMPTY_TIMEOUT_S)
        return self._judge(jobs, time.monotonic() - began_s)

    def _break(self, began_s: float, minutes: float) -> None:
        """Do rounds of all faults, each round in an order of its own, until the time is over."""
        chance = random.Random(self._seed)
        while time.monotonic() - began_s < minutes * 60:
            for name in chance.sample(sorted(self._faults), len(self._faults)):
                from_s = time.monotonic()
                words = self._faults[name]()
                self._system.heal()
                self._system.wait_until_ready()
                window = checks.Window(from_s, time.monotonic())
                self._windows.setdefault(name, []).append(window)
                print(f"{from_s - began_s:7.1f} s  {name}: {words}", flush=True)
                self._findings += self._system.ended()
                wait_for_time(chance.uniform(0, CALM_S_MAX))

    def _watch(self) -> None:
        """Write down which node leads, for the report."""
        while not self._ending.wait(WATCH_PERIOD_S):
            for number in range(len(self._addresses)):
                leads = self._system.is_leader(number)
                self._leaders.append((time.monotonic(), number, leads))

    def write_report(self, path: Path, title: str, done: Done) -> None:
        """Write the page of a run that was judged."""
        clients = list(record.read(self._history))
        report.write(path, title, self._windows, clients, self._leaders, done)

    def _judge(self, total_jobs: int, seconds: float) -> Done:
        clients = list(record.read(self._history))
        found = checks.judge(clients)
        findings = [*self._findings, *found.violations(), *ending.miscounted(found, total_jobs)]
        for path in self._system.logs():
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


def parse(
    name: str, words: str | None, faults: Sequence[str], arguments: Sequence[str]
) -> argparse.Namespace:
    """Read the command line of `python -m chaos.NAME`, whose options are those of all runs."""
    parser = argparse.ArgumentParser(prog=f"python -m chaos.{name}", description=words)
    parser.add_argument("--minutes", type=float, default=MINUTES_DEFAULT)
    parser.add_argument("--seed", type=int, help="decides faults and clients (default: any)")
    parser.add_argument("--compiled", action="store_true", help="run the nodes of build/compiled")
    parser.add_argument(
        "--fault",
        action="append",
        choices=faults,
        metavar="NAME",
        help=f"only this one; may be repeated. One of: {', '.join(sorted(faults))}",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page of HTML")
    return parser.parse_args(arguments)


def begin(name: str, options: argparse.Namespace) -> Path:
    """Choose a seed if none is given, make the folder of a run, and say both."""
    # SIGTERM ends the nodes, too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**32)
    directory = Path(tempfile.mkdtemp(prefix=f"beanpole-{name}-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, in {directory}", flush=True)
    return directory


def run(
    system: System, faults: Mapping[str, Fault], options: argparse.Namespace, directory: Path
) -> int:
    """Start the nodes, do the rounds, tell; return the exit status."""
    chosen = {name: faults[name] for name in options.fault or faults}
    seed = options.seed
    try:
        system.start_all()
        rounds = Rounds(system, chosen, directory, seed)
        done = rounds.run(options.minutes)
        if options.report:
            rounds.write_report(options.report, f"{directory.name}, seed {seed}", done)
    except KeyboardInterrupt:  # Ctrl-C and SIGTERM
        print(f"seed {seed}: interrupted; history and logs: {directory}")
        return 130
    finally:
        system.close()
    wrong = [f"VIOLATION: {line}" for line in done.findings[:FINDINGS_SHOWN_MAX]]
    print("\n".join(["", *done.figures, *wrong]))
    if done.findings:
        print(f"seed {seed}: VIOLATIONS, see {directory}")
        return 1
    print(f"seed {seed}: good")
    shutil.rmtree(directory)
    return 0
