"""Beanpole nodes of the tests: their configuration, addresses and processes.

`Cluster` writes the configuration itself, for tests that need special settings or links through
proxies; `LocalCluster` is started by `beanpole up`.
"""

import json
import os
import shlex
import shutil
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from beanpole.errors import ClientError
from beanpoled.cli import status as status_command
from beanpoled.config.protocols import FIRST, PROTOCOLS
from tests.integration.support.ports import free_block
from tests.integration.support.processes import (
    START_TIMEOUT_S,
    Process,
    answers,
    is_running,
    kill_and_wait,
)
from tests.integration.support.raw import Address
from tests.integration.support.waiting import wait_until

BEANPOLE: Final = (str(Path(sys.executable).with_name("beanpole")),)
BEANPOLED: Final = (sys.executable, "-m", "beanpoled")
# Otherwise the reserve below which puts are refused would depend on the disk of the machine.
SETTINGS: Final = {"disk_reserve_bytes": 0}
# For tests in which a node is declared down: nearly the shortest times that are allowed with the
# default election times.
QUICK: Final = {"command_timeout_ms": 3000, "fence_timeout_ms": 4000, "node_timeout_ms": 4500}
# For tests in which no node may end its clients, though a slow machine starves it for a while.
STEADY: Final = {
    "command_timeout_ms": 60_000,
    "fence_timeout_ms": 65_000,
    "node_timeout_ms": 70_000,
}
LEADER_TIMEOUT_S: Final = 60.0
HTTP_TIMEOUT_S: Final = 60.0
# For a question that is asked again: a node that is stopped holds up the others no longer.
ROLE_TIMEOUT_S: Final = 2.0

Settings = Mapping[str, object]


class Node(NamedTuple):
    """The addresses of one node."""

    id: str
    directory: Path
    beanstalk: Address
    peer: Address
    grpc: Address
    http: Address

    def speaks(self, protocol: str) -> Address:
        """Return the address for clients of a protocol."""
        host, _, port = self.beanstalk.rpartition(":")
        offset = next(row.port_offset for row in PROTOCOLS if row.name == protocol)
        return f"{host}:{int(port) + offset}"


def node_at(number: int, base: int, directory: Path) -> Node:
    """Return the node with the given number in a cluster whose ports begin at `base`."""
    ports = [f"127.0.0.1:{base + number + offset}" for offset in (0, 10, 20, 30)]
    return Node(f"n{number}", directory / f"n{number}", *ports)


def toml_lines(settings: Settings) -> list[str]:
    """Return settings as lines of TOML."""
    return [f"{key} = {json.dumps(value)}" for key, value in settings.items()]


def listeners(node: Node) -> list[str]:
    """Return the arguments with the addresses for clients of other protocols.

    These are arguments and not a table of the file, because older programs read the file, too.
    """
    others = [row.name for row in PROTOCOLS if row.name != FIRST]
    given = ",".join(f"{name}={node.speaks(name)}" for name in others)
    return ["--listeners", given] if given else []


def write_configuration(
    node: Node, members: Sequence[Node], dial: Mapping[str, Address], settings: Settings
) -> Path:
    """Write the node's TOML file into its folder and return its path."""
    lines = toml_lines({**SETTINGS, **settings})
    own = {
        "cluster": "test",
        "node_id": node.id,
        "data_dir": str(node.directory / "data"),
        "peer_listen": node.peer,
        "grpc_listen": node.grpc,
        "http_listen": node.http,
    }
    if "listen" not in settings:
        lines.append(f"listen = {json.dumps([node.beanstalk])}")
    lines += [f"{key} = {json.dumps(value)}" for key, value in own.items()]
    for member in members:
        lines.append(f"[members.{member.id}]")
        lines += [f"peer = {json.dumps(member.peer)}", f"grpc = {json.dumps(member.grpc)}"]
    for peer, address in dial.items():
        lines += [f"[dial.{peer}]", f"peer = {json.dumps(address)}"]
    node.directory.mkdir(parents=True, exist_ok=True)
    path = node.directory / "node.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def http_get(address: Address, path: str, timeout_s: float = HTTP_TIMEOUT_S) -> tuple[int, str]:
    """Return the status and the text at a path; ConnectionError while no server answers."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout_s) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (urllib.error.URLError, OSError) as error:
        raise ConnectionError(f"{address}{path}: {error}") from error


def status(node: Node) -> dict[str, Any]:
    """Return the answer of this node to `beanpole status --json`."""
    try:
        return status_command.as_json(status_command.first_answer([node.grpc]))
    except ClientError as error:
        raise ConnectionError(str(error)) from error


def whole_status(node: Node) -> dict[str, Any]:
    """Return the status once it describes every node: the answering one waits 1 s for another."""

    def whole() -> dict[str, Any] | None:
        found = status(node)
        return found if all(member["reachable"] for member in found["nodes"]) else None

    found = wait_until(whole, LEADER_TIMEOUT_S, f"{node.id} reaches all")
    assert found is not None
    return found


def _reaches_all(node: Node) -> bool:
    return all(member["reachable"] for member in status(node)["nodes"])


class Nodes:
    """Operations on the nodes of a cluster, however it was started."""

    nodes: tuple[Node, ...]

    def __init__(self) -> None:
        self._processes: dict[int, Process] = {}

    def pid(self, number: int) -> int:
        """Return the process id of a node."""
        return self._processes[number].pid

    def process(self, number: int) -> Process:
        """Return the process of a node that was started here, not by `beanpole up`."""
        return self._processes[number]

    def command(self, number: int) -> list[str]:
        """Return the command line that starts a node."""
        return shlex.split((self.nodes[number].directory / "cmdline").read_text())

    def kill(self, number: int) -> None:
        """End a node with SIGKILL and wait until it is gone."""
        if number in self._processes:
            self._processes[number].kill()
        else:
            kill_and_wait(self.pid(number))

    def terminate(self, number: int) -> None:
        """End a node with SIGTERM and wait until it is gone."""
        if number in self._processes:
            self._processes[number].terminate()
            return
        pid = self.pid(number)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_running(pid), START_TIMEOUT_S, f"{pid} ends after SIGTERM")

    def start(self, number: int, arguments: Sequence[str] = ()) -> Process:
        """Start a node by its command line, without waiting for it."""
        node = self.nodes[number]
        command = [*self.command(number), *arguments]
        process = Process(command, node.directory / "output.log")
        self._processes[number] = process
        return process

    def wait_until_serving(self, number: int) -> None:
        """Wait until a started node accepts clients."""
        self._processes[number].wait_until_serving(self.nodes[number].beanstalk)

    def leader(self) -> int:
        """Return the number of the leader, after the end of an election."""

        def find() -> list[int]:
            return [number for number in range(len(self.nodes)) if self.is_leader(number)]

        try:
            return wait_until(find, LEADER_TIMEOUT_S, "a leader")[0]
        except AssertionError as error:
            error.add_note(self.story())
            raise

    def is_leader(self, number: int) -> bool:
        """Whether a node reports that it leads and is ready."""
        return self._says(number, "/readyz?leader=1")

    def is_ready(self, number: int) -> bool:
        """Whether a node reports that it is ready."""
        return self._says(number, "/readyz")

    def _says(self, number: int, page: str) -> bool:
        try:
            return http_get(self.nodes[number].http, page, ROLE_TIMEOUT_S)[0] == 200
        except ConnectionError:
            return False

    def roles(self) -> tuple[int, list[int]]:
        """Return the number of the leader, and those of the other nodes that run.

        An election between two questions could make one node both, or none.
        """
        leader = self.leader()
        return leader, [
            number
            for number, node in enumerate(self.nodes)
            if number != leader and answers(node.beanstalk)
        ]

    def followers(self) -> list[int]:
        """Return the numbers of the nodes that run and do not lead."""
        return self.roles()[1]

    def story(self) -> str:
        """Return the processes' output, to be shown when a test fails."""
        return "\n".join(process.story() for process in self._processes.values())


class Cluster(Nodes):
    """Nodes with the test's own configuration, started one by one.

    Args:
        directory: gets a folder for each node.
        count: the number of nodes.
        settings: settings of every node, as in node.toml.
        dial: for each node's number, the peer addresses it dials in place of the members' own.
        unix: each node also listens at the UNIX socket that `unix_address` names.
    """

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        settings: Settings | None = None,
        dial: Mapping[int, Mapping[str, Address]] | None = None,
        base: int | None = None,
        unix: bool = False,
    ) -> None:
        super().__init__()
        base = free_block() if base is None else base
        self.directory = directory
        self.nodes = tuple(node_at(number, base, directory) for number in range(count))
        for number, node in enumerate(self.nodes):
            own = dict(settings or {})
            if unix:
                own["listen"] = [node.beanstalk, self.unix_address(number)]
            path = write_configuration(node, self.nodes, (dial or {}).get(number, {}), own)
            command = shlex.join([*BEANPOLED, "--config", str(path), *listeners(node)])
            (node.directory / "cmdline").write_text(command + "\n")

    def unix_address(self, number: int) -> Address:
        """Return the address of a node's UNIX socket, if it has one."""
        return f"unix:{self.nodes[number].directory / 'socket'}"

    def start_all(self, wait: bool = True) -> None:
        """Start every node; `wait`: until all accept clients."""
        for number in range(len(self.nodes)):
            self.start(number)
        if wait:
            self.wait_until_all_serve()

    @contextmanager
    def running(self) -> Iterator["Cluster"]:
        """Start every node, and kill all at the end."""
        try:
            self.start_all()
            yield self
        finally:
            self.close()

    def mend(self) -> None:
        """Start every dead node; waits until all accept clients and reach each other."""
        for number, process in self._processes.items():
            if process.status() is not None:
                self.start(number)
        self.wait_until_all_serve()
        # gRPC redials a node that was dead only after a pause.
        wait_until(lambda: all(map(_reaches_all, self.nodes)), LEADER_TIMEOUT_S, "all reach all")

    def wait_until_all_serve(self) -> None:
        for number in range(len(self.nodes)):
            self.wait_until_serving(number)

    def close(self, remove: bool = True) -> None:
        """Kill every node; `remove`: also delete their files."""
        for process in self._processes.values():
            process.kill()
        if remove:
            shutil.rmtree(self.directory, ignore_errors=True)


class LocalCluster(Nodes):
    """The cluster that `beanpole up` runs."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        super().__init__()
        self.directory = directory
        self.base = free_block()
        self.count = count
        self.nodes = ()
        self.up: Process | None = None

    def start_all(self) -> str:
        """Run `beanpole up`; returns its line that begins with "ready"."""
        (self.directory / "cluster.json").unlink(missing_ok=True)
        # Not the contents of build/: the compiled nodes have tests of their own.
        places = ["--dir", str(self.directory), "--base-port", str(self.base), "--sources"]
        # One file for each run, because a "ready" of an earlier run means nothing.
        number = len(list(self.directory.parent.glob(f"{self.directory.name}-up*.log")))
        log = self.directory.parent / f"{self.directory.name}-up{number}.log"
        self.up = Process([*BEANPOLE, "up", "--nodes", str(self.count), *places], log)
        ready = self.up.wait_for_text("ready")
        found = json.loads((self.directory / "cluster.json").read_text())
        self._pids = [entry["pid"] for entry in found["nodes"]]
        self.nodes = tuple(
            Node(
                entry["id"],
                self.directory / entry["id"],
                *(entry[key] for key in ("beanstalk", "peer", "grpc", "http")),
            )
            for entry in found["nodes"]
        )
        return ready

    def pid(self, number: int) -> int:
        return self._processes[number].pid if number in self._processes else self._pids[number]

    def terminate_all(self) -> int:
        """Stop the cluster as Ctrl-C does; returns the exit status of `beanpole up`."""
        for process in self._processes.values():
            process.terminate()
        self._processes.clear()
        assert self.up
        return self.up.terminate()

    def close(self) -> None:
        """Kill the nodes that still run; pytest removes the files."""
        for process in self._processes.values():
            process.kill()
        if self.up:
            self.up.kill()
        for pid in getattr(self, "_pids", []):
            kill_and_wait(pid)

    def story(self) -> str:
        return "\n".join(([self.up.story()] if self.up else []) + [super().story()])
