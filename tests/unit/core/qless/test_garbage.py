"""No call of qless makes `apply` raise, whatever its arguments; an invalid call changes nothing."""

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.machine import Machine
from beanpole.core.operations import qless
from beanpole.core.qless import shapes
from beanpole.core.qless.calls import CALLS
from tests.unit.core.cluster import Cluster, image_of
from tests.unit.core.qless.random_calls import Calls
from tests.unit.core.qless.test_images import check, opened

FLOATS = st.one_of(
    st.floats(),
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 2.0**53, -(2.0**53), 2.0**53 + 2, 86_400.0, 1e9]),
)
INTS = st.sampled_from([0, 1, -1, 2, 7, 2**31, 2**53, -(2**53), 2**53 + 1, 2**63, 2**64 - 1])
NAMES = st.sampled_from(
    [b"", b"q", b"j0", b"j1", b"w", b"red", b"\xff\0", b"t", b"heartbeat", b"x" * 4096, b"x" * 4097]
)
PLAIN = st.one_of(st.none(), st.booleans(), INTS, FLOATS, NAMES, st.text(max_size=3))
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


def fitting(kind: shapes.Kind) -> st.SearchStrategy[Any]:
    """Arguments of a kind, with the largest and the smallest numbers."""
    if isinstance(kind, shapes.Text):
        return NAMES
    if isinstance(kind, (shapes.Number, shapes.Positive)):
        return FLOATS
    if isinstance(kind, shapes.Count):
        return st.one_of(st.integers(0, 9), INTS)
    if isinstance(kind, shapes.Truth):
        return st.booleans()
    if isinstance(kind, shapes.Optional):
        return st.one_of(st.none(), fitting(kind.kind))
    if isinstance(kind, shapes.Many):
        return st.lists(fitting(kind.kind), max_size=3).map(tuple)
    if isinstance(kind, shapes.Row):
        return st.tuples(*map(fitting, kind.kinds))
    assert isinstance(kind, shapes.Choice)
    pairs = kind.kinds.items()
    return st.one_of([st.tuples(st.just(key), fitting(inner)) for key, inner in pairs])


CODES = st.one_of(st.sampled_from(sorted(CALLS)), INTS)
FLAVOURS = st.one_of(st.sampled_from(q.FLAVOURS), INTS)
SHAPED = st.sampled_from(sorted(CALLS)).flatmap(
    lambda code: st.tuples(
        st.just(code),
        st.sampled_from(q.FLAVOURS),
        st.one_of(st.floats(-1e6, 1e6), FLOATS),
        fitting(CALLS[code].shape),
    )
)
ANY = st.tuples(CODES, FLAVOURS, FLOATS, st.lists(VALUES, max_size=12).map(tuple))


def send(cluster: Cluster, call: tuple[int, int, float, tuple[Any, ...]]) -> Any:
    code, flavour, now, args = call
    return cluster.do(*qless.command(1, code, flavour, now, args))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 9), st.lists(st.one_of(SHAPED, SHAPED, SHAPED, ANY), max_size=8))
def test_nothing_makes_a_call_raise(
    seed: int, some: list[tuple[int, int, float, tuple[Any, ...]]]
) -> None:
    cluster, source, other = opened(), Calls(seed), Machine()
    for _ in range(12):
        cluster.do(*source.command())
    for one in some:
        result = send(cluster, one)
        assert result == c.BAD_COMMAND or type(result) is tuple
    for _ in range(4):
        cluster.do(*source.command())
    for entry in cluster.log:
        other.apply(*entry)
    assert other.state_hash == cluster.machine.state_hash
    image = image_of(cluster.machine)
    assert image_of(other) == image
    check(cluster.machine)


@settings(max_examples=300, deadline=None)
@given(ANY)
def test_what_is_refused_changes_nothing(call: tuple[int, int, float, tuple[Any, ...]]) -> None:
    cluster = opened()
    source = Calls(1)
    for _ in range(20):
        cluster.do(*source.command())
    t = cluster.machine.qless
    before = (t.bytes, sorted(t.jobs), sorted(t.queues), t.config.copy(), len(t.workers))
    result = send(cluster, call)
    if result == c.BAD_COMMAND or result[0] != q.OK:
        assert before == (*(t.bytes, sorted(t.jobs), sorted(t.queues), t.config, len(t.workers)),)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), CODES, FLAVOURS, INTS)
def test_arguments_may_be_any_bytes(packed: bytes, code: int, flavour: int, now: int) -> None:
    cluster = opened()
    for operation in (c.QLESS, c.QLESS_READ):
        result = cluster.do(operation, 1, code, flavour, now, packed)
        assert result == c.BAD_COMMAND or type(result) is tuple


@pytest.mark.parametrize("value", [{1: 2}, [{b"a": b"b"}], "text", 5])
def test_arguments_that_are_no_list_of_plain_values(value: object) -> None:
    cluster = opened()
    packed = msgpack.packb(value)
    assert cluster.do(c.QLESS, 1, q.PUT, q.CORE, 0, packed) == (q.BAD_CALL, ())
