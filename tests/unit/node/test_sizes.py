"""The largest legal commands of many clients at once: every proposal fits into an entry."""

import pytest

from beanpole import commands as c
from beanpole.constants import (
    BATCH_COMMANDS_MAX,
    BATCH_MAX_BYTES,
    DEDUP_KEY_MAX_BYTES,
    JOB_SIZE_MAX_BYTES,
    TUBE_NAME_MAX_BYTES,
    U32_MAX,
)
from beanpole.errors import ProtocolError
from beanpole.weights import ENTRY_MAX_BYTES, HINT_MAX_BYTES
from beanpoled.links import frames
from beanpoled.links.link import FRAME_MAX_BYTES
from beanpoled.rpc.call import Call
from tests.unit.node.stage import Stage

CLIENTS = 64
TUBE = b"t" * TUBE_NAME_MAX_BYTES


def key(number: int) -> bytes:
    """Return a key of the maximum size."""
    return b"%0*d" % (DEDUP_KEY_MAX_BYTES, number)


def largest(call: Call, place: int) -> None:
    """Put one body of the maximum size, with the longest name and key."""
    call.put(TUBE, U32_MAX, U32_MAX, U32_MAX, b"y" * JOB_SIZE_MAX_BYTES, key(place))


def most(call: Call, place: int) -> None:
    """Put as many bodies as a call may have, of the size that fills a batch completely."""
    for number in range(BATCH_COMMANDS_MAX):
        call.put(TUBE, U32_MAX, U32_MAX, U32_MAX, b"x" * 488, key(place << 16 | number))


def mixed(call: Call, place: int) -> None:
    """Alternate many small bodies and a largest one: more than any leader could propose."""
    if place % 2:
        largest(call, place)
    else:
        most(call, place)


@pytest.mark.parametrize("kind", [largest, mixed])
def test_the_largest_commands_of_64_clients_make_legal_entries(kind: object) -> None:
    assert callable(kind)
    stage = Stage(max_job_size=JOB_SIZE_MAX_BYTES)
    stage.lead()
    stage.come_up()
    clients = CLIENTS if kind is largest else 8
    ended: list[int] = []
    calls = [Call(stage.node.clients, b"", lambda: ended.append(1)) for _ in range(clients)]
    for place, call in enumerate(calls):
        kind(call, place)
    sizes = []
    for _ in range(10 * clients):
        stage.run()
        sizes += [len(entry) for entry in stage.replica.proposed]
        stage.commit()
        if len(ended) == clients:
            break
    assert len(ended) == clients
    assert not any(call.failure for call in calls)
    assert max(sizes) <= ENTRY_MAX_BYTES
    assert stage.node.origin.bytes == 0


def test_a_batch_is_never_larger_than_a_batch_may_be() -> None:
    stage = Stage(max_job_size=JOB_SIZE_MAX_BYTES)
    stage.come_up_behind()
    stage.sent(frames.BATCH)
    call = Call(stage.node.clients, b"", lambda: None)
    for number in range(4091):
        call.put(TUBE, U32_MAX, 0, U32_MAX, b"x" * 488, key(number))
    call.put(TUBE, U32_MAX, 0, U32_MAX, b"y" * JOB_SIZE_MAX_BYTES, key(4091))
    largest(call, 4092)
    stage.run()
    sent = stage.sent(frames.BATCH, "n1")
    # The second of the largest bodies is sent when the first one is applied.
    decoded = [frames.decode_batch(frame) for frame in sent]
    for number, payload in [(fields[2], fields[-1]) for fields in decoded]:
        stage.apply_sections((0, 1, number, c.unpack_commands(payload)))
    sent += stage.sent(frames.BATCH, "n1")
    decoded = [frames.decode_batch(frame) for frame in sent]
    assert max(len(payload) for *_, payload in decoded) <= BATCH_MAX_BYTES
    assert max(map(len, sent)) < FRAME_MAX_BYTES
    commands = [command for *_, payload in decoded for command in c.unpack_commands(payload)]
    assert len(commands) == 2 + 4093
    # The hint belongs to the batch with its puts.
    for *_, hint, payload in decoded:
        ready = sum(
            command[0] == c.PUT_KEYED and not command[4] for command in c.unpack_commands(payload)
        )
        assert sum(frames.unpack_hint(hint).values()) == ready


def test_a_batch_of_a_peer_that_is_too_large_ends_the_link() -> None:
    stage = Stage()
    stage.lead()
    for hint, payload in (
        (b"", bytes(BATCH_MAX_BYTES + 1)),
        (bytes(HINT_MAX_BYTES + 1), b"\x90"),
    ):
        frame = frames.encode_batch(1, 1, 1, True, 0, hint, payload)
        with pytest.raises(ProtocolError, match="at most"):
            stage.node.router.receive("n1", frames.BATCH, frame)


def test_more_waits_than_a_frame_may_list_take_several() -> None:
    items = [(session, 1, 2) for session in range(1, frames.ITEMS_MAX + 3)]
    sent = frames.encode_all(1, 1, items)
    assert [len(frames.decode_items(frame, 3)[2]) for frame in sent] == [frames.ITEMS_MAX, 2]
    assert frames.encode_all(1, 1, items[:0]) == []
