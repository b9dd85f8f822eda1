"""Processes of the benchmark: started, watched, ended for sure, and what they have used.

Everything that a run starts ends with it, also when the run fails or is killed itself.
"""

import ctypes
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

STOP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
# The unit of /sys/block/*/stat, whatever the disk's own is.
SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# Processes that use less than this share of a core for so long are quiet.
QUIET_SHARE: Final = 0.1
QUIET_S: Final = 0.5

_PAUSE = threading.Event()
_PR_SET_PDEATHSIG: Final = 1


class BenchError(Exception):
    """The benchmark cannot go on; the message says why."""


class Usage(NamedTuple):
    """What processes have used so far."""

    cpu_s: float
    written_bytes: int  # by the disks, for all processes
    resident_bytes: tuple[int, ...]  # of each


def usage(pids: list[int]) -> Usage:
    """Return what processes have used so far; all must be running."""
    resident = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES for pid in pids]
    return Usage(_family_ticks(pids) / CLOCK_TICKS, disk_bytes(), tuple(resident))


def wait_until_quiet(pids: list[int], most_s: float) -> None:
    """Wait until processes have done what they put off; BenchError if that takes too long."""
    before = _family_ticks(pids)
    for _ in range(int(most_s / QUIET_S)):
        _PAUSE.wait(QUIET_S)
        now = _family_ticks(pids)
        if (now - before) / CLOCK_TICKS < QUIET_SHARE * QUIET_S:
            return
        before = now
    raise BenchError(f"the servers were still busy after {most_s} s in which nobody used them")


def _family_ticks(pids: list[int]) -> int:
    """Return the processor time of processes and all their descendants, also of ended ones."""
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended a moment ago
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    family = set(pids)
    while more := {pid for pid, fields in stats.items() if int(fields[1]) in family} - family:
        family |= more
    if not family <= stats.keys():
        raise BenchError("a server ended while it was measured")
    # utime and stime, and those of children that were waited for
    return sum(int(ticks) for pid in family for ticks in stats[pid][11:15])


def disk_bytes() -> int:
    """Return the bytes that the disks of this machine have written so far.

    Not what /proc/PID/io says: the system counts there all of a large folio (256 KiB and more) of
    which one block is written.
    """
    stats = [path / "stat" for path in Path("/sys/block").iterdir() if (path / "device").exists()]
    return sum(int(path.read_text().split()[6]) * SECTOR_BYTES for path in stats)


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until a condition holds; BenchError if it takes too long."""
    for _ in range(int(timeout_s / POLL_S)):
        if condition():
            return
        _PAUSE.wait(POLL_S)
    raise BenchError(f"not within {timeout_s} s: {what}")


def answers(address: str) -> bool:
    """Whether somebody accepts connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def wait_for_answer(
    process: subprocess.Popen[bytes], address: str, log: Path, most_s: float
) -> None:
    """Wait until a server listens; BenchError with its last words if it ended instead."""

    def listens() -> bool:
        if process.poll() is not None:
            said = log.read_text(errors="replace").splitlines()[-20:]
            raise BenchError(f"{process.args!r} ended:\n" + "\n".join(said))
        return answers(address)

    wait_for(listens, most_s, f"{address} answers (its log is {log})")


@contextmanager
def child(
    command: list[str], log: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process; end it with SIGTERM, or SIGKILL when that takes too long."""
    prctl = ctypes.CDLL(None).prctl
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            # Ctrl-C is for the benchmark, which then ends its servers in order.
            start_new_session=True,
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # Helpers of the server's own, should it have left any.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
