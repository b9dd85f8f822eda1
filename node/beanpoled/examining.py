"""Problems that a running node finds in itself, for `beanpole doctor`. It changes nothing.

Problems of a start are in `checking`; problems that only all nodes together can show are found by
the command.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from beanpole.addresses import TLS_PREFIX, UNIX_PREFIX, is_loopback
from beanpole.core.users import ADMIN, User
from beanpole.errors import ConfigurationError
from beanpoled.config.node import NodeConfig
from beanpoled.trust import secret_file
from beanpoled.trust.certificates import of_clients, of_peers
from beanpoled.trust.validity import Validity, validities
from beanpoled.view import Metrics, NodeView

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"
# Found by each node, and by the command, which compares all nodes that answer.
CLOCKS: Final = "clocks"

# A change waits for the loops of two nodes, several times.
LATE_MEAN_MAX_S: Final = 0.1
# Every change waits for a sync on a majority.
SYNC_MEAN_MAX_S: Final = 0.05
# The mean is since the start: after days it hides a disk that has become slow. One sync of a good
# disk may take longer than the mean, but not this long.
SYNC_LAST_MAX_S: Final = 4 * SYNC_MEAN_MAX_S
# Six times the age of the alert BeanpoleOldReadyJob: the workers are gone, and not only slow.
READY_MAX_S: Final = 3600.0
# A heartbeat tells the clock of its sender, and takes a while.
SKEW_MAX_S: Final = 5.0
# Like the alert BeanpoleConnectionsNearLimit.
CONNECTIONS_SHARE_MAX: Final = 0.8
# Like the alert BeanpoleSnapshotStale.
SNAPSHOT_BEHIND: Final = 2


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
        level: OK, WARNING or ERROR.
        name: of the check, for programs.
        words: the result, in words.
        remedy: what to do; empty if nothing is wrong.
    """

    level: str
    name: str
    words: str
    remedy: str = ""


def examine(
    view: NodeView,
    config: NodeConfig,
    anonymous: User,
    now_s: float,
    refused: Mapping[str, str] = MappingProxyType({}),
    hanging: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Check a node.

    Args:
        view: of the node.
        config: in force at the node.
        anonymous: the user in force for those without a token.
        now_s: wall clock.
        refused: why files of certificates are not in use, by the prefix of their settings.
        hanging: why they cannot be read at present, which would stop the loop, in the same way.
    """
    now = view.metrics()
    if view.serving:
        yield Finding(OK, "serving", f"{view.state}, machine version {view.machine_version}")
    else:
        words = f"it is {view.state}: {view.waits() or 'it waits'}"
        remedy = "start the members that are away, if any; see its log"
        yield Finding(ERROR, "serving", words, remedy)
    if view.draining:
        yield Finding(WARNING, "draining", "it refuses puts", "SIGUSR2 ends that")
    if view.durability != "sync":
        words = "durability is memory: a loss of power of all nodes loses jobs"
        yield Finding(WARNING, "durability", words, "set durability = sync on all nodes")
    yield from _clocks(view)
    yield _loop(now)
    yield from _disk(view, now, config)
    if view.caught_up:  # before, they may be old, and every caller may be shown the others
        yield from _jobs(view, now)
    yield from _clients(now, config)
    yield from _certificates(config, now_s, refused, hanging)
    if odd := secret_file.warning(config.peer_secret, config.peer_secret_file):
        remedy = "unless it is meant, write the secret without it for all nodes, and reload all"
        yield Finding(WARNING, "peer_secret", odd, remedy)
    yield from _ports(config, anonymous)


def _clocks(view: NodeView) -> Iterator[Finding]:
    """Name the members whose clocks differ: a certificate may keep the command from asking them.

    Only links tell the clocks; a member whose link that certificate refuses tells none.
    """
    off = {name: ahead_s for name, ahead_s in view.skews_s().items() if abs(ahead_s) > SKEW_MAX_S}
    if off:
        each = [
            f"that of {name} is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} it"
            for name, ahead_s in off.items()
        ]
        words = f"compared with that of {view.node_id}, {', '.join(each)}"
        yield Finding(WARNING, CLOCKS, words, "let all machines set their clocks by NTP")


def _loop(now: Metrics) -> Finding:
    words = f"late by {now.loop_lag_seconds_mean:.3f} s on average, in some ten seconds"
    if now.loop_lag_seconds_mean <= LATE_MEAN_MAX_S:
        return Finding(OK, "loop", words)
    remedy = "give the node more time of the processors; while it leads, every change waits for it"
    remedy += ": `beanpole cluster leader --transfer`"
    return Finding(WARNING, "loop", words, remedy)


def _disk(view: NodeView, now: Metrics, config: NodeConfig) -> Iterator[Finding]:
    free, reserve = now.disk_free_bytes, now.disk_reserve_bytes
    words = f"{free >> 20} MiB are free, puts end below {reserve >> 20} MiB"
    if view.disk_full:
        words += ", and the log takes nothing more"
    remedy = "make room on the disk of data_dir, or lower event_retain_bytes"
    level = ERROR if view.disk_full or free < reserve else WARNING if free < 2 * reserve else OK
    yield Finding(level, "disk room", words, remedy if level != OK else "")
    if view.disk_hangs or view.disk_is_behind:
        yield Finding(ERROR, "disk", "the disk does not keep up", "look at the disk; see its log")
    mean_s = now.fsync_seconds_total / now.fsyncs_total if now.fsyncs_total else 0.0
    last_s = now.fsync_seconds_last
    was_slow, is_slow = mean_s > SYNC_MEAN_MAX_S, last_s > SYNC_LAST_MAX_S
    words = f"{mean_s * 1000:.1f} ms on average, "
    words += f"{'but ' if is_slow and not was_slow else ''}the last took {last_s:.3f} s"
    slow = was_slow or is_slow
    remedy = "put data_dir on a disk that nothing else uses"
    yield Finding(WARNING if slow else OK, "disk sync", words, remedy if slow else "")
    due = max(now.snapshot_bytes, config.snapshot_bytes_min)
    stale = now.snapshot_behind_bytes > SNAPSHOT_BEHIND * due
    words = f"{now.snapshot_behind_bytes >> 20} MiB of log are behind the snapshot"
    remedy = "see the log of the node: a snapshot fails, or takes very long"
    yield Finding(WARNING if stale else OK, "snapshot", words, remedy if stale else "")
    if now.events_lost_total:
        words = f"{now.events_lost_total} events could not be kept here since the start"
        yield Finding(WARNING, "events", words, "read them from another node")


def _jobs(view: NodeView, now: Metrics) -> Iterator[Finding]:
    oldest = max(now.queues, key=lambda one: one.ready_s, default=None)
    if oldest is not None and oldest.ready_s > READY_MAX_S:
        words = f"the next job of {oldest.name!r} ({oldest.protocol}) waits for "
        words += f"{oldest.ready_s / 3600:.1f} h"
        yield Finding(WARNING, "ready jobs", words, "start workers; `beanpole top` shows more")
    else:
        yield Finding(OK, "ready jobs", "none of the largest queues waits for an hour")
    # The sum of all protocols has the failed jobs of qless, which those commands do not know. The
    # two numbers may be of different moments.
    failed = now.qless.failed
    buried = max(0, view.jobs().buried - failed)
    if buried:
        remedy = "`beanpole job list --state buried` shows them, `beanpole queue kick` brings back"
        yield Finding(WARNING, "buried jobs", f"{buried} jobs are buried", remedy)
    else:
        yield Finding(OK, "buried jobs", "none")
    if failed:
        remedy = "`failed` of a client of qless shows them by group, `unfail` brings a group back"
        yield Finding(WARNING, "failed jobs of qless", f"{failed} jobs failed", remedy)
    else:
        yield Finding(OK, "failed jobs of qless", "none")


def _clients(now: Metrics, config: NodeConfig) -> Iterator[Finding]:
    used = sum(one.connections for one in now.clients.values())
    words = f"{used} of {config.connections_max}"
    near = used > CONNECTIONS_SHARE_MAX * config.connections_max
    remedy = "raise connections_max, which changes live; `beanpole node connections` shows them"
    yield Finding(WARNING if near else OK, "connections", words, remedy if near else "")


def _certificates(
    config: NodeConfig, now_s: float, refused: Mapping[str, str], hanging: Mapping[str, str]
) -> Iterator[Finding]:
    for setting, is_peers in (("tls_", False), ("peer_tls_", True)):
        if words := hanging.get(setting, ""):
            remedy = "make the volume answer: the node then reads the files by itself"
            yield Finding(ERROR, f"{setting}* files", words, remedy)
            continue
        lasting = [_lasting(one) for one in validities(config, now_s, is_peers)]
        yield from lasting
        if any(one.level == ERROR for one in lasting):
            # A handshake would fail for the same reason.
            if before := refused.get(setting, ""):
                remedy = "fix the files: they are read within ten seconds"
                yield Finding(ERROR, f"{setting}* files", before, remedy)
            continue
        try:
            made = of_peers(config, config.node_id) if is_peers else of_clients(config)
            fault = made.fault() if made is not None else ""
            list_fault = made.list_fault() if made is not None else ""
        except ConfigurationError as error:
            fault, list_fault = str(error), ""
        # They may be good now, and the node has yet to read them again.
        if fault := fault or refused.get(setting, ""):
            remedy = "fix the files: they are read within ten seconds"
            yield Finding(ERROR, f"{setting}* files", fault, remedy)
        if list_fault:
            # An intermediate CA, known only to clients, may have signed the list.
            remedy = "put the list of that CA in its place: it is read within ten seconds"
            yield Finding(WARNING, f"{setting}crl_file", list_fault, remedy)


def _lasting(one: Validity) -> Finding:
    if one.broken:
        return Finding(ERROR, one.setting, f"{one.path} {one.broken}", "put it back")
    level = ERROR if one.is_invalid else WARNING if one.is_near else OK
    remedy = "put another one in its place: it is read within ten seconds"
    return Finding(level, one.setting, f"{one.path} {one.words}", remedy if level != OK else "")


def _ports(config: NodeConfig, anonymous: User) -> Iterator[Finding]:
    """Ports that other machines can reach, and what those without a token may do there.

    The number of users says nothing: a cluster with users is open until one is `anonymous`.
    """
    is_open = any(bits & ADMIN for _, bits in anonymous.rights)
    remedy = "take the right admin from those without a token, after a user has all rights: "
    remedy += "`beanpole user set anonymous`; or "
    if is_open and not is_loopback(config.grpc_listen) and not config.has_peer_tls:
        words = f"grpc_listen = {config.grpc_listen} takes admin calls without a certificate or "
        remedy_here = f"{remedy}use peer_tls_*, or keep others out by a firewall"
        yield Finding(WARNING, "gRPC", f"{words}token", remedy_here)
    places = [place for listed in config.client_addresses.values() for place in listed]
    # TLS keeps no client out unless clients have to show a certificate.
    proven = (UNIX_PREFIX, TLS_PREFIX) if config.tls_client_ca_file else UNIX_PREFIX
    opened = [
        at
        for at in places
        if not at.startswith(proven) and not is_loopback(at.removeprefix(TLS_PREFIX))
    ]
    if opened and is_open:
        words = f"{', '.join(opened)} take commands of all that reach them: no token is needed, "
        remedy += "use tls: addresses with tls_client_ca_file, or a firewall"
        yield Finding(WARNING, "client ports", f"{words}even with the right admin", remedy)
    else:
        yield Finding(OK, "client ports", f"{len(places)} addresses, {len(opened)} for others")
