"""Measures Beanpole beside beanstalkd: op/s and latency in a closed loop, in one run.

The systems take turns, each freshly started in an empty folder on the same disk, so that a change
of the machine's mood meets all of them. The load generator is load.c, which runs on the same
machine: its share of a core is printed beside the figures.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.servers import BenchError, Running, System, cpu_seconds, systems

FOLDER: Final = Path(__file__).resolve().parent
BUILD: Final = FOLDER / "build"
CONNECTIONS: Final = (1, 16, 64, 256)
# What a figure is compared with: the only durable setting of a single beanstalkd.
BASELINE: Final = "beanstalkd -b -f0"
# Time beyond the measured one after which the generator is taken for stuck.
SPARE_S: Final = 120.0


class Figure(NamedTuple):
    """One measurement."""

    system: str
    connections: int
    op_s: float
    p50_us: float
    p99_us: float
    max_us: float
    client_cpu_share: float
    server_us_per_op: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print a table; return the exit status."""
    options = parser().parse_args(arguments)
    try:
        generator = build()
        chosen = [system for system in systems() if options.only in system.name]
        figures = measure_all(generator, chosen, options)
    except (BenchError, subprocess.SubprocessError) as error:
        print(f"bench: {error}")
        return 1
    print_table(figures, options)
    if options.json:
        Path(options.json).write_text(json.dumps([one._asdict() for one in figures], indent=1))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="bench", description=__doc__)
    found.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    found.add_argument("--rounds", type=int, default=2, help="measurements of each kind")
    found.add_argument("--body", type=int, default=100, help="bytes of a job's body")
    found.add_argument("--workload", default="full", choices=["full", "put", "pair"])
    found.add_argument("--only", default="", help="only systems whose name has this text")
    found.add_argument("--dir", default=str(BUILD), help="where the data goes: a real disk")
    found.add_argument("--json", help="also write every measurement to this file")
    found.add_argument(
        "--connections",
        type=lambda text: [int(part) for part in text.split(",")],
        default=list(CONNECTIONS),
        help="numbers of connections, separated by commas",
    )
    return found


def build() -> Path:
    """Compile the load generator if it is older than its source."""
    source, program = FOLDER / "load.c", BUILD / "load"
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BenchError("the load generator needs a C compiler (Debian: apt-get install gcc)")
    BUILD.mkdir(exist_ok=True)
    command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11"]
    subprocess.run([*command, "-o", str(program), str(source)], check=True)
    return program


def measure_all(
    generator: Path, chosen: Sequence[System], options: argparse.Namespace
) -> list[Figure]:
    """Let the systems take turns, as often as there are rounds."""
    figures: list[Figure] = []
    for round_number in range(options.rounds):
        for system in chosen:
            folder = Path(tempfile.mkdtemp(prefix="data-", dir=options.dir))
            try:
                with system.run(folder) as running:
                    for connections in options.connections:
                        figure = measure(generator, system, running, connections, options)
                        figures.append(figure)
                        print(
                            f"round {round_number + 1}: {system.name}, {connections} connections: "
                            f"{figure.op_s:,.0f} op/s",
                            flush=True,
                        )
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return figures


def measure(
    generator: Path,
    system: System,
    running: Running,
    connections: int,
    options: argparse.Namespace,
) -> Figure:
    """Run the generator once against a running system."""
    command = [str(generator), "-a", ",".join(running.addresses), "-c", str(connections)]
    command += ["-s", str(options.seconds), "-b", str(options.body), "-w", options.workload]
    before = cpu_seconds(running.pids)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=options.seconds + SPARE_S, check=False
    )
    if done.returncode:
        raise BenchError(f"{system.name}, {connections} connections: {done.stderr.strip()}")
    used_s = cpu_seconds(running.pids) - before
    found: dict[str, Any] = json.loads(done.stdout)
    latency = found["latency_us"]["all"]
    return Figure(
        system=system.name,
        connections=connections,
        op_s=found["op_s"],
        p50_us=latency["p50"],
        p99_us=latency["p99"],
        max_us=latency["max"],
        client_cpu_share=found["client_cpu_share"],
        # All operations: the processor time includes the warm-up.
        server_us_per_op=used_s / found["operations_all"] * 1e6,
    )


def print_table(figures: Sequence[Figure], options: argparse.Namespace) -> None:
    """Print the medians over the rounds, and the ratio to the baseline."""
    groups: dict[tuple[str, int], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.system, figure.connections), []).append(figure)
    rate = {key: statistics.median(one.op_s for one in group) for key, group in groups.items()}
    print(
        f"\n{options.workload}, {options.body} bytes, {options.rounds} x {options.seconds:g} s, "
        f"data in {options.dir}; medians"
    )
    print(
        f"{'system':<20}{'conns':>6}{'op/s':>10}{'x -b -f0':>10}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'max ms':>9}{'server us/op':>14}{'client cpu':>12}"
    )
    for (system, connections), group in groups.items():
        base = rate.get((BASELINE, connections))
        ratio = f"{rate[system, connections] / base:.2f}" if base else "-"
        print(
            f"{system:<20}{connections:>6}{rate[system, connections]:>10,.0f}{ratio:>10}"
            f"{middle(group, 'p50_us') / 1e3:>9.2f}{middle(group, 'p99_us') / 1e3:>9.2f}"
            f"{middle(group, 'max_us') / 1e3:>9.1f}{middle(group, 'server_us_per_op'):>14.1f}"
            f"{middle(group, 'client_cpu_share'):>12.2f}"
        )


def middle(group: Sequence[Figure], name: str) -> float:
    """Return the median of one column."""
    return float(statistics.median(getattr(one, name) for one in group))
