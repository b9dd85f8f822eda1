"""Jobs with an extension: order, leases, results, TTLs, external ids."""

from collections.abc import Iterator
from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import (
    EXTERNAL_ID_MAX_BYTES,
    PROGRESS_MAX_BYTES,
    RESULT_MAX_BYTES,
    SECOND_US,
    TTL_MAX_US,
    U32_MAX,
)
from beanpole.core import machine as machine_module
from beanpole.core.accounts import JOB_BYTES, image_bytes, memory_bytes
from beanpole.core.image.image import Image
from beanpole.core.jobs import effects
from beanpole.core.jobs.extension import EXTENSION_BYTES
from beanpole.core.jobs.job import BURIED, DONE, FAILED, GONE, RESERVED
from beanpole.events import NO_ORIGIN
from tests.unit.core.cluster import DEFAULT, Cluster, chunks_of, copy_of, events_of, image_of
from tests.unit.core.foreign import (
    LEASED,
    NOBODY,
    SECOND,
    Foreign,
    add_spaces,
    finish,
    take,
)


@pytest.fixture(autouse=True, scope="module")
def spaces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


# --- order ----------------------------------------------------------------------------------------


def test_a_failed_attempt_goes_to_the_end_of_its_rank() -> None:
    cluster = Foreign()
    first, second, last = (cluster.added(rank=rank, failures=3) for rank in (1, 1, 2))
    assert take(cluster) == first
    assert finish(cluster, first, FAILED) == c.OK
    cluster.machine = copy_of(cluster.machine)
    assert [take(cluster) for _ in range(3)] == [second, first, last]
    # The job loses its old sequence each time.
    for job in (second, first):
        finish(cluster, job, FAILED)
    assert [take(cluster), take(cluster)] == [second, first]
    assert len(cluster.machine.queue.moved) == 2
    for job in (first, second, last):
        assert cluster.do(c.DELETE, 2, job) == c.OK
    assert not cluster.machine.queue.moved


def test_a_sequence_is_no_id_of_a_later_job() -> None:
    cluster = Foreign()
    moved = cluster.added(failures=9)
    take(cluster)
    finish(cluster, moved, FAILED)
    later = cluster.added()
    assert later == moved + 2
    assert cluster.do(c.PEEK, 2, moved + 1) == c.NOT_FOUND
    assert cluster.do(c.PEEK_READY, 2, cluster.queue) == (moved, b"body")
    assert [take(cluster), take(cluster)] == [moved, later]


def test_a_release_keeps_the_place_and_takes_a_rank() -> None:
    cluster = Foreign()
    first, second = cluster.added(), cluster.added()
    take(cluster)
    cluster.do(c.RELEASE, 2, first, 0, 0)
    assert take(cluster) == first
    cluster.do(c.RELEASE, 2, first, 1, 0)
    assert [take(cluster), take(cluster)] == [second, first]


# --- times ----------------------------------------------------------------------------------------


def test_delays_and_ttrs_are_microseconds() -> None:
    cluster = Foreign()
    job = cluster.added(delay_us=1_500_000, ttr_us=250_000)
    created = events_of(cluster.machine)[-1]
    assert (created.delay_s, created.ttr_s) == (2, 1)
    cluster.pass_s(1.499_999)
    assert cluster.state(job) == b"delayed"
    assert cluster.machine.next_due_us(cluster.time_us) is not None
    cluster.pass_s(0.000_001)
    assert take(cluster) == job
    cluster.pass_s(0.249_999)
    assert cluster.state(job) == b"reserved"
    cluster.do(c.TOUCH, 2, job)
    cluster.pass_s(0.249_999)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(0.000_001)
    assert cluster.state(job) == b"ready"


def test_a_ttr_of_0_never_ends_a_reservation() -> None:
    cluster = Foreign()
    job = cluster.added(ttr_us=0)
    assert take(cluster) == job
    assert cluster.do(c.TOUCH, 2, job) == c.OK
    cluster.lead((c.EPOCH, 2, cluster.time_us + SECOND, 99, 99, 99, 2**40))
    cluster.machine = copy_of(cluster.machine)
    cluster.pass_s(10**9)
    assert cluster.state(job) == b"reserved"
    assert cluster.machine.next_due_us(cluster.time_us) is None
    assert cluster.machine.queue.deadline_us(cluster.machine.queue.jobs[job]) == 0
    cluster.do(c.CLOSE, 2, 1)
    assert cluster.state(job) == b"ready"


# --- leases ---------------------------------------------------------------------------------------


def test_a_job_that_nobody_holds_is_ended_by_any_session() -> None:
    cluster = Foreign(NOBODY)
    jobs = [cluster.added() for _ in range(6)]
    for job in jobs:
        assert take(cluster) == job
    assert all(cluster.machine.queue.jobs[job].holder is None for job in jobs)
    results = cluster.batch(
        (c.TOUCH, 3, jobs[0]),
        (c.RELEASE, 3, jobs[0], 5, 9),
        (c.BURY, 3, jobs[1], 0),
        (c.DELETE, 3, jobs[2]),
        (c.FINISH, 3, jobs[3], DONE, b""),
        (c.RETURN, 3, jobs[4]),
        (c.PROGRESS, 3, jobs[5], b"1/2"),
        (c.NOTIFY, 3, jobs[5], 16, b""),
    )
    assert results == [c.OK] * len(results)
    states = [cluster.state(job) for job in jobs]
    assert states == [b"delayed", b"buried", b"gone", b"gone", b"ready", b"reserved"]
    acted = [event for event in events_of(cluster.machine) if event.before == RESERVED]
    assert {event.kind: event.session for event in acted} == dict.fromkeys(
        (e.TOUCHED, e.RELEASED, e.BURIED, e.DELETED, e.DONE, e.RETURNED), 3
    )
    # A job that is not reserved has no reservation to end.
    assert cluster.batch((c.TOUCH, 3, jobs[4]), (c.BURY, 3, jobs[0], 0)) == [c.NOT_FOUND] * 2


def test_the_end_of_a_session_ends_no_lease_of_nobody_but_its_ttr_does() -> None:
    cluster = Foreign(NOBODY)
    job = cluster.added(ttr_us=SECOND)
    assert cluster.reserve(2) == job
    cluster.do(c.CLOSE, 2, 1)
    cluster.machine = copy_of(cluster.machine)
    assert cluster.state(job) == b"reserved"
    events_of(cluster.machine)
    cluster.pass_s(1)
    assert cluster.state(job) == b"ready"
    event = events_of(cluster.machine)[-1]
    assert (event.kind, event.reason, event.origin) == (e.TIMED_OUT, e.TTR, NO_ORIGIN)


def test_a_leased_job_is_its_holders_only() -> None:
    cluster = Foreign(LEASED)
    job = cluster.added()
    assert finish(cluster, job) == c.NOT_FOUND  # it is not reserved
    take(cluster)
    progress = (c.PROGRESS, 3, job, b"1/2")
    assert cluster.batch((c.DELETE, 3, job), (c.TOUCH, 3, job), progress) == [c.NOT_FOUND] * 3
    assert finish(cluster, job, session=3) == c.NOT_FOUND
    assert finish(cluster, job) == c.OK


# --- the end --------------------------------------------------------------------------------------


def test_a_result_is_kept_until_the_ttl_ends() -> None:
    cluster = Foreign()
    done, failed = (cluster.added(b"%d" % rank, rank=rank, ttl_us=9 * SECOND) for rank in (0, 1))
    take(cluster)
    cluster.do(c.PROGRESS, 2, done, b"1/2")
    assert cluster.do(c.RESULT, 3, done) == (RESERVED, b"1/2", b"")
    take(cluster)
    events_of(cluster.machine)
    assert [finish(cluster, done, DONE, b"42"), finish(cluster, failed, FAILED, b"no")] == [1, 1]
    states = [(event.kind, event.before, event.state) for event in events_of(cluster.machine)]
    assert states == [(e.DONE, RESERVED, DONE), (e.FAILED, RESERVED, FAILED)]
    cluster.machine = copy_of(cluster.machine)
    assert cluster.do(c.RESULT, 3, done) == (DONE, b"1/2", b"42")
    assert cluster.do(c.RESULT, 3, failed) == (FAILED, b"", b"no")
    assert cluster.do(c.FIND, 3, b"0") == done
    # It has left every order, and no command makes it ready again.
    assert take(cluster) == 0
    refused = [(operation, 2, done) for operation in (c.RESERVE_JOB, c.KICK_JOB, c.TOUCH)]
    assert cluster.batch(*refused) == [c.NOT_FOUND] * 3
    assert cluster.machine.next_due_us(cluster.time_us) is not None
    space = cluster.machine.queue.spaces[LEASED]
    assert (space.done, space.failed) == (1, 1)
    cluster.pass_s(9)
    assert [cluster.state(job) for job in (done, failed)] == [b"gone"] * 2
    assert [event.kind for event in events_of(cluster.machine)] == [e.EXPIRED] * 2
    assert (space.done, space.failed, space.external_ids) == (0, 0, {})
    assert cluster.do(c.FIND, 3, b"0") == c.NOT_FOUND
    assert cluster.machine.next_due_us(cluster.time_us) is None


@pytest.mark.parametrize("state", [DONE, FAILED])
def test_a_job_without_a_ttl_is_forgotten_with_its_end(state: int) -> None:
    cluster = Foreign()
    job = cluster.added(b"id")
    cluster.machine.queue.effects.listened[job] = None
    take(cluster)
    section = cluster.section((c.FINISH, 2, job, state, b"42"))
    applied = cluster.apply([section])
    kind = effects.DONE if state == DONE else effects.FAILED
    assert applied.effects == [(job, kind, b"42")]
    assert cluster.state(job) == b"gone"
    assert cluster.do(c.RESULT, 2, job) == c.NOT_FOUND
    assert cluster.add(b"id")[1] == 0
    assert cluster.machine.queue.extension_bytes == EXTENSION_BYTES + 2


def test_the_first_one_to_finish_wins() -> None:
    cluster = Foreign(NOBODY)
    job = cluster.added(ttl_us=SECOND)
    assert finish(cluster, job, DONE, b"1") == c.OK  # without a reservation
    assert finish(cluster, job, FAILED, b"2", session=3) == c.EXISTS
    assert cluster.do(c.RESULT, 3, job) == (DONE, b"", b"1")


@pytest.mark.parametrize("where", ["ready", "reserved", "delayed", "buried", "done", "failed"])
def test_a_ttl_ends_a_job_in_whatever_state_it_is(where: str) -> None:
    cluster = Foreign()
    job = cluster.added(b"id", ttl_us=5 * SECOND, ttr_us=9 * SECOND)
    cluster.machine.queue.effects.listened[job] = None
    if where != "ready":
        take(cluster)
    if where == "delayed":
        cluster.do(c.RELEASE, 2, job, 0, 9)
    if where == "buried":
        cluster.do(c.BURY, 2, job, 0)
    if where in ("done", "failed"):
        finish(cluster, job, DONE if where == "done" else FAILED, b"result")
    assert cluster.state(job) == where.encode()
    cluster.pass_s(4)
    assert cluster.state(job) == where.encode()
    image, expected = Image(cluster.machine), image_of(cluster.machine)
    chain = cluster.machine.state_hash
    events_of(cluster.machine)
    applied = cluster.pass_s(1)
    assert cluster.state(job) == b"gone"
    event = events_of(cluster.machine)[-1]
    assert (event.kind, event.state) == (e.EXPIRED, GONE)
    # The event names the session that lost the job.
    assert (event.origin, event.session) == ((0, 2) if where == "reserved" else (NO_ORIGIN, 0))
    assert cluster.machine.state_hash != chain
    assert applied.effects == [(job, effects.EXPIRED, b"")]
    assert chunks_of(image) == expected
    image.close()
    queue = cluster.machine.queue
    assert (len(queue.timers), len(queue.expiries), queue.body_bytes) == (0, 0, 0)
    assert queue.extension_bytes == 0
    assert not cluster.machine.origins[0].sessions[2].reserved
    assert image_of(copy_of(cluster.machine)) == image_of(cluster.machine)


@pytest.mark.parametrize("ttl_us, ttr_us", [(2 * SECOND, 9 * SECOND), (9 * SECOND, 2 * SECOND)])
def test_the_next_entry_comes_for_the_first_of_a_ttr_and_a_ttl(ttl_us: int, ttr_us: int) -> None:
    cluster = Foreign()
    cluster.added(ttl_us=ttl_us, ttr_us=ttr_us)
    take(cluster)
    due_us = cluster.machine.next_due_us(cluster.time_us)
    assert due_us is not None
    assert cluster.time_us + SECOND < due_us <= cluster.time_us + 2 * SECOND


@pytest.mark.constants
def test_ttls_are_work_of_the_entrys_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", 3)
    cluster = Foreign()
    for _ in range(2):
        cluster.added(delay_us=SECOND)
    for _ in range(4):
        cluster.added(ttl_us=SECOND)
    cluster.pass_s(1)
    assert len(cluster.machine.queue.jobs) == 5  # the two due jobs were first
    assert cluster.machine.next_due_us(cluster.time_us) == cluster.time_us
    cluster.pass_s(0)
    assert len(cluster.machine.queue.jobs) == 2


# --- external ids ---------------------------------------------------------------------------------


def test_attach_gives_the_job_that_is_there() -> None:
    cluster = Foreign(LEASED)
    job = cluster.added(b"id")
    assert cluster.add(b"id", rank=9, body=b"other") == (job, 1)
    assert cluster.add(b"") != cluster.add(b"")  # an empty id never matches
    cluster.machine = copy_of(cluster.machine)
    assert cluster.add(b"id") == (job, 1)
    cluster.do(c.DELETE, 2, job)
    assert cluster.add(b"id")[1] == 0


def test_refuse_says_that_it_is_there() -> None:
    cluster = Foreign(NOBODY)
    job = cluster.added(b"id", ttl_us=SECOND)
    assert cluster.add(b"id") == c.EXISTS
    finish(cluster, job)
    assert cluster.add(b"id") == c.EXISTS
    cluster.pass_s(1)
    assert cluster.add(b"id")[1] == 0


def test_two_spaces_may_use_one_external_id() -> None:
    cluster = Foreign(LEASED)
    cluster.enter(4, NOBODY)
    first, second = cluster.added(b"id"), cluster.added(b"id", session=4, queue=b"\x12q")
    assert (cluster.do(c.FIND, 2, b"id"), cluster.do(c.FIND, 4, b"id")) == (first, second)
    assert cluster.do(c.FIND, 1, b"id") == c.NOT_FOUND


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": -1},
        {"rank": U32_MAX + 1},
        {"delay_us": -1},
        {"delay_us": U32_MAX * SECOND_US + 1},
        {"ttr_us": -1},
        {"ttr_us": U32_MAX * SECOND_US + 1},
        {"ttl_us": -1},
        {"ttl_us": TTL_MAX_US + 1},
        {"attempts": -1},
        {"failures": U32_MAX + 1},
        {"external_id": b"x" * (EXTERNAL_ID_MAX_BYTES + 1)},
        {"session": 1, "queue": DEFAULT},
    ],
)
def test_an_add_that_makes_no_sense_changes_nothing(wrong: dict[str, Any]) -> None:
    cluster = Foreign()
    assert cluster.add(**wrong) == c.BAD_COMMAND
    assert cluster.machine.queue.jobs_total == 0


@pytest.mark.parametrize(
    "command", [(c.FINISH, DONE, b""), (c.FINISH, FAILED, b""), (c.PROGRESS, b"")]
)
def test_the_jobs_of_beanstalk_have_no_extension(command: c.Command) -> None:
    cluster = Foreign()
    job = cluster.put()
    cluster.reserve(1)
    assert cluster.do(command[0], 1, job, *command[1:]) == c.BAD_COMMAND
    assert cluster.state(job) == b"reserved"


def test_a_job_that_put_made_in_another_space_is_forgotten_when_it_is_finished() -> None:
    cluster = Foreign()
    job = cluster.put(tube=cluster.queue, session=2)
    take(cluster)
    assert cluster.do(c.PROGRESS, 2, job, b"") == c.BAD_COMMAND
    assert cluster.do(c.RESULT, 2, job) == (RESERVED, b"", b"")
    assert finish(cluster, job, FAILED) == c.OK
    assert cluster.state(job) == b"gone"


def test_a_finish_or_a_progress_that_is_too_long_is_refused() -> None:
    cluster = Foreign()
    job = cluster.added(ttl_us=SECOND)
    take(cluster)
    assert finish(cluster, job, BURIED) == c.BAD_COMMAND
    assert finish(cluster, job, DONE, bytes(RESULT_MAX_BYTES + 1)) == c.BAD_COMMAND
    assert cluster.do(c.PROGRESS, 2, job, bytes(PROGRESS_MAX_BYTES + 1)) == c.BAD_COMMAND
    assert finish(cluster, job, DONE, bytes(RESULT_MAX_BYTES)) == c.OK


def test_extensions_and_results_count_against_the_limit_of_bytes() -> None:
    cluster = Foreign()
    beside = memory_bytes(cluster.machine)
    added = len(b"id") + len(b"body") + JOB_BYTES + EXTENSION_BYTES
    limits = (10**6, 10**6, 10**6)
    cluster.lead((c.EPOCH, 2, 0, *limits, beside + added - 1))
    assert cluster.add(b"id", ttl_us=SECOND) == c.OUT_OF_MEMORY
    cluster.lead((c.EPOCH, 3, 0, *limits, beside + added + 10))
    job = cluster.added(b"id", ttl_us=SECOND)
    assert memory_bytes(cluster.machine) == beside + added
    before = image_bytes(cluster.machine)
    take(cluster)
    assert finish(cluster, job, DONE, bytes(11)) == c.OUT_OF_MEMORY
    assert cluster.state(job) == b"reserved"
    assert finish(cluster, job, DONE, bytes(10)) == c.OK
    assert memory_bytes(cluster.machine) == beside + added + 10
    assert image_bytes(cluster.machine) == before + 10
    assert memory_bytes(copy_of(cluster.machine)) == beside + added + 10
    cluster.pass_s(1)
    assert memory_bytes(cluster.machine) == beside


def test_puts_that_are_refused_are_adds_that_are_refused() -> None:
    cluster = Foreign()
    add = (c.ADD, 2, cluster.queue, 0, 0, 0, 0, b"", 0, 0, b"")
    assert cluster.batch(add, flags=c.FLAG_PUTS_REFUSED) == [c.OUT_OF_MEMORY]


def test_none_of_it_is_there_before_version_3() -> None:
    cluster = Cluster()
    cluster.open(1)
    job = cluster.put()
    commands = [
        (c.ADD, 1, b"\x11q", 0, 0, 0, 0, b"", 0, 0, b""),
        (c.FINISH, 1, job, DONE, b""),
        (c.PROGRESS, 1, job, b""),
        (c.FIND, 1, b""),
        (c.RESULT, 1, job),
    ]
    assert cluster.batch(*commands) == [c.BAD_COMMAND] * len(commands)
