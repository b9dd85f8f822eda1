"""`beanpole status`: members, leader, term and indexes of a cluster, for people or as JSON."""

import argparse
import json
from collections.abc import Sequence
from typing import Any, Final

import grpc

from beanpole.client import where
from beanpole.client.rpc import Nodes, words_of
from beanpole.client.terminals import visible
from beanpole.errors import ClientError
from beanpole.pb import admin_pb2, admin_pb2_grpc, node_pb2
from beanpoled.cli import status_qless
from beanpoled.cli.columns import Column, table, terminal_chars
from beanpoled.disk.identity import BIRTH_DIGITS
from beanpoled.http.metrics import JOB_STATES
from beanpoled.readiness import waiting_words

STATUS_TIMEOUT_S: Final = 2.0
ROLES: Final = {
    node_pb2.ROLE_LEADER: "leader",
    node_pb2.ROLE_FOLLOWER: "follower",
    node_pb2.ROLE_CANDIDATE: "candidate",
    node_pb2.ROLE_UNSPECIFIED: "unknown",
}
_COLUMNS: Final = (
    Column("node", 10, False),
    Column("role", 10, False, 1),
    Column("term", 6, True, 3),
    Column("commit", 10, True, 5),
    Column("applied", 10, True, 4),
    *(Column(state, 8) for state in ("ready", "reserved", "delayed", "buried")),
    Column(" version", 9, False, 2),
    Column("machine", 11, False, 6),
    Column("state", 8, False),
)
_PROTOCOL_COLUMNS: Final = (
    Column("protocol", 10, False),
    Column("connections", 11, True, 2),
    Column("waiting", 8, True, 3),
    Column("commands", 10, True, 4),
    Column("queues", 8, True, 1),
    *(Column(state, 8) for state in JOB_STATES),
)


def add_command(commands: Any) -> None:
    """Add `status` to the parser."""
    parser = commands.add_parser("status", help="show members, leader, term and indexes")
    where.add_options(parser, where.GRPC)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the status as given by the first node that answers."""
    reply = first_answer(where.addresses(arguments, where.GRPC))
    print(json.dumps(as_json(reply)) if arguments.json else as_text(reply, terminal_chars()))
    return 0


def first_answer(targets: list[str]) -> admin_pb2.StatusReply:
    """Try one node after the other and return the first answer.

    Raises:
        ClientError: no node answered; the message has the reason for each.
    """
    reasons = []
    with Nodes(targets) as nodes:
        for target in targets:
            try:
                stub = admin_pb2_grpc.AdminStub(nodes.channel(target))
                reply: admin_pb2.StatusReply = stub.Status(
                    admin_pb2.StatusRequest(), timeout=STATUS_TIMEOUT_S
                )
                return reply
            except grpc.RpcError as error:
                reasons.append(f"{target}: {words_of(error)}")
    raise ClientError(f"no node answers: {'; '.join(reasons)}")


def as_json(reply: admin_pb2.StatusReply) -> dict[str, Any]:
    """Return the documented JSON form."""
    return {
        "cluster": reply.cluster,
        "leader": reply.leader or None,
        "term": reply.term,
        "nodes": [_node_as_json(node) for node in reply.nodes],
    }


def _node_as_json(node: node_pb2.Node) -> dict[str, Any]:
    if not node.reachable:
        whys = {"refusal": node.refusal, "no_link": node.no_link}
        known = {name: why for name, why in whys.items() if why}
        return {"id": node.id, "role": "unknown", "reachable": False, **known}
    jobs = node.jobs
    return {
        "id": node.id,
        "role": ROLES[node.role],
        "reachable": True,
        "term": node.term,
        "commit_index": node.commit_index,
        "applied_index": node.applied_index,
        "last_index": node.last_index,
        "snapshot_index": node.snapshot_index,
        "serving": node.serving,
        "rejoining": node.rejoining,
        **state_as_json(node),
        "version": node.version,
        "birth": node.birth or None,
        "machine_version": node.machine_version,
        "machine_version_known": node.machine_version_known,
        "upgrade_finalize": node.upgrade_finalize or "auto",
        "links": list(node.links),
        "jobs": {
            "ready": jobs.ready,
            "reserved": jobs.reserved,
            "delayed": jobs.delayed,
            "buried": jobs.buried,
        },
        "protocols": {its.name: _protocol_as_json(its) for its in node.protocols},
        "qless": status_qless.as_json(node.qless) if node.HasField("qless") else None,
        "pid": node.pid,
    }


def _protocol_as_json(its: node_pb2.Protocol) -> dict[str, Any]:
    return {
        "connections": its.connections,
        "connections_total": its.connections_total,
        "waiting": its.waiting,
        "commands_total": its.commands_total,
        "jobs": {
            "ready": its.jobs.ready,
            "reserved": its.jobs.reserved,
            "delayed": its.jobs.delayed,
            "buried": its.jobs.buried,
            "kept": its.kept,
        },
        "queues": its.queues,
    }


def as_text(reply: admin_pb2.StatusReply, chars: int | None = None) -> str:
    """Return a table for people; with `chars`, for a terminal of that width."""
    births = sorted({node.birth[:BIRTH_DIGITS] for node in reply.nodes if node.birth})
    head = (
        f"cluster {reply.cluster}, birth {' and '.join(births) or 'none'}, "
        f"leader {reply.leader or 'none'}, term {reply.term}"
    )
    shown, dropped = table(_COLUMNS, [_row(node) for node in reply.nodes], chars)
    more, also = table(_PROTOCOL_COLUMNS, protocol_rows(reply.nodes), chars)
    lines = [head, *shown, *(more if len(more) > 1 else ())]
    lines += status_qless.lines(reply.nodes)
    if dropped:
        hidden = ", ".join(title.strip() for title in (*dropped, *also))
        lines.append(f"a wider terminal, or --json, also has: {hidden}")
    possible = possible_version(reply.nodes)
    if possible:
        lines.append(
            f"every node knows machine version {possible}: `beanpole cluster finalize` raises "
            "the cluster to it, and no node goes back to an older release after that"
        )
    return "\n".join(lines)


def _row(node: node_pb2.Node) -> Sequence[object]:
    if not node.reachable:
        return (node.id, *["-"] * 8, " -", "-", away_words(node))
    jobs = node.jobs
    return (
        *(node.id, ROLES[node.role], node.term, node.commit_index, node.applied_index),
        *(jobs.ready, jobs.reserved, jobs.delayed, jobs.buried),
        *(f" {node.version}", machine_words(node), state_words(node)),
    )


def protocol_rows(nodes: Sequence[node_pb2.Node]) -> list[Sequence[object]]:
    """Return a row for each protocol: its clients at all nodes, its jobs in the cluster."""
    newest = max(nodes, key=lambda node: node.applied_index, default=None)
    if newest is None or not newest.protocols:
        return []
    rows: list[Sequence[object]] = []
    for its in newest.protocols:
        own = [one for node in nodes for one in node.protocols if one.name == its.name]
        clients = [
            sum(getattr(one, name) for one in own)
            for name in ("connections", "waiting", "commands_total")
        ]
        jobs = its.jobs
        states = (jobs.ready, jobs.reserved, jobs.delayed, jobs.buried, its.kept)
        rows.append((its.name, *clients, its.queues, *states))
    return rows


def possible_version(nodes: Sequence[node_pb2.Node]) -> int:
    """Return the newer version that an operator may finalize now; 0 if there is none."""
    known = min((node.machine_version_known for node in nodes), default=0)
    active = max((node.machine_version for node in nodes), default=0)
    leading = [node for node in nodes if node.role == node_pb2.ROLE_LEADER]
    waits = any(node.upgrade_finalize == "manual" for node in leading)
    return known if waits and known > active else 0


def why_away(node: node_pb2.Node) -> str:
    """Return why a node did not answer; empty if that is not known."""
    return node.refusal or node.no_link


def away_words(node: node_pb2.Node) -> str:
    """Return the state of a node that did not answer, with the reason if there is one."""
    reason = why_away(node)
    return f"not reachable: {visible(reason)}" if reason else "not reachable"


def machine_words(node: node_pb2.Node) -> str:
    """Return the node's machine version, and a newer one that its program supports."""
    active, known = node.machine_version, node.machine_version_known
    return str(active) if active == known else f"{active} (knows {known})"


def state_of(node: node_pb2.Node) -> str:
    """Return the state of a node, also of a release that does not report it."""
    known = "rejoining" if node.rejoining else "serving" if node.serving else "starting"
    return node.state or known


def state_as_json(node: node_pb2.Node) -> dict[str, Any]:
    """Return the facts behind `state_words`; null if the node is not reachable."""
    known = node.reachable
    return {
        "state": state_of(node) if known else None,
        "waits": node.waits if known else None,
        "waiting_for": list(node.waiting_for) if known else None,
        "draining": node.draining if known else None,
        "durability": node.durability if known else None,
    }


def state_words(node: node_pb2.Node) -> str:
    """Return a short description of a node's state."""
    words = [state_of(node)]
    if node.waits:
        words.append(node.waits)
    elif node.waiting_for:
        words.append(waiting_words(node.waiting_for, node.rejoining))
    if node.draining:
        words.append("draining")
    if node.durability != "sync":
        words.append(f"durability {node.durability}")
    return ", ".join(words)
