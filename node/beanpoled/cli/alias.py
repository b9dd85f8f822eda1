"""`beanpole alias`: second names of queues, by which clients of another protocol share them.

The effect on jobs is described in docs/protocols/bridging.md.
"""

import argparse
import json
from typing import Any, Final

from beanpole.client import where
from beanpole.client.admin import AdminRefused
from beanpole.client.patience import REPLY_TIMEOUT_S
from beanpole.client.terminals import visible
from beanpole.errors import ConfigurationError
from beanpole.pb import queue_pb2, queue_pb2_grpc
from beanpoled.cli.asking import ask
from beanpoled.cli.exits import say_done, say_no

_NAMES: Final = (
    "A tube of beanstalk is its name; a queue of another protocol has that before it: "
    "gearman:resize, workq:resize."
)
# Reasons that are an answer of "no"; all others are refusals.
_NO: Final = ("NO_ALIAS", "ALIAS_IN_USE", "ALIAS_EXISTS")
_STUB: Final = queue_pb2_grpc.QueueStub


def add_command(commands: Any) -> None:
    """Add `alias` to the parser."""
    words = "let clients of two protocols share a queue: set, list, remove"
    parser = commands.add_parser("alias", help=words, description=_NAMES)
    ways = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    way = ways.add_parser("set", help="let ALIAS mean QUEUE, of another protocol")
    way.add_argument("alias", metavar="ALIAS", help="a name that no queue in use has")
    way.add_argument("queue", metavar="QUEUE", help="the queue; its jobs are in events under it")
    way.add_argument("--json", action="store_true", help="print JSON")
    way.set_defaults(run=_set)
    where.add_options(way, where.GRPC)
    way = ways.add_parser("remove", help="let ALIAS mean nothing; clients that watch it go on")
    way.add_argument("alias", metavar="ALIAS", help="its name")
    way.add_argument("--json", action="store_true", help="print JSON")
    way.set_defaults(run=_remove)
    where.add_options(way, where.GRPC)
    way = ways.add_parser("list", help="print all aliases")
    way.add_argument("--json", action="store_true", help="print JSON")
    way.set_defaults(run=_list)
    where.add_options(way, where.GRPC)


def _set(arguments: argparse.Namespace) -> int:
    request = queue_pb2.SetAliasRequest(alias=arguments.alias, queue=arguments.queue)
    if not arguments.queue:
        raise ConfigurationError("set: QUEUE is empty; `beanpole alias remove` removes an alias")
    return _change(arguments, request, f"{arguments.alias} is {arguments.queue}")


def _remove(arguments: argparse.Namespace) -> int:
    request = queue_pb2.SetAliasRequest(alias=arguments.alias)
    return _change(arguments, request, f"{arguments.alias} is no alias any more")


def _change(arguments: argparse.Namespace, request: queue_pb2.SetAliasRequest, words: str) -> int:
    try:
        ask(
            arguments,
            _STUB,
            lambda stub: stub.SetAlias(request, timeout=REPLY_TIMEOUT_S),
            look="beanpole alias list",
        )
    except AdminRefused as error:
        if error.reason not in _NO:
            raise
        return say_no(error, arguments.json)
    return say_done(words, {"alias": request.alias, "queue": request.queue or None}, arguments.json)


def _list(arguments: argparse.Namespace) -> int:
    request = queue_pb2.ListAliasesRequest()
    reply = ask(arguments, _STUB, lambda stub: stub.ListAliases(request, timeout=REPLY_TIMEOUT_S))
    if arguments.json:
        print(json.dumps({one.alias: one.queue for one in reply.aliases}))
        return 0
    rows = [(visible(one.alias), visible(one.queue)) for one in reply.aliases]
    width = max((len(alias) for alias, _ in rows), default=0)
    for alias, queue in rows:
        print(f"{alias:<{width}}  {queue}")
    return 0
