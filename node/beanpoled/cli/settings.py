"""`beanpole node settings` and `reload`: the settings of a node, and reloading them."""

import argparse
import json
import sys
from typing import Any, Final

from beanpole.client import where
from beanpole.client.rpc import Nodes, told
from beanpole.errors import ConfigurationError
from beanpole.pb import node_admin_pb2, node_admin_pb2_grpc
from beanpoled.cli import values
from beanpoled.cli.columns import Column, table, terminal_chars
from beanpoled.cli.exits import EXIT_NO
from beanpoled.cli.members import CALL_TIMEOUT_S, ask_each, first_answer, members

_COLUMNS: Final = (
    Column("setting", 28, False),
    Column("from", 16, False, 2),
    Column("changes", 15, False, 1),
    Column("value", 20, False),
)
_STUB: Final = node_admin_pb2_grpc.NodeAdminStub


def add_ways(ways: Any) -> None:
    """Add `settings` and `reload` to the subcommands of `node`."""
    way = ways.add_parser(
        "settings",
        help="show the settings of a node, and where they came from",
        description="Of a secret only whether there is one. `live` settings change with "
        "`beanpole node reload`, others with a restart.",
    )
    words = "default: the node that answers"
    way.add_argument("node", type=values.member, metavar="NODE", nargs="?", help=words)
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=run_settings)
    way = ways.add_parser(
        "reload",
        help="let a node read its configuration and its certificates again",
        description="As SIGHUP does. Exit status 1 if a node did not answer, or its configuration "
        "or its certificates are wrong: then it keeps its settings, or the certificates.",
    )
    which = way.add_mutually_exclusive_group(required=True)
    which.add_argument("node", metavar="NODE", nargs="?", help="this member")
    which.add_argument("--all", action="store_true", help="all members, one after the other")
    way.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(way, where.GRPC)
    way.set_defaults(run=run_reload)


def run_settings(arguments: argparse.Namespace) -> int:
    """Print the settings of one node."""
    request = node_admin_pb2.ListSettingsRequest(node=arguments.node or "")
    with Nodes(where.addresses(arguments, where.GRPC)) as nodes:
        reply = first_answer(nodes, _STUB, "ListSettings", request, CALL_TIMEOUT_S)
    if arguments.json:
        settings = {one.name: _as_json(one) for one in reply.settings}
        print(json.dumps({"node": reply.node, "settings": settings}))
        return 0
    rows = [(one.name, one.source, _changes(one), _words(one)) for one in reply.settings]
    lines, _ = table(_COLUMNS, rows, terminal_chars())
    print("\n".join((f"node {reply.node}", *lines)))
    return 0


def _as_json(one: node_admin_pb2.Setting) -> dict[str, Any]:
    return {
        "value": json.loads(one.value_json),
        "source": one.source or None,
        "live": one.live,
        "secret": one.secret,
        "waiting": one.waiting,
    }


def _changes(one: node_admin_pb2.Setting) -> str:
    if one.waiting:
        return "awaits a restart"
    return "live" if one.live else "restart"


def _words(one: node_admin_pb2.Setting) -> str:
    value = json.loads(one.value_json)
    if one.secret:
        return "(set)" if value else "(not set)"
    return json.dumps(value) if isinstance(value, dict | list) else str(value) or '""'


def run_reload(arguments: argparse.Namespace) -> int:
    """Reload one member or all; name the members that did not reload."""
    if arguments.node == "":
        # In a call it is the node that answers, whichever that is.
        raise ConfigurationError("node reload: NODE is empty; give a member, or --all")
    targets = where.addresses(arguments, where.GRPC)
    wanted = members(targets) if arguments.all else [arguments.node]
    with Nodes(targets) as nodes:

        def reload(member: str) -> Any:
            request = node_admin_pb2.ReloadRequest(node=member)
            return first_answer(nodes, _STUB, "Reload", request, CALL_TIMEOUT_S)

        replies, failed = ask_each(wanted, reload)
    found = [
        {"node": member, "changed": list(reply.changed), "waiting": list(reply.waiting)}
        for member, reply in replies.items()
    ]
    if arguments.json:
        print(json.dumps({"reloaded": found, "failed": failed}))
    for one in () if arguments.json else found:
        if one["changed"] or not one["waiting"]:
            print(f"{one['node']}: {'; '.join(one['changed']) or 'no setting has changed'}")
        if one["waiting"]:
            print(f"{one['node']}: needs a restart: {', '.join(one['waiting'])}")
    if failed:
        print(f"beanpole: not reloaded: {told(failed)}", file=sys.stderr)
    return EXIT_NO if failed else 0
