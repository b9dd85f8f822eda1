"""`beanpole cluster` and `beanpole node` on three real nodes, also while the leader is killed.

The output and exit statuses of the commands are tested in tests/unit/beanpoled/test_cli.py.
"""

import json
from typing import Any, Final

from tests.integration.support.commands import Commands
from tests.integration.support.nodes import Cluster, Node
from tests.integration.support.program import ran
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

COMMAND_TIMEOUT_S: Final = 60.0


def asked(words: str, *nodes: Node, status: int = 0) -> Any:
    """Run a command against these nodes, in this order, and return its JSON output."""
    return Commands(*(node.grpc for node in nodes)).json(words, status)


def members(node: Node, *away: Node, status: int = 0) -> list[dict[str, Any]]:
    """Return the members, once the node reaches all but those away: it waits 1 s for each."""
    wanted = {one.id for one in away}

    def found() -> list[dict[str, Any]]:
        done = ran("cluster", "members", "--json", "--addr", node.grpc)
        told: list[dict[str, Any]] = json.loads(done.said)
        if {one["id"] for one in told if not one["reachable"]} != wanted:
            return []
        assert done.status == status, done
        return told

    return wait_until(found, COMMAND_TIMEOUT_S, "all but the dead are reached")


def test_a_follower_takes_leadership_over_and_another_one_survives_the_leader(
    quick: Cluster,
) -> None:
    nodes = quick.nodes
    before, (taker, other) = quick.roles()
    told = members(nodes[taker])
    assert [node["id"] for node in told] == [node.id for node in nodes]
    assert all(node["reachable"] and node["serving"] for node in told)

    # Ask the follower that does not become leader, so that the request reaches neither end.
    moved = asked(f"cluster leader --transfer {nodes[taker].id}", nodes[other])
    assert moved == {"leader": nodes[taker].id}
    wait_until(lambda: quick.is_leader(taker), COMMAND_TIMEOUT_S, "the taker leads")
    wait_until(
        lambda: asked("cluster leader", nodes[before]) == {"leader": nodes[taker].id},
        COMMAND_TIMEOUT_S,
        "the old leader knows the new one",
    )

    # The followers still consider the killed leader alive when the command asks them.
    quick.kill(taker)
    moved = asked(f"cluster leader --transfer {nodes[other].id}", nodes[taker], nodes[before])
    assert moved == {"leader": nodes[other].id}
    wait_until(lambda: quick.is_leader(other), COMMAND_TIMEOUT_S, "the survivor leads")
    told = members(nodes[before], nodes[taker], status=1)
    left = {node["id"]: node["reachable"] for node in told}
    assert left == {node.id: node is not nodes[taker] for node in nodes}


def disconnect(connection: str, node: Node) -> int:
    return ran("node", "disconnect", connection, "--addr", node.grpc).status


def test_connections_are_listed_and_closed_through_another_node(quick: Cluster) -> None:
    leader, (follower, other) = quick.roles()
    near, far, dead = (quick.nodes[number] for number in (follower, other, leader))
    with Raw(far.beanstalk) as client, Raw(near.beanstalk) as waiter, Raw(dead.beanstalk) as idle:
        for command in (b"use mail", b"watch mail"):
            client.command(command)
        job = client.put(b"a letter")
        assert client.command(b"reserve")[0] == b"RESERVED %d 8" % job
        idle.command(b"use news")
        waiter.send(b"watch mail\r\nreserve\r\n")

        def found() -> list[dict[str, Any]]:
            return list(asked("node connections", near))

        def waiting() -> list[dict[str, Any]]:
            return [one for one in found() if one["waiting"]]

        first = wait_until(waiting, COMMAND_TIMEOUT_S, "the waiter waits")[0]
        assert (first["node"], first["jobs_held"]) == (near.id, [])
        listed = {one["node"]: one for one in found()}
        assert set(listed) == {node.id for node in quick.nodes}
        held = listed[far.id]
        assert (held["jobs_held"], held["queue_used"]) == ([job], "mail")
        assert held["queues_watched"] == ["default", "mail"]
        assert (held["protocol"], held["client"]) == ("beanstalk", "127.0.0.1")
        assert asked(f"node connections --node {far.id}", near)[0]["jobs_held"] == [job]

        # The job of the closed connection goes to the waiting client.
        assert disconnect(held["connection"], near) == 0
        assert waiter.line() == b"WATCHING 2"
        assert waiter.line() == b"RESERVED %d 8" % job
        assert disconnect(held["connection"], near) == 1, "it is gone"
        assert disconnect(f"n9/{job}", near) == 2

        quick.kill(leader)
        left = asked("node connections", near, status=1)
        assert [one["jobs_held"] for one in left if one["node"] == near.id] == [[job]]
        assert disconnect(listed[dead.id]["connection"], near) == 3, "its node is dead"
