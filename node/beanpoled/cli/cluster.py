"""`beanpole cluster`: what changes a cluster as a whole. `finalize` ends an upgrade."""

import argparse
from typing import Any, Final

import grpc

from beanpole import commands as c
from beanpole.client import where
from beanpole.client.rpc import Nodes, told, words_of
from beanpole.errors import ClientError, ConfigurationError
from beanpole.pb import admin_pb2, admin_pb2_grpc
from beanpoled.rpc.admin import FINALIZE_TIMEOUT_S

# The node that is asked, and the leader that it asks, give up first and say why.
CALL_TIMEOUT_S: Final = FINALIZE_TIMEOUT_S + 5.0


def add_command(commands: Any) -> None:
    """Add `cluster` to the parser."""
    parser = commands.add_parser("cluster", help="change the cluster as a whole: finalize")
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    finalize = ways.add_parser(
        "finalize",
        help="end an upgrade: raise the machine version, for good",
        description="Refused while a member is away or runs a release that is too old. "
        "Afterwards no node can go back to an older release.",
    )
    where.add_options(finalize, where.GRPC)
    finalize.add_argument(
        "--to",
        type=int,
        default=0,
        metavar="VERSION",
        help="the machine version (default: the newest that any node knows)",
    )
    finalize.set_defaults(run=run_finalize)


def run_finalize(arguments: argparse.Namespace) -> int:
    """Ask one node after the other until one answers; its answer counts."""
    if not 0 <= arguments.to <= c.VERSION_MAX:
        raise ConfigurationError(
            f"--to = {arguments.to} is not allowed: it must be 1 to {c.VERSION_MAX}"
        )
    request = admin_pb2.FinalizeRequest(to=arguments.to)
    failures: dict[str, str] = {}
    with Nodes(where.addresses(arguments, where.GRPC)) as nodes:
        for target in nodes.addresses:
            stub = admin_pb2_grpc.AdminStub(nodes.channel(target))
            try:
                reply = stub.Finalize(request, timeout=CALL_TIMEOUT_S)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise ClientError(f"{target}: {words_of(error)}") from None
                failures[target] = words_of(error)
                continue
            print(f"the cluster works at machine version {reply.machine_version}")
            return 0
    raise ClientError(f"no answer, look at `beanpole status`: {told(failures)}")
