"""A node as its operators see it: `view.NodeView` read from the node's parts."""

from collections.abc import Callable
from typing import Final

from beanpole import VERSION
from beanpole.constants import SECOND_US
from beanpole.core import accounts
from beanpole.core.jobs import display_names
from beanpole.core.jobs.job import Tube
from beanpole.core.jobs.spaces import Space
from beanpole.core.users import Users
from beanpole.events import PROTOCOL_NAMES, QLESS
from beanpoled import connections_view, qless_view
from beanpoled.largest_queues import LargestQueues
from beanpoled.trust.trust import Trust
from beanpoled.turn.node import Node
from beanpoled.view import (
    QUEUE_NAME_MAX_BYTES,
    QUEUES_MAX,
    ConnectionFigures,
    Digests,
    JobCounts,
    Lately,
    Metrics,
    QlessFigures,
    QueueFigures,
    Role,
    SnapshotStream,
    SpaceFigures,
)

# Settings that limit something that grows. For limits of the whole cluster, the leader's count.
LIMITS: Final = (
    *("connections_max", "connections_per_address_max", "commands_per_second_max"),
    *("sessions_max", "tubes_max", "jobs_max", "queue_bytes_max"),
    *("outbox_bytes_max", "client_output_bytes_max", "event_retain_bytes", "snapshot_bytes_min"),
)


class LocalNodeView:
    """The `NodeView` of a node in this process."""

    def __init__(self, node: Node, trust: Trust) -> None:
        self._trust = trust
        self._node = node
        self._context = node.context
        self._largest = LargestQueues()
        self._qless = qless_view.RecentFigures()
        # The number of lines that the audit log has lost; set by the program, which owns the log.
        self.audit_lost: Callable[[], int] = lambda: 0

    @property
    def cluster(self) -> str:
        return self._context.config.cluster

    @property
    def node_id(self) -> str:
        return self._context.name

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self._context.config.members)

    @property
    def config_hash(self) -> str:
        return self._context.config.config_hash

    @property
    def birth(self) -> str:
        return self._context.disks.own.birth.hex()

    @property
    def version(self) -> str:
        return VERSION

    @property
    def machine_version(self) -> int:
        return self._context.machine.version

    @property
    def machine_version_known(self) -> int:
        return self._context.knows

    @property
    def upgrade_finalize(self) -> str:
        return self._context.config.upgrade_finalize

    @property
    def durability(self) -> str:
        return self._context.config.durability

    @property
    def role(self) -> Role:
        return self._context.replica.role

    @property
    def leader(self) -> str | None:
        return self._context.replica.leader if self._node.peers.has_contact() else None

    @property
    def term(self) -> int:
        return self._context.replica.term

    @property
    def commit_index(self) -> int:
        return self._context.replica.commit_index

    @property
    def applied_index(self) -> int:
        return self._context.replica.applied_index

    @property
    def first_index(self) -> int:
        return self._context.replica.first_index

    @property
    def last_index(self) -> int:
        return self._context.replica.last_index

    @property
    def caught_up(self) -> bool:
        return self._node.origin.up

    @property
    def users(self) -> Users | None:
        return self._context.machine.users if self._node.lifecycle.has_gone_up else None

    @property
    def serving(self) -> bool:
        return self._node.serving

    @property
    def draining(self) -> bool:
        return self._context.draining

    def waiting_for(self) -> tuple[str, ...]:
        """See `NodeView`."""
        return self._node.introductions.waiting_for()

    @property
    def state(self) -> str:
        return self._node.condition.state

    def waits(self) -> str:
        """See `NodeView`."""
        return self._node.condition.waits_for()

    @property
    def rejoining(self) -> bool:
        return self._context.replica.rejoining

    @property
    def failure(self) -> str | None:
        return None  # a node that has failed is a process that has ended

    @property
    def loop_lag_s(self) -> float:
        return self._node.lateness.last_us / 1e6

    @property
    def disk_lag_s(self) -> float:
        return self._node.disk_health.lag_us / 1e6

    @property
    def disk_hangs(self) -> bool:
        return self._node.disk_health.hangs

    @property
    def disk_is_behind(self) -> bool:
        return self._node.disk_health.is_behind

    @property
    def disk_full(self) -> bool:
        return self._context.replica.room().full

    def links(self) -> tuple[str, ...]:
        """See `NodeView`."""
        return tuple(name for name, peer in self._node.peers.peers.items() if peer.linked)

    def no_link_words(self, member: str) -> str:
        """See `NodeView`."""
        if member in self.links():
            return ""
        reason = self._node.condition.reason(member)
        # The reader of a whole cluster's state does not know which node tells this.
        return reason.replace("this node", self.node_id)

    def skews_s(self) -> dict[str, float]:
        """See `NodeView`."""
        peers = self._node.peers.peers
        return {name: peer.skew_us / 1e6 for name, peer in peers.items() if peer.linked}

    def digests(self) -> Digests:
        """See `NodeView`."""
        machine = self._context.machine
        return Digests(machine.index, machine.state_hash, *self._node.agreement.image)

    def jobs(self) -> JobCounts:
        """See `NodeView`."""
        queue = self._context.machine.queue
        qless = qless_view.as_space(self._qless_figures())
        return JobCounts(
            queue.ready + qless.ready,
            queue.reserved + qless.reserved,
            queue.delayed + qless.delayed,
            queue.buried + qless.buried,
        )

    def metrics(self, with_queues: bool = True) -> Metrics:
        """See `NodeView`."""
        node, context = self._node, self._context
        queue = context.machine.queue
        qless = self._qless_figures()
        commits = node.leader.proposer.commit_times
        disk, room = context.replica.disk(), context.replica.room()
        largest = self._largest.look(queue.tubes) if with_queues else ()
        return Metrics(
            fsyncs_total=disk.syncs,
            fsync_seconds_total=disk.sync_us_total / 1e6,
            fsync_seconds_last=disk.sync_us_last / 1e6,
            fsync_counts=disk.sync_counts,
            commits_total=commits.count,
            commit_seconds_total=commits.total_us / 1e6,
            commit_counts=tuple(commits.counts),
            wal_bytes_written_total=disk.bytes_written,
            wal_bytes=context.replica.journal_bytes,
            snapshot_bytes=context.replica.snapshot_bytes,
            snapshot_behind_bytes=context.replica.snapshot_behind_bytes,
            disk_free_bytes=room.free_bytes,
            disk_reserve_bytes=room.reserve_bytes,
            outbox_bytes=node.origin.outbox_bytes,
            loop_lag_seconds_last=node.lateness.last_us / 1e6,
            loop_lag_seconds_max=node.lateness.max_us / 1e6,
            loop_lag_seconds_mean=node.lateness.mean_us / 1e6,
            leader_changes_total=node.roles.leader_changes,
            clients=node.frontends.figures(),
            spaces={
                **{display_names.space(space): _of_space(space) for space in queue.every_space},
                PROTOCOL_NAMES[QLESS]: qless_view.as_space(qless),
            },
            qless=qless,
            queues=[self._of_queue(tube) for tube in largest],
            limits={name: getattr(context.config, name) for name in LIMITS},
            tubes=len(queue.tubes),
            sessions=context.machine.sessions,
            client_hosts=len(context.machine.hosts.names),
            queue_bytes=accounts.memory_bytes(context.machine),
            job_timeouts_total=queue.timeouts,
            events_total=queue.events_total,
            events_lost_total=node.events.lost,
            events_bytes=node.events.bytes,
            audit_lost_total=self.audit_lost(),
            peer_refusals=dict(self._trust.refusals),
            peer_old_proofs_total=self._trust.old_proofs,
            tls_refusals=dict(self._trust.handshakes.refusals),
            tls_handshakes=self._trust.handshakes.in_progress,
            tls_files_end_s=self._trust.files_end_s(context.host.wall_us() / SECOND_US),
            auth_refusals=dict(node.clients.auth_refused),
            throttled_total=node.clients.rates.throttled_total,
            connections_of_address_max=node.clients.hosts.connections_most(),
        )

    def _qless_figures(self) -> QlessFigures:
        context, publications = self._context, self._node.frontends.publications
        tables, now_us = context.machine.qless, context.host.now_us()
        return self._qless.look(tables, context.loads, publications, now_us)

    def lately(self) -> Lately:
        """See `NodeView`."""
        return self._node.events.latencies.of_all()

    def lately_s(self) -> float:
        """See `NodeView`."""
        return self._node.events.latencies.seconds

    def busiest(self) -> list[QueueFigures]:
        """See `NodeView`."""
        tubes = self._context.machine.queue.tubes
        return [
            self._of_queue(tubes[name])
            for name in self._node.events.busiest(QUEUES_MAX)
            if name in tubes and len(name) <= QUEUE_NAME_MAX_BYTES
        ]

    def _of_queue(self, tube: Tube) -> QueueFigures:
        protocol = display_names.space_of(tube.name)
        return QueueFigures(
            protocol,
            display_names.queue(tube.name).removeprefix(f"{protocol}{display_names.SEPARATOR}"),
            tube.ready_count,
            tube.reserved_count,
            tube.delayed_count,
            len(tube.buried),
            tube.finished_count,
            self._ready_s(tube),
            self._node.events.latencies.of(tube.number),
        )

    def _ready_s(self, tube: Tube) -> float:
        """For how long the next job of a queue has been ready, as far as this node knows."""
        key = tube.first_ready()
        if not key:
            return 0.0
        context = self._context
        now_us = context.clock.estimate_us(context.now_us)
        return max(0, now_us - context.machine.queue.ready_job(key).ready_us) / 1e6

    def connections(self, after: int, limit: int) -> list[ConnectionFigures]:
        """See `NodeView`."""
        return connections_view.page(self._node.clients, after, limit)

    def close_connection(self, connection_id: int) -> bool:
        """See `NodeView`."""
        return connections_view.close(self._node.clients, connection_id)

    def transfer_leader(self, to: str | None) -> bool:
        """See `NodeView`."""
        return self._context.replica.transfer(to)

    def finalize(self, to: int) -> tuple[int, str]:
        """See `NodeView`."""
        return self._node.leader.versions.finalize(to)

    @property
    def snapshot_index(self) -> int:
        return self._context.replica.snapshot_index

    def snapshot_lacks(self) -> str:
        """See `NodeView`."""
        replica = self._context.replica
        room = replica.room()
        if replica.imaging or room.free_bytes >= room.snapshot_needs_bytes:
            return ""
        needs = room.snapshot_needs_bytes
        return f"{room.free_bytes} bytes are free on its disk, and {needs} are needed"

    def take_snapshot(self) -> None:
        """See `NodeView`."""
        self._context.replica.compact()

    def snapshot_source(self) -> SnapshotStream | None:
        """See `NodeView`."""
        source = self._context.replica.snapshot_source()
        if source is None:
            return None
        info, chunks = source
        return SnapshotStream(info.index, info.term, chunks, info.bytes)


def _of_space(space: Space) -> SpaceFigures:
    return SpaceFigures(
        space.ready,
        space.reserved,
        space.delayed,
        space.buried,
        space.done + space.failed,
        space.tubes,
        space.jobs_total,
        space.timeouts,
        space.evicted,
    )
