"""`beanpole cluster` on three real nodes: through a follower, and while the leader dies.

What the commands print and how they end is in tests/unit/beanpoled/test_cli.py.
"""

import json
import subprocess
from typing import Any, Final

from tests.integration.support.nodes import BEANPOLE, Cluster, Node
from tests.integration.support.waiting import wait_until

COMMAND_TIMEOUT_S: Final = 60.0


def begin(words: str, *nodes: Node) -> subprocess.Popen[str]:
    """Start a command that asks these nodes, the first one first."""
    addresses = ",".join(node.grpc for node in nodes)
    return subprocess.Popen(
        [*BEANPOLE, "cluster", *words.split(), "--json", "--addr", addresses],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], status: int = 0) -> Any:
    said, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == status, (process.args, said, errors)
    return json.loads(said)


def test_a_follower_takes_leadership_over_and_another_one_survives_the_leader(
    cluster: Cluster,
) -> None:
    nodes = cluster.nodes
    before, (taker, other) = cluster.leader(), cluster.followers()
    members = ended(begin("members", nodes[taker]))
    assert [node["id"] for node in members] == [node.id for node in nodes]
    assert all(node["reachable"] and node["serving"] for node in members)

    # Through the follower that does not take it, so that neither end of the transfer is asked.
    moved = ended(begin(f"leader --transfer {nodes[taker].id}", nodes[other]))
    assert moved == {"leader": nodes[taker].id}
    wait_until(lambda: cluster.is_leader(taker), COMMAND_TIMEOUT_S, "the taker leads")
    assert ended(begin("leader", nodes[before])) == {"leader": nodes[taker].id}

    # The leader dies; the followers still believe in it when they are asked.
    cluster.kill(taker)
    moved = ended(begin(f"leader --transfer {nodes[other].id}", nodes[taker], nodes[before]))
    assert moved == {"leader": nodes[other].id}
    wait_until(lambda: cluster.is_leader(other), COMMAND_TIMEOUT_S, "the survivor leads")
    left = {node["id"]: node["reachable"] for node in ended(begin("members", nodes[before]), 1)}
    assert left == {node.id: node is not nodes[taker] for node in nodes}
