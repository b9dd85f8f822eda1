"""The values of `stats` that are this node's own, joined with the cluster's."""

from typing import TYPE_CHECKING, Final

from beanpole.protocol.beanstalk import requests as r

if TYPE_CHECKING:
    from beanpoled.frontends.clients import Clients

# The version of the protocol that is spoken. Clients compare it, so no word of ours stands in it.
VERSION_BYTES: Final = b"1.13"
# There is no binlog: what beanstalkd says without `-b`. The log of the cluster is in the metrics.
BINLOG: Final = (0, 0, 0, 0, 10_485_760)


def stats(clients: "Clients", cluster: tuple[int, ...]) -> tuple[object, ...]:
    """All values of `stats`, in the protocol's order.

    Args:
        clients: whose clients, process and log they are.
        cluster: what the machine answered (see `core.reads.stats`).
    """
    urgent, ready, reserved, delayed, buried, timeouts, jobs_total, tubes = cluster
    connections = clients.connections
    process = clients.host.process()
    return (
        urgent,
        ready,
        reserved,
        delayed,
        buried,
        *clients.counts[r.PUT : r.COUNTERS],
        timeouts,
        jobs_total,
        clients.config.max_job_size,
        tubes,
        len(connections),
        sum(connection.is_producer for connection in connections),
        sum(connection.is_worker for connection in connections),
        sum(connection.is_waiting for connection in connections),
        clients.connections_total,
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
