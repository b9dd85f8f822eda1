"""Build the load generator (load/*.c) and run it against a running system."""

import json
import shutil
import statistics
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.processes import BenchError, Usage, usage, wait_until_quiet
from bench.servers import Running, System
from bench.workloads import Workload

FOLDER: Final = Path(__file__).resolve().parent
BUILD: Final = FOLDER / "build"
# Unpacked by `make qless-sources`.
QLESS_SCRIPT: Final = (
    FOLDER.parent / "build" / "qless-suites" / "reqless-0.13.3" / "reqless" / "lua" / "qless.lua"
)
# Time beyond the measurement after which the generator is considered stuck: it may first put a
# million jobs and open ten thousand connections.
SPARE_S: Final = 600.0
# Snapshots and events of a fill must not disturb the measurement; a slow disk takes time for them.
QUIET_MAX_S: Final = 120.0


def qless_script() -> str:
    """Return the file of the Lua script that all qless systems are called with (reqless 0.13.3)."""
    if not QLESS_SCRIPT.exists():
        raise BenchError(f"{QLESS_SCRIPT} is missing: run `make qless-sources` first")
    return str(QLESS_SCRIPT)


TLS: Final = ("-DWITH_TLS", "-lssl", "-lcrypto")


class Figure(NamedTuple):
    """One measurement. Latencies of clients are in microseconds."""

    round: int
    system: str
    promise: str
    workload: str
    connections: int
    rate: float  # of an open loop; 0: closed loop
    op_s: float
    # Of the commands that began in the window. A worker's wait for its job is none: see `handoff`.
    latency_us: dict[str, dict[str, float]]
    done_per_s: dict[str, float]  # by kind of commands
    gap_us: float
    client_cpu_share: float
    server_us_per_op: float
    # Of all processes including the generator, per 1,000 jobs that completed the whole cycle.
    cpu_s_per_1000_jobs: float
    written_bytes_per_job: float
    # Median over the nodes, per job put before the measurement; 0 without such jobs.
    resident_bytes_per_job: float


def build(tls: bool = False) -> Path:
    """Compile the load generator unless it is up to date; with OpenSSL only for TLS."""
    sources = sorted((FOLDER / "load").glob("*.c"))
    program = BUILD / ("load-tls" if tls else "load")
    newest = max(path.stat().st_mtime for path in (FOLDER / "load").iterdir())
    if program.exists() and program.stat().st_mtime >= newest:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BenchError("the load generator needs a C compiler (Debian: apt-get install gcc)")
    BUILD.mkdir(exist_ok=True)
    command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11"]
    command += ["-o", str(program), *map(str, sources)]
    try:
        subprocess.run([*command, *(TLS if tls else ())], check=True)
    except subprocess.CalledProcessError:
        hint = " (for TLS it needs OpenSSL's headers: apt-get install libssl-dev)" if tls else ""
        raise BenchError(f"the load generator cannot be compiled{hint}") from None
    return program


class Generator(NamedTuple):
    """The program, and the settings that all its runs share."""

    program: Path
    seconds: float
    warm_up: float
    body: int

    def measure(
        self, round_number: int, system: System, running: Running, load: Workload, connections: int
    ) -> Figure:
        """Run it once, or twice if the rate is derived from a closed loop's result."""
        options: dict[str, str] = {"body": str(self.body), **load.options}
        options |= {"connections": str(connections), "protocol": system.protocol}
        options |= {"seconds": str(self.seconds), "warm-up": str(self.warm_up)}
        if system.protocol == "qless":
            options["script"] = qless_script()
        what = f"{system.name}, {load.name}, {connections} connections"
        first = self.run(running, options, what)
        found = first
        if load.rate_share:
            rate = first.result["op_s"] * load.rate_share
            # The backlog of the first run still exists.
            found = self.run(running, {**options, "rate": f"{rate:.0f}", "fill": "0"}, what)
        figure = figure_of(found, round_number, system, load, connections)
        return figure._replace(resident_bytes_per_job=resident_per_job(first, load.fill))

    def run(
        self,
        running: Running,
        options: Mapping[str, str],
        what: str,
        mark: Callable[[str], None] = lambda _: None,
    ) -> "Measured":
        """Run the program, and sample the servers' usage at the moments that it marks.

        Args:
            running: the system under load.
            options: of the program, see its `--help`.
            what: a description of this run for errors.
            mark: called with `filled`, `start` and `end` at these moments.
        """
        command = [str(self.program), "--marks", "1", "--addresses", ",".join(running.addresses)]
        for name, value in options.items():
            command += [f"--{name}", value]
        seen = {"before": usage(running.pids)}
        with _process(command, float(options["seconds"]) + SPARE_S) as process:
            assert process.stdin and process.stdout and process.stderr
            for line in process.stdout:
                if line.startswith("{"):
                    return Measured(json.loads(line), **seen)
                seen[line.strip()] = usage(running.pids)
                mark(line.strip())
                if line == "filled\n":
                    if int(options.get("fill", "0")):
                        wait_until_quiet(running.pids, QUIET_MAX_S)
                    process.stdin.write("\n")
                    process.stdin.flush()
            raise BenchError(
                f"{what}: {process.stderr.read().strip() or 'the generator was stuck'}"
            )


class Measured(NamedTuple):
    """The generator's result, and the servers' usage before, between and after."""

    result: dict[str, Any]
    before: Usage
    filled: Usage
    start: Usage
    end: Usage


@contextmanager
def _process(command: list[str], most_s: float) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    watchdog = threading.Timer(most_s, process.kill)
    watchdog.start()
    try:
        with process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise
    finally:
        watchdog.cancel()


def figure_of(
    found: Measured, round_number: int, system: System, load: Workload, connections: int
) -> Figure:
    """Convert one run of the generator into a figure."""
    result = found.result
    done = result["done"]
    jobs = done.get("delete", done.get("put", result["operations"]))
    server_s = found.end.cpu_s - found.start.cpu_s
    client_s = result["client_cpu_share"] * result["seconds"]
    return Figure(
        round=round_number,
        system=system.name,
        promise=system.promise,
        workload=load.name,
        connections=connections,
        rate=result["rate"],
        op_s=result["op_s"],
        latency_us=result["latency_us"],
        done_per_s={kind: count / result["seconds"] for kind, count in done.items()},
        gap_us=result["gap_us"],
        client_cpu_share=result["client_cpu_share"],
        server_us_per_op=server_s / result["operations"] * 1e6,
        cpu_s_per_1000_jobs=(server_s + client_s) / max(jobs, 1) * 1000,
        written_bytes_per_job=(found.end.written_bytes - found.start.written_bytes) / max(jobs, 1),
        resident_bytes_per_job=0.0,
    )


def resident_per_job(found: Measured, jobs: int) -> float:
    """Return the growth of a node's memory per job that was put before the measurement."""
    if not jobs:
        return 0.0
    pairs = zip(found.before.resident_bytes, found.filled.resident_bytes, strict=True)
    return statistics.median(after - before for before, after in pairs) / jobs
