"""Machine version 4: jobs with attached clients, operations by external id, queues that stay."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import (
    EXTERNAL_ID_MAX_BYTES,
    EXTRA_MAX_BYTES,
    SECOND_US,
    TRANSITIONS_PER_ENTRY_MAX,
    U32_MAX,
)
from beanpole.core.image.image import Image
from beanpole.core.jobs import effects
from beanpole.core.jobs.extension import ATTACHMENT_BYTES
from beanpole.core.jobs.job import BURIED, DELAYED, DONE, FAILED, READY, RESERVED
from beanpole.core.jobs.spaces import RANK_NORMAL
from beanpole.events import GEARMAN, WORKQ
from tests.unit.core.cluster import chunks_of, copy_of, events_of, image_of
from tests.unit.core.guests import HIGH, LOW, PING, TURN, TWIST, Guests


@pytest.fixture
def cluster(guests: Guests) -> Iterator[Guests]:
    """Assert after the test that the memory that is counted is that of the extensions."""
    yield guests
    machine = guests.machine
    counted = sum(job.ext.memory_bytes() for job in machine.queue.jobs.values() if job.ext)
    assert machine.queue.extension_bytes == counted


# --- clients of a job -----------------------------------------------------------------------------


def test_the_last_client_that_goes_takes_a_waiting_job_along(cluster: Guests) -> None:
    job = cluster.submitted(2, b"one")
    assert cluster.submit(3, b"one") == (job, 1)
    cluster.close(2)
    assert cluster.state(job) == b"ready"
    events_of(cluster.machine)
    cluster.close(3)
    assert cluster.state(job) == b"gone"
    deleted = events_of(cluster.machine)[-1]
    assert (deleted.kind, deleted.reason, deleted.before) == (e.DELETED, e.ABANDONED, READY)
    assert not cluster.machine.queue.spaces[GEARMAN].external_ids


def test_a_client_whose_session_ended_does_not_hear_of_a_failure(cluster: Guests) -> None:
    """Its node was frozen and is behind; the job's worker may have done the job meanwhile."""
    job = cluster.submitted(2)
    cluster.machine.queue.effects.listened[job] = None
    ended = cluster.apply([cluster.section((c.CLOSE, 2, 0))])
    assert ended.effects == [(job, effects.GONE, b"")]


@pytest.mark.parametrize("order", ["before", "after", "meanwhile"])
def test_one_submission_in_background_is_enough_to_stay(cluster: Guests, order: str) -> None:
    """Gearmand's own servers lose the job here."""
    if order == "before":
        cluster.submit(3, b"one", foreground=0)
    cluster.submit(2, b"one")
    if order == "after":
        cluster.submit(3, b"one", foreground=0)
    elif order == "meanwhile":
        job = cluster.take()
        cluster.submit(3, b"one", foreground=0)
    cluster.close(2)
    cluster.close(3)
    if order == "meanwhile":
        cluster.do(c.RELEASE, 4, job, RANK_NORMAL, 0)
    assert cluster.take() != 0


def test_a_delayed_job_is_abandoned_too(cluster: Guests) -> None:
    job = cluster.submitted(2, delay_us=9 * SECOND_US)
    cluster.close(2)
    assert cluster.state(job) == b"gone"
    assert len(cluster.machine.queue.timers) == 0


BACK = ["release", "session", "node", "ttr", "bury", "return"]


def come_back(cluster: Guests, job: int, how: str) -> None:
    """Return a reserved job of session 4 to its queue."""
    if how == "release":
        cluster.do(c.RELEASE, 4, job, RANK_NORMAL, 0)
    elif how == "session":
        cluster.close(4)
    elif how == "node":
        cluster.lead((c.NODE_DOWN, 0, 1))
    elif how == "ttr":
        cluster.pass_s(2)
    elif how == "bury":
        cluster.do(c.BURY, 4, job, RANK_NORMAL)
    else:
        cluster.do(c.RETURN, 4, job)


@pytest.mark.parametrize("how", BACK)
def test_a_reserved_job_is_abandoned_when_it_comes_back(cluster: Guests, how: str) -> None:
    job = cluster.submitted(2)
    assert cluster.take() == job
    cluster.do(c.SET_TTR, 4, job, SECOND_US)
    cluster.close(2)
    assert cluster.state(job) == b"reserved"
    cluster.machine = copy_of(cluster.machine)
    come_back(cluster, job, how)
    assert cluster.state(job) == b"gone"
    assert events_of(cluster.machine)[-1].reason == e.ABANDONED
    assert cluster.machine.queue.spaces[GEARMAN].reserved == 0


def test_an_abandoned_job_may_be_finished_and_wanted_again(cluster: Guests) -> None:
    first, second = cluster.submitted(2, b"one"), cluster.submitted(2, b"two")
    assert [cluster.take(), cluster.take()] == [first, second]
    cluster.close(2)
    assert cluster.do(c.FINISH, 4, first, DONE, b"done") == c.OK
    assert cluster.submit(3, b"two") == (second, 1)
    cluster.close(4)
    assert cluster.state(second) == b"ready"


def test_a_session_is_attached_once_however_often_it_submits(cluster: Guests) -> None:
    job = cluster.submitted(2, b"one")
    before = cluster.machine.queue.extension_bytes
    assert [cluster.submit(2, b"one") for _ in range(3)] == [(job, 1)] * 3
    assert cluster.machine.queue.extension_bytes == before
    cluster.submit(3, b"one")
    assert cluster.machine.queue.extension_bytes == before + ATTACHMENT_BYTES
    assert len(cluster.ext(job).clients) == 2


def test_each_unique_is_of_its_function_and_nothing_is_no_unique(cluster: Guests) -> None:
    jobs = [cluster.submitted(2, name) for name in (b"turn\0one", b"twist\0one", b"", b"")]
    assert len(set(jobs)) == 4
    assert cluster.submit(3, b"turn\0one", body=b"other", rank=HIGH) == (jobs[0], 1)
    kept = cluster.machine.queue.jobs[jobs[0]]
    assert (kept.body, kept.rank) == (b"data", RANK_NORMAL)


def test_a_lost_session_that_may_come_back_stays_attached(cluster: Guests) -> None:
    secret = b"s" * 16
    cluster.do(c.KEEP, 2, secret, 5 * SECOND_US)
    job = cluster.submitted(2)
    cluster.do(c.CLOSE, 2, 1)
    assert cluster.state(job) == b"ready"
    cluster.machine = copy_of(cluster.machine)
    cluster.enter(9, GEARMAN, TURN)
    assert cluster.do(c.RESUME, 9, secret) == c.OK
    assert list(cluster.machine.origins[0].sessions[9].attached) == [job]
    cluster.do(c.CLOSE, 9, 1)
    cluster.pass_s(6)
    assert cluster.state(job) == b"gone"


def test_the_end_of_a_session_with_thousands_of_jobs_is_many_entries(cluster: Guests) -> None:
    count = 3 * TRANSITIONS_PER_ENTRY_MAX
    submit = (c.SUBMIT, 2, TURN, RANK_NORMAL, 0, b"", 0, 1, b"", b"data")
    for _ in range(3):
        cluster.batch(*(submit,) * TRANSITIONS_PER_ENTRY_MAX)
    assert cluster.machine.queue.spaces[GEARMAN].ready == count
    cluster.close(2)
    left = [count, cluster.machine.queue.spaces[GEARMAN].ready]
    while cluster.machine.has_work():
        cluster.machine = copy_of(cluster.machine)
        cluster.pass_s(0)
        left.append(cluster.machine.queue.spaces[GEARMAN].ready)
    assert max(before - after for before, after in pairwise(left)) <= TRANSITIONS_PER_ENTRY_MAX
    assert left[-1] == 0


# --- jobs that return to their queue --------------------------------------------------------------


@pytest.mark.parametrize("how", ["release", "session", "ttr", "return"])
def test_what_comes_back_goes_behind_all_of_its_rank(cluster: Guests, how: str) -> None:
    first, second = (cluster.submitted(2, foreground=0) for _ in range(2))
    last = cluster.submitted(2, foreground=0, rank=LOW)
    assert cluster.take() == first
    cluster.do(c.SET_TTR, 4, first, SECOND_US)
    cluster.do(c.PROGRESS, 4, first, b"1\x002")
    come_back(cluster, first, how)
    assert cluster.ext(first).progress == b""
    cluster.machine = copy_of(cluster.machine)
    assert [cluster.take(3) for _ in range(3)] == [second, first, last]


@pytest.mark.parametrize("how", ["release", "session", "ttr", "return"])
def test_a_job_fails_after_its_last_attempt(cluster: Guests, how: str) -> None:
    job = cluster.submitted(2, attempts=2)
    for session in (3, 4):
        assert cluster.take(session) == job
        cluster.do(c.SET_TTR, session, job, SECOND_US)
        assert cluster.state(job) == b"reserved"
        if session == 3:
            cluster.close(3)
            assert cluster.state(job) == b"ready"
    events_of(cluster.machine)
    cluster.machine.queue.effects.listened[job] = None
    come_back(cluster, job, how)
    assert cluster.state(job) == b"gone"
    assert e.FAILED in [event.kind for event in events_of(cluster.machine)]


def test_set_ttr_begins_anew_and_may_have_no_end(cluster: Guests) -> None:
    job = cluster.submitted(2)
    cluster.take()
    cluster.do(c.SET_TTR, 4, job, 2 * SECOND_US)
    cluster.pass_s(1.5)
    assert cluster.do(c.SET_TTR, 4, job, SECOND_US) == c.OK
    cluster.machine = copy_of(cluster.machine)
    cluster.pass_s(0.999_999)
    assert cluster.state(job) == b"reserved"
    assert cluster.do(c.SET_TTR, 4, job, 0) == c.OK
    assert cluster.machine.next_due_us(cluster.time_us) is None
    cluster.pass_s(9)
    assert cluster.state(job) == b"reserved"
    assert cluster.do(c.SET_TTR, 4, job, 1) == c.OK
    cluster.pass_s(0.000_001)
    assert cluster.state(job) == b"ready"
    assert cluster.do(c.SET_TTR, 4, job, 1) == c.NOT_FOUND
    assert cluster.take(3) == job
    # The TTR was of that reservation only: a worker without a timeout keeps the job (life 2902).
    assert cluster.machine.next_due_us(cluster.time_us) is None
    assert cluster.do(c.SET_TTR, 4, job, 1) == c.NOT_FOUND
    assert cluster.do(c.SET_TTR, 3, job, -1) == c.BAD_COMMAND


# --- by external id -------------------------------------------------------------------------------


def add(cluster: Guests, name: bytes, ttl_us: int = 60 * SECOND_US, session: int = 5) -> int:
    rest = (ttl_us, name, 0, 0, b"data")
    job_id, known = cluster.do(c.ADD, session, PING, RANK_NORMAL, 0, SECOND_US, *rest)
    assert known == 0
    assert isinstance(job_id, int)
    return job_id


def test_anybody_finishes_a_job_by_its_name_and_the_first_one_wins(cluster: Guests) -> None:
    job = add(cluster, b"one")
    cluster.machine.queue.effects.listened[job] = None
    applied = cluster.apply([cluster.section((c.FINISH_NAMED, 6, b"one", DONE, b"well"))])
    assert applied.effects == [(job, effects.DONE, b"well")]
    assert cluster.do(c.FINISH_NAMED, 5, b"one", FAILED, b"no") == c.EXISTS
    assert cluster.do(c.RESULT, 5, job) == (DONE, b"", b"well")
    assert cluster.do(c.FINISH_NAMED, 5, b"two", DONE, b"") == c.NOT_FOUND
    assert cluster.do(c.FINISH_NAMED, 5, b"", DONE, b"") == c.NOT_FOUND
    assert cluster.do(c.FINISH_NAMED, 5, b"one", READY, b"") == c.BAD_COMMAND
    assert cluster.do(c.FINISH_NAMED, 2, b"one", DONE, b"") == c.NOT_FOUND  # its own space


def test_a_named_job_of_gearman_is_finished_by_its_worker_only(cluster: Guests) -> None:
    job = cluster.submitted(2, b"one")
    assert cluster.do(c.FINISH_NAMED, 4, b"one", DONE, b"") == c.NOT_FOUND
    assert cluster.take() == job
    assert cluster.do(c.FINISH_NAMED, 3, b"one", DONE, b"") == c.NOT_FOUND
    assert cluster.do(c.DELETE_NAMED, 3, b"one") == c.NOT_FOUND
    assert cluster.do(c.FINISH_NAMED, 4, b"one", DONE, b"") == c.OK
    assert cluster.state(job) == b"gone"


@pytest.mark.parametrize("state", [READY, DELAYED, RESERVED, DONE, FAILED])
def test_a_deleted_name_is_free_in_whatever_state(cluster: Guests, state: int) -> None:
    delay_us = SECOND_US if state == DELAYED else 0
    rest = (60 * SECOND_US, b"one", 0, 0, b"data")
    job, _ = cluster.do(c.ADD, 5, PING, 1, delay_us, SECOND_US, *rest)
    if state == RESERVED:
        assert cluster.take(6) == job
    elif state in (DONE, FAILED):
        cluster.do(c.FINISH_NAMED, 6, b"one", state, b"result")
    assert cluster.machine.queue.jobs[job].state == state
    assert cluster.do(c.ADD, 5, PING, 1, 0, 0, *rest) == c.EXISTS
    assert cluster.do(c.DELETE_NAMED, 6, b"one") == c.OK
    assert cluster.do(c.DELETE_NAMED, 6, b"one") == c.NOT_FOUND
    assert len(cluster.machine.queue.expiries) == 0
    assert add(cluster, b"one") == job + 1


def test_only_a_job_that_was_not_done_is_evicted(cluster: Guests) -> None:
    for name in (b"one", b"two", b"three"):
        add(cluster, name, ttl_us=SECOND_US)
    cluster.do(c.FINISH_NAMED, 5, b"one", DONE, b"")
    cluster.do(c.DELETE_NAMED, 5, b"two")
    cluster.pass_s(1)
    cluster.machine = copy_of(cluster.machine)
    assert cluster.machine.queue.spaces[WORKQ].evicted == 1
    assert cluster.machine.queue.spaces[GEARMAN].evicted == 0


# --- queues ---------------------------------------------------------------------------------------


def test_a_queue_stays_until_it_is_dropped(cluster: Guests) -> None:
    assert cluster.do(c.CREATE_QUEUE, 2, TWIST) == c.OK
    assert cluster.do(c.CREATE_QUEUE, 2, TWIST) == c.OK
    for session in (2, 3, 4):
        cluster.do(c.IGNORE, session, TURN)
    cluster.machine = copy_of(cluster.machine)
    assert {TURN, TWIST, PING} <= cluster.machine.queue.tubes.keys()
    assert cluster.do(c.DROP_QUEUE, 2, TURN) == c.OK
    assert cluster.do(c.DROP_QUEUE, 2, TURN) == c.NOT_FOUND
    assert cluster.do(c.DROP_QUEUE, 1, b"default") == c.BAD_COMMAND
    assert TURN not in cluster.machine.queue.tubes
    assert cluster.machine.queue.spaces[GEARMAN].tubes == 1


def test_a_queue_with_workers_or_work_in_hand_is_not_dropped(cluster: Guests) -> None:
    job = cluster.submitted(2, foreground=0)
    assert cluster.do(c.DROP_QUEUE, 2, TURN) == c.BUSY
    cluster.take()
    for session in (2, 3, 4):
        cluster.do(c.IGNORE, session, TURN)
    assert cluster.do(c.DROP_QUEUE, 2, TURN) == c.BUSY
    cluster.do(c.RELEASE, 4, job, RANK_NORMAL, 0)
    assert cluster.do(c.DROP_QUEUE, 2, TURN) == c.OK
    assert cluster.state(job) == b"gone"


def test_a_queue_of_thousands_of_jobs_is_dropped_in_parts(cluster: Guests) -> None:
    cluster.do(c.CREATE_QUEUE, 2, TWIST)
    submit = (c.SUBMIT, 2, TWIST, RANK_NORMAL, 0, b"", 0, 1, b"", b"data")
    late = (c.SUBMIT, 2, TWIST, RANK_NORMAL, SECOND_US, b"", 0, 1, b"", b"data")
    cluster.batch(*(submit,) * 2500, late)
    answers: list[int] = []
    while not answers or answers[-1] == c.AGAIN:
        cluster.machine = copy_of(cluster.machine)
        answers.append(cluster.do(c.DROP_QUEUE, 2, TWIST))
    assert answers[-1] == c.OK
    assert 1 < len(answers) < 5
    assert not list(cluster.machine.origins[0].sessions[2].attached)


def test_a_full_queue_takes_no_new_job_of_that_rank(cluster: Guests) -> None:
    assert cluster.do(c.LIMIT_QUEUE, 2, TWIST, 1, 2, 3) == c.NOT_FOUND
    assert cluster.do(c.LIMIT_QUEUE, 2, TURN, 4, 2, 3) == c.OK
    assert cluster.do(c.LIMIT_QUEUE, 2, TURN, 0, 0, 2**32) == c.BAD_COMMAND
    cluster.machine = copy_of(cluster.machine)
    first, _ = cluster.submitted(2, b"one"), cluster.submitted(2, delay_us=SECOND_US)
    assert cluster.submit(2) == c.FULL
    assert cluster.submit(3, b"one") == (first, 1)
    assert cluster.take() == first  # reserved jobs count
    assert cluster.submit(2) == c.FULL
    cluster.submitted(2, rank=LOW)
    assert cluster.submit(2, rank=LOW) == c.FULL
    cluster.submitted(2, rank=HIGH)
    assert cluster.submit(2, rank=HIGH) == c.FULL
    assert cluster.do(c.LIMIT_QUEUE, 2, TURN, 0, 0, 0) == c.OK
    cluster.submitted(2)


# --- effects, versions, bad commands --------------------------------------------------------------


def test_a_job_that_ends_in_the_entry_of_its_submission_is_told(cluster: Guests) -> None:
    job = cluster.machine.queue.next_id
    applied = cluster.apply(
        [
            cluster.section(
                (c.SUBMIT, 2, TURN, 1, 0, b"", 0, 1, b"", b"data"),
                (c.TAKE, 4),
                (c.PROGRESS, 4, job, b"1/2"),
                (c.FINISH, 4, job, DONE, b"quick"),
            )
        ]
    )
    assert applied.effects == [(job, effects.PROGRESS, b"1/2"), (job, effects.DONE, b"quick")]
    # A job in background has no listeners.
    applied = cluster.apply(
        [
            cluster.section(
                (c.SUBMIT, 2, TURN, 1, 0, b"", 0, 0, b"", b"data"),
                (c.TAKE, 4),
                (c.FINISH, 4, job + 1, DONE, b"quick"),
            )
        ]
    )
    assert applied.effects == []
    assert cluster.state(job + 1) == b"gone"


@pytest.mark.parametrize(
    "command",
    [
        (c.SUBMIT, 2, TURN, 1, 0, b"", 0, 1, b"", b"data"),
        (c.FINISH_NAMED, 2, b"", DONE, b""),
        (c.DELETE_NAMED, 2, b""),
        (c.SET_TTR, 2, 1, 1),
        (c.CREATE_QUEUE, 2, TURN),
        (c.DROP_QUEUE, 2, TURN),
        (c.LIMIT_QUEUE, 2, TURN, 1, 1, 1),
        (c.SET_PROTOCOL, 2, GEARMAN),
        (c.SET_PROTOCOL, 2, WORKQ),
    ],
)
def test_nothing_of_it_is_known_below_version_4(command: c.Command) -> None:
    cluster = Guests(version=3)
    before = image_of(cluster.machine)
    assert cluster.do(*command) == c.BAD_COMMAND
    assert len(image_of(cluster.machine)) == len(before)
    assert not cluster.machine.queue.jobs
    assert copy_of(cluster.machine).state_hash == cluster.machine.state_hash


@pytest.mark.parametrize(
    "fields",
    [
        {"session": 1, "queue": b"default"},
        {"session": 5, "queue": PING},
        {"queue": PING},
        {"queue": b"default"},
        {"queue": b"\x02" + b"x" * 513},
        {"rank": -1},
        {"rank": U32_MAX + 1},
        {"delay_us": -1},
        {"unique": b"x" * (EXTERNAL_ID_MAX_BYTES + 1)},
        {"extra": b"x" * (EXTRA_MAX_BYTES + 1)},
        {"attempts": -1},
        {"foreground": -1},
    ],
)
def test_a_submission_that_cannot_be_is_refused(cluster: Guests, fields: dict[str, Any]) -> None:
    assert cluster.submit(**fields) == c.BAD_COMMAND
    assert not cluster.machine.queue.jobs


def test_the_running_hash_sees_every_new_operation() -> None:
    job = (c.SUBMIT, 2, TURN, 1, 0, b"one", 0, 1, b"", b"data")

    def hash_after(*commands: c.Command) -> int:
        cluster = Guests()
        for command in (job, (c.TAKE, 4), *commands):
            cluster.do(*command)
        return cluster.machine.state_hash

    nothing = hash_after((c.TOUCH, 3, 99))
    for command in [
        (c.SUBMIT, 3, TURN, 1, 0, b"one", 0, 1, b"", b"data"),
        (c.SUBMIT, 3, TURN, 1, 0, b"one", 0, 0, b"", b"data"),
        (c.SET_TTR, 4, 1, SECOND_US),
        (c.CREATE_QUEUE, 3, TWIST),
        (c.LIMIT_QUEUE, 3, TURN, 1, 2, 3),
        (c.DELETE_NAMED, 4, b"one"),
        (c.FINISH_NAMED, 4, b"one", DONE, b""),
    ]:
        assert hash_after(command) != nothing, command
    limits = [hash_after((c.LIMIT_QUEUE, 3, TURN, *limits)) for limits in ((1, 2, 3), (3, 2, 1))]
    assert limits[0] != limits[1]


def test_an_image_in_progress_keeps_clients_as_they_were(cluster: Guests) -> None:
    jobs = [cluster.submitted(2, b"%d" % number) for number in range(5)]
    cluster.submit(3, b"0")
    cluster.do(c.LIMIT_QUEUE, 2, TURN, 7, 8, 9)
    expected = image_of(cluster.machine)
    image = Image(cluster.machine)
    cluster.do(c.LIMIT_QUEUE, 2, TURN, 0, 0, 0)
    cluster.submit(3, b"1")
    cluster.submit(4, b"2", foreground=0)
    cluster.take()
    cluster.do(c.SET_TTR, 4, jobs[0], 77)
    cluster.close(2)
    cluster.submitted(3, b"5")
    chunks = chunks_of(image)
    image.close()
    assert chunks == expected
    assert [cluster.state(job) for job in jobs] == [b"reserved", b"ready", b"ready", *[b"gone"] * 2]


@pytest.mark.parametrize("state", [BURIED, READY])
def test_what_was_buried_is_abandoned_as_well(cluster: Guests, state: int) -> None:
    job = cluster.submitted(2)
    cluster.take()
    cluster.do(c.BURY, 4, job, RANK_NORMAL)
    if state == READY:
        cluster.do(c.KICK_JOB, 4, job)
    cluster.close(2)
    assert cluster.state(job) == b"gone"
