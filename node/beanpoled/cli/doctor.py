"""`beanpole doctor`: examine a cluster, data directories or configurations, and report problems.

This file has the checks across all nodes and the output. A node examines itself in `examining`,
`disk.offline` reads a data directory, `checking` judges a configuration.
"""

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from beanpole.client import where
from beanpole.client.printing import print_lines
from beanpole.client.rpc import Nodes, Refused
from beanpole.client.terminals import visible
from beanpole.errors import BeanpoleError, ClientError, ConfigurationError, Damaged
from beanpole.pb import admin_pb2, node_admin_pb2, node_admin_pb2_grpc, node_pb2
from beanpole.storage.readonly import ReadOnlyFiles
from beanpole.storage.small_files import read_checked
from beanpoled import checking
from beanpoled.cli import inspect, status
from beanpoled.cli.exits import EXIT_NO
from beanpoled.cli.members import CALL_TIMEOUT_S, timed_answer
from beanpoled.config import node as configuration
from beanpoled.disk import identity as identities
from beanpoled.disk.offline import look, words_of
from beanpoled.examining import CLOCKS, ERROR, OK, WARNING, Finding
from beanpoled.leading.saved_clock import CLOCK_FILE, CLOCK_REMEDY

# Cluster time follows the leader's clock; people compare the logs of nodes.
CLOCK_DIFFERENCE_MAX_S: Final = 1.0
# A damaged file of events is no reason for another disk.
EVENTS_REMEDY: Final = "remove the file: a start leaves it out, and the other nodes have the events"
_OF_CHECKING: Final = {
    checking.GOOD: OK,
    checking.WARNING: WARNING,
    checking.WRONG: ERROR,
    checking.MISCONFIGURED: ERROR,
}
_REFUSED: Final = (
    "give all nodes the same members, peer_secret and CA of peers: `beanpole node reload --all`, "
    "SIGHUP for one that is starting"
)
# The digests that are compared, the more conclusive one first.
_IMAGE: Final = "the digest of its image"
_STATE: Final = "the state hash"
_STUB: Final = node_admin_pb2_grpc.NodeAdminStub


def add_command(commands: Any) -> None:
    """Add `doctor` to the parser."""
    parser = commands.add_parser(
        "doctor",
        help="check a cluster, data directories or configurations, and name the faults",
        description="Lines are `ok|warning|error NAME: finding; remedy`. Reads only. "
        "Exit status 1 if there is an error or a warning.",
    )
    parser.add_argument(
        "paths",
        metavar="DIR|CONFIG",
        nargs="*",
        help="data directories of stopped nodes, or configuration files (default: the cluster)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    where.add_options(parser, where.GRPC)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; exit status 1 if something is wrong."""
    if arguments.paths:
        _check_paths(arguments)
        found = [one for path in arguments.paths for one in _of_path(path)]
    else:
        found = list(_of_cluster(where.addresses(arguments, where.GRPC)))
    if arguments.json:
        print_lines([json.dumps([one._asdict() for one in found])])
    else:
        print_lines(map(_line, found))
    return EXIT_NO if any(one.level != OK for one in found) else 0


def _check_paths(arguments: argparse.Namespace) -> None:
    if "" in arguments.paths:
        # A variable that is not set: it is neither a file nor the cluster.
        raise ConfigurationError("'' is no data directory and no configuration file")
    if arguments.addr is not None or arguments.dir is not None:
        raise ConfigurationError(
            "--addr and --dir name a cluster, which is not checked beside data directories and "
            "configuration files: give one or the other"
        )


def _line(one: Finding) -> str:
    more = f"; {one.remedy}" if one.remedy else ""
    return visible(f"{one.level} {one.name}: {one.words}{more}")


# --- a cluster ------------------------------------------------------------------------------------


def _of_cluster(targets: list[str]) -> Iterator[Finding]:
    reply = status.first_answer(targets)
    yield from _together(reply)
    differences: dict[str, tuple[float, float]] = {}
    by_nodes: list[Finding] = []
    with Nodes(targets) as nodes:
        for node in reply.nodes:
            if not node.reachable:
                continue
            request = node_admin_pb2.ExamineRequest(node=node.id)
            try:
                timed = timed_answer(nodes, _STUB, "Examine", request, CALL_TIMEOUT_S)
            except Refused as error:
                remedy = f"give the token of a user with the right admin: {where.TOKEN_FILE}"
                yield Finding(WARNING, "nodes", f"none was examined: {error.words}", remedy)
                return
            except ClientError as error:
                remedy = "see its log; a node of an older release cannot tell"
                yield Finding(WARNING, f"node {node.id}", f"it was not examined: {error}", remedy)
                continue
            wall_s = timed.answer.wall_us / 1e6
            differences[node.id] = (wall_s - timed.ended_s, wall_s - timed.begun_s)
            for one in timed.answer.findings:
                found = Finding(one.level, f"{node.id} {one.name}", one.words, one.remedy)
                if one.name == CLOCKS:
                    by_nodes.append(found)
                else:
                    yield found
    compared = [clocks(differences)] if len(differences) > 1 else []
    if all(one.level == OK for one in compared):
        yield from by_nodes  # of a member that could not be asked
    yield from compared


def clocks(differences: Mapping[str, tuple[float, float]]) -> Finding:
    """Compare the clocks of the nodes; a slow call hides a difference, but never makes one.

    Args:
        differences: of each node, by its id, the least and the most seconds by which its clock may
            be ahead of this machine's: the node read its clock at some moment of the call.
    """
    least, most = zip(*differences.values(), strict=True)
    surely_s = max(least) - min(most)
    if surely_s > CLOCK_DIFFERENCE_MAX_S:
        ahead = max(differences, key=lambda node: differences[node][0])
        behind = min(differences, key=lambda node: differences[node][1])
        words = f"those of the nodes are at least {surely_s:.3f} s apart"
        words += f": {ahead} is ahead of {behind}"
        return Finding(WARNING, CLOCKS, words, "let all machines set their clocks by NTP")
    words = f"those of the nodes are at most {max(most) - min(least):.3f} s apart"
    return Finding(OK, CLOCKS, words)


def _together(reply: admin_pb2.StatusReply) -> Iterator[Finding]:
    """Yield the findings about what nodes report of each other."""
    there = [node for node in reply.nodes if node.reachable]
    away = [node for node in reply.nodes if not node.reachable]
    if away:
        words = f"{', '.join(node.id for node in away)} of {len(reply.nodes)} cannot be reached"
        if reasons := [f"{node.id}: {why}" for node in away if (why := status.why_away(node))]:
            words += f" ({'; '.join(reasons)})"
        remedy = "start them, or look at the network between the nodes"
        if any(node.refusal for node in away):
            remedy = _REFUSED
        yield Finding(ERROR, "members", words, remedy)
    else:
        yield Finding(OK, "members", f"all {len(there)} answer")
    yield _leader(reply, there, away)
    remedy = "end the upgrade: start the same release everywhere, `beanpole cluster finalize`"
    yield _same("versions", sorted({node.version for node in there}), remedy)
    machines = sorted({str(node.machine_version) for node in there})
    yield _same("machine versions", machines, "a node is behind: `beanpole status` has its state")
    if possible := status.possible_version(there):
        words = f"all nodes know machine version {possible}"
        yield Finding(WARNING, "upgrade", words, "`beanpole cluster finalize` ends the upgrade")
    remedy = "give all nodes the same cluster, members and durability"
    yield _same("configurations", sorted({node.config_hash for node in there}), remedy)
    births = sorted({node.birth for node in there if node.birth})
    yield _same("birth ids", births, "a member is one of another cluster: see its log")
    if len(there) > 1 or not away:
        yield replicas(reply)
        yield _links(there)


def _leader(
    reply: admin_pb2.StatusReply, there: list[node_pb2.Node], away: list[node_pb2.Node]
) -> Finding:
    leading = [node.id for node in there if node.role == node_pb2.ROLE_LEADER]
    if len(leading) == 1:
        return Finding(OK, "leader", f"{leading[0]} in term {reply.term}")
    # One that is down is named, too, until the others notice; they have no link to it.
    named = next((node for node in away if node.id == reply.leader), None)
    if not leading and named is not None and any(named.id in one.links for one in there):
        words = f"{named.id} in term {reply.term}, and its gRPC cannot be reached"
        remedy = "look at its grpc_listen, and at firewalls between the nodes"
        return Finding(ERROR, "leader", words, _REFUSED if named.refusal else remedy)
    words = f"{' and '.join(leading)} lead" if leading else "there is none"
    remedy = "ask again; a majority of the members must reach each other"
    return Finding(ERROR, "leader", words, remedy)


def _links(there: list[node_pb2.Node]) -> Finding:
    # A disk that waits to rejoin has no links before a majority has told it the cluster.
    linking = [node for node in there if node.birth or not node.rejoining]
    alone = [
        f"{node.id} to {other.id}"
        for node in linking
        for other in linking
        if other.id not in (node.id, *node.links)
    ]
    if alone:
        remedy = "look at peer_listen, firewalls and the log of both"
        return Finding(ERROR, "links", f"there is no link from {', '.join(alone)}", remedy)
    return Finding(OK, "links", "each node has one to all others that answer")


def _same(name: str, values: Sequence[str], remedy: str) -> Finding:
    if len(values) > 1:
        return Finding(WARNING, name, f"they differ: {', '.join(values)}", remedy)
    return Finding(OK, name, f"all the same: {', '.join(values) or 'none yet'}")


def replicas(reply: admin_pb2.StatusReply) -> Finding:
    """Compare the states of the nodes that report a digest of the same index."""
    told: dict[tuple[str, int, int], dict[int, list[str]]] = {}
    for node in reply.nodes:
        own = node.digests
        for what, index, version, value in (
            (_IMAGE, own.image_index, own.image_version, own.image_digest),
            (_STATE, own.state_index, 0, own.state_hash),
        ):
            if index:
                told.setdefault((what, index, version), {}).setdefault(value, []).append(node.id)
    for (what, index, _), values in sorted(told.items()):
        if len(values) > 1:
            return _differing(list(values.values()), f"at index {index} ({what})", len(reply.nodes))
    same = [(nodes, at) for (_, at, _), values in told.items() for nodes in values.values()]
    nodes, index = max(same, key=lambda one: (len(one[0]), one[1]), default=([], 0))
    if len(reply.nodes) == 1:
        return Finding(OK, "replicas", "the cluster has one node, there is none to compare it with")
    if len(nodes) < 2:
        return Finding(OK, "replicas", "no two nodes were at the same index: ask again in a minute")
    words = f"{', '.join(nodes)} have the same state at index {index}"
    return Finding(OK, "replicas", words)


def _differing(sides: list[list[str]], where: str, members: int) -> Finding:
    """Name the nodes that differ from a majority, or all sides if there is no majority."""
    right = max(sides, key=len)
    if 2 * len(right) > members:
        wrong = ", ".join(name for side in sides if side is not right for name in side)
        words = f"{wrong} differs from {', '.join(right)} {where}"
        remedy = f"stop {wrong}, keep its data directory for inspection, start it with --rejoin on "
        remedy += "an empty one"
    else:
        words = f"{' and '.join(map(', '.join, sides))} differ {where}, and no side is a majority"
        remedy = "start the members that are away; keep all data directories"
    remedy += '; "Replicas differ" in docs/operating.md'
    return Finding(ERROR, "replicas", words, remedy)


# --- a data directory, or a configuration ---------------------------------------------------------


def _of_path(path: str) -> Iterator[Finding]:
    if os.path.isdir(path):
        return _of_directory(path)
    return _of_configuration(path)


def _of_directory(path: str) -> Iterator[Finding]:
    files = ReadOnlyFiles()
    remedy = "start a new disk with --rejoin if the others have a majority, else docs/operating.md"
    try:
        record = identities.read_stopped(files, path)
        found = look(files, path, record)
    except Damaged as error:
        yield Finding(ERROR, f"{path} damage", str(error), remedy)
        return
    except (BeanpoleError, OSError) as error:
        yield Finding(ERROR, path, words_of(error), "stop its node, or name a data directory")
        return
    about = inspect.as_json(record, found)
    words = f"node {record.node} of cluster {record.cluster}, {record.standing}"
    yield Finding(OK, f"{path} identity", words)
    for line in found.damage:
        yield Finding(ERROR, f"{path} damage", line, remedy)
    for line in found.events_damage:
        yield Finding(WARNING, f"{path} damage", line, EVENTS_REMEDY)
    try:
        read_checked(files, os.path.join(path, CLOCK_FILE), record.owner)
    except (BeanpoleError, OSError) as error:
        yield Finding(ERROR, f"{path} clock", words_of(error), CLOCK_REMEDY)
    if found.damage:
        return
    log, snapshot, jobs = about["log"], about["snapshot"], about["jobs"]
    if log is None:
        yield Finding(OK, f"{path} log", "none: it never ran")
        return
    yield Finding(OK, f"{path} log", f"index {log['first']} to {log['last']}, without a gap")
    words = "none" if snapshot is None else f"index {snapshot['index']}, {snapshot['bytes']} bytes"
    yield Finding(OK, f"{path} snapshot", words)
    yield Finding(OK, f"{path} jobs", inspect.counted(jobs or {}) or "none")
    if about["qless"]:
        yield Finding(OK, f"{path} jobs of qless", inspect.counted(about["qless"]))


def _of_configuration(path: str) -> Iterator[Finding]:
    if not (os.path.exists(path) or checking.hidden(path)):
        remedy = "name a data directory or a configuration file"
        yield Finding(ERROR, path, "it does not exist", remedy)
        return
    try:
        config = configuration.load(path, os.environ, {})
    except BeanpoleError as error:
        yield Finding(ERROR, path, str(error), "fix it; docs/operating.md lists all settings")
        return
    for weight, words in checking.findings(config):
        level = _OF_CHECKING[weight]
        yield Finding(level, path, words, "" if level == OK else "see `beanpoled --check`")
