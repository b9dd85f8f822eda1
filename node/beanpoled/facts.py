"""The values of `stats` that are this node's own, joined with the cluster's."""

from typing import TYPE_CHECKING, Final

from beanpole import VERSION
from beanpole.protocol.beanstalk import requests as r

if TYPE_CHECKING:
    from beanpoled.node import Node

# It says whose protocol is spoken, and who speaks it.
VERSION_BYTES: Final = f"1.13 (beanpole {VERSION})".encode()


def stats(node: "Node", cluster: tuple[int, ...]) -> tuple[object, ...]:
    """All values of `stats`, in the protocol's order.

    Args:
        node: whose clients, process and log they are.
        cluster: what the machine answered (see `core.reads.stats`).
    """
    urgent, ready, reserved, delayed, buried, timeouts, jobs_total, tubes = cluster
    connections = node.connections
    process = node.host.process()
    replica = node.replica
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
        replica.first_index,
        replica.last_index,
        0,
        replica.applied_index,
        node.config.wal_segment_bytes,
        node.draining,
        node.disk_id.hex()[:16].encode(),
        process.hostname,
        process.system,
        process.platform,
    )
