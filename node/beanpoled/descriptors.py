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


def fitting(config: NodeConfig, lines: LogLines) -> NodeConfig:
    """Raise the limit of the process to the configuration's need, as far as the system allows.

    Returns:
        The configuration, with `connections_max` lowered to the available descriptors.
    """
    wanted = config.connections_max + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        allowed = max(1, hard - SPARE)
        lines.write(
            f"connections_max = {config.connections_max} is lowered to {allowed}: the system "
            f"gives this process {hard} descriptors (ulimit -Hn)",
            WARNING,
        )
        config = dataclasses.replace(config, connections_max=allowed)
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return config
