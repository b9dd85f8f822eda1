"""The systems that the benchmark compares, and how to run Beanpole and beanstalkd.

All listen on loopback only and keep their data below a given folder. Systems with other protocols
are in `peers`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.processes import BenchError, child, wait_for, wait_for_answer

START_TIMEOUT_S: Final = 30.0
# Built by `make compiled`, which `make bench` runs first.
COMPILED: Final = Path(__file__).resolve().parent.parent / "build" / "compiled"
BEANPOLE: Final = str(Path(sys.executable).with_name("beanpole"))
# The compiled wheel in an environment of its own, where `make wheel` installs it.
INSTALLED: Final = COMPILED.with_name("installed") / "bin" / "beanpole"
# Five seconds after its start a node starts the process that seals its events, once in its life.
SETTLE_S: Final = 8.0
# Below the range of ports that the kernel assigns to clients.
BASE_PORT: Final = 23600

# The condition for acknowledging a change. Only systems with the same promise are comparable.
MAJORITY: Final = "disks of a majority"
DISK: Final = "disk of one"
MAJORITY_MEMORY: Final = "memory of a majority"
MEMORY: Final = "memory of one"


class Running(NamedTuple):
    """A system that accepts clients."""

    addresses: list[str]
    pids: list[int]
    # The ids of Beanpole's nodes, in the order of the process ids.
    ids: tuple[str, ...] = ()


class System(NamedTuple):
    """A system to measure: its name in tables, and how to run it in a folder."""

    name: str
    promise: str
    run: Callable[[Path], AbstractContextManager[Running]]
    protocol: str = "beanstalk"
    # Debian's package and the programs that it installs; empty for Beanpole.
    package: str = ""
    programs: tuple[str, ...] = ()

    @property
    def installed(self) -> bool:
        return all(map(shutil.which, self.programs))


def beanpole(
    nodes: int,
    compiled: bool = True,
    on_leader: bool = False,
    settings: tuple[str, ...] = (),
    protocol: str = "beanstalk",
    installed: bool = False,
) -> Callable[[Path], AbstractContextManager[Running]]:
    """Return a function that runs a cluster of this size for clients of a protocol."""

    @contextmanager
    def run(folder: Path) -> Iterator[Running]:
        program, environment = BEANPOLE, dict(os.environ)
        if installed:
            program, environment = installed_program()
        elif compiled:
            environment = compiled_environment()
        data = folder / "data"
        command = [program, "up", "--nodes", str(nodes), "--dir", str(data)]
        command += ["--base-port", str(BASE_PORT), *([] if compiled else ["--sources"])]
        for setting in settings:
            command += ["--set", setting]
        log = folder / "output.log"
        with child(command, log, environment) as process:

            def ready() -> bool:
                lines = log.read_text(errors="replace").splitlines()
                if process.poll() is not None:
                    raise BenchError("beanpole up ended:\n" + "\n".join(lines[-20:]))
                return any(line.startswith("ready") for line in lines)

            wait_for(ready, START_TIMEOUT_S, "beanpole up says ready")
            time.sleep(SETTLE_S)
            found = json.loads((data / "cluster.json").read_text())["nodes"]
            wanted = leader(data) if on_leader else ""
            addresses = [node[protocol] for node in found if wanted in ("", node["id"])]
            ids = tuple(node["id"] for node in found)
            yield Running(addresses, [node["pid"] for node in found], ids)

    return run


def compiled_environment() -> dict[str, str]:
    """Return the environment that selects compiled nodes; BenchError if there are none."""
    if not COMPILED.exists():
        raise BenchError(f"{COMPILED} is missing: run `make compiled` first")
    return {**os.environ, "PYTHONPATH": str(COMPILED)}


def installed_program() -> tuple[str, dict[str, str]]:
    """Return the installed program and its environment; BenchError if there is none."""
    if not INSTALLED.exists():
        raise BenchError(f"{INSTALLED} is missing: run `make wheel` first")
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return str(INSTALLED), without


def leader(data: Path) -> str:
    """Return the id of the leader of the cluster in a folder."""
    command = [BEANPOLE, "status", "--dir", str(data), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    found = json.loads(done.stdout)["leader"]
    if not found:
        raise BenchError("the cluster has no leader just now")
    return str(found)


def beanstalkd(durable: bool) -> Callable[[Path], AbstractContextManager[Running]]:
    """Return a function that runs Debian's beanstalkd, in memory or with an fsync per command."""

    @contextmanager
    def run(folder: Path) -> Iterator[Running]:
        address = f"127.0.0.1:{BASE_PORT}"
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(BASE_PORT)]
        if durable:
            (folder / "data").mkdir()
            command += ["-b", str(folder / "data"), "-f0"]
        log = folder / "output.log"
        with child(command, log) as process:
            wait_for_answer(process, address, log, START_TIMEOUT_S)
            yield Running([address], [process.pid])

    return run


BEANPOLE_3: Final = System("beanpole, 3 nodes", MAJORITY, beanpole(3))
BEANPOLE_INSTALLED: Final = System("same, installed wheel", MAJORITY, beanpole(3, installed=True))
BEANPOLE_SOURCES: Final = System("same, not compiled", MAJORITY, beanpole(3, compiled=False))
BEANPOLE_LEADER: Final = System("same, clients on leader", MAJORITY, beanpole(3, on_leader=True))
BEANPOLE_1: Final = System("beanpole, 1 node", DISK, beanpole(1))
BEANPOLE_MEMORY: Final = System(
    "beanpole, 1 node, memory", MEMORY, beanpole(1, settings=("durability=memory",))
)
BEANPOLE_3_MEMORY: Final = System(
    "same, memory", MAJORITY_MEMORY, beanpole(3, settings=("durability=memory",))
)
BEANPOLE_3_OFF: Final = System("same, events off", MAJORITY, beanpole(3, settings=("events=off",)))
BEANPOLE_1_OFF: Final = System("1 node, events off", DISK, beanpole(1, settings=("events=off",)))
BEANSTALKD_DURABLE: Final = System(
    "beanstalkd -b -f0", DISK, beanstalkd(True), package="beanstalkd", programs=("beanstalkd",)
)
BEANSTALKD: Final = System(
    "beanstalkd", MEMORY, beanstalkd(False), package="beanstalkd", programs=("beanstalkd",)
)


def speaking(protocol: str) -> tuple[System, ...]:
    """Return Beanpole's systems for another protocol: three nodes, one node, one node in memory."""
    memory = ("durability=memory",)
    return (
        System(f"beanpole {protocol}, 3 nodes", MAJORITY, beanpole(3, protocol=protocol), protocol),
        System(f"beanpole {protocol}, 1 node", DISK, beanpole(1, protocol=protocol), protocol),
        System(
            f"beanpole {protocol}, memory",
            MEMORY,
            beanpole(1, settings=memory, protocol=protocol),
            protocol,
        ),
    )


BEANPOLE_GEARMAN: Final = speaking("gearman")
BEANPOLE_WORKQ: Final = speaking("workq")
BEANPOLE_QLESS: Final = speaking("qless")
