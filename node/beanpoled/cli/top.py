"""`beanpole top`: current figures of nodes and queues, redrawn periodically in a terminal.

The figures come from one node, which knows the whole cluster; if it fails, the next one is asked.
They are computed in `beanpoled.eventlog.latencies`.
"""

import argparse
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import grpc

from beanpole.client import where
from beanpole.client.rpc import Nodes, details_of, is_refused, words_of
from beanpole.client.terminals import moves_cursor
from beanpole.errors import ClientError, ConfigurationError
from beanpole.pb import admin_pb2, admin_pb2_grpc, live_pb2, live_pb2_grpc, node_pb2
from beanpoled.cli.columns import Column, cut, duration_words, name_words, table, terminal_chars
from beanpoled.cli.status import (
    ROLES,
    STATUS_TIMEOUT_S,
    away_words,
    state_as_json,
    state_words,
)

INTERVAL_DEFAULT_S: Final = 2.0
# Nodes update their figures once a second; shorter intervals would often show the same picture.
INTERVAL_MIN_S: Final = 0.5
INTERVAL_MAX_S: Final = 3600.0
# One screen of queues; `--queues` shows more. Programs get all, unless they ask for fewer.
QUEUES_DEFAULT: Final = 20
# Longer names of queues are cut in a terminal.
NAME_MAX_CHARS: Final = 28
# The cursor moves home, and the rest below is cleared: nothing blinks.
_HOME: Final = "\x1b[H"
_CLEAR_REST: Final = "\x1b[J"
_CLEAR_LINE_REST: Final = "\x1b[K"

_NODES: Final = (
    Column("node", 10, False),
    Column("role", 9, False),
    Column("connections", 11, True, 2),
    Column("waiting", 8, True, 3),
    Column("commands/s", 10),
    Column("applied", 10, True, 4),
    Column("behind", 7, True, 1),
    Column(" state", 8, False),
)
_QUEUES: Final = (
    Column("queue", NAME_MAX_CHARS, False),
    *(Column(state, 8) for state in ("ready", "reserved", "delayed", "buried")),
    Column("age", 7),
    Column("puts/s", 8, True, 4),
    Column("taken/s", 8, True, 5),
    Column("ended/s", 8, True, 6),
    Column("wait 50%", 8, True, 7),
    Column("99%", 7, True, 1),
    Column("run 50%", 8, True, 8),
    Column("99% ", 7, True, 2),
)
_SORTS: Final[Mapping[str, Callable[[live_pb2.LiveQueue], float]]] = {
    "jobs": lambda queue: sum(_counts(queue).values()),
    "rate": lambda queue: queue.puts_per_s + queue.reserved_per_s + queue.ended_per_s,
    "age": lambda queue: queue.ready_age_s,
    "wait": lambda queue: queue.wait.p99_s,
    "buried": lambda queue: queue.jobs.buried,
}


class Look(NamedTuple):
    """All figures at one time.

    Attributes:
        status: the nodes.
        live: the queues.
        at_s: the time of the figures, by the monotonic clock.
    """

    status: admin_pb2.StatusReply
    live: live_pb2.LiveReply
    at_s: float


def add_command(commands: Any) -> None:
    """Add `top` to the parser."""
    parser = commands.add_parser(
        "top",
        help="watch nodes and queues: sizes, rates, ages, waits",
        description="Rates, waits (from ready to reserved) and runs (from there to the end of the "
        "reservation) are of the last one to two minutes; age is for how long the next job of a "
        "queue has been ready. Ctrl-C ends it. Where the output is no terminal, or one that cannot "
        "move its cursor (TERM=dumb), it prints once.",
    )
    where.add_options(parser, where.GRPC)
    parser.add_argument(
        "--interval",
        type=float,
        default=INTERVAL_DEFAULT_S,
        metavar="SECONDS",
        help=f"from one picture to the next (default {INTERVAL_DEFAULT_S:g})",
    )
    parser.add_argument(
        "--sort",
        choices=sorted(_SORTS),
        default="jobs",
        help="which queues come first: those with most of it (default: jobs)",
    )
    parser.add_argument(
        "--queues",
        type=int,
        metavar="N",
        help=f"how many queues (default {QUEUES_DEFAULT}, with --json 0; 0: all that the node "
        "tells, up to 200)",
    )
    parser.add_argument("--once", action="store_true", help="print once, and end")
    parser.add_argument("--json", action="store_true", help="print once, as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Draw until Ctrl-C, or print once."""
    if not INTERVAL_MIN_S <= arguments.interval <= INTERVAL_MAX_S:
        raise ConfigurationError(
            f"--interval = {arguments.interval:g} is not allowed: it must be {INTERVAL_MIN_S:g} "
            f"to {INTERVAL_MAX_S:g} seconds"
        )
    queues = arguments.queues
    if queues is None:
        queues = 0 if arguments.json else QUEUES_DEFAULT
    if queues < 0:
        raise ConfigurationError(f"--queues = {queues} is not allowed: it must be 0 or more")
    count = queues or None
    with Nodes(where.addresses(arguments, where.GRPC)) as nodes:
        look = take(nodes)
        if arguments.json:
            print(json.dumps(as_json(look, arguments.sort, count)))
        elif arguments.once or not moves_cursor(sys.stdout):
            print("\n".join(picture(look, None, arguments.sort, count, terminal_chars())))
        else:
            _watch(nodes, look, arguments.interval, arguments.sort, count)
    return 0


def _watch(nodes: Nodes, look: Look, interval_s: float, sort: str, count: int | None) -> None:
    before: Look | None = None
    sys.stdout.write(_HOME + _CLEAR_REST)
    while True:
        lines = picture(look, before, sort, count, terminal_chars())
        draw(lines, shutil.get_terminal_size())
        time.sleep(interval_s)
        try:
            before, look = look, take(nodes)
        except ClientError as error:
            size = shutil.get_terminal_size()
            draw([*textwrap.wrap(str(error), size.columns), "", *lines], size)


def draw(lines: Sequence[str], size: os.terminal_size) -> None:
    """Draw over the picture before, as much as fits: what does not would scroll that one away.

    Args:
        lines: the picture.
        size: of the terminal; its last row is for the cursor.
    """
    text = ""
    for line in lines[: max(1, size.lines - 1)]:
        shown, chars = cut(line, size.columns)
        # Behind a full line the cursor still is on its last character, and would clear that.
        text += f"{shown}{_CLEAR_LINE_REST if chars < size.columns else ''}\n"
    sys.stdout.write(_HOME + text + _CLEAR_REST)
    sys.stdout.flush()


def take(nodes: Nodes) -> Look:
    """Try one node after the other; the first that answers is tried first the next time.

    Raises:
        ClientError: no node answered, and the message has the reason for each; or the caller lacks
            the right, at every node.
    """
    reasons = []
    for target in list(nodes.addresses):
        channel = nodes.channel(target)
        try:
            status = admin_pb2_grpc.AdminStub(channel).Status(
                admin_pb2.StatusRequest(), timeout=STATUS_TIMEOUT_S
            )
            live = live_pb2_grpc.LiveStub(channel).Read(
                live_pb2.LiveRequest(), timeout=STATUS_TIMEOUT_S
            )
        except grpc.RpcError as error:
            if is_refused(error):
                raise ClientError(details_of(error) or error.code().name) from None
            is_old = error.code() == grpc.StatusCode.UNIMPLEMENTED
            words = "its release has no `beanpole top`" if is_old else words_of(error)
            reasons.append(f"{target}: {words}")
            nodes.defer(target)
            continue
        return Look(status, live, time.monotonic())
    raise ClientError(f"no node answers: {'; '.join(reasons)}")


def as_json(look: Look, sort: str = "jobs", count: int | None = None) -> dict[str, Any]:
    """Return the documented JSON form."""
    status, live = look.status, look.live
    return {
        "cluster": status.cluster,
        "leader": status.leader or None,
        "term": status.term,
        "node": live.node,
        "lately_s": live.lately_s,
        "nodes": [
            {
                "id": node.id,
                "role": ROLES[node.role] if node.reachable else "unknown",
                "reachable": node.reachable,
                **_clients(node),
                "applied_index": node.applied_index,
                **state_as_json(node),
            }
            for node in status.nodes
        ],
        "all": _rates(live.all),
        "queues": [
            {
                "protocol": queue.protocol,
                "name": queue.name,
                "jobs": {**_counts(queue), "kept": queue.kept},
                "ready_age_s": queue.ready_age_s,
                **_rates(queue),
            }
            for queue in _sorted(live, sort)[:count]
        ],
    }


def picture(
    look: Look, before: Look | None, sort: str, count: int | None, chars: int | None
) -> list[str]:
    """Return the lines for people.

    Args:
        look: the figures.
        before: the previous figures, for rates of nodes; None if there are none.
        sort: the order of queues.
        count: the largest number of queues; None for all.
        chars: the width of the terminal; None if there is no terminal.
    """
    status, live = look.status, look.live
    up = sum(node.reachable for node in status.nodes)
    head = (
        f"cluster {status.cluster}, leader {status.leader or 'none'}, term {status.term}, "
        f"{up} of {len(status.nodes)} nodes answer"
    )
    newest = max((node.applied_index for node in status.nodes), default=0)
    rates = _command_rates(look, before)
    rows = [_node_row(node, newest, rates.get(node.id)) for node in status.nodes]
    nodes, _ = table(_NODES, rows, chars)
    queues = _sorted(live, sort)
    shown, _ = table(_QUEUES, [_queue_row(queue) for queue in queues[:count]], chars)
    lines = [head, *nodes, "", *shown]
    if len(queues) > len(queues[:count]):
        lines.append(f"... {len(queues) - len(queues[:count])} more; --queues shows them")
    if not live.lately_s:
        lines.append(f"{live.node} keeps no events, so it knows no rates, waits and runs")
    return lines


def _sorted(live: live_pb2.LiveReply, sort: str) -> list[live_pb2.LiveQueue]:
    return sorted(live.queues, key=lambda queue: (-_SORTS[sort](queue), queue.name))


def _command_rates(look: Look, before: Look | None) -> dict[str, float]:
    """Return commands per second by node; a node that has restarted since is left out."""
    if before is None:
        return {}
    seconds = max(0.001, look.at_s - before.at_s)
    old = {node.id: _clients(node)["commands_total"] for node in before.status.nodes}
    grown = {
        node.id: _clients(node)["commands_total"] - old[node.id]
        for node in look.status.nodes
        if node.reachable and node.id in old
    }
    return {name: more / seconds for name, more in grown.items() if more >= 0}


def _clients(node: node_pb2.Node) -> dict[str, int]:
    return {
        name: sum(getattr(its, name) for its in node.protocols)
        for name in ("connections", "waiting", "commands_total")
    }


def _counts(queue: live_pb2.LiveQueue) -> dict[str, int]:
    jobs = queue.jobs
    return {
        "ready": jobs.ready,
        "reserved": jobs.reserved,
        "delayed": jobs.delayed,
        "buried": jobs.buried,
    }


def _rates(queue: live_pb2.LiveQueue) -> dict[str, Any]:
    return {
        "puts_per_s": queue.puts_per_s,
        "reserved_per_s": queue.reserved_per_s,
        "ended_per_s": queue.ended_per_s,
        "wait": _durations(queue.wait),
        "run": _durations(queue.run),
    }


def _durations(its: live_pb2.Durations) -> Mapping[str, float] | None:
    if not its.count:
        return None
    return {"p50_s": its.p50_s, "p90_s": its.p90_s, "p99_s": its.p99_s, "count": its.count}


def _node_row(node: node_pb2.Node, newest: int, rate: float | None) -> Sequence[object]:
    if not node.reachable:
        return (node.id, *["-"] * 6, f" {away_words(node)}")
    its = _clients(node)
    return (
        *(node.id, ROLES[node.role], its["connections"], its["waiting"]),
        "-" if rate is None else f"{rate:.0f}",
        *(node.applied_index, newest - node.applied_index, f" {state_words(node)}"),
    )


def _queue_row(queue: live_pb2.LiveQueue) -> Sequence[object]:
    name = queue.name if queue.protocol == "beanstalk" else f"{queue.protocol}:{queue.name}"
    rates = (queue.puts_per_s, queue.reserved_per_s, queue.ended_per_s)
    times = [
        duration_words(quantile) if its.count else "-"
        for its in (queue.wait, queue.run)
        for quantile in (its.p50_s, its.p99_s)
    ]
    age = duration_words(queue.ready_age_s) if queue.jobs.ready else "-"
    shown = name_words(name, NAME_MAX_CHARS)
    return (shown, *_counts(queue).values(), age, *(f"{rate:.1f}" for rate in rates), *times)
