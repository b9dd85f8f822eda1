"""Proofs of gRPC calls between nodes: in memory, and over real sockets."""

import asyncio
from typing import Final

import grpc
import grpc.aio
import pytest

from beanpole.client.rpc import detail_of
from beanpole.pb import node_pb2, peer_pb2, peer_pb2_grpc
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.peer import PeerClient
from beanpoled.rpc.proofs import ANSWER_KEY, OLD_PROOF_KEY, Metadata, answered, old_proof
from beanpoled.rpc.server import Context
from beanpoled.trust import proofs
from beanpoled.trust.proofs import ANSWERER, DIALER, Call, Challenges, call_proof
from beanpoled.trust.trust import FRESH_PROOFS_SINCE, Trust
from tests.unit.beanpoled.fakes import FakeView, trust_of

SECRET: Final = "a secret of a cluster"
KEY: Final = SECRET.encode()
NONCE: Final = bytes(range(16))
TIMEOUT_S: Final = 60.0


def made(challenges: Challenges, now_us: int = 0, fresh: bytes = NONCE) -> Call:
    return Call("dev", "n1", "n0", NONCE, challenges.make(now_us, fresh))


def test_a_challenge_is_good_for_one_call_and_not_for_long() -> None:
    challenges = Challenges(b"a key")
    call = made(challenges)
    answer = call_proof(KEY, DIALER, call)
    assert challenges.check(KEY, call, answer, proofs.CHALLENGE_LIFE_US) == ""
    assert challenges.check(KEY, call, answer, 5) == proofs.REPLAYED
    assert challenges.check(KEY, call, answer, proofs.CHALLENGE_LIFE_US + 1) == proofs.EXPIRED
    late = made(challenges, 7, bytes(16))
    answer = call_proof(KEY, DIALER, late)
    assert challenges.check(KEY, late, answer, 8 + proofs.CHALLENGE_LIFE_US) == proofs.EXPIRED


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": "other"},
        {"caller": "n2"},
        {"callee": "n2"},
        {"nonce": bytes(16)},
        {"challenge": bytes(proofs.CHALLENGE_BYTES)},
        {"challenge": b""},
    ],
)
def test_a_proof_is_of_one_call(changes: dict[str, str | bytes]) -> None:
    challenges = Challenges(b"a key")
    call = made(challenges)
    answer = call_proof(KEY, DIALER, call)
    other = Call(**{**call._asdict(), **changes})
    assert challenges.check(KEY, other, answer, 0) == proofs.WRONG
    assert challenges.check(KEY, call, answer, 0) == "", "and it was not used up"


def test_the_proof_of_the_callee_is_none_of_the_caller() -> None:
    challenges = Challenges(b"a key")
    call = made(challenges)
    assert challenges.check(KEY, call, call_proof(KEY, ANSWERER, call), 0) == proofs.WRONG
    assert challenges.check(b"another", call, call_proof(KEY, DIALER, call), 0) == proofs.WRONG


def test_what_was_used_is_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "USED_MAX", 2)
    challenges = Challenges(b"a key")

    def use(number: int, now_us: int) -> str:
        call = made(challenges, now_us, bytes([number]) * 16)
        return challenges.check(KEY, call, call_proof(KEY, DIALER, call), now_us)

    assert [use(1, 0), use(2, 1), use(3, 2)] == ["", "", proofs.EXPIRED]
    assert use(4, proofs.CHALLENGE_LIFE_US + 5) == ""


async def served(trust: Trust, peer: Trust) -> tuple[RpcServer, grpc.aio.Channel]:
    """Serve a fake node n0 with `trust`, which dials others as `peer`."""
    server = RpcServer(FakeView(), PeerClient({}, peer), trust)
    port = await server.start("127.0.0.1:0")
    return server, grpc.aio.insecure_channel(f"127.0.0.1:{port}")


async def refusal(stub: peer_pb2_grpc.PeerStub, metadata: Metadata) -> str:
    """Call with this metadata; return the reason of the refusal."""
    with pytest.raises(grpc.aio.AioRpcError) as found:
        await stub.NodeInfo(peer_pb2.NodeInfoRequest(), timeout=TIMEOUT_S, metadata=metadata)
    assert found.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return detail_of(found.value).reason


def test_calls_without_the_right_proof_are_refused_by_name_and_counted() -> None:
    async def test() -> None:
        own, member = trust_of("n0", SECRET), trust_of("n1", SECRET)
        server, channel = await served(own, member)
        stub = peer_pb2_grpc.PeerStub(channel)
        metadata = await answered(stub, "n0", member, TIMEOUT_S)
        reply = await stub.NodeInfo(
            peer_pb2.NodeInfoRequest(), timeout=TIMEOUT_S, metadata=metadata
        )
        assert reply.id == "n0"
        assert await refusal(stub, metadata) == proofs.REPLAYED
        assert await refusal(stub, ()) == proofs.REQUIRED
        assert await refusal(stub, ((ANSWER_KEY, b"\xff"),)) == proofs.WRONG
        challenge = await stub.Challenge(
            peer_pb2.ChallengeRequest(caller="n1", nonce=NONCE), timeout=TIMEOUT_S
        )
        reflected = peer_pb2.ChallengeAnswer(
            caller="n1", nonce=NONCE, challenge=challenge.challenge, proof=challenge.proof
        )
        given = ((ANSWER_KEY, reflected.SerializeToString()),)
        assert await refusal(stub, given) == proofs.WRONG
        assert own.refusals == {
            "proof_replayed": 1,
            "proof_required": 1,
            "proof_wrong": 2,
        }
        await channel.close()
        await server.stop(0)

    asyncio.run(test())


def test_the_constant_proof_is_taken_until_the_upgrade_has_ended_or_by_no_means() -> None:
    async def test() -> None:
        for refuses in ("version", "setting"):
            own = trust_of("n0", SECRET)
            server, channel = await served(own, own)
            stub = peer_pb2_grpc.PeerStub(channel)
            metadata = ((OLD_PROOF_KEY, old_proof(KEY, "dev")),)
            await stub.NodeInfo(peer_pb2.NodeInfoRequest(), timeout=TIMEOUT_S, metadata=metadata)
            assert own.old_proofs == 1
            wrong = ((OLD_PROOF_KEY, old_proof(b"another", "dev")),)
            assert await refusal(stub, wrong) == proofs.WRONG
            if refuses == "version":
                own.active_version = lambda: FRESH_PROOFS_SINCE
            else:
                own._takes_old = False
            assert await refusal(stub, metadata) == proofs.OLD
            assert own.old_proofs == 1
            await channel.close()
            await server.stop(0)

    asyncio.run(test())


class OldPeer(peer_pb2_grpc.PeerServicer):
    """A member of release 0.3.0, which knows no challenge."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def NodeInfo(self, request: peer_pb2.NodeInfoRequest, context: Context) -> object:
        found = dict(context.invocation_metadata() or ())
        self.seen.append(str(found.get(OLD_PROOF_KEY)))
        return node_pb2.Node(id="n0")


def test_a_member_of_an_older_release_gets_the_constant_proof_during_an_upgrade_only() -> None:
    async def test() -> None:
        old = OldPeer()
        server = grpc.aio.server()
        peer_pb2_grpc.add_PeerServicer_to_server(old, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        member = trust_of("n1", SECRET)
        client = PeerClient({"n0": f"127.0.0.1:{port}"}, member)
        assert (await client.node_info("n0", TIMEOUT_S))[0] is not None
        assert old.seen == [old_proof(KEY, "dev")]
        member.active_version = lambda: FRESH_PROOFS_SINCE
        assert (await client.node_info("n0", TIMEOUT_S))[0] is None
        assert len(old.seen) == 1
        await client.close()
        await server.stop(0)

    asyncio.run(test())
