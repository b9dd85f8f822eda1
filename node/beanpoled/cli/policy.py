"""`beanpole policy`: what becomes of jobs that come back too often.

docs/policies.md has a story.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc

from beanpole.client import where
from beanpole.client.rpc import Nodes, told, words_of
from beanpole.errors import ClientError
from beanpole.pb import policies_pb2, policies_pb2_grpc
from beanpoled.cli.jobs import EXIT_NO

# Above `command_timeout_ms`, after which a node gives up itself and says so.
CALL_TIMEOUT_S: Final = 15.0
_REFUSALS: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
_PATTERN: Final = "a tube, or the beginning of names and *, quoted for the shell"

T = TypeVar("T")


def add_command(commands: Any) -> None:
    """Add `policy` to the parser."""
    parser = commands.add_parser("policy", help="bury or move jobs that come back too often")
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    way = ways.add_parser("set", help="set the policy of a tube, or of all that begin alike")
    way.add_argument("pattern", metavar="PATTERN", help=_PATTERN)
    way.add_argument(
        "--attempts",
        type=int,
        required=True,
        metavar="N",
        help="a job that was reserved so often, and comes back, is not given out again",
    )
    way.add_argument("--dead", default="", metavar="TUBE", help="move it there (default: bury it)")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=_set)
    way = ways.add_parser("drop", help="remove a policy; its jobs stay where they are")
    way.add_argument("pattern", metavar="PATTERN", help=_PATTERN)
    where.add_options(way, where.GRPC)
    way.set_defaults(run=_drop)
    way = ways.add_parser("list", help="print all policies, or the one that counts for a tube")
    way.add_argument("--queue", default="", metavar="TUBE", help="only what counts for it")
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=_list)


def _set(arguments: argparse.Namespace) -> int:
    given = max(0, min(arguments.attempts, 2**32 - 1))  # the node says what is allowed
    policy = policies_pb2.Policy(pattern=arguments.pattern, attempts_max=given, dead=arguments.dead)
    request = policies_pb2.SetPolicyRequest(policy=policy)
    _ask(arguments, lambda stub: stub.Set(request, timeout=CALL_TIMEOUT_S))
    print(_words(policy))
    return 0


def _drop(arguments: argparse.Namespace) -> int:
    request = policies_pb2.DropPolicyRequest(pattern=arguments.pattern)
    try:
        _ask(arguments, lambda stub: stub.Drop(request, timeout=CALL_TIMEOUT_S))
    except _Refused as error:
        if error.code != grpc.StatusCode.NOT_FOUND:
            raise
        print(error)
        return EXIT_NO
    print(f"{arguments.pattern} has no policy any more")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    request = policies_pb2.ListPoliciesRequest(queue=arguments.queue)
    reply = _ask(arguments, lambda stub: stub.List(request, timeout=CALL_TIMEOUT_S))
    if arguments.json:
        rows = [
            {"pattern": one.pattern, "attempts_max": one.attempts_max, "dead": one.dead or None}
            for one in reply.policies
        ]
        print(json.dumps(rows))
        return 0
    for one in reply.policies:
        print(_words(one))
    return 0


def _words(policy: policies_pb2.Policy) -> str:
    then = f"a job moves to {policy.dead}" if policy.dead else "a job is buried"
    return f"{policy.pattern}: after {policy.attempts_max} attempts {then}"


class _Refused(ClientError):
    """A node says no, and every other one would."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(error.details() or "")
        self.code = error.code()


def _ask(arguments: argparse.Namespace, call: Callable[[policies_pb2_grpc.PoliciesStub], T]) -> T:
    """Ask one node after the other until one answers; its answer counts."""
    failures: dict[str, str] = {}
    with Nodes(where.addresses(arguments, where.GRPC)) as nodes:
        for target in nodes.addresses:
            try:
                return call(policies_pb2_grpc.PoliciesStub(nodes.channel(target)))
            except grpc.RpcError as error:
                if error.code() in _REFUSALS:
                    raise _Refused(error) from None
                failures[target] = words_of(error)
    raise ClientError(f"no answer, look at `beanpole policy list`: {told(failures)}")
