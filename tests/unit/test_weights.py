"""A command's weight is never less than its size, so that limits on weights limit sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole import weights
from beanpole.constants import (
    BATCH_COMMANDS_MAX,
    BATCH_MAX_BYTES,
    DEDUP_KEY_MAX_BYTES,
    EXTERNAL_ID_MAX_BYTES,
    EXTRA_MAX_BYTES,
    HOST_NAME_MAX_BYTES,
    JOB_ID_MAX,
    JOB_SIZE_MAX_BYTES,
    NOTIFY_MAX_BYTES,
    PROGRESS_MAX_BYTES,
    QUEUE_NAME_MAX_BYTES,
    SECOND_US,
    TTL_MAX_US,
    TUBE_NAME_MAX_BYTES,
    U32_MAX,
)
from beanpole.core.operations.changes import GRACE_MAX_US, SECRET_MAX_BYTES, SESSION_NUMBER_MAX
from beanpole.core.operations.operation import ClientOperation, LeaderOperation
from beanpole.core.operations.table import OPERATIONS, is_command, packed_bytes
from beanpole.core.users import TOKEN_DIGEST_BYTES, USER_NAME_MAX_BYTES

U64_MAX = 2**64 - 1
CLIENTS = [entry for entry in OPERATIONS.values() if isinstance(entry, ClientOperation)]

SESSION = st.sampled_from((1, SESSION_NUMBER_MAX))
JOB = st.sampled_from((0, JOB_ID_MAX, U64_MAX))
NUMBER = st.sampled_from((0, U32_MAX))
TUBE = st.sampled_from((b"t", bytes(31), bytes(32), bytes(TUBE_NAME_MAX_BYTES)))
BODY = st.sampled_from((b"", bytes(255), bytes(256), bytes(65_535), bytes(65_536)))
KEY = st.sampled_from((b"k", bytes(DEDUP_KEY_MAX_BYTES)))
QUEUE = st.sampled_from((b"\x01", bytes(255), bytes(256), bytes(QUEUE_NAME_MAX_BYTES)))
TIME_US = st.sampled_from((0, U32_MAX * SECOND_US, TTL_MAX_US))
EXTERNAL_ID = st.sampled_from((b"", bytes(255), bytes(256), bytes(EXTERNAL_ID_MAX_BYTES)))
EXTRA = st.sampled_from((b"", bytes(EXTRA_MAX_BYTES)))
USER = st.sampled_from((b"u", bytes(USER_NAME_MAX_BYTES)))
TOKEN = st.sampled_from((b"", bytes(TOKEN_DIGEST_BYTES)))
# The items of each operation after the session.
ITEMS: dict[int, tuple[st.SearchStrategy[object], ...]] = {
    c.OPEN: (),
    c.CLOSE: (st.just(1),),
    c.PUT: (TUBE, NUMBER, NUMBER, NUMBER, BODY),
    c.USE: (TUBE,),
    c.WATCH: (TUBE,),
    c.IGNORE: (TUBE,),
    c.DELETE: (JOB,),
    c.RELEASE: (JOB, NUMBER, NUMBER),
    c.BURY: (JOB, NUMBER),
    c.TOUCH: (JOB,),
    c.KICK: (TUBE, NUMBER, st.just(4)),
    c.KICK_JOB: (JOB,),
    c.RESERVE_JOB: (JOB,),
    c.PAUSE_TUBE: (TUBE, NUMBER),
    c.RETURN: (JOB,),
    c.KEEP: (st.just(bytes(SECRET_MAX_BYTES)), st.just(GRACE_MAX_US)),
    c.RESUME: (st.just(bytes(SECRET_MAX_BYTES)),),
    c.PUT_KEYED: (TUBE, NUMBER, NUMBER, NUMBER, BODY, KEY),
    c.SET_PROTOCOL: (st.just(255),),
    c.TAKE: (),
    c.NOTIFY: (JOB, NUMBER, st.sampled_from((b"", bytes(NOTIFY_MAX_BYTES)))),
    c.ADD: (QUEUE, NUMBER, TIME_US, TIME_US, TIME_US, EXTERNAL_ID, NUMBER, NUMBER, BODY),
    c.FINISH: (JOB, NUMBER, BODY),
    c.PROGRESS: (JOB, st.just(bytes(PROGRESS_MAX_BYTES))),
    c.OPEN_FROM: (st.sampled_from((b"h", bytes(HOST_NAME_MAX_BYTES))),),
    c.SUBMIT: (QUEUE, NUMBER, TIME_US, EXTERNAL_ID, NUMBER, NUMBER, EXTRA, BODY),
    c.FINISH_NAMED: (EXTERNAL_ID, NUMBER, BODY),
    c.DELETE_NAMED: (EXTERNAL_ID,),
    c.SET_TTR: (JOB, TIME_US),
    c.CREATE_QUEUE: (QUEUE,),
    c.DROP_QUEUE: (QUEUE,),
    c.LIMIT_QUEUE: (QUEUE, NUMBER, NUMBER, NUMBER),
    c.SET_ALIAS: (QUEUE, QUEUE),
    c.CHANGE_JOB: (JOB, NUMBER, NUMBER, QUEUE, QUEUE, TIME_US),
    c.PAUSE_QUEUE: (QUEUE, NUMBER),
    c.SET_POLICY: (
        *(QUEUE, NUMBER, QUEUE, NUMBER, TIME_US, NUMBER, NUMBER, NUMBER),
        *(TIME_US, TIME_US, TIME_US, NUMBER, TIME_US),
    ),
    c.DROP_POLICY: (QUEUE,),
    c.AS_USER: (USER, TOKEN),
    c.SET_USER: (USER, BODY, NUMBER, TIME_US, NUMBER),
    c.DROP_USER: (USER,),
    c.SET_TOKEN: (USER, TOKEN, st.just(1)),
    c.SET_RULES: (BODY,),
    c.QLESS: (NUMBER, NUMBER, st.sampled_from((0, U64_MAX)), BODY),
    c.QLESS_READ: (NUMBER, NUMBER, st.sampled_from((0, U64_MAX)), BODY),
    c.FIND: (EXTERNAL_ID,),
    c.RESULT: (JOB,),
    c.PEEK: (JOB,),
    c.PEEK_READY: (TUBE,),
    c.PEEK_DELAYED: (TUBE,),
    c.PEEK_BURIED: (TUBE,),
    c.STATS: (),
    c.STATS_JOB: (JOB,),
    c.STATS_TUBE: (TUBE,),
    c.LIST_TUBES: (),
}


@st.composite
def commands(draw: st.DrawFn) -> c.Command:
    """Draw a legal client command, with numbers and strings of the largest or smallest size."""
    operation = draw(st.sampled_from(sorted(ITEMS)))
    return (operation, draw(SESSION), *(draw(item) for item in ITEMS[operation]))


def test_every_operation_of_a_client_is_tried() -> None:
    assert set(ITEMS) == {entry.code for entry in CLIENTS}


@pytest.mark.parametrize("entry", CLIENTS, ids=lambda entry: str(entry.code))
def test_a_weight_is_at_least_that_of_its_fields(entry: ClientOperation) -> None:
    assert entry.shape[0] is int and entry.shape[1] is int
    fields = sum(field.packed_bytes for field in entry.fields)
    assert weights.HEAD_BYTES + fields <= entry.weight
    assert [entry.shape[place] for place in entry.strings] == [bytes] * len(entry.strings)


@given(st.lists(commands(), max_size=20))
def test_no_command_takes_more_than_it_weighs(some: list[c.Command]) -> None:
    assert all(map(is_command, some))
    weight = sum(map(packed_bytes, some))
    assert len(c.pack_commands(some)) <= weights.SECTION_ARRAY_BYTES + weight


@pytest.mark.parametrize("operation", sorted(ITEMS))
def test_a_weight_is_near_what_it_stands_for(operation: int) -> None:
    tube, body = b"default", bytes(100)
    items = {bytes: tube, int: 70_000}
    command: c.Command = tuple(items[shape] for shape in OPERATIONS[operation].shape)
    command = (operation, *command[1:])
    if operation in (c.PUT, c.PUT_KEYED):
        command = (*command[:6], body, *command[7:])
    assert 0 <= packed_bytes(command) - len(c.pack_commands([command])) < 30


def test_the_largest_command_fits_into_a_batch() -> None:
    numbers = (U32_MAX, U32_MAX, U32_MAX)
    body = bytes(JOB_SIZE_MAX_BYTES)
    key = bytes(DEDUP_KEY_MAX_BYTES)
    queue, external_id = bytes(QUEUE_NAME_MAX_BYTES), bytes(EXTERNAL_ID_MAX_BYTES)
    put = (c.PUT_KEYED, SESSION_NUMBER_MAX, bytes(TUBE_NAME_MAX_BYTES), *numbers, body, key)
    largest = (
        *(c.SUBMIT, SESSION_NUMBER_MAX, queue, U32_MAX, TTL_MAX_US, external_id),
        *(U32_MAX, U32_MAX, bytes(EXTRA_MAX_BYTES), body),
    )
    assert packed_bytes(put) < packed_bytes(largest) == weights.COMMAND_MAX_BYTES
    assert len(c.pack_commands([largest])) <= BATCH_MAX_BYTES


def test_the_largest_entry_is_a_batch_and_what_the_leader_adds() -> None:
    number = U64_MAX
    epoch = (c.EPOCH, *[number] * (len(OPERATIONS[c.EPOCH].shape) - 1))
    grant = (c.GRANT, *[number] * 5)
    own = c.pack_commands([epoch, *[grant] * weights.LEADER_COMMANDS_MAX])
    grants = c.pack_commands([grant] * weights.GRANTS_FOR_PUTS_MAX)
    sections = [
        (c.LEADER, 0, 0, own),
        (63, 2**32 - 1, number, bytes(BATCH_MAX_BYTES)),
        (c.LEADER, 0, 0, grants),
    ]
    entry = c.encode_entry(255, 2**62, 2**62, sections)
    assert len(entry) <= weights.ENTRY_MAX_BYTES
    own_ones = [entry for entry in OPERATIONS.values() if isinstance(entry, LeaderOperation)]
    assert max(len(entry.shape) for entry in own_ones) == len(epoch)
    assert len(epoch) == 1 + weights.LEADER_NUMBERS_MAX


def test_the_largest_hint_fits() -> None:
    import msgpack

    hint = {
        b"%0*d" % (QUEUE_NAME_MAX_BYTES, number): U32_MAX for number in range(BATCH_COMMANDS_MAX)
    }
    packed: bytes = msgpack.packb(hint)
    assert len(packed) <= weights.HINT_MAX_BYTES
