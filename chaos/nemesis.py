"""The interface of all backends: the faults that can be applied to three nodes.

A backend is a `Backend`. Each protocol below is one ability, and a scenario names the abilities it
needs by the type of its first argument, so that it runs on every backend that has them. A fault
lasts until `heal`, except that the scenario itself restarts the nodes it ended. This module applies
no fault.
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
# Long after all faults have ended: a node that is not ready by then never will be.
READY_TIMEOUT_S: Final = 60.0
CLIENTS_END_TIMEOUT_S: Final = 90.0


class Load(Protocol):
    """The clients of a run."""

    def end(self) -> None:
        """End the clients; AssertionError if they do not end, or with a status other than 0."""

    def kill(self) -> None:
        """End the clients at once; harmless if they have ended."""


class Nodes(Protocol):
    """The abilities that every scenario may use."""

    def name(self, number: int) -> str:
        """Return the name of a node, beginning with n0 or n1."""

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
        """Start a node with its existing data, without waiting."""


@runtime_checkable
class Freezes(Nodes, Protocol):
    """A node can be paused while its kernel keeps running."""

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
        """Return the ways of cutting: "all" packets are lost, or "data only" and TCP goes on.

        If all packets are lost, acknowledgements are, too, so the other direction soon stalls.
        """

    def cut(self, source: int, target: int, way: str) -> None:
        """Drop everything that one node sends to another."""


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
    """The rate at which a node sends is limited, also to its clients."""

    def slow(self, number: int, kbit_s: int) -> None: ...


@runtime_checkable
class Delays(Nodes, Protocol):
    """A node's outgoing traffic is delayed, also to its clients."""

    def delay(self, number: int, latency_ms: int) -> None: ...


@runtime_checkable
class Slices(Nodes, Protocol):
    """A node's outgoing traffic arrives in small pieces."""

    def slice(self, number: int) -> None: ...


@runtime_checkable
class IgnoresClients(Nodes, Protocol):
    """Traffic from clients to a node is dropped."""

    def ignore_clients(self, number: int) -> None: ...


@runtime_checkable
class LosesReplies(Nodes, Protocol):
    """A node's replies to clients are dropped, and then the clients' connections end."""

    def lose_replies(self, number: int) -> None: ...


@runtime_checkable
class ResetsClients(Nodes, Protocol):
    """Connections of a node's clients end with a reset."""

    def reset_clients(self, number: int) -> None: ...


@runtime_checkable
class LimitsClients(Nodes, Protocol):
    """Connections of a node's clients end after a number of bytes from the client."""

    def limit_clients(self, number: int, count_bytes: int) -> None: ...


@runtime_checkable
class Moves(Nodes, Protocol):
    """A node loses its network, and gets it back with the same or another address."""

    def disconnect(self, number: int) -> None: ...

    def connect(self, number: int, moved: bool) -> str:
        """Return the new address of the node."""


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
        """Return in words how much was filled."""


@runtime_checkable
class StepsClocks(Nodes, Protocol):
    """The wall clock of a node steps, and keeps its offset until the next step."""

    def step_clock(self, number: int, seconds: float) -> None: ...


@runtime_checkable
class Replaces(Nodes, Protocol):
    """A node loses its data for good, and returns with an empty disk."""

    def replace(self, number: int) -> None:
        """Kill a node, remove its data and start it with --rejoin, without waiting."""

    def wait_until_rejoined(self, number: int) -> None:
        """Wait until the node has all data, and votes again."""


@runtime_checkable
class Upgrades(Ends, Protocol):
    """A node can run the last release, or this program."""

    def install(self, number: int, new: bool) -> None:
        """Set the program of a node's next start: this one if `new`, or the last release."""


class Backend(abc.ABC):
    """Three nodes, and all operations of a run on them except faults."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.findings: list[str] = []

    def words(self) -> str:
        """Return in one line how links are broken by this backend, for the report."""
        return ""

    def unable(self) -> Mapping[type, str]:
        """Return the abilities that this machine lacks, with the reasons."""
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
        """Return the addresses at which this process reaches the nodes as a client."""

    def door(self) -> Address:
        """Return the address at which the queue is emptied."""
        return self.addresses()[0]

    @abc.abstractmethod
    def get(self, number: int, page: str) -> tuple[int, str]:
        """Return the status and text of a page of a node; ConnectionError if it does not answer."""

    @abc.abstractmethod
    def heal(self) -> None:
        """Undo all faults; ended nodes stay ended."""

    @abc.abstractmethod
    def check(self, number: int) -> None:
        """Raise AssertionError with a node's output if it has ended."""

    @abc.abstractmethod
    def look(self) -> None:
        """Add a finding for each node that ended by itself since it was last started."""

    @abc.abstractmethod
    def logs(self) -> list[Path]:
        """Return the log files of all lives of all nodes."""

    def excuses(self, op: Op) -> bool:
        """Whether a fault explains that a client waited without a reply."""
        return False

    def start_clients(self, history: Path, seed: int, count: int) -> Load:
        """Start the clients of a soak, which write to a folder and number the nodes as we do."""
        command = clients.command_line(history, seed, count, self.addresses())
        return LocalClients([sys.executable, *command], self.directory / "clients.log")

    # --- what nodes say ---------------------------------------------------------------------------

    def role(self, number: int) -> str:
        """Return the role that a node reports."""
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
