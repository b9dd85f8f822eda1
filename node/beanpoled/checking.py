"""`beanpoled --check`: report the problems of a start on this machine, without starting anything.

Nothing is written, made or removed, and the only requests to other machines are look-ups of names.
`config` decides what a configuration may contain; this module compares it with its machine.
"""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from beanpole.addresses import TLS_PREFIX, UNIX_PREFIX, split_address
from beanpole.errors import BeanpoleError, ConfigurationError, WrongIdentity
from beanpole.storage import remedies
from beanpole.storage.files import INODES_MIN
from beanpole.storage.readonly import ReadOnlyFiles
from beanpoled import descriptors
from beanpoled.config import memory, memory_budget
from beanpoled.config.node import NodeConfig
from beanpoled.config.settings import MIB
from beanpoled.disk.disks import read_own
from beanpoled.disk.identity import FOUNDING, short
from beanpoled.host.sockets import is_stale
from beanpoled.trust import secret_file
from beanpoled.trust.certificates import of_clients, of_peers
from beanpoled.trust.validity import Validity, validities

GOOD: Final = "ok"
# A start goes on despite it.
WARNING: Final = "warning"
# A start would end, or not lead to a node that serves; the machine can be repaired.
WRONG: Final = "wrong"
# Like WRONG, but only another configuration helps.
MISCONFIGURED: Final = "wrong configuration"
# The log and the first snapshots take three segments and this (docs/operating.md, "Disk").
DISK_BASE_BYTES: Final = 7 * MIB
# If many files cannot be used, the first few are enough to name.
CLOSED_NAMED_MAX: Final = 3
# A server on this machine answers at once, unless a firewall drops the packets.
CONNECT_TIMEOUT_S: Final = 0.2


class Finding(NamedTuple):
    """The result of one check."""

    weight: str
    words: str


def findings(config: NodeConfig) -> Iterator[Finding]:
    """Check everything that a configuration names on this machine."""
    members = ", ".join(config.members)
    yield Finding(GOOD, f"node {config.node_id} of cluster {config.cluster}: {members}")
    runs = _is_held(config.data_dir)
    yield _directory(config)
    if runs:
        yield Finding(GOOD, "a node runs on this directory: its addresses are its own")
    else:
        yield from _addresses(config)
    yield from _certificates(config)
    if odd := secret_file.warning(config.peer_secret, config.peer_secret_file):
        yield Finding(WARNING, odd)
    yield from _members(config)
    yield from _disk(config)
    too_much = memory_budget.warning(config, config.queue_bytes_max, memory.found())
    yield Finding(WARNING, too_much) if too_much else Finding(GOOD, "memory: all limits fit in it")
    wanted = descriptors.wanted(config)
    given = descriptors.obtainable(wanted)
    if given < wanted:
        words = f"{given} file descriptors (ulimit -Hn, fs.nr_open) are too few for connections_max"
        tls = " and handshakes_max" * (config.has_client_tls or config.has_peer_tls)
        yield Finding(WARNING, f"{words}{tls}: {wanted}")


def _is_held(directory: str) -> bool:
    """Whether a running node holds the data directory."""
    try:
        with open(os.path.join(directory, "lock"), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no node was ever started on it, or its state is reported below
    return False


def _directory(config: NodeConfig) -> Finding:
    place = config.data_dir
    if why := hidden(place):
        return Finding(WRONG, f"data_dir {place} cannot be used: {why}")
    if not os.path.exists(place):
        return _parent(place)
    if not os.path.isdir(place):
        return Finding(MISCONFIGURED, f"data_dir {place} is no directory")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        words = f"data_dir {place} is not readable and writable for user {os.geteuid()}"
        return Finding(WRONG, words)
    if closed := _closed_files(place):
        words = f"of data_dir {place}, {', '.join(closed[:CLOSED_NAMED_MAX])}"
        more = f" and {len(closed) - CLOSED_NAMED_MAX} more" * (len(closed) > CLOSED_NAMED_MAX)
        told = f"not readable and writable for user {os.geteuid()}; was it started as another user?"
        return Finding(WRONG, f"{words}{more}: {told}")
    return _identity(config)


def hidden(path: str) -> str:
    """Why the system does not tell whether something has this path; empty if it does."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:  # a folder above it is closed, or the disk fails
        return remedies.told(error)
    return ""


def _parent(place: str) -> Finding:
    """Judge the parent of a data directory that does not exist: can a start make it?"""
    above = _existing(place)
    if not os.path.isdir(above):
        words = f"data_dir {place} cannot be made: {above} is no directory"
        return Finding(MISCONFIGURED, words)
    if not os.access(above, os.W_OK | os.X_OK):
        return Finding(WRONG, f"data_dir {place} cannot be made: {above} is not writable")
    return Finding(GOOD, f"data_dir {place} does not exist yet, a start makes it")


def _existing(place: str) -> str:
    """The path itself if it exists, else the nearest folder above it that does."""
    place = os.path.abspath(place)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    return place


def _identity(config: NodeConfig) -> Finding:
    """Judge the identity of the disk as a start does."""
    place = config.data_dir
    try:
        own = read_own(ReadOnlyFiles(), config)
    except WrongIdentity as error:
        return Finding(MISCONFIGURED, str(error))
    except (BeanpoleError, OSError) as error:
        return Finding(WRONG, str(error))
    if own is None:
        words = "empty: this node waits for all members to found a cluster; if it was a "
        return Finding(GOOD, f"data_dir {place} is {words}member of one before, --rejoin it")
    if own.standing == FOUNDING:
        return Finding(GOOD, f"data_dir {place} waits for all members to found a cluster")
    words = f"is a {own.standing} of the cluster with the birth id {short(own.birth)}"
    return Finding(GOOD, f"data_dir {place} {words}, incarnation {own.incarnation}")


def _certificates(config: NodeConfig) -> Iterator[Finding]:
    """Load the certificates as a start does; a start goes on with unfit ones."""
    for is_peers in (False, True):
        try:
            certificates = of_peers(config, config.node_id) if is_peers else of_clients(config)
            if certificates is None:
                continue
            fault = certificates.fault() or certificates.list_fault()
        except ConfigurationError as error:
            yield Finding(MISCONFIGURED, str(error))
            continue
        lasting = list(validities(config, time.time(), is_peers))
        yield from (_lasting(one) for one in lasting)
        if fault and not any(one.is_invalid for one in lasting):
            yield Finding(WARNING, fault)


def _lasting(one: Validity) -> Finding:
    """Judge a file that OpenSSL has loaded."""
    told = f"{one.setting}: {one.path}"
    if one.broken:
        return Finding(WARNING, f"{told} {one.broken}")
    if one.is_invalid:
        # With such a CA or list the node accepts no certificate, so it can serve no client. Its own
        # certificate is accepted by clients that do not look at the time.
        return Finding(WARNING if one.is_own else WRONG, f"{told} {one.words}")
    fits = "fits its key, and " * one.is_own
    return Finding(WARNING if one.is_near else GOOD, f"{told} {fits}{one.words}")


def _closed_files(place: str) -> list[str]:
    """The files and folders in a directory that this user cannot both read and write."""
    found = []
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if not os.access(path, os.R_OK | os.W_OK):
                found.append(os.path.relpath(path, place))
    return sorted(found)


def _addresses(config: NodeConfig) -> Iterator[Finding]:
    """Try to bind the addresses that a start binds."""
    servers = {
        name: getattr(config, name) for name in ("peer_listen", "grpc_listen", "http_listen")
    }
    wanted = [(name, address, WRONG) for name, address in servers.items()]
    for protocol, addresses in config.client_addresses.items():
        # A start, too, goes on without a default address that is taken.
        weight = WARNING if protocol in config.unconfigured else WRONG
        plain = (address.removeprefix(TLS_PREFIX) for address in addresses)
        wanted += [(f"clients of {protocol}", address, weight) for address in plain]
    good = 0
    for name, address, weight in wanted:
        found = _unix(address) if address.startswith(UNIX_PREFIX) else refusal(address)
        if found is None:
            good += 1
        else:
            # An address that is only in use may be free later.
            yield Finding(
                weight if found.weight == WRONG else found.weight, f"{name}: {found.words}"
            )
    yield Finding(GOOD, f"{good} of {len(wanted)} addresses to listen at are free")


def refusal(address: str) -> Finding | None:
    """Return why no server can listen at HOST:PORT of this machine; None if one can.

    The probe never listens: a client that connected meanwhile would take the node for a serving
    one, and its connection would be reset.
    """
    host, port = split_address(address)
    try:
        (family, kind, _, _, place), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, kind) as probe, socket.socket(family, kind) as client:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            # Some systems allow a bind next to a listening server.
            client.settimeout(CONNECT_TIMEOUT_S)
            if client.connect_ex(place) == 0:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    except socket.gaierror as error:
        return Finding(MISCONFIGURED, f"{address}: {error.strerror}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return Finding(WRONG, f"{address} is in use by another program")
        if error.errno == errno.EADDRNOTAVAIL:
            return Finding(MISCONFIGURED, f"{address} is no address of this machine")
        words = os.strerror(error.errno) if error.errno else str(error)
        return Finding(MISCONFIGURED, f"{address} cannot be used on this machine: {words}")
    return None


def _unix(address: str) -> Finding | None:
    path = address.removeprefix(UNIX_PREFIX)
    folder = os.path.dirname(os.path.abspath(path))
    if why := hidden(folder):
        return Finding(WRONG, f"{address}: {why}")
    if not os.path.isdir(folder):
        words = f"{address}: {folder} does not exist; systemd makes it for the unit"
        return Finding(WARNING, words)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(WRONG, f"{address}: {folder} is not writable for user {os.geteuid()}")
    try:
        is_stale(path)  # a start removes such a socket
    except ConfigurationError as error:
        return Finding(MISCONFIGURED, str(error))
    except OSError as error:
        return Finding(WRONG, error.strerror or str(error))
    return None


def _members(config: NodeConfig) -> Iterator[Finding]:
    """Check that the other members have addresses, and that this node listens at its own."""
    wrong = [
        Finding(WRONG, f"members.{name}: {words}")
        for name in config.peers
        for address in (config.peer_address(name), config.grpc_address(name))
        if (words := _unknown(address))
    ]
    own = config.members[config.node_id]
    for setting, told in (("peer_listen", own.peer), ("grpc_listen", own.grpc)):
        listens = getattr(config, setting)
        if not _may_be(told, listens):
            words = f"{setting} = {listens}, and members.{config.node_id} tells the others {told}"
            wrong.append(Finding(WARNING, f"{words}: right only if something forwards it"))
    yield from wrong or [Finding(GOOD, "members: all of their names are known here")]


def _unknown(address: str) -> str:
    host, port = split_address(address)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return f"{address}: {error.strerror}"
    return ""


def _may_be(told: str, listens: str) -> bool:
    """Whether a server that listens at one address can be reached at the advertised one."""
    (host, port), (own_host, own_port) = split_address(told), split_address(listens)
    if port != own_port:
        return False
    try:
        return own_host in ("0.0.0.0", "::") or bool(_places(host) & _places(own_host))
    except socket.gaierror:
        return True  # reported elsewhere


def _places(host: str) -> set[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {str(entry[4][0]) for entry in found}


def _disk(config: NodeConfig) -> Iterator[Finding]:
    place = _existing(config.data_dir)
    # As a running node counts it: 0 for a disk on which no file can be created.
    free = ReadOnlyFiles().free_bytes(place)
    found = os.statvfs(place)
    reserve = max(config.disk_reserve_bytes, 3 * config.wal_segment_bytes + DISK_BASE_BYTES)
    words = f"{free // MIB} MiB are free on the disk of data_dir"
    if found.f_bavail and not free:
        words = f"{found.f_favail} inodes are free on the disk of data_dir, at least {INODES_MIN} "
        yield Finding(WRONG, f"{words}are needed: a node counts it as full (df -i)")
        return
    if free < reserve:
        more = f"puts are refused below {reserve // MIB} MiB, and for a queue that is not empty"
        yield Finding(WRONG, f"{words}: {more} sooner")
    else:
        yield Finding(GOOD, f"{words}, the reserve is {reserve // MIB} MiB for an empty queue")
