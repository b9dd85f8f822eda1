"""Processes of the benchmark: start, watch and reliably end them, and measure their usage.

Everything that a run starts ends with it, even if the run fails or is itself killed.
"""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from beanpoled.cli.tied import tied

STOP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
# The unit of /sys/block/*/stat, regardless of the disk's own sector size.
SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# Processes that use less than this share of a core for this time are quiet.
QUIET_SHARE: Final = 0.1
QUIET_S: Final = 0.5

_PAUSE = threading.Event()


class BenchError(Exception):
    """The benchmark cannot continue; the message says why."""


class Usage(NamedTuple):
    """The resources that processes have used so far."""

    cpu_s: float
    written_bytes: int  # by the disks, for all processes
    resident_bytes: tuple[int, ...]  # of each


def usage(pids: list[int]) -> Usage:
    """Return the resources that processes have used so far; all must be running."""
    resident = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES for pid in pids]
    return Usage(_family_ticks(pids) / CLOCK_TICKS, disk_bytes(), tuple(resident))


def wait_until_quiet(pids: list[int], most_s: float) -> None:
    """Wait until processes have finished background work; BenchError if that takes too long."""
    before = _family_ticks(pids)
    for _ in range(int(most_s / QUIET_S)):
        _PAUSE.wait(QUIET_S)
        now = _family_ticks(pids)
        if (now - before) / CLOCK_TICKS < QUIET_SHARE * QUIET_S:
            return
        before = now
    raise BenchError(f"the servers were still busy after {most_s} s in which nobody used them")


def _family_ticks(pids: list[int]) -> int:
    """Return the processor ticks of processes and all their descendants, including ended ones."""
    stats: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended a moment ago
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    family = set(pids)
    while more := {pid for pid, fields in stats.items() if int(fields[1]) in family} - family:
        family |= more
    if not family <= stats.keys():
        raise BenchError("a server ended while it was measured")
    # utime and stime, and those of reaped children.
    return sum(int(ticks) for pid in family for ticks in stats[pid][11:15])


def disk_bytes() -> int:
    """Return the bytes that the disks of this machine have written so far.

    /proc/PID/io is not usable: it counts all of a large folio (256 KiB and more) when only one of
    its blocks is written.
    """
    stats = [path / "stat" for path in Path("/sys/block").iterdir() if (path / "device").exists()]
    return sum(int(path.read_text().split()[6]) * SECTOR_BYTES for path in stats)


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until a condition holds; BenchError after the timeout."""
    for _ in range(int(timeout_s / POLL_S)):
        if condition():
            return
        _PAUSE.wait(POLL_S)
    raise BenchError(f"not within {timeout_s} s: {what}")


def answers(address: str) -> bool:
    """Whether a process accepts connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def wait_for_answer(
    process: subprocess.Popen[bytes], address: str, log: Path, most_s: float
) -> None:
    """Wait until a server listens; BenchError with its last output if it ended instead."""

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
    """Run a process; end it with SIGTERM, or SIGKILL if that takes too long."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            tied(command, signal.SIGTERM),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            # Ctrl-C must reach only the benchmark, which then ends its servers in order.
            start_new_session=True,
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
        # End helper processes that the server may have left.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
