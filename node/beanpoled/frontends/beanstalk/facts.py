"""The values of `stats` that are this node's own, joined with the cluster's."""

from typing import TYPE_CHECKING, Final

from beanpole.protocol.beanstalk import requests as r

if TYPE_CHECKING:
    from beanpoled.turn.node import Node

# The version of the protocol that is spoken. Clients compare it, so no word of ours stands in it.
VERSION_BYTES: Final = b"1.13"
# There is no binlog: what beanstalkd says without `-b`. The log of the cluster is in the metrics.
BINLOG: Final = (0, 0, 0, 0, 10_485_760)


def stats(node: "Node", cluster: tuple[int, ...]) -> tuple[object, ...]:
    """All values of `stats`, in the protocol's order.

    Args:
        node: whose clients, process and log they are.
        cluster: what the machine answered (see `core.reads.stats`).
    """
    urgent, ready, reserved, delayed, buried, timeouts, jobs_total, tubes = cluster
    connections = node.connections
    process = node.host.process()
    return (
        urgent,
        ready,
        reserved,
        delayed,
        buried,
        *node.counts[r.PUT : r.COUNTERS],
        timeouts,
        jobs_total,
        node.config.max_job_size,
        tubes,
        len(connections),
        sum(connection.is_producer for connection in connections),
        sum(connection.is_worker for connection in connections),
        sum(connection.is_waiting for connection in connections),
        node.connections_total,
        process.pid,
        VERSION_BYTES,
        process.user_s,
        process.system_s,
        node.loop_us // 1_000_000,
        *BINLOG,
        node.draining,
        node.disks.own.disk_id.hex()[:16].encode(),
        process.hostname,
        process.system,
        process.platform,
    )
