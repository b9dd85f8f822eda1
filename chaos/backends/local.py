"""Nodes that are processes of this machine, and the faults of processes, disks and clocks.

Each backend has its own links between the nodes, and so its own faults of links.
"""

import abc
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from beanpoled.disk.identity import VOTER
from chaos.clocks import Clocks
from chaos.nemesis import NODES, READY_TIMEOUT_S, Backend, SlowsDisks, StepsClocks
from tests.integration.support.disks import standing
from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_until

# A graceful stop first hands over leadership and tells clients.
STOP_TIMEOUT_S: Final = 40.0
MEBIBYTE: Final = 1 << 20
# The filler leaves at least this much of the disk to other programs.
DISK_SPARE_BYTES: Final = 3 << 30
# The kernel's limit on tracing; 0 allows it for all processes of the same user.
PTRACE_SCOPE: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
# The system calls with which a node writes its log, in both of its modes.
DISK_CALLS: Final = "pwritev2,fdatasync"


class LocalNodes(Backend):
    """Three processes with their data in a folder."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.clocks = Clocks(directory)
        # Chosen so that a filler can leave less than the reserve but enough for other programs.
        self.reserve_bytes = max(0, self.free_bytes() - DISK_SPARE_BYTES)
        self._filler = directory / "filler"
        self._nodes: dict[int, Process] = {}
        self._lives = [0] * len(NODES)
        self._wanted: set[int] = set()
        self._frozen: set[int] = set()
        self._tracers: list[subprocess.Popen[bytes]] = []

    @abc.abstractmethod
    def command(self, number: int) -> list[str]:
        """Return the command line of a node; a prefix may set its environment."""

    @abc.abstractmethod
    def data(self, number: int) -> Path:
        """Return the folder of a node's stored data."""

    def unable(self) -> Mapping[type, str]:
        reasons: dict[type, str] = {}
        if not self.clocks.works:
            reasons[StepsClocks] = "there is no C compiler (Debian: apt-get install gcc)"
        if shutil.which("strace") is None:
            reasons[SlowsDisks] = "there is no strace (Debian: apt-get install strace)"
        elif os.geteuid() and PTRACE_SCOPE.exists() and int(PTRACE_SCOPE.read_text()):
            reasons[SlowsDisks] = f"{PTRACE_SCOPE} forbids to trace; be root"
        return reasons

    def free_bytes(self) -> int:
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    # --- life -------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start all nodes and wait until they are ready."""
        for number in NODES:
            self.start(number)
        self.wait_until_ready()

    def start(self, number: int, arguments: Sequence[str] = ()) -> None:
        """Start a node with its existing data, without waiting."""
        self._lives[number] += 1
        folder = self.data(number).parent
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"output-{self._lives[number]:04d}.log"
        self._nodes[number] = Process([*self.command(number), *arguments], log)
        self._wanted.add(number)

    def kill(self, *numbers: int) -> None:
        """End nodes with SIGKILL, as nearly at once as possible."""
        self._wanted -= set(numbers)
        for number in numbers:
            self.signal(number, signal.SIGKILL)
        for number in numbers:
            self._nodes[number].kill()

    def stop(self, number: int) -> None:
        """End a node with SIGTERM; a status other than 0 is a finding."""
        self._wanted.discard(number)
        self.signal(number, signal.SIGTERM)
        if status := self._nodes[number].wait(STOP_TIMEOUT_S):
            self.findings.append(f"after SIGTERM {self.name(number)} ended with {status}")

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to a node, if it runs."""
        with contextlib.suppress(ProcessLookupError):
            if self._nodes[number].status() is None:
                os.kill(self._nodes[number].pid, which)

    def check(self, number: int) -> None:
        """Raise AssertionError with a node's output if it has ended."""
        assert self._nodes[number].status() is None, self._nodes[number].story()

    def look(self) -> None:
        """Add a finding for each node that ended by itself since it was last started."""
        for number in sorted(self._wanted):
            if self._nodes[number].status() is not None:
                self._wanted.discard(number)
                story = self._nodes[number].story()
                self.findings.append(f"{self.name(number)} ended by itself: {story}")

    def logs(self) -> list[Path]:
        return sorted(
            path for number in NODES for path in self.data(number).parent.glob("output-*.log")
        )

    def close(self) -> None:
        """End everything; the files stay."""
        self._heal_processes()
        for node in self._nodes.values():
            node.kill()

    # --- faults -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Undo all faults; ended nodes stay ended."""
        self._heal_processes()
        self.heal_links()

    @abc.abstractmethod
    def heal_links(self) -> None:
        """Restore all links."""

    def _heal_processes(self) -> None:
        for number in self._frozen:
            self.signal(number, signal.SIGCONT)
        self._frozen.clear()
        for tracer in self._tracers:
            tracer.terminate()
            tracer.wait()
        self._tracers.clear()
        self.empty_disk()

    def freeze(self, number: int) -> None:
        """Stop a node with SIGSTOP."""
        self.signal(number, signal.SIGSTOP)
        self._frozen.add(number)

    def slow_disk(self, number: int, latency_ms: int) -> None:
        """Delay each write and sync of a node's log with strace."""
        inject = f"inject={DISK_CALLS}:delay_enter={latency_ms}ms"
        words = ["-qq", "-f", "-o", "/dev/null", "-e", f"trace={DISK_CALLS}", "-e", inject]
        pid = str(self._nodes[number].pid)
        log = (self.directory / "strace.log").open("ab")
        with log:
            tracer = subprocess.Popen(["strace", *words, "-p", pid], stderr=log)
        self._tracers.append(tracer)
        wait_until(lambda: _is_traced(pid), READY_TIMEOUT_S, f"strace follows {pid}")

    def fill_disk(self) -> str:
        """Fill the disk until less than the reserve is free; return the filler's size in words."""
        size = self.free_bytes() - self.reserve_bytes + 256 * MEBIBYTE
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, MEBIBYTE))
        return f"{size >> 20} MiB"

    def empty_disk(self) -> None:
        self._filler.unlink(missing_ok=True)

    def step_clock(self, number: int, seconds: float) -> None:
        """Set a node's wall clock ahead of the true time, until the next step."""
        self.clocks.shift(number, seconds)

    def replace(self, number: int) -> None:
        """Kill a node, remove its data and start it with --rejoin, without waiting."""
        self.kill(number)
        self.wipe(number)
        self.start(number, ["--rejoin"])

    def wipe(self, number: int) -> None:
        """Give a stopped node an empty disk."""
        shutil.rmtree(self.data(number))

    def wait_until_rejoined(self, number: int) -> None:
        """Wait until a node that lost its disk has all data and votes again."""
        self.wait_until_ready([number])
        data, words = self.data(number), f"{self.name(number)} rejoined"
        wait_until(lambda: standing(data) == VOTER, READY_TIMEOUT_S, words)


def _is_traced(pid: str) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return "TracerPid:\t0\n" not in status
