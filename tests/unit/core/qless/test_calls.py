"""Calls of qless in the log: which calls are valid, and the machine's reaction to each."""

from math import inf, nan
from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole import qless as q
from beanpole.core.machine import Machine
from beanpole.core.operations import qless
from beanpole.core.operations.operation import fits
from beanpole.core.operations.table import OPERATIONS
from beanpole.core.qless import calls, shapes, sizes
from beanpole.core.qless.calls import Call
from beanpole.core.qless.job import WORK, QlessJob
from beanpole.core.qless.tables import Tables
from tests.unit.core.cluster import Cluster, events_of


def make(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    job = QlessJob(t.new_id(), args[0])
    job.queue, job.state, job.time = b"q", q.WAITING, now
    t.add(job)
    t.place(job, WORK, now)
    t.publish(b"log", args[0])
    return q.OK, args[0]


def end(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    job = t.jobs[args[0]]
    t.keep(job)
    t.unplace(job)
    t.forget(job)
    return q.OK, None


def look(t: Tables, _flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    return q.OK, tuple(t.jobs)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setitem(calls.CALLS, q.PUT, Call(make, shapes.NAME, shapes.NAME, grows=True))
    monkeypatch.setitem(calls.CALLS, q.CANCEL, Call(end, shapes.NAME))
    monkeypatch.setitem(calls.CALLS, q.QUEUE_NAMES, Call(look))
    made = Cluster()
    made.lead((c.RAISE, c.MACHINE_VERSION))
    made.open(1)
    assert made.do(c.SET_PROTOCOL, 1, e.QLESS) == c.OK
    return made


def call(
    cluster: Cluster, code: int, *args: Any, now: float = 1.0, flavour: int = q.CORE
) -> q.Result:
    command = qless.command(1, code, flavour, now, args)
    assert fits(command, OPERATIONS[command[0]].shape)
    result: q.Result = cluster.do(*command)
    return result


def test_a_call_is_made_on_every_node_and_a_read_at_its_origin(cluster: Cluster) -> None:
    other = Machine()
    assert call(cluster, q.PUT, b"a", b"a") == (q.OK, b"a")
    assert call(cluster, q.QUEUE_NAMES) == (q.OK, (b"a",))
    assert call(cluster, q.CANCEL, b"a") == (q.OK, None)
    for entry in cluster.log:
        other.apply(*entry)
    assert other.state_hash == cluster.machine.state_hash
    assert other.queue.next_id == cluster.machine.queue.next_id == 2
    assert [event.kind for event in events_of(other)] == [e.PUT, e.DELETED]


def test_events_name_session_queue_and_jid(cluster: Cluster) -> None:
    call(cluster, q.PUT, b"a", b"a")
    machine = cluster.machine
    externals = list(machine.queue.externals)
    (event,) = events_of(machine)
    assert (event.protocol, event.origin, event.session, event.job) == (e.QLESS, 0, 1, 1)
    assert machine.queue.tubes_named[-1] == (event.tube, b"\x03q")
    assert externals == [(0, e.QLESS, b"a")]


def test_below_its_version_it_is_no_command() -> None:
    cluster = Cluster()
    cluster.open(1)
    for code in (c.QLESS, c.QLESS_READ):
        assert cluster.do(code, 1, q.PUT, q.CORE, 0, b"\x90") == c.BAD_COMMAND


@pytest.mark.parametrize(
    ("code", "args", "now", "flavour"),
    [
        (q.PUT, (b"a",), 1.0, q.CORE),
        (q.PUT, (b"a", "a"), 1.0, q.CORE),
        (q.PUT, (b"a", None), 1.0, q.CORE),
        (q.PUT, (b"a", b"a"), nan, q.CORE),
        (q.PUT, (b"a", b"a"), inf, q.CORE),
        (q.PUT, (b"a", b"a"), 2.0**53 + 2, q.CORE),
        (q.PUT, (b"a", b"a"), 1.0, 0),
        (q.QUEUE_NAMES, (), 1.0, 0),
        (q.QUEUE_NAMES, (1,), 1.0, q.CORE),
        (q.FLUSH - 1000, (), 1.0, q.CORE),
        (5000, (), 1.0, q.CORE),
    ],
)
def test_what_no_origin_sends_is_a_bad_call(
    cluster: Cluster, code: int, args: tuple[Any, ...], now: float, flavour: int
) -> None:
    assert call(cluster, code, *args, now=now, flavour=flavour) == (q.BAD_CALL, ())
    assert not cluster.machine.qless.jobs


def test_a_read_is_no_change_and_a_change_no_read(cluster: Cluster) -> None:
    packed = qless.command(1, q.PUT, q.CORE, 1.0, (b"a", b"a"))
    assert cluster.do(c.QLESS_READ, *packed[1:]) == (q.BAD_CALL, ())
    packed = qless.command(1, q.QUEUE_NAMES, q.CORE, 1.0, ())
    assert cluster.do(c.QLESS, *packed[1:]) == (q.BAD_CALL, ())


@pytest.mark.parametrize(
    "packed",
    [b"", b"\xc1", b"\x01", b"\x91", b"\x81\x01\x02", b"\xa1\xff", bytes(q.ARGS_MAX_BYTES + 1)],
)
def test_arguments_that_cannot_be_unpacked(cluster: Cluster, packed: bytes) -> None:
    for code, inner in ((c.QLESS, q.PUT), (c.QLESS_READ, q.QUEUE_NAMES)):
        assert cluster.do(code, 1, inner, q.CORE, 0, packed) == (q.BAD_CALL, ())
        assert cluster.do(code, 1, inner, q.CORE, -1, msgpack.packb([])) == (q.BAD_CALL, ())


def test_a_name_that_is_too_long_is_named(cluster: Cluster) -> None:
    name = bytes(q.NAME_MAX_BYTES + 1)
    code, (limit, most) = call(cluster, q.PUT, b"a", name)
    assert (code, limit, most) == (q.TOO_MUCH, b"bytes of a name", q.NAME_MAX_BYTES)


def test_a_list_that_is_too_long_is_not_looked_at() -> None:
    """A million names fit into the arguments of a call."""
    items = (b"",) * q.ITEMS_MAX
    none = (q.TOO_MUCH, (b"items of a list", q.ITEMS_MAX))
    for given, result in ((items, None), ((*items, None), none), ((*items, b""), none)):
        assert shapes.NAMES.refusal(given) == result
    assert calls.CALLS[q.CANCEL].shape.refusal(((*items, b""),)) == none
    limits = (q.CALL_JOBS_MAX, q.DEPENDENCIES_MAX, q.TAGS_MAX, q.THROTTLES_MAX, q.HISTORY_MAX)
    assert max(*limits, q.OPTIONS_MAX) <= q.ITEMS_MAX


def test_without_room_nothing_is_made(cluster: Cluster) -> None:
    machine = cluster.machine
    assert call(cluster, q.PUT, b"a", b"a") == (q.OK, b"a")
    command = qless.command(1, q.PUT, q.CORE, 1.0, (b"b", b"b"))
    assert cluster.batch(command, flags=c.FLAG_PUTS_REFUSED) == [(q.NO_ROOM, ())]
    limit, machine.jobs_max = machine.jobs_max, 1
    assert call(cluster, q.PUT, b"b", b"b") == (q.NO_ROOM, ())
    assert cluster.do(c.PUT, 1, b"default", 0, 0, 1, b"") != c.OK
    machine.jobs_max = limit
    machine.queue_bytes_max = machine.qless.bytes
    assert call(cluster, q.PUT, b"b", b"b") == (q.NO_ROOM, ())
    assert call(cluster, q.CANCEL, b"a") == (q.OK, None)
    assert list(machine.qless.jobs) == []


def test_what_was_made_is_counted_until_it_is_gone(cluster: Cluster) -> None:
    t = cluster.machine.qless
    call(cluster, q.PUT, b"a", b"a")
    queue = sizes.of_queue(t.queues[b"q"])
    assert t.bytes == queue + sizes.of_job(t.jobs[b"a"]) > sizes.JOB_BYTES
    call(cluster, q.PUT, b"b", b"b")
    assert t.bytes == queue + sum(sizes.of_job(job) for job in t.jobs.values())
    call(cluster, q.CANCEL, b"a")
    call(cluster, q.CANCEL, b"b")
    assert (t.bytes, t.queues, t.jobs, len(t.by_id)) == (0, {}, {}, 0)


def test_messages_are_told_where_somebody_listens(cluster: Cluster) -> None:
    call(cluster, q.PUT, b"a", b"a")
    before = cluster.machine.state_hash
    cluster.machine.qless.heard = True
    applied = cluster.apply([cluster.section(qless.command(1, q.PUT, q.CORE, 1.0, (b"b", b"b")))])
    assert applied.messages == [(b"log", b"b")]
    assert cluster.apply().messages == []
    deaf = Machine()
    for entry in cluster.log:
        assert deaf.apply(*entry).messages == []
    assert deaf.state_hash == cluster.machine.state_hash != before


def test_the_running_hash_sees_arguments_results_and_jobs(cluster: Cluster) -> None:
    def chain(*commands: c.Command) -> int:
        machine = Machine()
        for entry in cluster.log:
            machine.apply(*entry)
        machine.apply(len(cluster.log) + 1, 0, 5, 0, [(0, 1, 3, commands)])
        return machine.state_hash

    made = [
        chain(),
        chain(qless.command(1, q.PUT, q.CORE, 1.0, (b"a", b"a"))),
        chain(qless.command(1, q.PUT, q.CORE, 2.0, (b"a", b"a"))),
        chain(qless.command(1, q.PUT, q.SEED, 1.0, (b"a", b"a"))),
        chain(qless.command(1, q.PUT, q.CORE, 1.0, (b"b", b"a"))),
        chain(*[qless.command(1, q.PUT, q.CORE, 1.0, (b"a", b"a"))] * 2),
    ]
    assert len(set(made)) == len(made)


def test_no_zero_is_negative_in_a_command() -> None:
    negative = qless.command(1, q.PUT, q.CORE, -0.0, ([-0.0, (1, -0.0)],))
    assert negative == qless.command(1, q.PUT, q.CORE, 0.0, ((0.0, (1, 0.0)),))
    assert not shapes.is_number(-0.0)
