"""Commands for several nodes of which one hangs, or is down."""

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from beanpole.client.rpc import ERROR_KEY, Nodes, is_hung
from beanpole.errors import ClientError
from beanpole.pb import admin_pb2, admin_pb2_grpc, users_pb2_grpc
from beanpoled.cli import cluster, main
from beanpoled.rpc import admin
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.fakes import FakeView, trust_of

# Long enough for a test on a busy machine; nothing waits that long.
ANSWER_TIMEOUT_S = 60.0


class Node(admin_pb2_grpc.AdminServicer):
    """Leads and has snapshots; or gives up itself, with the words."""

    def __init__(self, words: str = "") -> None:
        self.words = words

    def TransferLeader(self, request: Any, context: Any) -> Any:
        """See admin.proto."""
        if self.words:
            context.set_trailing_metadata(((ERROR_KEY, b""),))
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, self.words)
        return admin_pb2.TransferLeaderReply(leader="n1")

    def TakeSnapshot(self, request: Any, context: Any) -> Any:
        """See admin.proto."""
        return admin_pb2.TakeSnapshotReply(index=7)


class Waiting(Node):
    """Takes a transfer, and does not answer it."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()

    def TransferLeader(self, request: Any, context: Any) -> Any:
        """See admin.proto."""
        self.ended.wait(ANSWER_TIMEOUT_S)
        return super().TransferLeader(request, context)


@contextmanager
def served(node: Node) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(1))
    admin_pb2_grpc.add_AdminServicer_to_server(node, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None)


@pytest.fixture
def hung() -> Iterator[str]:
    """The address of a node that is stopped: the kernel accepts its connections."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"127.0.0.1:{sock.getsockname()[1]}"


def transferring(*timeouts_s: float) -> Callable[[Any], Any]:
    """Return the call of a transfer, with these timeouts and then as short ones as the last."""
    left = itertools.chain(timeouts_s, itertools.repeat(timeouts_s[-1]))
    request = admin_pb2.TransferLeaderRequest()
    return lambda stub: stub.TransferLeader(request, timeout=next(left)).leader


def test_the_next_node_is_asked_when_one_hangs(hung: str) -> None:
    with served(Node()) as port:
        targets = [hung, f"127.0.0.1:{port}"]
        assert cluster._at_leader(targets, transferring(ANSWER_TIMEOUT_S)) == "n1"


def test_the_next_node_is_asked_when_one_hangs_behind_its_health() -> None:
    """A node that leads may answer its health and wait for the others."""
    waiting = Waiting()
    with served(waiting) as first, served(Node()) as second:
        targets = [f"127.0.0.1:{first}", f"127.0.0.1:{second}"]
        try:
            assert cluster._at_leader(targets, transferring(0.1, ANSWER_TIMEOUT_S)) == "n1"
        finally:
            waiting.ended.set()


def test_nodes_that_do_not_speak_come_last(hung: str) -> None:
    with served(Node()) as port, Nodes([hung, "127.0.0.1:1", f"127.0.0.1:{port}"]) as nodes:
        for _ in range(2):
            assert list(nodes.in_turn()) == ["127.0.0.1:1", f"127.0.0.1:{port}", hung]
        nodes.defer("127.0.0.1:1")
        assert list(nodes.in_turn()) == [f"127.0.0.1:{port}", "127.0.0.1:1", hung]


def test_a_node_that_hangs_is_asked_once(hung: str) -> None:
    calls = []

    def ask(stub: Any) -> Any:
        calls.append(stub)
        return transferring(0.1)(stub)

    with pytest.raises(ClientError, match=f"no leader answers.*{hung}: DEADLINE_EXCEEDED"):
        cluster._at_leader([hung], ask)
    assert len(calls) == 1


def test_a_node_that_gives_up_itself_is_believed(hung: str) -> None:
    """It has asked the leader; whether the change is made is unknown everywhere."""
    with served(Node("no majority answers")) as port:
        targets = [f"127.0.0.1:{port}", hung]
        with pytest.raises(ClientError, match=f"^{targets[0]}: DEADLINE_EXCEEDED: no majority"):
            cluster._at_leader(targets, transferring(ANSWER_TIMEOUT_S))


def test_a_follower_of_a_leader_that_hangs_can_be_asked_again(
    hung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words were final, though the others elect another leader meanwhile."""
    for name in ("TRANSFER_TIMEOUT_S", "FINALIZE_TIMEOUT_S"):
        monkeypatch.setattr(admin, name, -0.9)  # a second is added

    async def ask(follower: str) -> tuple[Any, ...]:
        async with grpc.aio.insecure_channel(follower) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            answers = await asyncio.gather(
                stub.TransferLeader(admin_pb2.TransferLeaderRequest(), timeout=ANSWER_TIMEOUT_S),
                stub.Finalize(admin_pb2.FinalizeRequest(), timeout=ANSWER_TIMEOUT_S),
                return_exceptions=True,
            )
        return answers

    async def test() -> None:
        trust = trust_of("n0", "")
        peers = PeerClient({"n1": hung}, trust)
        server = admin.RpcServer(FakeView(), peers, trust)
        port = await server.start("127.0.0.1:0")
        try:
            for error in await ask(f"127.0.0.1:{port}"):
                cluster._check_code("n0", error)
                assert not is_hung(error)
                assert str(error.details()).startswith("n1, which led, does not answer; ask again")
        finally:
            await peers.close()
            await server.stop(0)

    asyncio.run(asyncio.wait_for(test(), 2 * ANSWER_TIMEOUT_S))


class Stuck(FakeView):
    """Leads; a transfer begins, and its target never has the whole log."""

    def transfer_leader(self, to: str | None) -> bool:
        """See `NodeView`."""
        self.transfers.append(to)
        return True


def test_a_transfer_that_does_not_succeed_leaves_time_for_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It began again at once, and no entry was proposed for ten seconds."""
    monkeypatch.setattr(admin, "TRANSFER_TIMEOUT_S", 0.3)
    view = Stuck()
    view.role = "leader"
    servicer = admin.AdminServicer(view, PeerClient({}, trust_of("n0", "")))
    assert asyncio.run(servicer._transferred("n2")) == ""
    assert view.transfers == ["n2"]


def test_snapshots_of_the_others_when_a_node_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    with served(Node()) as port:
        others = f"127.0.0.1:1,127.0.0.1:{port},127.0.0.1:2"
        assert main(["snapshot", "--addr", others]) == 3
        said = capsys.readouterr()
        assert main(["snapshot", "--json", "--addr", others]) == 3
        plain = capsys.readouterr()
    assert said.out == f"127.0.0.1:{port}: snapshot at index 7\n"
    assert json.loads(plain.out) == {f"127.0.0.1:{port}": 7}
    for err in (said.err, plain.err):
        assert "beanpole: no snapshot: 127.0.0.1:1" in err and "127.0.0.1:2" in err


@contextmanager
def without_calls() -> Iterator[str]:
    """Run a node of a release that has none of the calls; yield its address."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


class Dropping(users_pb2_grpc.UsersServicer):
    """Has no user; or is lost at once, having dropped one or not."""

    def __init__(self, is_lost: bool) -> None:
        self.is_lost = is_lost

    def Drop(self, request: Any, context: Any) -> Any:
        """See users.proto."""
        if self.is_lost:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        context.set_trailing_metadata(((ERROR_KEY, b""),))
        context.abort(grpc.StatusCode.NOT_FOUND, "there is no user 'lee'")


def test_what_a_lost_node_may_have_removed_is_not_told_as_missing(
    hung: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = []
    servers = [grpc.server(ThreadPoolExecutor(1)) for _ in range(2)]
    for server, is_lost in zip(servers, (True, False), strict=True):
        users_pb2_grpc.add_UsersServicer_to_server(Dropping(is_lost), server)
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        server.start()
    lost, other = (f"127.0.0.1:{port}" for port in ports)
    assert main(["user", "drop", "lee", "--addr", f"{hung},{other}"]) == 1, "nothing was sent to it"
    assert capsys.readouterr().out == "there is no user 'lee'\n"
    assert main(["user", "drop", "lee", "--addr", f"127.0.0.1:1,{other}"]) == 1
    assert capsys.readouterr().out == "there is no user 'lee'\n"
    assert main(["user", "drop", "lee", "--addr", f"{lost},{other}"]) == 3
    said = capsys.readouterr()
    assert "there is no user 'lee'; a node that was lost may have done it" in said.err
    assert f"{lost}: UNAVAILABLE: Socket closed" in said.err and not said.out
    with without_calls() as older:
        assert main(["user", "drop", "lee", "--addr", f"{older},{other}"]) == 1
        assert capsys.readouterr().out == "there is no user 'lee'\n", "it did nothing"
        assert main(["user", "drop", "lee", "--addr", older]) == 3
        words = f"beanpole: the nodes run a release without this call: {older}: UNIMPLEMENTED: "
        assert capsys.readouterr().err.startswith(words)
    for server in servers:
        server.stop(None)
