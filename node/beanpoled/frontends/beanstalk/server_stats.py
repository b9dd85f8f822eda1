"""The values of `stats`: this node's own, joined with the cluster's."""

from collections.abc import Sequence
from typing import Final

from beanpole.protocol.beanstalk import requests as r
from beanpoled.frontends.clients import Clients

# The protocol version. Clients compare it, so it contains nothing of our own.
VERSION_BYTES: Final = b"1.13"
# There is no binlog: beanstalkd's values without `-b`. The metrics show the log of the cluster.
BINLOG: Final = (0, 0, 0, 0, 10_485_760)


def values(
    clients: Clients, protocol: str, counts: Sequence[int], cluster: tuple[int, ...]
) -> tuple[object, ...]:
    """Return all values of `stats`, in the protocol's order.

    Args:
        clients: of this node.
        protocol: the protocol whose connections are counted.
        counts: the number of requests of each kind at this node.
        cluster: the machine's answer (see `core.operations.reads.stats`).
    """
    urgent, ready, reserved, delayed, buried, timeouts, jobs_total, tubes = cluster
    connections = [item for item in clients.connections if item.protocol == protocol]
    process = clients.host.process()
    return (
        urgent,
        ready,
        reserved,
        delayed,
        buried,
        *counts[r.PUT : r.COUNTERS],
        timeouts,
        jobs_total,
        clients.config.max_job_size,
        tubes,
        len(connections),
        sum(connection.is_producer for connection in connections),
        sum(connection.is_worker for connection in connections),
        sum(connection.is_waiting for connection in connections),
        clients.connections_total.get(protocol, 0),
        process.pid,
        VERSION_BYTES,
        process.user_s,
        process.system_s,
        clients.loop_us // 1_000_000,
        *BINLOG,
        clients.draining,
        clients.disk_id.hex()[:16].encode(),
        process.hostname,
        process.system,
        process.platform,
    )
