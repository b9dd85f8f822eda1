"""Proofs that a node knows the shared secret: pure, without sockets, clocks and random numbers.

A proof is HMAC-SHA256 over its purpose, its direction, the cluster, both nodes and a fresh nonce of
each. So it cannot be used for another connection (replayed), against its own prover (reflected) or
for another call. The proof of a link is over both hellos, which contain all of these.

The proof of a gRPC call needs a challenge of the callee first. Challenges are not stored but signed
with a key of the process, so that callers without a secret cannot exhaust any memory. A used
challenge is stored until it expires, and only callers with the secret can use one.
"""

import hashlib
import hmac
from struct import Struct
from typing import Final, NamedTuple

import msgpack

LINK: Final = "beanpole link"
CALL: Final = "beanpole.v1.Peer"
# Directions: of a link, by the side that dialed it; of a call, by the side that makes it.
DIALER: Final = "dialer"
ANSWERER: Final = "answerer"

NONCE_BYTES: Final = 16
# A caller answers a challenge at once; this allows for a node that is paused for a while.
CHALLENGE_LIFE_US: Final = 10_000_000
# The limit of challenges used within that time: a thousand calls of members a second.
USED_MAX: Final = 10_000

# Reasons of refused calls, as identifiers: `ErrorDetail.reason` and a label of the metric.
REQUIRED: Final = "PROOF_REQUIRED"
OLD: Final = "PROOF_OLD"
WRONG: Final = "PROOF_WRONG"
EXPIRED: Final = "PROOF_EXPIRED"
REPLAYED: Final = "PROOF_REPLAYED"

_TIME: Final = Struct("<Q")
_TAG_BYTES: Final = 16
CHALLENGE_BYTES: Final = _TIME.size + NONCE_BYTES + _TAG_BYTES


def proof(secret: bytes, *parts: str | bytes) -> bytes:
    """Return the proof over these parts; msgpack separates them."""
    packed: bytes = msgpack.packb(parts)
    return hmac.new(secret, packed, hashlib.sha256).digest()


def link_proof(secret: bytes, direction: str, prover: bytes, other: bytes) -> bytes:
    """Return the proof of one side of a link over both hellos."""
    return proof(secret, LINK, direction, prover, other)


class Call(NamedTuple):
    """A call between two nodes, as both know it."""

    cluster: str
    caller: str
    callee: str
    nonce: bytes  # of the caller
    challenge: bytes  # of the callee


def call_proof(secret: bytes, direction: str, call: Call) -> bytes:
    """Return the proof of the caller (DIALER) or of the callee (ANSWERER)."""
    return proof(
        secret, CALL, direction, call.cluster, call.caller, call.callee, call.nonce, call.challenge
    )


class Challenges:
    """The challenges of one callee."""

    def __init__(self, key: bytes) -> None:
        """Sign with `key`, fresh random bytes of this process."""
        self._key = key
        self._used: dict[bytes, int] = {}  # the challenge -> when it was made; oldest use first

    def make(self, now_us: int, fresh: bytes) -> bytes:
        """Return a challenge that contains a fresh nonce."""
        assert len(fresh) == NONCE_BYTES
        body = _TIME.pack(now_us) + fresh
        return body + self._tag(body)

    def check(self, secret: bytes, call: Call, given: bytes, now_us: int) -> str:
        """Check the answer to a challenge; return the reason of a refusal, empty if correct."""
        body, tag = call.challenge[:-_TAG_BYTES], call.challenge[-_TAG_BYTES:]
        if len(call.challenge) != CHALLENGE_BYTES or not hmac.compare_digest(self._tag(body), tag):
            return WRONG
        if not hmac.compare_digest(given, call_proof(secret, DIALER, call)):
            return WRONG
        (made_us,) = _TIME.unpack_from(body)
        self._forget(now_us)
        if not 0 <= now_us - made_us <= CHALLENGE_LIFE_US:
            return EXPIRED
        if call.challenge in self._used:
            return REPLAYED
        if len(self._used) >= USED_MAX:
            return EXPIRED  # no member calls that often: the caller may ask for another one
        self._used[call.challenge] = made_us
        return ""

    def _forget(self, now_us: int) -> None:
        """Forget expired challenges; expired ones may remain behind one that was made later."""
        while self._used:
            first = next(iter(self._used))
            if now_us - self._used[first] <= CHALLENGE_LIFE_US:
                return
            del self._used[first]

    def _tag(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()[:_TAG_BYTES]
