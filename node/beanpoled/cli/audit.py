"""`beanpole node audit`: the actions of administrators, from the audit logs of the nodes."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from beanpole.client import where
from beanpole.client.rpc import Nodes, told
from beanpole.client.terminals import visible
from beanpole.pb import node_admin_pb2, node_admin_pb2_grpc
from beanpoled.cli import values
from beanpoled.cli.exits import EXIT_NO
from beanpoled.cli.members import ask_each, first_answer, members

# Above the time that the node which takes the call gives the named node.
CALL_TIMEOUT_S: Final = 15.0


def add_way(ways: Any) -> None:
    """Add `audit` to the subcommands of `node`."""
    way = ways.add_parser(
        "audit",
        help="show the actions of administrators: changes, backups, reading of events and jobs",
        description="The oldest first, each call once at every node that it came by. Exit status "
        "1 if a node did not answer; the calls at the others are shown.",
    )
    words = "at this member (default: at all)"
    way.add_argument("--node", type=values.member, metavar="NODE", help=words)
    way.add_argument(
        "--since",
        type=values.duration_s,
        default=86_400,
        metavar="TIME",
        help="of the last 90s, 15m, 2h or 7d by the clock of each node (default: 1d)",
    )
    way.add_argument("--json", action="store_true", help="print the lines as they are: JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the audit log of one node or of all; name the nodes that do not answer."""
    targets = where.addresses(arguments, where.GRPC)
    wanted = [arguments.node] if arguments.node else members(targets)
    last_us = arguments.since * 1_000_000
    found: list[tuple[int, str]] = []
    with Nodes(targets) as nodes:
        _, silent = ask_each(wanted, lambda member: found.extend(_lines(nodes, member, last_us)))
    for _, line in sorted(found):
        print(line if arguments.json else _words(json.loads(line)))
    if silent:
        print(f"beanpole: no answer of {told(silent)}", file=sys.stderr)
    return EXIT_NO if silent else 0


def _lines(nodes: Nodes, member: str, last_us: int) -> Iterator[tuple[int, str]]:
    # A node of an older release takes the time by the clock of this machine.
    after_id = max(0, time.time_ns() // 1000 - last_us)
    request = node_admin_pb2.ReadAuditRequest(node=member, after_id=after_id, last_us=last_us)
    stub = node_admin_pb2_grpc.NodeAdminStub
    while True:
        reply = first_answer(nodes, stub, "ReadAudit", request, CALL_TIMEOUT_S)
        for line in reply.lines:
            request.after_id, request.last_us = json.loads(line)["id"], 0
            yield request.after_id, line
        if reply.complete:
            if reply.lost:
                words = f"beanpole: {member} could not write {reply.lost} lines since its start"
                print(words, file=sys.stderr)
            return


def _words(call: dict[str, Any]) -> str:
    given = " ".join(f"{name}={_shown(value)}" for name, value in call["arguments"].items())
    alike = call.get("alike_before")
    words = (
        call["time"],
        call["node"],
        call["user"] or call["certificate"] or call["caller"] or "-",
        call["method"],
        given,
        call["outcome"],
        f"{call['duration_ms']:.0f} ms",
        f"({alike} alike before)" if alike else "",
    )
    return visible(" ".join(filter(None, words)))


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, int) else json.dumps(value, separators=(",", ":"))
