"""The cluster of a soak: processes, their logs and clocks, and disks that lose power.

Faults of both lanes act through this module concurrently, so it tracks which nodes should run; a
node that ends by itself is a finding. The faults are in `faults`.
"""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chaos import plan, power
from chaos.backends.local import MEBIBYTE
from chaos.backends.processes import Processes
from chaos.nemesis import NODES
from tests.integration.support.processes import Process, answers
from tests.integration.support.waiting import wait_until

COUNT: Final = len(NODES)
PAIRS: Final = tuple(itertools.combinations(NODES, 2))
# Long after all faults that can coincide: a node that does not serve by then never will.
SERVE_TIMEOUT_S: Final = 60.0
# Small files, so that a soak of minutes produces segments, snapshots and snapshot transfers.
SETTINGS: Final = {
    "wal_segment_bytes": MEBIBYTE,
    "snapshot_bytes_min": MEBIBYTE,
    "log_memory_bytes": MEBIBYTE,
    "log_retain_bytes": 2 * MEBIBYTE,
}
TROUBLE: Final = ("Traceback", "Error:", "differs", "assert")


class Kind(NamedTuple):
    """The kind of nodes and disks of a soak."""

    # Run the tree that `make compiled` builds.
    compiled: bool = False
    # Each node's data is on a file system that loses unsynced data when its power fails.
    forgetful: bool = False
    # No process is ended by faults.
    calm: bool = False
    # The disks do not sync the log, for the test that this is noticed.
    lies: bool = False
    settings: Mapping[str, object] = {}

    @property
    def rates(self) -> plan.Rates:
        """The rates of faults that end processes and damage disks."""
        return plan.CALM if self.calm else plan.POWER if self.forgetful else plan.BREAKING


PLAIN: Final = Kind()


class Ground(Processes):
    """Three nodes and all operations on them, usable from two threads."""

    def __init__(self, directory: Path, seed: int = 0, kind: Kind = PLAIN) -> None:
        super().__init__(directory, kind.compiled, {**SETTINGS, **kind.settings})
        self.kind = kind
        # When a leader was killed, and when the next one had served for a while.
        self.windows: list[tuple[float, float]] = []
        self.disk_words: list[str] = []
        self.rejoins = 0
        # Held by a fault that must not overlap others, and by every fault of the disturbing lane.
        self.quiet = threading.RLock()
        self._lock = threading.RLock()
        self._began_s = [0.0] * COUNT
        self.disks: list[power.ForgetfulDisk] = []
        if kind.forgetful:
            self._mount(seed)

    def process(self, number: int) -> Process:
        return self._nodes[number]

    def start(self, number: int, arguments: Sequence[str] = (), wanted: bool = True) -> None:
        """Start a node without waiting; if not `wanted`, it may end by itself."""
        with self._lock:
            super().start(number, arguments)
            self._began_s[number] = time.monotonic()
            if not wanted:
                self._wanted.discard(number)

    def kill(self, *numbers: int) -> None:
        """End nodes with SIGKILL, as nearly at once as possible."""
        with self._lock:
            super().kill(*numbers)

    def stop(self, number: int) -> None:
        """End a node with SIGTERM; a status other than 0 is a finding. The other lane goes on."""
        self.release(number)
        super().stop(number)

    def cut_power(self, numbers: Sequence[int], moment: power.Moment) -> None:
        """End nodes as a loss of power does, all at the moment given for the first of them."""
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
        """Give a stopped node an empty disk."""
        if self.disks:
            self.disks[number].format()
        else:
            super().wipe(number)

    def living(self) -> list[tuple[int, float, int]]:
        """Return number, age in seconds and process id of each running node."""
        with self._lock:
            now = time.monotonic()
            return [
                (number, now - self._began_s[number], self.process(number).pid)
                for number in range(COUNT)
                if self._lives[number] and self.process(number).status() is None
            ]

    def release(self, number: int) -> None:
        """Allow a node to end by itself from here on, because a fault ends it."""
        with self._lock:
            self._wanted.discard(number)

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to a node, if it runs."""
        with self._lock:
            super().signal(number, which)

    def wait_until_serving(self, *numbers: int) -> None:
        """Wait until nodes serve clients; a node that does not is a fatal finding."""
        for number in numbers:
            address = self.cluster.nodes[number].beanstalk

            def serves(number: int = number, address: str = address) -> bool:
                assert self.process(number).status() is None, self.process(number).story()
                return answers(address)

            wait_until(serves, SERVE_TIMEOUT_S, f"n{number} serves: {self.story(number)}")

    def look(self) -> None:
        """Add a finding for each node that ended by itself; each is reported once."""
        with self._lock:
            super().look()

    def read_logs(self, judge: Callable[[str], bool]) -> list[str]:
        """Return the lines that `judge` selects from all logs of all nodes."""
        return [
            f"{path}: {line}"
            for path in self.logs()
            for line in path.read_text(errors="replace").splitlines()
            if judge(line)
        ]

    def story(self, number: int) -> str:
        return self.process(number).story()

    def close(self) -> None:
        """End everything that was started here; the files stay."""
        super().close()
        for disk in self.disks:
            disk.keep()

    def _mount(self, seed: int) -> None:
        program = power.build(self.directory)
        for number in range(COUNT):
            own_seed = seed * COUNT + number
            disk = power.ForgetfulDisk(program, self.data(number), own_seed, self.kind.lies)
            self.disks.append(disk)
