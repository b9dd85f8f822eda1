"""The limits of clients at one node. The effects of a limit are described in docs/operating.md."""

from dataclasses import dataclass
from typing import Final

from beanpoled.config.settings import Integer, Setting
from beanpoled.config.tls import TlsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(TlsConfig):
    """The settings of a node that concern its clients; 0 means no limit."""

    connections_max: int
    connections_per_address_max: int
    commands_per_second_max: int


SETTINGS: Final = (
    # Measurements use one node with ten thousand waiting workers; few systems allow more than this.
    Setting("connections_max", Integer(1, 1_000_000), 16_000, "client connections of this node"),
    # Behind a load balancer or network address translation, all clients have one address. Elsewhere
    # the operator knows how many connections one machine needs; no default suits all.
    Setting(
        "connections_per_address_max",
        Integer(0, 1_000_000),
        0,
        "client connections of one address at this node; 0: connections_max alone counts",
    ),
    # Above the throughput of a node: a higher limit would have no effect.
    Setting(
        "commands_per_second_max",
        Integer(0, 1_000_000),
        0,
        "commands of one client address at this node in a second; 0: without limit",
    ),
)
