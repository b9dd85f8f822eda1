"""The limits of clients at one node. What a limit does is told in docs/operating.md."""

from dataclasses import dataclass
from typing import Final

from beanpoled.config.settings import Integer, Setting
from beanpoled.config.tls import TlsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(TlsConfig):
    """What a node's configuration says of its clients; 0 is without limit."""

    connections_max: int
    connections_per_address_max: int
    commands_per_second_max: int


SETTINGS: Final = (
    # One node is measured with ten thousand waiting workers; more than this few systems allow.
    Setting("connections_max", Integer(1, 1_000_000), 16_000, "client connections of this node"),
    # Behind a load balancer, or a network address translation, all clients have one address. Where
    # they do not, an operator knows how many one machine needs; no number is right for all.
    Setting(
        "connections_per_address_max",
        Integer(0, 1_000_000),
        0,
        "client connections of one address at this node; 0: connections_max alone counts",
    ),
    # More than a node can do: what is above it needs no limit.
    Setting(
        "commands_per_second_max",
        Integer(0, 1_000_000),
        0,
        "commands of one client address at this node in a second; 0: without limit",
    ),
)
