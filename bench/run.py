"""The command line of the benchmark, and the run itself: systems take turns, round by round.

Each system starts freshly in an empty folder on the same disk, and each round has all of them, so
that a change of the machine's speed affects all; the order rotates by one from round to round.
"""

import argparse
import itertools
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import (
    backups,
    check,
    generator,
    million,
    profile,
    report,
    results,
    scrape,
    stall,
    strangers,
    tls,
)
from bench.generator import BUILD, Figure, Generator
from bench.processes import BenchError
from bench.results import Results
from bench.servers import BEANPOLE_3, BEANPOLE_INSTALLED, System
from bench.workloads import BACKLOG_JOBS, SETS, SYSTEMS, Set, Workload, workload

WARM_UP_S: Final = 1.0
DEFAULT: Final = "quick"
QUICK: Final = SETS[0]
# `check` found nothing slower, but a loss would not have shown.
EXIT_UNCLEAR: Final = 3
WHEEL_AND_TREE: Final = (BEANPOLE_3, BEANPOLE_INSTALLED)
HELP: Final = """\
Measures Beanpole beside beanstalkd and other queues, all in one run on this machine. Without a
command it is `quick`. Debian's packages must be there (apt-get install beanstalkd rabbitmq-server
nats-server redis-server gearman-job-server); the benchmark starts and stops the servers itself.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of the command line; return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, DEFAULT)
    options = parser().parse_args(words)
    # Exit normally on SIGTERM, too, so that the servers are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return int(options.run(options))
    except (BenchError, OSError, subprocess.SubprocessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m bench", description=HELP)
    commands = found.add_subparsers(metavar="COMMAND", required=True)
    for one in SETS:
        command = _add(commands, one.name, one.title)
        _add_measuring(command, one)
        if one is QUICK:
            command.add_argument(
                "--installed",
                action="store_true",
                help="only three nodes of `make compiled` and those of the wheel of `make wheel`",
            )
        command.set_defaults(run=run_set, set=one)
    command = _add(commands, "run", "one workload, with systems of your choice")
    _add_measuring(command, Set("run", "", SYSTEMS, (), (64,)))
    command.add_argument("--workload", default="full", help="see docs/performance.md")
    command.set_defaults(run=run_one)
    command = _add(commands, "profile", "what each stage of a command's way costs a node")
    _add_load(command, (64,))
    command.add_argument("--workloads", default="full,put,take", metavar="A,B", help="which ones")
    command.set_defaults(run=run_profile)
    command = _add(commands, "million", "memory, snapshots and restarts with a million jobs")
    _add_load(command, (64,))
    _add_dir(command)
    command.set_defaults(run=run_million)
    command = _add(commands, "stall", "how long bystanders wait while others do the worst")
    _add_dir(command)
    command.set_defaults(run=run_stall)
    command = _add(
        commands, "strangers", "the rate beside strangers that are refused, over without"
    )
    _add_load(command, (strangers.CONNECTIONS,))
    _add_dir(command)
    command.set_defaults(run=run_strangers)
    command = _add(commands, "backups", "backup, verify and restore of ever more jobs")
    _add_load(command, (backups.CONNECTIONS,))
    command.add_argument("--steps", type=_rising, default=backups.STEPS, metavar="N,N")
    _add_dir(command)
    command.set_defaults(run=run_backups)
    command = _add(commands, "scrape", "pages of metrics with many queues, and puts beside them")
    command.add_argument("--queues", type=_count, default=scrape.QUEUES)
    _add_dir(command)
    command.set_defaults(run=run_scrape)
    command = _add(commands, "tls", "the rate with TLS for clients and between nodes, over without")
    _add_load(command, (tls.CONNECTIONS,))
    command.add_argument("--rounds", type=_count, default=tls.ROUNDS)
    _add_dir(command)
    command.set_defaults(run=run_tls)
    words = "a quick run; status 1 if a recorded ratio got worse, 3 if that cannot be told"
    command = _add(commands, "check", words)
    _add_measuring(command, QUICK)
    command.add_argument("--recorded", type=Path, default=check.RECORDED)
    command.set_defaults(run=run_check, set=QUICK)
    command = _add(commands, "record", "make the ratios of a quick run those that `check` wants")
    command.add_argument("file", type=Path, nargs="?", default=BUILD / "quick.json")
    command.add_argument("--recorded", type=Path, default=check.RECORDED)
    command.set_defaults(run=run_record)
    command = _add(commands, "report", "write files of results into docs/performance.md")
    command.add_argument("files", type=Path, nargs="+", help="what the sets wrote")
    command.add_argument("--page", type=Path, default=report.PAGE)
    command.set_defaults(run=run_report)
    return found


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def _rising(text: str) -> tuple[int, ...]:
    found = _counts(text)
    if any(after <= before for before, after in itertools.pairwise(found)):
        raise argparse.ArgumentTypeError("each must be above the one before")
    return found


def _add_load(command: argparse.ArgumentParser, connections: tuple[int, ...]) -> None:
    add = command.add_argument
    add("--seconds", type=_positive, default=3.0, help="length of one measurement")
    add("--body", type=int, default=100, help="bytes of a job's body, where the workload leaves it")
    add(
        "--connections",
        type=_counts,
        default=connections,
        metavar="N,N",
        help="numbers of connections",
    )


def _add_dir(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dir", type=Path, default=BUILD, help="where the data goes: a real disk")


def _add_measuring(command: argparse.ArgumentParser, one: Set) -> None:
    _add_load(command, one.connections)
    add = command.add_argument
    add("--rounds", type=_count, default=2, help="measurements of each kind")
    add("--only", action="append", help="only systems whose name has this text; may be repeated")
    add("--workloads", default="", help="only workloads whose name has one of these texts: A,B")
    _add_dir(command)
    add("--json", type=Path, default=None, help="where the results go (bench/build/SET.json)")


def run_set(options: argparse.Namespace) -> int:
    """Measure one of the sets, print its tables, keep its results."""
    if getattr(options, "installed", False):
        # The results of the full set stay in a file of their own.
        options.set = options.set._replace(name="installed", systems=WHEEL_AND_TREE)
    found = measure(options.set, options)
    print()
    print(report.text(found))
    return 0


def run_one(options: argparse.Namespace) -> int:
    """Measure one workload."""
    one = workload(options.workload)
    systems = tuple(system for system in SYSTEMS if one.fits(system))
    options.set = Set("run", one.title, systems, (one,), options.connections)
    return run_set(options)


def run_profile(options: argparse.Namespace) -> int:
    """Sample nodes under load; print the table."""
    load = Generator(generator.build(), options.seconds, WARM_UP_S, options.body)
    loads = [workload(name) for name in options.workloads.split(",")]
    for connections in options.connections:
        print(f"{connections} connections\n")
        print(report.markdown(profile.table(profile.profile(load, loads, connections))))
    return 0


def run_million(options: argparse.Namespace) -> int:
    """Take a cluster of a million jobs through snapshots and restarts; print the table."""
    load = Generator(generator.build(), options.seconds, WARM_UP_S, options.body)
    options.dir.mkdir(parents=True, exist_ok=True)
    for connections in options.connections:
        found = million.measure(load, BACKLOG_JOBS, connections, options.dir.resolve())
        print(report.markdown(million.table(found)))
    return 0


def run_stall(options: argparse.Namespace) -> int:
    """Run all attacks and print the waits of the bystanders."""
    options.dir.mkdir(parents=True, exist_ok=True)
    found = stall.measure(options.dir.resolve())
    print(stall.table(found))
    return int(any(one.is_bad for one in found))


def run_strangers(options: argparse.Namespace) -> int:
    """Measure beside strangers and print their cost."""
    options.dir.mkdir(parents=True, exist_ok=True)
    load = Generator(generator.build(), options.seconds, WARM_UP_S, options.body)
    for connections in options.connections:
        with tempfile.TemporaryDirectory(prefix="strangers-", dir=options.dir) as made:
            found = strangers.measure(load, connections, Path(made).resolve())
        print(f"{connections} connections\n")
        print(strangers.table(found))
    return 0


def run_backups(options: argparse.Namespace) -> int:
    """Back up, verify and restore with growing numbers of jobs; print the table."""
    options.dir.mkdir(parents=True, exist_ok=True)
    load = Generator(generator.build(), options.seconds, WARM_UP_S, options.body)
    found = backups.measure(load, options.steps, options.dir.resolve())
    print(report.markdown(backups.table(found)))
    return 0


def run_scrape(options: argparse.Namespace) -> int:
    """Scrape a node with many queues; print the table."""
    options.dir.mkdir(parents=True, exist_ok=True)
    found = scrape.measure(options.queues, options.dir.resolve())
    print(report.markdown(scrape.table(found)))
    return 0


def run_tls(options: argparse.Namespace) -> int:
    """Measure with and without TLS in turns; print the table."""
    options.dir.mkdir(parents=True, exist_ok=True)
    load = Generator(generator.build(tls=True), options.seconds, WARM_UP_S, options.body)
    for connections in options.connections:
        found = tls.measure(load, connections, options.rounds, options.dir.resolve())
        print(f"{connections} connections\n")
        print(report.markdown(tls.table(found)))
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Compare a quick run with the recorded ratios."""
    recorded = check.load(options.recorded)
    measured = measure(options.set, options)
    if words := check.elsewhere(options.recorded, measured.machine):
        print(f"bench-check: {words}")
    found = check.ratios_of(measured)
    slower, unclear = check.slower(recorded, found), check.unclear(found)
    for line in slower:
        print(f"slower: {line}")
    for line in unclear:
        print(f"cannot tell: {line}")
    if slower:
        print(f"bench-check: {len(slower)} of {len(recorded)} ratios got worse")
        return 1
    if unclear:
        print("bench-check: other work disturbs this run: repeat it on a quiet machine")
        return EXIT_UNCLEAR
    print("bench-check: as fast as recorded")
    return 0


def run_record(options: argparse.Namespace) -> int:
    """Store the ratios of a run as the reference of later checks."""
    count = check.record(results.load(options.file), options.recorded)
    print(f"{count} ratios recorded in {options.recorded}")
    return 0


def run_report(options: argparse.Namespace) -> int:
    """Rewrite the tables and charts of the page."""
    written = report.write([results.load(path) for path in options.files], options.page)
    print("\n".join(map(str, written)))
    return 0


def measure(one: Set, options: argparse.Namespace) -> Results:
    """Measure a set and write its results to a file."""
    systems = chosen_systems(one.systems, options.only or [""])
    loads = chosen_workloads(one.workloads, options.workloads)
    options.dir.mkdir(parents=True, exist_ok=True)
    load = Generator(generator.build(), options.seconds, WARM_UP_S, options.body)
    machine = results.machine(options.dir, systems)
    figures: list[Figure] = []
    for number in range(options.rounds):
        turn = number % len(systems)
        for kind in loads:
            for system in systems[turn:] + systems[:turn]:
                if kind.fits(system):
                    figures += run_system(load, number + 1, system, kind, options)
    found = Results(
        one.name, results.now(), machine, options.seconds, options.rounds, options.body, figures
    )
    path = options.json or BUILD / f"{one.name}.json"
    results.save(found, path)
    print(f"results: {path}")
    return found


def chosen_systems(systems: Sequence[System], texts: Sequence[str]) -> list[System]:
    """Return the selected systems that are installed; BenchError if none is selected."""
    chosen = [one for one in systems if any(text in one.name for text in texts)]
    if not chosen:
        names = "; ".join(one.name for one in systems)
        raise BenchError(f"--only {' '.join(texts)!r} is in none of these names: {names}")
    missing = sorted({one.package for one in chosen if not one.installed})
    if missing:
        print(f"missing, and left out: apt-get install {' '.join(missing)}", file=sys.stderr)
    return [one for one in chosen if one.installed]


def chosen_workloads(loads: Sequence[Workload], text: str) -> list[Workload]:
    """Return the selected workloads; BenchError if there are none."""
    chosen = [one for one in loads if any(part in one.name for part in text.split(","))]
    if not chosen:
        names = ", ".join(one.name for one in loads)
        raise BenchError(f"--workloads {text!r} is in none of these names: {names}")
    return chosen


def run_system(
    load: Generator, number: int, system: System, kind: Workload, options: argparse.Namespace
) -> list[Figure]:
    """Measure a system in one round, with all numbers of connections."""
    figures: list[Figure] = []
    wanted = (kind.connections,) if kind.connections else options.connections
    together = [wanted]
    if kind.leaves_jobs:
        together = [(count,) for count in wanted]
    for counts in together:
        folder = Path(tempfile.mkdtemp(prefix="data-", dir=options.dir.resolve()))
        try:
            with system.run(folder) as running:
                for connections in counts:
                    figure = load.measure(number, system, running, kind, connections)
                    figures.append(figure)
                    print(
                        f"round {number}: {system.name}, {kind.name}, {connections} connections: "
                        f"{figure.op_s:,.0f} op/s",
                        flush=True,
                    )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return figures
