"""A node's configuration: TOML file, then environment, then flags; the later one wins.

Every error message names the setting, the source of its value, the value, and what is allowed.
Single values are parsed in `settings`; the effects of a setting are described in docs/operating.md.
"""

import argparse
import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from beanpole import constants
from beanpole.addresses import TLS_PREFIX, UNIX_PREFIX, is_loopback, split_address
from beanpole.client import where
from beanpole.errors import ConfigurationError
from beanpoled.config import clients, memory, tls, toml_file
from beanpoled.config.clients import ClientConfig
from beanpoled.config.protocols import FIRST, PROTOCOLS, Protocol
from beanpoled.config.settings import (
    GIB,
    KIB,
    MIB,
    QUEUE_BYTES_MIN,
    Address,
    Addresses,
    Choice,
    Dial,
    Integer,
    Listen,
    Listeners,
    Members,
    Name,
    OptionalPath,
    Path,
    Secret,
    Setting,
    Size,
)
from beanpoled.trust.secret_file import read_secret

ENVIRONMENT_PREFIX: Final = "BEANPOLE_"
# Variables of ours that are no settings of a node: the path of its file, and those of commands.
ENVIRONMENT_OTHERS: Final = where.VARIABLES | {"BEANPOLE_CONFIG"}
# Kubernetes sets these in every container next to a service whose name begins with "beanpole".
_SERVICE_LINK: Final = re.compile(r"BEANPOLE_([A-Z0-9_]+_)?(SERVICE_(HOST|PORT.*)|PORT(_.*)?)")

# An hour: a longer value means no time-out at all, which the protocol rules out.
MILLISECONDS_MAX: Final = 3_600_000
BYTES_MAX: Final = 1024 * GIB
# Ten years: a longer value means for ever, which disks rule out.
SECONDS_MAX: Final = 10 * 366 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(ClientConfig):
    """The configuration of one node. `load` makes it and checks every value."""

    cluster: str
    node_id: str
    members: Mapping[str, Addresses]
    dial: Mapping[str, Mapping[str, str]]
    data_dir: str
    listen: tuple[str, ...]
    listeners: Mapping[str, tuple[str, ...]]
    peer_listen: str
    grpc_listen: str
    http_listen: str
    peer_secret: str
    peer_secret_file: str
    peer_old_proofs: str
    durability: str
    raft_min_ms: int
    raft_max_ms: int
    heartbeat_ms: int
    command_timeout_ms: int
    fence_timeout_ms: int
    node_timeout_ms: int
    drain_timeout_ms: int
    max_job_size: int
    sessions_max: int
    tubes_max: int
    jobs_max: int
    queue_bytes_max: int
    client_output_bytes_max: int
    outbox_bytes_max: int
    disk_reserve_bytes: int
    wal_segment_bytes: int
    snapshot_bytes_min: int
    log_memory_bytes: int
    log_retain_bytes: int
    events: str
    event_segment_bytes: int
    event_segment_age_s: int
    event_retain_bytes: int
    event_retain_age_s: int
    upgrade_finalize: str
    gearman_shutdown: str
    qless_flush: str
    log_level: str
    log_format: str
    rejoin: bool = False
    # The protocols with default addresses: another program may use these.
    unconfigured: frozenset[str] = frozenset()
    # The source of each setting's value: see `load`.
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def peers(self) -> tuple[str, ...]:
        """The other members' ids, in the order of the configuration."""
        return tuple(name for name in self.members if name != self.node_id)

    def peer_address(self, member: str) -> str:
        """The address at which to dial the peer link of a member."""
        return self.dial.get(member, {}).get("peer", self.members[member].peer)

    def grpc_address(self, member: str) -> str:
        """The address at which to dial the gRPC server of a member."""
        return self.dial.get(member, {}).get("grpc", self.members[member].grpc)

    @property
    def client_addresses(self) -> Mapping[str, tuple[str, ...]]:
        """The addresses at which clients connect, by protocol."""
        return {FIRST: self.listen, **self.listeners}

    def own_addresses(self) -> Iterator[tuple[str, str]]:
        """The addresses at which this node must be able to listen, by the names of the settings."""
        for name in ("peer_listen", "grpc_listen", "http_listen"):
            yield name, getattr(self, name)
        for protocol, places in self.client_addresses.items():
            if protocol not in self.unconfigured:
                name = "listen" if protocol == FIRST else f"listeners.{protocol}"
                yield from ((name, address.removeprefix(TLS_PREFIX)) for address in places)

    @property
    def config_hash(self) -> str:
        """A hash of the settings that all nodes share: 16 hexadecimal digits for the handshake.

        It covers the cluster's name, the members' ids, and the durability: one node in memory would
        weaken the guarantee of all others. It excludes addresses, since each node may reach the
        others at different ones, and limits and time-outs, which can change node by node.
        """
        agreed = [1, self.cluster, sorted(self.members), self.durability]
        return hashlib.sha256(json.dumps(agreed).encode()).hexdigest()[:16]


_TIME: Final = Integer(1, MILLISECONDS_MAX)
# With less there may be no election: half of it would pass between two turns (`Elections`, C4).
_ELECTION: Final = Integer(50, MILLISECONDS_MAX)
_LIMIT: Final = Integer(0, MILLISECONDS_MAX)
_COUNT: Final = Integer(1, 2**40)
_SECONDS: Final = Integer(1, SECONDS_MAX)

SETTINGS: Final = (
    Setting("cluster", Name(), None, "name of the cluster, the same on all nodes"),
    Setting("node_id", Name(), None, "id of this node among the members"),
    Setting("members", Members(), None, "all nodes of the cluster and their addresses"),
    Setting("dial", Dial(), {}, "addresses to dial in place of the members' own"),
    Setting("data_dir", Path(), None, "folder of the log and the snapshots"),
    Setting("listen", Listen(), PROTOCOLS[0].listen, "addresses for beanstalk clients"),
    Setting("listeners", Listeners(), {}, "addresses for clients of other protocols"),
    Setting("peer_listen", Address(), None, "address for the other nodes"),
    Setting("grpc_listen", Address(), None, "address of the gRPC services"),
    Setting("http_listen", Address(), None, "address of health and metrics"),
    Setting("peer_secret", Secret(), "", "shared secret of the nodes"),
    Setting("peer_secret_file", OptionalPath(), "", "file that holds the shared secret"),
    Setting(
        "peer_old_proofs",
        Choice("auto", "refuse"),
        "auto",
        "whether nodes of releases up to 0.3.0 may prove the secret in their way during an upgrade",
    ),
    *tls.SETTINGS,
    Setting("durability", Choice("sync", "memory"), "sync", "storage an acknowledgement waits for"),
    Setting("raft_min_ms", _ELECTION, 500, "shortest silence of a leader before an election"),
    Setting("raft_max_ms", _TIME, 1000, "longest silence of a leader before an election"),
    Setting("heartbeat_ms", _TIME, 50, "longest time between two heartbeats of a leader"),
    Setting("command_timeout_ms", _TIME, 5000, "time for which a command waits for a majority"),
    Setting("fence_timeout_ms", _TIME, 6500, "time for which a node cut off keeps its clients"),
    Setting("node_timeout_ms", _TIME, 8000, "silence after which a node is declared down"),
    Setting("drain_timeout_ms", _LIMIT, 10_000, "longest wait of a stop for clients with jobs"),
    Setting(
        "max_job_size",
        Size(1, constants.JOB_SIZE_MAX_BYTES),
        constants.JOB_SIZE_DEFAULT_BYTES,
        "largest body of a job",
    ),
    *clients.SETTINGS,
    Setting("sessions_max", _COUNT, constants.SESSIONS_MAX_DEFAULT, "sessions of the cluster"),
    Setting("tubes_max", _COUNT, constants.TUBES_MAX_DEFAULT, "tubes of the cluster"),
    Setting("jobs_max", _COUNT, constants.JOBS_MAX_DEFAULT, "jobs of the cluster"),
    Setting(
        "queue_bytes_max",
        Size(QUEUE_BYTES_MIN, BYTES_MAX),
        0,  # of the memory that is found: see `memory`
        "memory for the jobs of the cluster, on each node",
    ),
    # Holds four of the largest jobs, so that a slow client is paused before it is closed.
    Setting("client_output_bytes_max", Size(4 * KIB, GIB), 8 * MIB, "unread replies of a client"),
    Setting(
        "outbox_bytes_max",
        Size(constants.BATCH_MAX_BYTES, BYTES_MAX),
        64 * MIB,
        "commands of this node's clients that are not applied yet",
    ),
    Setting("disk_reserve_bytes", Size(0, BYTES_MAX), 256 * MIB, "free disk below which puts end"),
    Setting("wal_segment_bytes", Size(64 * KIB, 4 * GIB), 64 * MIB, "size of one file of the log"),
    Setting("snapshot_bytes_min", Size(64 * KIB, BYTES_MAX), 64 * MIB, "log before a snapshot"),
    Setting("log_memory_bytes", Size(64 * KIB, BYTES_MAX), 64 * MIB, "newest log kept in memory"),
    Setting(
        "log_retain_bytes",
        Size(64 * KIB, BYTES_MAX),
        256 * MIB,
        "log kept for followers that are behind",
    ),
    Setting("events", Choice("on", "off"), "on", "whether this node keeps the events of jobs"),
    Setting("event_segment_bytes", Size(4 * KIB, GIB), 16 * MIB, "events in memory before a file"),
    Setting("event_segment_age_s", _SECONDS, 60, "longest time of events in memory"),
    Setting("event_retain_bytes", Size(0, BYTES_MAX), 4 * GIB, "files of events that are kept"),
    Setting("event_retain_age_s", _SECONDS, 7 * 86_400, "age to which events are kept"),
    Setting("upgrade_finalize", Choice("auto", "manual"), "auto", "party that ends an upgrade"),
    Setting(
        "gearman_shutdown", Choice("on", "off"), "off", "whether Gearman clients may stop the node"
    ),
    Setting("qless_flush", Choice("on", "off"), "off", "whether qless clients may remove all jobs"),
    Setting("log_level", Choice("debug", "info", "warning", "error"), "info", "lines of the log"),
    Setting("log_format", Choice("text", "json"), "text", "form of the log's lines"),
)
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}

assert {item.name for item in fields(NodeConfig)} == {
    *(*_BY_NAME, "rejoin", "unconfigured", "sources")
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag per setting, --config and --rejoin to a parser."""
    parser.add_argument("--config", metavar="FILE", help="TOML file (BEANPOLE_CONFIG)")
    for setting in SETTINGS:
        flag = "--" + setting.name.replace("_", "-")
        words = f"{setting.words}: {setting.kind.allowed}".replace("%", "%%")
        parser.add_argument(flag, dest=setting.name, metavar="VALUE", help=words)
    parser.add_argument(
        "--rejoin",
        action="store_true",
        help="this node lost its disk: take the log from the others before it votes again",
    )


def from_arguments(
    arguments: argparse.Namespace,
    environment: Mapping[str, str],
    protocols: Sequence[Protocol] = PROTOCOLS,
    is_again: bool = False,
) -> NodeConfig:
    """Load the configuration from a command line (see `add_flags`) and an environment.

    Raises:
        ConfigurationError: see `load`.
    """
    path = arguments.config or environment.get("BEANPOLE_CONFIG")
    given = vars(arguments)
    flags = {name: given[name] for name in _BY_NAME if given.get(name) is not None}
    return load(path, environment, flags, arguments.rejoin, protocols, is_again)


def load(
    path: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    rejoin: bool = False,
    protocols: Sequence[Protocol] = PROTOCOLS,
    is_again: bool = False,
) -> NodeConfig:
    """Read, join and check a configuration.

    Args:
        path: the TOML file, None for none.
        environment: all variables of the process; only those that begin with BEANPOLE_ are used.
        flags: text by setting name.
        rejoin: comes from the command line only, because it applies to one start.
        protocols: the protocols of the program.
        is_again: whether a running node reads it again; the file cannot be a pipe then.

    Returns:
        The configuration, with the source of each setting: "default", "file", "environment",
        "flag", and "peer_secret_file" for a secret that was read from that file.

    Raises:
        ConfigurationError: the message names the setting, its source, its value, what is allowed.
    """
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    sources = dict.fromkeys(values, "default")
    if path is not None:
        for name, value in _read_file(path, is_again).items():
            values[name] = _checked(name, value, path)
            sources[name] = "file"
    for name, text in _from_environment(environment).items():
        values[name] = _checked(name, text, ENVIRONMENT_PREFIX + name.upper(), text=True)
        sources[name] = "environment"
    for name, text in flags.items():
        values[name] = _checked(name, text, "--" + name.replace("_", "-"), text=True)
        sources[name] = "flag"
    if not values["queue_bytes_max"]:
        values["queue_bytes_max"] = memory.queue_bytes_default(memory.found())
    for name, value in values.items():
        if value is None:
            raise ConfigurationError(
                f"{name} is not set; it must be {_BY_NAME[name].kind.allowed}. Set it in the "
                f"{'file' if path else 'file of --config FILE or BEANPOLE_CONFIG'}, as "
                f"{ENVIRONMENT_PREFIX}{name.upper()} or as --{name.replace('_', '-')}"
            )
    if _read_secret_file(values):
        sources["peer_secret"] = "peer_secret_file"
    values["members"] = MappingProxyType(values["members"])
    values["dial"] = MappingProxyType(values["dial"])
    given = values["listeners"]
    values["listeners"] = MappingProxyType(_all_listeners(given, protocols))
    unconfigured = frozenset(values["listeners"]) - frozenset(given)
    config = NodeConfig(**values, rejoin=rejoin, unconfigured=unconfigured, sources=sources)
    check_relations(config)
    return config


def _read_secret_file(values: dict[str, Any]) -> bool:
    """Read the shared secret from its file, if one is set; repeated at each load."""
    path = values["peer_secret_file"]
    if not path:
        return False
    if values["peer_secret"]:
        raise ConfigurationError(
            f"peer_secret and peer_secret_file = {path!r} are both given; give one of them"
        )
    secret = read_secret("peer_secret_file", path)
    if not secret:
        raise ConfigurationError(f"peer_secret_file = {path!r} is not allowed: it is empty")
    values["peer_secret"] = _checked("peer_secret", secret, path)
    return True


def _read_file(path: str, is_again: bool) -> dict[str, object]:
    """Read a TOML file and reject keys that are not settings."""
    found = toml_file.read(path, is_again)
    for name in found:
        if name not in _BY_NAME:
            raise ConfigurationError(f"{path}: unknown key {name!r}{_near(name)}")
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Select our variables; one of ours that is no setting is an error, and not ignored."""
    found: dict[str, str] = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in ENVIRONMENT_OTHERS:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name in _BY_NAME:
            found[name] = text
        elif not _SERVICE_LINK.fullmatch(variable):
            raise ConfigurationError(f"unknown environment variable {variable}{_near(name)}")
    return found


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(_BY_NAME)}"


def _checked(name: str, value: object, source: str, text: bool = False) -> object:
    kind = _BY_NAME[name].kind
    try:
        return kind.from_text(str(value)) if text else kind.check(value)
    except ValueError as error:
        shown = "(a secret)" if isinstance(kind, Secret) else repr(value)
        raise ConfigurationError(
            f"{name} = {shown} (from {source}) is not allowed: it must be {error}"
        ) from None


def _all_listeners(
    given: Mapping[str, tuple[str, ...]], protocols: Sequence[Protocol]
) -> dict[str, tuple[str, ...]]:
    """Add the protocols that are not configured; reject unknown names."""
    others = {protocol.name: protocol.listen for protocol in protocols if protocol.name != FIRST}
    if FIRST in given:
        raise ConfigurationError(
            f"listeners names {FIRST!r}, whose addresses are the setting listen"
        )
    for name in given:
        if name not in others:
            near = difflib.get_close_matches(name, others, n=1)
            known = ", ".join(others) or f"none beside {FIRST}"
            raise ConfigurationError(
                f"listeners names {name!r}, which is no protocol of this program"
                + (f"; did you mean {near[0]!r}?" if near else f"; known are {known}")
            )
    return {**others, **given}


def check_relations(config: NodeConfig) -> None:
    """Check the settings against each other."""
    if config.node_id not in config.members:
        raise ConfigurationError(
            f"node_id = {config.node_id!r} is not one of the members: {', '.join(config.members)}"
        )
    for name in config.dial:
        if name not in config.members:
            raise ConfigurationError(
                f"dial names {name!r}, which is not one of the members: {', '.join(config.members)}"
            )
    _check_addresses(config)
    places = [address for listed in config.client_addresses.values() for address in listed]
    tls_places = [address for address in places if address.startswith(TLS_PREFIX)]
    tls.check(config, tls_places, config.members)
    _check_times(config)
    if config.client_output_bytes_max < config.max_job_size + KIB:
        raise ConfigurationError(
            f"client_output_bytes_max = {config.client_output_bytes_max} is not allowed: it must "
            f"hold one job: at least max_job_size + 1024 = {config.max_job_size + KIB}"
        )
    if config.log_retain_bytes < config.log_memory_bytes:
        raise ConfigurationError(
            f"log_retain_bytes = {config.log_retain_bytes} is not allowed: it must be at least "
            f"log_memory_bytes = {config.log_memory_bytes}"
        )


def _check_addresses(config: NodeConfig) -> None:
    owners: dict[str, str] = {}
    for name, addresses in config.members.items():
        for kind, address in zip(Addresses._fields, addresses, strict=True):
            owner = f"members.{name}.{kind}"
            if address in owners:
                raise ConfigurationError(
                    f"{owner} = {address!r} is not allowed: {owners[address]} has that address"
                )
            owners[address] = owner
    listening: list[tuple[str, str]] = []
    for owner, address in config.own_addresses():
        for other, taken in listening:
            if _same_place(address, taken):
                raise ConfigurationError(
                    f"{owner} = {address!r} is not allowed: {other} = {taken!r} listens there"
                )
        listening.append((owner, address))
    for setting in ("peer_listen", "grpc_listen"):
        address = getattr(config, setting)
        if not (config.peer_secret or config.has_peer_tls or is_loopback(address)):
            raise ConfigurationError(
                f"{setting} = {address!r} is not allowed: without peer_secret or "
                "peer_tls_certificate_file it must be a loopback address such as "
                f"127.0.0.1:{split_address(address)[1]}, because whoever reaches it reads and "
                "changes the queue"
            )


def _same_place(one: str, two: str) -> bool:
    """Whether two sockets cannot listen at these addresses: they are equal, or one is a wildcard.

    Port 0 stands for a new port each time.
    """
    if one.startswith(UNIX_PREFIX) or two.startswith(UNIX_PREFIX):
        return one == two
    (host, port), (other, other_port) = split_address(one), split_address(two)
    if not port or port != other_port:
        return False
    if (":" in host) != (":" in other):
        return False
    return host == other or bool({"0.0.0.0", "::"} & {host, other})


def _check_times(config: NodeConfig) -> None:
    """Check that an election is late enough, and that a node is declared down last of all."""
    told_ms = config.command_timeout_ms + config.raft_max_ms
    ordered = (
        ("3 x heartbeat_ms", 3 * config.heartbeat_ms, "<", "raft_min_ms"),
        ("raft_min_ms", config.raft_min_ms, "<", "raft_max_ms"),
        ("3 x raft_max_ms", 3 * config.raft_max_ms, "<=", "command_timeout_ms"),
        # A command that came while the old leader was still trusted fails before the node is
        # fenced.
        ("command_timeout_ms + raft_max_ms", told_ms, "<=", "fence_timeout_ms"),
        ("fence_timeout_ms", config.fence_timeout_ms, "<", "node_timeout_ms"),
    )
    for low_name, low, relation, high_name in ordered:
        high = getattr(config, high_name)
        if low > high or (relation == "<" and low == high):
            raise ConfigurationError(
                f"{high_name} = {high} is not allowed: {low_name} {relation} {high_name} must "
                f"hold, and {low_name} is {low}"
            )
