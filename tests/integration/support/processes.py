"""Server processes of the tests: start, wait, kill, restart, and clean up.

Beanpole's nodes and clusters are in `nodes`; beanstalkd is in `reference`.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.integration.support.raw import Address, connect
from tests.integration.support.waiting import wait_until

# Three nodes take 52 s where their processes get a tenth of a core.
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
ANSWER_TIMEOUT_S: Final = 5.0
LOG_LINES_SHOWN: Final = 30


class Process:
    """One child process whose output goes to a file."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.command = list(command)
        self.log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=cwd,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def status(self) -> int | None:
        """Return the exit status; None while the process runs."""
        return self._child.poll()

    def wait_for_words(self, words: str) -> None:
        """Wait until the log has these words: a node writes its log in a thread."""
        wait_until(lambda: words in self.log.read_text(), ANSWER_TIMEOUT_S, f"log: {words}")

    def signal(self, number: int) -> None:
        """Send a signal; the process must be running."""
        assert self.status() is None, self.story()
        self._child.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL and wait for the end; harmless if it has ended."""
        self._child.kill()
        self._child.wait(STOP_TIMEOUT_S)

    def terminate(self) -> int:
        """End it with SIGTERM; returns its exit status. A slow end is a failure, after SIGKILL."""
        if self.status() is None:
            self._child.terminate()
        return self.wait()

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the end and return the exit status."""
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout_s} s: {self.story()}") from None

    def wait_for_text(self, text: str, timeout_s: float = START_TIMEOUT_S) -> str:
        """Wait until a line of the output begins with `text` and return that line."""

        def find() -> str:
            lines = self.log.read_text(errors="replace").splitlines()
            found = next((line for line in lines if line.startswith(text)), "")
            assert found or self.status() is None, self.story()
            return found

        return wait_until(find, timeout_s, f"{text!r} from {self.command}")

    def wait_until_serving(self, address: Address, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until a server accepts connections at the address."""

        def accepts() -> bool:
            assert self.status() is None, self.story()
            return answers(address)

        wait_until(accepts, timeout_s, f"{self.command} serves {address}")

    def story(self) -> str:
        """Return the process's last output, to be shown when a test fails."""
        tail = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([f"{self.command} (status {self.status()}):", *tail])


def answers(address: Address) -> bool:
    """Whether a server accepts connections at the address now."""
    try:
        connect(address, ANSWER_TIMEOUT_S).close()
    except (OSError, TimeoutError):
        return False
    return True


def is_running(pid: int) -> bool:
    """Whether a process, not necessarily a child, runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children(pid: int) -> list[int]:
    """Return the children that a process has started and not waited for yet.

    Without the one that `multiprocessing` starts for itself in a process that has ever used it, as
    other tests do, and keeps to the end.
    """
    while True:
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        # A thread that ends meanwhile hands its children to another one, which may have been read.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found = [int(child) for path in tasks for child in path.read_text().split()]
            return [child for child in found if not _is_tracker(child)]


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_and_wait(pid: int) -> None:
    """End another process's child with SIGKILL and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), STOP_TIMEOUT_S, f"process {pid} ends")
