"""Run the pods of a StatefulSet as processes of this machine, and restart them as its controller.

No API server is needed: the manifest defines a pod's container (command, variables, probes,
preStop), and the order of restarts is the controller's: from the highest ordinal down, the next one
only when the one before has been ready for `minReadySeconds`. `Pod` names the differences.
tests/kubernetes checks what clients observe meanwhile.
"""

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_for_time, wait_until

# Each pod has a loopback address of its own, so that all can use the same ports.
NETWORK: Final = "127.77.0"
SECRET: Final = "the secret of all pods"
# Far beyond the time of a restart; the probes have timeouts of their own.
READY_TIMEOUT_S: Final = 60.0

Around = Callable[["Pod"], AbstractContextManager[object]]


class Pod:
    """One pod, without kernel namespaces: addresses, paths and process ids are translated.

    Its name in the headless service becomes an address, `0.0.0.0` the same address, mounted paths
    become folders below `directory`, and process 1 the process that was started.
    """

    def __init__(self, spec: Mapping[str, Any], ordinal: int, directory: Path) -> None:
        self._service = spec["serviceName"]
        self._set = self._service.removesuffix("-headless")
        self._replicas = int(spec["replicas"])
        template = spec["template"]["spec"]
        self.grace_s = float(template["terminationGracePeriodSeconds"])
        (self._container,) = template["containers"]
        self.name = f"{self._set}-{ordinal}"
        self.address = f"{NETWORK}.{ordinal + 1}"
        self.directory = directory / self.name
        self.process: Process | None = None
        self._lives = 0
        places = {
            one["name"]: self._place(one["mountPath"]) for one in self._container["volumeMounts"]
        }
        for place in places.values():
            place.mkdir(parents=True, exist_ok=True)
        (secret,) = [one["secret"] for one in template["volumes"] if one["name"] == "peer-secret"]
        (item,) = secret["items"]
        self._secret = places["peer-secret"] / item["path"]
        self._secret_mode = secret["defaultMode"]
        self.update_secret(SECRET)

    @property
    def volume(self) -> Path:
        """The volume that outlives the pod."""
        return self._place("/var/lib/beanpole")

    @property
    def beanstalk(self) -> str:
        return f"{self.address}:11300"

    def update_secret(self, value: str) -> None:
        """Replace the mounted file of the shared secret, as the kubelet does."""
        fresh = self._secret.with_name("fresh")
        fresh.write_text(value)
        fresh.chmod(self._secret_mode)
        fresh.replace(self._secret)

    def start(self, program: Mapping[str, str], without: Sequence[str] = ()) -> None:
        """Run the container's command.

        Args:
            program: variables that select the program, such as PATH.
            without: variables of the manifest that this program does not know.
        """
        command = [self._here(word) for word in self._container["command"]]
        wanted = {
            one["name"]: self._value(one)
            for one in self._container["env"]
            if one["name"] not in without
        }
        self._lives += 1
        log = self.directory / f"output-{self._lives}.log"
        alone = ["env", "-i", *(f"{name}={value}" for name, value in {**wanted, **program}.items())]
        self.process = Process([*alone, *command], log)

    def stop(self) -> int:
        """End the pod as the kubelet does: preStop, SIGTERM, SIGKILL after the grace period.

        Returns:
            The exit status; -9 if it had to be killed.
        """
        assert self.process
        end_s = time.monotonic() + self.grace_s
        hook = self._container["lifecycle"]["preStop"]["exec"]["command"]
        words = [self._here(word).replace("kill -USR1 1", self._signal()) for word in hook]
        subprocess.run(words, check=True, timeout=self.grace_s)
        self.process.signal(signal.SIGTERM)
        while self.process.status() is None and time.monotonic() < end_s:
            wait_for_time(0.05)
        if self.process.status() is None:
            self.process.kill()
        status = self.process.status()
        assert status is not None
        return status

    def probe(self, kind: str) -> bool:
        """Send one request of a probe, such as `readinessProbe`."""
        probe = self._container[kind]
        ports = {port["name"]: port["containerPort"] for port in self._container["ports"]}
        port, timeout_s = ports[probe["httpGet"]["port"]], float(probe["timeoutSeconds"])
        connection = http.client.HTTPConnection(self.address, port, timeout=timeout_s)
        try:
            connection.request("GET", probe["httpGet"]["path"])
            return 200 <= connection.getresponse().status < 400
        except OSError:
            return False
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        """Probe at the interval of the manifest until the pod is ready."""
        period_s = float(self._container["readinessProbe"]["periodSeconds"])

        def ready() -> bool:
            assert self.process and self.process.status() is None, self.story()
            if self.probe("readinessProbe"):
                return True
            wait_for_time(period_s)
            return False

        wait_until(ready, READY_TIMEOUT_S, f"{self.name} is ready")

    def story(self) -> str:
        return self.process.story() if self.process else f"{self.name} was never started"

    def _signal(self) -> str:
        assert self.process
        return f"kill -USR1 {self.process.pid}"

    def _place(self, path: str) -> Path:
        return self.directory / path.removeprefix("/")

    def _here(self, text: str) -> str:
        """Translate a value of the manifest to this machine."""
        for ordinal in range(self._replicas):
            text = text.replace(
                f"{self._set}-{ordinal}.{self._service}", f"{NETWORK}.{ordinal + 1}"
            )
        for mount in self._container["volumeMounts"]:
            text = text.replace(mount["mountPath"], str(self._place(mount["mountPath"])))
        return text.replace("0.0.0.0", self.address)

    def _value(self, one: Mapping[str, Any]) -> str:
        if "value" in one:
            return self._here(one["value"])
        assert one["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}, one
        return self.name


class StatefulSet:
    """All pods of a manifest."""

    def __init__(self, manifest: Mapping[str, Any], directory: Path) -> None:
        spec = manifest["spec"]
        assert spec["podManagementPolicy"] == "Parallel", "pods are started all at once here"
        self._min_ready_s = float(spec["minReadySeconds"])
        self.pods = [Pod(spec, ordinal, directory) for ordinal in range(spec["replicas"])]

    def start(self, program: Mapping[str, str], without: Sequence[str] = ()) -> None:
        """Start all pods at once, and wait until all are ready."""
        for pod in self.pods:
            pod.start(program, without)
        for pod in self.pods:
            pod.wait_until_ready()

    def roll(self, program: Mapping[str, str], around: Around = lambda _: nullcontext()) -> None:
        """Restart every pod with a program, in the controller's order.

        Args:
            program: see `Pod.start`.
            around: the caller's context, from before a pod is stopped until it is ready again.
        """
        for pod in reversed(self.pods):
            with around(pod):
                status = pod.stop()
                assert status == 0, f"{pod.name} ended with status {status}: {pod.story()}"
                pod.start(program)
                pod.wait_until_ready()
                wait_for_time(self._min_ready_s)
                assert pod.probe("readinessProbe"), f"{pod.name} was ready and is not any more"

    def close(self) -> None:
        for pod in self.pods:
            if pod.process:
                pod.process.kill()


def path_of(programs: Path) -> dict[str, str]:
    """Return the variables that make a pod find `beanpoled` in a folder."""
    return {"PATH": f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin"}
