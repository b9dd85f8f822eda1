"""Measure the commands of the pipeline, started cold: `make bench-pipeline` also runs this.

Each command is a process of its own, with a JVM and Python workers that it starts; time, processor
time and memory are the sums over all of them. Sizes, in events, are given on the command line:

    python -m bench.pipeline_commands 27000 100000 1000000
"""

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from bench import pipeline_events
from bench.processes import CLOCK_TICKS, BenchError

SIZES: Final = (27_000, 100_000, 1_000_000)
MASTER: Final = "local[2]"
SAMPLE_S: Final = 0.5
KIB: Final = 1024


class Cost(NamedTuple):
    """The cost of a command, including all processes that it started."""

    wall_s: float
    cpu_s: float
    # Proportional set size, which counts shared memory once.
    peak_bytes: int


def main(arguments: Sequence[str]) -> int:
    """Print a line for each command and size."""
    sizes = [int(size) for size in arguments] or SIZES
    print(f"{os.cpu_count()} cores, {MASTER}; each command in a process of its own")
    with tempfile.TemporaryDirectory(prefix="beanpole-bench-") as folder:
        for size in sizes:
            directory = Path(folder, f"events-{size}")
            pipeline_events.write(directory, pipeline_events.slices(size))
            for words in (
                ["report", "--to", str(Path(folder, f"report-{size}"))],
                ["audit"],
            ):
                cost = measure(["pipeline", *words, "--from", str(directory), "--master", MASTER])
                print(
                    f"{words[0]:<8} {size:>12,} events {cost.wall_s:8.1f} s wall "
                    f"{cost.cpu_s:8.1f} s processor {cost.peak_bytes / 1e6:8,.0f} MB at most",
                    flush=True,
                )
    return 0


def measure(words: Sequence[str]) -> Cost:
    """Run `beanpole` with these arguments.

    Raises:
        BenchError: it failed.
    """
    begun_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("beanpole")), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    watch = _Watch(process.pid)
    watch.start()
    said = process.communicate()[1]
    wall_s = time.perf_counter() - begun_s
    watch.ended.set()
    watch.join()
    if process.returncode:
        raise BenchError(f"{' '.join(words)} ended with {process.returncode}: {said}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    # The samples miss what a process does after its last one; the system's sum misses processes
    # that no other has waited for.
    processor_s = max(waited_s, sum(watch.ticks.values()) / CLOCK_TICKS)
    return Cost(wall_s, processor_s, watch.peak_bytes)


class _Watch(threading.Thread):
    """Samples a process and all its descendants until `ended` is set."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.peak_bytes = 0
        # Of each process, as of its last sample.
        self.ticks: dict[int, int] = {}
        # Remembered, because a process whose parent has ended gets another parent.
        self._family = {process}

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_S):
            memory = 0
            for number, fields in sorted(_processes()):
                if int(fields[1]) in self._family:
                    self._family.add(number)
                if number in self._family:
                    self.ticks[number] = int(fields[11]) + int(fields[12])
                    with suppress(OSError, StopIteration):  # it ended a moment ago
                        memory += _pss_bytes(Path("/proc", str(number)))
            self.peak_bytes = max(self.peak_bytes, memory)


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield the id of each process, and the fields of its `stat` after its name."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield int(path.parent.name), path.read_text().rpartition(")")[2].split()


def _pss_bytes(process: Path) -> int:
    lines = (process / "smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * KIB


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
