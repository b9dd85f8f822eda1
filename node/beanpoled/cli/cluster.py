"""`beanpole cluster`: the members and the leader, and changes of the cluster as a whole.

`status` is the command of `cli.status`; `finalize` ends an upgrade; `leader --transfer` hands
leadership over.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc

from beanpole import commands as c
from beanpole.client import where
from beanpole.client.rpc import Nodes, detail_of, details_of, is_hung, told, words_of
from beanpole.errors import ClientError, ConfigurationError
from beanpole.pb import admin_pb2, admin_pb2_grpc, node_pb2
from beanpoled.cli import status
from beanpoled.cli.columns import Column, table, terminal_chars
from beanpoled.cli.exits import EXIT_NO
from beanpoled.rpc.admin import FINALIZE_TIMEOUT_S, TRANSFER_TIMEOUT_S

# The node that takes the call, and the leader that it asks, give up first and report why.
FINALIZE_CALL_TIMEOUT_S: Final = FINALIZE_TIMEOUT_S + 5.0
TRANSFER_CALL_TIMEOUT_S: Final = TRANSFER_TIMEOUT_S + 5.0
# Covers the election after the death of a leader.
LEADER_PATIENCE_S: Final = 10.0
T = TypeVar("T")

_COLUMNS: Final = (
    Column("node", 10, False),
    Column("role", 10, False),
    Column(" version", 9, False, 1),
    Column("state", 8, False),
)


def add_command(commands: Any) -> None:
    """Add `cluster` to the parser."""
    parser = commands.add_parser(
        "cluster", help="the cluster as a whole: status, members, leader, finalize"
    )
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(ways, "status", status.run, "show what `beanpole status` shows")
    words = "Exit status 1 if one of them is not reachable or does not serve."
    _add(ways, "members", run_members, "show the members and their states", words)
    words = "Exit status 1 if there is none, or if another node than NODE leads after --transfer."
    leader = _add(ways, "leader", run_leader, "show the leader, or hand leadership over", words)
    leader.add_argument(
        "--transfer",
        nargs="?",
        const=True,
        metavar="NODE",
        help="hand leadership over to this member, by default to the one with most of the log",
    )
    finalize = _add(
        ways,
        "finalize",
        run_finalize,
        "end an upgrade: raise the machine version, for good",
        "Refused while a member is away or runs a release that is too old. "
        "Afterwards no node can go back to an older release.",
    )
    finalize.add_argument(
        "--to",
        type=int,
        metavar="VERSION",
        help="the machine version (default: the newest that any node knows)",
    )


def _add(ways: Any, name: str, run: Any, words: str, more: str = "") -> argparse.ArgumentParser:
    way: argparse.ArgumentParser = ways.add_parser(name, help=words, description=more or None)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=run)
    return way


def run_members(arguments: argparse.Namespace) -> int:
    """Print the members as seen by the first node that answers."""
    reply = status.first_answer(where.addresses(arguments, where.GRPC))
    if arguments.json:
        print(json.dumps([_as_json(node) for node in reply.nodes]))
    else:
        lines, _ = table(_COLUMNS, [_row(node) for node in reply.nodes], terminal_chars())
        print("\n".join(lines))
    return 0 if all(node.reachable and node.serving for node in reply.nodes) else EXIT_NO


def _as_json(node: node_pb2.Node) -> dict[str, Any]:
    known = node.reachable
    return {
        "id": node.id,
        "reachable": known,
        "role": status.ROLES[node.role],
        "version": node.version if known else None,
        **status.state_as_json(node),
        "serving": node.serving,
    }


def _row(node: node_pb2.Node) -> tuple[str, ...]:
    if not node.reachable:
        return (node.id, "-", " -", status.away_words(node))
    return (node.id, status.ROLES[node.role], f" {node.version}", status.state_words(node))


def run_leader(arguments: argparse.Namespace) -> int:
    """Print the leader; after a transfer, the new one."""
    targets = where.addresses(arguments, where.GRPC)
    asked = arguments.transfer  # None: not at all; True: to any member
    wanted = asked if isinstance(asked, str) else ""
    if asked is None:
        leader = status.first_answer(targets).leader
    elif not asked:
        raise ConfigurationError("--transfer: NODE is empty")
    else:
        leader = _transferred(targets, wanted)
    if arguments.json:
        print(json.dumps({"leader": leader or None}))
    else:
        print(leader or "there is no leader now")
    if wanted and leader != wanted:
        print(f"beanpole: {leader} leads, not {wanted}: ask again", file=sys.stderr)
        return EXIT_NO
    return 0 if leader else EXIT_NO


def _transferred(targets: list[str], to: str) -> str:
    """Return the new leader. A repeated call moves leadership once more at worst."""
    request = admin_pb2.TransferLeaderRequest(to=to)
    timeout_s = TRANSFER_CALL_TIMEOUT_S
    return str(
        _at_leader(targets, lambda stub: stub.TransferLeader(request, timeout=timeout_s)).leader
    )


def _at_leader(targets: list[str], ask: Callable[[admin_pb2_grpc.AdminStub], T]) -> T:
    """Try the nodes until the leader answers or refuses; repeat the call if the leader dies.

    A node that hangs takes the whole timeout of the call, so it is asked only once.
    """
    failures: dict[str, str] = {}
    hung: set[str] = set()
    with Nodes(targets, LEADER_PATIENCE_S) as nodes:
        for _ in nodes.rounds(failures):
            for target in nodes.in_turn():
                if target in hung:
                    continue
                try:
                    return ask(admin_pb2_grpc.AdminStub(nodes.channel(target)))
                except grpc.RpcError as error:
                    _check_code(target, error)
                    failures[target] = words_of(error)
                    if is_hung(error):
                        hung.add(target)
            if hung.issuperset(nodes.addresses):
                break
    raise ClientError(f"no leader answers, look at `beanpole status`: {told(failures)}")


def _check_code(target: str, error: grpc.RpcError) -> None:
    """Raise a final error; return if another node, or a later attempt, may succeed."""
    if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
        raise ConfigurationError(details_of(error) or "the request is wrong") from None
    later = error.code() == grpc.StatusCode.UNAVAILABLE or detail_of(error).reason == "NOT_LEADER"
    if not later and not is_hung(error):
        raise ClientError(f"{target}: {words_of(error)}") from None


def run_finalize(arguments: argparse.Namespace) -> int:
    """Raise the machine version, and print the version in force."""
    if arguments.to is not None and not 1 <= arguments.to <= c.VERSION_MAX:
        raise ConfigurationError(
            f"--to = {arguments.to} is not allowed: it must be 1 to {c.VERSION_MAX}"
        )
    request = admin_pb2.FinalizeRequest(to=arguments.to or 0)
    reply = _at_leader(
        where.addresses(arguments, where.GRPC),
        lambda stub: stub.Finalize(request, timeout=FINALIZE_CALL_TIMEOUT_S),
    )
    version = reply.machine_version
    if arguments.json:
        print(json.dumps({"machine_version": version}))
    else:
        print(f"the cluster works at machine version {version}")
    return 0
