"""The introduction of two nodes: accepted peers, refused peers, and links that are cut."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole.errors import ProtocolError
from beanpoled.links.link import (
    AUTH,
    DISK,
    FRAME_MAX_BYTES,
    HELLO,
    HELLO_MAX_BYTES,
    MEMBERS,
    REFUSE,
    VERSIONS,
    Frame,
    FrameReader,
    Handshake,
    Hello,
    LinkRefused,
    encode_frame,
    encode_refusal,
)
from beanpoled.trust.proofs import DIALER, link_proof

SECRET = b"a secret of the cluster"
HEAD_BYTES = 9


def hello(node: str, **changes: Any) -> Hello:
    values = Hello(
        version_min=3,
        version_max=5,
        cluster="cluster",
        node=node,
        config_hash="config",
        nonce=node.encode().ljust(16, b"."),
        disk_id=bytes(16),
        birth=b"birth of cluster",
        standing="voter",
        replacement=False,
        incarnation=4,
        last_index=77,
        founders=(("n0", bytes(16)), ("n1", bytes(16))),
    )
    return values._replace(**changes)


def fed(reader: FrameReader, data: bytes) -> list[Frame]:
    """Feed the bytes to the reader, and return the complete frames."""
    reader.feed(data)
    return list(iter(reader.next, None))


def meet(
    dialer: Hello,
    answerer: Hello,
    secrets: tuple[bytes, bytes] = (SECRET, SECRET),
    expected: str | None = "n1",
) -> tuple[Handshake, Handshake]:
    """Exchange messages until both sides are done; raise the exception of either side."""
    sides = Handshake(dialer, secrets[0], expected), Handshake(answerer, secrets[1], None)
    readers = FrameReader(), FrameReader()
    mail = [(1, sides[0].start()), (0, sides[1].start())]
    while mail:
        to, data = mail.pop(0)
        for frame in fed(readers[to], data):
            answer = sides[to].receive(frame)
            if answer:
                mail.append((1 - to, answer))
    return sides


def test_members_of_one_mind_know_each_other() -> None:
    one, other = meet(hello("n0"), hello("n1", replacement=True))
    assert one.done == hello("n1", replacement=True)
    assert other.done == hello("n0")


@pytest.mark.parametrize(
    ("low", "high", "used"), [(1, 3, 3), (3, 3, 3), (1, 4, 4), (4, 4, 4), (2, 9, 5), (5, 9, 5)]
)
def test_the_highest_version_that_both_know_is_used(low: int, high: int, used: int) -> None:
    one, other = meet(hello("n0"), hello("n1", version_min=low, version_max=high))
    assert (one.version, other.version) == (used, used)


@pytest.mark.parametrize(("low", "high"), [(1, 2), (6, 6), (6, 9)])
def test_without_a_common_version_the_words_say_which_there_are(low: int, high: int) -> None:
    with pytest.raises(
        LinkRefused, match=r"versions? 3 to 5.*n[01]|versions.*install the newer"
    ) as it:
        meet(hello("n0"), hello("n1", version_min=low, version_max=high))
    assert it.value.cause == VERSIONS


def later(payload: bytes) -> bytes:
    """Return a hello of a later release, which has more fields."""
    return bytes(msgpack.packb([*msgpack.unpackb(payload), "more", {"of": [1, 2]}]))


def test_what_a_later_release_adds_to_its_hello_is_passed_over() -> None:
    old = Handshake(hello("n0"), SECRET, "n1")
    new = Handshake(hello("n1"), SECRET, None)
    new._own_bytes = later(new._own_bytes)
    proof = _one(old.receive((HELLO, new._own_bytes)))
    old.receive(_one(new.receive(_one(old.start()))))
    new.receive(proof)
    assert (old.done, new.done) == (hello("n1"), hello("n0"))


def test_a_version_of_which_only_the_numbers_are_known_is_refused_with_both() -> None:
    """The meaning of the later fields is unknown."""
    side = Handshake(hello("n0"), SECRET, None)
    payload = bytes(msgpack.packb([8, 9, {"another": "layout"}]))
    side.receive((HELLO, payload))
    proof = link_proof(SECRET, DIALER, payload, side._own_bytes)
    with pytest.raises(
        LinkRefused, match="n0 knows the link versions 3 to 5, an unknown node"
    ) as it:
        side.receive((AUTH, proof))
    assert it.value.cause == VERSIONS


@pytest.mark.parametrize(
    "change",
    [
        {"version_min": "3"},
        {"nonce": b"short"},
        {"incarnation": True},
        {"founders": (("n0",),)},
        {"founders": (("n0", "no bytes"),)},
        {"founders": (("n0", b""),) * 65},
    ],
)
def test_a_hello_of_another_layout_is_sent_away(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="another layout"):
        meet(hello("n0"), hello("n1")._replace(**change))


def test_a_wrong_secret_is_sent_away_and_not_as_a_member() -> None:
    with pytest.raises(ProtocolError, match="another peer_secret") as found:
        meet(hello("n0"), hello("n1"), (SECRET, b"guessed"))
    assert not isinstance(found.value, LinkRefused)


def test_only_a_member_can_refuse() -> None:
    """An unauthenticated peer must neither stop a start nor write lines into the log."""
    one, _ = meet(hello("n0"), hello("n1"))
    (refusal,) = fed(FrameReader(), encode_refusal(DISK, "another disk"))
    assert one.refusal(refusal) == (DISK, "another disk")
    cause, words = one.refusal((REFUSE, b"\1a\nb\x1b[2J\xff" + bytes(9999)))
    assert (cause, words[:7], len(words)) == (MEMBERS, "a?b?[2J", 500)
    with pytest.raises(ProtocolError):
        one.refusal((REFUSE, b""))
    fresh = Handshake(hello("n0"), SECRET, None)
    with pytest.raises(ProtocolError, match="has not proved"):
        fresh.refusal((REFUSE, b"go away"))
    fresh.receive(_one(Handshake(hello("n1"), SECRET, "n0").start()))
    with pytest.raises(ProtocolError, match="has not proved"):
        fresh.refusal((REFUSE, b"go away"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster": "other"}, "cluster"),
        ({"config_hash": "other"}, "config hash"),
        ({"node": "n0"}, "call themselves n0"),
        ({"node": "n2"}, "dialed n1"),
    ],
)
def test_members_of_another_mind_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(LinkRefused, match=words) as found:
        meet(hello("n0"), hello("n1")._replace(**changes))
    assert (found.value.cause, found.value.node) in ((MEMBERS, "n0"), (MEMBERS, "n1"))


def test_a_peer_that_was_not_dialed_may_be_any_member() -> None:
    assert meet(hello("n2"), hello("n1"))[1].done == hello("n2")


def test_a_replayed_proof_proves_nothing() -> None:
    """An earlier message of n1 to n0 is worthless: the proof covers n0's fresh nonce."""
    genuine = Handshake(hello("n1"), SECRET, None)
    victim = Handshake(hello("n0"), SECRET, "n1")
    hello_of_n1 = _one(genuine.start())
    proof_of_n1 = _one(genuine.receive(_one(victim.start())))
    victim.receive(hello_of_n1)
    victim.receive(proof_of_n1)
    assert victim.done is not None
    later = Handshake(hello("n0", nonce=b"another nonce..."), SECRET, "n1")
    later.receive(hello_of_n1)
    with pytest.raises(ProtocolError, match="another peer_secret"):
        later.receive(proof_of_n1)
    assert later.done is None


def test_one_s_own_proof_comes_back_in_vain() -> None:
    """A peer that only reflects the node's own messages is refused."""
    victim = Handshake(hello("n0"), SECRET, None)
    with pytest.raises(ProtocolError, match="own hello back: it is reflected"):
        victim.receive(_one(victim.start()))
    assert (victim.done, victim.refusal_name) == (None, "reflected")
    victim = Handshake(hello("n0"), SECRET, None)
    proof = _one(victim.receive(_one(Handshake(hello("n1"), b"", "n0").start())))
    with pytest.raises(ProtocolError, match="own proof back: it is reflected"):
        victim.receive(proof)
    assert (victim.done, victim.refusal_name) == (None, "reflected")


def test_two_links_to_one_node_cannot_be_played_against_each_other() -> None:
    """Both of its sides answer, so neither makes the dialer's proof that the other needs."""
    one = Handshake(hello("n0"), SECRET, None)
    other = Handshake(hello("n0", nonce=b"another nonce..."), SECRET, None)
    proof = _one(other.receive(_one(one.start())))
    one.receive(_one(other.start()))
    with pytest.raises(ProtocolError, match="its proof is of another link"):
        one.receive(proof)
    assert (one.done, one.refusal_name) == (None, "wrong_proof")


def test_the_proof_of_an_older_release_is_taken_only_as_long_as_it_is_wanted() -> None:
    old = hello("n1", version_max=3)
    one, other = meet(hello("n0"), old)
    assert (one.is_old, other.is_old) == (True, True)
    assert not any(side.is_old for side in meet(hello("n0"), hello("n1")))
    strict = Handshake(hello("n0"), SECRET, None, lambda: False)
    dialer = Handshake(old, SECRET, "n0")
    proof = _one(dialer.receive(_one(strict.start())))
    strict.receive(_one(dialer.start()))
    with pytest.raises(LinkRefused, match=r"as releases up to 0\.3\.0 do") as refused:
        strict.receive(proof)
    assert (refused.value.cause, refused.value.node) == (VERSIONS, "n1")
    assert (strict.done, strict.refusal_name) == (None, "old_proof")


def test_hellos_that_were_changed_on_their_way_do_not_bring_the_old_proof() -> None:
    """Both proofs cover both hellos, and these differ at the two ends."""
    one, other = Handshake(hello("n0"), SECRET, "n1"), Handshake(hello("n1"), SECRET, None)
    lowered = Handshake(hello("n0", version_max=3), b"", "n1"), hello("n1", version_max=3)
    proof = _one(other.receive(_one(lowered[0].start())))
    one.receive(_one(Handshake(lowered[1], b"", None).start()))
    with pytest.raises(ProtocolError, match="another peer_secret"):
        one.receive(proof)
    assert one.done is None


def test_the_order_of_the_introduction() -> None:
    with pytest.raises(ProtocolError, match="first frame"):
        Handshake(hello("n0"), SECRET, None).receive((AUTH, b""))
    side = Handshake(hello("n0"), SECRET, None)
    side.receive(_one(Handshake(hello("n1"), SECRET, None).start()))
    with pytest.raises(ProtocolError, match="second frame"):
        side.receive((HELLO, b""))


@given(st.binary(max_size=80))
def test_a_hello_that_cannot_be_read_is_sent_away(payload: bytes) -> None:
    side = Handshake(hello("n0"), SECRET, None)
    with pytest.raises(ProtocolError):
        side.receive((HELLO, payload or b"\xc0"))
        side.receive((AUTH, bytes(32)))
    assert side.done is None


def test_frames_come_whole_however_they_are_cut() -> None:
    stream = encode_frame(1, b"one") + encode_frame(2, b"") + encode_frame(3, b"three")
    for size in range(1, len(stream)):
        reader = FrameReader()
        found = [
            frame
            for start in range(0, len(stream), size)
            for frame in fed(reader, stream[start : start + size])
        ]
        assert found == [(1, b"one"), (2, b""), (3, b"three")]


def test_every_flipped_bit_is_noticed() -> None:
    frame = encode_frame(7, b"payload")
    for bit in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        reader = FrameReader()
        try:
            assert fed(reader, bytes(damaged)) == []  # the frame claims more bytes than there are
        except ProtocolError:
            continue


def test_a_stranger_may_not_send_much() -> None:
    reader = FrameReader()
    assert fed(reader, encode_frame(HELLO, bytes(HELLO_MAX_BYTES)))
    with pytest.raises(ProtocolError, match="are allowed"):
        fed(reader, encode_frame(HELLO, bytes(HELLO_MAX_BYTES + 1))[:HEAD_BYTES])
    reader = FrameReader()
    reader.size_max = FRAME_MAX_BYTES
    with pytest.raises(ProtocolError, match="are allowed"):
        fed(reader, b"\xff" * HEAD_BYTES)


def test_a_member_may_send_much_right_behind_its_introduction() -> None:
    large = encode_frame(1, bytes(2 * HELLO_MAX_BYTES))
    reader = FrameReader()
    reader.feed(encode_frame(AUTH, b"me") + large + large[:-1])
    assert reader.next() == (AUTH, b"me")
    reader.size_max = FRAME_MAX_BYTES
    assert reader.next() == (1, bytes(2 * HELLO_MAX_BYTES))
    assert reader.next() is None
    assert fed(reader, b"\0") == [(1, bytes(2 * HELLO_MAX_BYTES))]


def _one(data: bytes) -> Frame:
    (frame,) = fed(FrameReader(), data)
    return frame
