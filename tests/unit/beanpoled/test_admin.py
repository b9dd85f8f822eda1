"""The gRPC services over real sockets, against fake nodes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from beanpole.client.rpc import detail_of, words_of
from beanpole.errors import Damaged
from beanpole.pb import admin_pb2, admin_pb2_grpc, node_pb2
from beanpoled.config.settings import MEMBERS_MAX
from beanpoled.rpc import admin, callers, credentials, jobs
from beanpoled.rpc.admin import ADMIN_SERVICE, LEADER_HEALTH, RpcServer
from beanpoled.rpc.events import READERS_MAX
from beanpoled.rpc.patience import WAITS_MAX
from beanpoled.rpc.peer import PeerClient
from beanpoled.rpc.recheck import RECHECKS_MAX
from beanpoled.rpc.streams import STREAMS_MAX
from beanpoled.trust.trust import Trust
from beanpoled.view import SnapshotStream
from tests.unit.beanpoled.fakes import FakeSink, FakeView, broken_chunks, trust_of

SECRET = "a secret of a cluster"


class Cluster:
    """Servers of fake nodes, and a channel to the first node."""

    def __init__(self, views: list[FakeView], secret: str = "") -> None:
        self.views = views
        self.secret = secret
        self.addresses: dict[str, str] = {}
        self.trust = trust_of("n0", secret)
        self.peers = PeerClient(self.addresses, self.trust)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[grpc.aio.Channel]:
        servers = [RpcServer(view, self.peers, self.trust) for view in self.views]
        for view, server in zip(self.views, servers, strict=True):
            port = await server.start("127.0.0.1:0")
            self.addresses[view.node_id] = f"127.0.0.1:{port}"
        try:
            async with grpc.aio.insecure_channel(self.addresses["n0"]) as channel:
                yield channel
        finally:
            await self.peers.close()
            for server in servers:
                await server.stop(0)


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))


def test_status_lists_all_members_also_one_that_is_down() -> None:
    async def test() -> None:
        leader = FakeView("n1")
        leader.role = "leader"
        leader.term = 4
        cluster = Cluster([FakeView(), leader])
        cluster.addresses["n2"] = "127.0.0.1:1"
        async with cluster.running() as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            reply = await stub.Status(admin_pb2.StatusRequest(), timeout=60)
            local = await stub.Status(admin_pb2.StatusRequest(local=True), timeout=60)
        assert (reply.cluster, reply.leader, reply.term) == ("dev", "n1", 4)
        assert [node.id for node in reply.nodes] == ["n0", "n1", "n2"]
        assert [node.reachable for node in reply.nodes] == [True, True, False]
        assert reply.nodes[0].role == node_pb2.ROLE_FOLLOWER
        assert reply.nodes[1].role == node_pb2.ROLE_LEADER
        assert reply.nodes[2].role == node_pb2.ROLE_UNSPECIFIED
        assert (reply.nodes[0].commit_index, reply.nodes[0].applied_index) == (9, 8)
        assert reply.nodes[0].jobs.buried == 4
        found = reply.nodes[0].machine_version, reply.nodes[0].machine_version_known
        assert found == (2, 3)
        assert list(reply.nodes[0].links) == ["n1"]
        assert [node.id for node in local.nodes] == ["n0"]

    run(test)


def test_status_has_no_leader_when_the_newest_term_has_none() -> None:
    async def test() -> None:
        candidate = FakeView("n1")
        candidate.role = "candidate"
        candidate.leader = None
        candidate.term = 9
        cluster = Cluster([FakeView(members=("n0", "n1")), candidate])
        async with cluster.running() as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            reply = await stub.Status(admin_pb2.StatusRequest(), timeout=60)
        assert (reply.leader, reply.term) == ("", 9)

    run(test)


def test_an_answer_from_another_node_at_a_members_address_does_not_count() -> None:
    async def test() -> None:
        cluster = Cluster([FakeView()])
        async with cluster.running() as channel:
            cluster.addresses["n1"] = cluster.addresses["n2"] = cluster.addresses["n0"]
            stub = admin_pb2_grpc.AdminStub(channel)
            reply = await stub.Status(admin_pb2.StatusRequest(), timeout=60)
        assert [node.reachable for node in reply.nodes] == [True, False, False]

    run(test)


async def transfer(
    *views: FakeView, to: str = "", at_leader: bool = False
) -> admin_pb2.TransferLeaderReply:
    """Ask the first node to transfer leadership."""
    cluster = Cluster(list(views))
    cluster.addresses["n1"] = "10.0.0.1:2"
    request = admin_pb2.TransferLeaderRequest(to=to, at_leader=at_leader)
    async with cluster.running() as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        reply: admin_pb2.TransferLeaderReply = await stub.TransferLeader(request, timeout=60)
    return reply


def leading() -> FakeView:
    view = FakeView()
    view.role = "leader"
    view.leader = "n0"
    return view


def test_leadership_is_handed_over_when_the_leader_is_quiet() -> None:
    async def test() -> None:
        view = leading()
        view.transfer_to = "n2"
        assert (await transfer(view, to="n2")).leader == "n2"
        assert view.transfers == ["n2", "n2"]
        assert (await transfer(leading(), to="n0")).leader == "n0"
        view = leading()
        view.transfer_to = "n1"
        assert (await transfer(view)).leader == "n1"
        assert view.transfers == [None, None]

    run(test)


def test_a_transfer_that_is_not_possible_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "TRANSFER_TIMEOUT_S", 0.1)

    async def test() -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await transfer(leading(), to="n9")
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert detail_of(caught.value).field == "to"
        assert "n0, n1, n2" in str(caught.value.details())

        electing = FakeView()
        electing.leader = None
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await transfer(electing)
        assert detail_of(caught.value).reason == "NOT_LEADER"

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await transfer(FakeView(), at_leader=True)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        detail = detail_of(caught.value)
        assert (detail.reason, detail.leader_id) == ("NOT_LEADER", "n1")
        assert detail.leader_address == "10.0.0.1:2"

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await transfer(leading())
        assert caught.value.code() == grpc.StatusCode.ABORTED
        assert detail_of(caught.value).reason == "TRANSFER_REFUSED"

    run(test)


async def finalize(views: list[FakeView], to: int = 0) -> int:
    """Ask the first node to finalize."""
    cluster = Cluster(views)
    async with cluster.running() as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        reply = await stub.Finalize(admin_pb2.FinalizeRequest(to=to), timeout=60)
    version: int = reply.machine_version
    return version


def follower_and_leader() -> list[FakeView]:
    leader = FakeView("n1")
    leader.role = "leader"
    return [FakeView(), leader]


def test_any_node_brings_a_transfer_to_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        views = follower_and_leader()
        views[1].transfer_to = "n0"
        assert (await transfer(*views, to="n0")).leader == "n0"
        assert views[0].transfers == [] and views[1].transfers == ["n0", "n0"]

        monkeypatch.setattr(admin, "TRANSFER_TIMEOUT_S", 0.1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await transfer(*follower_and_leader())
        assert caught.value.code() == grpc.StatusCode.ABORTED
        assert detail_of(caught.value).reason == "TRANSFER_REFUSED"
        assert str(caught.value.details()).startswith("n1: leadership stayed at n1")

        mistaken = FakeView("n1")  # n0 believes that it leads
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await transfer(FakeView(), mistaken)
        assert detail_of(caught.value).reason == "NOT_LEADER"

    run(test)


def test_any_node_brings_a_finalize_to_the_leader() -> None:
    async def test() -> None:
        views = follower_and_leader()
        assert await finalize(views) == 3
        assert views[0].finalizes == [] and views[1].finalizes == [0, 3]
        assert await finalize(views, 3) == 3, "it may be repeated"
        assert await finalize([leading()], 3) == 3

    run(test)


def test_a_finalize_that_is_refused_names_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "FINALIZE_PATIENCE_S", 0.1)

    async def test() -> None:
        views = follower_and_leader()
        views[1].finalize_refusal = "n2 is away"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await finalize(views)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert detail_of(caught.value).reason == "MEMBERS_NOT_READY"
        words = "n1: nothing is raised to machine version 3: n2 is away"
        assert caught.value.details() == words
        assert len(views[1].finalizes) > 1, "members may say a moment later what they know"

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await finalize([leading()], 256)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert detail_of(caught.value).field == "to"

    run(test)


def test_a_finalize_without_a_leader_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "FINALIZE_TIMEOUT_S", 0.1)

    async def test() -> None:
        alone = FakeView()
        alone.leader = None
        mistaken = FakeView("n1")  # n0 believes that it leads
        for views in ([alone], [FakeView(), mistaken]):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await finalize(views)
            assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert detail_of(caught.value).reason == "NOT_LEADER"
            assert views[-1].finalizes == []

        stuck = leading()
        stuck.finalizes = [0] * 2
        stuck.finalize = lambda to: (3, "")  # type: ignore[method-assign]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await finalize([stuck])
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED

        def deposed(to: int) -> tuple[int, str]:
            stuck.role = "follower"
            return 3, ""

        stuck.finalize = deposed  # type: ignore[method-assign]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await finalize([stuck])
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "ask again" in str(caught.value.details())

    run(test)


def test_a_leader_of_an_older_release_does_not_know_the_call() -> None:
    class Older(admin_pb2_grpc.AdminServicer):
        """A node of release 0.2.0: it answers UNIMPLEMENTED to each method that it lacks."""

    async def test() -> None:
        server = grpc.aio.server()
        admin_pb2_grpc.add_AdminServicer_to_server(Older(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        cluster = Cluster([FakeView()])
        cluster.addresses["n1"] = f"127.0.0.1:{port}"
        async with cluster.running() as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Finalize(admin_pb2.FinalizeRequest(), timeout=60)
        await server.stop(0)
        assert detail_of(caught.value).reason == "MEMBERS_NOT_READY"
        words = "nothing is raised: the program of n1, which leads, is too old"
        assert caught.value.details() == words

    run(test)


def test_a_member_of_an_older_release_does_not_know_a_call_that_is_brought_to_it() -> None:
    async def test() -> None:
        server = grpc.aio.server()
        cluster = Cluster([FakeView()])
        async with cluster.running() as channel:
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            cluster.addresses["n1"] = f"127.0.0.1:{port}"
            request = admin_pb2.ListConnectionsRequest(node="n1")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await admin_pb2_grpc.AdminStub(channel).ListConnections(request)
            async with grpc.aio.insecure_channel(cluster.addresses["n1"]) as direct:
                with pytest.raises(grpc.aio.AioRpcError) as own:
                    await admin_pb2_grpc.AdminStub(direct).ListConnections(request)
            await server.stop(0)
        words = "its program is too old: it does not have this call"
        assert words_of(own.value) == f"UNIMPLEMENTED: {words}"
        assert detail_of(caught.value).reason == "TOO_OLD"
        words = "the program of n1 is too old: it does not have this call"
        assert words_of(caught.value) == f"FAILED_PRECONDITION: {words}"

    run(test)


def test_other_certificates_close_channels_behind_their_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels: list[grpc.aio.Channel] = []

    def dialed(trust: Trust, peer: str, address: str) -> grpc.aio.Channel:
        channels.append(grpc.aio.insecure_channel(address))
        return channels[-1]

    monkeypatch.setattr(credentials, "channel", dialed)

    async def test() -> None:
        view = FakeView()
        cluster = Cluster([view])
        shown: Any = SimpleNamespace(generation=0)
        trust = trust_of()
        trust.of_peers = shown
        begun, go_on = asyncio.Event(), threading.Event()

        class Telling(FakeSink):
            def write(self, chunk: bytes) -> None:
                super().write(chunk)
                begun.set()

        def chunks() -> Iterator[bytes]:
            yield b"one"
            assert go_on.wait(60)
            yield b"two"

        async with cluster.running():
            peers, sink = PeerClient(cluster.addresses, trust), Telling()
            view.snapshot = SnapshotStream(7, 3, chunks())
            fetch = asyncio.create_task(peers.fetch_snapshot("n0", 7, sink))
            await begun.wait()
            for shown.generation in (1, 2):
                assert (await peers.node_info("n0", 60))[0] is not None
            states = [channel.get_state() for channel in channels]
            shut = grpc.ChannelConnectivity.SHUTDOWN
            assert [state == shut for state in states] == [False, True, False]
            go_on.set()
            assert await fetch is None
            assert sink.chunks == [b"one", b"two"]
            assert channels[0].get_state() == shut
            await peers.close()
            assert channels[2].get_state() == shut

    run(test)


def test_a_snapshot_comes_over_in_chunks() -> None:
    async def test() -> None:
        view = FakeView()
        chunks = [b"a" * (4 * 1024 * 1024), b"", b"end"]
        cluster = Cluster([view], SECRET)
        async with cluster.running():
            sink = FakeSink()
            view.snapshot = SnapshotStream(7, 3, iter(chunks))
            assert await cluster.peers.fetch_snapshot("n0", 7, sink) is None
            assert sink.chunks == chunks

            view.snapshot = SnapshotStream(7, 3, iter(chunks))
            sink = FakeSink(fails_at=1)
            failed = await cluster.peers.fetch_snapshot("n0", 7, sink)
            assert failed == "the snapshot of n0: given up"
            assert sink.chunks == chunks[:1], "the rest is not fetched"
            view.snapshot = SnapshotStream(8, 3, iter(chunks))
            sink = FakeSink()
            failed = await cluster.peers.fetch_snapshot("n0", 7, sink)
            assert failed is not None and "the newest is at 8" in failed
            view.snapshot = None
            failed = await cluster.peers.fetch_snapshot("n0", 7, sink)
            assert failed is not None and "there is none" in failed
            damaged = Damaged("7.snap: bad checksum at 123")
            view.snapshot = SnapshotStream(7, 3, broken_chunks(damaged))
            failed = await cluster.peers.fetch_snapshot("n0", 7, sink)
            assert failed is not None and "DATA_LOSS" in failed and "at 123" in failed

    run(test)


def test_peer_calls_want_the_proof_of_the_secret() -> None:
    async def test() -> None:
        cluster = Cluster([FakeView()], SECRET)
        async with cluster.running():
            assert (await cluster.peers.node_info("n0", 60))[0] is not None
            stranger = PeerClient(cluster.addresses, trust_of("n1", "another secret of 16"))
            assert (await stranger.node_info("n0", 60))[0] is None
            failed = await stranger.fetch_snapshot("n0", 7, FakeSink())
            assert failed == "n0 has another peer_secret, or another node answers there"
            await stranger.close()

    run(test)


def test_health_follows_the_node() -> None:
    async def test() -> None:
        view = FakeView()
        cluster = Cluster([view])
        server = RpcServer(view, cluster.peers, cluster.trust)
        port = await server.start("127.0.0.1:0")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            async def status(service: str) -> str:
                reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
                return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

            assert await status("") == "SERVING"
            assert await status(ADMIN_SERVICE) == "SERVING"
            assert await status(LEADER_HEALTH) == "NOT_SERVING"
            view.role = "leader"
            view.draining = True
            server.refresh_health()
            assert await status("") == "SERVING"
            assert await status(ADMIN_SERVICE) == "NOT_SERVING"
            assert await status(LEADER_HEALTH) == "SERVING"
        await server.stop(0)
        await server.stop(0)

    run(test)


def test_a_taken_port_is_an_error_and_not_shared() -> None:
    async def test() -> None:
        cluster = Cluster([FakeView()])
        async with cluster.running():
            second = RpcServer(FakeView(), cluster.peers, cluster.trust)
            with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1"):
                await second.start(cluster.addresses["n0"])

    run(test)


def test_no_service_can_take_all_calls() -> None:
    long_lived = READERS_MAX + STREAMS_MAX + callers.WAITING_MAX + jobs.SCANS_MAX + MEMBERS_MAX
    long_lived += RECHECKS_MAX + 2 * WAITS_MAX
    assert long_lived < admin.CALLS_MAX
