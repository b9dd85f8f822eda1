"""Proof of membership in calls between nodes: requested and checked at both ends of gRPC.

The proof itself is in `trust.proofs`. Nodes of releases up to 0.3.0 know only a constant proof,
which any reader of it can replay; it is accepted and sent only during an upgrade.
"""

import hashlib
import hmac
import os
import time
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from beanpole.pb import peer_pb2, peer_pb2_grpc
from beanpoled.rpc import credentials
from beanpoled.rpc.server import Context, fail
from beanpoled.trust import proofs
from beanpoled.trust.proofs import ANSWERER, DIALER, NONCE_BYTES, Call, Challenges, call_proof
from beanpoled.trust.trust import Trust
from beanpoled.view import NodeView

ANSWER_KEY: Final = "beanpole-peer-answer-bin"
OLD_PROOF_KEY: Final = "beanpole-peer-proof"

Metadata = tuple[tuple[str, str | bytes], ...]

_WORDS: Final = {
    proofs.REQUIRED: "this cluster has a peer_secret, and the call does not prove that it knows it",
    proofs.OLD: "the proof of releases up to 0.3.0 is not taken here (peer_old_proofs)",
    proofs.WRONG: "the caller has another peer_secret, or its proof is of another call",
    proofs.EXPIRED: "the challenge is too old: ask for another one",
    proofs.REPLAYED: "the proof was used before",
}


class Unproved(Exception):
    """The called member does not prove that it knows the secret."""


def old_proof(secret: bytes, cluster: str) -> str:
    """Return the constant proof of releases up to 0.3.0."""
    return hmac.new(secret, f"beanpole.v1.Peer {cluster}".encode(), hashlib.sha256).hexdigest()


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class ProofChecker:
    """The callee's side."""

    def __init__(self, view: NodeView, trust: Trust) -> None:
        self._view = view
        self._trust = trust
        self._challenges = Challenges(os.urandom(32))

    def challenge(self, request: peer_pb2.ChallengeRequest) -> peer_pb2.ChallengeReply:
        """Answer any caller: it costs two hashes, and no state is kept."""
        challenge = self._challenges.make(_now_us(), os.urandom(NONCE_BYTES))
        view = self._view
        call = Call(view.cluster, request.caller, view.node_id, request.nonce, challenge)
        secret = self._trust.secret.value
        proof = call_proof(secret, ANSWERER, call) if secret else b""
        return peer_pb2.ChallengeReply(node=view.node_id, challenge=challenge, proof=proof)

    async def check(self, context: Context) -> None:
        """Refuse a call that does not prove that its caller is a member, or knows the secret."""
        if self._trust.of_peers is not None:
            await credentials.check_member(self._view, self._trust, context)
        if not self._trust.secret:
            return
        reason = self._reason(context)
        if reason:
            self._trust.refused(reason.lower())
            await fail(context, grpc.StatusCode.UNAUTHENTICATED, _WORDS[reason], reason)

    def _reason(self, context: Context) -> str:
        """Return the reason to refuse the call; empty if it is accepted."""
        trust, view = self._trust, self._view
        given = dict(context.invocation_metadata() or ())
        packed, old = given.get(ANSWER_KEY), given.get(OLD_PROOF_KEY)
        if isinstance(packed, bytes):
            try:
                answer = peer_pb2.ChallengeAnswer.FromString(packed)
            except DecodeError:
                return proofs.WRONG
            call = Call(view.cluster, answer.caller, view.node_id, answer.nonce, answer.challenge)
            secret = trust.secret.value
            return self._challenges.check(secret, call, answer.proof, _now_us())
        if old is None:
            return proofs.REQUIRED
        if not trust.takes_old():
            return proofs.OLD
        expected = old_proof(trust.secret.value, view.cluster)
        if not hmac.compare_digest(str(old).encode(), expected.encode()):
            return proofs.WRONG
        trust.took_old("a caller of gRPC")
        return ""


async def answered(
    stub: peer_pb2_grpc.PeerStub, peer: str, trust: Trust, timeout_s: float
) -> Metadata:
    """Ask a member for a challenge; return the metadata that proves the next call to it.

    Raises:
        Unproved: the member does not know the secret, so its answers would prove nothing.
        grpc.aio.AioRpcError: it does not answer.
    """
    secret = trust.secret.value
    if not secret:
        return ()
    nonce = os.urandom(NONCE_BYTES)
    request = peer_pb2.ChallengeRequest(caller=trust.node, nonce=nonce)
    try:
        reply = await stub.Challenge(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        if not trust.takes_old():
            words = f"{peer} knows no challenge, as releases up to 0.3.0 (peer_old_proofs)"
            raise Unproved(words) from error
        return ((OLD_PROOF_KEY, old_proof(secret, trust.cluster)),)
    call = Call(trust.cluster, trust.node, peer, nonce, reply.challenge)
    if reply.node != peer or not hmac.compare_digest(
        reply.proof, call_proof(secret, ANSWERER, call)
    ):
        trust.refused(proofs.WRONG.lower())
        raise Unproved(f"{peer} has another peer_secret, or another node answers there")
    answer = peer_pb2.ChallengeAnswer(
        caller=trust.node,
        nonce=nonce,
        challenge=reply.challenge,
        proof=call_proof(secret, DIALER, call),
    )
    return ((ANSWER_KEY, answer.SerializeToString()),)
