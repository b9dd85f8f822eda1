"""The image by itself: its user, its writable paths, its health check and its stop."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.images import Images
from tests.integration.support.waiting import wait_until

ALONE = {
    "BEANPOLE_CLUSTER": "alone",
    "BEANPOLE_NODE_ID": "n1",
    "BEANPOLE_MEMBERS": "n1=127.0.0.1:11310/127.0.0.1:11320",
    "BEANPOLE_PEER_SECRET": "a secret of the tests",
}
HEALTHY_TIMEOUT_S = 60.0


@contextlib.contextmanager
def run(engine: Any, built: Images, **options: Any) -> Iterator[Any]:
    """Run a separate node as compose.yaml does, without capabilities and so on."""
    container = engine.containers.run(
        built.node,
        detach=True,
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        environment={**ALONE, **options.pop("environment", {})},
        **options,
    )
    try:
        yield container
    finally:
        container.remove(force=True, v=True)


def wait_for_health(container: Any, health: str) -> None:
    def has_it() -> bool:
        container.reload()
        assert container.attrs["State"]["Running"], container.logs().decode()
        return bool(container.attrs["State"]["Health"]["Status"] == health)

    wait_until(has_it, HEALTHY_TIMEOUT_S, f"a container that is {health}")


def ask(container: Any, *command: str) -> tuple[int, str]:
    status, output = container.exec_run(list(command))
    return status, output.decode()


def test_what_is_in_it(engine: Any, built: Images) -> None:
    about = engine.images.get(built.node).attrs["Config"]
    assert about["User"] == "10001:10001"
    assert list(about["Volumes"]) == ["/var/lib/beanpole"]
    assert about["StopSignal"] == "SIGTERM"
    assert about["Labels"]["org.opencontainers.image.version"] == "test"
    assert about["Labels"]["org.opencontainers.image.licenses"] == "MIT"
    assert "11300/tcp" in about["ExposedPorts"]


@pytest.mark.parametrize("init", [True, False])
def test_a_node_serves_and_stops_in_order(engine: Any, built: Images, init: bool) -> None:
    """The node runs under an init, as in compose.yaml, or as the first process, as in a pod."""
    with run(engine, built, init=init) as container:
        wait_for_health(container, "healthy")
        status, words = ask(container, "beanpole", "put", "hello")
        assert (status, words) == (0, "INSERTED 1\n")
        assert ask(container, "id", "--user")[1] == "10001\n"
        status, words = ask(container, "touch", "/opt/beanpole/new")
        assert status and "Read-only file system" in words
        assert ask(container, "find", "/opt/beanpole", "-writable", "-not", "-type", "l")[1] == ""
        container.stop(timeout=30)
        assert container.wait()["StatusCode"] == 0, container.logs().decode()
        container.start()
        wait_for_health(container, "healthy")
        status, words = ask(container, "beanpole", "reserve", "--delete")
        assert (status, words) == (0, "RESERVED 1 5\nhello\nDELETED\n")


def test_its_hot_path_is_compiled(engine: Any, built: Images) -> None:
    with run(engine, built) as container:
        wait_for_health(container, "healthy")
        assert "not compiled" not in container.logs().decode()
        code = "import beanpole.core.machine as found; print(found.__file__)"
        assert ask(container, "python3", "-c", code)[1].endswith(".so\n")


def test_a_node_that_does_not_answer_is_not_healthy(engine: Any, built: Images) -> None:
    """The node is suspended from inside, as it is not process 1; its init does not resume it."""
    quick = {"interval": 10**9, "timeout": 10**9, "retries": 1}
    check = ["CMD", "python3", "-I", "-S", "/opt/beanpole/healthcheck.py"]
    with run(engine, built, init=True, healthcheck={"test": check, **quick}) as container:
        wait_for_health(container, "healthy")
        code = (
            "import os, signal, pathlib\n"
            "for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
            "    words = path.read_bytes().split(b'\\0')\n"
            "    if b'/opt/beanpole/bin/beanpoled' in words[:2]:\n"
            "        os.kill(int(path.parent.name), signal.SIGSTOP)\n"
        )
        status, words = ask(container, "python3", "-c", code)
        assert status == 0, words
        wait_for_health(container, "unhealthy")


def test_a_wrong_setting_is_named(engine: Any, built: Images) -> None:
    with run(engine, built, environment={"BEANPOLE_DURABILITY": "maybe"}) as container:
        assert container.wait()["StatusCode"] == 78
        assert "durability" in container.logs().decode()


def test_an_address_for_others_needs_the_secret(engine: Any, built: Images) -> None:
    with run(engine, built, environment={"BEANPOLE_PEER_SECRET": ""}) as container:
        assert container.wait()["StatusCode"] == 78
        assert "peer_secret" in container.logs().decode()
