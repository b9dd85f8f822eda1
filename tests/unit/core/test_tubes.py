"""Tubes: their life cycle, pauses, and the limits of the cluster."""

import pytest

from beanpole import commands as c
from beanpole.constants import SECOND_US, TUBE_NAME_MAX_BYTES, U32_MAX, WATCHED_TUBES_MAX
from beanpole.core.accounts import (
    JOB_BYTES,
    KEY_BYTES,
    TUBE_BYTES,
    WATCH_BYTES,
    beside_jobs_bytes,
    image_bytes,
    memory_bytes,
)
from beanpole.core.image.image import Image
from tests.unit.core.cluster import DEFAULT, Cluster


def limit(
    cluster: Cluster,
    jobs: int = 100,
    tubes: int = 100,
    sessions: int = 100,
    body_bytes: int = 1_000_000,
) -> None:
    cluster.lead((c.EPOCH, 1, 0, jobs, tubes, sessions, body_bytes))


# --- life -----------------------------------------------------------------------------------------


def test_default_is_always_there(cluster: Cluster) -> None:
    cluster.batch((c.USE, 1, b"a"), (c.WATCH, 1, b"a"), (c.IGNORE, 1, DEFAULT))
    assert cluster.do(c.LIST_TUBES, 1) == (DEFAULT, b"a")
    assert cluster.stats_tube()["using"] == 0


def test_tubes_are_listed_in_the_order_of_creation(cluster: Cluster) -> None:
    cluster.batch((c.WATCH, 1, b"w"), (c.USE, 1, b"u"), (c.PUT, 1, b"a", 0, 0, 1, b""))
    assert cluster.do(c.LIST_TUBES, 1) == (DEFAULT, b"w", b"u", b"a")


@pytest.mark.parametrize(
    ("create", "drop"),
    [
        ((c.USE, 1, b"t"), (c.USE, 1, DEFAULT)),
        ((c.WATCH, 1, b"t"), (c.IGNORE, 1, b"t")),
        ((c.PUT, 1, b"t", 0, 0, 1, b""), (c.DELETE, 1, 1)),
        ((c.PUT, 1, b"t", 0, 5, 1, b""), (c.DELETE, 1, 1)),
    ],
)
def test_a_tube_goes_with_the_last_that_refers_to_it(
    cluster: Cluster, create: c.Command, drop: c.Command
) -> None:
    cluster.batch(create)
    assert cluster.stats_tube(b"t")["name"] == b"t"
    cluster.do(c.PAUSE_TUBE, 1, b"t", 9)
    cluster.batch(drop)
    assert cluster.do(c.STATS_TUBE, 1, b"t") == c.NOT_FOUND
    cluster.do(c.USE, 1, b"t")
    assert (cluster.stats_tube(b"t")["pauses"], cluster.stats_tube(b"t")["left"]) == (0, 0)


def test_a_reserved_or_buried_job_keeps_its_tube(cluster: Cluster) -> None:
    job = cluster.put(tube=b"t")
    cluster.do(c.RESERVE_JOB, 1, job)
    assert cluster.stats_tube(b"t")["reserved"] == 1
    cluster.do(c.BURY, 1, job, 0)
    assert cluster.stats_tube(b"t")["buried"] == 1
    cluster.do(c.DELETE, 1, job)
    assert cluster.do(c.STATS_TUBE, 1, b"t") == c.NOT_FOUND


def test_watching_twice_is_watching_once(cluster: Cluster) -> None:
    cluster.batch((c.WATCH, 1, b"t"), (c.WATCH, 1, b"t"))
    assert cluster.stats_tube(b"t")["watching"] == 1
    cluster.do(c.IGNORE, 1, b"t")
    assert cluster.do(c.STATS_TUBE, 1, b"t") == c.NOT_FOUND


def test_ignoring_an_unwatched_tube_does_not_create_it(cluster: Cluster) -> None:
    assert cluster.do(c.IGNORE, 1, b"t") == c.OK
    assert cluster.do(c.LIST_TUBES, 1) == (DEFAULT,)


def test_the_last_watched_tube_cannot_be_ignored(cluster: Cluster) -> None:
    assert cluster.do(c.IGNORE, 1, DEFAULT) == c.NOT_FOUND
    cluster.put()
    assert cluster.reserve() == 1


def test_an_ended_session_leaves_its_tubes(cluster: Cluster) -> None:
    cluster.batch((c.OPEN, 2), (c.USE, 2, b"a"), (c.WATCH, 2, b"a"), (c.WATCH, 2, b"b"))
    assert cluster.do(c.LIST_TUBES, 1) == (DEFAULT, b"a", b"b")
    cluster.do(c.CLOSE, 2, 0)
    assert cluster.do(c.LIST_TUBES, 1) == (DEFAULT,)


def test_tubes_that_are_gone_wake_nobody(cluster: Cluster) -> None:
    for number in range(100):
        job = cluster.put(tube=b"t%d" % number)
        cluster.do(c.DELETE, 1, job)
    assert set(cluster.machine.queue.ready_tubes) <= {DEFAULT}


# --- pause ----------------------------------------------------------------------------------------


def test_a_pause_stops_grants_only(cluster: Cluster) -> None:
    cluster.put()
    delayed = cluster.put(delay_s=1)
    assert cluster.do(c.PAUSE_TUBE, 1, DEFAULT, 10) == c.OK
    assert cluster.reserve() == 0
    assert cluster.do(c.PEEK_READY, 1, DEFAULT)[0] == 1
    assert cluster.put() == 3
    cluster.pass_s(1.5)
    assert cluster.state(delayed) == b"ready"
    stats = cluster.stats_tube()
    assert (stats["pause"], stats["left"], stats["pauses"]) == (10, 8, 1)
    assert cluster.do(c.RESERVE_JOB, 1, 1) == (1, b"body")


def test_a_pause_ends_at_its_time_and_not_before(cluster: Cluster) -> None:
    cluster.put()
    cluster.do(c.PAUSE_TUBE, 1, DEFAULT, 2)
    assert cluster.machine.next_due_us(0) == cluster.time_us + 2_000_000
    cluster.pass_s(1.999_999)
    assert cluster.reserve() == 0
    cluster.machine.queue.ready_tubes.clear()
    cluster.pass_s(0.000_001)
    assert DEFAULT in cluster.machine.queue.ready_tubes
    assert cluster.reserve() == 1
    stats = cluster.stats_tube()
    assert (stats["pause"], stats["left"], stats["pauses"]) == (0, 0, 1)


@pytest.mark.parametrize(("first_s", "second_s"), [(100, 2), (2, 100)])
def test_a_new_pause_replaces_the_old(cluster: Cluster, first_s: int, second_s: int) -> None:
    cluster.put()
    cluster.do(c.PAUSE_TUBE, 1, DEFAULT, first_s)
    cluster.do(c.PAUSE_TUBE, 1, DEFAULT, second_s)
    cluster.pass_s(second_s - 1)
    assert cluster.reserve() == 0
    cluster.pass_s(1)
    assert cluster.reserve() == 1


def test_a_pause_of_zero_seconds_ends_a_pause(cluster: Cluster) -> None:
    cluster.put()
    cluster.do(c.PAUSE_TUBE, 1, DEFAULT, 86400)
    cluster.do(c.PAUSE_TUBE, 1, DEFAULT, 0)
    assert cluster.reserve() == 1


def test_a_pause_is_refused_out_of_range_or_for_no_tube(cluster: Cluster) -> None:
    assert cluster.do(c.PAUSE_TUBE, 1, b"nobody", 1) == c.NOT_FOUND
    assert cluster.do(c.PAUSE_TUBE, 1, DEFAULT, U32_MAX + 1) == c.BAD_COMMAND
    assert cluster.do(c.PAUSE_TUBE, 1, DEFAULT, -1) == c.BAD_COMMAND
    assert cluster.do(c.PAUSE_TUBE, 1, DEFAULT, U32_MAX) == c.OK


def test_the_pause_of_a_tube_that_is_gone_does_not_end_that_of_its_successor(
    cluster: Cluster,
) -> None:
    cluster.batch((c.USE, 1, b"t"), (c.PAUSE_TUBE, 1, b"t", 5), (c.USE, 1, DEFAULT))
    cluster.batch((c.USE, 1, b"t"), (c.PAUSE_TUBE, 1, b"t", 50))
    cluster.pass_s(6)
    assert cluster.stats_tube(b"t")["left"] == 44


def test_replaced_pauses_leave_nothing_behind(cluster: Cluster) -> None:
    for pause_s in range(1000):
        cluster.do(c.PAUSE_TUBE, 1, DEFAULT, U32_MAX - pause_s)
    assert len(cluster.machine.queue.pauses) == 1
    cluster.do(c.PAUSE_TUBE, 1, DEFAULT, 7)
    assert cluster.machine.next_due_us(0) == cluster.time_us + 7_000_000


# --- limits ---------------------------------------------------------------------------------------


def test_the_limit_of_jobs(cluster: Cluster) -> None:
    limit(cluster, jobs=2)
    assert [cluster.put(), cluster.put(), cluster.put()] == [1, 2, c.OUT_OF_MEMORY]
    cluster.do(c.DELETE, 1, 1)
    assert cluster.put() == 3


def test_the_limit_of_bytes(cluster: Cluster) -> None:
    """A job counts with its overhead beside its body, and so do tubes, sessions and keys."""
    other = beside_jobs_bytes(cluster.machine)
    limit(cluster, body_bytes=other + 2 * JOB_BYTES + 10)
    assert cluster.put(b"x" * 10) == 1
    assert cluster.put(b"x") == c.OUT_OF_MEMORY
    assert cluster.put(b"") == 2
    cluster.do(c.DELETE, 1, 1)
    assert cluster.put(b"x" * 11) == c.OUT_OF_MEMORY
    assert cluster.put(b"x" * 10) == 3
    more = TUBE_BYTES + WATCH_BYTES + KEY_BYTES
    limit(cluster, body_bytes=other + 3 * JOB_BYTES + more + 10)
    put = (c.PUT, 1, DEFAULT, 0, 0, 1, b"")
    for command, answer in [
        ((c.PUT_KEYED, *put[1:], b"key"), (4, 0)),
        ((c.DELETE, 1, 4), c.OK),
        ((c.WATCH, 1, b"a"), c.OK),
        ((c.WATCH, 1, b"b"), c.OK),
        (put, c.OUT_OF_MEMORY),  # there is room without the second tube
        ((c.IGNORE, 1, b"b"), c.OK),
        (put, 5),
        (put, c.OUT_OF_MEMORY),
    ]:
        assert cluster.do(*command) == answer
    taken = sum((other, 3 * JOB_BYTES, more, 10))
    assert memory_bytes(cluster.machine) == taken


def test_an_image_is_no_larger_than_its_estimate(cluster: Cluster) -> None:
    for size in (0, 10, 1000, 50_000):
        for _ in range(20):
            cluster.put(b"x" * size)
            cluster.do(c.RESERVE_JOB, 1, cluster.machine.queue.next_id - 1)
    image = Image(cluster.machine)
    size = 0
    while (chunk := image.next_chunk()) is not None:
        size += len(chunk)
    assert size <= image_bytes(cluster.machine) <= 1.05 * size


def test_the_limit_of_tubes(cluster: Cluster) -> None:
    limit(cluster, tubes=2)
    assert cluster.do(c.USE, 1, b"a") == c.OK
    for command in [
        (c.USE, 1, b"b"),
        (c.WATCH, 1, b"b"),
        (c.PUT, 1, b"b", 0, 0, 1, b""),
    ]:
        assert cluster.do(*command) == c.OUT_OF_MEMORY
    assert cluster.do(c.LIST_TUBES, 1) == (DEFAULT, b"a")
    assert cluster.put(tube=b"a") == 1


def test_the_limit_of_sessions(cluster: Cluster) -> None:
    limit(cluster, sessions=2)
    assert cluster.do(c.OPEN, 2) == c.OK
    assert cluster.do(c.OPEN, 3) == c.OUT_OF_MEMORY
    cluster.do(c.CLOSE, 2, 0)
    assert cluster.do(c.OPEN, 3) == c.OK


def test_the_limit_of_watched_tubes(cluster: Cluster) -> None:
    watches = [(c.WATCH, 1, b"%d" % number) for number in range(WATCHED_TUBES_MAX)]
    results = cluster.batch(*watches)
    assert results == [c.OK] * (WATCHED_TUBES_MAX - 1) + [c.OUT_OF_MEMORY]


@pytest.mark.parametrize("size", [0, TUBE_NAME_MAX_BYTES + 1])
def test_the_length_of_a_name(cluster: Cluster, size: int) -> None:
    assert cluster.do(c.USE, 1, b"x" * size) == c.OUT_OF_MEMORY
    assert cluster.do(c.USE, 1, b"x" * TUBE_NAME_MAX_BYTES) == c.OK


def test_puts_are_refused_by_the_flag_and_nothing_else_is(cluster: Cluster) -> None:
    cluster.put()
    refused = cluster.batch(
        (c.PUT, 1, DEFAULT, 0, 0, 1, b""),
        (c.RESERVE_JOB, 1, 1),
        (c.RELEASE, 1, 1, 0, 0),
        (c.DELETE, 1, 1),
        flags=c.FLAG_PUTS_REFUSED,
    )
    assert refused == [c.OUT_OF_MEMORY, (1, b"body"), c.OK, c.OK]
    assert cluster.put() == 2


def test_a_pause_that_was_ended_asks_for_no_entry(cluster: Cluster) -> None:
    cluster.do(c.PAUSE_TUBE, 1, b"default", 10)
    machine = cluster.machine
    assert machine.next_due_us(cluster.time_us) == cluster.time_us + 10 * SECOND_US
    cluster.do(c.PAUSE_TUBE, 1, b"default", 0)
    assert machine.next_due_us(cluster.time_us) is None
