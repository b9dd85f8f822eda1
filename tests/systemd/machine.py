"""The tests' machines: each runs systemd as process 1 in separate namespaces, on one network.

A machine leaves nothing behind, and cannot reach beyond its network. The unit under test belongs to
the tests.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.integration.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
BOOT: Final = Path(__file__).with_name("boot.sh")
BOOT_TIMEOUT_S: Final = 30.0
COMMAND_TIMEOUT_S: Final = 120.0
NAMESPACES: Final = ("--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup")
TOOLS: Final = {
    "systemd-analyze": "systemd",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "runuser": "util-linux",
    "ip": "iproute2",
    "curl": "curl",
}


def missing() -> list[str]:
    """Return this machine's missing requirements of the tests, in words."""
    found = [
        f"{tool} (Debian: apt-get install {package})"
        for tool, package in TOOLS.items()
        if shutil.which(tool) is None
    ]
    if os.geteuid():
        found.append("root, to make namespaces")
    if not _cgroups():
        found.append("a mounted cgroup2")
    return found


def _cgroups() -> Path | None:
    """Return the mount point of the unified cgroup hierarchy."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


class Machine:
    """A booted machine; its commands run as root."""

    def __init__(self, name: str, address: str, hub: int) -> None:
        """Boot a machine with `address` on the network of the process `hub`."""
        self.name = name
        self.address = address
        self._folder = Path(tempfile.mkdtemp(prefix=f"beanpole-systemd-{name}-"))
        parent = _cgroups()
        assert parent is not None
        self._cgroup = parent / self._folder.name
        self._cgroup.mkdir()
        python = [sys.base_prefix, sysconfig.get_path("purelib"), str(ROOT)]
        boot = ["sh", str(BOOT), str(self._folder), *python]
        join = f'echo $$ > {self._cgroup}/cgroup.procs && exec "$@"'
        unshare = ["unshare", *NAMESPACES, "--propagation=private", "--kill-child"]
        self._child = subprocess.Popen(["sh", "-c", join, "sh", *unshare, *boot])
        self._pid = wait_until(self._first, BOOT_TIMEOUT_S, f"{name} begins")
        wait_until(self._is_up, BOOT_TIMEOUT_S, f"systemd of {name} runs")
        self._connect(hub)

    def _first(self) -> int:
        """Return the host's process id of the machine's process 1."""
        assert self._child.poll() is None, f"{self.name} has ended"
        path = Path(f"/proc/{self._child.pid}/task/{self._child.pid}/children")
        children = path.read_text().split()
        return int(children[0]) if children else 0

    def _is_up(self) -> bool:
        return self._inside("systemctl", "is-active", "test.target").stdout.strip() == "active"

    def _connect(self, hub: int) -> None:
        """Connect the machine to the bridge of the hub by a virtual cable."""
        cable = f"to-{self.name}"
        end = ["peer", "name", "eth0", "netns", str(self._pid)]
        at_hub = ["nsenter", f"--target={hub}", "--net", "ip", "link"]
        subprocess.run([*at_hub, "add", cable, "type", "veth", *end], check=True)
        subprocess.run([*at_hub, "set", cable, "master", "bridge", "up"], check=True)
        self.run(f"ip address add {self.address}/24 dev eth0 && ip link set eth0 up")

    def _inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", f"--target={self._pid}", "--all", "--root", "--wd", *command],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )

    def try_to(self, script: str) -> tuple[int, str]:
        """Run a shell script; return its status and all its output."""
        done = self._inside("sh", "-c", f"set -e; cd /opt/beanpole/sources\n{script}")
        return done.returncode, done.stdout + done.stderr

    def run(self, script: str) -> str:
        """Run a shell script that must succeed; return its output."""
        status, said = self.try_to(script)
        assert status == 0, f"{self.name}: {script}\n{said}\n{self.journal()}"
        return said

    def show(self, *properties: str) -> Sequence[str]:
        """Return the values of properties of the unit."""
        names = " ".join(f"--property={name}" for name in properties)
        lines = self.run(f"systemctl show {names} beanpoled").splitlines()
        found = dict(line.split("=", 1) for line in lines)
        return [found[name] for name in properties]

    def journal(self) -> str:
        """Return the unit's log, by the node and by systemd."""
        return self._inside("journalctl", "--unit=beanpoled", "--no-pager", "--output=cat").stdout

    def close(self) -> None:
        """Stop the machine and all its processes."""
        # When process 1 ends, the kernel kills all other processes of its namespace.
        self._child.kill()
        self._child.wait()
        wait_until(lambda: not self._cgroup.exists() or self._emptied(), BOOT_TIMEOUT_S, "it ends")
        self._folder.rmdir()

    def _emptied(self) -> bool:
        folders = [path for path in self._cgroup.rglob("*") if path.is_dir()]
        with contextlib.suppress(OSError):  # still in use
            for path in sorted(folders, reverse=True):
                path.rmdir()
            self._cgroup.rmdir()
        return not self._cgroup.exists()


@contextlib.contextmanager
def machines(addresses: dict[str, str]) -> Iterator[list[Machine]]:
    """Boot machines with these names and addresses on a separate network."""
    hub = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    found: list[Machine] = []
    try:
        inside = ["nsenter", f"--target={hub.pid}", "--net", "ip", "link"]
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{hub.pid}/ns/net") != own, BOOT_TIMEOUT_S, "a hub")
        subprocess.run([*inside, "add", "bridge", "type", "bridge"], check=True)
        subprocess.run([*inside, "set", "bridge", "up"], check=True)
        for name, address in addresses.items():
            found.append(Machine(name, address, hub.pid))
        yield found
    finally:
        for machine in found:
            machine.close()
        hub.kill()
        hub.wait()
