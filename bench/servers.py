"""The systems that the benchmark compares: how each is started, reached and stopped.

All listen on loopback only and keep their data below the folder they are given. What is measured
with them is in `run`.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02
# What `make compiled` builds; `make bench` does it first.
COMPILED: Final = Path(__file__).resolve().parent.parent / "build" / "compiled"
# Below the range from which the kernel gives ports to clients.
BASE_PORT: Final = 23600
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")

_PAUSE = threading.Event()


class BenchError(Exception):
    """The benchmark cannot go on; the message says why."""


class Running(NamedTuple):
    """A system that takes clients."""

    addresses: list[str]
    pids: list[int]


class System(NamedTuple):
    """A system to measure: what it is called in tables, and how to run it in a folder."""

    name: str
    promise: str
    run: Callable[[Path], AbstractContextManager[Running]]


def cpu_seconds(pids: list[int]) -> float:
    """Return the processor time that processes have used so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / CLOCK_TICKS


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


@contextmanager
def child(
    command: list[str], log: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process, and end it with SIGTERM, or SIGKILL when that takes too long."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
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


def beanpole(
    nodes: int, compiled: bool = True
) -> Callable[[Path], AbstractContextManager[Running]]:
    """Return how to run a cluster of so many nodes, synced to disk."""
    environment = dict(os.environ)
    if compiled:
        environment["PYTHONPATH"] = str(COMPILED)

    @contextmanager
    def run(folder: Path) -> Iterator[Running]:
        command = [str(Path(sys.executable).with_name("beanpole")), "up", "--nodes", str(nodes)]
        command += ["--dir", str(folder / "data"), "--base-port", str(BASE_PORT)]
        log = folder / "output.log"
        with child(command, log, environment) as process:

            def ready() -> bool:
                lines = log.read_text(errors="replace").splitlines()
                if process.poll() is not None:
                    raise BenchError("beanpole up ended:\n" + "\n".join(lines[-20:]))
                return any(line.startswith("ready") for line in lines)

            wait_for(ready, START_TIMEOUT_S, "beanpole up says ready")
            found = json.loads((folder / "data" / "cluster.json").read_text())["nodes"]
            yield Running([node["beanstalk"] for node in found], [node["pid"] for node in found])

    return run


def beanstalkd(durable: bool) -> Callable[[Path], AbstractContextManager[Running]]:
    """Return how to run Debian's beanstalkd, in memory or with an fsync for every command."""

    @contextmanager
    def run(folder: Path) -> Iterator[Running]:
        address = f"127.0.0.1:{BASE_PORT}"
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(BASE_PORT)]
        if durable:
            (folder / "data").mkdir()
            command += ["-b", str(folder / "data"), "-f0"]
        with child(command, folder / "output.log") as process:
            wait_for(lambda: answers(address), START_TIMEOUT_S, "beanstalkd listens")
            yield Running([address], [process.pid])

    return run


BEANPOLE: Final = (
    System("beanpole, 3 nodes", "disks of a majority", beanpole(3)),
    System("same, not compiled", "disks of a majority", beanpole(3, compiled=False)),
    System("beanpole, 1 node", "disk", beanpole(1)),
)
BEANSTALKD: Final = (
    System("beanstalkd -b -f0", "disk", beanstalkd(durable=True)),
    System("beanstalkd", "memory", beanstalkd(durable=False)),
)


def systems() -> tuple[System, ...]:
    """Return what can be measured on this machine, in the order of the table."""
    return BEANPOLE + (BEANSTALKD if shutil.which("beanstalkd") else ())
