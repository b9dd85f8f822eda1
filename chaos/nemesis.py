"""What can be done to three nodes, wherever they run: the interface of all backends.

A backend is a `Backend`. Each protocol below is one ability, and a scenario names those that it
needs by the type of its first argument, so that it runs on every backend that has them. A fault
lasts until `heal`, but for nodes that were ended: those the scenario starts again. Nothing here
does a fault.
"""

import abc
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from chaos import clients
from chaos.record import Op
from tests.integration.support.processes import Process
from tests.integration.support.raw import Address
from tests.integration.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[1]
NODES: Final = range(3)
LEADER: Final = "leader"
FOLLOWER: Final = "follower"
NOT_READY: Final = "not ready"
AWAY: Final = "away"
LEADER_TIMEOUT_S: Final = 30.0
# All faults are over: then a node is ready, or it never will be.
READY_TIMEOUT_S: Final = 60.0
CLIENTS_END_TIMEOUT_S: Final = 90.0


class Load(Protocol):
    """The clients of a run."""

    def end(self) -> None:
        """Let them end; AssertionError if they do not, or with a status other than 0."""

    def kill(self) -> None:
        """End them at once; harmless when they have ended."""


class Nodes(Protocol):
    """What every scenario may use."""

    def name(self, number: int) -> str:
        """Return what a node is called, from n0 or n1 on."""

    def leader(self, other_than: int | None = None) -> int:
        """Wait for a node that leads and is ready, and return its number."""

    def wait_until_ready(self, numbers: Iterable[int] = NODES) -> None:
        """Wait until nodes are ready; AssertionError if one ended or is not."""


@runtime_checkable
class Ends(Nodes, Protocol):
    """Nodes can be ended and started."""

    def kill(self, *numbers: int) -> None:
        """End nodes with SIGKILL."""

    def stop(self, number: int) -> None:
        """End a node as an operator does; a status other than 0 is a finding."""

    def start(self, number: int) -> None:
        """Start a node with the data that it has, without waiting."""


@runtime_checkable
class Freezes(Nodes, Protocol):
    """A node can stand still while its kernel goes on."""

    def freeze(self, number: int) -> None: ...


@runtime_checkable
class Separates(Nodes, Protocol):
    """Nothing passes between two nodes, in both directions."""

    def separate(self, one: int, other: int) -> None: ...

    def heal(self) -> None: ...


@runtime_checkable
class Isolates(Nodes, Protocol):
    """Nothing passes between a node and the others, in both directions."""

    def isolate(self, number: int) -> None: ...


@runtime_checkable
class Cuts(Separates, Protocol):
    """One direction between two nodes can be cut by itself."""

    def ways(self) -> Sequence[str]:
        """Return in which ways: "all" packets are lost, or "data only" and TCP goes on.

        If all are lost, acknowledgements are, too, so the other direction soon stands.
        """

    def cut(self, source: int, target: int, way: str) -> None:
        """Let nothing that one node sends arrive at another."""


@runtime_checkable
class Refuses(Nodes, Protocol):
    """Connections between two nodes end with a reset, and new ones are refused."""

    def refuse(self, one: int, other: int) -> None: ...


@runtime_checkable
class Loses(Nodes, Protocol):
    """A share of the packets to a node is lost."""

    def lose(self, number: int, percent: int) -> None: ...


@runtime_checkable
class Slows(Nodes, Protocol):
    """A node sends no more than a rate, also to its clients."""

    def slow(self, number: int, kbit_s: int) -> None: ...


@runtime_checkable
class Delays(Nodes, Protocol):
    """What a node sends arrives late, also at its clients."""

    def delay(self, number: int, latency_ms: int) -> None: ...


@runtime_checkable
class Slices(Nodes, Protocol):
    """What a node sends arrives in small pieces."""

    def slice(self, number: int) -> None: ...


@runtime_checkable
class IgnoresClients(Nodes, Protocol):
    """Nothing that clients send arrives at a node."""

    def ignore_clients(self, number: int) -> None: ...


@runtime_checkable
class LosesReplies(Nodes, Protocol):
    """Nothing that a node replies arrives at its clients, whose connections then end."""

    def lose_replies(self, number: int) -> None: ...


@runtime_checkable
class ResetsClients(Nodes, Protocol):
    """Connections of a node's clients end with a reset."""

    def reset_clients(self, number: int) -> None: ...


@runtime_checkable
class LimitsClients(Nodes, Protocol):
    """Connections of a node's clients end when they have sent some bytes."""

    def limit_clients(self, number: int, count_bytes: int) -> None: ...


@runtime_checkable
class Moves(Nodes, Protocol):
    """A node loses its network, and gets it back with the same or another address."""

    def disconnect(self, number: int) -> None: ...

    def connect(self, number: int, moved: bool) -> str:
        """Return the address that the node has now."""


@runtime_checkable
class Starves(Nodes, Protocol):
    """A node gets little of a processor, and of memory."""

    def starve(self, number: int, share: float) -> None: ...


@runtime_checkable
class SlowsDisks(Nodes, Protocol):
    """Each write and each sync of a node's log takes longer."""

    def slow_disk(self, number: int, latency_ms: int) -> None: ...


@runtime_checkable
class FillsDisks(Nodes, Protocol):
    """Less than the reserve is left on the disk of all nodes."""

    def fill_disk(self) -> str:
        """Return in words how much was taken."""


@runtime_checkable
class StepsClocks(Nodes, Protocol):
    """The wall clock of a node steps, and stays so until the next step."""

    def step_clock(self, number: int, seconds: float) -> None: ...


@runtime_checkable
class Replaces(Nodes, Protocol):
    """A node's data are gone for ever, and it comes back with an empty disk."""

    def replace(self, number: int) -> None:
        """Kill a node, remove its data and start it with --rejoin, without waiting."""

    def wait_until_rejoined(self, number: int) -> None:
        """Wait until it has everything, and counts as a voter again."""


@runtime_checkable
class Upgrades(Ends, Protocol):
    """A node can run the last release, or this program."""

    def install(self, number: int, new: bool) -> None:
        """Let the next start of a node run that program."""


class Backend(abc.ABC):
    """Three nodes, and everything that a run needs of them beside faults."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.findings: list[str] = []

    def words(self) -> str:
        """Return in one line how links are broken here, for the report."""
        return ""

    def unable(self) -> Mapping[type, str]:
        """Return the abilities that this machine has not, and why."""
        return {}

    @abc.abstractmethod
    def name(self, number: int) -> str: ...

    @abc.abstractmethod
    def start_all(self) -> None:
        """Start all nodes and wait until they are ready."""

    @abc.abstractmethod
    def close(self) -> None:
        """End everything; the logs of all nodes stay."""

    @abc.abstractmethod
    def addresses(self) -> Sequence[Address]:
        """Return where this process reaches each node as a client."""

    def door(self) -> Address:
        """Return where the queue is emptied."""
        return self.addresses()[0]

    @abc.abstractmethod
    def get(self, number: int, page: str) -> tuple[int, str]:
        """Return the status and text of a page of a node; ConnectionError if it does not answer."""

    @abc.abstractmethod
    def heal(self) -> None:
        """Undo all faults; ended nodes stay ended."""

    @abc.abstractmethod
    def check(self, number: int) -> None:
        """AssertionError with what a node said if it has ended."""

    @abc.abstractmethod
    def look(self) -> None:
        """Add a finding for each node that ended by itself since it was last started."""

    @abc.abstractmethod
    def logs(self) -> list[Path]:
        """Return the files of all lives of all nodes."""

    def excuses(self, op: Op) -> bool:
        """Whether a fault explains that a client waited for ever."""
        return False

    def start_clients(self, history: Path, seed: int, count: int) -> Load:
        """Start the clients of a soak, which write to a folder; node numbers are ours."""
        command = clients.command_line(history, seed, count, self.addresses())
        return LocalClients([sys.executable, *command], self.directory / "clients.log")

    # --- what nodes say ---------------------------------------------------------------------------

    def role(self, number: int) -> str:
        """Return what a node says of itself."""
        try:
            status, text = self.get(number, "/readyz?leader=1")
        except ConnectionError:
            return AWAY
        if status == 200:
            return LEADER
        failed = [line for line in text.splitlines() if line.startswith("[-]")]
        is_follower = failed and all(line.startswith("[-]is-leader:") for line in failed)
        return FOLLOWER if is_follower else NOT_READY

    def leader(self, other_than: int | None = None) -> int:
        """Wait for a node that leads and is ready, and return its number."""

        def find() -> list[int]:
            others = (number for number in NODES if number != other_than)
            return [number for number in others if self.role(number) == LEADER]

        return wait_until(find, LEADER_TIMEOUT_S, "a leader")[0]

    def wait_until_ready(self, numbers: Iterable[int] = NODES) -> None:
        """Wait until nodes are ready; AssertionError if one ended or is not."""
        for number in numbers:

            def ready(number: int = number) -> bool:
                self.check(number)
                return self.role(number) in (LEADER, FOLLOWER)

            wait_until(ready, READY_TIMEOUT_S, f"{self.name(number)} is ready")


class LocalClients:
    """Clients in a process of this machine."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._process = Process(command, log, cwd=ROOT)

    def end(self) -> None:
        self._process.signal(signal.SIGTERM)
        assert self._process.wait(CLIENTS_END_TIMEOUT_S) == 0, self._process.story()

    def kill(self) -> None:
        self._process.kill()
