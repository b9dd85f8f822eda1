"""The limit of file descriptors of the process, and the number of clients that it allows."""

import dataclasses
import resource
from typing import Final

from beanpoled.config.node import NodeConfig
from beanpoled.host.log import LogLines
from beanpoled.host.seam import WARNING

# Descriptors beside clients' connections: files, peers, gRPC, HTTP.
SPARE: Final = 256


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
