"""A member that returns with another address behind its name, as a pod does.

The names come from a hosts file that only the nodes see. tests/docker also covers peer links with
changed addresses; these tests cover gRPC, whose library resolves names by itself.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.support.nodes import Cluster, Node, status
from tests.integration.support.waiting import wait_until

# Only the hosts file can resolve this name: `.test` is a reserved domain.
NAME: Final = "moved.test"
MOVED: Final = 2
OLD: Final = "127.0.0.1"
NEW: Final = "127.0.0.2"
# Less than the half minute for which gRPC by default makes no second look-up.
FOUND_TIMEOUT_S: Final = 20.0
# After the restart of a node, during which there may be several look-ups.
RETURNED_TIMEOUT_S: Final = 60.0
# The mount ends with the process; `exec` keeps its process id.
IN_A_NAMESPACE: Final = 'mount --bind "$0" /etc/hosts && exec "$@"'


def at(host: str, node: Node) -> tuple[str, str]:
    """Return the addresses of a node's peer link and gRPC server on another host."""
    return node.peer.replace(OLD, host), node.grpc.replace(OLD, host)


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text(f"{OLD} localhost {NAME}\n")
    return path


@pytest.fixture
def cluster(tmp_path: Path, hosts: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path / "nodes")
    moved = found.nodes[MOVED]
    dial = "{}={}/{}".format(moved.id, *at(NAME, moved))
    for number in range(MOVED):
        command = found.command(number)
        wrapped = ["unshare", "--map-root-user", "--mount", "sh", "-c", IN_A_NAMESPACE, str(hosts)]
        path = found.nodes[number].directory / "cmdline"
        path.write_text(shlex.join([*wrapped, *command, "--dial", dial]) + "\n")
    yield found
    found.close()


def is_reached(cluster: Cluster) -> bool:
    """Whether the first node reaches the moved node by gRPC."""
    nodes = status(cluster.nodes[0])["nodes"]
    (found,) = [node for node in nodes if node["id"] == cluster.nodes[MOVED].id]
    return bool(found["reachable"])


def move(hosts: Path) -> None:
    # Written in place: the mount is bound to the file, not to its name.
    hosts.write_text(f"{OLD} localhost\n{NEW} {NAME}\n")


def test_a_member_comes_back_with_another_address(cluster: Cluster, hosts: Path) -> None:
    cluster.start_all()
    wait_until(lambda: is_reached(cluster), RETURNED_TIMEOUT_S, "the member at its old address")
    cluster.terminate(MOVED)
    assert not is_reached(cluster)
    move(hosts)
    peer, grpc = at(NEW, cluster.nodes[MOVED])
    cluster.start(MOVED, ["--peer-listen", peer, "--grpc-listen", grpc])
    # The member serves only after the others have dialled the new address of its peer link.
    cluster.wait_until_serving(MOVED)
    wait_until(lambda: is_reached(cluster), RETURNED_TIMEOUT_S, "the member at its new address")


def test_a_name_is_looked_up_again_soon(cluster: Cluster, hosts: Path) -> None:
    """The member has its new address from the start; its name resolves to that address later."""
    _, grpc = at(NEW, cluster.nodes[MOVED])
    for number in range(MOVED):
        cluster.start(number)
    cluster.start(MOVED, ["--grpc-listen", grpc])
    cluster.wait_until_all_serve()
    assert not is_reached(cluster)
    move(hosts)
    wait_until(lambda: is_reached(cluster), FOUND_TIMEOUT_S, "the member at its new address")
