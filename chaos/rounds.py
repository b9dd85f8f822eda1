"""Rounds of scenarios on three nodes, with the clients of a soak, judged at the end.

`python -m chaos.rounds BACKEND --minutes n` runs them. Each round has all scenarios that the
backend supports, in a new order; after each one everything heals and all nodes must be ready
again. The backends are in `backends`, the scenarios in `scenarios`. The status is 0 only if
nothing was lost, invented, doubled or stuck.
"""

import argparse
import os
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
from typing import Final, NamedTuple

from chaos import backends, checks, compiled_tree, ending, record, report, scenarios
from chaos.backends.namespaces import Namespaces, enter_own
from chaos.clients import Client
from chaos.ground import TROUBLE
from chaos.nemesis import NODES, ROOT, Backend
from chaos.scenarios import Scenario
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_for_time

COUNT: Final = 12
MINUTES_DEFAULT: Final = 5.0
WARM_UP_S: Final = 1.0
# The most time between two faults, in which clients make progress.
CALM_S_MAX: Final = 2.0
# Connections that a cut has left half open end by their keepalives: a node whose address changed
# keeps jobs for clients at the old address for that long (KEEPALIVE_* of host/aio_clients).
EMPTY_TIMEOUT_S: Final = 180.0
FINDINGS_SHOWN_MAX: Final = 20
WATCH_PERIOD_S: Final = 0.5

Tell = Callable[[str], None]


class Done(NamedTuple):
    """The result of a run: lines of figures, and findings."""

    figures: list[str]
    findings: list[str]


class Rounds:
    """One run on nodes with an empty queue, which may have had jobs before."""

    def __init__(
        self,
        backend: Backend,
        chosen: Mapping[str, Scenario],
        directory: Path,
        seed: int,
        tell: Tell,
    ) -> None:
        self._backend = backend
        self._chosen = chosen
        self._seed = seed
        self._tell = tell
        self._history = directory / "history"
        self._history.mkdir()
        self._windows: dict[str, list[checks.Window]] = {}
        self._roles: list[report.Role] = []
        self._ending = threading.Event()

    def run(self, minutes: float) -> Done:
        """Apply faults for the given time, then empty the queue and judge."""
        began_s = time.monotonic()
        with Raw(self._backend.door()) as client:
            jobs_before = int(client.dictionary(b"stats")["total-jobs"])
        clients = self._backend.start_clients(self._history, self._seed, COUNT)
        watch = threading.Thread(target=self._watch, name="roles")
        watch.start()
        try:
            wait_for_time(WARM_UP_S)
            self._break(began_s, minutes)
            clients.end()
        finally:
            clients.kill()
            self._ending.set()
            watch.join()
        door = self._backend.door()
        last = Client(COUNT, [door], self._seed, self._history)
        last.connect(0)
        ending.empty(last, door, EMPTY_TIMEOUT_S)
        told: list[ending.Stats | None] = []
        ending.wait_until_equal(self._backend.addresses(), told)
        jobs = ending.total_jobs(told) - jobs_before
        return self._judge(jobs, time.monotonic() - began_s)

    def _break(self, began_s: float, minutes: float) -> None:
        """Run rounds of all scenarios, each in a new order, until the time is over: at least one.

        The start of the clients has taken some of the time, on a slow machine perhaps all of it.
        """
        backend, chance = self._backend, random.Random(self._seed)
        while not self._windows or time.monotonic() - began_s < minutes * 60:
            for name in chance.sample(sorted(self._chosen), len(self._chosen)):
                from_s = time.monotonic()
                words = self._chosen[name].act(backend, random.Random(chance.randrange(2**32)))
                backend.heal()
                backend.wait_until_ready()
                window = checks.Window(from_s, time.monotonic())
                self._windows.setdefault(name, []).append(window)
                self._tell(f"{from_s - began_s:7.1f} s  {name}: {words}")
                backend.look()
                wait_for_time(chance.uniform(0, CALM_S_MAX))

    def _watch(self) -> None:
        """Record the role that each node reports, for the report."""
        while not self._ending.wait(WATCH_PERIOD_S):
            for number in NODES:
                role = self._backend.role(number)
                self._roles.append(report.Role(time.monotonic(), number, role))

    def write_report(self, path: Path, title: str, done: Done) -> None:
        """Write the page of a run that was judged."""
        clients = list(record.read(self._history))
        report.write(path, title, self._windows, clients, self._roles, done)

    def _judge(self, total_jobs: int, seconds: float) -> Done:
        clients = list(record.read(self._history))
        found = checks.judge(clients)
        excused = {str(op) for ops in clients for op in ops if self._backend.excuses(op)}
        found.odd = [line for line in found.odd if line.partition(": ")[2] not in excused]
        findings = [*self._backend.findings, *found.violations()]
        findings += ending.idle(found) + ending.miscounted(found, total_jobs)
        findings += ending.undecided(found)
        for path in self._backend.logs():
            lines = path.read_text(errors="replace").splitlines()
            findings += [f"{path}: {line}" for line in lines if any(w in line for w in TROUBLE)]
        figures = ending.figures(found, COUNT, seconds)
        if excused:
            figures.append(f"silent at an address that was gone {len(excused)}")
        counts = {name: len(windows) for name, windows in sorted(self._windows.items())}
        figures.append(", ".join(f"{name} {count}" for name, count in counts.items()))
        figures.append(f"puts by address: {_puts_by_address(clients)}")
        for name, windows in sorted(self._windows.items()):
            gaps = checks.gaps_s(clients, windows)
            worst, middle = max(gaps), checks.percentile(gaps, 0.5)
            figures.append(
                f"without an acknowledged command, {name}: p50 {middle:.2f} s, max {worst:.2f} s"
            )
        return Done(figures, findings)


def _puts_by_address(clients: Sequence[Sequence[record.Op]]) -> str:
    """Return the number of puts at each address, without those of the last client."""
    puts = Counter(op.node for ops in clients[:COUNT] for op in ops if op.kind == record.PUT)
    return ", ".join(str(puts[number]) for number in sorted(puts))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; reject scenarios that the backend does not support."""
    parser = argparse.ArgumentParser(prog="python -m chaos.rounds", description=__doc__)
    parser.add_argument("backend", choices=sorted(backends.ALL), help="where the nodes are")
    parser.add_argument("--minutes", type=float, default=MINUTES_DEFAULT)
    parser.add_argument("--seed", type=int, help="decides faults and clients (default: any)")
    parser.add_argument(
        "--compiled",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="run the nodes of build/compiled (what `make rounds` does), or those of the sources",
    )
    parser.add_argument(
        "--scenario", action="append", metavar="NAME", help="only this one; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios, and end")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page of HTML")
    options = parser.parse_args(arguments)
    possible = scenarios.possible(backends.ALL[options.backend].kind)
    if wrong := sorted(set(options.scenario or []) - possible.keys()):
        names = ", ".join(possible)
        parser.error(f"{options.backend} cannot do {', '.join(wrong)}; it can do: {names}")
    return options


def choose(backend: Backend, names: Sequence[str] | None, tell: Tell) -> dict[str, Scenario]:
    """Return the scenarios of a run, without those that this machine cannot do."""
    possible = scenarios.possible(type(backend))
    chosen = {name: possible[name] for name in names or possible}
    for ability, why in backend.unable().items():
        for name in [name for name, one in chosen.items() if issubclass(one.needs, ability)]:
            tell(f"left out: {name}: {why}")
            del chosen[name]
    return chosen


def _tell(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rounds according to the command line; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parse(given)
    place = backends.ALL[options.backend]
    if options.list:
        for one in scenarios.possible(place.kind).values():
            print(f"{one.name:<22}{one.story}")
        return 0
    if why := place.missing() or (compiled_tree.missing() if options.compiled else ""):
        print(why, file=sys.stderr)
        return 2
    if place.kind is Namespaces:
        enter_own("chaos.rounds", given)
    # SIGTERM, like Ctrl-C, must also end the nodes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.chdir(ROOT)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix=f"beanpole-{options.backend}-"))
    print(f"seed {seed}, {options.minutes:g} minutes, in {directory}", flush=True)
    return run(place.make(directory, options.compiled), options, directory, seed)


def run(backend: Backend, options: argparse.Namespace, directory: Path, seed: int) -> int:
    """Start the nodes, run the rounds, print the result; return the exit status."""
    if words := backend.words():
        _tell(words)
    try:
        chosen = choose(backend, options.scenario, _tell)
        if not chosen:  # nothing would be broken, and that would look good
            print("no scenario is left", file=sys.stderr)
            return 2
        backend.start_all()
        rounds = Rounds(backend, chosen, directory, seed, _tell)
        done = rounds.run(options.minutes)
        if options.report:
            title = f"{options.backend}, seed {seed}"
            rounds.write_report(options.report, title, done)
    except KeyboardInterrupt:  # Ctrl-C and SIGTERM
        print(f"seed {seed}: interrupted; history and logs: {directory}")
        return 130
    finally:
        backend.close()
    wrong = [f"VIOLATION: {line}" for line in done.findings[:FINDINGS_SHOWN_MAX]]
    print("\n".join(["", *done.figures, *wrong]))
    if done.findings:
        print(f"seed {seed}: VIOLATIONS, see {directory}")
        return 1
    print(f"seed {seed}: good")
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
