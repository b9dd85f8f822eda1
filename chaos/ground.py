"""The cluster that a soak runs on: three nodes, the proxies between them, their logs and clocks.

Faults act through it, so that it knows which nodes are meant to run; one that ends by itself is a
finding. Which faults there are is in `faults`.
"""

import contextlib
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from beanpoled.disk.identity import VOTER
from chaos import plan, power
from tests.integration.support.disks import standing
from tests.integration.support.nodes import Cluster
from tests.integration.support.ports import free_block
from tests.integration.support.processes import Process, answers
from tests.integration.support.proxy import Links
from tests.integration.support.waiting import wait_until

COUNT: Final = 3
PAIRS: Final = ((0, 1), (0, 2), (1, 2))
# All faults that can meet are over long before: then the node serves, or it never will.
SERVE_TIMEOUT_S: Final = 60.0
LEADER_TIMEOUT_S: Final = 30.0
# The filler leaves other programs of the machine this much of the disk, at least.
DISK_SPARE_BYTES: Final = 3 << 30
MEBIBYTE: Final = 1 << 20
# Small files, so that a soak of minutes makes segments, snapshots and transfers of snapshots.
SETTINGS: Final = {
    "wal_segment_bytes": MEBIBYTE,
    "snapshot_bytes_min": MEBIBYTE,
    "log_memory_bytes": MEBIBYTE,
    "log_retain_bytes": 2 * MEBIBYTE,
}
COMPILED: Final = Path(__file__).resolve().parents[1] / "build" / "compiled"
SHIM: Final = Path(__file__).with_name("clock_shim.c")
TROUBLE: Final = ("Traceback", "Error:", "differs", "assert")


class Kind(NamedTuple):
    """What nodes a soak has, and what their disks are."""

    # Run the tree that `make compiled` makes.
    compiled: bool = False
    # Each node's data is on a file system that loses what was not synced when its power fails.
    forgetful: bool = False
    # No process is ended.
    calm: bool = False
    # The disks do not sync the log: for the test that this is noticed.
    lies: bool = False
    settings: Mapping[str, object] = {}

    @property
    def rates(self) -> plan.Rates:
        """The faults that take processes and disks away."""
        return plan.CALM if self.calm else plan.POWER if self.forgetful else plan.BREAKING


PLAIN: Final = Kind()


class Clocks:
    """The wall clocks of the nodes: a file each, that a preloaded library maps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "clock_shim.so"
        compiler = shutil.which("gcc") or shutil.which("cc")
        self.works = compiler is not None
        if compiler:
            command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SHIM)]
            subprocess.run([*command, "-ldl"], check=True)
            for number in range(COUNT):
                self.shift(number, 0.0)

    def shift(self, number: int, seconds: float) -> None:
        """Let a node's wall clock be so far ahead of the true one, from now on."""
        path = self._path(number)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(struct.pack("=q", round(seconds * 1e9)))

    def prefix(self, number: int) -> list[str]:
        """Return what stands before a node's command line."""
        if not self.works:
            return []
        return ["env", f"LD_PRELOAD={self._library}", f"SOAK_CLOCK_FILE={self._path(number)}"]

    def _path(self, number: int) -> Path:
        return self._directory / f"clock-{number}"


class Ground:
    """Three nodes and everything that can be done to them."""

    def __init__(self, directory: Path, seed: int = 0, kind: Kind = PLAIN) -> None:
        self.directory = directory
        self.kind = kind
        self.findings: list[str] = []
        # When a leader was killed, and when the next one had served for a while.
        self.windows: list[tuple[float, float]] = []
        self.disk_words: list[str] = []
        self.rejoins = 0
        self.links = Links()
        self.clocks = Clocks(directory)
        # Held while nothing else may happen, and by every fault of the disturbing lane.
        self.quiet = threading.RLock()
        self._lock = threading.RLock()
        self._wanted: set[int] = set()
        self._lives = [0] * COUNT
        self._began_s = [0.0] * COUNT
        self.disks: list[power.ForgetfulDisk] = []
        base, proxies = free_block(), free_block()
        nodes = Cluster(directory / "plan", base=base).nodes
        dial = {
            one: {
                nodes[other].id: self.links.add(one, other, proxies + 3 * one + other, address)
                for other in range(COUNT)
                if other != one
                for address in [nodes[other].peer]
            }
            for one in range(COUNT)
        }
        self.reserve_bytes = max(0, self.free_bytes() - DISK_SPARE_BYTES)
        settings = {**SETTINGS, "disk_reserve_bytes": self.reserve_bytes, **kind.settings}
        self.cluster = Cluster(directory / "nodes", settings=settings, dial=dial, base=base)
        for number, node in enumerate(self.cluster.nodes):
            prefix = [*self.clocks.prefix(number), *compiled_prefix(kind)]
            command = [*prefix, *self.cluster.command(number)]
            (node.directory / "cmdline").write_text(shlex.join(command) + "\n")
        if kind.forgetful:
            self._mount(seed)

    def free_bytes(self) -> int:
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def data(self, number: int) -> Path:
        """Return the folder of everything that a node has stored."""
        return self.cluster.nodes[number].directory / "data"

    def process(self, number: int) -> Process:
        return self.cluster.process(number)

    def start(self, number: int, arguments: Sequence[str] = (), wanted: bool = True) -> None:
        """Start a node without waiting; what its last life said is kept in a file of its own."""
        with self._lock:
            log = self.cluster.nodes[number].directory / "output.log"
            if log.exists():
                log.rename(log.with_name(f"output-{self._lives[number]:04d}.log"))
            self._lives[number] += 1
            self.cluster.start(number, arguments)
            self._began_s[number] = time.monotonic()
            if wanted:
                self._wanted.add(number)

    def kill(self, *numbers: int) -> float:
        """End nodes with SIGKILL, as much at once as can be; return when that was."""
        with self._lock:
            self._wanted -= set(numbers)
            now = time.monotonic()
            for number in numbers:
                self.signal(number, signal.SIGKILL)
            for number in numbers:
                self.process(number).kill()
        return now

    def cut_power(self, numbers: Sequence[int], moment: power.Moment) -> None:
        """End nodes as a loss of power does, all at the moment that comes for the first of them."""
        with self._lock:
            self._wanted -= set(numbers)
            for number in numbers:
                self.disks[number].cut(moment if number == numbers[0] else power.NOW)
            for number in numbers:
                self.signal(number, signal.SIGKILL)
            for number in numbers:
                self.disks[number].refuse()
                self.process(number).kill()
                self.disks[number].restore()

    def wipe(self, number: int) -> None:
        """Give a node that does not run an empty disk."""
        if self.disks:
            self.disks[number].format()
        else:
            shutil.rmtree(self.data(number))

    def living(self) -> list[tuple[int, float, int]]:
        """Return number, age in seconds and process id of each node that runs."""
        with self._lock:
            now = time.monotonic()
            return [
                (number, now - self._began_s[number], self.process(number).pid)
                for number in range(COUNT)
                if self._lives[number] and self.process(number).status() is None
            ]

    def release(self, number: int) -> None:
        """From here on a node may end by itself, because a fault asks it to."""
        with self._lock:
            self._wanted.discard(number)

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to a node, if it runs."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self.process(number).status() is None:
                os.kill(self.process(number).pid, which)

    def wait_until_serving(self, *numbers: int) -> None:
        """Wait until nodes take clients; that they do not is a finding, and is fatal."""
        for number in numbers:
            address = self.cluster.nodes[number].beanstalk

            def serves(number: int = number, address: str = address) -> bool:
                assert self.process(number).status() is None, self.process(number).story()
                return answers(address)

            wait_until(serves, SERVE_TIMEOUT_S, f"n{number} serves: {self.story(number)}")

    def wait_for_leader(self, other_than: int | None = None) -> int:
        """Wait until a node leads and is ready, and return its number."""

        def find() -> list[int]:
            numbers = (number for number in range(COUNT) if number != other_than)
            return [number for number in numbers if self.cluster.is_leader(number)]

        return wait_until(find, LEADER_TIMEOUT_S, "a leader")[0]

    def wait_until_rejoined(self, number: int) -> None:
        """Wait until a node that lost its disk has everything and counts again."""
        self.wait_until_serving(number)
        data = self.data(number)
        wait_until(lambda: standing(data) == VOTER, SERVE_TIMEOUT_S, f"n{number} rejoined")

    def look(self) -> None:
        """Add a finding for each node that ended by itself; it is not asked for again."""
        with self._lock:
            for number in sorted(self._wanted):
                if self.process(number).status() is not None:
                    self._wanted.discard(number)
                    self.findings.append(f"n{number} ended by itself: {self.story(number)}")

    def read_logs(self, judge: Callable[[str], bool]) -> list[str]:
        """Return the lines of all lives of all nodes that `judge` picks."""
        return [
            f"{path}: {line}"
            for path in sorted((self.directory / "nodes").glob("*/output*.log"))
            for line in path.read_text(errors="replace").splitlines()
            if judge(line)
        ]

    def story(self, number: int) -> str:
        return self.process(number).story()

    def close(self) -> None:
        """End everything that was started here; the files stay."""
        self.cluster.close(remove=False)
        self.links.close()
        for disk in self.disks:
            disk.keep()

    def _mount(self, seed: int) -> None:
        program = power.build(self.directory)
        for number in range(COUNT):
            own_seed = seed * COUNT + number
            disk = power.ForgetfulDisk(program, self.data(number), own_seed, self.kind.lies)
            self.disks.append(disk)


def compiled_prefix(kind: Kind) -> list[str]:
    """Return what stands before the command line of a compiled node."""
    if not kind.compiled:
        return []
    others = os.environ.get("PYTHONPATH")
    return ["env", f"PYTHONPATH={os.pathsep.join([str(COMPILED), *([others] if others else [])])}"]


def check_compiled() -> str:
    """Return why no compiled nodes can be run, in one line; nothing if they can."""
    code = "import beanpole.core.machine as found; print(found.__file__)"
    command = [*compiled_prefix(Kind(compiled=True)), sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.stdout.strip().endswith(".so"):
        return ""
    return f"there is no compiled tree in {COMPILED}: run `make compiled`, or add --no-compiled"
