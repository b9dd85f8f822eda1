"""Every operation, and every call of qless, asks for its right before it has an effect."""

from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.operations import administering as a
from beanpole.core.operations import operation as fields
from beanpole.core.operations import qless as calls
from beanpole.core.operations import qless_permission
from beanpole.core.operations.operation import ClientOperation
from beanpole.core.operations.table import OPERATIONS
from beanpole.core.qless.calls import CALLS
from beanpole.core.qless.completing import PURGED_MAX
from beanpole.core.users import ADMIN, ANY_RIGHT, EVENTS, EVERYWHERE, PUT, RIGHT_NAMES, WORK
from beanpole.events import QLESS
from tests.unit.core.cluster import image_of
from tests.unit.core.guests import TURN, TWIST, Guests
from tests.unit.core.having_users import LEE, LEES, add_lee, lock, set_user

CLIENTS = [entry for entry in OPERATIONS.values() if isinstance(entry, ClientOperation)]
GUARDED = [entry for entry in CLIENTS if entry.rights]
# Operations on the session itself, without information about jobs, or with their own checks.
FREE = {
    *(c.OPEN, c.OPEN_FROM, c.CLOSE, c.SET_PROTOCOL, c.KEEP, c.RESUME, c.AS_USER),
    *(c.IGNORE, c.RETURN, c.STATS),
    *(c.TAKE, c.LIST_TUBES, c.QLESS, c.QLESS_READ),
}
# Operations without a queue need their right everywhere.
SETTINGS = {c.SET_ALIAS, c.SET_POLICY, c.DROP_POLICY, c.SET_USER, c.DROP_USER, c.SET_TOKEN}
SETTINGS |= {c.SET_RULES}
CLOSED = b"closed"
NAMES = {
    entry.code: name
    for name, entry in [
        (n, OPERATIONS.get(v)) for n, v in vars(c).items() if type(v) is int and n.isupper()
    ]
    if entry is not None
}


def test_only_these_operations_need_no_right() -> None:
    assert {entry.code for entry in CLIENTS if not entry.rights} == FREE
    assert {entry.code for entry in GUARDED if not entry.guarded} == SETTINGS


class Scene(Guests):
    """Jobs in two queues, and session 9 of lee, which speaks beanstalk or Gearman."""

    def __init__(self, operation: ClientOperation, *rights: tuple[bytes, int]) -> None:
        super().__init__()
        self.is_gearman = fields.EXTERNAL_ID in operation.fields or operation.code in (
            *(c.FINISH, c.PROGRESS, c.NOTIFY, c.CREATE_QUEUE, c.DROP_QUEUE, c.LIMIT_QUEUE),
            *(c.SET_TTR, c.RESULT),
        )
        self.queue = TURN if self.is_gearman else CLOSED
        if self.is_gearman:
            self.job = self.submitted(2, b"one")
        else:
            self.job = self.put(tube=CLOSED)
            if operation.code == c.PEEK_BURIED or operation.code == c.KICK_JOB:
                self.do(c.CHANGE_JOB, 1, self.job, a.BURY, -1, b"", b"", 0)
        lock(self)
        add_lee(self, *rights)
        self.open(9)
        if self.is_gearman:
            self.do(c.SET_PROTOCOL, 9, 4)
        self.do(c.AS_USER, 9, b"", LEES)

    def command(self, operation: ClientOperation) -> c.Command:
        numbers = {fields.JOB: self.job, fields.SESSION: 9, fields.ACTION: a.SET_RANK}
        numbers[fields.STATES] = -1
        strings = {
            **dict.fromkeys((fields.TUBE, fields.QUEUE), self.queue),
            fields.EXTERNAL_ID: b"one",
            fields.USER: LEE,
            fields.TO: b"",
            fields.FROM: b"",
            fields.RIGHTS: msgpack.packb(()),
            fields.RULES: msgpack.packb(()),
            fields.TOKEN: b"x" * 32,
            fields.ALIAS: b"\x02alias",
            fields.PATTERN: b"pattern",
            fields.KEY: b"key",
        }
        values: list[Any] = [
            numbers.get(field, 1) if field.type is int else strings.get(field, b"")
            for field in operation.fields
        ]
        return (operation.code, *values)


@pytest.mark.parametrize("operation", GUARDED, ids=lambda entry: NAMES[entry.code])
def test_an_operation_is_denied_without_its_right_and_changes_nothing(
    operation: ClientOperation,
) -> None:
    others = ANY_RIGHT & ~operation.rights
    rights = [(b"elsewhere*", ANY_RIGHT), (b"*", others), (b"\x02*", others)]
    if not operation.guarded:
        rights = [(b"*", ANY_RIGHT), (b"\x02*", ANY_RIGHT), (EVERYWHERE, others)]
    scene = Scene(operation, *(right for right in rights if right[1]))
    before = image_of(scene.machine)[1:]
    assert scene.do(*scene.command(operation)) == c.DENIED
    assert image_of(scene.machine)[1:] == before


@pytest.mark.parametrize("right", RIGHT_NAMES)
@pytest.mark.parametrize("operation", GUARDED, ids=lambda entry: NAMES[entry.code])
def test_one_of_its_rights_is_enough(operation: ClientOperation, right: int) -> None:
    pattern = EVERYWHERE if not operation.guarded else b"\x02*"
    scene = Scene(operation, (pattern, right), (CLOSED, right))
    result = scene.do(*scene.command(operation))
    assert (result == c.DENIED) != bool(right & operation.rights), result
    assert result != c.BAD_COMMAND or operation.code in (
        *(c.ADD, c.NOTIFY, c.FINISH, c.FINISH_NAMED, c.SET_TTR, c.SET_ALIAS, c.SET_POLICY),
    )


def test_a_job_is_moved_only_between_queues_of_ones_own() -> None:
    move = (c.CHANGE_JOB, 9, 0, a.MOVE, -1, b"", b"other", 0)
    for rights, may in (
        (((CLOSED, ADMIN),), False),
        (((b"other", ADMIN),), False),
        (((CLOSED, ADMIN), (b"other", ADMIN)), True),
    ):
        scene = Scene(OPERATIONS[c.CHANGE_JOB], *rights)  # type: ignore[arg-type]
        result = scene.do(*move[:2], scene.job, *move[3:])
        assert result == (c.OK if may else c.DENIED)


@pytest.mark.parametrize("foreground", [0, 1])
def test_a_submission_joins_no_job_that_was_moved_to_a_closed_queue(foreground: int) -> None:
    """It would get the result of the job, or make it stay."""
    scene = Scene(OPERATIONS[c.DELETE_NAMED], (TURN, PUT), (TWIST, WORK))  # type: ignore[arg-type]
    assert scene.submit(9, b"one", foreground=foreground) == (scene.job, 1)
    assert scene.do(c.CHANGE_JOB, 1, scene.job, a.MOVE, -1, b"", TWIST, 0) == c.OK
    scene.open(10)
    scene.do(c.SET_PROTOCOL, 10, 4)
    scene.do(c.AS_USER, 10, b"", LEES)
    before = image_of(scene.machine)[1:]
    assert scene.submit(10, b"one", foreground=foreground) == c.DENIED
    assert image_of(scene.machine)[1:] == before
    assert scene.submit(10, b"two", foreground=foreground)[1] == 0
    set_user(scene, LEE, (TURN, PUT), (TWIST, PUT))
    assert scene.submit(10, b"one", foreground=foreground) == (scene.job, 1)


def test_what_is_not_there_needs_no_right() -> None:
    scene = Scene(OPERATIONS[c.DELETE])  # type: ignore[arg-type]
    assert scene.do(c.DELETE, 9, 10**9) == c.NOT_FOUND
    assert scene.do(c.PEEK, 9, 0) == c.NOT_FOUND
    assert scene.do(c.DELETE, 9, 2**70) == c.NOT_FOUND


# --- qless ----------------------------------------------------------------------------------------


def test_every_call_has_its_row() -> None:
    assert set(qless_permission.CALLS) == set(CALLS)


class Qless(Guests):
    """Session 9 of lee speaks qless; two queues of qless have jobs."""

    def __init__(self, *rights: tuple[bytes, int]) -> None:
        super().__init__()
        self.open(9)
        self.do(c.SET_PROTOCOL, 9, QLESS)
        for queue, jid in ((b"mine", b"m"), (b"closed", b"c")):
            assert self.put_in(queue, jid)[0] == q.OK
            assert self.recur(queue, jid)[0] == q.OK
        lock(self)
        add_lee(self, *rights)
        assert self.do(c.AS_USER, 9, b"", LEES) == c.OK

    def call(self, call: int, *args: Any, now: float = 1.0) -> Any:
        return self.do(*calls.command(9, call, q.CORE, now, args))

    def put_in(self, queue: bytes, jid: bytes, *depends: bytes) -> Any:
        return self.call(
            q.PUT, queue, jid, b"klass", b"{}", 0.0, None, None, None, None, depends, None, False
        )

    def recur(self, queue: bytes, jid: bytes) -> Any:
        return self.call(q.RECUR, queue, jid, b"k", b"{}", 60.0, 9.0, 0.0, (), 5, 0.0, None)

    def denied(self, call: int, *args: Any) -> bool:
        return bool(self.call(call, *args) == (q.DENIED, ()))


def test_a_worker_of_one_queue_of_qless_does_its_work() -> None:
    cluster = Qless((b"\x03mine", WORK))
    assert cluster.call(q.POP, b"mine", b"w", 1)[0] == q.OK
    assert cluster.call(q.HEARTBEAT, b"m", b"w", None)[0] == q.OK
    assert not cluster.denied(q.CONFIG_GET, b"heartbeat")
    assert cluster.denied(q.COMPLETE, b"m", b"w", b"mine", b"{}", b"closed", 0.0, ())
    assert cluster.call(q.COMPLETE, b"m", b"w", b"mine", b"{}", None, 0.0, ())[0] == q.OK
    assert cluster.denied(q.POP, b"closed", b"w", 1)
    assert cluster.denied(q.GET, b"c") and not cluster.denied(q.GET, b"m")
    assert cluster.denied(q.MULTIGET, (b"m", b"c")) and not cluster.denied(q.MULTIGET, (b"m",))
    assert cluster.denied(q.QUEUE_COUNTS, None) and not cluster.denied(q.QUEUE_COUNTS, b"mine")
    assert cluster.denied(q.JOBS, q.COMPLETE_, b"", 0, 9)
    assert cluster.denied(q.FLUSH) and cluster.denied(q.CONFIG_SET, b"a", b"b")
    assert not cluster.denied(q.GET, b"no such job")


def test_a_worker_that_retries_a_job_puts_it_into_no_queue_of_others() -> None:
    cluster = Qless((b"\x03mine", WORK), (b"\x03second", PUT))
    assert cluster.call(q.POP, b"mine", b"w", 1)[0] == q.OK
    before = image_of(cluster.machine)[1:]
    assert cluster.denied(q.RETRY, b"m", b"closed", b"w", 0.0, None, None)
    assert image_of(cluster.machine)[1:] == before
    assert cluster.call(q.RETRY, b"m", b"mine", b"w", 0.0, None, None)[0] == q.OK
    assert cluster.call(q.POP, b"mine", b"w", 1)[0] == q.OK
    assert cluster.call(q.RETRY, b"m", b"second", b"w", 0.0, None, None)[0] == q.OK
    assert not cluster.denied(q.RETRY, b"no such job", b"closed", b"w", 0.0, None, None)


def test_a_worker_of_all_queues_puts_its_jobs_into_none() -> None:
    cluster = Qless((EVERYWHERE, WORK))
    assert cluster.call(q.POP, b"mine", b"w", 1)[0] == q.OK
    for name in (b"closed", b"new"):
        assert cluster.denied(q.RETRY, b"m", name, b"w", 0.0, None, None)
        assert cluster.denied(q.COMPLETE, b"m", b"w", b"mine", b"{}", name, 0.0, ())
    set_user(cluster, LEE, (EVERYWHERE, WORK), (b"\x03new", PUT))
    assert cluster.call(q.COMPLETE, b"m", b"w", b"mine", b"{}", b"new", 0.0, (b"c",))[0] == q.OK


def test_a_producer_of_one_queue_takes_no_job_from_another() -> None:
    cluster = Qless((b"\x03mine", PUT))
    assert cluster.put_in(b"mine", b"new")[0] == q.OK
    for denied in (cluster.put_in(b"closed", b"n"), cluster.put_in(b"mine", b"c")):
        assert denied == (q.DENIED, ())
    assert cluster.recur(b"mine", b"c") == (q.DENIED, ())
    assert cluster.recur(b"mine", b"m")[0] == q.OK
    assert cluster.denied(q.UNRECUR, b"c")
    assert cluster.denied(q.RECUR_UPDATE, b"m", ((b"queue", b"closed"),))
    assert cluster.call(q.RECUR_UPDATE, b"m", ((b"queue", b"mine"),))[0] == q.OK
    assert cluster.denied(q.CANCEL, (b"new",)) and cluster.denied(q.POP, b"mine", b"w", 1)


def test_a_job_depends_on_no_job_of_a_closed_queue() -> None:
    """Its dependents would keep others from canceling it."""
    cluster = Qless((b"\x03mine", PUT | WORK))
    assert cluster.put_in(b"mine", b"new", b"c") == (q.DENIED, ())
    assert cluster.put_in(b"mine", b"new", b"m", b"no such job")[0] == q.OK
    assert cluster.denied(q.DEPENDS_ON, b"new", (b"m", b"c"))
    assert cluster.call(q.POP, b"mine", b"w", 1)[0] == q.OK
    assert cluster.denied(q.COMPLETE, b"m", b"w", b"mine", b"{}", b"mine", 0.0, (b"c",))
    assert not cluster.machine.qless.jobs[b"c"].dependents
    set_user(cluster, LEE, (b"\x03mine", PUT | WORK), (b"\x03closed", EVENTS))
    assert cluster.call(q.DEPENDS_ON, b"new", (b"c",))[0] == q.OK


def test_a_job_has_no_throttle_of_a_closed_queue() -> None:
    """With its lock, it would keep the jobs of that queue waiting."""
    cluster = Qless((b"\x03mine", PUT))
    job = (b"k", b"{}", 0.0, None, None, None, None, ())
    template = (b"k", b"{}", 60.0, 9.0, 0.0, (), 5, 0.0)
    for throttles, may in (
        ((b"ql:q:closed",), False),
        ((b"shared", b"ql:q:closed"), False),
        ((b"shared", b"ql:q:mine"), True),
    ):
        fields = ((b"throttles", (b"shared",)), (b"throttles", throttles))
        for call in (
            (q.PUT, b"mine", b"new", *job, throttles, False),
            (q.RECUR, b"mine", b"new", *template, throttles),
            (q.RECUR_UPDATE, b"m", fields),
        ):
            assert cluster.denied(*call) != may


def test_jobs_that_failed_leave_no_closed_queue() -> None:
    """A group of failures is of all queues, and its name can be guessed."""
    cluster = Qless((b"\x03mine", ADMIN | WORK), (b"\x03closed", WORK))
    assert cluster.call(q.POP, b"closed", b"w", 1)[0] == q.OK
    assert cluster.call(q.FAIL, b"c", b"w", b"group", b"text", None)[0] == q.OK
    set_user(cluster, LEE, (b"\x03mine", ADMIN | WORK))
    assert cluster.denied(q.UNFAIL, b"mine", b"group", 25)
    assert cluster.machine.qless.jobs[b"c"].queue == b"closed"
    assert cluster.call(q.UNFAIL, b"mine", b"no such group", 25) == (q.OK, 0)
    set_user(cluster, LEE, (b"\x03mine", ADMIN | WORK), (b"\x03closed", ADMIN))
    assert cluster.call(q.UNFAIL, b"mine", b"group", 25) == (q.OK, 1)


def test_who_has_no_right_in_qless_is_not_heard_about_missing_jobs() -> None:
    cluster = Qless((b"a-tube", ADMIN | PUT | WORK))
    seed = q.SEED
    for call, value in ((q.TRACK, b"x"), (q.UNTRACK, b"x"), (q.CANCEL, (b"x",))):
        assert cluster.do(*calls.command(9, call, seed, 1.0, (value,))) == (q.DENIED, ())
    assert not len(cluster.machine.qless.tracked)
    set_user(cluster, LEE, (b"\x03mine", WORK))
    assert cluster.do(*calls.command(9, q.TRACK, seed, 1.0, (b"x",)))[0] == q.OK


@pytest.mark.parametrize("queue", [b"mine", b"*"])
def test_a_worker_with_a_wrong_clock_deletes_no_complete_jobs_of_others(queue: bytes) -> None:
    """Complete jobs are deleted by their age, and the time is that of the client."""
    cluster = Qless((b"\x03*", WORK | PUT))
    for name, jid in ((b"mine", b"m"), (b"closed", b"c")):
        cluster.call(q.POP, name, b"w", 1)
        assert cluster.call(q.COMPLETE, jid, b"w", name, b"{}", None, 0.0, ())[0] == q.OK
    assert cluster.put_in(b"mine", b"new")[0] == q.OK
    cluster.call(q.POP, b"mine", b"w", 1)
    set_user(cluster, LEE, (b"\x03" + queue, WORK))
    end = (q.COMPLETE, b"new", b"w", b"mine", b"{}", None, 0.0, ())
    assert cluster.call(*end, now=1e9)[0] == q.OK
    assert set(cluster.machine.qless.jobs) == ({b"c", b"new"} if queue == b"mine" else {b"new"})


# Calls that make jobs due, or forget workers, as of the time of the client.
TIMED: tuple[tuple[Any, ...], ...] = (
    (q.PEEK, b"mine", 0, 9),
    (q.QUEUE_COUNTS, b"mine"),
    (q.QUEUE_COUNTS, None),
    (q.JOBS, q.SCHEDULED, b"mine", 0, 9),
    (q.WORKER_COUNTS,),
    (q.WORKER_JOBS, b"w"),
)


def timed(*rights: tuple[bytes, int]) -> Qless:
    """Return a cluster with a job that is due later, a running one and its worker."""
    cluster = Qless((b"\x03*", WORK | PUT))
    assert cluster.call(q.POP, b"mine", b"w", 1)[0] == q.OK
    later = (b"mine", b"later", b"klass", b"{}", 900.0, None, None, None, None, (), None, False)
    assert cluster.call(q.PUT, *later)[0] == q.OK
    set_user(cluster, LEE, *rights)
    return cluster


@pytest.mark.parametrize("right", [PUT, EVENTS])
@pytest.mark.parametrize("call", TIMED)
def test_a_reader_with_a_wrong_clock_changes_nothing(call: tuple[Any, ...], right: int) -> None:
    cluster = timed((b"\x03*", right))
    before = image_of(cluster.machine)[1:]
    assert cluster.call(*call, now=1e9)[0] == q.OK
    assert image_of(cluster.machine)[1:] == before


@pytest.mark.parametrize("right", [WORK, ADMIN])
@pytest.mark.parametrize("call", TIMED)
def test_a_worker_makes_jobs_due(call: tuple[Any, ...], right: int) -> None:
    cluster = timed((b"\x03*", right))
    before = image_of(cluster.machine)[1:]
    assert cluster.call(*call, now=1e9)[0] == q.OK
    assert image_of(cluster.machine)[1:] != before


def test_a_reader_counts_due_jobs_as_if_they_were_moved() -> None:
    cluster = timed((b"\x03*", EVENTS), (b"\x03closed", WORK | EVENTS))
    counted = cluster.call(q.QUEUE_COUNTS, None, now=1e9)
    listed = cluster.call(q.JOBS, q.SCHEDULED, b"mine", 0, 9, now=1e9)
    known = cluster.call(q.WORKER_COUNTS, now=1e9)
    assert cluster.call(q.PEEK, b"mine", 0, 9, now=1e9)[1][0].jid == b"m", "its lock has ended"
    set_user(cluster, LEE, (b"\x03*", WORK))
    assert cluster.call(q.QUEUE_COUNTS, None, now=1e9) == counted
    assert cluster.call(q.JOBS, q.SCHEDULED, b"mine", 0, 9, now=1e9) == listed == (q.OK, ())
    assert cluster.call(q.WORKER_COUNTS, now=1e9) == known == (q.OK, ())


def test_a_worker_of_one_queue_makes_no_jobs_of_others_due() -> None:
    cluster = timed((b"\x03mine", EVENTS), (b"\x03closed", WORK))
    before = image_of(cluster.machine)[1:]
    assert cluster.call(q.PEEK, b"mine", 0, 9, now=1e9)[0] == q.OK
    assert image_of(cluster.machine)[1:] == before
    assert cluster.call(q.PEEK, b"closed", 0, 9, now=1e9)[0] == q.OK
    assert b"c-1" in cluster.machine.qless.jobs


def test_old_complete_jobs_of_others_protect_no_job_of_ones_own() -> None:
    """More of them than a completion looks at: own jobs would be kept, and count, for ever."""
    cluster = Qless((b"\x03*", WORK | PUT))
    older = [(b"closed", b"c%d" % number) for number in range(PURGED_MAX + 50)]
    for name, jid in (*older, *((b"mine", b"m%d" % number) for number in range(5))):
        cluster.put_in(name, jid)
        cluster.call(q.POP, name, b"w", 9, now=10.0)
        now = 10.0 if name == b"closed" else 20.0
        end = (q.COMPLETE, jid, b"w", name, b"{}", None, 0.0, ())
        assert cluster.call(*end, now=now)[0] == q.OK
    set_user(cluster, LEE, (b"\x03mine", WORK | PUT))
    for number in range(200):
        jid = b"n%d" % number
        assert cluster.put_in(b"mine", jid)[0] == q.OK
        cluster.call(q.POP, b"mine", b"w", 9, now=1e9)
        end = (q.COMPLETE, jid, b"w", b"mine", b"{}", None, 0.0, ())
        assert cluster.call(*end, now=1e9)[0] == q.OK
    jobs = cluster.machine.qless.jobs
    assert all(jid in jobs for _, jid in older)
    assert not any(b"m%d" % number in jobs for number in range(5))


def test_a_right_in_every_queue_of_qless_allows_what_names_none() -> None:
    cluster = Qless((b"\x03*", ANY_RIGHT))
    assert cluster.call(q.PAUSE, (b"mine", b"closed"))[0] == q.OK
    assert cluster.call(q.FAILED_GROUPS)[0] == q.OK
    assert cluster.call(q.FLUSH)[0] == q.OK
    set_user(cluster, LEE, (b"*", ANY_RIGHT), (b"\x03mine", ANY_RIGHT))
    assert cluster.denied(q.PAUSE, (b"mine", b"closed")) and cluster.denied(q.FAILED_GROUPS)
    assert cluster.call(q.PAUSE, (b"mine",))[0] == q.OK


@pytest.mark.parametrize("call", CALLS)
def test_arguments_of_any_kind_raise_nothing(call: int) -> None:
    cluster = Qless()
    anything: list[tuple[Any, ...]] = [
        *((), (5,), (None,), (b"mine",), ((5, None),), ((b"c", 5), 7), (b"m", ((b"queue",),))),
        *((b"m", b"w", b"x", b"y", 5), (b"mine", (5,)), ({}, {b"a": 1})),
    ]
    for args in anything:
        assert type(cluster.call(call, *args)) is tuple
