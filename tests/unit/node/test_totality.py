"""Any input of a peer or client ends at most its own link or connection, and no turn raises."""

from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.core.operations.table import OPERATIONS
from beanpole.errors import ProtocolError
from beanpoled.links import frames
from tests.unit.node.stage import Stage, leading, put

NUMBERS = st.one_of(
    st.integers(0, 5),
    st.sampled_from([-(2**63), -1, 2**16, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1]),
)
VALUES = st.recursive(
    st.one_of(
        NUMBERS,
        st.none(),
        st.booleans(),
        st.floats(),
        st.binary(max_size=4),
        st.text(max_size=3),
        st.sampled_from([b"default", b"t"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(NUMBERS, st.binary(max_size=3), st.just(b"default")), inner, max_size=3
        ),
    ),
    max_leaves=8,
)
ITEMS = st.lists(st.one_of(st.tuples(NUMBERS, NUMBERS, NUMBERS), st.tuples(NUMBERS, NUMBERS)))


def shaped(operation: int) -> st.SearchStrategy[c.Command]:
    """Draw a command with the right types and any values."""
    kinds: dict[type, st.SearchStrategy[Any]] = {
        int: NUMBERS,
        bytes: st.sampled_from([b"", b"default", b"t", bytes(201)]),
    }
    return st.tuples(st.just(operation), *(kinds[kind] for kind in OPERATIONS[operation].shape[1:]))


COMMANDS = st.one_of(VALUES, st.sampled_from(sorted(OPERATIONS)).flatmap(shaped), st.just(put()))
PAYLOADS = st.one_of(st.binary(max_size=20), st.lists(COMMANDS, max_size=5).map(c.pack_commands))
HINTS = st.one_of(st.binary(max_size=9), VALUES.map(msgpack.packb))


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, bytes]:
    """Draw a batch, often with the next number of its link."""
    frame = frames.encode_batch(
        draw(st.sampled_from([1, 1, 1, 0, 2**64 - 1])),
        draw(st.sampled_from([1, 1, 2, 2**32 - 1])),
        draw(st.sampled_from([2, 2, 1, 3, 2**64 - 1])),
        draw(st.booleans()),
        draw(st.sampled_from([0, 1, 2**32 - 1])),
        draw(HINTS),
        draw(PAYLOADS),
    )
    return frames.BATCH, frame


@st.composite
def lists(draw: st.DrawFn) -> tuple[int, bytes]:
    """Draw WAITS, UNWAITS or NONES."""
    kind = draw(st.sampled_from([frames.WAITS, frames.UNWAITS, frames.NONES]))
    term = draw(st.one_of(st.just(1), VALUES))
    incarnation = draw(st.one_of(st.just(1), VALUES))
    items = draw(st.one_of(ITEMS, VALUES))
    return kind, frames.pack((term, incarnation, items))


BEATS = st.lists(st.one_of(NUMBERS, st.booleans(), VALUES), min_size=10, max_size=18)
FRAMES = st.one_of(
    batches(),
    lists(),
    st.tuples(st.just(frames.HEARTBEAT), BEATS.map(frames.pack)),
    st.tuples(st.integers(0, 255).filter(lambda kind: kind != frames.RAFT), st.binary(max_size=40)),
)


def receive(stage: Stage, peer: str, kind: int, payload: bytes) -> None:
    """Handle a frame as the host does: an invalid frame ends the link."""
    try:
        stage.node.router.receive(peer, kind, payload)
    except ProtocolError:
        stage.node.router.link_down(peer)
        stage.node.router.link_up(peer)


def live_on(stage: Stage) -> None:
    """Assert that turns go on and that proposals are applied."""
    stage.run()
    for _ in range(3):
        stage.commit()
        stage.pass_us(20_000)
    stage.commit()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["n1", "n2"]), FRAMES), max_size=8))
def test_no_frame_raises_in_a_turn_of_the_leader(some: list[tuple[str, tuple[int, bytes]]]) -> None:
    stage = leading()
    _, port = stage.client(b"reserve-with-timeout 1\r\n")
    for peer, (kind, payload) in some:
        receive(stage, peer, kind, payload)
        stage.run()
    live_on(stage)
    assert not port.closed


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["n1", "n2"]), FRAMES), max_size=8))
def test_no_frame_raises_in_a_turn_of_a_follower(
    some: list[tuple[str, tuple[int, bytes]]],
) -> None:
    stage = Stage()
    stage.follow()
    for peer, (kind, payload) in some:
        receive(stage, peer, kind, payload)
        stage.run()
    stage.become("leader", "n0", 2)
    live_on(stage)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [
                    b"put 0 0 60 1\r\nx\r\n",
                    b"put 4294967295 4294967295 4294967295 0\r\n\r\n",
                    b"reserve\r\n",
                    b"reserve-with-timeout 2147483647\r\n",
                    b"kick 18446744073709551615\r\n",
                    b"delete 18446744073709551615\r\n",
                    b"release 18446744073709551615 4294967295 4294967295\r\n",
                    b"pause-tube default 4294967295\r\n",
                    b"watch " + b"t" * 200 + b"\r\n",
                    b"stats\r\nlist-tubes\r\nstats-tube default\r\n",
                ]
            ),
        ),
        max_size=12,
    )
)
def test_no_bytes_of_a_client_raise_in_a_turn(some: list[bytes]) -> None:
    stage = Stage()
    stage.lead()
    stage.come_up()
    connection, _ = stage.client()
    for data in some:
        connection.received(data)
        stage.run()
        stage.commit()
    live_on(stage)
    _, port = stage.client(b"put 0 0 60 1\r\ny\r\n")
    live_on(stage)
    assert port.output.startswith(b"INSERTED")
