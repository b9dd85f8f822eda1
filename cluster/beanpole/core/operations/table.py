"""The table of operations: one entry for each, and what is read off the entries.

A new operation is its code in `commands`, an entry here and one function, in `changes`, `extended`,
`queues`, `qless`, `reads` or `leading`. The machine, origins, batches and the simulator know
operations by their entries only.
"""

from typing import Any, Final

from beanpole import commands as c
from beanpole.core.hosts import HOSTS_SINCE
from beanpole.core.operations import (
    administering,
    changes,
    extended,
    leading,
    policies,
    qless,
    queues,
    reads,
)
from beanpole.core.operations.checks import ALIASES_SINCE
from beanpole.core.operations.operation import (
    ACTION,
    ALIAS,
    ARGS,
    ATTEMPTS_MAX,
    BEHIND,
    BODY,
    BOUND,
    BYTES_MAX,
    CALL,
    DATA,
    DELAY_S,
    DELAY_US,
    EXPIRY_FLOOR_US,
    EXTERNAL_ID,
    EXTRA,
    FAILURES_MAX,
    FLAVOUR,
    FOREGROUND,
    FROM,
    GRACE_US,
    HIGH,
    HOST,
    INCARNATION,
    JOB,
    JOBS_MAX,
    KEY,
    KIND,
    LOST,
    LOW,
    NORMAL,
    NOW,
    ORIGIN,
    PATTERN,
    PRIORITY,
    PROGRESS,
    PROTOCOL,
    QUEUE,
    RANK,
    RATE,
    RATE_PERIOD_US,
    REQUEST,
    RESULT,
    RETAIN_BURIED_US,
    RETAIN_DELAYED_US,
    SECRET,
    SESSION,
    SESSIONS_MAX,
    STATE,
    STATES,
    TERM,
    TO,
    TTL_US,
    TTR_S,
    TTR_US,
    TUBE,
    TUBES_MAX,
    UNIQUE_WINDOW_US,
    VALUE,
    VERSION,
    WHEN_FULL,
    ClientOperation,
    LeaderOperation,
    Operation,
    fits,
)
from beanpole.weights import (
    ADD_BYTES,
    CHANGE_BYTES,
    COMMAND_BYTES,
    LEADER_NUMBERS_MAX,
    POLICY_BYTES,
    PUT_BYTES,
    QLESS_BYTES,
    SUBMIT_BYTES,
)

# The machine version of Workq, Gearman and qless.
SUBMIT_SINCE: Final = 4

_JOB_FIELDS: Final = (SESSION, TUBE, PRIORITY, DELAY_S, TTR_S, BODY)

_ENTRIES: Final[tuple[Operation, ...]] = (
    ClientOperation(c.OPEN, (SESSION,), changes.open_session, opens=True),
    ClientOperation(c.CLOSE, (SESSION, LOST), changes.close_session),
    ClientOperation(
        c.PUT, _JOB_FIELDS, changes.put, weight=PUT_BYTES, makes_ready=TUBE, unless=DELAY_S
    ),
    ClientOperation(c.USE, (SESSION, TUBE), changes.use),
    ClientOperation(c.WATCH, (SESSION, TUBE), changes.watch),
    ClientOperation(c.IGNORE, (SESSION, TUBE), changes.ignore),
    ClientOperation(c.DELETE, (SESSION, JOB), changes.delete),
    ClientOperation(c.RELEASE, (SESSION, JOB, PRIORITY, DELAY_S), changes.release),
    ClientOperation(c.BURY, (SESSION, JOB, PRIORITY), changes.bury),
    ClientOperation(c.TOUCH, (SESSION, JOB), changes.touch),
    ClientOperation(c.KICK, (SESSION, TUBE, BOUND, STATE), changes.kick),
    ClientOperation(c.KICK_JOB, (SESSION, JOB), changes.kick_job),
    ClientOperation(c.RESERVE_JOB, (SESSION, JOB), changes.reserve_job),
    ClientOperation(c.PAUSE_TUBE, (SESSION, TUBE, DELAY_S), changes.pause_tube),
    ClientOperation(c.RETURN, (SESSION, JOB), changes.give_back),
    ClientOperation(c.KEEP, (SESSION, SECRET, GRACE_US), changes.make_resumable),
    ClientOperation(c.RESUME, (SESSION, SECRET), changes.resume_session),
    ClientOperation(
        c.PUT_KEYED,
        (*_JOB_FIELDS, KEY),
        changes.put_keyed,
        weight=PUT_BYTES,
        makes_ready=TUBE,
        unless=DELAY_S,
    ),
    ClientOperation(c.SET_PROTOCOL, (SESSION, PROTOCOL), changes.set_protocol),
    ClientOperation(c.TAKE, (SESSION,), changes.take, since=3),
    ClientOperation(c.NOTIFY, (SESSION, JOB, KIND, DATA), changes.notify, since=3),
    ClientOperation(
        c.ADD,
        (
            *(SESSION, QUEUE, RANK, DELAY_US, TTR_US, TTL_US),
            *(EXTERNAL_ID, ATTEMPTS_MAX, FAILURES_MAX, BODY),
        ),
        extended.add,
        weight=ADD_BYTES,
        makes_ready=QUEUE,
        unless=DELAY_US,
        since=3,
    ),
    ClientOperation(c.FINISH, (SESSION, JOB, STATE, RESULT), extended.finish, since=3),
    ClientOperation(c.PROGRESS, (SESSION, JOB, PROGRESS), extended.set_progress, since=3),
    ClientOperation(
        c.OPEN_FROM, (SESSION, HOST), changes.open_session_from, since=HOSTS_SINCE, opens=True
    ),
    ClientOperation(
        c.SUBMIT,
        (
            *(SESSION, QUEUE, RANK, DELAY_US, EXTERNAL_ID),
            *(ATTEMPTS_MAX, FOREGROUND, EXTRA, BODY),
        ),
        extended.submit,
        weight=SUBMIT_BYTES,
        makes_ready=QUEUE,
        unless=DELAY_US,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.FINISH_NAMED,
        (SESSION, EXTERNAL_ID, STATE, RESULT),
        extended.finish_named,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.DELETE_NAMED, (SESSION, EXTERNAL_ID), extended.delete_named, since=SUBMIT_SINCE
    ),
    ClientOperation(c.SET_TTR, (SESSION, JOB, TTR_US), extended.set_ttr, since=SUBMIT_SINCE),
    ClientOperation(c.CREATE_QUEUE, (SESSION, QUEUE), queues.create, since=SUBMIT_SINCE),
    ClientOperation(c.DROP_QUEUE, (SESSION, QUEUE), queues.drop, since=SUBMIT_SINCE),
    ClientOperation(
        c.LIMIT_QUEUE, (SESSION, QUEUE, HIGH, NORMAL, LOW), queues.limit, since=SUBMIT_SINCE
    ),
    ClientOperation(c.SET_ALIAS, (SESSION, ALIAS, QUEUE), queues.set_alias, since=ALIASES_SINCE),
    ClientOperation(
        c.CHANGE_JOB,
        (SESSION, JOB, ACTION, STATES, FROM, TO, VALUE),
        administering.change_job,
        weight=CHANGE_BYTES,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.PAUSE_QUEUE, (SESSION, QUEUE, DELAY_S), administering.pause_queue, since=SUBMIT_SINCE
    ),
    ClientOperation(
        c.SET_POLICY,
        (
            *(SESSION, PATTERN, ATTEMPTS_MAX, TO, JOBS_MAX, BYTES_MAX, WHEN_FULL, TTR_S, PRIORITY),
            *(RETAIN_BURIED_US, RETAIN_DELAYED_US, UNIQUE_WINDOW_US, RATE, RATE_PERIOD_US),
        ),
        policies.set_policy,
        weight=POLICY_BYTES,
        since=policies.POLICIES_SINCE,
    ),
    ClientOperation(
        c.DROP_POLICY, (SESSION, PATTERN), policies.drop_policy, since=policies.POLICIES_SINCE
    ),
    ClientOperation(
        c.QLESS,
        (SESSION, CALL, FLAVOUR, NOW, ARGS),
        qless.change,
        weight=QLESS_BYTES,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.QLESS_READ,
        (SESSION, CALL, FLAVOUR, NOW, ARGS),
        qless.read,
        reads=True,
        weight=QLESS_BYTES,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(c.PEEK, (SESSION, JOB), reads.peek, reads=True),
    ClientOperation(c.PEEK_READY, (SESSION, TUBE), reads.peek_ready, reads=True),
    ClientOperation(c.PEEK_DELAYED, (SESSION, TUBE), reads.peek_delayed, reads=True),
    ClientOperation(c.PEEK_BURIED, (SESSION, TUBE), reads.peek_buried, reads=True),
    ClientOperation(c.STATS, (SESSION,), reads.stats, reads=True),
    ClientOperation(c.STATS_JOB, (SESSION, JOB), reads.stats_job, reads=True),
    ClientOperation(c.STATS_TUBE, (SESSION, TUBE), reads.stats_tube, reads=True),
    ClientOperation(c.LIST_TUBES, (SESSION,), reads.list_tubes, reads=True),
    ClientOperation(c.FIND, (SESSION, EXTERNAL_ID), extended.find, reads=True, since=3),
    ClientOperation(c.RESULT, (SESSION, JOB), extended.result_of, reads=True, since=3),
    LeaderOperation(
        c.EPOCH,
        (TERM, EXPIRY_FLOOR_US, JOBS_MAX, TUBES_MAX, SESSIONS_MAX, BYTES_MAX),
        leading.begin_epoch,
    ),
    LeaderOperation(c.NODE_DOWN, (ORIGIN, INCARNATION), leading.node_down),
    LeaderOperation(c.GRANT, (ORIGIN, INCARNATION, SESSION, REQUEST, BEHIND), leading.grant),
    LeaderOperation(c.DIGEST, (), leading.digest),
    LeaderOperation(c.RAISE, (VERSION,), leading.raise_version),
)

OPERATIONS: Final[dict[int, Operation]] = {entry.code: entry for entry in _ENTRIES}
assert len(OPERATIONS) == len(_ENTRIES), "a code names one operation"
assert all(
    len(entry.fields) <= LEADER_NUMBERS_MAX and set(entry.shape) == {int}
    for entry in _ENTRIES
    if isinstance(entry, LeaderOperation)
), "the leader's part of an entry has its bound from `weights`"


def is_command(value: Any) -> bool:
    """Whether a value has exactly the types of its operation: what a log holds may be anything."""
    if type(value) is not tuple or not value or type(value[0]) is not int:
        return False
    operation = OPERATIONS.get(value[0])
    return operation is not None and fits(value, operation.shape)


def since(code: int) -> int:
    """The machine version that brought an operation; the oldest for what is no operation."""
    operation = OPERATIONS.get(code)
    return c.BASE_VERSION if operation is None else operation.since


def packed_bytes(command: c.Command) -> int:
    """The largest size of a client's command in its batch, if its numbers are legal."""
    operation = OPERATIONS.get(command[0])
    if not isinstance(operation, ClientOperation):
        return COMMAND_BYTES
    size = operation.weight
    for place in operation.strings:
        size += len(command[place])
    return size


def ready_tube(command: c.Command) -> bytes | None:
    """The tube in which a client's command makes a job ready, as far as its origin can know."""
    operation = OPERATIONS.get(command[0])
    if not isinstance(operation, ClientOperation) or not operation.ready_tube:
        return None
    if operation.ready_unless and command[operation.ready_unless]:
        return None
    tube: bytes = command[operation.ready_tube]
    return tube
