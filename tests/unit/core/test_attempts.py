"""Limits of a job's attempts and failures: repeated jobs, and jobs that have finally failed."""

from collections.abc import Iterator

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.image.image import Image
from beanpole.core.jobs import effects
from beanpole.core.jobs.job import FAILED, READY, RESERVED
from tests.unit.core.cluster import chunks_of, copy_of, events_of, image_of
from tests.unit.core.foreign import NOBODY, SECOND, Foreign, add_spaces, finish, take


@pytest.fixture(autouse=True, scope="module")
def spaces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


def test_the_last_attempt_that_times_out_has_failed() -> None:
    cluster = Foreign()
    job = cluster.added(attempts=2, ttr_us=SECOND, ttl_us=9 * SECOND)
    cluster.machine.queue.effects.listened[job] = None
    take(cluster)
    cluster.pass_s(1)
    assert cluster.state(job) == b"ready"
    take(cluster)
    events_of(cluster.machine)
    applied = cluster.pass_s(1)
    assert applied.effects == [(job, effects.FAILED, b"")]
    assert cluster.do(c.RESULT, 2, job) == (FAILED, b"", b"")
    event = events_of(cluster.machine)[-1]
    assert (event.kind, event.reason, event.state, event.timeouts) == (e.FAILED, e.TTR, FAILED, 2)
    assert cluster.machine.queue.timeouts == 2


def test_without_a_ttl_it_is_gone_then() -> None:
    cluster = Foreign()
    job = cluster.added(attempts=1, ttr_us=SECOND)
    take(cluster)
    cluster.do(c.CLOSE, 2, 1)
    assert cluster.state(job) == b"ready"  # a return is no timeout
    assert take(cluster, 3) == job
    cluster.pass_s(1)
    assert cluster.state(job) == b"gone"


def test_failures_are_counted_to_their_limit() -> None:
    cluster = Foreign()
    job = cluster.added(failures=2, ttl_us=9 * SECOND)
    cluster.machine.queue.effects.listened[job] = None
    take(cluster)
    cluster.do(c.PROGRESS, 2, job, b"1/2")
    image, expected = Image(cluster.machine), image_of(cluster.machine)
    events_of(cluster.machine)
    assert not cluster.apply([cluster.section((c.FINISH, 2, job, FAILED, b"1"))]).effects
    event = events_of(cluster.machine)[-1]
    assert (event.kind, event.before, event.state) == (e.FAILED, RESERVED, READY)
    assert cluster.do(c.RESULT, 2, job) == (READY, b"", b"")
    cluster.machine = copy_of(cluster.machine)
    assert take(cluster) == job
    assert finish(cluster, job, FAILED, b"2") == c.OK
    assert cluster.do(c.RESULT, 2, job) == (FAILED, b"", b"2")
    assert chunks_of(image) == expected
    image.close()


def test_a_failure_of_the_last_attempt_is_the_last() -> None:
    cluster = Foreign()
    job = cluster.added(attempts=2, failures=9, ttl_us=9 * SECOND)
    assert take(cluster) == job
    assert finish(cluster, job, FAILED, b"1") == c.OK
    assert take(cluster) == job
    assert finish(cluster, job, FAILED, b"2") == c.OK
    assert cluster.do(c.RESULT, 2, job) == (FAILED, b"", b"2")


def test_a_ready_job_that_fails_and_may_be_repeated_has_been_ready_since_then() -> None:
    cluster = Foreign(NOBODY)
    job = cluster.added(failures=2)
    since_us = events_of(cluster.machine)[-1].ready_us
    cluster.pass_s(3)
    assert finish(cluster, job, FAILED) == c.OK
    cluster.pass_s(4)
    assert take(cluster) == job
    failed, reserved = events_of(cluster.machine)
    assert (failed.before, failed.state, failed.ready_us) == (READY, READY, since_us)
    assert reserved.wait_us == 7 * SECOND
