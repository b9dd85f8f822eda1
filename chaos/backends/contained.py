"""The nodes of compose.yaml as a backend, with the clients in a container of the same network.

The clients use all nodes and both ports of HAProxy, and the queue is emptied through the proxy.
`containers` controls containers through the engine.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import docker

from chaos import clients, images
from chaos.checks import Window
from chaos.containers import ANY, BEANSTALK, LEADER, NAMES, PROXY, Containers
from chaos.nemesis import NODES, Backend, Load
from chaos.record import SILENT, Op

CLIENTS_END_TIMEOUT_S: Final = 60
# Little memory, but more than a node needs with the clients of a run.
STARVED_BYTES: Final = 512 << 20
UNLIMITED_BYTES: Final = 2 << 30
# The longest pause of a client between two uses of a connection.
THOUGHT_S_MAX: Final = 3.0
# HAProxy, as seen from outside the network.
PUBLISHED: Final = f"127.0.0.1:{ANY}"


class ContainedClients:
    """Clients in a container."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def end(self) -> None:
        self._container.stop(timeout=CLIENTS_END_TIMEOUT_S)
        status = self._container.wait()["StatusCode"]
        assert not status, f"the clients ended with {status}: {self._container.logs().decode()}"

    def kill(self) -> None:
        self._container.remove(force=True)


class Contained(Backend):
    """Containers as a backend.

    Args:
        directory: the folder of the run.
        nodes: the tests' own nodes, started already, which `close` does not end.
    """

    def __init__(self, directory: Path, nodes: Containers | None = None) -> None:
        super().__init__(directory)
        self._owned = nodes is None
        if nodes is None:
            engine = docker.from_env()
            project = directory.name.lower().replace("_", "-")
            nodes = Containers(engine, images.build(engine), directory, project)
        self._nodes = nodes
        self._paused: set[int] = set()
        self._starved: set[int] = set()
        # When a node changed its address, because it was disconnected and moved, or restarted.
        self._moves: list[tuple[int, Window]] = []
        self._leaving: dict[int, tuple[str, float]] = {}

    def name(self, number: int) -> str:
        return NAMES[number]

    def start_all(self) -> None:
        """Start everything, unless the tests did, and wait until the nodes are ready."""
        if self._owned:
            self._nodes.up()
        self.wait_until_ready()

    def close(self) -> None:
        """Keep the logs of the nodes; end the nodes if they were started here."""
        self._nodes.keep_logs(self.directory)
        if self._owned:
            self._nodes.down()

    def addresses(self) -> Sequence[str]:
        """Return the addresses at which this process reaches the nodes as a client."""
        return [self._nodes.beanstalk(number) for number in NODES]

    def door(self) -> str:
        """Return the address that empties the queue: HAProxy's port for any node."""
        return PUBLISHED

    def get(self, number: int, page: str) -> tuple[int, str]:
        """Return the status and text of a page; ConnectionError if the node does not answer."""
        return self._nodes.get(number, page)

    def check(self, number: int) -> None:
        """Do nothing: the engine restarts nodes by itself, and `look` finds those that ended."""

    def look(self) -> None:
        """Add a finding for each node that ended by itself since it was last started."""
        self.findings += self._nodes.ended()

    def logs(self) -> list[Path]:
        """Return the log files of all nodes, written anew."""
        self._nodes.keep_logs(self.directory)
        return [self.directory / f"{name}.log" for name in NAMES]

    def start_clients(self, history: Path, seed: int, count: int) -> Load:
        """Start clients beside the nodes; they use the names of the nodes and of the proxy."""
        addresses = [f"{name}:{BEANSTALK}" for name in NAMES]
        addresses += [f"{PROXY}:{ANY}", f"{PROXY}:{LEADER}"]
        command = clients.command_line(history, seed, count, addresses)
        return ContainedClients(self._nodes.run_beside(["python3", *command], history))

    def excuses(self, op: Op) -> bool:
        """Whether a command was sent to an address that no longer exists.

        No host refuses it there, and a client without keepalives waits without limit.
        """
        return op.outcome == SILENT and any(
            op.node == node
            and op.sent_s < window.until_s + THOUGHT_S_MAX
            and op.done_s > window.from_s
            for node, window in self._moves
        )

    # --- faults -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Undo all faults; ended nodes stay ended."""
        for number in self._paused:
            self._nodes.unpause(number)
        self._paused.clear()
        for number in self._starved:
            self._nodes.limit(number, 0, UNLIMITED_BYTES)
        self._starved.clear()

    def kill(self, *numbers: int) -> None:
        """End nodes with SIGKILL."""
        self._leave(*numbers)
        self._nodes.kill(*numbers)

    def stop(self, number: int) -> None:
        """End a node as `docker stop` does; a status other than 0 is a finding."""
        self._leave(number)
        if status := self._nodes.stop(number):
            self.findings.append(f"docker stop: {NAMES[number]} ended with {status}")

    def start(self, number: int) -> None:
        """Start a node with the data that it has; it may have another address."""
        self._nodes.start(number)
        self._come_back(number)

    def freeze(self, number: int) -> None:
        """Pause a node."""
        self._nodes.pause(number)
        self._paused.add(number)

    def disconnect(self, number: int) -> None:
        """Disconnect a node from the network: nothing is refused, nothing arrives."""
        self._leave(number)
        self._nodes.disconnect(number)

    def connect(self, number: int, moved: bool) -> str:
        """Reconnect a node, with its old address or, if `moved`, with a new one; return it."""
        before, _ = self._leaving[number]
        after = self._nodes.connect(number, "" if moved else before)
        self._come_back(number)
        return after

    def starve(self, number: int, share: float) -> None:
        """Limit a node to a share of one core, and to little memory."""
        self._nodes.limit(number, share, STARVED_BYTES)
        self._starved.add(number)

    def _leave(self, *numbers: int) -> None:
        for number in numbers:
            self._leaving[number] = (self._nodes.address(number), time.monotonic())

    def _come_back(self, number: int) -> None:
        before, left_s = self._leaving[number]
        if self._nodes.address(number) != before:
            self._moves.append((number, Window(left_s, time.monotonic())))
