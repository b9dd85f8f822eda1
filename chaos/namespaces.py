"""Three nodes in network namespaces of their own, and one-way cuts, loss and resets between them.

This process must have a namespace of its own, too (`unshare --net`, which `partitions` does): it
has the bridge, and the clients. A namespace lives as long as a process that holds it, so nothing is
left behind, however this one ends. nft rules drop what comes in, so each direction of a link is cut
by itself. When faults come is the business of `partitions`.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from chaos.ground import COMPILED
from tests.integration.support.nodes import BEANPOLED
from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_until

NAMES: Final = ("n1", "n2", "n3")
NETWORK: Final = "10.177.114"
# Of the bridge, which is where the clients are.
CLIENTS: Final = f"{NETWORK}.254"
SECRET: Final = "the secret of three namespaces"
SERVE_TIMEOUT_S: Final = 60.0
LEADER_TIMEOUT_S: Final = 30.0
HTTP_TIMEOUT_S: Final = "1"
# A TCP segment without data has at most 80 bytes with its headers, SACK blocks included; the
# smallest frame of nodes is longer.
EMPTY_SEGMENT_BYTES: Final = 80
# What a slow link lets pass at once, and how long a packet may wait before it is dropped.
BURST: Final = "16kb"
QUEUED: Final = "400ms"
TOOLS: Final = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "curl": "curl",
}
_PR_SET_PDEATHSIG: Final = 1


def missing() -> str:
    """Return in one line why it cannot be done here; nothing if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in TOOLS.items():
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: apt-get install {package})"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"unshare --net: {tried.stderr.decode().strip()}"


def run(*words: str, text: str = "") -> None:
    """Run a command of the system; RuntimeError with what it said if it fails."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


class Namespaces:
    """The nodes, their namespaces and the bridge."""

    def __init__(self, directory: Path, compiled: bool) -> None:
        self._directory = directory
        self._compiled = compiled
        self._holders: list[subprocess.Popen[bytes]] = []
        self._nodes: dict[int, Process] = {}
        self._lives = [0] * len(NAMES)
        self._wanted: set[int] = set()
        self._slowed: set[int] = set()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "addr", "add", f"{CLIENTS}/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")
        for number in range(len(NAMES)):
            self._add(number)

    def _add(self, number: int) -> None:
        holder = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"], preexec_fn=_end_with_parent()
        )
        self._holders.append(holder)
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: _namespace(holder.pid) not in ("", own), 5, "a namespace")
        port = f"port{number}"
        peer = ["peer", "name", "eth0", "netns", str(holder.pid)]
        run("ip", "link", "add", port, "type", "veth", *peer)
        run("ip", "link", "set", port, "master", "bridge", "up")
        self._inside(number, "ip", "link", "set", "lo", "up")
        self._inside(number, "ip", "addr", "add", f"{address(number)}/24", "dev", "eth0")
        self._inside(number, "ip", "link", "set", "eth0", "up")
        chain = "add chain inet chaos in { type filter hook input priority 0; policy accept; }"
        self._inside(number, "nft", "-f", "-", text=f"add table inet chaos\n{chain}\n")

    def enter(self, number: int) -> list[str]:
        """Return what stands before a command that runs in the namespace of a node."""
        return ["nsenter", f"--net=/proc/{self._holders[number].pid}/ns/net"]

    def _inside(self, number: int, *words: str, text: str = "") -> None:
        run(*self.enter(number), *words, text=text)

    # --- faults -----------------------------------------------------------------------------------

    def cut(self, source: str, target: int) -> None:
        """Let nothing of an address arrive at a node; what it sends there still does."""
        self._rule(target, f"ip saddr {source} drop")

    def hush(self, source: str, target: int) -> None:
        """Let no data of an address arrive at a node, but what TCP sends by itself.

        So what the node sends there is acknowledged and goes on; with `cut` it soon stands.
        """
        self._rule(target, f"ip saddr {source} ip length > {EMPTY_SEGMENT_BYTES} drop")

    def slow(self, source: int, rate: str) -> None:
        """Let no more leave a node than a rate in tc's words, also to its clients."""
        tbf = ["tbf", "rate", rate, "burst", BURST, "latency", QUEUED]
        self._inside(source, "tc", "qdisc", "replace", "dev", "eth0", "root", *tbf)
        self._slowed.add(source)

    def reset(self, source: str, target: int) -> None:
        """Answer what comes of an address with a TCP reset."""
        self._rule(target, f"ip saddr {source} meta l4proto tcp reject with tcp reset")

    def lose(self, target: int, percent: int) -> None:
        """Lose so many of a hundred packets that come from anywhere to a node."""
        self._rule(target, f"ip saddr {NETWORK}.0/24 numgen random mod 100 < {percent} drop")

    def heal(self) -> None:
        """Let everything arrive again."""
        for number in range(len(NAMES)):
            self._inside(number, "nft", "flush", "chain", "inet", "chaos", "in")
        for number in self._slowed:
            self._inside(number, "tc", "qdisc", "del", "dev", "eth0", "root")
        self._slowed.clear()

    def _rule(self, target: int, rule: str) -> None:
        self._inside(target, "nft", "add", "rule", "inet", "chaos", "in", *rule.split(" "))

    def kill(self, number: int) -> None:
        self._wanted.discard(number)
        self._nodes[number].kill()

    def signal(self, number: int, which: signal.Signals) -> None:
        os.kill(self._nodes[number].pid, which)

    # --- nodes ------------------------------------------------------------------------------------

    def start(self, number: int) -> None:
        """Start a node with the data that it has, without waiting."""
        folder = self._directory / NAMES[number]
        folder.mkdir(exist_ok=True)
        self._lives[number] += 1
        members = [f"{name}={address(n)}:11310/{address(n)}:11320" for n, name in enumerate(NAMES)]
        host = address(number)
        environment = {
            "BEANPOLE_CLUSTER": "namespaces",
            "BEANPOLE_NODE_ID": NAMES[number],
            "BEANPOLE_MEMBERS": ",".join(members),
            "BEANPOLE_DATA_DIR": str(folder / "data"),
            "BEANPOLE_LISTEN": f"{host}:11300",
            "BEANPOLE_LISTENERS": f"workq={host}:9922,gearman={host}:4730,qless={host}:6380",
            "BEANPOLE_PEER_LISTEN": f"{host}:11310",
            "BEANPOLE_GRPC_LISTEN": f"{host}:11320",
            "BEANPOLE_HTTP_LISTEN": f"{host}:11330",
            "BEANPOLE_PEER_SECRET": SECRET,
            "BEANPOLE_DISK_RESERVE_BYTES": "0",
        }
        if self._compiled:
            environment["PYTHONPATH"] = str(COMPILED)
        log = folder / f"output-{self._lives[number]:04d}.log"
        command = [*self.enter(number), *BEANPOLED]
        self._nodes[number] = Process(command, log, environment)
        self._wanted.add(number)

    def start_all(self) -> None:
        """Start all nodes and wait until they are ready."""
        for number in range(len(NAMES)):
            self.start(number)
        self.wait_until_ready()

    def addresses(self) -> Sequence[str]:
        """Where clients reach each node."""
        return [f"{address(number)}:11300" for number in range(len(NAMES))]

    def wait_until_ready(self) -> None:
        """Wait until all nodes are ready."""
        for number in range(len(NAMES)):

            def ready(number: int = number) -> bool:
                assert self._nodes[number].status() is None, self._nodes[number].story()
                return self._answers(number, "readyz")

            wait_until(ready, SERVE_TIMEOUT_S, f"{NAMES[number]} is ready")

    def is_leader(self, number: int) -> bool:
        """Whether a node says of itself that it leads and is ready."""
        return self._answers(number, "readyz?leader=1")

    def leader(self) -> int:
        """Return the node that leads and is ready, as soon as there is one."""

        def find() -> list[int]:
            numbers = range(len(NAMES))
            return [number for number in numbers if self.is_leader(number)]

        return wait_until(find, LEADER_TIMEOUT_S, "a leader")[0]

    def _answers(self, number: int, page: str) -> bool:
        # From within its own namespace, so that no cut is in the way.
        url = f"http://{address(number)}:11330/{page}"
        line = [*self.enter(number), "curl", "--silent", "--fail", "--max-time", HTTP_TIMEOUT_S]
        return subprocess.run([*line, url], capture_output=True, check=False).returncode == 0

    def ended(self) -> list[str]:
        """Return what nodes that ended by themselves said; each is named once."""
        gone = [number for number in self._wanted if self._nodes[number].status() is not None]
        self._wanted -= set(gone)
        return [f"{NAMES[number]} ended: {self._nodes[number].story()}" for number in gone]

    def logs(self) -> list[Path]:
        return sorted(self._directory.glob("n*/output-*.log"))

    def close(self) -> None:
        """End the nodes and the namespaces."""
        for node in self._nodes.values():
            node.kill()
        for holder in self._holders:
            holder.kill()
            holder.wait()


def address(number: int) -> str:
    return f"{NETWORK}.{number + 1}"


def others(number: int) -> Sequence[int]:
    return [other for other in range(len(NAMES)) if other != number]


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return ""


def _end_with_parent() -> Callable[[], None]:
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
