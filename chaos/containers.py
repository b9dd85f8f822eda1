"""Three nodes in containers, as in deploy/docker/compose.yaml, and the faults of containers.

Faults act through the engine's API: kill, stop, pause, disconnect from the network, reconnect with
another address, limit the processor and the memory. `engine` provides the engine and `images` the
images; other modules schedule the faults.
"""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from chaos.images import Images
from tests.integration.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[1]
COMPOSE: Final = ROOT / "deploy" / "docker" / "compose.yaml"
NAMES: Final = ("n1", "n2", "n3")
PROXY: Final = "haproxy"
# The ports of HAProxy, in its container and published on the loopback interface.
ANY: Final = 11300
LEADER: Final = 11301
BEANSTALK: Final = 11300
HTTP: Final = 11330
# The engine accepts chosen addresses only in a network with a configured subnet.
SUBNET: Final = "10.177.113"
# The first addresses of the nodes, and those that a node moves to: above the addresses that the
# engine assigns by itself, which are the lowest. An address of its own, to which a node comes back,
# would be given to another container when all start at once.
NODES_FIRST: Final = 50
HOST_FIRST: Final = 100
HTTP_TIMEOUT_S: Final = 1.0
SERVE_TIMEOUT_S: Final = 60.0
# As in compose.yaml.
STOP_TIMEOUT_S: Final = 45
CPU_PERIOD_US: Final = 100_000


def compose_command() -> list[str]:
    """Return the command of compose on this machine; empty if it is not installed."""
    found = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if not found.returncode:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else []


class Containers:
    """One project of compose."""

    def __init__(self, engine: Any, images: Images, directory: Path, project: str) -> None:
        self.engine = engine
        self.project = project
        self._directory = directory
        self._hosts = iter(range(HOST_FIRST, 255))
        secret = directory / "secret.env"
        secret.write_text(f"BEANPOLE_PEER_SECRET={secrets.token_hex(16)}\n")
        network = {"ipam": {"config": [{"subnet": f"{SUBNET}.0/24"}]}}
        fixed = {
            name: {"networks": {"default": {"ipv4_address": f"{SUBNET}.{host}"}}}
            for host, name in enumerate(NAMES, NODES_FIRST)
        }
        subnet = directory / "network.yaml"
        subnet.write_text(json.dumps({"services": fixed, "networks": {"default": network}}))
        files = ["--file", str(COMPOSE), "--file", str(subnet)]
        self._command = [*compose_command(), "--project-name", project, *files]
        self._environment = {
            **os.environ,
            "BEANPOLE_IMAGE": images.node,
            "BEANPOLE_SECRETS": str(secret),
            "HAPROXY_IMAGE": images.base,
            "PROMETHEUS_IMAGE": images.prometheus,
        }
        self._images = images
        # How often the engine has restarted each container by itself.
        self._restarts: dict[str, int] = {}

    # --- the project ------------------------------------------------------------------------------

    def up(self) -> None:
        """Start everything and wait until the nodes and the proxy serve."""
        self._compose("up", "--detach", "--no-build")
        self.wait_until_serving(*range(len(NAMES)))

    def down(self) -> None:
        """Remove containers, volumes and networks."""
        for container in self._all():
            with contextlib.suppress(Exception):
                container.unpause()
        self._compose("down", "--volumes", "--timeout", "5")

    def _compose(self, *words: str) -> None:
        done = subprocess.run(
            [*self._command, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stdout + done.stderr

    def _all(self) -> list[Any]:
        label = f"com.docker.compose.project={self.project}"
        found: list[Any] = self.engine.containers.list(all=True, filters={"label": label})
        return found

    def service(self, name: str) -> Any:
        """Return the container of a service."""
        (found,) = (
            container
            for container in self._all()
            if container.labels["com.docker.compose.service"] == name
        )
        return found

    def node(self, number: int) -> Any:
        return self.service(NAMES[number])

    @property
    def network(self) -> Any:
        return self.engine.networks.get(f"{self.project}_default")

    def run_beside(self, command: Sequence[str], folder: Path) -> Any:
        """Run a program of this repository in a new container of the same network; return that.

        The program resolves the names of the nodes. `folder` is mounted at its own path.
        """
        mounts = {str(ROOT): {"bind": str(ROOT), "mode": "ro"}}
        mounts[str(folder)] = {"bind": str(folder), "mode": "rw"}
        return self.engine.containers.run(
            self._images.base,
            list(command),
            detach=True,
            init=True,
            network=self.network.name,
            volumes=mounts,
            working_dir=str(ROOT),
            environment={"PYTHONDONTWRITEBYTECODE": "1"},
            labels={"com.docker.compose.project": self.project, "com.docker.compose.service": ""},
        )

    def empty_volume(self, number: int) -> None:
        """Remove all data of a stopped node."""
        volume = {f"{self.project}_{NAMES[number]}": {"bind": "/data", "mode": "rw"}}
        command = ["find", "/data", "-mindepth", "1", "-delete"]
        self.engine.containers.run(self._images.base, command, volumes=volume, remove=True)

    def run_once(self, number: int, arguments: Sequence[str]) -> Any:
        """Run a stopped node once with other arguments, as `compose run` does."""
        volume = {f"{self.project}_{NAMES[number]}": {"bind": "/var/lib/beanpole", "mode": "rw"}}
        network = self.network
        container = self.engine.containers.create(
            self._images.node,
            list(arguments),
            init=True,
            read_only=True,
            volumes=volume,
            hostname=NAMES[number],
            environment=self.node(number).attrs["Config"]["Env"],
            labels={"com.docker.compose.project": self.project, "com.docker.compose.service": ""},
        )
        network.connect(container, aliases=[NAMES[number]])
        container.start()
        return container

    # --- what nodes say ---------------------------------------------------------------------------

    def address(self, number: int) -> str:
        """Return the present address of a node; empty if it has none."""
        networks = self.node(number).attrs["NetworkSettings"]["Networks"]
        return str(networks.get(self.network.name, {}).get("IPAddress", ""))

    def beanstalk(self, number: int) -> str:
        return f"{self.address(number)}:{BEANSTALK}"

    def get(self, number: int, page: str) -> tuple[int, str]:
        """Return the status and text of a page; ConnectionError if the node does not answer."""
        address = self.address(number)
        if not address:
            raise ConnectionError(f"{NAMES[number]} has no address")
        asking = http.client.HTTPConnection(address, HTTP, timeout=HTTP_TIMEOUT_S)
        try:
            asking.request("GET", page)
            reply = asking.getresponse()
            return reply.status, reply.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(f"{NAMES[number]}{page}: {error}") from error
        finally:
            asking.close()

    def answers(self, number: int, page: str) -> bool:
        """Whether a node answers a page of its HTTP port with 200."""
        try:
            return self.get(number, page)[0] == 200
        except ConnectionError:
            return False

    def is_leader(self, number: int) -> bool:
        return self.answers(number, "/readyz?leader=1")

    def leader(self, other_than: int | None = None) -> int:
        """Wait for a ready leader, and return its number."""
        numbers = [number for number in range(len(NAMES)) if number != other_than]
        return wait_until(
            lambda: [number for number in numbers if self.is_leader(number)],
            SERVE_TIMEOUT_S,
            "a leader",
        )[0]

    def wait_until_serving(self, *numbers: int) -> None:
        """Wait until nodes are ready."""
        for number in numbers:

            def ready(number: int = number) -> bool:
                return self.answers(number, "/readyz")

            wait_until(ready, SERVE_TIMEOUT_S, f"{NAMES[number]} is ready: {self.log(number)}")

    def log(self, number: int) -> str:
        return str(self.node(number).logs(tail=30).decode(errors="replace"))

    def keep_logs(self, folder: Path) -> None:
        """Write the complete logs of the nodes and of the proxy into files."""
        for name in (*NAMES, PROXY):
            log = self.service(name).logs(timestamps=True)
            (folder / f"{name}.log").write_bytes(log)

    def ended(self) -> list[str]:
        """Return the nodes that have ended by themselves since the last call."""
        found = []
        for name in NAMES:
            container = self.service(name)
            restarts = container.attrs["RestartCount"]
            if restarts > self._restarts.get(container.id, 0):
                found.append(f"{name} ended by itself: {container.logs(tail=10).decode()}")
            self._restarts[container.id] = restarts
        return found

    # --- faults -----------------------------------------------------------------------------------

    def kill(self, *numbers: int) -> None:
        """End nodes with SIGKILL."""
        for container in [self.node(number) for number in numbers]:
            container.kill()

    def start(self, number: int) -> None:
        container = self.node(number)
        container.start()
        self._restarts[container.id] = 0

    def stop(self, number: int) -> int:
        """End a node as `docker stop` does; return its exit status."""
        container = self.node(number)
        container.stop(timeout=STOP_TIMEOUT_S)
        return int(container.wait()["StatusCode"])

    def pause(self, number: int) -> None:
        """Pause a node's processes; its kernel still answers."""
        self.node(number).pause()

    def unpause(self, number: int) -> None:
        self.node(number).unpause()

    def disconnect(self, number: int) -> None:
        """Disconnect a node from the network: nothing is refused, nothing arrives."""
        self.network.disconnect(self.node(number))

    def connect(self, number: int, address: str = "") -> str:
        """Reconnect a node, with the given address or one that no node has had; return it."""
        address = address or f"{SUBNET}.{next(self._hosts)}"
        self.network.connect(self.node(number), ipv4_address=address, aliases=[NAMES[number]])
        return address

    def limit(self, number: int, cpu_share: float, memory_bytes: int) -> None:
        """Limit a running node to a share of one core (0: no limit), and to a size of memory."""
        self.node(number).update(
            cpu_period=CPU_PERIOD_US,
            cpu_quota=int(cpu_share * CPU_PERIOD_US) if cpu_share else -1,
            mem_limit=memory_bytes,
            memswap_limit=memory_bytes,
        )
