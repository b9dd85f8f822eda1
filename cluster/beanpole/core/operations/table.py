"""The table of operations, with one entry for each, and functions derived from the entries.

A new operation is a code in `commands`, an entry here and a handler in one of the modules that are
imported below. The machine, origins, batches and the simulator depend on the entries only.
"""

from typing import Any, Final

from beanpole import commands as c
from beanpole.core.hosts import HOSTS_SINCE
from beanpole.core.jobs.aliases import ALIASES_SINCE
from beanpole.core.operations import (
    administering,
    changes,
    extended,
    leading,
    policies,
    qless,
    queues,
    reads,
    users,
)
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
    FREE,
    FROM,
    GRACE_US,
    HIGH,
    HOST,
    INCARNATION,
    JOB,
    JOBS_MAX,
    KEEPS,
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
    RIGHTS,
    RULES,
    SECRET,
    SESSION,
    SESSIONS_MAX,
    STATE,
    STATES,
    TERM,
    TO,
    TOKEN,
    TTL_US,
    TTR_S,
    TTR_US,
    TUBE,
    TUBES_MAX,
    UNIQUE_WINDOW_US,
    USER,
    VALUE,
    VERSION,
    WHEN_FULL,
    ClientOperation,
    LeaderOperation,
    Need,
    Operation,
    fits,
)
from beanpole.core.users import ADMIN, ANY_RIGHT, PUT, USERS_SINCE, WORK
from beanpole.weights import (
    ADD_BYTES,
    CHANGE_BYTES,
    COMMAND_BYTES,
    LEADER_NUMBERS_MAX,
    POLICY_BYTES,
    PUT_BYTES,
    QLESS_BYTES,
    SUBMIT_BYTES,
    USER_BYTES,
)

# The machine version of Workq, Gearman and qless.
SUBMIT_SINCE: Final = 4

_JOB_FIELDS: Final = (SESSION, TUBE, PRIORITY, DELAY_S, TTR_S, BODY)

# The rights that a session's user needs, and where. Operations of a session on itself are free.
_SEE_TUBE: Final = Need(ANY_RIGHT, (TUBE,))
_SEE_JOB: Final = Need(ANY_RIGHT, (JOB,))
_PUT_TUBE: Final = Need(PUT, (TUBE,))
_PUT_QUEUE: Final = Need(PUT, (QUEUE,))
# A submission may join a job that was moved to another queue.
_SUBMIT: Final = Need(PUT, (QUEUE, EXTERNAL_ID))
_WORK_TUBE: Final = Need(WORK, (TUBE,))
_WORK_JOB: Final = Need(WORK, (JOB,))
_END_JOB: Final = Need(WORK | ADMIN, (JOB,))  # a user that may get a job may end it
_END_NAMED: Final = Need(WORK | ADMIN, (EXTERNAL_ID,))
_RULE_TUBE: Final = Need(ADMIN, (TUBE,))
_RULE_QUEUE: Final = Need(ADMIN, (QUEUE,))
_RULE_JOB: Final = Need(ADMIN, (JOB,))
_RULE_ALL: Final = Need(ADMIN)  # operations on no single queue

_ENTRIES: Final[tuple[Operation, ...]] = (
    ClientOperation(c.OPEN, (SESSION,), changes.open_session, FREE, opens=True),
    ClientOperation(c.CLOSE, (SESSION, LOST), changes.close_session, FREE),
    ClientOperation(
        c.PUT,
        _JOB_FIELDS,
        changes.put,
        _PUT_TUBE,
        weight=PUT_BYTES,
        makes_ready=TUBE,
        unless=DELAY_S,
    ),
    ClientOperation(c.USE, (SESSION, TUBE), changes.use, _SEE_TUBE),
    ClientOperation(c.WATCH, (SESSION, TUBE), changes.watch, _WORK_TUBE),
    ClientOperation(c.IGNORE, (SESSION, TUBE), changes.ignore, FREE),
    ClientOperation(c.DELETE, (SESSION, JOB), changes.delete, _END_JOB),
    ClientOperation(c.RELEASE, (SESSION, JOB, PRIORITY, DELAY_S), changes.release, _WORK_JOB),
    ClientOperation(c.BURY, (SESSION, JOB, PRIORITY), changes.bury, _WORK_JOB),
    ClientOperation(c.TOUCH, (SESSION, JOB), changes.touch, _WORK_JOB),
    ClientOperation(c.KICK, (SESSION, TUBE, BOUND, STATE), changes.kick, _RULE_TUBE),
    ClientOperation(c.KICK_JOB, (SESSION, JOB), changes.kick_job, _RULE_JOB),
    ClientOperation(c.RESERVE_JOB, (SESSION, JOB), changes.reserve_job, _WORK_JOB),
    ClientOperation(c.PAUSE_TUBE, (SESSION, TUBE, DELAY_S), changes.pause_tube, _RULE_TUBE),
    ClientOperation(c.RETURN, (SESSION, JOB), changes.give_back, FREE),
    ClientOperation(c.KEEP, (SESSION, SECRET, GRACE_US), changes.make_resumable, FREE),
    ClientOperation(c.RESUME, (SESSION, SECRET), changes.resume_session, FREE),
    ClientOperation(
        c.PUT_KEYED,
        (*_JOB_FIELDS, KEY),
        changes.put_keyed,
        _PUT_TUBE,
        weight=PUT_BYTES,
        makes_ready=TUBE,
        unless=DELAY_S,
    ),
    ClientOperation(c.SET_PROTOCOL, (SESSION, PROTOCOL), changes.set_protocol, FREE),
    ClientOperation(c.TAKE, (SESSION,), changes.take, FREE, since=3),
    ClientOperation(c.NOTIFY, (SESSION, JOB, KIND, DATA), changes.notify, _WORK_JOB, since=3),
    ClientOperation(
        c.ADD,
        (
            *(SESSION, QUEUE, RANK, DELAY_US, TTR_US, TTL_US),
            *(EXTERNAL_ID, ATTEMPTS_MAX, FAILURES_MAX, BODY),
        ),
        extended.add,
        _PUT_QUEUE,
        weight=ADD_BYTES,
        makes_ready=QUEUE,
        unless=DELAY_US,
        since=3,
    ),
    ClientOperation(c.FINISH, (SESSION, JOB, STATE, RESULT), extended.finish, _WORK_JOB, since=3),
    ClientOperation(
        c.PROGRESS, (SESSION, JOB, PROGRESS), extended.set_progress, _WORK_JOB, since=3
    ),
    ClientOperation(
        c.OPEN_FROM, (SESSION, HOST), changes.open_session_from, FREE, since=HOSTS_SINCE, opens=True
    ),
    ClientOperation(
        c.SUBMIT,
        (
            *(SESSION, QUEUE, RANK, DELAY_US, EXTERNAL_ID),
            *(ATTEMPTS_MAX, FOREGROUND, EXTRA, BODY),
        ),
        extended.submit,
        _SUBMIT,
        weight=SUBMIT_BYTES,
        makes_ready=QUEUE,
        unless=DELAY_US,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.FINISH_NAMED,
        (SESSION, EXTERNAL_ID, STATE, RESULT),
        extended.finish_named,
        Need(WORK, (EXTERNAL_ID,)),
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.DELETE_NAMED,
        (SESSION, EXTERNAL_ID),
        extended.delete_named,
        _END_NAMED,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.SET_TTR, (SESSION, JOB, TTR_US), extended.set_ttr, _WORK_JOB, since=SUBMIT_SINCE
    ),
    ClientOperation(
        c.CREATE_QUEUE, (SESSION, QUEUE), queues.create, _RULE_QUEUE, since=SUBMIT_SINCE
    ),
    ClientOperation(c.DROP_QUEUE, (SESSION, QUEUE), queues.drop, _RULE_QUEUE, since=SUBMIT_SINCE),
    ClientOperation(
        c.LIMIT_QUEUE,
        (SESSION, QUEUE, HIGH, NORMAL, LOW),
        queues.limit,
        _RULE_QUEUE,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.SET_ALIAS, (SESSION, ALIAS, QUEUE), queues.set_alias, _RULE_ALL, since=ALIASES_SINCE
    ),
    ClientOperation(
        c.CHANGE_JOB,
        (SESSION, JOB, ACTION, STATES, FROM, TO, VALUE),
        administering.change_job,
        Need(ADMIN, (JOB, TO)),
        weight=CHANGE_BYTES,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.PAUSE_QUEUE,
        (SESSION, QUEUE, DELAY_S),
        administering.pause_queue,
        _RULE_QUEUE,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.SET_POLICY,
        (
            *(SESSION, PATTERN, ATTEMPTS_MAX, TO, JOBS_MAX, BYTES_MAX, WHEN_FULL, TTR_S, PRIORITY),
            *(RETAIN_BURIED_US, RETAIN_DELAYED_US, UNIQUE_WINDOW_US, RATE, RATE_PERIOD_US),
        ),
        policies.set_policy,
        _RULE_ALL,
        weight=POLICY_BYTES,
        since=policies.POLICIES_SINCE,
    ),
    ClientOperation(
        c.DROP_POLICY,
        (SESSION, PATTERN),
        policies.drop_policy,
        _RULE_ALL,
        since=policies.POLICIES_SINCE,
    ),
    ClientOperation(c.AS_USER, (SESSION, USER, TOKEN), users.as_user, FREE, since=USERS_SINCE),
    ClientOperation(
        c.SET_USER,
        (SESSION, USER, RIGHTS, JOBS_MAX, BYTES_MAX, RATE),
        users.set_user,
        _RULE_ALL,
        weight=USER_BYTES,
        since=USERS_SINCE,
    ),
    ClientOperation(c.DROP_USER, (SESSION, USER), users.drop_user, _RULE_ALL, since=USERS_SINCE),
    ClientOperation(
        c.SET_TOKEN,
        (SESSION, USER, TOKEN, KEEPS),
        users.set_token,
        _RULE_ALL,
        since=USERS_SINCE,
    ),
    ClientOperation(c.SET_RULES, (SESSION, RULES), users.set_rules, _RULE_ALL, since=USERS_SINCE),
    # The right that a call needs depends on its number and arguments: `qless_permission`.
    ClientOperation(
        c.QLESS,
        (SESSION, CALL, FLAVOUR, NOW, ARGS),
        qless.change,
        FREE,
        weight=QLESS_BYTES,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(
        c.QLESS_READ,
        (SESSION, CALL, FLAVOUR, NOW, ARGS),
        qless.read,
        FREE,
        reads=True,
        weight=QLESS_BYTES,
        since=SUBMIT_SINCE,
    ),
    ClientOperation(c.PEEK, (SESSION, JOB), reads.peek, _SEE_JOB, reads=True),
    ClientOperation(c.PEEK_READY, (SESSION, TUBE), reads.peek_ready, _SEE_TUBE, reads=True),
    ClientOperation(c.PEEK_DELAYED, (SESSION, TUBE), reads.peek_delayed, _SEE_TUBE, reads=True),
    ClientOperation(c.PEEK_BURIED, (SESSION, TUBE), reads.peek_buried, _SEE_TUBE, reads=True),
    ClientOperation(c.STATS, (SESSION,), reads.stats, FREE, reads=True),
    ClientOperation(c.STATS_JOB, (SESSION, JOB), reads.stats_job, _SEE_JOB, reads=True),
    ClientOperation(c.STATS_TUBE, (SESSION, TUBE), reads.stats_tube, _SEE_TUBE, reads=True),
    ClientOperation(c.LIST_TUBES, (SESSION,), reads.list_tubes, FREE, reads=True),
    ClientOperation(
        c.FIND,
        (SESSION, EXTERNAL_ID),
        extended.find,
        Need(ANY_RIGHT, (EXTERNAL_ID,)),
        reads=True,
        since=3,
    ),
    ClientOperation(c.RESULT, (SESSION, JOB), extended.result_of, _SEE_JOB, reads=True, since=3),
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
    """Whether a value has exactly the types of its operation: values in the log are not trusted."""
    if type(value) is not tuple or not value or type(value[0]) is not int:
        return False
    operation = OPERATIONS.get(value[0])
    return operation is not None and fits(value, operation.shape)


def since(code: int) -> int:
    """Return the version that introduced an operation; BASE_VERSION for an unknown code."""
    operation = OPERATIONS.get(code)
    return c.BASE_VERSION if operation is None else operation.since


def packed_bytes(command: c.Command) -> int:
    """Return the largest size of a client's command in its batch, if its numbers are legal."""
    operation = OPERATIONS.get(command[0])
    if not isinstance(operation, ClientOperation):
        return COMMAND_BYTES
    size = operation.weight
    for place in operation.strings:
        size += len(command[place])
    return size


def ready_tube(command: c.Command) -> bytes | None:
    """Return the tube in which a client's command makes a job ready, if its origin can know it."""
    operation = OPERATIONS.get(command[0])
    if not isinstance(operation, ClientOperation) or not operation.ready_tube:
        return None
    if operation.ready_unless and command[operation.ready_unless]:
        return None
    tube: bytes = command[operation.ready_tube]
    return tube
