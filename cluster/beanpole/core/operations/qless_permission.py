"""The permission check of calls of qless: a table with one row for each call.

The table has the rights that a call needs, and the queue in which it needs them. The rights of
users are in `core.users`; the check of all other operations is in `core.operations.permission`.

A call about a queue, a job or a template needs a right in its queue, all other calls need one in
every queue of qless. A missing job needs no right, or one in any queue where the call has an effect
nevertheless: the call itself reports that it is missing.
"""

from collections.abc import Callable
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.qless.tables import Tables
from beanpole.core.sessions import Session
from beanpole.core.state import MachineState
from beanpole.core.users import ADMIN, ANY_RIGHT, PUT, WORK, User
from beanpole.events import QLESS

# The meaning of the argument that a row refers to.
_ALL: Final = 0  # no argument: the call is about every queue
_QUEUE: Final = 1  # a queue; None or empty for every queue
_QUEUES: Final = 2
_JOB: Final = 3  # a jid
_JOBS: Final = 4
_TEMPLATE: Final = 5  # the jid of a template
_SOME: Final = 6  # no argument, and any queue will do: every library makes these calls first

# By calls: (rights, any one of which is needed; the meaning of an argument; the argument's index).
CALLS: Final[dict[int, tuple[int, int, int]]] = {
    q.PUT: (PUT, _QUEUE, 0),
    q.POP: (WORK, _QUEUE, 0),
    q.PEEK: (ANY_RIGHT, _QUEUE, 0),
    q.COMPLETE: (WORK, _JOB, 0),
    q.FAIL: (WORK, _JOB, 0),
    q.RETRY: (WORK, _JOB, 0),
    q.HEARTBEAT: (WORK, _JOB, 0),
    q.TIMEOUT: (WORK | ADMIN, _JOBS, 0),
    q.CANCEL: (WORK | ADMIN, _JOBS, 0),
    q.DEPENDS_ON: (PUT, _JOB, 0),
    q.DEPENDS_OFF: (PUT, _JOB, 0),
    q.PRIORITY: (PUT | ADMIN, _JOB, 0),
    q.TRACK: (ANY_RIGHT, _JOB, 0),
    q.UNTRACK: (ANY_RIGHT, _JOB, 0),
    q.TAG_ADD: (PUT | WORK, _JOB, 0),
    q.TAG_REMOVE: (PUT | WORK, _JOB, 0),
    q.LOG: (PUT | WORK, _JOB, 0),
    q.PAUSE: (ADMIN, _QUEUES, 0),
    q.UNPAUSE: (ADMIN, _QUEUES, 0),
    q.FORGET_QUEUES: (ADMIN, _QUEUES, 0),
    q.CONFIG_SET: (ADMIN, _ALL, 0),
    q.CONFIG_UNSET: (ADMIN, _ALL, 0),
    q.UNFAIL: (ADMIN, _QUEUE, 0),
    q.RECUR: (PUT, _QUEUE, 0),
    q.UNRECUR: (PUT, _TEMPLATE, 0),
    q.RECUR_UPDATE: (PUT, _TEMPLATE, 0),
    q.RECUR_TAG: (PUT, _TEMPLATE, 0),
    q.RECUR_UNTAG: (PUT, _TEMPLATE, 0),
    q.FORGET_WORKERS: (WORK | ADMIN, _ALL, 0),
    q.THROTTLE_SET: (ADMIN, _ALL, 0),
    q.THROTTLE_DELETE: (ADMIN, _ALL, 0),
    q.THROTTLE_RELEASE: (ADMIN, _ALL, 0),
    q.FLUSH: (ADMIN, _ALL, 0),
    q.QUEUE_COUNTS: (ANY_RIGHT, _QUEUE, 0),
    q.WORKER_COUNTS: (ANY_RIGHT, _ALL, 0),
    q.WORKER_JOBS: (ANY_RIGHT, _ALL, 0),
    q.JOBS: (ANY_RIGHT, _QUEUE, 1),
    q.SET_PATTERNS: (ADMIN, _ALL, 0),
    q.EDIT_PATTERNS: (ADMIN, _ALL, 0),
    q.IMPORT_JOB: (ADMIN, _ALL, 0),
    q.IMPORT_RECURRING: (ADMIN, _ALL, 0),
    q.IMPORT_QUEUE: (ADMIN, _ALL, 0),
    q.GET: (ANY_RIGHT, _JOB, 0),
    q.MULTIGET: (ANY_RIGHT, _JOBS, 0),
    q.TRACKED: (ANY_RIGHT, _ALL, 0),
    q.TAGGED: (ANY_RIGHT, _ALL, 0),
    q.TOP_TAGS: (ANY_RIGHT, _ALL, 0),
    q.FAILED_GROUPS: (ANY_RIGHT, _ALL, 0),
    q.FAILED_JOBS: (ANY_RIGHT, _ALL, 0),
    q.LENGTH: (ANY_RIGHT, _QUEUE, 0),
    q.STATS: (ANY_RIGHT, _QUEUE, 0),
    q.CONFIG_GET: (ANY_RIGHT, _SOME, 0),
    q.CONFIG_ALL: (ANY_RIGHT, _SOME, 0),
    q.RECUR_GET: (ANY_RIGHT, _TEMPLATE, 0),
    q.RECUR_SCORE: (ANY_RIGHT, _QUEUE, 0),
    q.THROTTLE_GET: (ANY_RIGHT, _ALL, 0),
    q.THROTTLE_LOCKS: (ANY_RIGHT, _ALL, 0),
    q.THROTTLE_PENDING: (ANY_RIGHT, _ALL, 0),
    q.KEYS: (ANY_RIGHT, _SOME, 0),
    q.PATTERNS: (ANY_RIGHT, _SOME, 0),
    q.QUEUE_NAMES: (ANY_RIGHT, _ALL, 0),
}
_PREFIX: Final = SPACES[QLESS].prefix
# Calls with an effect on others even if the job is missing: messages, a place among the tracked.
_HEARD: Final = frozenset({q.TRACK, q.UNTRACK, q.CANCEL})
# The index of the job's next queue in the arguments of COMPLETE and of RETRY, and of the changes in
# those of RECUR_UPDATE.
_NEXT_QUEUE: Final = 4
_RETRY_QUEUE: Final = 1
_FIELDS: Final = 1
# Calls that make a job wait for others; the index of the jids of those.
_DEPENDS: Final[dict[int, int]] = {q.PUT: 9, q.COMPLETE: 6, q.DEPENDS_ON: 1}
# The index of the throttles in PUT and in RECUR.
_THROTTLES: Final = 10
# The index of the jid in PUT and RECUR, which may be that of a job in another queue.
_JID: Final = 1


def allows_call(machine: MachineState, session: Session, call: int, args: tuple[Any, ...]) -> bool:
    """Whether a session may make a call; its arguments are not yet validated.

    A call that is unknown, or has invalid arguments, may pass: the call itself is refused.
    """
    user = machine.users.of(session.user, session.token)
    return user_may(machine.qless, user, call, args)


def user_may(t: Tables, user: User, call: int, args: tuple[Any, ...]) -> bool:
    """Whether a user may make a call: see `allows_call`."""
    row = CALLS.get(call)
    if row is None:
        return True
    rights, about, place = row
    if user.everywhere & rights:
        # To work everywhere is not to put anywhere. For the other checks, this right is enough.
        return _allows_second(t, user, call, args)
    value = _at(args, place)
    if about == _SOME:
        return bool(user.on_some_of(_PREFIX) & rights)
    if about == _QUEUE and type(value) is bytes and value:
        if not user.on(_PREFIX + value) & rights:
            return False
    elif about in (_ALL, _QUEUE):
        return bool(user.on_all_of(_PREFIX) & rights)
    elif call in _HEARD and not user.on_some_of(_PREFIX) & rights:
        return False
    return (
        _allows_other(t, user, rights, about, value)
        and _allows_second(t, user, call, args)
        and _may_depend(t, user, call, args)
        and _may_hold(user, call, args)
    )


def may_time(machine: MachineState, session: Session) -> Callable[[bytes], bool] | None:
    """Return whether the clock of a session's client counts in a queue; None if in every queue.

    The time of a call makes jobs due and complete jobs old. It may be a lie, so that it counts only
    if the user may end the jobs of the queue anyway.
    """
    user = machine.users.of(session.user, session.token)
    if user.on_all_of(_PREFIX) & (WORK | ADMIN):
        return None
    return lambda name: bool(user.on(_PREFIX + name) & (WORK | ADMIN))


def _allows_other(t: Tables, user: User, rights: int, about: int, value: Any) -> bool:
    """Whether the user has a right in the queues of the items that a value names."""
    if about == _QUEUES:
        return type(value) is not tuple or all(_may_in(user, rights, name) for name in value)
    if about == _JOB:
        return _may_job(t, user, rights, value)
    if about == _JOBS:
        return type(value) is not tuple or all(_may_job(t, user, rights, jid) for jid in value)
    return about != _TEMPLATE or _may_template(t, user, rights, value)


def _allows_second(t: Tables, user: User, call: int, args: tuple[Any, ...]) -> bool:
    """Whether a user has the right that some calls need in a second queue."""
    if call == q.COMPLETE:
        return _may_in(user, PUT, _at(args, _NEXT_QUEUE))
    if call == q.RETRY:
        return _may_retry_in(t, user, _at(args, 0), _at(args, _RETRY_QUEUE))
    if call == q.PUT:
        return _may_job(t, user, PUT, _at(args, _JID))  # an existing job leaves its queue
    if call == q.RECUR:
        return _may_template(t, user, PUT, _at(args, _JID))
    if call == q.RECUR_UPDATE:
        return all(_may_in(user, PUT, name) for name in _updated(args, b"queue"))
    if call == q.UNFAIL:
        return _may_unfail(t, user, _at(args, 1), _at(args, 2))
    return True


def _may_unfail(t: Tables, user: User, group: Any, count: Any) -> bool:
    """Whether the first jobs of a group, which may be of any queue, may leave their queues."""
    failed = t.groups.get(group) if type(group) is bytes else None
    if failed is None or type(count) is not int or not count > 0:
        return True
    jids = failed.lowest(0, min(count, q.CALL_JOBS_MAX))
    return all(_may_job(t, user, ADMIN, jid) for jid in jids)


def _may_depend(t: Tables, user: User, call: int, args: tuple[Any, ...]) -> bool:
    """Whether a call may make its job wait for the jobs that it names.

    Those cannot be canceled any more, and say so; they also have a bounded number of dependents.
    """
    place = _DEPENDS.get(call)
    jids = None if place is None else _at(args, place)
    return type(jids) is not tuple or all(_may_job(t, user, ANY_RIGHT, jid) for jid in jids)


def _may_hold(user: User, call: int, args: tuple[Any, ...]) -> bool:
    """Whether a call may give its job throttles: a queue's own throttle bounds that queue's jobs.

    A job that has its lock keeps the queue's jobs waiting, so that it needs a right as they do.
    """
    lists: list[Any] = []
    if call in (q.PUT, q.RECUR):
        lists = [_at(args, _THROTTLES)]
    elif call == q.RECUR_UPDATE:
        lists = _updated(args, b"throttles")
    for names in lists:
        for name in names if type(names) is tuple else ():
            if type(name) is not bytes or not name.startswith(q.QUEUE_THROTTLE):
                continue
            if not _may_in(user, PUT, name[len(q.QUEUE_THROTTLE) :]):
                return False
    return True


def _updated(args: tuple[Any, ...], key: bytes) -> list[Any]:
    """Return the values that a RECUR_UPDATE gives a field."""
    pairs = _at(args, _FIELDS)
    if type(pairs) is not tuple:
        return []
    return [p[1] for p in pairs if type(p) is tuple and len(p) == 2 and p[0] == key]


def _at(args: tuple[Any, ...], place: int) -> Any:
    """Return an argument; None if it is missing, which every check below allows."""
    return args[place] if place < len(args) else None


def _may_in(user: User, rights: int, name: Any) -> bool:
    """Whether a user has a right in the queue of a name; true for what is no name."""
    return type(name) is not bytes or bool(user.on(_PREFIX + name) & rights)


def _may_job(t: Tables, user: User, rights: int, jid: Any) -> bool:
    job = t.jobs.get(jid) if type(jid) is bytes else None
    return job is None or _may_in(user, rights, job.queue or job.completed_in)


def _may_retry_in(t: Tables, user: User, jid: Any, name: Any) -> bool:
    """Whether a job may go on in a queue: in another one than its own it is put there."""
    job = t.jobs.get(jid) if type(jid) is bytes else None
    return job is None or name == (job.queue or job.completed_in) or _may_in(user, PUT, name)


def _may_template(t: Tables, user: User, rights: int, jid: Any) -> bool:
    template = t.recurring.get(jid) if type(jid) is bytes else None
    return template is None or _may_in(user, rights, template.queue)
