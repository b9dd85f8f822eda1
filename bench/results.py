"""The results of a run: stored as a file, and reduced to medians and ratios with their spread."""

import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.generator import Figure
from bench.processes import BenchError
from bench.servers import System

# The baseline of comparisons: the only durable setting of a single beanstalkd.
BASELINE: Final = "beanstalkd -b -f0"
SYNCS: Final = 200
SYNC_BYTES: Final = 4096


class Results(NamedTuple):
    """All results of one run."""

    set: str
    at: str
    machine: dict[str, str]
    seconds: float
    rounds: int
    body: int
    figures: list[Figure]


class Spread(NamedTuple):
    """A median and its quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the median, and the quartiles in brackets."""
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def spread(values: Iterable[float]) -> Spread:
    """Return the median and the quartiles; a single value is all three."""
    found = sorted(values)
    if len(found) == 1:
        return Spread(found[0], found[0], found[0])
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return Spread(middle, low, high)


def ratios(
    figures: Sequence[Figure], one: str, other: str, load: str, connections: int
) -> list[float]:
    """Return the op/s of one system divided by those of another, within each round."""

    def rates(system: str) -> dict[int, float]:
        wanted = (system, load, connections)
        return {
            figure.round: figure.op_s
            for figure in figures
            if (figure.system, figure.workload, figure.connections) == wanted
        }

    mine, theirs = rates(one), rates(other)
    return [mine[number] / theirs[number] for number in sorted(mine.keys() & theirs.keys())]


def save(results: Results, path: Path) -> None:
    """Write results to a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = results._asdict() | {"figures": [one._asdict() for one in results.figures]}
    path.write_text(json.dumps(found, indent=1) + "\n")


def load(path: Path) -> Results:
    """Read results; BenchError if the file is missing or invalid."""
    try:
        found = json.loads(path.read_text())
        return Results(**found | {"figures": [Figure(**one) for one in found["figures"]]})
    except FileNotFoundError:
        raise BenchError(f"there is no {path}: `python -m bench SET` writes it") from None
    except (ValueError, TypeError, KeyError) as error:
        raise BenchError(f"{path} is not a file of results: {error}") from error


def now() -> str:
    """Return the current time as text."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine(folder: Path, systems: Sequence[System]) -> dict[str, str]:
    """Describe the machine, its load before the run, and the versions of the measured systems."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {
        "processor": f"{cores} x {_processor()}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{_name_of_system()}, Linux {platform.release()}",
        # The same version from another build may be slower by a tenth: see docs/performance.md.
        "python": f"{platform.python_version()} of {os.path.realpath(sys.executable)}",
        "disk": f"{_file_system(folder)}, 4 KiB written and synced in {_sync_us(folder):.0f} us",
        "load before": " ".join(f"{part:.2f}" for part in os.getloadavg()),
    }
    packages = sorted({system.package for system in systems if system.package})
    return found | {name: version for name in packages if (version := _version(name))}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _name_of_system() -> str:
    return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")


def _file_system(folder: Path) -> str:
    command = ["stat", "--file-system", "--format=%T", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _sync_us(folder: Path) -> float:
    """Return the median time in us to append 4 KiB to a file and sync it."""
    path = folder / "sync-probe"
    took: list[float] = []
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(SYNCS):
                before = time.perf_counter()
                file.write(bytes(SYNC_BYTES))
                os.fdatasync(file.fileno())
                took.append(time.perf_counter() - before)
    finally:
        path.unlink(missing_ok=True)
    return statistics.median(took) * 1e6


def _version(package: str) -> str:
    if not shutil.which("dpkg-query"):
        return ""
    command = ["dpkg-query", "--show", "--showformat=${Version}", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def groups(figures: Iterable[Figure]) -> dict[tuple[str, str, int], list[Figure]]:
    """Group the figures of all rounds by workload, system and connections."""
    found: dict[tuple[str, str, int], list[Figure]] = {}
    for one in figures:
        found.setdefault((one.workload, one.system, one.connections), []).append(one)
    return found


def middle(group: Sequence[Figure], name: str, *inside: str) -> float:
    """Return the median of one field, or of a value inside it."""

    def value(figure: Figure) -> float:
        found: Any = getattr(figure, name)
        for key in inside:
            found = found[key]
        return float(found)

    return float(statistics.median(value(one) for one in group))
