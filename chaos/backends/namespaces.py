"""Three nodes in network namespaces of their own, and one-way cuts, loss and resets between them.

This process must run in a namespace of its own, too (`enter_own`), which has the bridge and the
clients. A namespace lives as long as a process that holds it, so nothing is left behind, however
this process ends. nft rules drop incoming packets, so each direction of a link is cut by itself.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from beanpoled.cli.tied import tied
from chaos import compiled_tree
from chaos.backends.local import LocalNodes
from chaos.nemesis import NODES, ROOT
from chaos.scenarios.common import others
from tests.integration.support.nodes import BEANPOLED
from tests.integration.support.waiting import wait_until

NAMES: Final = ("n1", "n2", "n3")
NETWORK: Final = "10.177.114"
# The address of the bridge, where the clients are.
CLIENTS: Final = f"{NETWORK}.254"
SECRET: Final = "the secret of three namespaces"
HTTP_TIMEOUT_S: Final = "1"
# A TCP segment without data has at most 80 bytes with its headers, SACK blocks included; the
# smallest frame of nodes is longer.
EMPTY_SEGMENT_BYTES: Final = 80
# The burst that a slow link lets pass, and how long a packet may wait before it is dropped.
BURST: Final = "16kb"
QUEUED: Final = "400ms"
# The ways to cut a direction.
ALL: Final = "all"
DATA: Final = "data only"
TOOLS: Final = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "curl": "curl",
}
# A reset itself must pass, or its receiver would never learn of it.
RESET: Final = "tcp flags & rst == 0x0 reject with tcp reset"
INSIDE: Final = "CHAOS_NAMESPACE"


def missing() -> str:
    """Return in one line why namespaces cannot be used here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in TOOLS.items():
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: apt-get install {package})"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"unshare --net: {tried.stderr.decode().strip()}"


def run(*words: str, text: str = "") -> None:
    """Run a system command; raise RuntimeError with its error output if it fails."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def enter_own(module: str, arguments: Sequence[str]) -> None:
    """Run this program again in a namespace of its own, unless it is in one; then do not return.

    The process keeps its id, so a signal to it still ends the whole run.
    """
    if INSIDE not in os.environ:
        words = ["unshare", "--net", sys.executable, "-m", module, *arguments]
        os.chdir(ROOT)
        os.execvpe(words[0], words, {**os.environ, INSIDE: "1"})


class Namespaces(LocalNodes):
    """The nodes, their namespaces and the bridge."""

    def __init__(self, directory: Path, compiled: bool) -> None:
        super().__init__(directory)
        self._prefix = compiled_tree.prefix(compiled)
        self._holders: list[subprocess.Popen[bytes]] = []
        self._slowed: set[int] = set()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "addr", "add", f"{CLIENTS}/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")
        for number in NODES:
            self._add(number)

    def _add(self, number: int) -> None:
        command = ["unshare", "--net", "sleep", "infinity"]
        holder = subprocess.Popen(tied(command, signal.SIGKILL))
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
        """Return the command prefix that enters the namespace of a node."""
        return ["nsenter", f"--net=/proc/{self._holders[number].pid}/ns/net"]

    def _inside(self, number: int, *words: str, text: str = "") -> None:
        run(*self.enter(number), *words, text=text)

    # --- nodes ------------------------------------------------------------------------------------

    def name(self, number: int) -> str:
        return NAMES[number]

    def command(self, number: int) -> list[str]:
        """Return the command line of a node, which takes its configuration from the environment."""
        members = [f"{name}={address(n)}:11310/{address(n)}:11320" for n, name in enumerate(NAMES)]
        host = address(number)
        settings = {
            "CLUSTER": "namespaces",
            "NODE_ID": NAMES[number],
            "MEMBERS": ",".join(members),
            "DATA_DIR": str(self.data(number)),
            "LISTEN": f"{host}:11300",
            "LISTENERS": f"workq={host}:9922,gearman={host}:4730,qless={host}:6380",
            "PEER_LISTEN": f"{host}:11310",
            "GRPC_LISTEN": f"{host}:11320",
            "HTTP_LISTEN": f"{host}:11330",
            "PEER_SECRET": SECRET,
            "DISK_RESERVE_BYTES": str(self.reserve_bytes),
        }
        own = ["env", *(f"BEANPOLE_{key}={value}" for key, value in settings.items())]
        before = [*self.enter(number), *self.clocks.prefix(number), *self._prefix]
        return [*before, *own, *BEANPOLED]

    def data(self, number: int) -> Path:
        return self.directory / NAMES[number] / "data"

    def addresses(self) -> list[str]:
        """Return the addresses at which this process reaches the nodes as a client."""
        return [f"{address(number)}:11300" for number in NODES]

    def get(self, number: int, page: str) -> tuple[int, str]:
        """Return the status and text of a page; ConnectionError if the node does not answer."""
        # Asked from within the node's namespace, so that no cut is in the way.
        line = [*self.enter(number), "curl", "--silent", "--max-time", HTTP_TIMEOUT_S]
        url = f"http://{address(number)}:11330{page}"
        command = [*line, "--write-out", "%{http_code}", url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ConnectionError(f"{url}: curl ended with {done.returncode}")
        return int(done.stdout[-3:]), done.stdout[:-3]

    def close(self) -> None:
        """End the nodes and the namespaces."""
        super().close()
        for holder in self._holders:
            holder.kill()
            holder.wait()

    # --- faults -----------------------------------------------------------------------------------

    def ways(self) -> Sequence[str]:
        return (ALL, DATA)

    def cut(self, source: int, target: int, way: str) -> None:
        """Drop everything from one node to another, or only data, but not what TCP sends by itself.

        Without TCP's acknowledgements the other direction soon stalls, too; with them it works on.
        """
        longer = "" if way == ALL else f"ip length > {EMPTY_SEGMENT_BYTES} "
        self._rule(target, f"ip saddr {address(source)} {longer}drop")

    def separate(self, one: int, other: int) -> None:
        self.cut(one, other, ALL)
        self.cut(other, one, ALL)

    def isolate(self, number: int) -> None:
        for other in others(number):
            self.separate(number, other)

    def refuse(self, one: int, other: int) -> None:
        """Answer the traffic between two nodes with TCP resets."""
        for source, target in ((one, other), (other, one)):
            self._rule(target, f"ip saddr {address(source)} {RESET}")

    def ignore_clients(self, number: int) -> None:
        self._rule(number, f"ip saddr {CLIENTS} drop")

    def reset_clients(self, number: int) -> None:
        self._rule(number, f"ip saddr {CLIENTS} {RESET}")

    def slow(self, number: int, kbit_s: int) -> None:
        """Limit the rate at which a node sends, also to its clients."""
        tbf = ["tbf", "rate", f"{kbit_s}kbit", "burst", BURST, "latency", QUEUED]
        self._inside(number, "tc", "qdisc", "replace", "dev", "eth0", "root", *tbf)
        self._slowed.add(number)

    def lose(self, number: int, percent: int) -> None:
        """Drop a percentage of all packets to a node."""
        self._rule(number, f"ip saddr {NETWORK}.0/24 numgen random mod 100 < {percent} drop")

    def heal_links(self) -> None:
        """Restore all links."""
        for number in NODES:
            self._inside(number, "nft", "flush", "chain", "inet", "chaos", "in")
        for number in self._slowed:
            self._inside(number, "tc", "qdisc", "del", "dev", "eth0", "root")
        self._slowed.clear()

    def _rule(self, target: int, rule: str) -> None:
        self._inside(target, "nft", "add", "rule", "inet", "chaos", "in", *rule.split(" "))


def address(number: int) -> str:
    return f"{NETWORK}.{number + 1}"


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return ""
