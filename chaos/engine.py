"""A Docker engine for tests: an existing one, or one started here in a network of its own.

    python -m chaos.engine COMMAND...

runs COMMAND with DOCKER_HOST set. If no engine answers and this is root, it starts `dockerd` in a
new network namespace, with its files in build/docker/engine, and runs COMMAND in the same one. So
the machine's interfaces and packet filters stay as they are, published ports are those of this
namespace's loopback, and containers cannot reach anything outside.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import docker
from docker.errors import DockerException

from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[1]
DIRECTORY: Final = ROOT / "build" / "docker" / "engine"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
PING_TIMEOUT_S: Final = 5
DEFAULT: Final = "unix:///var/run/docker.sock"
INSIDE: Final = "--inside"
# The programs that dockerd runs to make networks and containers.
NEEDED: Final = {
    "dockerd": "docker.io",
    "containerd": "containerd",
    "iptables": "iptables",
    "ip": "iproute2",
    "unshare": "util-linux",
}


def answers(address: str | None = None) -> bool:
    """Return whether an engine answers, at an address or at that of the environment."""
    environment = {**os.environ, **({"DOCKER_HOST": address} if address else {})}
    if not _accepts(environment.get("DOCKER_HOST") or DEFAULT):
        return False
    try:
        client = docker.from_env(timeout=PING_TIMEOUT_S, environment=environment)
    except DockerException:  # there is no socket
        return False
    with contextlib.closing(client):
        try:
            return bool(client.ping())
        except (DockerException, OSError):
            return False


def _accepts(address: str) -> bool:
    """Whether a process listens at a UNIX socket; if none does, the SDK leaks its own socket."""
    scheme, _, path = address.partition("://")
    if scheme != "unix":
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def missing() -> str:
    """Return in one line why no engine can be started here; empty if one can."""
    no_engine = "no Docker engine answers (DOCKER_HOST)"
    if os.geteuid():
        return f"{no_engine}, and only root can start one here"
    packages = sorted({name for tool, name in NEEDED.items() if not shutil.which(tool)})
    return f"{no_engine}; to start one: apt-get install {' '.join(packages)}" if packages else ""


@contextlib.contextmanager
def started() -> Iterator[str]:
    """Run an engine in the network namespace of this process; yield its address."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    address = f"unix://{DIRECTORY}/docker.sock"
    pid = DIRECTORY / "dockerd.pid"
    pid.unlink(missing_ok=True)
    folders = [f"--data-root={DIRECTORY}/data", f"--exec-root={DIRECTORY}/exec"]
    command = ["dockerd", *folders, f"--pidfile={pid}", f"--host={address}"]
    process = Process([*command, "--storage-driver=overlay2"], DIRECTORY / "dockerd.log")
    try:

        def is_up() -> bool:
            assert process.status() is None, process.story()
            return answers(address)

        wait_until(is_up, START_TIMEOUT_S, f"dockerd answers: {process.story()}")
        yield address
    finally:
        if process.status() is None:
            process.signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command beside an engine; return its exit status, or 2 without an engine."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [INSIDE]:
        with started() as address:
            environment = {**os.environ, "DOCKER_HOST": address}
            return subprocess.run(words[1:], env=environment, check=False).returncode
    if not words:
        print(__doc__, file=sys.stderr)
        return 2
    if answers():
        return subprocess.run(words, check=False).returncode
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    own = [sys.executable, "-m", "chaos.engine", INSIDE]
    return subprocess.run(["unshare", "--net", *own, *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
