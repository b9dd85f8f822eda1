"""`beanpole up`: run a local cluster in the foreground until Ctrl-C or SIGTERM.

Each node is a process of its own that ends when `up` ends. Folder, ports and files are in `layout`;
the output to a terminal is in `screen`.
"""

import argparse
import asyncio
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import grpc.aio

from beanpole.client.rpc import CHANNEL_OPTIONS
from beanpole.client.where import DIRECTORY_DEFAULT, folder
from beanpole.errors import ConfigurationError
from beanpole.pb import admin_pb2, admin_pb2_grpc, node_pb2
from beanpoled import program
from beanpoled.cli import layout
from beanpoled.cli.layout import LocalNode
from beanpoled.cli.screen import Screen
from beanpoled.cli.status import ROLES, state_words
from beanpoled.cli.tied import tied
from beanpoled.config import memory
from beanpoled.config import node as config
from beanpoled.config.protocols import PROTOCOLS, Protocol

NODES_DEFAULT: Final = 3
# Quick while the nodes start, slow when only the screen has to be kept fresh.
POLL_STARTING_S: Final = 0.1
POLL_S: Final = 0.5
POLL_TIMEOUT_S: Final = 1.0
# Beside the time for clients that hold jobs (drain_timeout_ms), a node hands over leadership and
# flushes its log; a longer stop hangs.
STOP_TIMEOUT_S: Final = 20.0
# After this long without output, while nodes start, report which ones are awaited.
PATIENCE_S: Final = 15.0
# The end of a log, of any size, in which the last line of a node is looked for.
LAST_BYTES: Final = 4096
# Other names are no keys of TOML, or are parts of tables, which `up` writes itself.
_SETTING: Final = re.compile(r"[a-z0-9_]+")


def add_command(commands: Any) -> None:
    """Add `up` to the parser."""
    parser = commands.add_parser("up", help="run a local cluster in the foreground")
    parser.add_argument(
        "--nodes", type=int, default=NODES_DEFAULT, metavar="N", help="how many (default 3)"
    )
    parser.add_argument(
        "--dir",
        type=folder,
        metavar="DIR",
        default=Path(DIRECTORY_DEFAULT),
        help="where the jobs are kept (default ./.beanpole)",
    )
    parser.add_argument(
        "--base-port",
        type=int,
        default=layout.BASE_PORT_DEFAULT,
        metavar="P",
        help="the first node's beanstalk port; the others follow (default 11300)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of all nodes, such as durability=memory (see docs/operating.md)",
    )
    parser.add_argument(
        "--sources",
        action="store_true",
        help="run the nodes of the sources, also where `make compiled` has built faster ones",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Start the nodes, watch them until a signal comes, stop them."""
    tree, words = (None, "") if arguments.sources else program.compiled_tree()
    nodes = [node._replace(tree=tree) for node in _checked_plan(arguments)]
    directory = nodes[0].directory.parent
    with layout.lock(directory):
        layout.check_nodes(directory, len(nodes))
        layout.check_ports(nodes)
        layout.write(nodes, _settings(arguments.set, len(nodes)))
        # Errors in a node's configuration are reported here, once, before anything runs.
        loaded = [config.load(str(node.config_path), os.environ, {}) for node in nodes]
        drain_s = max(one.drain_timeout_ms for one in loaded) / 1000
        layout.remove_cluster(directory)
        screen = Screen()
        if words:
            screen.say(words)
        try:
            return asyncio.run(Supervisor(directory, nodes, screen, drain_s).run())
        finally:
            layout.remove_cluster(directory)


def _checked_plan(arguments: argparse.Namespace) -> list[LocalNode]:
    if not 1 <= arguments.nodes <= layout.NODES_MAX:
        raise ConfigurationError(
            f"--nodes = {arguments.nodes} is not allowed: it must be from 1 to {layout.NODES_MAX}"
        )
    if not 1 <= arguments.base_port <= layout.BASE_PORT_MAX:
        raise ConfigurationError(
            f"--base-port = {arguments.base_port} is not allowed: it must be from 1 to "
            f"{layout.BASE_PORT_MAX}, because the ports up to 69 above it are used"
        )
    return layout.plan(arguments.dir.resolve(), arguments.nodes, arguments.base_port)


def _settings(texts: list[str], nodes: int) -> dict[str, str]:
    """Split NAME=VALUE; values are checked with the whole configuration."""
    # The nodes share the memory of one machine.
    share = memory.queue_bytes_default(memory.found(), nodes)
    found = {"queue_bytes_max": str(share)}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _SETTING.fullmatch(name):
            raise ConfigurationError(f"--set {text!r} is not allowed: it must be NAME=VALUE")
        if name in layout.OWN_SETTINGS:
            raise ConfigurationError(f"--set {name} is not allowed: `up` gives each node its own")
        found[name] = value
    return found


class _Watched:
    """One node as the supervisor knows it."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: grpc.aio.Channel | None = None
        self.seen: node_pb2.Node | None = None
        self.reported_down = False
        # Whether it was started again by hand: the exit status of that process is not known here.
        self.by_hand = False

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """The process that answers now, else the one that was started."""
        if self.seen is not None:
            return self.seen.pid
        return self.process.pid if self.process is not None else 0


class Supervisor:
    """Runs the processes of a local cluster and reports their state."""

    def __init__(
        self, directory: Path, nodes: list[LocalNode], screen: Screen, drain_s: float = 0.0
    ) -> None:
        """Begin.

        Args:
            directory: of the local cluster.
            nodes: to run.
            screen: for the output.
            drain_s: how long a node that stops may wait for its clients.
        """
        self._directory = directory
        self._drain_s = drain_s
        self._watched = [_Watched(node) for node in nodes]
        self._screen = screen
        self._stop = asyncio.Event()
        self._signals = 0
        self._ready = False
        self._written: dict[str, int] = {}

    async def run(self) -> int:
        """Run until a signal, or until no node is left; return the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        for watched in self._watched:
            self._start(watched)
        waiting_since = loop.time()
        try:
            while not self._stop.is_set():
                await self._look()
                if not any(watched.runs or watched.seen for watched in self._watched):
                    for watched in self._watched:
                        self._tell(watched)  # some ended since the look
                    self._screen.say("no node is left")
                    return 1
                if not self._ready and loop.time() - waiting_since > PATIENCE_S:
                    waiting_since = loop.time()
                    self._screen.say(f"waiting for {', '.join(self._not_serving())}")
                await self._pause(POLL_S if self._ready else POLL_STARTING_S)
        finally:
            self._screen.end()
            await self._stop_nodes()
        return 0

    def _signalled(self) -> None:
        self._signals += 1
        self._stop.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass

    def _start(self, watched: _Watched) -> None:
        node = watched.node
        with (node.directory / "log").open("ab") as log:
            watched.process = subprocess.Popen(
                tied(node.command, signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for `up`, which then stops the nodes: they must not receive it.
                start_new_session=True,
            )

    async def _look(self) -> None:
        """Query every node, and report changes."""
        await asyncio.gather(*(self._ask(watched) for watched in self._watched))
        for watched in self._watched:
            self._tell(watched)
        if not self._ready and not self._not_serving():
            self._ready = True
            self._write_cluster()
            count, listed = len(self._watched), self._listed(PROTOCOLS[0])
            self._screen.say(f"ready: {count} nodes on {listed} in {self._directory}")
            for protocol in PROTOCOLS[1:]:
                self._screen.say(f"{protocol.name}: {self._listed(protocol)}")
        elif self._ready and self._written != self._pids():
            self._write_cluster()
        self._screen.show([_line(watched) for watched in self._watched])

    def _listed(self, protocol: Protocol) -> str:
        return " ".join(watched.node.addresses[protocol.name] for watched in self._watched)

    async def _ask(self, watched: _Watched) -> None:
        if watched.channel is None:
            address = watched.node.addresses["grpc"]
            watched.channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        request = admin_pb2.StatusRequest(local=True)
        try:
            reply = await admin_pb2_grpc.AdminStub(watched.channel).Status(
                request, timeout=POLL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError:
            watched.seen = None
        else:
            seen = reply.nodes[0]
            watched.seen = seen if seen.id == watched.node.id else None

    def _tell(self, watched: _Watched) -> None:
        process = watched.process
        assert process is not None
        name = watched.node.id
        if not watched.runs and not watched.reported_down and watched.seen is None:
            watched.reported_down = True
            how = _how(process.returncode, watched.node)
            self._screen.say(f"{name} ended {'again' if watched.by_hand else how}")
            self._screen.say(f"start it again with: sh {watched.node.directory / 'cmdline'}")
        elif watched.reported_down and watched.seen is not None and watched.seen.serving:
            watched.reported_down, watched.by_hand = False, True
            self._screen.say(f"{name} is back (pid {watched.seen.pid})")

    def _not_serving(self) -> list[str]:
        return [
            watched.node.id
            for watched in self._watched
            if watched.seen is None or not watched.seen.serving
        ]

    def _pids(self) -> dict[str, int]:
        return {watched.node.id: watched.pid for watched in self._watched}

    def _write_cluster(self) -> None:
        self._written = self._pids()
        nodes = [watched.node for watched in self._watched]
        layout.write_cluster(self._directory, nodes, self._written)

    async def _stop_nodes(self) -> None:
        """Ask all nodes to end, also those restarted by hand; kill those that do not."""
        for watched in self._watched:
            if watched.channel is not None:
                await watched.channel.close()
        # First SIGTERM; SIGKILL after the time limit, or after another signal from the user.
        self._send(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._drain_s + STOP_TIMEOUT_S
        before = self._signals
        # Processes that are not our children can only be polled.
        while self._alive() and loop.time() < until and self._signals == before:  # noqa: ASYNC110
            await asyncio.sleep(POLL_STARTING_S / 2)
        if names := self._alive():
            self._screen.say(f"killing {', '.join(names)}")
            self._send(signal.SIGKILL)
        for watched in self._watched:
            if watched.process is not None:
                watched.process.wait()
        self._screen.say("stopped")

    def _send(self, number: signal.Signals) -> None:
        for watched in self._watched:
            for pid in _processes(watched):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue

    def _alive(self) -> list[str]:
        return [watched.node.id for watched in self._watched if _processes(watched)]


def _processes(watched: _Watched) -> list[int]:
    """Return the ids of the processes that serve as this node, verified to be that node's."""
    found = [watched.process.pid] if watched.runs and watched.process is not None else []
    if watched.seen is not None and watched.seen.pid not in found:
        # Process ids are reused: accept only a process that runs this very configuration.
        try:
            line = Path(f"/proc/{watched.seen.pid}/cmdline").read_bytes()
        except OSError:
            return found
        if os.fsencode(watched.node.config_path) in line.split(b"\0"):
            found.append(watched.seen.pid)
    return found


def _how(status: int | None, node: LocalNode) -> str:
    if status is not None and status < 0:
        try:
            return f"by {signal.Signals(-status).name}"
        except ValueError:  # real-time signals but for two have no names
            return f"by signal {-status}"
    return f"with status {status}: {_last_line(node)}"


def _last_line(node: LocalNode) -> str:
    """Return the last line that a node printed, which is the reason of its end."""
    try:
        with (node.directory / "log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_BYTES))
            text = log.read(LAST_BYTES).decode(errors="replace")
    except OSError:
        text = ""
    lines = text.strip().splitlines()
    return lines[-1] if lines else f"nothing in {node.directory / 'log'}"


def _line(watched: _Watched) -> str:
    """Return the live line of a node."""
    node, seen = watched.node, watched.seen
    address = node.addresses["beanstalk"]
    if seen is None:
        state = "starting" if watched.runs and not watched.reported_down else "down"
        return f"{node.id:<4}{address:<17}{state}"
    counts = {
        "ready": seen.jobs.ready,
        "reserved": seen.jobs.reserved,
        "delayed": seen.jobs.delayed,
        "buried": seen.jobs.buried,
    }
    shown = " ".join(f"{name} {count}" for name, count in counts.items())
    # The part of variable length is last: the screen cuts lines at the width of the terminal.
    return f"{node.id:<4}{address:<17}{ROLES[seen.role]:<10}{shown}  {state_words(seen)}"
