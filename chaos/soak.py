"""The soak: real nodes, real clients, real faults, and a summary of their results.

`python -m chaos` (`make soak MINUTES=n`) runs it. The exit status is 0 only if nothing was lost,
invented, doubled or stuck; the files of a failed run stay where the summary says.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from chaos import checks, compiled_tree, ending, memory, plan, power, record
from chaos.clients import Client, command_line
from chaos.faults import Nemesis
from chaos.ground import COUNT, PLAIN, TROUBLE, Ground, Kind
from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_for_time

ROOT: Final = Path(__file__).resolve().parents[1]
CLIENTS: Final = 12
MINUTES_DEFAULT: Final = 20.0
WARM_UP_S: Final = 1.0
DRAIN_TIMEOUT_S: Final = 60.0
FINDINGS_SHOWN_MAX: Final = 20
FINDINGS_BYTES_MAX: Final = 4000
Tell = Callable[[str], None]


class Soak:
    """One run."""

    def __init__(
        self, directory: Path, seed: int, minutes: float, tell: Tell, kind: Kind = PLAIN
    ) -> None:
        self.directory = directory
        self.seed = seed
        self.minutes = minutes
        self.findings: list[str] = []
        self.figures: list[str] = []
        self._tell_user = tell
        self._history = directory / "history"
        self._history.mkdir()
        self._ground = Ground(directory, seed, kind)
        self._began_s = time.monotonic()
        self._load: Process | None = None
        self._total_jobs: int | None = None  # None until the queue is empty
        self._writes: list[str] = []
        self._done: list[str] = []  # the kinds of the completed faults

    def run(self) -> bool:
        """Run the soak; return whether there are no findings."""
        ground = self._ground
        watch = memory.Watch(lambda: time.monotonic() - self._began_s, self.measured)
        try:
            for number in range(COUNT):
                ground.start(number)
            ground.wait_until_serving(*range(COUNT))
            self._start_clients()
            wait_for_time(WARM_UP_S)
            self._break()
            self._stop_clients()
            if not ground.findings:
                self._finish()
        except AssertionError as error:
            self.findings.append(str(error))
        finally:
            if self._load:
                self._load.kill()
            seconds = time.monotonic() - self._began_s
            watch.end(self.directory / "memory.jsonl")
            self._count_writes()
            ground.close()
        self.findings += ground.findings
        self.findings += ground.read_logs(lambda line: any(word in line for word in TROUBLE))
        self._judge(seconds, watch.samples)
        return not self.findings

    def measured(self) -> list[tuple[int, float, int]]:
        """Return number, age in seconds and process id of the nodes whose memory is compared."""
        return self._ground.living()

    def _break(self) -> None:
        """Apply all faults while the clients work."""
        ground = self._ground
        schedule = plan.make_plan(self.seed, self.minutes, ground.kind.rates)
        nemesis = Nemesis(ground, schedule, self._tell)
        self._done = nemesis.done
        nemesis.run()

    def _tell(self, line: str) -> None:
        with (self.directory / "faults.log").open("a") as log:
            log.write(line + "\n")
        self._tell_user(line)

    def _start_clients(self) -> None:
        addresses = self._ground.addresses()
        command = command_line(self._history, self.seed, CLIENTS, addresses)
        log = self.directory / "clients.log"
        self._load = Process([sys.executable, *command], log, cwd=ROOT)

    def _stop_clients(self) -> None:
        assert self._load
        self._load.signal(signal.SIGTERM)
        status = self._load.wait(DRAIN_TIMEOUT_S)
        assert status == 0, self._load.story()

    def _finish(self) -> None:
        """Compare the nodes, empty the queue, and compare them again."""
        ground = self._ground
        ground.wait_until_serving(*range(COUNT))
        ground.leader()
        self._compare("with jobs")
        addresses = [node.beanstalk for node in ground.cluster.nodes]
        last = Client(CLIENTS, addresses, self.seed, self._history)
        last.connect(self.seed % COUNT)
        ending.empty(last, addresses[0], DRAIN_TIMEOUT_S)
        self._total_jobs = self._compare("empty")
        ground.look()

    def _compare(self, when: str) -> int:
        """Wait until all nodes report the same queue; return its total number of jobs."""
        told: list[ending.Stats | None] = []
        try:
            ending.wait_until_equal([node.beanstalk for node in self._ground.cluster.nodes], told)
        except AssertionError as error:
            self.findings.append(f"{when}, the nodes differ: {told} ({error})")
        return ending.total_jobs(told)

    def _count_writes(self) -> None:
        """Record how the nodes used forgetful disks, before these are unmounted."""
        ground = self._ground
        if not ground.disks:
            return
        done = Counter(self._done)
        cuts = done[plan.POWER_CUT], done[plan.POWER_CUT_ALL]
        self._writes = power.figures(*cuts, ground.disks)
        if ground.kind.compiled and not all(disk.counts()["direct"] for disk in ground.disks):
            self.findings.append("a compiled node wrote nothing with O_DIRECT")

    def _judge(self, seconds: float, samples: Sequence[memory.Sample]) -> None:
        clients = list(record.read(self._history))
        found = checks.judge(clients)
        rates = self._ground.kind.rates
        flatness, growing = memory.verdict(samples, seconds, COUNT)
        if self._ground.findings or self._total_jobs is None:
            # The queue was not emptied, so missing jobs may still be in it.
            found.verdict.lost.clear()
        else:
            self.findings += ending.miscounted(found, self._total_jobs)
        self.findings += found.violations()
        if not self.findings:  # nothing else says why there would be none
            self.findings += ending.idle(found) + ending.undecided(found)
        if not self.findings:  # otherwise the run ended early, and a finding says why
            self.findings += plan.shortfalls(self._done, self.minutes, rates)
            self.findings += growing
        windows = [checks.Window(*window) for window in self._ground.windows]
        (self.directory / "windows.json").write_text(json.dumps(windows) + "\n")
        self.figures = summary(found, Counter(self._done), self._ground, seconds)
        self.figures += checks.gap_figures(checks.gaps_s(clients, windows))
        self.figures += [*self._writes, flatness]
        wanted = plan.asked_for(self.minutes, rates)
        asked = ", ".join(f"{words} {n}" for words, n in wanted.items()) or "nothing"
        self.figures.append(f"asked for in {self.minutes:g} minutes: {asked}")


def summary(
    found: checks.Findings, done: Counter[str], ground: Ground, seconds: float
) -> list[str]:
    """Return the figures of a run, a line each."""
    verdict = found.verdict
    disk = ", ".join(f"{words} {n}" for words, n in sorted(Counter(ground.disk_words).items()))
    refused = ", ".join(f"{word} {n}" for word, n in sorted(found.refused.items())) or "none"
    return [
        f"ran {seconds / 60:.1f} minutes with {CLIENTS} clients, {found.commands} commands",
        f"kills: single nodes {done[plan.KILL]}, leader {done[plan.KILL_LEADER]}, "
        f"all {done[plan.KILL_ALL]}; ordered restarts {done[plan.RESTART]}",
        f"stops {done[plan.STOP]}, cuts {done[plan.CUT]}, clock steps {done[plan.CLOCK]}",
        f"disk faults {len(ground.disk_words)} ({disk})",
        f"rejoins {ground.rejoins} (wiped disks {done[plan.WIPE]}, "
        f"damaged files {done[plan.DAMAGE]})",
        f"puts: attempts {verdict.attempts}, acknowledged {verdict.acknowledged}, "
        f"unknown {found.unknown_puts}; commands refused: {refused}",
        f"delivered {verdict.delivered}, deleted {verdict.deleted}",
        found.outcome(),
    ]


def _refusal(kind: Kind, directory: Path) -> str:
    """Return in one line why this machine cannot run such a soak; empty if it can."""
    if kind.compiled and (words := compiled_tree.missing()):
        return words
    try:
        if kind.forgetful:
            power.check(directory)
    except power.Unavailable as refused:
        return f"--forgetful: {refused}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak according to the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES_DEFAULT)
    parser.add_argument("--seed", type=int, help="decides faults and clients (default: any)")
    parser.add_argument("--dir", type=Path, help="where to put the files of the run")
    parser.add_argument(
        "--compiled",
        action=argparse.BooleanOptionalAction,
        help="run the nodes of build/compiled (what `make soak` does), or those of the sources",
    )
    parser.add_argument(
        "--forgetful",
        action="store_true",
        help="put the data on file systems that forget what was not synced, and cut the power",
    )
    parser.add_argument(
        "--calm",
        action="store_true",
        help="end no process, to watch the memory of the nodes",
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of a good run, too")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="beanpole-soak-", dir=options.dir))
    kind = Kind(compiled=bool(options.compiled), forgetful=options.forgetful, calm=options.calm)
    if refusal := _refusal(kind, directory):
        print(refusal, file=sys.stderr)
        shutil.rmtree(directory)
        return 2
    nodes = f"{'compiled' if kind.compiled else 'interpreted'} nodes"
    disks = " on disks that forget" if kind.forgetful else ""
    told = f"seed {seed}, {options.minutes:g} minutes, {nodes}{disks}, in {directory}"
    print(told, flush=True)
    soak = Soak(directory, seed, options.minutes, lambda line: print(line, flush=True), kind)
    return run_and_tell(soak, options.keep)


def run_and_tell(soak: Soak, keep: bool) -> int:
    """Run the soak, print its results, and return the exit status; `keep` the files if good."""
    # SIGTERM, like Ctrl-C, must also end the nodes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        good = soak.run()
    except KeyboardInterrupt:
        print(f"seed {soak.seed}: interrupted; history and logs: {soak.directory}")
        return 130
    print("\n".join(["", *soak.figures]))
    for line in soak.findings[:FINDINGS_SHOWN_MAX]:
        print(f"VIOLATION: {line[:FINDINGS_BYTES_MAX]}")
    if good and not keep:
        shutil.rmtree(soak.directory)
    print(f"seed {soak.seed}: {'good' if good else f'{len(soak.findings)} VIOLATIONS'}")
    if not good or keep:
        print(f"history and logs: {soak.directory}")
    return 0 if good else 1
