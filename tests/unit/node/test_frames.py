"""Frames between nodes: round trips, and rejection of invalid frames."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole.errors import ProtocolError
from beanpoled.links import frames
from beanpoled.links.frames import Heartbeat

HEARTBEAT = Heartbeat(3, True, 10, 20, 4, 50, 2**32 - 1, 1, False, True, 7, 9, 2, 2, 44)


def test_a_batch_comes_back() -> None:
    hint = frames.pack({b"tube": 2})
    frame = frames.encode_batch(3, 2, 2**40, True, 9, hint, b"payload")
    assert frames.decode_batch(frame) == (3, 2, 2**40, True, 9, hint, b"payload")
    assert frames.unpack_hint(hint) == {b"tube": 2}
    assert frames.unpack_hint(b"") == {}


def test_waits_come_back() -> None:
    frame = frames.encode_items(3, 2, [(1, 2, 3), (4, 5, 6)])
    assert frames.decode_items(frame, 3) == (3, 2, [(1, 2, 3), (4, 5, 6)])


def test_a_heartbeat_comes_back() -> None:
    assert frames.decode_heartbeat(frames.encode_heartbeat(HEARTBEAT)) == HEARTBEAT


@pytest.mark.parametrize("tail", [(1,), ("text", b"bytes", None), ((1, {"a": 2}),)])
def test_what_a_newer_release_adds_to_a_heartbeat_is_left_out(tail: tuple[object, ...]) -> None:
    assert frames.decode_heartbeat(msgpack.packb((*HEARTBEAT, *tail))) == HEARTBEAT


def test_a_heartbeat_of_release_0_2_0_is_read_for_ever() -> None:
    """A receiver needs these fields, in this order; later fields have defaults."""
    assert frames.Heartbeat._fields[: frames.HEARTBEAT_FIELDS_MIN] == (
        "term",
        "leading",
        "cluster_us",
        "wall_us",
        "incarnation",
        "applied_index",
        "state_hash",
        "machine_version",
        "disk_low",
        "stopping",
        "digest_index",
        "digest",
        "digest_version",
        "active_version",
        "kept_index",
    )


def test_a_batch_that_is_cut_is_refused() -> None:
    frame = frames.encode_batch(3, 2, 1, False, 0, b"hint", b"")
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            frames.decode_batch(frame[:size])


@pytest.mark.parametrize(
    "value",
    [None, 7, (), (1, 2), (1, 2, 3), (1, 2, [(1, 2)]), (1, 2, [(1, 2, "3")]), (1, 2, [7])],
)
def test_waits_of_another_layout_are_refused(value: object) -> None:
    with pytest.raises(ProtocolError):
        frames.decode_items(msgpack.packb(value), 3)


@pytest.mark.parametrize("value", [None, (), tuple(HEARTBEAT)[1:], (*HEARTBEAT[1:], "x")])
def test_beats_of_another_layout_are_refused(value: object) -> None:
    with pytest.raises(ProtocolError):
        frames.decode_heartbeat(msgpack.packb(value))


@pytest.mark.parametrize("name", frames.Heartbeat._fields)
def test_a_number_is_no_flag_and_a_flag_is_no_number(name: str) -> None:
    """Compiled code raises within the turn when it reads a number as a flag."""
    fields: dict[str, int] = HEARTBEAT._asdict()
    fields[name] = 1 if type(fields[name]) is bool else True
    with pytest.raises(ProtocolError, match=name):
        frames.decode_heartbeat(msgpack.packb(tuple(fields.values())))


@pytest.mark.parametrize("value", [[1], 7, b"x", {1: 2}, {b"t": b"x"}])
def test_a_hint_that_is_no_mapping_of_counts_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError):
        frames.unpack_hint(msgpack.packb(value))


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes) -> None:
    for decode in (
        frames.decode_batch,
        frames.decode_heartbeat,
        frames.unpack_hint,
        lambda frame: frames.decode_items(frame, 2),
    ):
        try:
            decode(data)
        except ProtocolError:
            continue
