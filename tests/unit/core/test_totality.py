"""No input makes `apply` raise, and any resulting state can be written as an image."""

from collections.abc import Iterator

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.core.operations.table import OPERATIONS
from tests.unit.core.cluster import DEFAULT, Cluster, copy_of, image_of
from tests.unit.core.foreign import QUEUES, ROWS, Foreign, add_spaces

EDGES = st.sampled_from(
    [
        *(0, 1, 2, 3, 4, 2**32 - 1, 2**32, 2**53, 2**60, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63)),
        *ROWS,
    ]
)
NAMES = st.sampled_from([b"", DEFAULT, b"a", b"s" * 16, b"x" * 201, *QUEUES.values()])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), EDGES, st.floats(), NAMES, st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(EDGES, NAMES), inner, max_size=2),
    ),
    max_leaves=6,
)
SHAPED = st.one_of(
    *(
        st.tuples(
            st.just(operation), *(EDGES if kind is int else NAMES for kind in entry.shape[1:])
        )
        for operation, entry in OPERATIONS.items()
    )
)
MISSHAPED = st.tuples(st.sampled_from(sorted(OPERATIONS)), VALUES, VALUES)
ANYTHING = st.lists(st.one_of(SHAPED, SHAPED, MISSHAPED, VALUES), max_size=8)


@pytest.fixture(autouse=True, scope="module")
def spaces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), ANYTHING), max_size=6),
    st.integers(0, 2**63 - 1),
    st.sampled_from([0, *ROWS]),
)
def test_nothing_makes_apply_raise(
    batches: list[tuple[bool, list[c.Command]]], time_us: int, protocol: int
) -> None:
    cluster = Foreign(protocol) if protocol else Cluster()
    cluster.open(1)
    cluster.put()
    if protocol:
        cluster.do(c.ADD, 2, QUEUES[protocol], 1, 0, 1, 1, b"a", 1, 1, b"")
    for from_leader, commands in batches:
        payload = c.unpack_commands(c.pack_commands(commands))
        if from_leader:
            cluster.lead(*payload)
        else:
            results = cluster.batch(*payload)
            assert not results or len(results) == len(payload)
    cluster.time_us = time_us
    cluster.pass_s(0)
    cluster.machine.next_due_us(time_us)
    image = image_of(cluster.machine)
    assert image_of(copy_of(cluster.machine)) == image


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_a_payload_of_any_value_is_taken(value: object) -> None:
    cluster = Cluster()
    cluster.open(1)
    commands = c.unpack_commands(msgpack.packb(value))
    cluster.batch(*commands)
    cluster.lead(*commands)


@pytest.mark.parametrize("command", [(), 5, b"x", None, (1.0, 1), (True, 1), ("1", 1), ((1,), 1)])
def test_what_is_no_command_is_a_bad_command(command: c.Command) -> None:
    cluster = Cluster()
    cluster.open(1)
    if type(command) is tuple:
        assert cluster.do(*command) == c.BAD_COMMAND
    assert cluster.batch(command, (c.USE, 1, b"t")) == [c.BAD_COMMAND, c.OK]
    cluster.lead(command)


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_a_wrong_layout_is_a_bad_command_and_changes_nothing(operation: int) -> None:
    cluster = Cluster()
    cluster.open(1)
    job = cluster.put()
    before = cluster.machine.queue.jobs[job]
    shape = OPERATIONS[operation].shape
    wrong = (operation, *(b"" if kind is int else 1 for kind in shape[1:]))
    commands: list[c.Command] = [wrong] if len(shape) > 1 else []
    commands += [(operation, *(1 if kind is int else b"s" * 16 for kind in shape[1:]), 1)]
    assert cluster.batch(*commands) == [c.BAD_COMMAND] * len(commands)
    applied = cluster.lead(*commands)
    assert (applied.grants, applied.downs, applied.epoch, applied.digest) == ([], [], 0, False)
    assert list(cluster.machine.queue.jobs.values()) == [before]


@pytest.mark.parametrize("operation", [c.EPOCH, c.NODE_DOWN, c.GRANT, c.DIGEST, c.RAISE])
def test_a_client_cannot_speak_for_the_leader(operation: int) -> None:
    cluster = Cluster()
    cluster.open(1)
    command = (operation, *([1] * (len(OPERATIONS[operation].shape) - 1)))
    assert cluster.do(*command) == c.BAD_COMMAND
    assert (cluster.machine.term, cluster.machine.version) == (0, c.BASE_VERSION)
