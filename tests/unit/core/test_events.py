"""The event of each transition, field by field; and the events of any run add up."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import example, given, settings

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import BURIED, DELAYED, FAILED, GONE, READY, RESERVED
from beanpole.core.machine import Machine
from beanpole.events import WORKQ
from tests.unit.core.cluster import DEFAULT, Cluster, Entry, Event, copy_of, events_of, image_of
from tests.unit.core.foreign import add_spaces
from tests.unit.core.ledger import Ledger
from tests.unit.core.logs import BUDGETS, LOGS, log_of, tighten

SECOND = 1_000_000
# The time of a fresh cluster's first entries, and the tube `work` of the jobs below.
START_US = SECOND
WORK = 2
SECRET = b"a secret of mine"


@pytest.fixture
def cluster() -> Cluster:
    """Two workers of node 1 that watch `work`, and a third client, of node 0."""
    cluster = Cluster()
    for origin, session in ((1, 1), (1, 2), (0, 7)):
        cluster.open(session, origin)
    cluster.batch((c.WATCH, 1, b"work"), (c.WATCH, 2, b"work"), origin=1)
    assert events_of(cluster.machine) == []
    return cluster


def put(cluster: Cluster, delay_s: int = 0) -> int:
    job = cluster.do(c.PUT, 7, b"work", 5, delay_s, 60, b"body", origin=0)
    assert isinstance(job, int)
    return job


def event(kind: int, before: int, state: int, by: tuple[int, int] | None, **others: int) -> Event:
    """Return an event of job 1 of `put`, by no session or by one of a first incarnation."""
    values = {
        "kind": kind,
        "protocol": e.BEANSTALK if by else e.NO_PROTOCOL,
        "before": before,
        "state": state,
        "origin": by[0] if by else e.NO_ORIGIN,
        "incarnation": 1 if by else 0,
        "session": by[1] if by else 0,
        "tube": WORK,
        "job": 1,
        "priority": 5,
        "ttr_s": 60,
        "body_bytes": 4,
        "wait_us": e.NO_TIME,
        "run_us": e.NO_TIME,
        "ready_us": START_US,
    }
    return Event(**(dict.fromkeys(Event._fields, 0) | values | others))


def reserved(cluster: Cluster) -> None:
    """Put a job that waits for three seconds and is reserved for two."""
    put(cluster)
    cluster.pass_s(3)
    assert cluster.reserve(1, 1) == 1
    cluster.pass_s(2)
    events_of(cluster.machine)


def only(cluster: Cluster) -> Event:
    """Return the only event since the last call."""
    (found,) = events_of(cluster.machine)
    return found


# --- commands of clients --------------------------------------------------------------------------


def test_a_put_and_the_end_of_its_delay(cluster: Cluster) -> None:
    put(cluster)
    assert only(cluster) == event(e.PUT, GONE, READY, (0, 7))
    put(cluster, delay_s=4)
    delayed = {"job": 2, "delay_s": 4}
    assert only(cluster) == event(e.PUT, GONE, DELAYED, (0, 7), **delayed, ready_us=e.NO_TIME)
    cluster.pass_s(4.5)
    ready_us = START_US + 4_500_000
    assert only(cluster) == event(e.DUE, DELAYED, READY, None, **delayed, ready_us=ready_us)


def test_a_reservation_says_how_long_the_job_was_ready(cluster: Cluster) -> None:
    put(cluster)
    cluster.pass_s(3)
    cluster.reserve(2, 1)
    expected = event(e.RESERVED, READY, RESERVED, (1, 2), reserves=1, wait_us=3 * SECOND)
    assert events_of(cluster.machine) == [event(e.PUT, GONE, READY, (0, 7)), expected]


def test_the_delay_is_no_part_of_the_wait(cluster: Cluster) -> None:
    put(cluster, delay_s=10)
    cluster.pass_s(10)
    cluster.pass_s(1)
    events_of(cluster.machine)
    cluster.reserve(1, 1)
    assert only(cluster).wait_us == SECOND


@pytest.mark.parametrize("before", [READY, DELAYED, BURIED])
def test_a_job_reserved_by_its_id_waited_only_if_it_was_ready(
    cluster: Cluster, before: int
) -> None:
    put(cluster, delay_s=9 if before == DELAYED else 0)
    if before == BURIED:
        cluster.reserve(1, 1)
        cluster.do(c.BURY, 1, 1, 5, origin=1)
    cluster.pass_s(3)
    events_of(cluster.machine)
    cluster.do(c.RESERVE_JOB, 2, 1, origin=1)
    others = {
        READY: {"reserves": 1, "wait_us": 3 * SECOND},
        DELAYED: {"reserves": 1, "delay_s": 9, "ready_us": e.NO_TIME},
        BURIED: {"reserves": 2, "buries": 1},
    }[before]
    assert only(cluster) == event(e.RESERVED, before, RESERVED, (1, 2), **others)


RELEASED_TO = [pytest.param(0, READY, id="ready"), pytest.param(9, DELAYED, id="delayed")]


@pytest.mark.parametrize(("delay_s", "state"), RELEASED_TO)
def test_a_release(cluster: Cluster, delay_s: int, state: int) -> None:
    reserved(cluster)
    cluster.do(c.RELEASE, 1, 1, 8, delay_s, origin=1)
    assert only(cluster) == event(
        e.RELEASED,
        RESERVED,
        state,
        (1, 1),
        priority=8,
        delay_s=delay_s,
        reserves=1,
        releases=1,
        run_us=2 * SECOND,
        ready_us=START_US if delay_s else cluster.time_us,
    )


def test_a_touch_does_not_begin_the_run_anew(cluster: Cluster) -> None:
    reserved(cluster)
    cluster.do(c.TOUCH, 1, 1, origin=1)
    assert only(cluster) == event(e.TOUCHED, RESERVED, RESERVED, (1, 1), reserves=1)
    cluster.pass_s(50)
    cluster.do(c.DELETE, 1, 1, origin=1)
    assert only(cluster) == event(e.DELETED, RESERVED, GONE, (1, 1), reserves=1, run_us=52 * SECOND)


def test_a_bury(cluster: Cluster) -> None:
    reserved(cluster)
    cluster.do(c.BURY, 1, 1, 6, origin=1)
    assert only(cluster) == event(
        e.BURIED, RESERVED, BURIED, (1, 1), priority=6, reserves=1, buries=1, run_us=2 * SECOND
    )


KICKS = [
    pytest.param((c.KICK, 7, b"work", 9, 0), id="kick"),
    pytest.param((c.KICK_JOB, 7, 1), id="kick-job"),
]


@pytest.mark.parametrize("command", KICKS)
def test_a_kick_of_a_buried_job(cluster: Cluster, command: c.Command) -> None:
    reserved(cluster)
    cluster.do(c.BURY, 1, 1, 5, origin=1)
    events_of(cluster.machine)
    cluster.do(*command, origin=0)
    assert only(cluster) == event(
        e.KICKED,
        BURIED,
        READY,
        (0, 7),
        reserves=1,
        buries=1,
        kicks=1,
        ready_us=cluster.time_us,
    )


@pytest.mark.parametrize("command", KICKS)
def test_a_kick_of_a_delayed_job(cluster: Cluster, command: c.Command) -> None:
    put(cluster, delay_s=60)
    cluster.pass_s(1)
    events_of(cluster.machine)
    cluster.do(*command, origin=0)
    assert only(cluster) == event(
        e.KICKED, DELAYED, READY, (0, 7), delay_s=60, kicks=1, ready_us=cluster.time_us
    )


@pytest.mark.parametrize("before", [READY, DELAYED, BURIED])
def test_a_delete_by_somebody_else(cluster: Cluster, before: int) -> None:
    put(cluster, delay_s=9 if before == DELAYED else 0)
    if before == BURIED:
        cluster.reserve(1, 1)
        cluster.do(c.BURY, 1, 1, 5, origin=1)
    events_of(cluster.machine)
    cluster.do(c.DELETE, 2, 1, origin=1)
    others = {
        READY: {},
        DELAYED: {"delay_s": 9, "ready_us": e.NO_TIME},
        BURIED: {"reserves": 1, "buries": 1},
    }[before]
    assert only(cluster) == event(e.DELETED, before, GONE, (1, 2), **others)


# --- events without a command ---------------------------------------------------------------------


def test_a_ttr_that_ends(cluster: Cluster) -> None:
    reserved(cluster)
    cluster.pass_s(59)
    assert only(cluster) == event(
        e.TIMED_OUT,
        RESERVED,
        READY,
        (1, 1),
        reason=e.TTR,
        reserves=1,
        timeouts=1,
        run_us=61 * SECOND,
        ready_us=cluster.time_us,
    )


def lose(cluster: Cluster, how: str) -> None:
    """End the reservation of `reserved` two seconds after it began, without its worker."""
    if how == "return":
        cluster.do(c.RETURN, 1, 1, origin=1)
    elif how in ("quit", "close"):
        cluster.do(c.CLOSE, 1, int(how == "close"), origin=1)
    elif how == "down":
        cluster.lead((c.NODE_DOWN, 1, 1))
    else:
        cluster.incarnations[1] = 2
        cluster.batch(origin=1)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("return", e.NOBODY_WAITING),
        ("quit", e.CONNECTION_LOST),
        ("close", e.CONNECTION_LOST),
        ("down", e.NODE_DOWN),
        ("restart", e.NODE_DOWN),
    ],
)
def test_a_job_that_nobody_holds_any_more(cluster: Cluster, how: str, reason: int) -> None:
    reserved(cluster)
    lose(cluster, how)
    assert only(cluster) == event(
        e.RETURNED,
        RESERVED,
        READY,
        (1, 1),
        reason=reason,
        reserves=1,
        run_us=2 * SECOND,
        ready_us=cluster.time_us,
    )


@pytest.mark.parametrize(("how", "reason"), [("close", e.CONNECTION_LOST), ("down", e.NODE_DOWN)])
def test_a_session_that_was_kept_in_vain_remembers_how_it_was_lost(
    cluster: Cluster, how: str, reason: int
) -> None:
    reserved(cluster)
    cluster.do(c.KEEP, 1, SECRET, 5 * SECOND, origin=1)
    lose(cluster, how)
    assert events_of(cluster.machine) == []
    cluster.machine = copy_of(cluster.machine)
    cluster.pass_s(5)
    found = only(cluster)
    assert (found.kind, found.reason, found.run_us) == (e.RETURNED, reason, 7 * SECOND)
    assert (found.origin, found.incarnation, found.session) == (1, 1, 1)


def test_a_resumed_session_acts_at_its_new_place(cluster: Cluster) -> None:
    reserved(cluster)
    cluster.do(c.KEEP, 1, SECRET, 5 * SECOND, origin=1)
    lose(cluster, "down")
    cluster.do(c.RESUME, 7, SECRET, origin=0)
    cluster.do(c.CLOSE, 7, 0, origin=0)
    found = only(cluster)
    assert (found.kind, found.reason) == (e.RETURNED, e.CONNECTION_LOST)
    assert (found.origin, found.incarnation, found.session) == (0, 1, 7)


def test_what_is_no_transition_has_no_event(cluster: Cluster) -> None:
    reserved(cluster)
    assert cluster.batch((c.PUT, 7, b"work", -1, 0, 60, b""), origin=0) == [c.BAD_COMMAND]
    put_again = (c.PUT, 7, b"work", 0, 0, 60, b"")
    assert cluster.batch(put_again, origin=0, flags=c.FLAG_PUTS_REFUSED) == [c.OUT_OF_MEMORY]
    for command in ((c.DELETE, 2, 1), (c.RELEASE, 2, 1, 0, 0), (c.TOUCH, 2, 1), (c.KICK_JOB, 2, 1)):
        assert cluster.do(*command, origin=1) == c.NOT_FOUND
    assert cluster.reserve(2, 1) == 0
    # The floor of an epoch spares the reservation: its end moves without a command of a client.
    cluster.lead((c.EPOCH, 1, cluster.time_us + 100 * SECOND, 99, 99, 99, 9999))
    cluster.pass_s(90)
    assert cluster.state(1) == b"reserved"
    assert events_of(cluster.machine) == []


# --- tubes, limits, and nodes without events ------------------------------------------------------


def test_tubes_have_numbers_and_say_them_once(cluster: Cluster) -> None:
    queue = cluster.machine.queue
    assert queue.tubes_named == [(1, DEFAULT), (2, b"work")]
    queue.tubes_named.clear()
    cluster.do(c.USE, 7, b"brief", origin=0)
    cluster.do(c.USE, 7, DEFAULT, origin=0)  # `brief` vanishes
    cluster.do(c.USE, 7, b"brief", origin=0)
    assert queue.tubes_named == [(3, b"brief"), (4, b"brief")]
    assert queue.tubes_total == 4
    # A machine that starts from an image was never given the names.
    copy = copy_of(cluster.machine).queue
    assert copy.tubes_named == [(1, DEFAULT), (2, b"work"), (4, b"brief")]
    assert copy.tubes_total == 4
    assert [tube.number for tube in copy.tubes.values()] == [1, 2, 4]


def test_numbers_that_do_not_fit_begin_again(cluster: Cluster) -> None:
    reserved(cluster)
    queue, job = cluster.machine.queue, cluster.machine.queue.jobs[1]
    job.reserves = job.releases = job.timeouts = job.buries = job.kicks = 2**32 - 1
    queue.tubes_total = 2**32 - 1
    commands: list[tuple[Any, ...]] = [
        (c.RELEASE, 1, 1, 0, 0),
        (c.RESERVE_JOB, 1, 1),
        (c.BURY, 1, 1, 0),
        (c.KICK_JOB, 1, 1),
        (c.RESERVE_JOB, 1, 1),
        (c.PUT, 1, b"new", 0, 0, 60, b""),
    ]
    assert c.BAD_COMMAND not in cluster.batch(*commands, origin=1)
    cluster.pass_s(60)
    *_, created, timed_out = events_of(cluster.machine)
    counters = timed_out.reserves, timed_out.releases, timed_out.timeouts
    assert (*counters, timed_out.buries, timed_out.kicks) == (1, 0, 0, 0, 0)
    assert created.tube == 0
    assert (0, b"new") in queue.tubes_named


def test_the_largest_numbers_stay_in_their_fields(cluster: Cluster) -> None:
    number = put(cluster)
    job = cluster.machine.queue.jobs[number]
    counters = ("priority", "delay_s", "ttr_s", "reserves", "timeouts", "releases", "buries")
    largest = {name: 2**32 - 1 - place for place, name in enumerate((*counters, "kicks"))}
    job.tube.drop_ready(job)
    for name, value in largest.items():
        times = {"delay_s": "delay_us", "ttr_s": "ttr_us", "priority": "rank"}
        setattr(job, times.get(name, name), value * SECOND if name.endswith("_s") else value)
    job.tube.push_ready(job)
    cluster.do(c.DELETE, 7, number, origin=0)
    expected = event(e.DELETED, READY, GONE, (0, 7), **largest)
    assert events_of(cluster.machine)[-1] == expected


@pytest.fixture(autouse=True, scope="module")
def spaces() -> Iterator[None]:
    """The logs name queues of spaces that only tests have."""
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


# A Workq client fails a job without a lease that may fail more often.
FAILS_WHILE_READY: Final = log_of(
    [(1, 0, [(0, "next", [(c.FINISH, 3, 3, FAILED, b"")])])], WORKQ, 4
)


def used_up(dead: bytes, ends: c.Command | None) -> list[Entry]:
    """Return a log in which the only attempt at a job ends by a command, or else by its TTR."""
    policy = (c.SET_POLICY, 1, DEFAULT, 1, dead, *[0] * 10)
    granted: c.Command = (c.GRANT, 0, 1, 1, 1, 0)
    begin: list[Any] = [(c.LEADER, "next", [granted]), (0, "next", [policy])]
    end = [(0, "next", [ends])] if ends else []
    return log_of([(1, 0, begin), (3 * SECOND, 0, end)], WORKQ, 4)


RELEASED: Final = (c.RELEASE, 1, 1, 0, 0)


@settings(max_examples=120, deadline=None)
@given(LOGS, BUDGETS)
@example(FAILS_WHILE_READY, 1)
@example(used_up(b"", RELEASED), 1)
@example(used_up(b"a", RELEASED), 1)
@example(used_up(b"", None), 4)
@example(used_up(b"a", None), 4)
@example(used_up(b"a", (c.CLOSE, 1, 1)), 4)
def test_the_events_of_any_run_add_up(entries: list[Entry], transitions: int) -> None:
    """The events alone give every job's state, counters and times, and the queue's counts."""
    with pytest.MonkeyPatch.context() as patch:
        tighten(patch, transitions)
        machine, ledger = Machine(), Ledger()
        for entry in entries:
            machine.apply(*entry, own=0)
            ledger.follow(machine)


@settings(max_examples=60, deadline=None)
@given(LOGS)
def test_events_that_are_not_kept_change_nothing_else(entries: list[Entry]) -> None:
    keeping, other = Machine(), Machine()
    other.queue.events_kept = False
    other.queue.tubes_named.clear()
    for entry in entries:
        keeping.apply(*entry)
        other.apply(*entry)
    assert (keeping.state_hash, image_of(keeping)) == (other.state_hash, image_of(other))
    assert len(keeping.queue.events) == e.RECORD.size * keeping.queue.events_total
    assert other.queue.events_total == keeping.queue.events_total
    assert not other.queue.events
    assert not other.queue.externals
    assert not other.queue.tubes_named
