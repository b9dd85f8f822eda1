"""`beanpole node`: one node, and its clients, listed and closed one by one.

The cluster as a whole is in `cluster`, the state of nodes in `status`.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from beanpole.client import where
from beanpole.client.rpc import Nodes, told
from beanpole.constants import SECOND_US
from beanpole.errors import ConfigurationError
from beanpole.numbers import whole_within
from beanpole.pb import admin_pb2, admin_pb2_grpc
from beanpoled.cli import audit, settings, values
from beanpoled.cli.columns import Column, duration_words, name_words, table, terminal_chars
from beanpoled.cli.exits import EXIT_NO, say_done, say_no
from beanpoled.cli.members import CALL_TIMEOUT_S, Gone, ask_each, first_answer, members

_COLUMNS: Final = (
    Column("connection", 12, False),
    Column("protocol", 10, False, 2),
    Column("client", 16, False, 1),
    Column("age", 7, True, 3),
    Column("waits", 5, False),
    Column("jobs", 6),
    Column(" uses", 16, False, 4),
    Column("watches", 8, False),
)


def add_command(commands: Any) -> None:
    """Add `node` to the parser."""
    parser = commands.add_parser("node", help="one node: its clients, audit, settings")
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    way = ways.add_parser(
        "connections",
        help="show the clients that are connected, the oldest first",
        description="Exit status 1 if a node did not answer; the clients of the others are shown.",
    )
    words = "of this member (default: of all)"
    way.add_argument("--node", type=values.member, metavar="NODE", help=words)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=run_connections)
    way = ways.add_parser(
        "disconnect",
        help="close the connection of a client",
        description="As if its network were lost: jobs that it holds return to their queues, "
        "unless its session is kept. Exit status 1 if it is gone.",
    )
    way.add_argument("connection", metavar="NODE/ID", help="as `beanpole node connections` shows")
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=run_disconnect)
    audit.add_way(ways)
    settings.add_ways(ways)


def run_connections(arguments: argparse.Namespace) -> int:
    """Print the connections of one node or of all; name the nodes that do not answer."""
    targets = where.addresses(arguments, where.GRPC)
    wanted = [arguments.node] if arguments.node else members(targets)
    with Nodes(targets) as nodes:
        answers, silent = ask_each(wanted, lambda member: list(_connections(nodes, member)))
    found = [(member, one) for member, answer in answers.items() for one in answer]
    if arguments.json:
        print(json.dumps([_as_json(member, one) for member, one in found]))
    elif found:
        lines, _ = table(_COLUMNS, [_row(member, one) for member, one in found], terminal_chars())
        print("\n".join(lines))
    elif not silent:
        print("no connections")
    if silent:
        print(f"beanpole: no answer of {told(silent)}", file=sys.stderr)
    return EXIT_NO if silent else 0


def _connections(nodes: Nodes, member: str) -> Iterator[admin_pb2.Connection]:
    request = admin_pb2.ListConnectionsRequest(node=member)
    while True:
        stub = admin_pb2_grpc.AdminStub
        reply = first_answer(nodes, stub, "ListConnections", request, CALL_TIMEOUT_S)
        yield from reply.connections
        if reply.complete:
            return
        request.after_id = reply.connections[-1].id


def _as_json(member: str, one: admin_pb2.Connection) -> dict[str, Any]:
    return {
        "connection": f"{member}/{one.id}",
        "node": member,
        "protocol": one.protocol,
        "client": one.host or None,
        "age_s": one.age_us / SECOND_US,
        "waiting": one.waiting,
        "queue_used": one.queue_used or None,
        "queues_watched": list(one.queues_watched),
        "queues_watched_total": one.queues_watched_total,
        "jobs_held": list(one.jobs_held),
        "jobs_held_total": one.jobs_held_total,
    }


def _row(member: str, one: admin_pb2.Connection) -> tuple[object, ...]:
    watched = ", ".join(name_words(name, 24) for name in one.queues_watched[:3])
    more = one.queues_watched_total - 3
    return (
        f"{member}/{one.id}",
        one.protocol,
        one.host or "-",
        duration_words(one.age_us / SECOND_US),
        "yes" if one.waiting else "-",
        one.jobs_held_total,
        " " + (name_words(one.queue_used, 15) or "-"),
        (f"{watched} and {more} more" if more > 0 else watched) or "-",
    )


def run_disconnect(arguments: argparse.Namespace) -> int:
    """Close a connection."""
    member, slash, number = arguments.connection.rpartition("/")
    id_ = whole_within(number, 0, values.NUMBER_MAX)
    if not (slash and member) or id_ is None:
        words = "it must be NODE/ID, as `beanpole node connections` shows"
        raise ConfigurationError(f"{arguments.connection!r} is no connection: {words}")
    request = admin_pb2.CloseConnectionRequest(node=member, id=id_)
    with Nodes(where.addresses(arguments, where.GRPC)) as nodes:
        try:
            stub = admin_pb2_grpc.AdminStub
            first_answer(nodes, stub, "CloseConnection", request, CALL_TIMEOUT_S)
        except Gone as error:
            return say_no(error, arguments.json)
    words = f"closed {arguments.connection}"
    return say_done(words, {"closed": arguments.connection}, arguments.json)
