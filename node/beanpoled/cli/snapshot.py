"""`beanpole snapshot`: make nodes write a snapshot now, before a backup or a restart."""

import argparse
import json
from typing import Any, Final

import grpc

from beanpole.client import where
from beanpole.client.printing import print_lines
from beanpole.client.rpc import Nodes, told, words_of
from beanpole.errors import ClientError
from beanpole.pb import admin_pb2, admin_pb2_grpc
from beanpoled.rpc.snapshots import SNAPSHOT_TIMEOUT_S

# The node gives up first, and reports why.
CALL_TIMEOUT_S: Final = SNAPSHOT_TIMEOUT_S + 5.0


def add_command(commands: Any) -> None:
    """Add `snapshot` to the parser."""
    parser = commands.add_parser(
        "snapshot",
        help="write a snapshot of what is applied, and cut the log behind it",
        description="Asks the node at --addr, or without it every node of the local cluster. "
        "Exit status 3 if one of them has written none.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(parser, where.GRPC)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask each of the nodes; name those that have written no snapshot."""
    indexes: dict[str, int] = {}
    failures: dict[str, str] = {}
    with Nodes(where.addresses(arguments, where.GRPC)) as nodes:
        for target in nodes.addresses:
            stub = admin_pb2_grpc.AdminStub(nodes.channel(target))
            try:
                reply = stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest(), timeout=CALL_TIMEOUT_S)
            except grpc.RpcError as error:
                failures[target] = words_of(error)
                continue
            indexes[target] = reply.index
            if not arguments.json:
                # A closed pipe (`| head`) does not keep the other nodes from being asked.
                print_lines([f"{target}: snapshot at index {reply.index}"])
    if arguments.json:
        print_lines([json.dumps(indexes)])
    if failures:
        raise ClientError(f"no snapshot: {told(failures)}")
    return 0
