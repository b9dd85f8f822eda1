"""The node's gRPC server: the `Admin` service, health and reflection; `Peer` runs on it, too.

`Status` reads the node through `NodeView`. The other calls of `Admin` act: a transfer of
leadership, a raise of the machine version, a snapshot, the end of a connection.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from beanpole.addresses import split_address
from beanpole.client.rpc import MESSAGE_BYTES_MAX, is_hung
from beanpole.commands import VERSION_MAX
from beanpole.pb import admin_pb2, admin_pb2_grpc, node_pb2, peer_pb2, peer_pb2_grpc
from beanpoled.host.tasks import watched
from beanpoled.readiness import liveness, readiness
from beanpoled.rpc import credentials
from beanpoled.rpc.caller import CALLER
from beanpoled.rpc.door import CALLERS_MAX, Door
from beanpoled.rpc.edge import Edge
from beanpoled.rpc.forwarding import Forwarder, fail_as, fail_unknown
from beanpoled.rpc.health import HealthServicer
from beanpoled.rpc.peer import PeerClient, PeerServicer
from beanpoled.rpc.server import Context, describe, fail, leave_out_hidden
from beanpoled.rpc.snapshots import snapshot_up_to, verify_snapshot
from beanpoled.trust.trust import Trust
from beanpoled.view import ConnectionFigures, NodeView

# A dead member must not make a status call slow: this bounds the wait for each member.
PEER_STATUS_TIMEOUT_S: Final = 1.0
# A transfer waits for quiet and then takes one election; after this time it has failed.
TRANSFER_TIMEOUT_S: Final = 10.0
TRANSFER_POLL_S: Final = 0.02
# Entries wait for a transfer that has begun, for raft_max (1 s) if its target does not keep up, as
# one whose disk hangs. Clients get some time, too, before the next attempt.
TRANSFER_PAUSE_S: Final = 3.0
HEALTH_PERIOD_S: Final = 0.2
# One commit, with the syncs of a majority.
FINALIZE_TIMEOUT_S: Final = 10.0
FINALIZE_POLL_S: Final = 0.02
# Connections in one answer: with 20 names of 1 KB each it still fits into a message.
CONNECTIONS_MAX: Final = 200
# Heartbeats carry the machine versions that members know; after an election some are missing.
FINALIZE_PATIENCE_S: Final = 1.0
# Above the sum of long-lived calls: READERS_MAX readers of events (32), WAITING_MAX calls that
# wait for the cluster (64), RECHECKS_MAX calls without a known right (32), a snapshot for each
# other member (8), BACKUPS_MAX backups (2), STREAMS_MAX streams of Health/Watch and reflection
# (32), WAITS_MAX calls that wait for their request and as many whose answer is not taken (128). The
# rest is for health checks and operators, so that no long-lived call keeps them out.
CALLS_MAX: Final = 384
# A connection without a call for this long is closed, also where `door` has places left. Clients of
# gRPC connect again by themselves. A handshake of any honest caller is shorter than the other.
IDLE_MAX_MS: Final = 300_000
HANDSHAKE_MAX_MS: Final = 10_000
# The bit of "identity". 5 MiB of equal bytes have 5 KB as gzip: anybody could make the node expand
# as many as its network takes. A compressed call is refused (UNIMPLEMENTED) before it is expanded.
_UNCOMPRESSED_ONLY: Final = 1

ADMIN_SERVICE: Final = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
PEER_SERVICE: Final = peer_pb2.DESCRIPTOR.services_by_name["Peer"].full_name
# Not a service, but a name that load balancers query at the health service.
LEADER_HEALTH: Final = "beanpole.v1.Leader"


_Health = health_pb2.HealthCheckResponse
# Adds a service to a server and returns its full name.
Service = Callable[[grpc.aio.Server], str]


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Answers operators' queries about the cluster and transfers its leadership."""

    def __init__(self, view: NodeView, peers: PeerClient) -> None:
        self._view = view
        self._peers = peers
        self._forwarder = Forwarder(view, peers, admin_pb2_grpc.AdminStub)
        self._verifies = False  # whether a call is reading the newest snapshot

    async def Status(
        self, request: admin_pb2.StatusRequest, context: Context
    ) -> admin_pb2.StatusReply:
        view = self._view
        if request.local:
            nodes = [describe(view)]
        else:
            nodes = await asyncio.gather(*(self._node(member) for member in view.members))
        user = None if view.users is None else CALLER.get().user(view.users)
        for node in nodes:
            leave_out_hidden(node, user)
        term = max(node.term for node in nodes)
        leaders = [node.leader for node in nodes if node.term == term and node.leader]
        leader = leaders[0] if leaders else ""
        return admin_pb2.StatusReply(cluster=view.cluster, leader=leader, term=term, nodes=nodes)

    async def _node(self, member: str) -> node_pb2.Node:
        if member == self._view.node_id:
            return describe(self._view)
        answer, refusal = await self._peers.node_info(member, PEER_STATUS_TIMEOUT_S)
        no_link = self._view.no_link_words(member)
        return answer or node_pb2.Node(id=member, refusal=refusal, no_link=no_link)

    async def TransferLeader(
        self, request: admin_pb2.TransferLeaderRequest, context: Context
    ) -> admin_pb2.TransferLeaderReply:
        view = self._view
        if request.to and request.to not in view.members:
            await fail_unknown(request.to, "to", view, context)
        if view.role != "leader":
            if request.at_leader or view.leader in (None, view.node_id):
                await self._not_leader(context)
            assert view.leader is not None, "asked above"
            return await self._transferred_by(view.leader, request.to, context)
        if request.to == view.node_id:
            return admin_pb2.TransferLeaderReply(leader=view.node_id)
        leader = await self._transferred(request.to or None)
        if not leader:
            reason = "no other member answers and is far enough"
            if request.to:
                reason = f"{request.to} does not answer or is not far enough"
            words = f"leadership stayed at {view.node_id}: {reason}"
            await fail(context, grpc.StatusCode.ABORTED, words, "TRANSFER_REFUSED")
        return admin_pb2.TransferLeaderReply(leader=leader)

    async def _transferred_by(
        self, leader: str, to: str, context: Context
    ) -> admin_pb2.TransferLeaderReply:
        """Forward the call to the leader, and pass on its refusal."""
        try:
            return await self._peers.transfer_leader(leader, to, TRANSFER_TIMEOUT_S + 1.0)
        except grpc.aio.AioRpcError as error:
            await _fail_as_leader(leader, error, context)

    async def _not_leader(self, context: Context) -> NoReturn:
        view = self._view
        leader = view.leader or ""
        await fail(
            context,
            grpc.StatusCode.FAILED_PRECONDITION,
            f"{view.node_id} is not the leader; ask {leader or 'again, there is none now'}",
            "NOT_LEADER",
            leader_id=leader,
            leader_address=self._peers.address(leader),
        )

    async def Finalize(
        self, request: admin_pb2.FinalizeRequest, context: Context
    ) -> admin_pb2.FinalizeReply:
        view = self._view
        if request.to > VERSION_MAX:
            await fail(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                f"to = {request.to} is no machine version: the highest is {VERSION_MAX}",
                "UNKNOWN_VERSION",
                field="to",
            )
        if view.role == "leader":
            return await self._finalized(request.to, context)
        if request.at_leader or view.leader in (None, view.node_id):
            await self._not_leader(context)
        assert view.leader is not None, "asked above"
        return await self._finalized_by(view.leader, request.to, context)

    async def _finalized(self, to: int, context: Context) -> admin_pb2.FinalizeReply:
        """Raise the machine's version here, on the leader; answer once it is applied."""
        view, term = self._view, self._view.term
        time_s = asyncio.get_running_loop().time
        begun_s = time_s()
        version, refusal = view.finalize(to)
        while refusal or view.machine_version < version:
            waited_s = time_s() - begun_s
            if refusal and waited_s > FINALIZE_PATIENCE_S:
                words = f"nothing is raised to machine version {version}: {refusal}"
                await fail(context, grpc.StatusCode.FAILED_PRECONDITION, words, "MEMBERS_NOT_READY")
            if waited_s > FINALIZE_TIMEOUT_S:
                words = f"no majority answers; whether machine version {version} comes is unknown"
                await fail(context, grpc.StatusCode.DEADLINE_EXCEEDED, words)
            await asyncio.sleep(FINALIZE_POLL_S)
            if view.role != "leader" or view.term != term:
                words = f"{view.node_id} leads no more; ask again: it may be raised or not"
                await fail(context, grpc.StatusCode.UNAVAILABLE, words)
            version, refusal = view.finalize(version)
        return admin_pb2.FinalizeReply(machine_version=view.machine_version)

    async def _finalized_by(
        self, leader: str, to: int, context: Context
    ) -> admin_pb2.FinalizeReply:
        """Forward the call to the leader, and pass on its refusal."""
        try:
            return await self._peers.finalize(leader, to, FINALIZE_TIMEOUT_S + 1.0)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                words = f"nothing is raised: the program of {leader}, which leads, is too old"
                await fail(context, grpc.StatusCode.FAILED_PRECONDITION, words, "MEMBERS_NOT_READY")
            await _fail_as_leader(leader, error, context)

    async def ListConnections(
        self, request: admin_pb2.ListConnectionsRequest, context: Context
    ) -> admin_pb2.ListConnectionsReply:
        forwarded = await self._forwarder.forwarded(
            "ListConnections", request, admin_pb2.ListConnectionsReply, context
        )
        if forwarded is not None:
            return forwarded
        page = self._view.connections(request.after_id, CONNECTIONS_MAX)
        return admin_pb2.ListConnectionsReply(
            node=self._view.node_id,
            connections=map(_connection, page),
            complete=len(page) < CONNECTIONS_MAX,
        )

    async def CloseConnection(
        self, request: admin_pb2.CloseConnectionRequest, context: Context
    ) -> admin_pb2.CloseConnectionReply:
        forwarded = await self._forwarder.forwarded(
            "CloseConnection", request, admin_pb2.CloseConnectionReply, context
        )
        if forwarded is None and not self._view.close_connection(request.id):
            words = f"{self._view.node_id} has no connection {request.id}"
            await fail(context, grpc.StatusCode.NOT_FOUND, words, "NO_CONNECTION")
        return admin_pb2.CloseConnectionReply()

    async def TakeSnapshot(
        self, request: admin_pb2.TakeSnapshotRequest, context: Context
    ) -> admin_pb2.TakeSnapshotReply:
        wanted = self._view.applied_index
        if self._view.snapshot_index >= wanted and not self._verifies:
            # No new one is made, so the present one must be readable: a restart may follow.
            self._verifies = True
            try:
                await verify_snapshot(self._view, context)
            finally:
                self._verifies = False
        await snapshot_up_to(self._view, wanted, context)
        return admin_pb2.TakeSnapshotReply(index=self._view.snapshot_index)

    async def _transferred(self, to: str | None) -> str:
        """Hand leadership over; return the new leader, or an empty string if it stayed here."""
        view = self._view
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        until = next_s + TRANSFER_TIMEOUT_S
        while loop.time() < until:
            if view.role == "leader":
                if loop.time() >= next_s and view.transfer_leader(to):
                    next_s = loop.time() + TRANSFER_PAUSE_S
            elif view.leader is not None and view.leader != view.node_id:
                return view.leader
            await asyncio.sleep(TRANSFER_POLL_S)
        return ""


async def _fail_as_leader(leader: str, error: grpc.aio.AioRpcError, context: Context) -> NoReturn:
    """Refuse a call with the refusal of the leader; the caller asks again if the leader hangs.

    The others elect a new leader meanwhile. TransferLeader and Finalize may be repeated.
    """
    if is_hung(error):
        words = f"{leader}, which led, does not answer; ask again: it may be done or not"
        await fail(context, grpc.StatusCode.UNAVAILABLE, words)
    await fail_as(leader, error, context)


def _connection(one: ConnectionFigures) -> admin_pb2.Connection:
    return admin_pb2.Connection(
        id=one.id,
        protocol=one.protocol,
        host=one.host,
        age_us=int(one.age_s * 1e6),
        waiting=one.is_waiting,
        queue_used=one.queue_used,
        queues_watched=one.queues_watched,
        queues_watched_total=one.queues_watched_total,
        jobs_held=one.jobs_held,
        jobs_held_total=one.jobs_held_total,
    )


class RpcServer:
    """One node's gRPC server with all its services."""

    def __init__(
        self,
        view: NodeView,
        peers: PeerClient,
        trust: Trust,
        services: Sequence[Service] = (),
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        door: Door | None = None,
    ) -> None:
        self._view = view
        self._peers = peers
        self._trust = trust
        self._services = services
        self._interceptors = interceptors
        self._door = door or Door()
        self._health = HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self, address: str) -> int:
        """Listen on "host:port" and return the port.

        Raises:
            OSError: the port is taken or may not be used.
        """
        # With SO_REUSEPORT, two nodes could listen on one port and share its callers.
        options = (
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_allowed_incoming_connections", CALLERS_MAX),
            ("grpc.max_connection_idle_ms", IDLE_MAX_MS),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_MAX_MS),
            ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED_ONLY),
        )
        server = grpc.aio.server(
            options=options,
            maximum_concurrent_rpcs=CALLS_MAX,
            interceptors=(Edge(), *self._interceptors),
        )
        admin_pb2_grpc.add_AdminServicer_to_server(AdminServicer(self._view, self._peers), server)
        of_peers = PeerServicer(self._view, self._trust, self._door)
        peer_pb2_grpc.add_PeerServicer_to_server(of_peers, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [ADMIN_SERVICE, PEER_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME]
        names += [add_to(server) for add_to in self._services]
        reflection.enable_server_reflection(names, server)
        self._door.prepare(split_address(address)[1])
        try:
            safely = credentials.of_server(self._trust)
            if safely is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, safely)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address} for gRPC: {error}") from error
        if port == 0:
            raise OSError(f"cannot listen on {address} for gRPC")
        self.refresh_health()
        await server.start()
        self._server = server
        loop = asyncio.get_running_loop()
        self._refresher = watched(loop, self._keep_health())
        self._door.open(port)
        self._keeper = watched(loop, self._door.keep())
        return port

    async def stop(self, grace_s: float = 1.0) -> None:
        """Refuse new calls, give running ones `grace_s` to end, close."""
        if self._server is None or self._refresher is None or self._keeper is None:
            return
        self._refresher.cancel()
        self._keeper.cancel()
        self._health.stop()
        await self._server.stop(grace_s)
        self._server = None

    def refresh_health(self) -> None:
        """Update the health service with the state of the node."""
        view = self._view
        states = {
            "": all(check.passed for check in liveness(view)),
            ADMIN_SERVICE: all(check.passed for check in readiness(view)),
            LEADER_HEALTH: view.role == "leader",
        }
        told = (_Health.NOT_SERVING, _Health.SERVING)
        self._health.set({service: told[serving] for service, serving in states.items()})

    async def _keep_health(self) -> None:
        while True:
            await asyncio.sleep(HEALTH_PERIOD_S)
            self.refresh_health()
