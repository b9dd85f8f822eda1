"""Describe for the log which machines can reach a node.

`node` checks which addresses are allowed without a secret or certificates.
"""

from beanpole.addresses import TLS_PREFIX, UNIX_PREFIX, is_loopback
from beanpoled.config.node import NodeConfig


def words(config: NodeConfig) -> str:
    """Return the addresses at which the node listens: for this machine alone, and for others."""
    places = [
        (address, protocol)
        for protocol, addresses in config.client_addresses.items()
        for address in addresses
    ]
    places += [
        (config.peer_listen, "nodes"),
        (config.grpc_listen, "gRPC"),
        (config.http_listen, "HTTP"),
    ]
    near = [_shown(*place) for place in places if _is_near(place[0])]
    far = [_shown(*place) for place in places if not _is_near(place[0])]
    if not far:
        return f"only this machine reaches the node, which listens at {', '.join(near)}"
    if not near:
        return f"other machines reach {', '.join(far)}"
    return f"other machines reach {', '.join(far)}; only this one {', '.join(near)}"


def _is_near(address: str) -> bool:
    plain = address.removeprefix(TLS_PREFIX)
    return plain.startswith(UNIX_PREFIX) or is_loopback(plain)


def _shown(address: str, speaks: str) -> str:
    tls = ", TLS" if address.startswith(TLS_PREFIX) else ""
    return f"{address.removeprefix(TLS_PREFIX)} ({speaks}{tls})"
