"""The limit of file descriptors of the process, and the limits that it allows.

These are the numbers of clients and of TLS handshakes in progress.
"""

import dataclasses
import resource
from collections.abc import Mapping
from typing import Any, Final

from beanpoled.config.node import NodeConfig
from beanpoled.host.log import LogLines
from beanpoled.host.seam import WARNING

# Descriptors beside clients' connections and TLS handshakes: 256 for files and members, CALLERS_MAX
# of gRPC (256), STRANGERS_MAX at the port for nodes (128), CONNECTIONS_MAX of HTTP (64), and
# REFUSED_MAX of clients that wait for their refusal (64). A node that has none left cannot write
# its log, and ends.
SPARE: Final = 256 + 256 + 128 + 64 + 64
# Share of the remaining descriptors for handshakes, where these are too few for handshakes and
# clients: clients stay, and a handshake takes milliseconds.
HANDSHAKES_SHARE: Final = 0.5
# The most that a process may have, whatever its hard limit: a system that allows fewer than the
# hard limit refuses every change of the limits.
_SYSTEM_MAX: Final = "/proc/sys/fs/nr_open"


def wanted(config: NodeConfig) -> int:
    """Return the descriptors that a node may have open at a time."""
    return SPARE + config.connections_max + _rooms(config) * config.handshakes_max


def _rooms(config: NodeConfig) -> int:
    """Return how many times `handshakes_max` counts: for clients and for nodes, if they use TLS."""
    return config.has_client_tls + config.has_peer_tls


def fitting(config: NodeConfig, lines: LogLines) -> NodeConfig:
    """Raise the limit of the process to the configuration's need, as far as the system allows.

    Returns:
        The configuration, with `connections_max` and, if they would take more than their share,
        `handshakes_max` lowered to the available descriptors.
    """
    given = _raised(wanted(config))
    if given >= wanted(config):
        return config
    free, rooms = max(0, given - SPARE), _rooms(config)
    handshakes_max = config.handshakes_max
    if rooms:
        share = max(int(free * HANDSHAKES_SHARE), free - config.connections_max)
        handshakes_max = min(handshakes_max, max(1, share // rooms))
    fewer: Mapping[str, Any] = {
        "connections_max": min(config.connections_max, max(1, free - rooms * handshakes_max)),
        "handshakes_max": handshakes_max,
    }
    for name, allowed in fewer.items():
        if allowed < getattr(config, name):
            lines.write(
                f"{name} = {getattr(config, name)} is lowered to {allowed}: the system "
                f"gives this process {given} descriptors (ulimit -Hn, fs.nr_open)",
                WARNING,
            )
    return dataclasses.replace(config, **fewer)


def obtainable(needed: int) -> int:
    """Return the descriptors that `fitting` would get, at most `needed`; nothing is changed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    within = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft == resource.RLIM_INFINITY or soft >= within:
        return within
    most = _system_max()
    is_refused = most is not None and (hard == resource.RLIM_INFINITY or hard > most)
    return soft if is_refused else within


def _system_max() -> int | None:
    try:
        with open(_SYSTEM_MAX, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None  # this system does not tell


def _raised(needed: int) -> int:
    """Raise the limit to `needed` or as far as allowed; return what there is now, or `needed`."""
    within = obtainable(needed)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= within:
        return within
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (within, hard))
    except (ValueError, OSError):
        # The system does not tell its limit, or it was lowered just now. A reload must not end the
        # node for that.
        return soft
    return within
