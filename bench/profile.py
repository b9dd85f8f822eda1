"""Profile the processor time of a node: the cost of each stage of a command's path, by sampling.

`perf` (Debian: linux-perf) samples the leader and one follower of a compiled cluster under load. A
sample belongs to the stage of its innermost known function, so a system call belongs to the stage
that made it. Samples give shares; the total time is the system's count for the process.
"""

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.generator import Generator
from bench.processes import BenchError, usage
from bench.servers import Running, beanpole, leader
from bench.workloads import Workload

# High enough to resolve a hundredth of a second in five seconds, low enough to cost little.
SAMPLES_HZ: Final = "250"
# The part of the stack that each sample keeps, for unwinding afterwards.
STACK: Final = "dwarf,8192"
OTHER: Final = "event loop, timers, and what no stage is known of"
# By the symbols of mypyc (CPyDef_MODULE___CLASS___FUNCTION), of uvloop and of the C thread.
STAGES: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("log written and synced, in its own thread", r"^serve$"),
        ("replies written to clients", r"ClientProtocol___write|Connection___flush"),
        ("frames written to members", r"PeerProtocol___flush"),
        ("machine: entry decoded and applied", r"_(machine|queue|operations|timers|tube)___"),
        ("machine: entry decoded and applied", r"commands___(de|un|is)"),
        ("requests parsed", r"_parser___"),
        ("answers made", r"Origin___(applied|granted)|BeanstalkConnection___(answered|wait_ended)"),
        ("batches packed and handed on", r"_origin___|pack_commands"),
        ("requests taken", r"_(connection|beanstalk)___"),
        (
            "leader: waits, grants, entries joined",
            r"_(leader|dispatching|proposing|term|waiting|batching)___",
        ),
        ("log records made and handed over", r"_(wal|writer|segment|files|journal)___"),
        ("frames read", r"_link___|PeerProtocol___data_received"),
        (
            "Raft: the library and its adapter",
            r"_(backend|acks|appends|core|elections|messages|shared|snapshots|seam)___",
        ),
        ("sockets read", r"^uv__read$|^uv__stream_io$"),
        (
            "a node's turn, clocks, silence",
            r"_(node|callbacks|routing|context|heartbeats|peers|clock|frames|aio\w*|lifecycle)___",
        ),
    )
)


class Cost(NamedTuple):
    """The processor time of one node per operation, in microseconds."""

    role: str
    workload: str
    total_us: float
    by_stage_us: dict[str, float]


def stage_of(stack: Sequence[str]) -> str:
    """Return the stage of a sample, whose innermost function comes first."""
    for symbol in stack:
        for name, pattern in STAGES:
            if pattern.search(symbol):
                return name
    return OTHER


def stacks(text: str) -> Iterator[list[str]]:
    """Yield the symbols of each sample in the output of `perf script -F ip,sym`."""
    for sample in text.split("\n\n"):
        found = [line.split(maxsplit=1)[1] for line in sample.splitlines() if len(line.split()) > 1]
        if found:
            yield found


def profile(load: Generator, workloads: Sequence[Workload], connections: int) -> list[Cost]:
    """Measure the leader and a follower under each workload, each in a fresh cluster."""
    if not shutil.which("perf"):
        raise BenchError("profiles need perf (Debian: apt-get install linux-perf)")
    found: list[Cost] = []
    for one in workloads:
        with tempfile.TemporaryDirectory(prefix="profile-", dir=load.program.parent) as name:
            folder = Path(name)
            with beanpole(3)(folder) as running:
                found += _costs(load, one, connections, running, folder)
    return found


def _costs(
    load: Generator, one: Workload, connections: int, running: Running, folder: Path
) -> list[Cost]:
    """Sample two nodes between the generator's marks."""
    leads = running.ids.index(leader(folder / "data"))
    nodes = {"leader": running.pids[leads], "follower": running.pids[leads - 1]}
    before: dict[str, float] = {}
    used: dict[str, float] = {}
    sampling: list[subprocess.Popen[bytes]] = []

    def mark(line: str) -> None:
        if line == "start":
            for role, pid in nodes.items():
                before[role] = usage([pid]).cpu_s
                sampling.append(_sample(pid, folder / role))
        elif line == "end":
            for role, pid in nodes.items():
                used[role] = usage([pid]).cpu_s - before[role]
            for process in sampling:
                process.terminate()
                process.wait()

    options = {"body": str(load.body), **one.options, "connections": str(connections)}
    options |= {"seconds": str(load.seconds), "warm-up": str(load.warm_up)}
    result = load.run(running, options, f"profile, {one.name}", mark).result
    costs = []
    for role in nodes:
        counted = Counter(map(stage_of, stacks(_script(folder / role))))
        total_us = used[role] / result["operations"] * 1e6
        each_us = total_us / counted.total()
        by_stage_us = {name: count * each_us for name, count in counted.items()}
        costs.append(Cost(role, one.name, total_us, by_stage_us))
    return costs


def _sample(pid: int, path: Path) -> subprocess.Popen[bytes]:
    command = ["perf", "record", "--quiet", "-e", "cpu-clock", "-F", SAMPLES_HZ]
    command += ["--call-graph", STACK, "-p", str(pid), "-o", str(path)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _script(path: Path) -> str:
    command = ["perf", "script", "--no-inline", "-F", "ip,sym", "-i", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def table(costs: Sequence[Cost]) -> list[list[str]]:
    """Return the rows of a table, its head first; the most expensive stage comes first."""
    names = {name: 0.0 for one in costs for name in one.by_stage_us}
    for one in costs:
        for name, us in one.by_stage_us.items():
            names[name] += us
    rows = [["us of an operation", *(f"{one.workload}, {one.role}" for one in costs)]]
    stages = sorted(names, key=lambda name: (name == OTHER, -names[name]))
    rows += [[name, *(f"{one.by_stage_us.get(name, 0.0):.1f}" for one in costs)] for name in stages]
    return [*rows, ["all", *(f"{one.total_us:.1f}" for one in costs)]]
