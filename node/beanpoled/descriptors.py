"""The limit of file descriptors of the process, and the number of clients that it allows."""

import dataclasses
import resource
from typing import Final

from beanpoled.config.node import NodeConfig
from beanpoled.host.log import LogLines
from beanpoled.host.seam import WARNING

# Descriptors beside clients' connections: 256 for files, members and handshakes, CALLERS_MAX of
# gRPC (256), STRANGERS_MAX at the port for nodes (128), CONNECTIONS_MAX of HTTP (64). A node that
# has none left cannot write its log, and ends.
SPARE: Final = 256 + 256 + 128 + 64
# The most that a process may have, whatever its hard limit: a system that allows fewer than the
# hard limit refuses every change of the limits.
_SYSTEM_MAX: Final = "/proc/sys/fs/nr_open"


def fitting(config: NodeConfig, lines: LogLines) -> NodeConfig:
    """Raise the limit of the process to the configuration's need, as far as the system allows.

    Returns:
        The configuration, with `connections_max` lowered to the available descriptors.
    """
    wanted = config.connections_max + SPARE
    given = _raised(wanted)
    if given >= wanted:
        return config
    allowed = max(1, given - SPARE)
    lines.write(
        f"connections_max = {config.connections_max} is lowered to {allowed}: the system "
        f"gives this process {given} descriptors (ulimit -Hn, fs.nr_open)",
        WARNING,
    )
    return dataclasses.replace(config, connections_max=allowed)


def obtainable(wanted: int) -> int:
    """Return the descriptors that `fitting` would get, at most `wanted`; nothing is changed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    within = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
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


def _raised(wanted: int) -> int:
    """Raise the limit to `wanted` or as far as allowed; return what there is now, or `wanted`."""
    within = obtainable(wanted)
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
